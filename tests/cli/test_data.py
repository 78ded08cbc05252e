"""``regard data``: the tables that come with the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from regard.cli.data_command import TableName
from regard.data import houses, notes, read_table
from support.command import files, ok, refused


@pytest.mark.parametrize("seed", [0, 5])
def test_houses_are_those_of_the_package(tmp_path: Path, monkeypatch, capfd, seed: int) -> None:
    monkeypatch.chdir(tmp_path)
    out, err = ok(capfd, "data", "houses", "--seed", str(seed))
    assert err == ""
    Path("houses.csv").write_text(out)
    table, data = read_table("houses.csv"), houses(seed=seed)
    assert table.names == (*data.feature_names, "price")
    assert np.array_equal(table.matrix(data.feature_names), data.X)
    assert np.array_equal(table.numbers("price"), data.y)


def test_notes_are_the_training_points(tmp_path: Path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    ok(capfd, "data", "notes", "--out", "notes.parquet")
    table, points = read_table("notes.parquet"), notes()
    assert table.names == ("x", "y")
    assert np.array_equal(table.matrix(("x", "y")), np.column_stack([points.x_train, points.y_train]))


def test_a_file_that_is_there_stays(tmp_path: Path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.csv").write_text("mine")
    assert "notes.csv: already exists" in refused(capfd, "data", "notes", "--out", "notes.csv")
    assert Path("notes.csv").read_text() == "mine"
    ok(capfd, "data", "notes", "--out", "notes.csv", "--force")
    assert Path("notes.csv").read_text() == ok(capfd, "data", "notes")[0]
    assert files(tmp_path) == ["notes.csv"]


def test_unknown_names_list_those_there_are(capfd) -> None:
    for arguments in (["cats"], []):
        err = refused(capfd, "data", *arguments)
        for name in TableName:
            assert name in err
    assert "'cats' is not one of" in refused(capfd, "data", "cats")
    assert "--seed" in refused(capfd, "data", "notes", "--seed", "-1")
