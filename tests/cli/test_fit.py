"""``regard fit``: what it says, the model it saves, the tables and options it refuses."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.cli import main
from regard.data import Table, read_table, write_table
from support.command import HOUSES, files, ok, predictions, refused


def test_fit_says_what_it_did_on_stderr(here: Path, capfd) -> None:
    out, err = ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard")
    assert out == ""
    assert "KernelRegressor: price from 7 features, 60 rows of houses.csv\n" in err
    model = regard.load("m.regard")
    assert f"leave-one-out R² {model.loo_score_:.4f} (1 is perfect" in err
    assert "bandwidth at each feature's median, in its own units" in err
    for name, width, share in zip(HOUSES.feature_names, model.bandwidth_, model.feature_relevance_, strict=True):
        assert any(line.split()[:3] == [name, f"{width:.4g}", f"{share:.0%}"] for line in err.splitlines())
    assert f"{len(model.heads_)} heads, with their weights in the mixture:\n" in err
    # Heads of one kind, learned without one fold each, are one line.
    kinds = re.findall(
        r"^ +(\d+)%  .*; (a full matrix w|one w per feature|local means|one line for all rows)", err, re.M
    )
    assert len(kinds) < len(model.heads_)
    assert abs(sum(int(share) for share, _ in kinds) - 100) <= len(kinds)
    assert "saved m.regard" in err
    assert "Ctrl-C" not in err
    assert files(here) == ["houses.csv", "kinds.csv", "m.regard"]


def test_a_rule_is_named(here: Path, capfd) -> None:
    _, err = ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard", "--bandwidth", "scott")
    assert "NadarayaWatsonRegressor: price from 7 features" in err
    assert "by scott" in err
    assert "leave-one-out" not in err
    assert "head" not in err


def test_learned_bandwidths(here: Path, capfd) -> None:
    for criterion in ("loo", "aicc", "gcv"):
        arguments = ["--target", "price", "--out", "m.regard", "--bandwidth", criterion, "--force"]
        _, err = ok(capfd, "fit", "houses.csv", *arguments)
        model = regard.load("m.regard")
        assert type(model) is regard.NadarayaWatsonRegressor
        assert f"by {criterion}" in err
        assert f"leave-one-out R² {model.loo_score_:.4f}" in err


def test_features_that_do_not_matter_are_smoothed_out(here: Path, capfd) -> None:
    rng = np.random.default_rng(0)
    x, noise = rng.uniform(0.0, 6.0, 80), rng.normal(size=80)
    table = {"x": x, "noise": noise, "y": np.sin(x), "kind": np.where(x < 3.0, "low", "high").astype(object)}
    write_table(Table(tuple(table), table), "t.csv")
    # In a classifier's mix a head with one width for all features keeps a small share, so noise keeps some of it.
    for target, more, most in (("y", [], 0), ("y", ["--bandwidth", "loo"], 0), ("kind", [], 15)):
        arguments = ["--target", target, "--features", "x,noise", "--out", "m.regard", "--force", *more]
        _, err = ok(capfd, "fit", "t.csv", *arguments)
        line = next(line for line in err.splitlines() if line.startswith("  noise "))
        assert int(re.search(r"(\d+)%", line).group(1)) <= most
        assert ("(smoothed out" in line) == (most == 0)
        share = int(re.search(r"  x .* (\d+)%", err).group(1))
        assert share >= 100 - most


def test_fit_is_the_library_fit(here: Path, capfd) -> None:
    arguments = ["--features", "area, age", "--kernel", "tricube", "--bandwidth", "60,40"]
    ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard", *arguments)
    model = regard.load("m.regard")
    expected = regard.NadarayaWatsonRegressor(kernel="tricube", bandwidth=[60.0, 40.0])
    assert model.get_params() == expected.get_params()
    assert model.feature_names_in_.tolist() == ["area", "age"]
    assert np.array_equal(model.key_, HOUSES.X[:, :2])
    assert np.array_equal(model.value_, HOUSES.y)
    assert model.sample_weight_ is None


def test_fit_learns_as_the_library_does(here: Path, capfd) -> None:
    ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard")
    expected = regard.KernelRegressor().fit(HOUSES.X, HOUSES.y)
    assert np.array_equal(predictions("m.regard"), expected.predict(HOUSES.X))


def test_ctrl_c_while_learning_keeps_the_best_so_far(here: Path, capfd, monkeypatch) -> None:
    from regard.bandwidth import line_heads

    descend, descents = line_heads._Search.descend, []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        if len(descents) == 30:
            raise KeyboardInterrupt
        descents.append(descend(*arguments, **options))
        return descents[-1]

    monkeypatch.setattr(line_heads._Search, "descend", interrupted)
    _, err = ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard")
    assert "stopped early by Ctrl-C: this is the best model so far\n" in err
    assert regard.load("m.regard").search_.interrupted


def test_ctrl_c_before_there_is_anything(here: Path, capfd, monkeypatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("regard.bandwidth.line_heads._Search.descend", interrupt)
    before = files(here)
    assert main(["fit", "houses.csv", "--target", "price", "--out", "m.regard"]) == 130
    assert capfd.readouterr().err == "regard: stopped\n"
    assert files(here) == before


@pytest.mark.parametrize("more", [[], ["--bandwidth", "loo"], ["--bandwidth", "3"]])
def test_a_bar_on_a_terminal(more: list[str], here: Path, capfd, monkeypatch) -> None:
    """rich takes this variable for a terminal; the bar says the error, the least so far and the time left."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    _, err = ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard", *more)
    assert ("Learning from 60 rows" in err) == (more != ["--bandwidth", "3"])
    if more != ["--bandwidth", "3"]:
        assert re.search(r"error [0-9.e+-]+, least [0-9.e+-]+", err)
    # Only the search of heads has a plan to tell the time by.
    assert bool(re.search(r", about [0-9]+ s left", err)) == (not more)


