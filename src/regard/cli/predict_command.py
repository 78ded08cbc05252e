"""``regard predict``: a saved model and a table in, one prediction per row out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.command_io import by_name, loaded, queries, safe_table, target_names
from regard.cli.console import on_terminal, say, working
from regard.cli.progress_bars import walking

if TYPE_CHECKING:
    from regard.data import Table
    from regard.store.models import Saved


@dataclass(frozen=True)
class Predict:
    """Predict the target for every row of a table.

    Writes one column, named after the target, with one row per row of the table. Columns are matched by name;
    those the model does not know are ignored. Text that a spreadsheet would run as a formula (it starts with
    = + - @, in full width too, a tab or a line end) gets a leading apostrophe. The table is read and answered in
    batches: it may be larger than memory.

    --interval adds the ends of a conformal interval, or for classes the set of likely ones. --explain adds row_1,
    weight_1, … (training rows, and their share of the attention), neighbours (how many rows were looked at in all,
    1/Σα²) and far: 1 where a row is far from everything the model has seen. Rows are counted from 0: row 0 is the
    first below the header.
    """

    model: Annotated[str, typer.Argument(help="Model file, as regard fit or regard.save wrote it.")]
    data: Annotated[
        str, typer.Argument(help="Table of rows to predict: .csv, .tsv, .csv.gz, .parquet, or - for stdin.")
    ]
    out: Annotated[str, typer.Option(help="Where to write; - is standard output as CSV.")] = "-"
    interval: Annotated[
        float | None,
        typer.Option(
            metavar="COVERAGE", help="Say how sure: columns _low and _high that hold so many of new rows, such as 0.9."
        ),
    ] = None
    explain: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Name the N training rows looked at most, and flag rows far from all."),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")] = False

    def __post_init__(self) -> None:
        if self.interval is not None and not 0.0 < self.interval < 1.0:
            raise typer.BadParameter(
                f"a coverage lies between 0 and 1, such as 0.9, got {self.interval}", param_hint="--interval"
            )

    def run(self) -> None:
        from regard.data import write_batches

        saved = loaded(self.model, self.data, self.out, force=self.force)
        if self.interval is not None:
            _measured(saved.model, self.interval)
        # A bar would run through the answers that stand on the same screen.
        quiet = self.out == "-" and on_terminal()
        with walking(f"Predicting from {len(saved.model.key_):,} training rows", quiet=quiet) as walk:
            write_batches(self._answers(saved, walk), self.out, force=self.force)

    def _answers(self, saved: Saved, walk: Callable[[float | None, int], None]) -> Iterator[Table]:
        """Predictions batch by batch, so that the table may be larger than memory."""
        from regard.data import read_batches

        share: list[float | None] = [None]
        warned: list[tuple[str, str]] = []
        names, number, last, far = target_names(saved, "prediction"), 0, 0, 0

        def progress(done: float) -> None:
            share[0] = done

        for table in read_batches(self.data, progress=progress):
            number, last = number + 1, table.first + len(table)
            columns = self._columns(saved.model, queries(saved, table), names, table, warned)
            far += int(columns["far"].sum()) if self.explain is not None else 0
            del table
            yield safe_table(columns, self.out)
            walk(share[0], last)
        for rows, message in warned[:1]:
            told = message if number == 1 else f"{rows}: {message}"
            more = f" (and {len(warned) - 1:,} more such batches of rows)" if len(warned) > 1 else ""
            warnings.warn(told + more, UserWarning, stacklevel=2)
        if far:
            say(f"{far:,} of {last:,} rows are far from all training rows: do not trust what is predicted there")

    def _columns(
        self, model: Any, X: Any, names: list[str], table: Table, warned: list[tuple[str, str]]
    ) -> dict[str, Any]:
        """Columns for a batch; what is said of row numbers gets the rows it is said of."""
        rows = f"rows {table.first:,} to {table.first + len(table) - 1:,}"
        with warnings.catch_warnings(record=True) as caught:
            try:
                columns = by_name(model.predict(X), names)
                if self.interval is not None:
                    columns |= _ranges(model, X, names, self.interval)
                if self.explain is not None:
                    columns |= _looked_at(model, X, self.explain)
            except ValueError as reason:
                raise ValueError(f"{table.source}: {rows}: {reason}") from None
        warned.extend((rows, str(found.message)) for found in caught)
        return columns


def _measured(model: Any, coverage: float) -> None:
    """See to it that left-out residuals are known, and say so where they are too few for any interval."""
    if not hasattr(model, "predict_interval"):
        return
    if "spread_" not in vars(model):
        with working("Measuring how sure it is"):
            model._residuals()
    from regard.model.ranks import conformal_bound

    shown, counts = model._residuals().shown(model.sample_weight_)
    if conformal_bound(abs(shown), counts, coverage)[0] == float("inf"):
        need = math.ceil(coverage / (1.0 - coverage) - 1e-9)
        say(f"--interval {coverage:g} takes at least {need:,} training rows; of fewer, as here, its ends are infinite")


def _ranges(model: Any, X: Any, names: list[str], coverage: float) -> dict[str, Any]:
    """Lower and upper ends for numbers, and for classes a set of them."""
    if hasattr(model, "classes_"):
        chosen = model.predict_set(X, coverage)
        return {f"{names[0]}_set": [" | ".join(map(str, model.classes_[row])) for row in chosen]}
    if not hasattr(model, "predict_interval"):
        raise ValueError(f"--interval: a {type(model).__name__} does not tell how sure it is")
    ends = model.predict_interval(X, coverage, method="conformal")
    ends = ends[:, None] if ends.ndim == 2 else ends
    return {f"{name}_{end}": ends[:, j, k] for j, name in enumerate(names) for k, end in enumerate(("low", "high"))}


def _looked_at(model: Any, X: Any, top: int) -> dict[str, Any]:
    """The training rows looked at most, counted from 0, their share of attention, how many, and whether all are far."""
    if not hasattr(model, "explain"):
        raise ValueError(f"--explain: a {type(model).__name__} does not tell which rows it looked at")
    told = model.explain(X, top)
    columns: dict[str, Any] = {}
    for number in range(told.row.shape[1]):
        weight = told.weight[:, number]
        # A row out of reach was not looked at.
        row = [str(row) if seen else "" for row, seen in zip(told.row[:, number], weight > 0.0, strict=True)]
        columns |= {f"row_{number + 1}": row, f"weight_{number + 1}": weight}
    return columns | {"neighbours": told.neighbours, "far": told.far.astype(int)}
