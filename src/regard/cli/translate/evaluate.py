"""``regard translate eval``: the quality of translations of test pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from regard.cli.console import spinner, write_json, write_output
from regard.cli.translate.translate_arguments import Beam, Data, Device, Model, Target, load_translator, read_data


@dataclass(frozen=True)
class Evaluate:
    """Translate test pairs and compare with their targets: exact matches, BLEU and chrF (sacrebleu).

    If the model was trained with --lower, the targets are lowercased first.
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
            translator = load_translator(self.model, self.device)
            held_out = read_data(self.data, self.target)
            now(f"Translating {len(held_out):,} texts")
            found = translator.translate(held_out.source, beam=self.beam, copy_unknown=self.copy_unknown)
            lower = translator.target.lower
            wanted = [text.lower() if lower else text for text in held_out.target]
            result: dict[str, Any] = quality([one.text for one in found], wanted)._asdict()
        result["beam"], result["lower"] = self.beam, lower
        if self.as_json:
            write_json(result)
            return
        rows = {
            "pairs": f"{result['pairs']:,}",
            "exact": f"{result['exact']:.2%}",
            "BLEU": f"{result['bleu']:.2f}  ({result['bleu_signature']})",
            "chrF": f"{result['chrf']:.2f}",
        }
        for name, value in rows.items():
            write_output(f"{name:6} {value}")
