"""``regard translate run``: lines in, translated lines out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from regard.cli.console import spinner, write_output
from regard.cli.translate.translate_arguments import Beam, Device, Model, load_translator

# Lines translated at once.
LINES_PER_BLOCK = 256


@dataclass(frozen=True)
class RunTranslator:
    """Translate lines of text: standard input to standard output, or a file.

    Writes one line for each line read; an empty line stays empty. A line of more than 1,000 tokens is truncated, with a
    warning.
    """

    model: Model
    data: Annotated[str, typer.Argument(help="Text file, one text per line; - is standard input.")] = "-"
    beam: Beam = 1
    normalise: Annotated[float, typer.Option(help="Divide a log-probability by the length to this power.")] = 1.0
    copy_unknown: Annotated[
        bool, typer.Option("--copy-unknown", help="Replace unknown words by the source word with the largest weight.")
    ] = False
    device: Device = "cpu"

    def run(self) -> None:
        with spinner(f"Opening {self.model}"):
            translator = load_translator(self.model, self.device)
        for lines in self._lines():
            found = translator.translate(
                lines, beam=self.beam, normalise=self.normalise, copy_unknown=self.copy_unknown
            )
            for one in found:
                write_output(one.text)
            sys.stdout.flush()

    def _lines(self) -> Iterator[list[str]]:
        """Lines of the file in blocks; from a terminal one by one, as they are typed."""
        from regard.data import read_lines

        if self.data == "-" and sys.stdin is not None and sys.stdin.isatty():
            yield from ([line.rstrip("\n")] for line in sys.stdin)
            return
        lines = read_lines(self.data)
        for first in range(0, len(lines), LINES_PER_BLOCK):
            yield list(lines[first : first + LINES_PER_BLOCK])
