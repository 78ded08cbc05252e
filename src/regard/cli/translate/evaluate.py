"""``regard translate eval``: how good translations of held-out pairs are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from regard.cli.console import spinner, write_json, write_output
from regard.cli.translate.inputs import Beam, Data, Device, Model, Target, opened, pairs


@dataclass(frozen=True)
class Evaluate:
    """Translate pairs held out and compare with their targets: share exactly right, BLEU and chrF (sacrebleu).

    A model that was trained with --lower is compared with targets in small letters.
    """

    model: Model
    data: Data
    target: Target = None
    beam: Beam = 1
    copy_unknown: Annotated[bool, typer.Option("--copy-unknown", help="As in run.")] = False
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False
    device: Device = "cpu"

    def run(self) -> None:
        from regard.seq2seq.measures import quality

        with spinner(f"Opening {self.model}") as now:
            translator = opened(self.model, self.device)
            held_out = pairs(self.data, self.target)
            now(f"Translating {len(held_out):,} texts")
            found = translator.translate(held_out.source, beam=self.beam, copy_unknown=self.copy_unknown)
            lower = translator.target.lower
            wanted = [text.lower() if lower else text for text in held_out.target]
            told: dict[str, Any] = quality([one.text for one in found], wanted)._asdict()
        told["beam"], told["lower"] = self.beam, lower
        if self.as_json:
            write_json(told)
            return
        rows = {
            "pairs": f"{told['pairs']:,}",
            "exact": f"{told['exact']:.2%}",
            "BLEU": f"{told['bleu']:.2f}  ({told['bleu_signature']})",
            "chrF": f"{told['chrf']:.2f}",
        }
        for name, value in rows.items():
            write_output(f"{name:6} {value}")
