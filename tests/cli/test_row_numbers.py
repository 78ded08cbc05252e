"""Rows are counted one way: from 0 below the header, in commands, report, figures and Python."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import numpy as np
import polars
import pytest

import regard
from regard.data import Table, write_table
from support.command import ok, refused, rows

# Far apart, so that each value says which row it belongs to; rows in no order of x.
X = np.random.default_rng(0).permutation(40) * 10.0
Y = np.sin(X / 60.0) + np.arange(40) / 1000.0


@pytest.fixture
def table(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_table(Table(("x", "y"), {"x": X, "y": Y}), "known.csv")
    write_table(Table(("x",), {"x": X[[7, 31]]}), "new.csv")
    return tmp_path


def test_the_same_row_has_the_same_number_everywhere(table: Path, capfd) -> None:
    ok(capfd, "fit", "known.csv", "--target", "y", "--out", "m.regard", "--bandwidth", "4", "--report", "page.html")
    model = regard.load("m.regard")
    attended = rows(ok(capfd, "attend", "m.regard", "new.csv", "--top", "1")[0])
    explained = rows(ok(capfd, "predict", "m.regard", "new.csv", "--explain", "1")[0])
    for number, row in enumerate((7, 31)):
        assert [attended[number][name] for name in ("query", "key")] == [str(number), str(row)]
        assert float(attended[number]["value"]) == Y[row]
        assert explained[number]["row_1"] == str(row)
        query = polars.DataFrame({"x": X[[row]]})
        assert model.attend(query, top=1).index.tolist() == [[row]]
        explanation = model.explain(query, top=1)
        assert explanation.row.tolist() == [[row]]
        assert re.search(rf"^ +{row} +1?\d\d\.?\d* %", str(explanation), re.M)
        shown = regard.plot.NeighbourDisplay.from_estimator(model, query)
        assert any(f"row {row}" in text.get_text() for text in shown.ax_.get_yticklabels())


def test_the_numbers_of_the_report_are_those_of_the_table(table: Path, capfd) -> None:
    ok(capfd, "fit", "known.csv", "--target", "y", "--out", "m.regard", "--bandwidth", "12", "--report", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    text = unescape(re.sub(r"<[^>]+>", " ", page))
    assert "Rows are numbered from 0" in text
    examples = [int(row) for row in re.findall(r"<h3>[^<]*: row (\d+)</h3>", page)]
    assert examples
    # In its tables a line begins with the number of a row, and has that row's x.
    lines = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", line) for line in re.findall(r"<tr>(.*?)</tr>", page, re.S)]
    attended = [line for line in lines if line and re.fullmatch(r"\d+", line[0]) and len(line) >= 3]
    assert len(attended) > 5
    for line in attended:
        assert f"{X[int(line[0])]:g}" in [cell.strip() for cell in line[1:]], line


def test_errors_count_the_same_way(table: Path, capfd) -> None:
    Path("new.csv").write_text("x\n1\n2\nmany\n")
    ok(capfd, "fit", "known.csv", "--target", "y", "--out", "m.regard", "--bandwidth", "4")
    assert "new.csv: row 2, column 'x': 'many'" in refused(capfd, "attend", "m.regard", "new.csv")
    assert "(rows are counted from 0, below the header)" in refused(capfd, "predict", "m.regard", "new.csv")
