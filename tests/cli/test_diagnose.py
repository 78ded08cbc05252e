"""``regard diagnose``: the words, the JSON, and the models it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import regard
from support.command import HOUSES, files, ok, refused, trained


def test_diagnose_prints_what_the_library_returns(here: Path, capfd) -> None:
    model = trained(capfd)
    before = files(here)
    out, err = ok(capfd, "diagnose", model)
    assert err == ""
    assert out == f"KernelRegressor: {regard.load(model).diagnose()}\n"
    assert files(here) == before


@pytest.mark.parametrize(("bandwidth", "verdict"), [("1e-3", "too thin"), ("1e4", "too thick"), ("loo", "about right")])
def test_widths_on_purpose(bandwidth: str, verdict: str, here: Path, capfd) -> None:
    arguments = ["--target", "price", "--features", "area", "--bandwidth", bandwidth, "--out", "m.regard"]
    ok(capfd, "fit", "houses.csv", *arguments)
    assert ok(capfd, "diagnose", "m.regard")[0].startswith(f"NadarayaWatsonRegressor: {verdict}")
    found = json.loads(ok(capfd, "diagnose", "m.regard", "--json")[0])
    assert found["verdict"] == verdict
    assert found["rows"] == len(HOUSES.y)
    assert found["feature"] == "area"


def test_json_is_all_of_it(here: Path, capfd) -> None:
    ok(capfd, "fit", "kinds.csv", "--target", "kind", "--bandwidth", "inf", "--out", "m.regard")
    out, err = ok(capfd, "diagnose", "--json", "m.regard")
    assert err == ""
    found, expected = json.loads(out), regard.load("m.regard").diagnose()
    assert found["model"] == "NadarayaWatsonClassifier"
    assert (found["why"], found["advice"]) == (expected.why, expected.advice)
    assert found["factor"] is None  # from no look at all, no factor leads to the best
    for name, value in expected._asdict().items():
        assert name == "factor" or found[name] == value


def test_rows_with_empty_cells_are_not_judged_and_counted(here: Path, capfd) -> None:
    lines = Path("houses.csv").read_text().splitlines()
    header, first, rest = lines[0].split(","), lines[1].split(","), lines[2:]
    first[header.index("area")] = ""
    Path("gaps.csv").write_text("\n".join([",".join(header), ",".join(first), *rest]) + "\n")
    ok(capfd, "fit", "gaps.csv", "--target", "price", "--out", "m.regard")
    out, _ = ok(capfd, "diagnose", "m.regard")
    assert out.endswith(f"  (evaluated on the rows without missing entries, {len(rest)} of {len(rest) + 1})\n")
    found = json.loads(ok(capfd, "diagnose", "m.regard", "--json")[0])
    assert (found["rows"], found["rows_with_gaps"]) == (len(rest), 1)


def test_what_has_no_bandwidth(here: Path, capfd) -> None:
    for kind in (regard.NearestKeyRegressor, regard.AveragePoolingRegressor):
        regard.save(kind().fit(HOUSES.X, HOUSES.y), "m.regard", force=True)
        assert f"m.regard: a {kind.__name__} has no bandwidth to diagnose" in refused(capfd, "diagnose", "m.regard")


def test_what_cannot_be_diagnosed(here: Path, capfd) -> None:
    assert "houses.csv: is not a regard model" in refused(capfd, "diagnose", "houses.csv")
    assert "no such file" in refused(capfd, "diagnose", "m.regard")
    assert "Missing argument" in refused(capfd, "diagnose")
    Path("one.csv").write_text("x,y\n1,2\n")
    ok(capfd, "fit", "one.csv", "--target", "y", "--bandwidth", "1", "--out", "m.regard")
    assert "needs at least 2 training rows, but this model has 1" in refused(capfd, "diagnose", "m.regard")
