"""Tables and arrays larger than memory: read, pooled and written piece by piece, one piece alive at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard import batches_of, pool, pool_batches, pool_queries
from regard.data import Table, TableError, read_batches, read_table, write_batches, write_table
from regard.scores import Gaussian
from support.streams import close

RNG = np.random.default_rng(7)


def test_memmaps_are_read_only_and_stay_so(tmp_path):
    key, value = RNG.normal(size=(500, 2)), RNG.normal(size=500)
    for name, array in (("key", key), ("value", value)):
        np.save(tmp_path / name, array)
    mapped = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("key", "value")]
    query = RNG.normal(size=(40, 2))
    close(pool_batches(query, batches_of(*mapped, rows=120), Gaussian()), pool(query, key, value, Gaussian()))
    assert np.array_equal(np.load(tmp_path / "key.npy"), key)


@pytest.fixture
def table() -> Table:
    columns: dict[str, Any] = {"a": RNG.normal(size=100), "b": np.arange(100), "y": RNG.normal(size=100)}
    columns["name"] = np.array([f"n{i % 3}" for i in range(100)], object)
    return Table(tuple(columns), columns)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz", ".parquet"])
def test_tables_in_batches(ending, table, tmp_path):
    path = tmp_path / f"t{ending}"
    write_table(table, path)
    shares: list[float] = []
    found = list(read_batches(path, rows=30, progress=shares.append))
    assert [len(part) for part in found] == [30, 30, 30, 10]
    assert [part.first for part in found] == [0, 30, 60, 90]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    whole = read_table(path)
    for name in table.names:
        assert np.concatenate([part.columns[name] for part in found]).tolist() == whole.columns[name].tolist()
    write_batches(iter(found), tmp_path / f"again{ending}")
    again = read_table(tmp_path / f"again{ending}")
    assert [again.columns[name].tolist() for name in table.names] == [
        table.columns[name].tolist() for name in table.names
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"t{ending}", f"again{ending}"])


def test_pooling_a_parquet_file_of_several_row_groups(table, tmp_path):
    polars = pytest.importorskip("polars")
    polars.DataFrame({name: table.columns[name] for name in ("a", "b", "y")}).write_parquet(
        tmp_path / "t.parquet", row_group_size=17
    )
    batches = ((part.matrix(["a", "b"]), part.numbers("y")) for part in read_batches(tmp_path / "t.parquet", rows=40))
    X, y = table.matrix(["a", "b"]), table.numbers("y")
    close(pool_batches(X, batches, Gaussian([1.0, 0.1])), pool(X, X, y, Gaussian([1.0, 0.1])))


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_errors_count_rows_of_the_file(ending, tmp_path):
    path = tmp_path / f"t{ending}"
    column = np.arange(100.0)
    column[64] = np.nan
    write_table(Table(("x", "z"), {"x": column, "z": column}), path)
    parts = read_batches(path, rows=30)
    next(parts).matrix(["x"])
    next(parts).matrix(["x"])
    with pytest.raises(TableError, match="row 64, column 'x': is empty"):
        next(parts).matrix(["x"])


def test_tables_that_cannot_be_read_in_batches(tmp_path):
    (tmp_path / "ragged.csv").write_text("x,y\n1,2\n3,4\n5\n")
    parts = read_batches(tmp_path / "ragged.csv", rows=2)
    assert len(next(parts)) == 2
    with pytest.raises(TableError, match=r"row 2 .* has 1 cells"):
        next(parts)
    (tmp_path / "none.csv").write_text("x,y\n")
    with pytest.raises(TableError, match="a header but no rows"):
        next(read_batches(tmp_path / "none.csv"))
    with pytest.raises(TableError, match="no such file"):
        next(read_batches(tmp_path / "absent.csv"))
    with pytest.raises(ValueError, match="rows must be a whole number of at least 1, got 0"):
        read_batches(tmp_path / "none.csv", rows=0)
    (tmp_path / "long.csv").write_text("x\n" + "1234567890\n" * 100)
    with pytest.raises(TableError, match="more than 500 bytes"):
        list(read_batches(tmp_path / "long.csv", rows=100, max_bytes=500))
    assert len(list(read_batches(tmp_path / "long.csv", rows=20, max_bytes=500))) == 5


def test_a_failed_stream_leaves_no_file(table, tmp_path):
    def broken():
        yield table
        raise RuntimeError("enough")

    for ending in (".csv", ".parquet"):
        with pytest.raises(RuntimeError, match="enough"):
            write_batches(broken(), tmp_path / f"t{ending}")
    assert list(tmp_path.iterdir()) == []


def test_one_batch_is_alive_at_a_time():
    """What the loop holds when the next batch is asked for is nothing."""
    import weakref

    alive: list[weakref.ref[Any]] = []

    def batches(make):
        for _ in range(4):
            assert not any(ref() is not None for ref in alive)
            yield make()

    def arrays():
        key = RNG.normal(size=(50, 2))
        alive.append(weakref.ref(key))
        return key, np.ones(50)

    pool_batches(RNG.normal(size=(5, 2)), batches(arrays), Gaussian())
    alive.clear()
    assert len(list(pool_queries(batches(lambda: arrays()[0]), np.zeros((3, 2)), np.ones(3), Gaussian()))) == 4


MEMORY = """
import sys, tracemalloc
import numpy as np
from regard import pool_batches
from regard.data import read_batches
from regard.scores import Gaussian

def made(batches, rows=20_000):
    for number in range(batches):
        rng = np.random.default_rng(number)
        yield rng.random((rows, 2)), rng.random(rows)

def read(path):
    for table in read_batches(path, rows=3_000):
        yield table.matrix(["a", "b"]), table.numbers("y")

query = np.random.default_rng(1).random((5, 2))
source = (lambda n: made(n)) if sys.argv[1] == "made" else (lambda n: read(f"{sys.argv[1]}/{n}.csv"))
pool_batches(query, source(2), Gaussian(9.0))
peaks = []
for batches in (2, 12):
    tracemalloc.start()
    pool_batches(query, source(batches), Gaussian(9.0))
    peaks.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
print(*peaks)
"""


def peaks(source: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", MEMORY, source], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [int(peak) for peak in done.stdout.split()]


def test_memory_does_not_grow_with_the_number_of_batches():
    few, many = peaks("made")
    assert many < few * 1.1


def test_memory_does_not_grow_with_the_file(tmp_path: Path):
    for batches in (2, 12):
        rows = "".join(f"{i / 7e4:.4f},{i % 97},{i % 5}\n" for i in range(batches * 3_000))
        (tmp_path / f"{batches}.csv").write_text("a,b,y\n" + rows)
    few, many = peaks(str(tmp_path))
    assert many < few * 1.1
