"""``regard translate run``: lines in, translated lines out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.console import spinner, write_json, write_output
from regard.cli.translate.translate_arguments import Device, Ensemble, Model, load_translator

if TYPE_CHECKING:
    from regard.seq2seq.translator import Translation

# Lines translated at once.
LINES_PER_BLOCK = 256


@dataclass(frozen=True)
class RunTranslator:
    """Translate lines of text: standard input to standard output, or a file.

    Writes one line for each line read, as soon as it is translated: a program that writes a line and waits for its
    answer gets it. An empty line stays empty. A line of more than 1,000 tokens is truncated, with a warning.
    """

    model: Model
    data: Annotated[str, typer.Argument(help="Text file, one text per line; - is standard input.")] = "-"
    beam: Annotated[
        int | None, typer.Option(min=1, help="Width of the beam search: 1, greedy search, or that of --n-best.")
    ] = None
    n_best: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Write up to this many translations of each line: its number, the score (log-probability per token) "
            "and the text, separated by tabs.",
        ),
    ] = None
    normalise: Annotated[float, typer.Option(help="Divide a log-probability by the length to this power.")] = 1.0
    copy_unknown: Annotated[
        bool, typer.Option("--copy-unknown", help="Replace unknown words by the source word with the largest weight.")
    ] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="One line of JSON for each line read: texts, scores, tokens and alignments.")
    ] = False
    ensemble: Ensemble = None
    device: Device = "cpu"

    def __post_init__(self) -> None:
        if self.beam is not None and self.n_best is not None and self.beam < self.n_best:
            raise typer.BadParameter(
                f"must be at least that of --n-best, {self.n_best}, got {self.beam}", param_hint="--beam"
            )

    def run(self) -> None:
        with spinner(f"Opening {self.model}"):
            translator = load_translator(self.model, self.device, self.ensemble)
        options: Any = {"normalise": self.normalise, "copy_unknown": self.copy_unknown}
        count = self.n_best or 1
        number = 0
        for lines in self._blocks():
            for line, found in zip(
                lines, translator.n_best(lines, count, beam=self.beam or count, **options), strict=True
            ):
                number += 1
                self._write(number, line, found)
            sys.stdout.flush()

    def _write(self, number: int, line: str, found: list[Translation]) -> None:
        from regard.seq2seq.alignment import links, pharaoh

        if self.as_json:
            translations = [
                {
                    "text": one.text,
                    "score": one.score,
                    "tokens": one.tokens,
                    # The end token is not part of the text.
                    "alignment": pharaoh(links(one.weights[: len(one.tokens) - one.ended])),
                }
                for one in found
            ]
            write_json({"source": line, "translations": translations})
        elif self.n_best is None:
            write_output(found[0].text)
        else:
            for one in found:
                write_output(f"{number}\t{one.score:.4f}\t{one.text}")

    def _blocks(self) -> Iterator[list[str]]:
        """Lines in blocks; of standard input those that have arrived, without waiting for more."""
        from regard.cli.translate.arriving_lines import arriving_blocks
        from regard.data import read_lines

        if self.data == "-":
            yield from arriving_blocks(LINES_PER_BLOCK)
            return
        lines = read_lines(self.data)
        yield from (list(lines[at : at + LINES_PER_BLOCK]) for at in range(0, len(lines), LINES_PER_BLOCK))
