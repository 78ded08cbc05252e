"""Running the command inside a test, and reading what it printed and wrote."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import regard
from regard.cli import main
from regard.data import houses

HOUSES = houses(n=60)


def files(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def ok(capfd, *arguments: str) -> tuple[str, str]:
    code = main(arguments)
    out, err = capfd.readouterr()
    assert code == 0, err
    return out, err


def refused(capfd, *arguments: str) -> str:
    code = main(arguments)
    out, err = capfd.readouterr()
    assert (code, out) == (2, ""), err
    assert err.startswith("regard: ")
    assert err.count("\n") == 1
    return err


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def trained(capfd, data: str = "houses.csv", target: str = "price") -> str:
    ok(capfd, "fit", data, "--target", target, "--out", "m.regard")
    return "m.regard"


def predictions(model: str) -> Any:
    import polars

    return regard.load(model).predict(polars.DataFrame(HOUSES.X, schema=list(HOUSES.feature_names)))
