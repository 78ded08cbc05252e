"""``regard translate eval``: the quality of translations of test pairs."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any

import typer

from regard.cli.console import spinner, write_json, write_output
from regard.cli.translate.translate_arguments import (
    Beam,
    Data,
    Device,
    Ensemble,
    Model,
    Target,
    load_translator,
    read_data,
)


@dataclass(frozen=True)
class Evaluate:
    """Translate test pairs and compare with their targets: exact matches, BLEU and chrF (sacrebleu).

    If the model was trained with --lower, the targets are lowercased first. The first figure is the relevant one:
    BLEU, or exact matches where most targets are shorter than the four words that BLEU compares.
    """

    model: Model
    data: Data
    target: Target = None
    beam: Beam = 1
    copy_unknown: Annotated[bool, typer.Option("--copy-unknown", help="As in run.")] = False
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False
    ensemble: Ensemble = None
    device: Device = "cpu"

    def run(self) -> None:
        from regard.seq2seq.measures import ORDER, bleu_tokens, quality

        with spinner(f"Opening {self.model}") as now:
            translator = load_translator(self.model, self.device, self.ensemble)
            held_out = read_data(self.data, self.target)
            now(f"Translating {len(held_out):,} texts")
            found = translator.translate(held_out.source, beam=self.beam, copy_unknown=self.copy_unknown)
            lower = translator.target.lower
            wanted = [text.lower() if lower else text for text in held_out.target]
            result: dict[str, Any] = quality([one.text for one in found], wanted)._asdict()
        result["beam"], result["lower"] = self.beam, lower
        lengths = [len(bleu_tokens(text)) for text in wanted]
        typical, short = median(lengths), sum(length < ORDER for length in lengths) > len(lengths) / 2
        if self.as_json:
            write_json(result)
            return
        bleu = f"{result['bleu']:.2f}  ({result['bleu_signature']})"
        rows = {"BLEU": bleu, "chrF": f"{result['chrf']:.2f}", "exact": f"{result['exact']:.2%}"}
        if short:
            rows = {name: rows[name] for name in ("exact", "chrF", "BLEU")}
        for name, value in {**rows, "pairs": f"{result['pairs']:,}"}.items():
            write_output(f"{name:6} {value}")
        if short:
            write_output(
                f"BLEU compares runs of {ORDER} words and signs, and most of these targets have fewer, typically "
                f"{typical:.0f}: read the exact matches instead"
            )
