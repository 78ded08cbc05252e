"""Where the command's tests run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.data import Table, write_table
from support.command import HOUSES, ok


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    """An own folder with a table of houses and one of kinds."""
    monkeypatch.chdir(tmp_path)
    columns: dict[str, Any] = dict(zip(HOUSES.feature_names, HOUSES.X.T, strict=True))
    write_table(Table((*columns, "price"), {**columns, "price": HOUSES.y}), "houses.csv")
    kind = np.where(HOUSES.y > 200.0, "dear", "cheap").astype(object)
    write_table(Table((*columns, "kind"), {**columns, "kind": kind}), "kinds.csv")
    return tmp_path


@pytest.fixture
def model(here: Path, capfd) -> str:
    """A saved model of the houses, for tests that are not about learning."""
    ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard", "--bandwidth", "scott")
    return "m.regard"
