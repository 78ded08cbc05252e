"""Data sets that know their truth, and tables as named columns."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import os
import sys
from pathlib import Path

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import (
    Table,
    TableError,
    from_dataframe,
    houses,
    houses_truth,
    notes,
    notes_truth,
    read_table,
    write_table,
)
from support.soak import FULL

EXAMPLES = 1000 if FULL else 100


# ---- the notes' data


def test_notes_are_as_the_notes_say() -> None:
    data = notes()
    assert data.x_train.shape == data.y_train.shape == data.x_test.shape == data.y_truth.shape == (50,)
    assert all(part.dtype == np.float64 for part in data)
    assert (np.diff(data.x_train) >= 0).all()
    assert data.x_train[0] >= 0.0
    assert data.x_train[-1] < 5.0
    assert np.array_equal(data.x_test, np.arange(0, 5, 0.1))
    assert np.array_equal(data.y_truth, 2 * np.sin(data.x_test) + data.x_test**0.8)


def test_notes_noise_has_the_stated_width() -> None:
    data = notes(n_train=200_000)
    noise = data.y_train - notes_truth(data.x_train)
    assert abs(noise.mean()) < 0.01
    assert abs(noise.std() - 0.5) < 0.005


def test_seeds_decide() -> None:
    assert all(np.array_equal(a, b) for a, b in zip(notes(seed=3), notes(seed=3), strict=True))
    assert not np.array_equal(notes(seed=3).y_train, notes(seed=4).y_train)
    assert np.array_equal(houses(seed=3).y, houses(seed=3).y)
    assert not np.array_equal(houses(seed=3).y, houses(seed=4).y)


@pytest.mark.parametrize("make", [lambda: notes(0), lambda: houses(0), lambda: notes_truth(-0.1)])
def test_impossible_data_are_refused(make) -> None:
    with pytest.raises(ValueError):
        make()


def test_houses_follow_their_formula() -> None:
    data = houses(n=20_000)
    assert data.X.shape == (20_000, len(data.feature_names))
    noise = data.y - houses_truth(data.X)
    assert abs(noise.mean()) < 0.5
    assert abs(noise.std() - 15.0) < 0.3
    assert data.y.min() > 0.0
    # Only the column that does not matter can be changed freely.
    for number, name in enumerate(data.feature_names):
        changed = data.X.copy()
        changed[:, number] += 1.0
        same = np.array_equal(houses_truth(changed), houses_truth(data.X))
        assert same == (name == "door_number")


# ---- tables in memory


def table(**columns) -> Table:
    arrays = {
        name: np.asarray(column, object if isinstance(column[0], str) else None) for name, column in columns.items()
    }
    return Table(tuple(arrays), arrays, "t.csv")


def test_matrix_puts_columns_in_the_order_asked_for() -> None:
    found = table(a=[1, 2], b=[0.5, 1.5]).matrix(["b", "a"])
    assert found.dtype == np.float64
    assert found.tolist() == [[0.5, 1.0], [1.5, 2.0]]


def test_text_and_mixed_columns() -> None:
    t = table(city=["Ulm", "Bonn"], mixed=["1", "x"], price=["1,000", "2,500"], hexa=["0x10", "0x11"], x=[1.0, 2.0])
    assert t.is_text("city")
    assert not any(t.is_text(name) for name in ("mixed", "price", "hexa", "x"))
    for name, row, cell in (("city", 0, "'Ulm'"), ("mixed", 1, "'x'"), ("price", 0, "'1,000'"), ("hexa", 0, "'0x10'")):
        with pytest.raises(TableError, match=rf"t\.csv: row {row}, column '{name}': {cell} is not a"):
            t.numbers(name)
    with pytest.raises(TableError, match="holds numbers, not text"):
        t.labels("x")


def test_dates_are_days() -> None:
    t = table(
        day=["1970-01-02", "", "1969-12-31"],
        time=["2024-02-29 06:00", "2024-02-29T12:00:00Z", "2024-02-29 13:00+01:00"],
        frame=["1970-01-01 00:00:00.000000000", "1970-01-01 18:00:00.000001", " 1970-01-01 "],
    )
    assert not any(t.is_text(name) for name in t.names)
    assert t.cells("day").tolist()[::2] == [1.0, -1.0]
    assert np.isnan(t.cells("day")[1])
    first = (dt.date(2024, 2, 29) - dt.date(1970, 1, 1)).days
    assert t.cells("time").tolist() == [first + 0.25, first + 0.5, first + 0.5]
    np.testing.assert_allclose(t.cells("frame"), [0.0, 0.75, 0.0], rtol=0.0, atol=1e-10)
    with pytest.raises(
        TableError, match="row 0, column 'day': '1970-01-02' is not a number: this is a column of dates"
    ):
        t.numbers("day")


@pytest.mark.parametrize("cell", ["2024-02-30", "2024-13-01", "31.12.2024", "20240101", "2024-01-01 25:00", "soon"])
def test_one_cell_that_is_not_a_date_makes_text(cell: str) -> None:
    t = table(day=["2024-01-01", cell])
    assert not t.has_dates("day")
    assert t.column("day").tolist() == ["2024-01-01", cell]


def test_a_date_of_another_order_is_named() -> None:
    with pytest.raises(
        TableError, match=r"row 0, column 'day': '31\.12\.2024' is not a date such as 2024-12-31, nor a"
    ):
        table(day=["31.12.2024", "31.12.2024"]).numbers("day")
    assert table(day=["31.12.2024", "1.2.2024"]).is_text("day")
    assert not table(price=["1.234.567", "2.000.000"]).is_text("price")


@pytest.mark.parametrize("mark", ["NA", "n/a", "-", "?"])
def test_marks_of_missing_entries_are_refused_with_advice(mark: str) -> None:
    with pytest.raises(TableError, match=r"is not a plain number .*; leave the cell empty if the entry is missing"):
        table(x=["1", mark]).cells("x")


def test_missing_cells_name_their_row() -> None:
    t = table(x=[1.0, np.nan], kind=["a", " "], y=[1.0, np.inf])
    with pytest.raises(TableError, match="row 1, column 'x': is empty"):
        t.matrix(["x"])
    with pytest.raises(TableError, match="row 1, column 'kind': is empty"):
        t.labels("kind")
    with pytest.raises(TableError, match="row 1, column 'y': is not finite"):
        t.numbers("y")


def test_columns_that_disagree_are_refused() -> None:
    with pytest.raises(TableError, match="length"):
        table(a=[1], b=[1, 2])
    with pytest.raises(TableError, match="must be the same"):
        Table(("a",), {"b": np.ones(1)})


# ---- dataframes of any library

FRAMES = {
    "pandas": pandas.DataFrame,
    "polars": polars.DataFrame,
    "polars lazy": lambda columns: polars.LazyFrame(columns),
    "pyarrow": pyarrow.table,
}


@pytest.mark.parametrize("library", FRAMES)
def test_dataframes_become_tables(library: str) -> None:
    columns = {"n": [1, 2, 3], "x": [0.5, None, 2.5], "s": ["a", None, "c"], "b": [True, False, True]}
    t = from_dataframe(FRAMES[library](columns))
    assert t.names == ("n", "x", "s", "b")
    assert t.columns["n"].dtype == np.int64
    assert t.columns["n"].tolist() == [1, 2, 3]
    assert t.columns["b"].tolist() == [1, 0, 1]
    assert np.isnan(t.columns["x"][1])
    assert t.columns["x"][[0, 2]].tolist() == [0.5, 2.5]
    assert t.columns["s"].tolist() == ["a", "", "c"]


def test_odd_pandas_columns() -> None:
    frame = pandas.DataFrame(
        {
            "nullable": pandas.array([1, None], dtype="Int64"),
            "category": pandas.Categorical(["b", "a"]),
            "when": pandas.to_datetime(["2020-01-01", "2020-01-02"]),
            "big": np.array([2**63 + 2**12, 0], np.uint64),
            "object": np.array(["x", np.nan], object),
        }
    )
    t = from_dataframe(frame)
    assert t.columns["nullable"][0] == 1.0
    assert np.isnan(t.columns["nullable"][1])
    assert t.columns["category"].tolist() == ["b", "a"]
    assert t.columns["when"][0].startswith("2020-01-01")
    assert t.columns["big"][0] == 2.0**63 + 2**12
    assert t.columns["object"].tolist() == ["x", ""]


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ([1, 2], "must be a dataframe, got list"),
        (polars.DataFrame({"x": []}), "no rows"),
        (polars.DataFrame({"x": [[1, 2]]}), "'x' has type List"),
    ],
)
def test_what_is_no_table(frame, words: str) -> None:
    with pytest.raises(TableError, match=words):
        from_dataframe(frame)


# ---- files


def awkward() -> Table:
    return table(
        id=[1, -2, 3],
        x=[0.1, 1e-300, -1.7976931348623157e308],
        gap=[1.5, np.nan, 2.0],
        text=['a "quoted", cell', "two\nlines", "naïve 数"],
        returns=["\r", "a\r\nb", ""],
    )


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet"])
def test_written_tables_come_back(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"t{ending}"
    write_table(awkward(), path)
    back = read_table(path)
    assert back.names == awkward().names
    for name in back.names:
        assert back.columns[name].dtype == awkward().columns[name].dtype
        for a, b in zip(back.columns[name], awkward().columns[name], strict=True):
            assert a == b or (a != a and b != b)
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_the_same_table_gives_the_same_bytes(ending: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_table(awkward(), tmp_path / f"{name}{ending}")
    assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()


def test_what_the_reader_accepts(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbfa, b ,"c"\r\n 1,+2.,"3"\r\n-4,.5e1, 6 \r\n\r\n\r\n')
    t = read_table(path)
    assert t.names == ("a", "b", "c")
    assert t.matrix(t.names).tolist() == [[1, 2, 3], [-4, 5, 6]]
    assert t.columns["a"].dtype == np.int64
    assert t.columns["b"].dtype == np.float64


def test_integers_too_long_for_a_float_are_rounded_not_wrapped(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n123456789012345678901234567890\n")
    assert read_table(path).columns["a"].tolist() == [1.0, 123456789012345678901234567890.0]


def test_many_blocks_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = 5000
    path.write_text("n,word,late\n" + "".join(f"{i},w{i % 7},{i if i < rows - 1 else 'x'}\n" for i in range(rows)))
    t = read_table(path)
    assert t.columns["n"].tolist() == list(range(rows))
    assert t.columns["word"][-1] == f"w{(rows - 1) % 7}"
    # A column that turns out not to be numbers at its very end keeps its text as it was.
    assert t.columns["late"][:2].tolist() == ["0", "1"]
    with pytest.raises(TableError, match=f"row {rows - 1}, column 'late': 'x'"):
        t.numbers("late")


def test_standard_input_and_output(monkeypatch, capfdbinary) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x,y\n1,2\n")))
    write_table(read_table("-"), "-")
    assert capfdbinary.readouterr().out == b"x,y\n1,2\n"
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(TableError, match="standard input is closed"):
        read_table("-")


def test_a_closed_standard_output(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(TableError, match="standard output is closed"):
        write_table(awkward(), "-")


def test_a_stream_that_takes_a_part_at_a_time_gets_all(monkeypatch) -> None:
    class Slow(io.RawIOBase):
        taken = b""

        def write(self, data) -> int:
            self.taken += bytes(data[:7])
            return min(len(data), 7)

    slow = Slow()
    monkeypatch.setattr(sys, "stdout", type("Stdout", (), {"buffer": slow}))
    write_table(table(x=[1, 2, 3], text=["a long text", "b", "c"]), "-")
    assert slow.taken == b"x,text\n1,a long text\n2,b\n3,c\n"


def test_parquet_without_polars(monkeypatch, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_table(awkward(), path)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(TableError, match=r"pip install 'regard\[cli\]'"):
        read_table(path)


def test_csv_needs_neither_polars_nor_pandas(tmp_path: Path) -> None:
    import subprocess

    path = tmp_path / "t.csv"
    path.write_text("x\n1\n")
    code = (
        "import sys, regard.data; regard.data.read_table(sys.argv[1]);"
        "print(sorted({'polars', 'pandas', 'sklearn', 'numba', 'narwhals', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


CELLS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.tuples(CELLS, st.floats(allow_nan=True, allow_infinity=False)), min_size=1, max_size=20))
def test_any_text_and_any_number_come_back(tmp_path_factory, rows) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "t.csv"
    # A first cell that is surely text keeps the column text.
    texts = np.array(["word", *(row[0] for row in rows)], object)
    numbers = np.array([0.5, *(row[1] for row in rows)])
    write_table(Table(("s", "x"), {"s": texts, "x": numbers}), path)
    back = read_table(path)
    assert back.columns["s"].tolist() == texts.tolist()
    assert np.array_equal(back.columns["x"], numbers, equal_nan=True)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["t.csv", "t.tsv", "t.csv.gz", "t.parquet"]))
def test_any_bytes_give_a_table_or_a_table_error(tmp_path_factory, content: bytes, name: str) -> None:
    path = tmp_path_factory.mktemp("fuzz") / name
    path.write_bytes(content)
    message = str(path)
    try:
        t = read_table(path)
        for column in t.names:
            assert t.numbers(column).shape == (len(t),)
    except TableError as error:
        message = str(error)
    assert str(path) in message


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_flipped_byte_in_a_gzipped_table_is_noticed(tmp_path_factory, where: int, flip: int) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "t.csv.gz"
    body = "x,y\n" + "".join(f"{i},{i * i}\n" for i in range(200))
    content = bytearray(gzip.compress(body.encode(), mtime=0))
    # The first ten bytes (flags, time, system) do not belong to the data.
    where = 10 + where % (len(content) - 10)
    content[where] ^= flip
    path.write_bytes(content)
    with pytest.raises(TableError):
        read_table(path)