@pytest.mark.parametrize(("given", "expected"), [("2.5", 2.5), ("silverman", "silverman"), ("inf", np.inf)])
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
    assert "KernelClassifier: kind (2 classes)" in err
    assert "leave-one-out log-loss" in err
    assert regard.load("m.regard").classes_.tolist() == ["cheap", "dear"]


def test_a_constant_feature_is_reported(here: Path, capfd) -> None:
    Path("c.csv").write_text("x,same,y\n1,7,1\n2,7,2\n3,7,3\n")
    for more in ([], ["--bandwidth", "loo"], ["--bandwidth", "scott"]):
        _, err = ok(capfd, "fit", "c.csv", "--target", "y", "--out", "m.regard", "--force", *more)
        line = next(line for line in err.splitlines() if line.startswith("  same "))
        assert line.split(maxsplit=3) == ["same", "inf", "0%", "(constant, ignored)"]


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
    (["houses.csv", "--target", "price", "--features", "area,area"], "not a list of distinct column names"),
    (["houses.csv", "--target", "price", "--features", ""], "not a list of distinct column names"),
    (["houses.csv", "--target", "price", "--features", '"area'], "not a list of distinct column names"),
    (["houses.csv", "--target", "price", "--sample-weight", "price"], "is also the column of --target"),
    (["houses.csv", "--target", "price", "--sample-weight", "n"], "has no column 'n'"),
    (["houses.csv", "--target", "price", "--features", "age", "--sample-weight", "age"], "--sample-weight"),
    (["houses.csv", "--target", "price", "--kernel", "square", "--bandwidth", "1"], "kernel must be one of 'gaussian'"),
    (["houses.csv", "--target", "price", "--kernel", "boxcar"], "needs --bandwidth too, such as --bandwidth loo"),
    (["kinds.csv", "--target", "kind", "--bandwidth", "aicc"], "'aicc' is for regression only; use bandwidth='loo'"),
    (["one.csv", "--target", "y"], "needs rows to leave out and others to predict them from, got 1 row"),
    (["houses.csv", "--target", "price", "--bandwidth", "0"], "bandwidth must be"),
    (["houses.csv", "--target", "price", "--bandwidth", "nan"], "bandwidth must be"),
    (["houses.csv", "--target", "price", "--bandwidth=-3"], "bandwidth must be above 0, or inf"),
    (["houses.csv", "--target", "price", "--bandwidth", "1,2"], "bandwidth has 2 numbers but X has 7"),
    (["houses.csv", "--target", "price", "--bandwidth", "wide"], "bandwidth must be"),
    (["kinds.csv", "--target", "price"], "has no column 'price'"),
    (["names.csv", "--target", "y"], "every feature is text with more than 64 distinct values"),
    (["only.csv", "--target", "y"], "no feature columns besides the target 'y'"),
    (["zero.csv", "--target", "y", "--sample-weight", "n"], "all sample weights are zero"),
    (["negative.csv", "--target", "y", "--sample-weight", "n"], "sample_weight"),
    (["unlabelled.csv", "--target", "kind"], "row 1, column 'kind': is empty"),
    ([], "Missing argument"),
    (["houses.csv"], "Missing option '--target'"),
    (["houses.csv", "--target", "price", "--colour", "red"], "No such option: --colour"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED_FITS)
