"""Tables by the ending of their name: .csv, .tsv, either with .gz, and .parquet; ``-`` is standard input as CSV."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from regard.data.delimited import delimited_batches, too_large, write_delimited
from regard.data.files import PathLike, atomic_write, check_output, opened
from regard.data.parquet import parquet_batches, write_parquet
from regard.data.table import Table, TableError

# The most bytes a table may hold once decoded. A small file can unpack to any size; a table larger than this
# wants tools of another kind.
MAX_BYTES = 1 << 31
# Rows of a batch unless told otherwise: enough that work outweighs the overhead, few enough for any machine.
ROWS = 1 << 16
# How many times its size a compressed file may hold, once that is more than a table may: the rest are bombs.
UNPACKED = 100
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


def read_table(path: PathLike, *, max_bytes: int = MAX_BYTES) -> Table:
    """The table in a file, as named columns.

    Parameters
    ----------
    path : a name ending in .csv, .tsv, .csv.gz, .tsv.gz or .parquet; or "-", standard input as CSV.
    max_bytes : refuse what decodes to more than this.

    Returns
    -------
    Table; columns whose cells are all numbers (or empty) are numbers, all others text.

    Raises TableError naming the file, and the row and column where there is one. Text is UTF-8 with one header
    line; every row has the header's length. Only regular files are read.
    """
    return next(_tables(path, None, max_bytes, lambda _: None))


def read_batches(
    path: PathLike,
    *,
    rows: int = ROWS,
    max_bytes: int = MAX_BYTES,
    progress: Callable[[float], None] | None = None,
) -> Iterator[Table]:
    """The table in a file of any size, as tables of at most ``rows`` rows, each read when it is asked for.

    Parameters
    ----------
    path : as in ``read_table``.
    rows : of a batch, at least 1.
    max_bytes : refuse a batch that decodes to more than this, and a gzipped or Parquet file that holds more than this
        and more than 100 times its size: unpacked, it is read however large it is.
    progress : told the share of the file that was read when a batch is ready, where the file's size is known.

    Returns
    -------
    An iterator of Tables. A column may be numbers in one and text in another, if that is how its cells are; ask by
    ``numbers`` and ``matrix``. Errors count rows from the beginning of the file, and come when their batch does.

    *Cost*: memory for one batch; of a Parquet file for one row group too.
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise ValueError(f"rows must be a whole number of at least 1, got {rows!r}")
    return _tables(path, rows, max_bytes, progress or (lambda _: None))


def _tables(path: PathLike, rows: int | None, cap: int, tell: Callable[[float], None]) -> Iterator[Table]:
    """Tables of at most ``rows`` rows and ``cap`` bytes; None: all rows in one."""
    if str(path) == "-":
        with opened(path, TableError) as (_, stream):
            yield from delimited_batches(stream, ",", "standard input", cap, rows)
        return
    path = Path(path)
    with opened(path, TableError) as (file, stream):
        ending, zipped = _ending(path)
        size = path.stat().st_size
        if rows is None and size > cap:
            raise too_large(str(path), cap)
        whole = max(cap, UNPACKED * max(size, 1))
        if ending == ".parquet":
            count, tables = parquet_batches(path, str(path), cap, rows, whole)
        else:
            most = whole if zipped else sys.maxsize
            tables = delimited_batches(stream, _DELIMITERS[ending], str(path), cap, rows, most)
        for table in tables:
            tell((table.first + len(table)) / count if ending == ".parquet" else file.tell() / size)
            yield table
            del table  # or it would be there still while the next one is read


def write_table(table: Table, path: PathLike, *, force: bool = False) -> None:
    """Write a table to a file, whole or not at all; the format follows the ending, as in ``read_table``.

    An existing file or link is refused unless ``force``; "-" is standard output as CSV. Reading it back gives the
    same numbers to the last bit. Text is written as it is: mind spreadsheets, which run cells that start with ``=``.
    """
    write_batches([table], path, force=force)


def write_batches(tables: Iterable[Table], path: PathLike, *, force: bool = False) -> None:
    """Write tables of the same columns one below the other, as ``write_table`` would write them in one piece.

    They are asked for one by one, and the file appears after the last, whole or not at all; what ``tables`` raises
    passes on. Standard output gets each as it comes.
    """
    if str(path) == "-":
        if sys.stdout is None:
            raise TableError("standard output is closed")
        write_delimited(tables, sys.stdout.buffer, ",")
        sys.stdout.buffer.flush()
        return
    path = Path(path)
    ending, zipped = _ending(path)
    with atomic_write(path, force=force, error=TableError) as file:
        if ending == ".parquet":
            write_parquet(tables, file, str(path))
        elif zipped:
            # No name and no time inside: the same table gives the same bytes.
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as zipper:
                write_delimited(tables, cast(BinaryIO, zipper), _DELIMITERS[ending])
        else:
            write_delimited(tables, file, _DELIMITERS[ending])


def check_table_output(path: PathLike, *, force: bool) -> None:
    """Refuse early what ``write_table`` would refuse in the end."""
    if str(path) != "-":
        _ending(Path(path))
        check_output(path, force, TableError)


def _ending(path: Path) -> tuple[str, bool]:
    name = path.name.lower()
    zipped = name.endswith(".gz")
    ending = Path(name.removesuffix(".gz")).suffix
    if ending + (".gz" if zipped else "") not in ENDINGS:
        raise TableError(f"{path}: a table's name must end in one of {', '.join(ENDINGS)}")
    return ending, zipped
