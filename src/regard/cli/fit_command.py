"""``regard fit``: a table in, a saved model out."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.command_io import Language, check_distinct, frame, size_in_words
from regard.cli.console import say, working
from regard.cli.progress_bars import learning
from regard.cli.summary import gaps_in_words, told

if TYPE_CHECKING:
    from regard.data import Table

# Rows up to which measuring how sure it is takes less time than learning.
MEASURED = 50_000


@dataclass(frozen=True)
class Fit:
    """Learn from a table and save the model.

    How far attention reaches, the scaling of each column and more are learned so that rows left out are predicted
    best (KernelRegressor, or KernelClassifier where the target is text). Ctrl-C while learning keeps the best so far,
    once there is one. How far off rows left out are is measured and kept too (up to 50,000 rows), for regard predict
    --interval.
    """

    data: Annotated[
        str,
        typer.Argument(help="Table to learn from: .csv, .tsv, .csv.gz, .parquet, a folder of .parquet, or - for CSV."),
    ]
    target: Annotated[str, typer.Option(help="Column to predict. Text makes a classifier, numbers a regressor.")]
    out: Annotated[str, typer.Option(help="Model file to write.")]
    features: Annotated[
        str | None,
        typer.Option(
            metavar="a,b,c",
            help="Columns to learn from, numbers or text. Default: all the others. Empty cells are allowed.",
        ),
    ] = None
    bandwidth: Annotated[
        str | None,
        typer.Option(
            help="One plain Nadaraya-Watson average instead: loo, aicc or gcv learn its bandwidth, scott and silverman "
            "are rules, numbers are in the features' units, one for all or one for each: 1,2.5,10."
        ),
    ] = None
    kernel: Annotated[
        str | None, typer.Option(help="With --bandwidth: gaussian (default), epanechnikov, boxcar, tricube, …")
    ] = None
    sample_weight: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of weights: whole numbers are repetitions, others importances."),
    ] = None
    report: Annotated[
        str | None, typer.Option(metavar="PAGE.html", help="Write a page about the model that anybody can read, too.")
    ] = None
    lang: Annotated[Language, typer.Option(help="Language of the page.")] = Language.en
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="tcp://HOST:PORT",
            help="Learn on the cluster of dask whose scheduler listens there; the table is a Parquet file or folder "
            "that its workers can read.",
        ),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace the model file, and the page, if they exist.")] = False

    def __post_init__(self) -> None:
        if self.out == "-":
            raise typer.BadParameter("a model is a file; it cannot go to standard output", param_hint="--out")
        if self.report is not None and self.report in ("-", self.out):
            raise typer.BadParameter("the page is a file of its own", param_hint="--report")
        for option, given in (("--target", self.target), ("--sample-weight", self.sample_weight)):
            if self.chosen is not None and given in self.chosen:
                raise typer.BadParameter(f"{given!r} is also the column of {option}", param_hint="--features")
        if self.sample_weight == self.target:
            raise typer.BadParameter(f"{self.target!r} is also the target", param_hint="--sample-weight")
        if self.kernel is not None and self.bandwidth is None:
            raise typer.BadParameter("a kernel of your own needs --bandwidth too, such as loo", param_hint="--kernel")

    @cached_property
    def chosen(self) -> tuple[str, ...] | None:
        """Columns of ``--features``; None: every column that has no other part."""
        return None if self.features is None else _names(self.features)

    def run(self) -> None:
        from regard.cli.dask_fit import fit_elsewhere, goes_elsewhere
        from regard.data import read_table
        from regard.data.files import check_output
        from regard.store.models import StoreError, save

        check_output(self.out, self.force, StoreError)
        check_distinct(self.out, self.data)
        if goes_elsewhere(self):
            fit_elsewhere(self)
            return
        if self.report is not None:
            check_output(self.report, self.force, StoreError)
            check_distinct(self.report, self.data)
        with working(f"Reading {self.data}"):
            table = read_table(self.data)
            names = self._features(table)
            X = frame(table, names)
            y = table.labels(self.target) if table.is_text(self.target) else table.numbers(self.target)
            weight = None if self.sample_weight is None else table.numbers(self.sample_weight)
            model = self.estimator(y.dtype == object, gaps=True)
        with learning(model, f"Learning from {len(table):,} rows"):
            model.fit(X, y, sample_weight=weight)
        if (told_of_gaps := gaps_in_words(model)) is not None:
            say(told_of_gaps)
        _measure(model, X)
        with working(f"Saving {self.out}"):
            save(model, self.out, metadata={"target": self.target}, force=self.force)
        self.announce(model, names, f"{len(table):,} rows of {table.source}")
        if self.report is not None:
            from regard.reporting import report

            with working(f"Writing {self.report}"):
                report(model, X, y, self.report, target=self.target, lang=self.lang.value, force=self.force)
            say(f"wrote {self.report}: open it in a browser")

    def announce(self, model: Any, names: Sequence[str], source: str) -> None:
        """Say what was learned from ``source``, so many rows of what, and where it was saved."""
        for line in told(model, names, self.target, source):
            say(line)
        say(f"saved {self.out} ({size_in_words(self.out)})")

    def _features(self, table: Table) -> tuple[str, ...]:
        from regard.data import TableError
        from regard.data.columns import MOST_LEVELS

        table.column(self.target)
        parts = {self.target, self.sample_weight}
        names = self.chosen or tuple(name for name in table.names if name not in parts)
        if not names:
            raise TableError(f"{table.source}: has no column left to learn from besides the target {self.target!r}")
        many = [name for name in names if _categories(table, name) > MOST_LEVELS]
        if len(many) == len(names):
            raise TableError(f"{table.source}: every feature is text with more than {MOST_LEVELS} different cells")
        for name in many:
            say(f"left out {name!r}: {_categories(table, name):,} different texts, more than {MOST_LEVELS}")
        return tuple(name for name in names if name not in many)

    def estimator(self, classes: bool, *, gaps: bool) -> Any:
        """The estimator asked for; ``gaps``: rows may have some."""
        import regard
        from regard.core.scores import KERNELS

        if self.bandwidth is None:
            kind: Any = regard.KernelClassifier if classes else regard.KernelRegressor
            return kind(missing="ignore" if gaps else "refuse")
        kind = regard.NadarayaWatsonClassifier if classes else regard.NadarayaWatsonRegressor
        # A kernel that ends somewhere cannot compare rows by some of their columns.
        kernel = self.kernel or "gaussian"
        ends = kernel not in KERNELS or KERNELS[kernel].compact or self.bandwidth == "adaptive"
        return kind(
            kernel=kernel, bandwidth=_bandwidth(self.bandwidth), missing="ignore" if gaps and not ends else "refuse"
        )


def _measure(model: Any, X: Any) -> None:
    """Left-out residuals, so that the file has them and ``regard predict --interval`` begins at once."""
    rows = int(model._smoother.rows.whole.counted.sum())
    if not hasattr(model, "predict_interval") or not 1 < rows <= MEASURED:
        return
    try:
        with working("Measuring how sure it is (Ctrl-C leaves that to regard predict)"):
            model.predict_interval(X[:1])
    except KeyboardInterrupt:
        say("stopped: regard predict --interval will measure how sure it is, each time")


def _categories(table: Table, name: str) -> int:
    """How many different texts a column holds; 0 of a column of numbers."""
    return len(set(table.column(name))) if table.is_text(name) else 0


def _names(text: str) -> tuple[str, ...]:
    """Column names between commas; one that holds a comma itself is put in double quotes."""
    try:
        names = tuple(name.strip() for name in next(csv.reader([text], strict=True), []))
    except csv.Error:
        names = ()
    if not names or not all(names) or len(set(names)) < len(names):
        raise typer.BadParameter(f"{text!r} is not a list of different column names", param_hint="--features")
    return names


def _bandwidth(text: str) -> str | float | list[float]:
    """A number, a list of numbers, or a word that the estimator knows or refuses."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        return text
    return numbers if "," in text else numbers[0]
