"""Bad tables, bombs, bad places and bad models given to the commands that use a model: lines 62 to 76, 104 to 109."""

from __future__ import annotations

import gzip
import io
import pickle
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import regard
from regard.data import TableError, read_batches, read_table
from support.bad_tables import CELLS, CONTENTS, EMPTY, PLACES
from support.command import files, ok, refused

# Every way to ask a model about a table.
ASKED = {
    "predict": ["predict", "xy.regard"],
    "predict, with all": ["predict", "xy.regard", "--interval", "0.5", "--explain", "1"],
    "attend": ["attend", "xy.regard"],
}


@pytest.fixture
def xy(tmp_path: Path, monkeypatch) -> Path:
    """A folder with a model that knows x, and a precious file where answers are to go."""
    monkeypatch.chdir(tmp_path)
    X = np.arange(12.0)[:, None]
    import polars

    model = regard.NadarayaWatsonRegressor(bandwidth=1.0).fit(polars.DataFrame(X, schema=["x"]), X[:, 0] ** 2)
    regard.save(model, "xy.regard", metadata={"target": "y"})
    Path("answers.csv").write_text("precious")
    return tmp_path


def refused_with(capfd, words: str, *arguments: str) -> None:
    """One plain line, exit code 2, and what was there is there still."""
    before = files(Path())
    assert re.search(words, refused(capfd, *arguments, "--out", "answers.csv", "--force"))
    assert files(Path()) == before
    assert Path("answers.csv").read_text() == "precious"


@pytest.mark.parametrize("command", ASKED)
def test_62_to_73_contents(command: str, xy: Path, capfd) -> None:
    for content, words in CONTENTS.values():
        Path("bad.csv").write_bytes(content)
        refused_with(capfd, rf"bad\.csv: .*{words}", *ASKED[command], "bad.csv")


@pytest.mark.parametrize("command", ASKED)
def test_69_70_cells(command: str, xy: Path, capfd) -> None:
    for cell, words in CELLS.values():
        # A column is text where a cell of it is: the model, which knows numbers, says so, or which cell it was.
        Path("bad.csv").write_text(f"x\n1\n{cell}\n5\n", encoding="utf-8")
        refused_with(capfd, rf"bad\.csv: (row 1, column 'x': {words}|column 'x' is text)", *ASKED[command], "bad.csv")
    for cell in EMPTY.values():
        Path("bad.csv").write_text(f"x,z\n1,1\n{cell},1\n5,1\n", encoding="utf-8")
        refused_with(capfd, r"X contains NaN|column 'x'.*(is empty|no entry)", *ASKED[command], "bad.csv")


def test_62_to_73_from_standard_input(xy: Path, capfd, monkeypatch) -> None:
    for command in (*ASKED.values(), ["fit", "--target", "y"]):
        for content, words in CONTENTS.values():
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
            refused_with(capfd, rf"standard input: .*{words}", *command, "-")


def test_64_65_columns_and_marks(xy: Path, capfd) -> None:
    Path("other.csv").write_text("a,b\n1,2\n")
    for command in ASKED.values():
        refused_with(
            capfd,
            r"other\.csv: lacks 'x', which the model was fitted with; its columns are 'a', 'b'",
            *command,
            "other.csv",
        )
    Path("marked.csv").write_bytes(b"\xef\xbb\xbfx\n3\n")
    Path("plain.csv").write_bytes(b"x\n3\n")
    assert ok(capfd, "predict", "xy.regard", "marked.csv") == ok(capfd, "predict", "xy.regard", "plain.csv")


# ---- bombs


def gzip_bomb(path: Path) -> None:
    with gzip.open(path, "wb") as file:
        file.write(b"x,y\n")
        file.write(b"1,1\n" * (1 << 18))


def number_bomb(path: Path) -> None:
    zeros = pyarrow.array(np.zeros(100_000))
    pyarrow.parquet.write_table(pyarrow.table({"x": zeros, "y": zeros}), path)


