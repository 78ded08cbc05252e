"""``regard translate align``: the attention weights of predicting given targets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from regard.cli.console import spinner, write_json, write_output
from regard.cli.translate.translate_arguments import Data, Device, Ensemble, Model, Target, load_translator, read_data


class AlignmentFormat(StrEnum):
    """Output format of an alignment."""

    pharaoh = "pharaoh"
    text = "text"
    json = "json"


@dataclass(frozen=True)
class Align:
    """Align the targets of pairs with their sources, by the attention weights of each target token."""

    model: Model
    data: Data
    target: Target = None
    form: Annotated[
        AlignmentFormat,
        typer.Option("--as", help="pharaoh: 0-0 1-2, source-target; text: one line per token; json: all weights."),
    ] = AlignmentFormat.pharaoh
    ensemble: Ensemble = None
    device: Device = "cpu"

    def run(self) -> None:
        from regard.seq2seq.alignment import as_text, links, pharaoh

        with spinner(f"Opening {self.model}") as now:
            translator = load_translator(self.model, self.device, self.ensemble)
            given = read_data(self.data, self.target)
            now(f"Aligning {len(given):,} pairs")
            found = translator.align(given.source, given.target)
        for one in found:
            if self.form is AlignmentFormat.pharaoh:
                # The end token is not part of the target text.
                write_output(pharaoh(links(one.weights[: len(one.tokens) - 1])))
            elif self.form is AlignmentFormat.text:
                write_output(as_text(one) + "\n")
            else:
                weights = [[round(float(weight), 4) for weight in row] for row in one.weights]
                write_json({"source": one.source_tokens, "target": one.tokens, "weights": weights})
