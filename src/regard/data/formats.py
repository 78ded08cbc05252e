"""Tables by file extension: .csv, .tsv (both also with .gz) and .parquet; ``-`` is standard input or output as CSV."""

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

# Largest size of a decoded table, in bytes; a small file can decompress to any size.
MAX_BYTES = 1 << 31
# Default rows of a batch: enough to outweigh the overhead, few enough for any machine.
ROWS_PER_BATCH = 1 << 16
# Largest ratio of decoded to compressed size beyond ``MAX_BYTES``, against decompression bombs.
MAX_COMPRESSION_RATIO = 100
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
EXTENSIONS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


def read_table(path: PathLike, *, max_bytes: int = MAX_BYTES) -> Table:
    r"""Read a table of named columns from a file.

    Parameters
    ----------
    path : str or path
        A name ending in .csv, .tsv, .csv.gz, .tsv.gz or .parquet; or "-", standard input as CSV.
    max_bytes : int, default=2**31
        Largest size of the decoded table that is accepted.

    Returns
    -------
    Table
        Columns whose cells are all numbers (or empty) are numeric, all others text.

    Raises
    ------
    TableError
        Naming the file and, if applicable, the row and column. Text is UTF-8 with one header line; every row has the
        header's length. Only regular files are read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "houses.csv").write_text("area,price\n50,300\n80,410\n")
    ...     table = read_table(Path(folder) / "houses.csv")
    >>> table.names, table.numbers("price").tolist()
    (('area', 'price'), [300, 410])
    """
    return next(_tables(path, None, max_bytes, lambda _: None))


def read_batches(
    path: PathLike,
    *,
    rows: int = ROWS_PER_BATCH,
    max_bytes: int = MAX_BYTES,
    progress: Callable[[float], None] | None = None,
) -> Iterator[Table]:
    r"""Read a table of any size as tables of at most ``rows`` rows, each read on demand.

    Parameters
    ----------
    path : str or path
        As in ``read_table``.
    rows : int, default=65536
        Rows of a batch, at least 1.
    max_bytes : int, default=2**31
        Largest decoded size of a batch that is accepted. A gzipped or Parquet file that decodes to more than this and
        to more than 100 times its size is refused too; uncompressed files may have any size.
    progress : callable (fraction), default=None
        Called with the fraction of the file read so far when a batch is ready, if the file's size is known.

    Yields
    ------
    Table
        A column may be numeric in one batch and text in another, depending on its cells; get it by ``numbers`` or
        ``matrix``.

    Raises
    ------
    TableError
        As ``read_table``, with its batch; rows count from the beginning of the file.

    *Cost*: memory for one batch, and for one row group of a Parquet file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "x.csv").write_text("x\n1\n2\n3\n")
    ...     [len(table) for table in read_batches(Path(folder) / "x.csv", rows=2)]
    [2, 1]
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
        extension, zipped = _extension(path)
        size = path.stat().st_size
        if rows is None and size > cap:
            raise too_large(str(path), cap)
        whole = max(cap, MAX_COMPRESSION_RATIO * max(size, 1))
        if extension == ".parquet":
            count, tables = parquet_batches(path, str(path), cap, rows, whole)
        else:
            most = whole if zipped else sys.maxsize
            tables = delimited_batches(stream, _DELIMITERS[extension], str(path), cap, rows, most)
        for table in tables:
            tell((table.first + len(table)) / count if extension == ".parquet" else file.tell() / size)
            yield table
            del table  # frees its memory before the next one is read


def write_table(table: Table, path: PathLike, *, force: bool = False) -> None:
    r"""Write a table to a file atomically, in the format of its extension, as in ``read_table``.

    An existing file or link is refused unless ``force``; "-" is standard output as CSV. Reading it back gives the
    same numbers bit for bit. Text is written unchanged: spreadsheets evaluate cells that start with ``=``.

    Parameters
    ----------
    table : Table
        What to write.
    path : str or path
        As in ``read_table``; "-" is standard output.
    force : bool, default=False
        Replace an existing file.

    Raises
    ------
    TableError
        If the path cannot be written or its extension is not one of a table.

    >>> import tempfile
    >>> from regard.data import from_dataframe
    >>> import pandas
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_table(from_dataframe(pandas.DataFrame({"x": [1, 2]})), Path(folder) / "x.csv")
    ...     (Path(folder) / "x.csv").read_text()
    'x\n1\n2\n'
    """
    write_batches([table], path, force=force)


def write_batches(tables: Iterable[Table], path: PathLike, *, force: bool = False) -> None:
    r"""Write tables of the same columns one below the other, as ``write_table`` would write them at once.

    They are consumed one by one, and the file appears after the last, or not at all if ``tables`` raises. Standard
    output receives each immediately.

    Parameters
    ----------
    tables : iterable of Table
        Tables of the same columns.
    path : str or path
        As in ``read_table``; "-" is standard output.
    force : bool, default=False
        Replace an existing file.

    Raises
    ------
    TableError
        As ``write_table``.

    >>> import tempfile
    >>> from regard.data import from_dataframe
    >>> import pandas
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parts = (from_dataframe(pandas.DataFrame({"x": [number]})) for number in (1, 2))
    ...     write_batches(parts, Path(folder) / "x.csv")
    ...     (Path(folder) / "x.csv").read_text()
    'x\n1\n2\n'
    """
    if str(path) == "-":
        if sys.stdout is None:
            raise TableError("standard output is closed")
        write_delimited(tables, sys.stdout.buffer, ",")
        sys.stdout.buffer.flush()
        return
    path = Path(path)
    extension, zipped = _extension(path)
    with atomic_write(path, force=force, error=TableError) as file:
        if extension == ".parquet":
            write_parquet(tables, file, str(path))
        elif zipped:
            # Without name and time, so that the same table gives the same bytes.
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as zipper:
                write_delimited(tables, cast(BinaryIO, zipper), _DELIMITERS[extension])
        else:
            write_delimited(tables, file, _DELIMITERS[extension])


def check_table_output(path: PathLike, *, force: bool) -> None:
    """Raise early the errors of ``write_table`` about the path."""
    if str(path) != "-":
        _extension(Path(path))
        check_output(path, force, TableError)


def _extension(path: Path) -> tuple[str, bool]:
    name = path.name.lower()
    zipped = name.endswith(".gz")
    extension = Path(name.removesuffix(".gz")).suffix
    if extension + (".gz" if zipped else "") not in EXTENSIONS:
        raise TableError(f"{path}: the name of a table must end in one of {', '.join(EXTENSIONS)}")
    return extension, zipped
