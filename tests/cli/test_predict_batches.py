"""``regard predict`` reads and answers a table batch by batch."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import polars
import pytest

import regard
from regard.cli.progress_bars import reading_bar
from regard.data import read_batches, read_table, write_table
from support.command import files, ok, refused, rows


@pytest.fixture
def small(monkeypatch) -> None:
    """Batches of seven rows."""
    monkeypatch.setattr("regard.data.read_batches", partial(read_batches, rows=7))


@pytest.fixture
def line(here: Path) -> str:
    """A model that knows x from 0 to 9, each within 1."""
    x = np.arange(10.0)
    X = polars.DataFrame({"x": x})
    model = regard.NadarayaWatsonRegressor(kernel="boxcar", bandwidth=0.5).fit(X, x**2)
    regard.save(model, "line.regard", metadata={"target": "y"})
    return "line.regard"


@pytest.mark.parametrize("data", ["houses.csv", "houses.parquet"])
@pytest.mark.parametrize("out", ["p.csv", "p.tsv", "p.csv.gz", "p.parquet"])
def test_batches_give_what_the_whole_gives(data, out, here, model, capfd, monkeypatch) -> None:
    write_table(read_table("houses.csv"), "houses.parquet")
    whole, _ = ok(capfd, "predict", model, "houses.csv")
    monkeypatch.setattr("regard.data.read_batches", partial(read_batches, rows=7))
    assert ok(capfd, "predict", model, data, "--out", out) == ("", "")
    found = read_table(out).columns["price"]
    np.testing.assert_allclose(found, [float(row["price"]) for row in rows(whole)], rtol=1e-12)
    printed, _ = ok(capfd, "predict", model, data)
    assert [float(row["price"]) for row in rows(printed)] == found.tolist()


def test_labels_in_batches(here, capfd, small) -> None:
    ok(capfd, "fit", "kinds.csv", "--target", "kind", "--out", "m.regard", "--bandwidth", "scott")
    for out in ("p.csv", "p.parquet"):
        ok(capfd, "predict", "m.regard", "kinds.csv", "--out", out)
        assert set(read_table(out).columns["kind"]) == {"dear", "cheap"}
        assert len(read_table(out)) == 60


def test_a_bad_row_in_a_later_batch_leaves_no_file(here, line, capfd, small) -> None:
    Path("new.csv").write_text("x\n" + "1\n" * 20 + "many\n")
    before = files(here)
    for out in ("p.csv", "p.parquet"):
        assert "new.csv: row 20, column 'x': 'many'" in refused(capfd, "predict", line, "new.csv", "--out", out)
    assert files(here) == before


def test_one_warning_for_all_batches(here, line, capfd, small) -> None:
    Path("new.csv").write_text("x\n" + "1\n" * 10 + "40\n" + "1\n" * 10 + "50\n")
    out, err = ok(capfd, "predict", line, "new.csv")
    assert out.split() == ["y", *["1.0"] * 10, "81.0", *["1.0"] * 10, "81.0"]
    assert err.count("\n") == 1
    assert err.startswith("regard: warning: rows 7 to 13: 1 of 7 rows of X (the first is row 3) have no training row")
    assert err.endswith("(and the like in 1 more batch)\n")


def test_several_warnings_of_one_batch_are_one_batch(here, capfd) -> None:
    ok(capfd, "fit", "kinds.csv", "--target", "area", "--out", "m.regard", "--features", "age,kind")
    Path("new.csv").write_text("age,kind\n30,castle\n")
    _, err = ok(capfd, "predict", "m.regard", "new.csv", "--interval", "0.9", "--explain", "1")
    assert err.count("the category 'castle', which did not occur in fit") == 1
    assert "more batch" not in err


def test_an_error_says_of_which_rows(here, line, capfd, small) -> None:
    model = regard.load(line).set_params(empty="raise")
    regard.save(model, "strict.regard")
    Path("new.csv").write_text("x\n" + "1\n" * 10 + "40\n")
    err = refused(capfd, "predict", "strict.regard", "new.csv", "--out", "p.csv")
    assert "new.csv: rows 7 to 10: 1 of 4 rows of X (the first is row 3)" in err


def test_a_bar_on_a_terminal(monkeypatch, capfd) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with reading_bar("Predicting") as advance:
        advance(0.5, 70_000)
        advance(1.0, 140_000)
    assert "140,000 rows" in capfd.readouterr().err
    with reading_bar("Predicting") as advance:
        advance(None, 7)
    assert "7 rows" in capfd.readouterr().err
    with reading_bar("Predicting", quiet=True) as advance:
        advance(1.0, 7)
    assert capfd.readouterr().err == ""


MEMORY = """
import sys
from regard.cli import main
assert main(["predict", "line.regard", sys.argv[1], "--out", sys.argv[2]]) == 0
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_that_of_a_batch(here, line) -> None:
    resident = []
    for count in (140_000, 400_000):
        column = np.random.default_rng(0).integers(0, 9, count) * 1.0
        polars.DataFrame(dict.fromkeys("xabcdefg", column)).write_parquet(f"{count}.parquet", row_group_size=50_000)
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, f"{count}.parquet", f"out{count}.parquet"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        resident.append(int(done.stdout) * 1024)
        assert read_table(f"out{count}.parquet").columns["y"].tolist() == (column**2).tolist()
    # The columns alone are 260,000·8·8 = 17e6 bytes more.
    assert resident[1] - resident[0] < 10e6, resident
