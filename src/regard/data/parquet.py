"""Parquet by polars, which is imported only here; sizes in the metadata are checked before anything is decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from regard.data.delimited import too_large
from regard.data.table import Table, TableError, from_dataframe


def parquet_batches(path: Path, source: str, cap: int, rows: int | None, whole: int) -> tuple[int, Iterator[Table]]:
    """Number of rows in the file, and its Tables of at most ``rows`` rows (None: all), decoded on demand.

    ``cap`` limits the bytes of each table, ``whole`` those of all. *Cost*: a row group is decompressed again for every
    batch that overlaps it; memory for a batch and a row group.
    """
    if not path.stat().st_size:
        raise TableError(f"{source}: is empty")
    polars = _polars(source)
    # Otherwise the name could be interpreted as a pattern or a partitioned folder.
    lazy = polars.scan_parquet(path.resolve(), glob=False, hive_partitioning=False)
    with _readable(polars, source):
        schema = lazy.collect_schema()
        for name, dtype in schema.items():
            if dtype.is_nested() or dtype == polars.Binary:
                raise TableError(
                    f"{source}: column {name!r} has type {dtype}; only numbers, booleans, text and dates are read"
                )
        count = int(lazy.select(polars.len()).collect().item())
    most = count if rows is None else min(rows, count)
    # A billion equal numbers take few bytes on disk.
    if most * max(len(schema), 1) * 8 > cap:
        raise too_large(source, cap)
    if count * max(len(schema), 1) * 8 > whole:
        raise too_large(source, whole, packed=True)
    return count, _tables(polars, lazy, source, cap, whole, range(0, max(count, 1), max(most, 1)))


def _tables(polars: Any, lazy: Any, source: str, cap: int, whole: int, starts: range) -> Iterator[Table]:
    total = 0
    for start in starts:
        with _readable(polars, source):
            frame = lazy.slice(start, starts.step).collect()
        text = sum(_text_bytes(polars, series) for series in frame)
        total += text
        if text > cap or total > whole:
            raise too_large(source, cap if text > cap else whole, packed=text <= cap)
        table = from_dataframe(frame, source, start)
        del frame
        yield table
        del table  # frees its memory before the next one is read


@contextmanager
def _readable(polars: Any, source: str) -> Iterator[None]:
    try:
        yield
    except polars.exceptions.PolarsError as reason:
        first_line = str(reason).strip().split("\n")[0]
        raise TableError(f"{source}: is not a readable Parquet file ({first_line})") from None


def write_parquet(tables: Iterable[Table], file: BinaryIO, source: str) -> None:
    """Write the tables as one Parquet file; ``file`` must have a name on the disk.

    Each is written to a temporary file first, and they are concatenated at the end.
    """
    polars = _polars(source)
    with TemporaryDirectory(prefix=".regard-", suffix=".part", dir=Path(file.name).parent) as folder:
        parts: list[Path] = []
        for table in tables:
            parts.append(Path(folder) / f"{len(parts)}.parquet")
            _frame(polars, table).write_parquet(parts[-1])
        if len(parts) == 1:
            file.write(parts[0].read_bytes())
        else:
            polars.scan_parquet(parts, glob=False, hive_partitioning=False).sink_parquet(file.name)


def _frame(polars: Any, table: Table) -> Any:
    columns = {
        name: polars.Series(name, column.tolist(), polars.String) if column.dtype == object else column
        for name, column in ((name, table.columns[name]) for name in table.names)
    }
    return polars.DataFrame(columns)


def _text_bytes(polars: Any, series: Any) -> int:
    """Bytes of text if every cell is a separate string; categories store repeated texts once."""
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
        raise TableError(f"{source}: reading and writing Parquet needs polars; run pip install 'regard[cli]'") from None
    return polars
