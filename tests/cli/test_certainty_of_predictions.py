"""``regard predict --interval --explain``: how sure an answer is, and which rows it comes from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import regard
from support.command import HOUSES, ok, predictions, refused, rows


@pytest.fixture
def model(here: Path, capfd) -> str:
    ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard", "--bandwidth", "20")
    return "m.regard"


def test_intervals_and_rows_stand_beside_the_predictions(here: Path, model: str, capfd) -> None:
    out, _ = ok(capfd, "predict", model, "houses.csv", "--interval", "0.8", "--explain", "2")
    found = rows(out)
    names = ["price", "price_low", "price_high", "row_1", "weight_1", "row_2", "weight_2", "neighbours", "far"]
    assert list(found[0]) == names
    table = {name: np.array([float(row[name]) for row in found]) for name in names}
    assert np.array_equal(table["price"], predictions(model))
    import polars

    X = polars.DataFrame(HOUSES.X, schema=list(HOUSES.feature_names))
    ends = regard.load(model).predict_interval(X, 0.8, method="conformal")
    assert np.allclose(np.column_stack([table["price_low"], table["price_high"]]), ends, rtol=1e-12)
    # The training rows themselves: each looks at itself most, and rows are counted from 0.
    assert table["row_1"].tolist() == list(range(len(found)))
    assert (table["weight_1"] >= table["weight_2"]).all()
    assert not table["far"].any()
    assert np.allclose(table["neighbours"], regard.load(model).explain(X).neighbours, rtol=1e-12)


def test_rows_are_counted_one_way(here: Path, capfd) -> None:
    """From 0, in Python and by every command, also where rows were forgotten: X[row] is the row that was named."""
    X = np.arange(0.0, 60.0, 10.0)[:, None]
    model = regard.NadarayaWatsonRegressor(bandwidth=1.0).fit(X, X[:, 0]).forget([1, 2])
    regard.save(model, "m.regard")
    Path("x.csv").write_text("x\n" + "".join(f"{x}\n" for x in (0.0, 30.0, 50.0)))
    explanation = model.explain(np.array([[0.0], [30.0], [50.0]]), top=1)
    assert explanation.row[:, 0].tolist() == [0, 3, 5]
    found = rows(ok(capfd, "attend", "m.regard", "x.csv", "--top", "1")[0])
    assert [(row["query"], row["key"]) for row in found] == [("0", "0"), ("1", "3"), ("2", "5")]
    assert [row["row_1"] for row in rows(ok(capfd, "predict", "m.regard", "x.csv", "--explain", "1")[0])] == list("035")
    printed = str(explanation[1]).splitlines()
    assert (printed[0], printed[-1].split()[0]) == ("Row 1: predicted 30.", "3")
    for command in ("attend", "predict"):
        assert "Rows are counted from 0" in " ".join(ok(capfd, command, "--help")[0].split())


def test_a_row_far_from_everything_is_flagged(here: Path, model: str, capfd) -> None:
    header = Path("houses.csv").read_text().splitlines()[0]
    Path("far.csv").write_text(header + "\n" + ",".join("99999" for _ in header.split(",")) + "\n")
    out, err = ok(capfd, "predict", model, "far.csv", "--explain", "1")
    assert rows(out)[0]["far"] == "1"
    assert err == "1 of 1 rows are far from all training rows: their predictions are unreliable\n"


def test_rows_out_of_reach_are_not_named(here: Path, capfd) -> None:
    Path("two.csv").write_text("x,y\n0,1\n0.1,2\n9,3\n")
    ok(capfd, "fit", "two.csv", "--target", "y", "--out", "t.regard", "--bandwidth", "1", "--kernel", "boxcar")
    out, _ = ok(capfd, "predict", "t.regard", "two.csv", "--explain", "2")
    assert [(row["row_2"], float(row["weight_2"])) for row in rows(out)] == [("1", 0.5), ("1", 0.5), ("", 0.0)]


@pytest.mark.parametrize(("coverage", "need"), [("0.9", "9"), ("0.99", "99"), ("0.75", "3")])
def test_too_few_rows_for_an_interval_are_reported(coverage: str, need: str, here: Path, capfd) -> None:
    Path("few.csv").write_text("x,y\n" + "".join(f"{i},{i % 3}\n" for i in range(3)))
    ok(capfd, "fit", "few.csv", "--target", "y", "--out", "f.regard", "--bandwidth", "1")
    out, err = ok(capfd, "predict", "f.regard", "few.csv", "--interval", coverage)
    if need == "3":
        assert err == ""
        assert np.isfinite(float(rows(out)[0]["y_high"]))
    else:
        assert f"needs at least {need} training rows" in err
        assert rows(out)[0]["y_low"] == "-inf"


def test_fit_keeps_what_intervals_need_and_answers_are_the_same(here: Path, capfd, monkeypatch) -> None:
    fit = ("fit", "houses.csv", "--target", "price", "--force", "--bandwidth", "20", "--out")
    ok(capfd, *fit, "kept.regard")
    monkeypatch.setattr("regard.cli.fit_command.MAX_ROWS_FOR_RESIDUALS", 0)
    ok(capfd, *fit, "bare.regard")
    assert hasattr(regard.load("kept.regard"), "spread_")
    assert not hasattr(regard.load("bare.regard"), "spread_")
    intervals = [
        ok(capfd, "predict", name, "houses.csv", "--interval", "0.9") for name in ("kept.regard", "bare.regard")
    ]
    assert intervals[0] == intervals[1]


def test_ctrl_c_while_it_is_measured_keeps_the_model(here: Path, capfd, monkeypatch) -> None:
    def interrupted(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(regard.NadarayaWatsonRegressor, "predict_interval", interrupted)
    _, err = ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard", "--bandwidth", "20")
    assert "skipped: regard predict --interval will compute the residuals" in err
    assert np.isfinite(predictions("m.regard")).all()


def test_one_training_row_has_no_interval(here: Path, capfd) -> None:
    Path("one.csv").write_text("x,y\n1,2\n")
    ok(capfd, "fit", "one.csv", "--target", "y", "--out", "one.regard", "--bandwidth", "1")
    words = refused(capfd, "predict", "one.regard", "one.csv", "--interval", "0.9")
    assert "leave-one-out residuals need at least 2 training rows, but this model has 1" in words


@pytest.mark.parametrize("name", ["plain", "gaps"])
def test_gaps_and_weights_are_measured_too(name: str, here: Path, capfd) -> None:
    gap = "" if name == "gaps" else "3"
    Path("w.csv").write_text(
        "x,k,y,n\n" + "".join(f"{gap if i == 5 else i},{'ab'[i % 3 == 0]},{i % 5},{i % 2}\n" for i in range(30))
    )
    fit = ("fit", "w.csv", "--target", "y", "--sample-weight", "n", "--out", "w.regard", "--report", "w.html")
    ok(capfd, *fit, "--bandwidth", "2,0.2")
    known = ~np.isnan(regard.load("w.regard").residuals_)
    assert known.sum() == 15 - (name == "gaps")
    assert "How certain is it?" in Path("w.html").read_text(encoding="utf-8")


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
    assert "coverage must be between 0 and 1" in refused(capfd, "predict", model, "houses.csv", "--interval", given)


def test_no_rows_to_name(here: Path, model: str, capfd) -> None:
    assert "--explain" in refused(capfd, "predict", model, "houses.csv", "--explain", "0")