def text_bomb(path: Path) -> None:
    text = pyarrow.array(["x" * 20_000] * 100)
    pyarrow.parquet.write_table(pyarrow.table({"x": text, "y": text}), path)


BOMBS = {"bomb.csv.gz": gzip_bomb, "bomb.parquet": number_bomb, "text.parquet": text_bomb}
CAP = 400_000


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("command", ["fit", *ASKED])
def test_74_a_bomb_is_refused_by_the_size_it_unpacks_to(command: str, name: str, xy: Path, capfd, monkeypatch) -> None:
    """A cap of less than a megabyte, and batches that stay below it: the whole is what is refused."""
    for reader in (read_table, read_batches):
        monkeypatch.setitem(reader.__kwdefaults__, "max_bytes", CAP)
    monkeypatch.setitem(read_batches.__kwdefaults__, "rows", 10_000)
    BOMBS[name](Path(name))
    assert Path(name).stat().st_size < CAP / 100
    arguments = ASKED.get(command, ["fit", "--target", "y"])
    refused_with(capfd, rf"{name}: decodes to more than {CAP:,} bytes, the limit", *arguments, name)


@pytest.mark.parametrize("name", BOMBS)
def test_74_a_bomb_in_batches_is_refused_before_it_is_read(name: str, xy: Path) -> None:
    """However small its batches are; a plain file of the same content is read."""
    BOMBS[name](Path(name))
    counts: list[int] = []
    with pytest.raises(
        TableError,
        match=rf"{name}: decodes to more than {CAP:,} bytes, the limit of a compressed file of this size",
    ):
        counts.extend(len(table) for table in read_batches(name, rows=5, max_bytes=CAP))
    assert sum(counts) <= (CAP / 4 if name == "bomb.csv.gz" else 10)
    if name == "bomb.csv.gz":
        Path("plain.csv").write_bytes(gzip.decompress(Path(name).read_bytes()))
        assert sum(len(table) for table in read_batches("plain.csv", rows=50_000, max_bytes=10 * CAP)) == 1 << 18


def test_74_what_is_as_large_but_honest_is_read(xy: Path, monkeypatch) -> None:
    """Plain files of any size, and compressed ones that hold no more than a hundred times their size."""
    number = np.random.default_rng(0).random(60_000)
    text = "x\n" + "".join(f"{one}\n" for one in number)
    Path("large.csv").write_text(text)
    with gzip.open("large.csv.gz", "wt") as file:
        file.write(text)
    pyarrow.parquet.write_table(pyarrow.table({"x": number}), "large.parquet")
    for name in ("large.csv", "large.csv.gz", "large.parquet"):
        assert sum(len(table) for table in read_batches(name, rows=1000, max_bytes=100_000)) == 60_000


# ---- places


@pytest.mark.parametrize("place", PLACES)
def test_75_only_regular_files_are_read(place: str, xy: Path, capfd) -> None:
    make, words = PLACES[place]
    make(Path("place.csv"))
    for command in ASKED.values():
        refused_with(capfd, rf"place\.csv: {words}", *command, "place.csv")
    # The same for a model.
    Path("plain.csv").write_text("x\n3\n")
    refused_with(capfd, rf"place\.csv: {words}", "predict", "place.csv", "plain.csv")


# ---- models


class Trap:
    """Unpickling this would leave a mark."""

    sprung = False

    def __reduce__(self):
        return setattr, (Trap, "sprung", True)


def test_104_105_109_a_model_that_is_none(xy: Path, capfd) -> None:
    Path("plain.csv").write_text("x\n3\n")
    whole = Path("xy.regard").read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for content in (b"", whole[:100], whole[:-1], whole + b"\0", bytes(flipped), pickle.dumps(Trap()), b"x,y\n1,2\n"):
        Path("bad.regard").write_bytes(content)
        for command in ASKED.values():
            refused_with(capfd, r"bad\.regard: ", command[0], "bad.regard", *command[2:], "plain.csv")
    assert not Trap.sprung
