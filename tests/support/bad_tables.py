"""Tables that are no tables: contents, cells and places, by line of the list, and the words of their errors."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from regard.data.delimited import MAX_LINE

GOOD = b"x,y\n1,2\n3,4\n"

# line of the list, content of the file, words of the error
CONTENTS = {
    "62 empty": (b"", "is empty"),
    "62 blank lines only": (b"\n\n\n", "line 1 is blank"),
    "63 header only": (b"x,y\n", "has a header but no rows"),
    "63 header and blank lines": (b"x,y\n\n\n", "has a header but no rows"),
    "66 UTF-16, little end": ("x,y\n1,2\n".encode("utf-16-le"), "NUL byte: not UTF-8 text, but binary data, UTF-16"),
    "66 UTF-16 with its mark": (
        b"\xff\xfe" + "x,y\n1,2\n".encode("utf-16-le"),
        "is UTF-16 text; save the file as UTF-8",
    ),
    "66 UTF-32, little end": ("x,y\n1,2\n".encode("utf-32"), "is UTF-32 text; save the file as UTF-8"),
    "66 UTF-32, big end": (
        b"\0\0\xfe\xff" + "x,y\n1,2\n".encode("utf-32-be"),
        "is UTF-32 text; save the file as UTF-8",
    ),
    "66 UTF-16, big end": (b"\xfe\xff" + "x,y\n1,2\n".encode("utf-16-be"), "is UTF-16 text; save the file as UTF-8"),
    "66 Latin-1": ("x,y\n1,2\ncaf\xe9,2\n".encode("latin-1"), "line 3: byte 0xe9 is not UTF-8"),
    "67 a longer row": (b"x,y\n1,2\n1,2,3\n", r"row 1 \(line 3\) has 3 cells, but the header has 2"),
    "67 a shorter row": (b"x,y\n1,2\n1\n", r"row 1 \(line 3\) has 1 cells, but the header has 2"),
    "67 a blank line within": (b"x,y\n1,2\n\n3,4\n", "line 3 is blank, but row 1 follows"),
    "68 a name twice": (b"x,y,x\n1,2,3\n", "column name 'x' appears more than once"),
    "68 a name twice, but for blanks": (b"x,y, x\n1,2,3\n", "column name 'x' appears more than once"),
    "68 no name": (b",x,y\n0,1,2\n", "column 1 has no name"),
    "71 an unclosed quote": (b'x,y\n1,2\n"3,4\n5,6\n', "line 4: a quote is never closed"),
    "71 an unclosed quote, long": (b'x,y\n1,"2\n' + b"3,4\n" * 50_000, "is a quote not closed"),
    "71 text after a quote": (b'x,y\n"1"2,3\n', "line 2: a closing quote must end its cell"),
    "71 old line ends": (b"x,y\r1,2\r3,4\r", "line 1: a carriage return without a line feed"),
    "72 a long line": (b"x,y\n" + b"1" * (MAX_LINE + 10) + b",2\n", "line 2 is longer than"),
    "73 a NUL": (b"x,y\n1,2\n3,\x004\n", "line 3 has a NUL byte"),
    "73 a binary file": (b"\x7fELF\x02\x01\x01" + bytes(range(256)), "has a NUL byte"),
    "74 gzip by another name": (gzip.compress(GOOD), "is a gzip file"),
}
# cells of a numeric column, words of the error
CELLS = {
    "69 beyond float64": ("1e400", "'1e400' is beyond the largest float64"),
    "69 below float64": ("-1e400", "'-1e400' is beyond the largest float64"),
    "70 a thousands separator": ('"1,000"', "'1,000' is not a plain number"),
    "70 hexadecimal": ("0x10", "'0x10' is not a plain number"),
    "70 an underscore": ("1_000", "'1_000' is not a plain number"),
    "70 other digits": ("１２", "'１２' is not a plain number"),
    "70 nan": ("nan", "'nan' is not a plain number"),
    "70 infinity": ("inf", "'inf' is not a plain number"),
    "70 a word": ("many", "'many' is not a plain number"),
    "70 two numbers": ("1 2", "'1 2' is not a plain number"),
}
EMPTY = {"70 an empty cell": "", "70 a blank cell": "  "}


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


PLACES = {
    "a pipe": (make_fifo, "is a pipe, not a regular file; redirect it to standard input"),
    "an endless device": (lambda path: path.symlink_to("/dev/zero"), "is a device, not a regular file"),
    "a directory": (lambda path: path.mkdir(), "is a directory, not a regular file"),
    "nothing": (lambda path: None, "no such file"),
    "a link to itself": (lambda path: path.symlink_to(path), "cannot be read"),
    "a link to nothing": (lambda path: path.symlink_to("nowhere.csv"), "no such file"),
}
