"""Strict reading and plain writing of CSV and TSV.

The reader accepts UTF-8 (with or without a BOM), one header, rows of the header's length and closed quotes, and nothing
else. It reads lines of bounded length and stores the text of each column in blocks; columns are converted to numbers as
a whole, and cells are checked one by one only to find the invalid one.
"""

from __future__ import annotations

import codecs
import csv
import io
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from regard.data.table import Table, TableError, check_names, text_array

Array = NDArray[Any]

# Longest line in bytes: a file without line ends must not fill the memory.
MAX_LINE = 1 << 20
# Small enough for the cells of a block to fit into the processor's cache.
_BLOCK_ROWS = 512
# Separates the cells of a block; files must not contain it.
_SEPARATOR = "\0"
# The bytes of a block of numbers, and of integers.
_NUMBER_BYTES = b"0123456789+-.eE \t\0"
_INTEGER_BYTES = b"0123456789+- \t\0"
# All integers below this are exact in float64.
_MAX_EXACT_INTEGER = 2**53
LONE_CARRIAGE_RETURN = "a carriage return without a line feed; save the file with ordinary line ends"
# Byte order marks of other encodings; UTF-32-LE comes before UTF-16-LE, whose mark is a prefix of it.
_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def too_large(source: str, cap: int, *, packed: bool = False) -> TableError:
    """The error for a table that is too large; ``packed``: it is compressed, and an uncompressed one may be larger."""
    advice = " of a compressed file of this size; an uncompressed CSV may be larger" if packed else ""
    return TableError(f"{source}: decodes to more than {cap:,} bytes, the limit{advice}")


def read_delimited(stream: BinaryIO, delimiter: str, source: str, cap: int) -> Table:
    """The whole Table in a byte stream, as ``delimited_batches`` reads it."""
    return next(delimited_batches(stream, delimiter, source, cap))


def delimited_batches(
    stream: BinaryIO, delimiter: str, source: str, cap: int, rows: int | None = None, whole: int = sys.maxsize
) -> Iterator[Table]:
    """Tables of at most ``rows`` rows from a byte stream, each read when asked for.

    Parameters
    ----------
    stream : bytes; read to the end, not closed.
    delimiter : one character between cells.
    source : name of the stream in errors.
    cap : most bytes of text, and of numbers, of one table.
    rows : of a table; None: all of them, and ``cap`` limits the bytes of the stream too.
    whole : most bytes of the stream if ``rows`` is given.

    *Cost*: about 5 s and twice the text's size for ten million cells.
    """
    lines = lines_of(stream, source, cap if rows is None else whole, packed=rows is not None)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        header = next(reader, None)
        if header is None:
            raise TableError(f"{source}: is empty")
        names = [name.strip() for name in header]
        if not any(names):
            raise TableError(f"{source}: line 1 is blank, but must hold the column names")
        check_names(names, source)
        checked, first = _checked(reader, len(names), source), 0
        while (table := _table(islice(checked, rows), names, source, cap, first)) is not None:
            first += len(table)
            yield table
            del table  # frees its memory before the next one is read
    except csv.Error as reason:
        raise TableError(f"{source}: line {reader.line_num}: {_advice(str(reason))}") from None
    if not first:
        raise TableError(f"{source}: has a header but no rows")


def _table(rows: Iterator[list[str]], names: list[str], source: str, cap: int, first: int) -> Table | None:
    """The rows as a Table that begins at row ``first`` of the file; None if there are none."""
    blocks: list[list[str]] = [[] for _ in names]
    count = size = 0
    while block := list(islice(rows, _BLOCK_ROWS)):
        count += len(block)
        for column, cells in zip(blocks, zip(*block, strict=True), strict=True):
            column.append(_SEPARATOR.join(cells))
            size += len(column[-1])
        if max(count * len(names) * 8, size) > cap:
            raise too_large(source, cap)
    if not count:
        return None
    columns: dict[str, Array] = {}
    for name, column in zip(names, blocks, strict=True):
        columns[name] = _column(column)
        column.clear()
    return Table(tuple(names), columns, source, first)


