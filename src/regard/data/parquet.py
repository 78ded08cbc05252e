"""Parquet through polars, which is imported only here; what a file claims to hold is checked before it is decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

from regard.data.delimited import too_large
from regard.data.table import Table, TableError, from_dataframe


def read_parquet(path: Path, source: str, cap: int) -> Table:
    """A Table from a Parquet file whose decoded size is at most ``cap`` bytes."""
    polars = _polars(source)
    # Without these a name could be read as a pattern or a folder of partitions.
    lazy = polars.scan_parquet(path.resolve(), glob=False, hive_partitioning=False)
    try:
        schema = lazy.collect_schema()
        for name, dtype in schema.items():
            if dtype.is_nested() or dtype == polars.Binary:
                raise TableError(
                    f"{source}: column {name!r} has type {dtype}; only numbers, booleans, text and dates are read"
                )
        rows = int(lazy.select(polars.len()).collect().item())
        # Few bytes on disk can stand for a billion equal numbers.
        if rows * max(len(schema), 1) * 8 > cap:
            raise too_large(source, cap)
        frame = lazy.collect()
    except polars.exceptions.PolarsError as reason:
        raise TableError(f"{source}: is not a Parquet file we can read ({_first_line(reason)})") from None
    if sum(_text_bytes(polars, series) for series in frame) > cap:
        raise too_large(source, cap)
    return from_dataframe(frame, source)


def write_parquet(table: Table, stream: BinaryIO, source: str) -> None:
    """Write the table as Parquet."""
    polars = _polars(source)
    columns = {
        name: polars.Series(name, column.tolist(), polars.String) if column.dtype == object else column
        for name, column in ((name, table.columns[name]) for name in table.names)
    }
    polars.DataFrame(columns).write_parquet(stream)


def _text_bytes(polars: Any, series: Any) -> int:
    """Bytes of text once every cell is a string of its own; repeated texts share theirs until then."""
    if series.dtype in (polars.Categorical, polars.Enum):
        counts = series.value_counts()
        texts, times = counts.to_series(0).cast(polars.String), counts.to_series(1)
        return int((texts.str.len_bytes().cast(polars.Float64) * times.cast(polars.Float64)).sum())
    if series.dtype == polars.String:
        return int(series.str.len_bytes().cast(polars.Int64).sum())
    return 0


def _polars(source: str) -> Any:
    try:
        import polars
    except ImportError:
        raise TableError(f"{source}: Parquet needs polars; run pip install 'regard[cli]'") from None
    return polars


def _first_line(reason: Exception) -> str:
    return str(reason).strip().split("\n")[0]
