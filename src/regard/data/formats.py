"""Tables by the ending of their name: .csv, .tsv, either with .gz, and .parquet; ``-`` is standard input as CSV."""

from __future__ import annotations

import gzip
import sys
import zlib
from pathlib import Path
from typing import BinaryIO, cast

from regard.data.delimited import read_delimited, too_large, write_delimited
from regard.data.files import PathLike, atomic_write, check_output, open_regular
from regard.data.parquet import read_parquet, write_parquet
from regard.data.table import Table, TableError

# The most bytes a table may hold once decoded. A small file can unpack to any size; a table larger than this
# wants tools of another kind.
MAX_BYTES = 1 << 31
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
    if str(path) == "-":
        if sys.stdin is None:
            raise TableError("standard input is closed")
        return read_delimited(sys.stdin.buffer, ",", "standard input", max_bytes)
    path = Path(path)
    with open_regular(path, TableError) as file:
        ending, zipped = _ending(path)
        if path.stat().st_size > max_bytes:
            raise too_large(str(path), max_bytes)
        if ending == ".parquet":
            if not path.stat().st_size:
                raise TableError(f"{path}: is empty")
            return read_parquet(path, str(path), max_bytes)
        if not zipped:
            return read_delimited(file, _DELIMITERS[ending], str(path), max_bytes)
        try:
            with gzip.GzipFile(fileobj=file, mode="rb") as unzipped:
                return read_delimited(cast(BinaryIO, unzipped), _DELIMITERS[ending], str(path), max_bytes)
        except (gzip.BadGzipFile, EOFError, zlib.error) as reason:
            raise TableError(f"{path}: is not a whole gzip file ({reason})") from None


def write_table(table: Table, path: PathLike, *, force: bool = False) -> None:
    """Write a table to a file, whole or not at all; the format follows the ending, as in ``read_table``.

    An existing file or link is refused unless ``force``; "-" is standard output as CSV. Reading it back gives the
    same numbers to the last bit. Text is written as it is: mind spreadsheets, which run cells that start with ``=``.
    """
    if str(path) == "-":
        if sys.stdout is None:
            raise TableError("standard output is closed")
        write_delimited(table, sys.stdout.buffer, ",")
        sys.stdout.buffer.flush()
        return
    path = Path(path)
    ending, zipped = _ending(path)
    with atomic_write(path, force=force, error=TableError) as file:
        if ending == ".parquet":
            write_parquet(table, file, str(path))
        elif zipped:
            # No name and no time inside: the same table gives the same bytes.
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as zipper:
                write_delimited(table, cast(BinaryIO, zipper), _DELIMITERS[ending])
        else:
            write_delimited(table, file, _DELIMITERS[ending])


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
