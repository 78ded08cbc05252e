"""Bad tables and bad places, lines 62–76 of the list: each gets a clear error, in Python and on the command line."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import polars
import pyarrow
import pyarrow.parquet
import pytest

from regard.cli import main
from regard.data import TableError, read_table
from regard.data.delimited import MAX_LINE, read_delimited
from support.bad_tables import CELLS, CONTENTS, EMPTY, GOOD, PLACES


def refused_by_the_command(arguments: list[str], words: str, capfd) -> None:
    """Exit code 2 and one plain line."""
    import re

    assert main(arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("regard: ")
    assert err.count("\n") == 1
    assert re.search(words, err), err


def fit(path: Path | str, tmp_path: Path) -> list[str]:
    return ["fit", str(path), "--target", "y", "--out", str(tmp_path / "model.regard")]


@pytest.mark.parametrize("case", CONTENTS)
def test_content(case: str, tmp_path: Path, capfd) -> None:
    content, words = CONTENTS[case]
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(TableError, match=rf"bad\.csv: .*{words}"):
        read_table(path)
    refused_by_the_command(fit(path, tmp_path), words, capfd)
    assert os.listdir(tmp_path) == ["bad.csv"]


@pytest.mark.parametrize("case", CELLS)
@pytest.mark.parametrize("column", ["x", "y"])
def test_cell(case: str, column: str, tmp_path: Path, capfd) -> None:
    cell, words = CELLS[case]
    path = tmp_path / "bad.csv"
    path.write_text(f"x,y\n1,2\n{f'{cell},4' if column == 'x' else f'3,{cell}'}\n5,6\n", encoding="utf-8")
    table = read_table(path)
    with pytest.raises(TableError, match=rf"bad\.csv: row 1, column '{column}': {words}"):
        table.matrix(["x", "y"])
    refused_by_the_command(fit(path, tmp_path), f"row 1, column '{column}': {words}", capfd)
    assert os.listdir(tmp_path) == ["bad.csv"]


@pytest.mark.parametrize("case", EMPTY)
def test_an_empty_cell_is_a_gap_in_a_feature_and_refused_in_the_target(case: str, tmp_path: Path, capfd) -> None:
    path = tmp_path / "gap.csv"
    path.write_text(f"x,z,y\n1,1,2\n{EMPTY[case]},2,4\n5,3,6\n3,4,5\n", encoding="utf-8")
    with pytest.raises(TableError, match=r"gap\.csv: row 1, column 'x': is empty"):
        read_table(path).matrix(["x", "y"])
    assert main(fit(path, tmp_path)) == 0
    assert "1 of 4 rows has empty cells: bandwidths are learned from the other 3;" in capfd.readouterr().err
    assert main(["predict", str(tmp_path / "model.regard"), str(path)]) == 0
    assert len(capfd.readouterr().out.split()) == 5
    path.write_text(f"x,y\n1,2\n3,{EMPTY[case]}\n5,6\n", encoding="utf-8")
    refused_by_the_command([*fit(path, tmp_path), "--force"], "row 1, column 'y': is empty", capfd)


@pytest.mark.parametrize("cell", ['"1,000"', "0x10", "1e400", "12%", "$5", "NaN"])
def test_70_a_target_wholly_of_odd_numbers_makes_no_classifier(cell: str, tmp_path: Path, capfd) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(f"x,y\n1,{cell}\n2,{cell}\n")
    refused_by_the_command(fit(path, tmp_path), "row 0, column 'y'", capfd)


def test_64_a_missing_column_lists_those_there_are(tmp_path: Path, capfd) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(GOOD)
    with pytest.raises(TableError, match=r"t\.csv: has no column 'z'; its columns are 'x', 'y'"):
        read_table(path).matrix(["x", "z"])
    arguments = ["fit", str(path), "--target", "z", "--out", str(tmp_path / "m")]
    refused_by_the_command(arguments, "has no column 'z'; its columns are 'x', 'y'", capfd)


def test_65_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD)
    assert read_table(path).names == ("x", "y")


class Endless(io.RawIOBase):
    """A head, and then the same bytes for ever."""

    def __init__(self, head: bytes, body: bytes) -> None:
        self.head, self.body, self.given = head, body, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        part = self.head or self.body * (len(buffer) // len(self.body))
        part = part[: len(buffer)]
        buffer[: len(part)] = part
        self.head = self.head[len(part) :]
        self.given += len(part)
        return len(part)


@pytest.mark.parametrize(
    ("head", "body", "words"),
    [
        (b"x,y\n1,", b"1", "line 2 is longer than"),
        (b"", b"x,", "line 1 is longer than"),
        (b'x,y\n1,"', b"a\n", "is a quote not closed"),
        (b"", b"\0", "NUL byte"),
    ],
)
def test_72_an_endless_line_needs_little_memory(head: bytes, body: bytes, words: str) -> None:
    stream = Endless(head, body)
    tracemalloc.start()
    try:
        with pytest.raises(TableError, match=words):
            read_delimited(io.BufferedReader(stream), ",", "endless", 1 << 31)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert stream.given < 8 * MAX_LINE
    assert peak < 32 * MAX_LINE


@pytest.mark.parametrize(
    ("body", "least", "most"),
    [
        (b"some text of forty characters and a bit\n", 2, 5),  # the text fills the cap, but for what is read at once
        (b"1\n", 0, 3),  # four times as many bytes as numbers than as text
    ],
)
def test_72_endless_rows_stop_at_the_cap(body: bytes, least: int, most: int) -> None:
    stream = Endless(b"x\n", body)
    with pytest.raises(TableError, match="more than 2,097,152 bytes"):
        read_delimited(io.BufferedReader(stream), ",", "endless", 2 << 20)
    assert least << 20 <= stream.given <= most << 20


def test_74_a_gzip_bomb_stops_at_the_cap(tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb") as file:
        file.write(b"x\n")
        for _ in range(64):
            file.write(b"1\n" * (1 << 19))
    assert path.stat().st_size < 200_000
    tracemalloc.start()
    try:
        with pytest.raises(TableError, match=r"bomb\.csv\.gz: decodes to more than 1,000,000 bytes"):
            read_table(path, max_bytes=1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50_000_000


def test_74_a_plain_file_beyond_the_cap_is_not_even_read(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TableError, match="decodes to more than"):
        read_table(path)


@pytest.mark.parametrize("what", ["numbers", "text", "categories"])
def test_74_a_parquet_bomb_stops_at_the_cap(what: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    zeros = np.zeros(400_000 if what == "numbers" else 20_000, np.int32)
    if what == "numbers":
        column = pyarrow.array(zeros.astype(float))
    elif what == "text":
        column = pyarrow.array(["x" * 100_000] * 400)
    else:
        column = pyarrow.DictionaryArray.from_arrays(pyarrow.array(zeros), pyarrow.array(["x" * 100_000]))
    pyarrow.parquet.write_table(pyarrow.table({"x": column}), path)
    assert path.stat().st_size < 20_000
    cap = 3_000_000 if what == "numbers" else 10_000_000
    with pytest.raises(TableError, match=rf"bomb\.parquet: decodes to more than {cap:,} bytes"):
        read_table(path, max_bytes=cap)


@pytest.mark.parametrize("damage", ["not gzip", "cut short", "wrong check"])
def test_74_broken_gzip(damage: str, tmp_path: Path) -> None:
    whole = gzip.compress(GOOD * 1000)
    content = {"not gzip": GOOD, "cut short": whole[:-20], "wrong check": whole[:-8] + b"\0" * 8}[damage]
    path = tmp_path / "bad.csv.gz"
    path.write_bytes(content)
    with pytest.raises(TableError, match="is not a complete gzip file"):
        read_table(path)


@pytest.mark.parametrize("content", [b"", b"PAR1", GOOD, b"PAR1" + bytes(100) + b"PAR1"])
def test_74_broken_parquet(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    path.write_bytes(content)
    with pytest.raises(TableError, match=r"bad\.parquet: is (empty|not a readable Parquet file)"):
        read_table(path)


def test_74_nested_parquet_columns_are_refused_before_they_are_decoded(tmp_path: Path) -> None:
    path = tmp_path / "nested.parquet"
    polars.DataFrame({"x": [1.0], "many": [[0.0] * 1000]}).write_parquet(path)
    with pytest.raises(TableError, match=r"column 'many' has type List"):
        read_table(path)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["place.csv", "place.parquet", "place.csv.gz"])
def test_75_only_regular_files_are_read(place: str, name: str, tmp_path: Path, capfd) -> None:
    make, words = PLACES[place]
    path = tmp_path / name
    make(path)
    with pytest.raises(TableError, match=rf"place.*: {words}"):
        read_table(path)
    refused_by_the_command(fit(path, tmp_path), words, capfd)


def test_75_names_that_are_no_names(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="not a file name"):
        read_table("a\0b.csv")
    path = tmp_path / "table.xlsx"
    path.write_bytes(GOOD)
    with pytest.raises(TableError, match=r"must end in one of \.csv"):
        read_table(path)
    with pytest.raises(TableError, match="cannot be read"):
        read_table("x" * 5000 + ".csv")


def test_76_an_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "secret.csv"
    path.write_bytes(GOOD)
    path.chmod(0)
    # root may read everything, so the reading is done by another user.
    code = (
        "import os, sys, regard.data\n"
        "os.chdir(sys.argv[1])\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "try: regard.data.read_table('secret.csv')\n"
        "except regard.data.TableError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "secret.csv: cannot be read (permission denied)\n"


def test_names_with_control_characters_stay_on_one_line(tmp_path: Path, capfd) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'"x\ny\x1b[2J",y\n1,2\n')
    refused_by_the_command(["fit", str(path), "--target", "z", "--out", str(tmp_path / "m")], "has no column", capfd)
