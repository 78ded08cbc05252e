"""``regard predict``: a saved model and a table in, one prediction per row out."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.inputs import loaded, queries, safe_table, target_names
from regard.cli.progress import walking

if TYPE_CHECKING:
    from regard.data import Table
    from regard.store import Saved


@dataclass(frozen=True)
class Predict:
    """Checked arguments of ``regard predict``."""

    model: str
    data: str
    out: str
    force: bool

    def run(self) -> None:
        from regard.data import write_batches

        saved = loaded(self.model, self.data, self.out, force=self.force)
        # A bar would run through the answers that stand on the same screen.
        quiet = self.out == "-" and sys.stdout is not None and sys.stdout.isatty()
        with walking(f"Predicting from {len(saved.model.key_):,} training rows", quiet=quiet) as walk:
            write_batches(self._answers(saved, walk), self.out, force=self.force)

    def _answers(self, saved: Saved, walk: Callable[[float | None, int], None]) -> Iterator[Table]:
        """Predictions batch by batch, so that the table may be larger than memory."""
        from regard.data import read_batches

        share: list[float | None] = [None]
        warned: list[tuple[str, str]] = []
        names, number = target_names(saved, "prediction"), 0

        def progress(done: float) -> None:
            share[0] = done

        for table in read_batches(self.data, progress=progress):
            number, last = number + 1, table.first + len(table)
            predicted = _predicted(saved.model, queries(saved, table), table, warned)
            columns = predicted[:, None] if predicted.ndim == 1 else predicted
            del table
            yield safe_table({name: columns[:, number] for number, name in enumerate(names)})
            walk(share[0], last)
        for rows, message in warned[:1]:
            told = message if number == 1 else f"{rows}: {message}"
            more = f" (and {len(warned) - 1:,} more such batches of rows)" if len(warned) > 1 else ""
            warnings.warn(told + more, UserWarning, stacklevel=2)


def _predicted(model: Any, X: Any, table: Table, warned: list[tuple[str, str]]) -> Any:
    """Predictions for a batch; what is said of row numbers gets the rows it is said of."""
    rows = f"rows {table.first + 1:,} to {table.first + len(table):,}"
    with warnings.catch_warnings(record=True) as caught:
        try:
            predicted = model.predict(X)
        except ValueError as reason:
            raise ValueError(f"{table.source}: {rows}: {reason}") from None
    warned.extend((rows, str(found.message)) for found in caught)
    return predicted


def command(
    model: Annotated[str, typer.Argument(help="Model file, as regard fit or regard.save wrote it.")],
    data: Annotated[
        str, typer.Argument(help="Table of rows to predict: .csv, .tsv, .csv.gz, .parquet, or - for stdin.")
    ],
    out: Annotated[str, typer.Option(help="Where to write; - is standard output as CSV.")] = "-",
    force: Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")] = False,
) -> Predict:
    """Predict the target for every row of a table.

    Writes one column, named after the target, with one row per row of the table. Columns are matched by name;
    those the model does not know are ignored. Text that a spreadsheet would run as a formula (it starts with
    = + - or @) gets a leading apostrophe. The table is read and answered in batches: it may be larger than memory.
    """
    return Predict(model, data, out, force)
