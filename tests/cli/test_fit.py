"""``regard fit``: what it says, the model it saves, the tables and options it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from command import HOUSES, files, ok, predictions, refused
from regard.data import read_table, write_table


def test_fit_says_what_it_did_on_stderr(here: Path, capfd) -> None:
    out, err = ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard")
    assert out == ""
    assert "NadarayaWatsonRegressor: price from 7 features, 60 rows of houses.csv" in err
    assert "by the rule scott" in err
    model = regard.load("m.regard")
    for name, width in zip(HOUSES.feature_names, model.bandwidth_, strict=True):
        assert f"  {name:<11}  {width:.4g}\n" in err
    assert "saved m.regard" in err
    assert files(here) == ["houses.csv", "kinds.csv", "m.regard"]


def test_fit_is_the_library_fit(here: Path, capfd) -> None:
    arguments = ["--features", "area, age", "--kernel", "tricube", "--bandwidth", "60,40"]
    ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard", *arguments)
    model = regard.load("m.regard")
    assert model.get_params() == {
        "kernel": "tricube", "bandwidth": [60.0, 40.0], "empty": "nearest", "engine": "auto", "tol": None,
    }  # fmt: skip
    assert model.feature_names_in_.tolist() == ["area", "age"]
    assert np.array_equal(model.key_, HOUSES.X[:, :2])
    assert np.array_equal(model.value_, HOUSES.y)
    assert model.sample_weight_ is None


@pytest.mark.parametrize(
    ("given", "expected"), [("2.5", 2.5), ("silverman", "silverman"), ("inf", np.inf), ("-3", -3.0)]
)
def test_bandwidths(given: str, expected: Any, here: Path, capfd) -> None:
    ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard", f"--bandwidth={given}")
    assert regard.load("m.regard").bandwidth == expected


@pytest.mark.parametrize(("cells", "kind"), [(("1", "2", "0"), "i"), (("1.0", "2.5", "0"), "f")])
def test_whole_weights_stay_whole(cells: tuple[str, ...], kind: str, here: Path, capfd) -> None:
    Path("w.csv").write_text("x,y,n\n" + "".join(f"{i},{i * i},{cell}\n" for i, cell in enumerate(cells)))
    ok(capfd, "fit", "w.csv", "--target", "y", "--out", "m.regard", "--sample-weight", "n")
    model = regard.load("m.regard")
    assert model.sample_weight_.dtype.kind == kind
    assert model.feature_names_in_.tolist() == ["x"]


def test_a_text_target_makes_a_classifier(here: Path, capfd) -> None:
    _, err = ok(capfd, "fit", "kinds.csv", "--target", "kind", "--out", "m.regard")
    assert "NadarayaWatsonClassifier: kind (2 classes)" in err
    assert regard.load("m.regard").classes_.tolist() == ["cheap", "dear"]


def test_a_constant_feature_is_reported(here: Path, capfd) -> None:
    Path("c.csv").write_text("x,same,y\n1,7,1\n2,7,2\n3,7,3\n")
    _, err = ok(capfd, "fit", "c.csv", "--target", "y", "--out", "m.regard")
    assert "  same  inf (does not vary, ignored)\n" in err


def test_parquet_goes_in_and_out(here: Path, capfd) -> None:
    write_table(read_table("houses.csv"), "houses.parquet")
    ok(capfd, "fit", "houses.parquet", "--target", "price", "--out", "p.regard")
    ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "c.regard")
    assert Path("p.regard").read_bytes() == Path("c.regard").read_bytes()
    ok(capfd, "predict", "p.regard", "houses.parquet", "--out", "out.parquet")
    assert np.array_equal(read_table("out.parquet").columns["price"], predictions("p.regard"))


REFUSED_FITS = [
    (["nowhere.csv", "--target", "price"], "nowhere.csv: no such file"),
    (["houses.csv", "--target", "cost"], "has no column 'cost'; its columns are 'area', 'age'"),
    (["houses.csv", "--target", "price", "--features", "area,cost"], "has no column 'cost'"),
    (["houses.csv", "--target", "price", "--features", "area,price"], "also the column of --target"),
    (["houses.csv", "--target", "price", "--features", "area,area"], "not a list of different column names"),
    (["houses.csv", "--target", "price", "--features", ""], "not a list of different column names"),
    (["houses.csv", "--target", "price", "--features", '"area'], "not a list of different column names"),
    (["houses.csv", "--target", "price", "--sample-weight", "price"], "is also the target"),
    (["houses.csv", "--target", "price", "--sample-weight", "n"], "has no column 'n'"),
    (["houses.csv", "--target", "price", "--features", "age", "--sample-weight", "age"], "--sample-weight"),
    (["houses.csv", "--target", "price", "--kernel", "square"], "kernel must be one of 'gaussian'"),
    (["houses.csv", "--target", "price", "--bandwidth", "0"], "bandwidth must be"),
    (["houses.csv", "--target", "price", "--bandwidth", "nan"], "bandwidth must be"),
    (["houses.csv", "--target", "price", "--bandwidth", "1,2"], "bandwidth has 2 numbers but X has 7"),
    (["houses.csv", "--target", "price", "--bandwidth", "wide"], "bandwidth must be"),
    (["kinds.csv", "--target", "price"], "has no column 'price'"),
    (
        ["kinds.csv", "--target", "area"],
        "column 'kind' is text and cannot be a feature; choose numeric columns, such as",
    ),
    (["only.csv", "--target", "y"], "no column left to learn from besides the target 'y'"),
    (["zero.csv", "--target", "y", "--sample-weight", "n"], "sample_weight"),
    (["negative.csv", "--target", "y", "--sample-weight", "n"], "sample_weight"),
    (["unlabelled.csv", "--target", "kind"], "row 2, column 'kind': is empty"),
    ([], "Missing argument"),
    (["houses.csv"], "Missing option '--target'"),
    (["houses.csv", "--target", "price", "--colour", "red"], "No such option: --colour"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED_FITS)
def test_fits_that_are_refused(arguments: list[str], words: str, here: Path, capfd) -> None:
    Path("only.csv").write_text("y\n1\n2\n")
    Path("zero.csv").write_text("x,y,n\n1,1,0\n2,2,0\n")
    Path("negative.csv").write_text("x,y,n\n1,1,-1\n2,2,1\n")
    Path("unlabelled.csv").write_text("x,kind\n1,a\n2,\n")
    before = files(here)
    assert words in refused(capfd, "fit", *arguments, "--out", "m.regard")
    assert files(here) == before


def test_a_model_cannot_go_to_stdout(here: Path, capfd) -> None:
    assert "a model is a file" in refused(capfd, "fit", "houses.csv", "--target", "price", "--out", "-")


def test_the_suggested_features_work(here: Path, capfd) -> None:
    err = refused(capfd, "fit", "kinds.csv", "--target", "area", "--out", "m.regard")
    suggested = err.split("--features ")[1].strip()
    ok(capfd, "fit", "kinds.csv", "--target", "area", "--out", "m.regard", "--features", suggested)
