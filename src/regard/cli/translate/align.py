"""``regard translate align``: where the decoder looks when it says given targets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from regard.cli.console import spinner, write_json, write_output
from regard.cli.translate.inputs import Data, Device, Model, Target, opened, pairs


class Form(StrEnum):
    """How an alignment is written."""

    pharaoh = "pharaoh"
    text = "text"
    json = "json"


@dataclass(frozen=True)
class Align:
    """Say the targets of some pairs and write down where the decoder looked for each token."""

    model: Model
    data: Data
    target: Target = None
    form: Annotated[
        Form, typer.Option("--as", help="pharaoh: 0-0 1-2, source-target; text: one line per token; json: all weights.")
    ] = Form.pharaoh
    device: Device = "cpu"

    def run(self) -> None:
        from regard.seq2seq.alignment import as_text, links, pharaoh

        with spinner(f"Opening {self.model}") as now:
            translator = opened(self.model, self.device)
            given = pairs(self.data, self.target)
            now(f"Aligning {len(given):,} pairs")
            found = translator.align(given.source, given.target)
        for one in found:
            if self.form is Form.pharaoh:
                # The end is not a token of the target text.
                write_output(pharaoh(links(one.weights[: len(one.tokens) - 1])))
            elif self.form is Form.text:
                write_output(as_text(one) + "\n")
            else:
                told = {
                    "source": one.source_tokens,
                    "target": one.tokens,
                    "weights": [[round(float(weight), 4) for weight in row] for row in one.weights],
                }
                write_json(told)
