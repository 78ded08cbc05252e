"""``regard fit``: a table in, a saved model out."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.command_io import Language, as_dataframe, check_distinct, file_size
from regard.cli.console import say, spinner
from regard.cli.progress_bars import fitting_bar
from regard.cli.summary import missing_cells_line, summary_lines

if TYPE_CHECKING:
    from regard.data import Table

# Up to this many rows, computing residuals takes less time than fitting.
MAX_ROWS_FOR_RESIDUALS = 50_000


@dataclass(frozen=True)
class Fit:
    """Fit a model to a table and save it.

    The bandwidths, the scaling of each column and more are chosen to minimise the leave-one-out error (KernelRegressor,
    or KernelClassifier if the target is text). Ctrl-C stops the search, and the best model so far is saved, if there is
    one. Up to 50,000 rows, leave-one-out residuals are saved too, for regard predict --interval.
    """

    data: Annotated[
        str,
        typer.Argument(
            help="Training table: .csv, .tsv, .csv.gz, .parquet, a folder of .parquet, or - for CSV on stdin."
        ),
    ]
    target: Annotated[str, typer.Option(help="Column to predict. Text gives a classifier, numbers a regressor.")]
    out: Annotated[str, typer.Option(help="Model file to write.")]
    features: Annotated[
        str | None,
        typer.Option(
            metavar="a,b,c",
            help="Feature columns, numbers or text. Default: all other columns. Empty cells are allowed.",
        ),
    ] = None
    bandwidth: Annotated[
        str | None,
        typer.Option(
            help="Fit a plain Nadaraya-Watson estimator instead. loo, aicc and gcv learn its bandwidth, scott and "
            "silverman are rules; numbers are in the features' units, one for all or one per feature: 1,2.5,10."
        ),
    ] = None
    kernel: Annotated[
        str | None, typer.Option(help="With --bandwidth: gaussian (default), epanechnikov, boxcar, tricube, …")
    ] = None
    sample_weight: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of weights: integers are repetitions, other numbers importances."),
    ] = None
    report: Annotated[
        str | None, typer.Option(metavar="PAGE.html", help="Also write a report about the model, for any reader.")
    ] = None
    lang: Annotated[Language, typer.Option(help="Language of the report.")] = Language.en
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="tcp://HOST:PORT",
            help="Fit on the dask cluster with this scheduler; the table must be a Parquet file or folder that its "
            "workers can read.",
        ),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace the model file and the report if they exist.")] = False

    def __post_init__(self) -> None:
        if self.out == "-":
            raise typer.BadParameter("must be a file; a model cannot be written to standard output", param_hint="--out")
        if self.report is not None and self.report in ("-", self.out):
            raise typer.BadParameter("must be a file, and another one than --out", param_hint="--report")
        for option, given in (("--target", self.target), ("--sample-weight", self.sample_weight)):
            if self.chosen is not None and given in self.chosen:
                raise typer.BadParameter(f"{given!r} is also the column of {option}", param_hint="--features")
        if self.sample_weight == self.target:
            raise typer.BadParameter(f"{self.target!r} is also the column of --target", param_hint="--sample-weight")
        if self.kernel is not None and self.bandwidth is None:
            raise typer.BadParameter("needs --bandwidth too, such as --bandwidth loo", param_hint="--kernel")

    @cached_property
    def chosen(self) -> tuple[str, ...] | None:
        """Columns of ``--features``; None for every column that is neither target nor weight."""
        return None if self.features is None else _names(self.features)

    def run(self) -> None:
        from regard.cli.dask_fit import fit_with_dask, needs_dask
        from regard.data import read_table
        from regard.data.files import check_output
        from regard.store.models import StoreError, save

        check_output(self.out, self.force, StoreError)
        check_distinct(self.out, self.data)
        if needs_dask(self):
            fit_with_dask(self)
            return
        if self.report is not None:
            check_output(self.report, self.force, StoreError)
            check_distinct(self.report, self.data)
        with spinner(f"Reading {self.data}"):
            table = read_table(self.data)
            names = self._features(table)
            X = as_dataframe(table, names)
            y = self._targets(table)
            weight = None if self.sample_weight is None else table.numbers(self.sample_weight)
            model = self.estimator(y.dtype == object, gaps=True)
        with fitting_bar(model, f"Learning from {len(table):,} rows"):
            model.fit(X, y, sample_weight=weight)
        if (line := missing_cells_line(model)) is not None:
            say(line)
        _compute_residuals(model, X)
        with spinner(f"Saving {self.out}"):
            save(model, self.out, metadata={"target": self.target}, force=self.force)
        self.announce(model, names, f"{len(table):,} rows of {table.source}")
        if self.report is not None:
            from regard.reporting import report

            with spinner(f"Writing {self.report}"):
                report(model, X, y, self.report, target=self.target, lang=self.lang.value, force=self.force)
            say(f"wrote {self.report}: open it in a browser")

    def announce(self, model: Any, names: Sequence[str], source: str) -> None:
        """Print a summary of the model fitted to ``source``, and where it was saved."""
        for line in summary_lines(model, names, self.target, source):
            say(line)
        say(f"saved {self.out} ({file_size(self.out)})")

    def _targets(self, table: Table) -> Any:
        """The target column as numbers or labels; raises TableError if it is empty in some rows."""
        from regard.data import TableError
        from regard.data.columns import is_missing
        from regard.data.table import ROW_COUNTING

        empty = is_missing(table.cells(self.target))
        if empty.any():
            count, first = int(empty.sum()), int(empty.argmax())
            raise TableError(
                f"{table.source}: row {first}, column {self.target!r}: is empty, as in {count:,} of {len(table):,} "
                f"rows ({ROW_COUNTING}); the target must be known: remove these rows, and apply regard predict to them"
            )
        return table.labels(self.target) if table.is_text(self.target) else table.numbers(self.target)

    def _features(self, table: Table) -> tuple[str, ...]:
        from regard.data import TableError
        from regard.data.columns import MAX_CATEGORIES
        from regard.data.table import DATE_OF_ANOTHER_ORDER

        table.column(self.target)
        used = {self.target, self.sample_weight}
        names = self.chosen or tuple(name for name in table.names if name not in used)
        if not names:
            raise TableError(f"{table.source}: has no feature columns besides the target {self.target!r}")
        many = [name for name in names if _categories(table, name) > MAX_CATEGORIES]
        if len(many) == len(names):
            raise TableError(f"{table.source}: every feature is text with more than {MAX_CATEGORIES} distinct values")
        for name in many:
            say(
                f"left out {name!r}: {_categories(table, name):,} distinct texts, at most {MAX_CATEGORIES} are accepted"
                + (
                    "; dates are recognised as such in the form 2024-12-31 only"
                    if any(map(DATE_OF_ANOTHER_ORDER.fullmatch, table.column(name)))
                    else ""
                )
            )
        for name in names:
            if table.has_dates(name):
                say(f"{name!r}: dates are counted in days since 1970-01-01")
        return tuple(name for name in names if name not in many)

    def estimator(self, classes: bool, *, gaps: bool) -> Any:
        """The estimator for these options; ``gaps``: rows may have empty cells."""
        import regard
        from regard.core.scores import KERNELS

        if self.bandwidth is None:
            kind: Any = regard.KernelClassifier if classes else regard.KernelRegressor
            return kind(missing="ignore" if gaps else "refuse")
        kind = regard.NadarayaWatsonClassifier if classes else regard.NadarayaWatsonRegressor
        # Compact kernels cannot compare rows on a part of the columns.
        kernel = self.kernel or "gaussian"
        ends = kernel not in KERNELS or KERNELS[kernel].compact or self.bandwidth == "adaptive"
        return kind(
            kernel=kernel, bandwidth=_bandwidth(self.bandwidth), missing="ignore" if gaps and not ends else "refuse"
        )


def _compute_residuals(model: Any, X: Any) -> None:
    """Compute leave-one-out residuals, so that they are saved for ``regard predict --interval``."""
    rows = int(model._smoother.rows.whole.counted.sum())
    if not hasattr(model, "predict_interval") or not 1 < rows <= MAX_ROWS_FOR_RESIDUALS:
        return
    try:
        with spinner("Computing leave-one-out residuals for intervals (Ctrl-C skips this)"):
            model.predict_interval(X[:1])
    except KeyboardInterrupt:
        say("skipped: regard predict --interval will compute the residuals each time")


def _categories(table: Table, name: str) -> int:
    """The number of distinct texts in a column; 0 for a column of numbers."""
    return len(set(table.column(name))) if table.is_text(name) else 0


def _names(text: str) -> tuple[str, ...]:
    """Column names separated by commas; a name that contains a comma is put in double quotes."""
    try:
        names = tuple(name.strip() for name in next(csv.reader([text], strict=True), []))
    except csv.Error:
        names = ()
    if not names or not all(names) or len(set(names)) < len(names):
        raise typer.BadParameter(f"{text!r} is not a list of distinct column names", param_hint="--features")
    return names


def _bandwidth(text: str) -> str | float | list[float]:
    """A number, a list of numbers, or a name for the estimator to check."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        return text
    return numbers if "," in text else numbers[0]
