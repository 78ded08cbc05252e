"""``regard predict``: a saved model and a table in, one prediction per row out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.command_io import by_name, load_model, query_rows, safe_table, target_names
from regard.cli.console import on_terminal, say, spinner
from regard.cli.progress_bars import reading_bar

if TYPE_CHECKING:
    from regard.data import Table
    from regard.store.models import Saved


@dataclass(frozen=True)
class Predict:
    """Predict the target for every row of a table.

    Writes one column, named after the target, with one row per row of the table. Columns are matched by name; those
    that the model was not fitted with are ignored. Text that a spreadsheet would run as a formula (it starts with
    = + - @, also in full width, a tab or a line end) gets a leading apostrophe. The table is processed in batches and
    may be larger than memory.

    --interval adds the ends of a conformal interval, or for a classifier the set of likely classes. --explain adds
    row_1, weight_1, … (training rows and their attention weights), neighbours (the effective number of training rows,
    1/Σα²) and far (1 if the row is far from all training rows, else 0). Rows are counted from 0: row 0 is the first
    below the header.
    """

    model: Annotated[str, typer.Argument(help="Model file written by regard fit or regard.save.")]
    data: Annotated[
        str, typer.Argument(help="Table of rows to predict: .csv, .tsv, .csv.gz, .parquet, or - for stdin.")
    ]
    out: Annotated[str, typer.Option(help="File to write; - is standard output, as CSV.")] = "-"
    interval: Annotated[
        float | None,
        typer.Option(
            metavar="COVERAGE",
            help="Add prediction intervals, columns _low and _high, with this coverage, such as 0.9.",
        ),
    ] = None
    explain: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Add the N training rows with the largest weights, and flag rows far from all training rows.",
        ),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")] = False

    def __post_init__(self) -> None:
        if self.interval is not None and not 0.0 < self.interval < 1.0:
            raise typer.BadParameter(
                f"coverage must be between 0 and 1, such as 0.9, got {self.interval}", param_hint="--interval"
            )

    def run(self) -> None:
        from regard.data import write_batches

        saved = load_model(self.model, self.data, self.out, force=self.force)
        if self.interval is not None:
            _prepare_intervals(saved.model, self.interval)
        # On a terminal a bar would mix with the predictions.
        quiet = self.out == "-" and on_terminal()
        with reading_bar(f"Predicting from {len(saved.model.key_):,} training rows", quiet=quiet) as advance:
            write_batches(self._predictions(saved, advance), self.out, force=self.force)

    def _predictions(self, saved: Saved, advance: Callable[[float | None, int], None]) -> Iterator[Table]:
        """Predictions batch by batch, so that the table may be larger than memory."""
        from regard.data import read_batches

        fraction: list[float | None] = [None]
        warned: list[tuple[str, str]] = []
        names, number, last, far = target_names(saved, "prediction"), 0, 0, 0

        def progress(done: float) -> None:
            fraction[0] = done

        for table in read_batches(self.data, progress=progress):
            number, last = number + 1, table.first + len(table)
            columns = self._columns(saved.model, query_rows(saved, table), names, table, warned)
            far += int(columns["far"].sum()) if self.explain is not None else 0
            del table
            yield safe_table(columns, self.out)
            advance(fraction[0], last)
        for rows, message in warned[:1]:
            first = message if number == 1 else f"{rows}: {message}"
            others = len({batch for batch, _ in warned}) - 1
            more = f" (and the like in {others:,} more {'batch' if others == 1 else 'batches'})" if others else ""
            warnings.warn(first + more, UserWarning, stacklevel=2)
        if far:
            say(f"{far:,} of {last:,} rows are far from all training rows: their predictions are unreliable")

    def _columns(
        self, model: Any, X: Any, names: list[str], table: Table, warned: list[tuple[str, str]]
    ) -> dict[str, Any]:
        """Output columns for a batch; errors and warnings name the rows of the batch."""
        rows = f"rows {table.first:,} to {table.first + len(table) - 1:,}"
        with warnings.catch_warnings(record=True) as caught:
            try:
                columns = by_name(model.predict(X), names)
                if self.interval is not None:
                    columns |= _interval_columns(model, X, names, self.interval)
                if self.explain is not None:
                    columns |= _explanation_columns(model, X, self.explain)
            except ValueError as reason:
                raise ValueError(f"{table.source}: {rows}: {reason}") from None
        warned.extend((rows, str(found.message)) for found in caught)
        return columns


def _prepare_intervals(model: Any, coverage: float) -> None:
    """Compute the leave-one-out residuals if they are not saved, and report if they are too few for an interval."""
    if not hasattr(model, "predict_interval"):
        return
    if "spread_" not in vars(model):
        with spinner("Computing leave-one-out residuals"):
            model._residuals()
    from regard.model.quantiles import conformal_bound

    residuals, counts = model._residuals().known(model.sample_weight_)
    if conformal_bound(abs(residuals), counts, coverage)[0] == float("inf"):
        need = math.ceil(coverage / (1.0 - coverage) - 1e-9)
        say(f"--interval {coverage:g} needs at least {need:,} training rows; with fewer the intervals are infinite")


def _interval_columns(model: Any, X: Any, names: list[str], coverage: float) -> dict[str, Any]:
    """Lower and upper ends of intervals; for a classifier the set of likely classes."""
    if hasattr(model, "classes_"):
        chosen = model.predict_set(X, coverage)
        return {f"{names[0]}_set": [" | ".join(map(str, model.classes_[row])) for row in chosen]}
    if not hasattr(model, "predict_interval"):
        raise ValueError(f"--interval: a {type(model).__name__} has no prediction intervals")
    ends = model.predict_interval(X, coverage, method="conformal")
    ends = ends[:, None] if ends.ndim == 2 else ends
    return {f"{name}_{end}": ends[:, j, k] for j, name in enumerate(names) for k, end in enumerate(("low", "high"))}


def _explanation_columns(model: Any, X: Any, top: int) -> dict[str, Any]:
    """The training rows with the largest weights (counted from 0), their weights, how many, and whether all are far."""
    if not hasattr(model, "explain"):
        raise ValueError(f"--explain: a {type(model).__name__} cannot explain its predictions")
    explanation = model.explain(X, top)
    columns: dict[str, Any] = {}
    for number in range(explanation.row.shape[1]):
        weight = explanation.weight[:, number]
        # A row of weight 0 is left out.
        row = [
            str(row) if attended else "" for row, attended in zip(explanation.row[:, number], weight > 0.0, strict=True)
        ]
        columns |= {f"row_{number + 1}": row, f"weight_{number + 1}": weight}
    return columns | {"neighbours": explanation.neighbours, "far": explanation.far.astype(int)}
