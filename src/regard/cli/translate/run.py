"""``regard translate run``: lines in, translated lines out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from regard.cli.console import spinner, write_output
from regard.cli.translate.inputs import Beam, Device, Model, opened

# Lines that are translated together.
TOGETHER = 256


@dataclass(frozen=True)
class Run:
    """Translate lines of text: standard input to standard output, or a file.

    One line out for each line in; an empty line stays empty. A line of more than 1,000 tokens is cut, with a warning.
    """

    model: Model
    data: Annotated[str, typer.Argument(help="Text file, one text per line; - is standard input.")] = "-"
    beam: Beam = 1
    normalise: Annotated[float, typer.Option(help="Divide a log-probability by the length to this power.")] = 1.0
    copy_unknown: Annotated[
        bool, typer.Option("--copy-unknown", help="For a word it has no name for, say the source word it looked at.")
    ] = False
    device: Device = "cpu"

    def run(self) -> None:
        with spinner(f"Opening {self.model}"):
            translator = opened(self.model, self.device)
        for lines in self._lines():
            found = translator.translate(
                lines, beam=self.beam, normalise=self.normalise, copy_unknown=self.copy_unknown
            )
            for one in found:
                write_output(one.text)
            sys.stdout.flush()

    def _lines(self) -> Iterator[list[str]]:
        """Lines of the file a few hundred at a time; from a terminal one by one, as they are typed."""
        from regard.data import read_lines

        if self.data == "-" and sys.stdin is not None and sys.stdin.isatty():
            yield from ([line.rstrip("\n")] for line in sys.stdin)
            return
        lines = read_lines(self.data)
        for first in range(0, len(lines), TOGETHER):
            yield list(lines[first : first + TOGETHER])
