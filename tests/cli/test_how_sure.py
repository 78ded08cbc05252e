"""``regard predict --interval --explain``: how sure an answer is, and which rows it comes from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import regard
from command import HOUSES, ok, predictions, refused, rows


@pytest.fixture
def model(here: Path, capfd) -> str:
    ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard", "--bandwidth", "20")
    return "m.regard"


def test_intervals_and_rows_stand_beside_the_predictions(here: Path, model: str, capfd) -> None:
    out, _ = ok(capfd, "predict", model, "houses.csv", "--interval", "0.8", "--explain", "2")
    found = rows(out)
    names = ["price", "price_low", "price_high", "row_1", "weight_1", "row_2", "weight_2", "far"]
    assert list(found[0]) == names
    table = {name: np.array([float(row[name]) for row in found]) for name in names}
    assert np.array_equal(table["price"], predictions(model))
    import polars

    X = polars.DataFrame(HOUSES.X, schema=list(HOUSES.feature_names))
    ends = regard.load(model).predict_interval(X, 0.8, method="conformal")
    assert np.allclose(np.column_stack([table["price_low"], table["price_high"]]), ends, rtol=1e-12)
    # The training rows themselves: each looks at itself most, and rows are counted from 1.
    assert table["row_1"].tolist() == list(range(1, len(found) + 1))
    assert (table["weight_1"] >= table["weight_2"]).all()
    assert not table["far"].any()


def test_a_row_far_from_everything_is_flagged(here: Path, model: str, capfd) -> None:
    header = Path("houses.csv").read_text().splitlines()[0]
    Path("far.csv").write_text(header + "\n" + ",".join("99999" for _ in header.split(",")) + "\n")
    out, _ = ok(capfd, "predict", model, "far.csv", "--explain", "1")
    assert rows(out)[0]["far"] == "1"


def test_classes_come_in_sets(here: Path, capfd) -> None:
    ok(capfd, "fit", "kinds.csv", "--target", "kind", "--out", "k.regard", "--bandwidth", "5")
    out, _ = ok(capfd, "predict", "k.regard", "kinds.csv", "--interval", "0.9")
    classes = set(regard.load("k.regard").classes_)
    for row in rows(out):
        chosen = row["kind_set"].split(" | ")
        assert row["kind"] in chosen
        assert set(chosen) <= classes


@pytest.mark.parametrize("given", ["0", "1", "1.5", "nan"])
def test_a_coverage_is_a_share(given: str, here: Path, model: str, capfd) -> None:
    assert "a coverage lies between 0 and 1" in refused(capfd, "predict", model, "houses.csv", "--interval", given)


def test_no_rows_to_name(here: Path, model: str, capfd) -> None:
    assert "--explain" in refused(capfd, "predict", model, "houses.csv", "--explain", "0")