def lines_of(stream: BinaryIO, source: str, cap: int, *, packed: bool = False) -> Iterator[str]:
    """Decoded lines, ends included; raises TableError for invalid UTF-8, NUL bytes, or more than ``cap`` bytes."""
    number = size = 0
    while raw := stream.readline(MAX_LINE + 1):
        number, size = number + 1, size + len(raw)
        if size > cap:
            raise too_large(source, cap, packed=packed)
        if number == 1:
            for mark, name in _OTHER_MARKS.items():
                if raw.startswith(mark):
                    raise TableError(f"{source}: is {name} text; save the file as UTF-8")
            if raw.startswith(b"\x1f\x8b"):
                raise TableError(f"{source}: is a gzip file; its name must end in .gz")
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if b"\0" in raw:
            raise TableError(
                f"{source}: line {number} has a NUL byte: not UTF-8 text, but binary data, UTF-16 or UTF-32"
            )
        if len(raw) > MAX_LINE:
            raise TableError(f"{source}: line {number} is longer than {MAX_LINE:,} bytes")
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError as reason:
            byte = raw[reason.start]
            raise TableError(
                f"{source}: line {number}: byte 0x{byte:02x} is not UTF-8 (possibly Latin-1); save the file as UTF-8"
            ) from None


def _checked(reader: Any, width: int, source: str) -> Iterator[list[str]]:
    """Rows of exactly ``width`` cells; blank lines are accepted at the end of the file only."""
    number, blank = -1, 0
    for cells in reader:
        if not cells:
            blank = blank or reader.line_num
            continue
        number += 1
        if blank:
            raise TableError(f"{source}: line {blank} is blank, but row {number} follows it on line {reader.line_num}")
        if len(cells) != width:
            raise TableError(
                f"{source}: row {number} (line {reader.line_num}) has {len(cells)} cells, but the header has {width}"
            )
        yield cells


def _advice(reason: str) -> str:
    if "unexpected end of data" in reason:
        return "a quote is never closed"
    if "field larger than field limit" in reason:
        return f"a cell is longer than {csv.field_size_limit():,} characters; is a quote not closed?"
    if "new-line character" in reason:
        return LONE_CARRIAGE_RETURN
    if "expected after" in reason:
        return "a closing quote must end its cell; write two quotes for a quote in the text"
    return reason


def _column(blocks: list[str]) -> Array:
    numbers = _as_numbers(blocks)
    return text_array([cell for block in blocks for cell in block.split(_SEPARATOR)]) if numbers is None else numbers


def _as_numbers(blocks: list[str]) -> Array | None:
    """The column as int64 or float64, or None when some cell is not a finite number. Empty cells become NaN."""
    parts, whole = [], True
    for block in blocks:
        raw = block.encode()
        if raw.translate(None, _NUMBER_BYTES):
            return None
        whole = whole and not raw.translate(None, _INTEGER_BYTES)
        cells = block.split(_SEPARATOR)
        try:
            part = np.fromiter(map(float, cells), np.float64, len(cells))
        except ValueError:
            whole = False
            try:
                part = np.array([float(cell) if cell.strip() else np.nan for cell in cells])
            except ValueError:
                return None
        parts.append(part)
    out = np.concatenate(parts)
    if np.isinf(out).any():
        return None
    return out.astype(np.int64) if whole and np.abs(out).max() < _MAX_EXACT_INTEGER else out


def write_delimited(tables: Iterable[Table], stream: BinaryIO, delimiter: str) -> None:
    """Write header and rows as UTF-8; numbers in their shortest exact form, missing ones as empty cells."""
    for number, table in enumerate(tables):
        columns = [table.columns[name] for name in table.names]
        # The standard writer does not quote a lone carriage return, and the result cannot be read back.
        texts = (column for column in columns if column.dtype == object)
        bare = any("\r" in cell for column in (table.names, *texts) for cell in column)
        quoting: Literal[0, 2] = csv.QUOTE_NONNUMERIC if bare else csv.QUOTE_MINIMAL
        for start in range(0, max(len(table), 1), _BLOCK_ROWS):
            text = io.StringIO(newline="")
            writer = csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=quoting)
            if number == start == 0:
                writer.writerow(table.names)
            writer.writerows(zip(*(_cells(column[start : start + _BLOCK_ROWS]) for column in columns), strict=True))
            _write_all(stream, text.getvalue().encode("utf-8"))


def _write_all(stream: BinaryIO, data: bytes) -> None:
    """Write all bytes, also to an unbuffered standard output (``python -u``), which may accept a part only."""
    left = memoryview(data)
    while left:
        left = left[stream.write(left) :]


def _cells(column: Array) -> list[Any]:
    if column.dtype.kind == "f" and np.isnan(column).any():
        return ["" if cell != cell else cell for cell in column.tolist()]
    return list(column.tolist())