def test_fits_that_are_refused(arguments: list[str], words: str, here: Path, capfd) -> None:
    Path("one.csv").write_text("x,y\n1,2\n")
    Path("only.csv").write_text("y\n1\n2\n")
    Path("zero.csv").write_text("x,y,n\n1,1,0\n2,2,0\n")
    Path("negative.csv").write_text("x,y,n\n1,1,-1\n2,2,1\n")
    Path("unlabelled.csv").write_text("x,kind\n1,a\n2,\n")
    Path("names.csv").write_text("name,y\n" + "".join(f"name {i},{i}\n" for i in range(70)))
    before = files(here)
    assert words in refused(capfd, "fit", *arguments, "--out", "m.regard")
    assert files(here) == before


def test_a_model_cannot_go_to_stdout(here: Path, capfd) -> None:
    assert "a model cannot be written to standard output" in refused(
        capfd, "fit", "houses.csv", "--target", "price", "--out", "-"
    )


def test_text_is_learned_from_as_it_is(here: Path, capfd) -> None:
    out = ok(capfd, "fit", "kinds.csv", "--target", "area", "--out", "m.regard", "--features", "age,kind")
    assert re.search(r"kind +λ 0\.\d+ .*, 2 categories, λ at most 0\.5", str(out))
    ok(capfd, "predict", "m.regard", "kinds.csv")
    (here / "numbers.csv").write_text("age,kind\n1,2\n")
    assert "column 'kind' contains numbers, but the model was fitted with text in it" in refused(
        capfd, "predict", "m.regard", "numbers.csv"
    )
    (here / "gap.csv").write_text("age,kind\n1,\n")
    ok(capfd, "predict", "m.regard", "gap.csv")
    (here / "words.csv").write_text("age,kind\nold,flat\n")
    assert "column 'age' contains text such as 'old', but the model was fitted with numbers in it" in refused(
        capfd, "predict", "m.regard", "words.csv"
    )


def test_a_column_of_names_is_left_out_and_reported(here: Path, capfd) -> None:
    rows = "\n".join(f"name {i},{i},{2 * i}" for i in range(70))
    (here / "named.csv").write_text(f"name,x,y\n{rows}\n")
    assert "left out 'name': 70 distinct texts, at most 64 are accepted" in str(
        ok(capfd, "fit", "named.csv", "--target", "y", "--out", "m.regard", "--bandwidth", "3")
    )


def test_dates_are_features_in_days(here: Path, capfd) -> None:
    days = [dt.date(2023, 12, 1) + dt.timedelta(i) for i in range(90)]
    rows = "\n".join(f"{day},{'' if i == 5 else i % 7},{0.1 * i + i % 7}" for i, day in enumerate(days))
    (here / "sales.csv").write_text(f"day,weekday,sold\n{rows}\n")
    said = str(ok(capfd, "fit", "sales.csv", "--target", "sold", "--out", "m.regard", "--bandwidth", "loo"))
    assert "'day': dates are counted in days since 1970-01-01" in said
    assert "left out" not in said
    epoch = dt.date(1970, 1, 1)
    assert regard.load("m.regard").key_[:, 0].tolist() == [(day - epoch).days for day in days]
    (here / "one.csv").write_text("weekday,day\n3,2023-12-04\n")
    ok(capfd, "predict", "m.regard", "one.csv", "--out", "p.csv")
    assert abs(read_table("p.csv").numbers("sold")[0] - 3.3) < 1.0
    (here / "other.csv").write_text("weekday,day\n3,Monday\n")
    assert "column 'day' contains text such as 'Monday', but the model was fitted with numbers in it" in refused(
        capfd, "predict", "m.regard", "other.csv"
    )


@pytest.mark.parametrize("separator", "./-")
def test_dates_of_another_order_are_left_out_with_advice(separator: str, here: Path, capfd) -> None:
    days = [separator.join((str(i % 28 + 1), str(i % 12 + 1), "2023")) for i in range(100)]
    rows = "\n".join(f"{day},{i},{2 * i}" for i, day in enumerate(days))
    (here / "dated.csv").write_text(f"day,x,y\n{rows}\n")
    said = str(ok(capfd, "fit", "dated.csv", "--target", "y", "--out", "m.regard", "--bandwidth", "3"))
    assert "left out 'day': 84 distinct texts, at most 64 are accepted; dates are recognised as such in" in said


@pytest.mark.parametrize("cells", [("1", "", "3", ""), ("red", "", "blue", " ")])
def test_rows_without_a_target_are_refused_with_advice(cells: tuple[str, ...], here: Path, capfd) -> None:
    (here / "open.csv").write_text("x,y\n" + "".join(f"{i},{cell}\n" for i, cell in enumerate(cells)))
    said = refused(capfd, "fit", "open.csv", "--target", "y", "--out", "m.regard")
    assert "open.csv: row 1, column 'y': is empty, as in 2 of 4 rows (rows are counted from 0" in said
    assert "the target must be known: remove these rows, and apply regard predict to them" in said
