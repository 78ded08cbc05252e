"""``regard fit`` with dask: folders of Parquet files, and dask clusters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.console import say, spinner
from regard.cli.progress_bars import fitting_bar

if TYPE_CHECKING:
    from regard.cli.fit_command import Fit

SCHEDULER_TIMEOUT_SECONDS = 10


def needs_dask(fit: Fit) -> bool:
    """Whether a fit needs dask: a scheduler is given, or the table is a folder of Parquet files."""
    return fit.scheduler is not None or (Path(fit.data).is_dir() and any(Path(fit.data).glob("*.parquet")))


def fit_with_dask(fit: Fit) -> None:
    """Fit on the scheduler's workers, or in this process, and save the model here."""
    from regard.store.models import save

    if fit.report is not None:
        raise ValueError(
            "--report needs a table in memory; it cannot be combined with --scheduler or a folder of Parquet files"
        )
    with _client(fit.scheduler) as where:
        with spinner(f"Reading the schema of {fit.data}"):
            table = _table(fit.data)
            names = _features(fit, table)
            classes = not _is_number(table[fit.target].dtype)
            weight = None if fit.sample_weight is None else table[fit.sample_weight]
            model = fit.estimator(classes, gaps=False)
        with fitting_bar(model, f"Learning {where}"):
            model.fit(table[list(names)], table[fit.target], sample_weight=weight)
        with spinner(f"Collecting the rows and saving {fit.out}"):
            from regard.cluster.cluster_fit import with_rows_in_memory

            model = with_rows_in_memory(model)
            save(model, fit.out, metadata={"target": fit.target}, force=fit.force)
    fit.announce(model, names, f"{len(model.key_):,} rows of {fit.data}")


@contextmanager
def _client(scheduler: str | None) -> Iterator[str]:
    """Connect to the scheduler, if there is one; yields where the work is done."""
    from regard.engines.tasks import ClusterError, require_dask

    require_dask()
    if scheduler is None:
        yield "in this process"
        return
    from distributed import Client

    try:
        client = Client(scheduler, timeout=SCHEDULER_TIMEOUT_SECONDS)
    except (OSError, ValueError, TimeoutError) as reason:
        raise ClusterError(
            f"cannot connect to the dask scheduler at {scheduler}: {str(reason).splitlines()[0]}"
        ) from None
    with client:
        count = len(client.ncores())
        yield f"on {count} worker" + "s" * (count != 1)


def _table(data: str) -> Any:
    """A lazy dataframe of a Parquet file or a folder of them; raises TableError for other files."""
    import dask.dataframe as dd
    from pyarrow.parquet import read_schema

    from regard.data import TableError

    path = Path(data)
    if data == "-" or not path.exists():
        raise TableError(
            f"{data}: no such file or folder; with --scheduler the table must be a Parquet file or a folder of them"
        )
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or any(file.suffix != ".parquet" for file in files):
        raise TableError(
            f"{data}: with --scheduler the table must be a file, or a folder of files, whose names end in .parquet"
        )
    for file in files:
        try:
            read_schema(file)
        except (OSError, ValueError) as reason:
            raise TableError(f"{file}: cannot be read as Parquet ({str(reason).splitlines()[0][:200]})") from None
    return dd.read_parquet([str(file.resolve()) for file in files])


def _features(fit: Fit, table: Any) -> tuple[str, ...]:
    from regard.data import TableError
    from regard.data.table import listing

    columns = list(map(str, table.columns))
    wanted = [name for name in (fit.target, fit.sample_weight, *(fit.chosen or ())) if name is not None]
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise TableError(f"{fit.data}: has no column {missing[0]!r}; its columns are {listing(columns)}")
    if fit.chosen is not None:
        return fit.chosen
    others = [name for name in columns if name not in (fit.target, fit.sample_weight)]
    numbers = tuple(name for name in others if _is_number(table[name].dtype))
    for name in others:
        if name not in numbers:
            say(f"left out {name!r} ({table[name].dtype}): with dask only columns of numbers can be features")
    if not numbers:
        raise TableError(f"{fit.data}: has no feature columns of numbers besides the target {fit.target!r}")
    return numbers


def _is_number(dtype: Any) -> bool:
    return getattr(dtype, "kind", "O") in "fiub"
