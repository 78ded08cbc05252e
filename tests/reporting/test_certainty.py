"""The report's "How sure?" and "Why?": the numbers of the library, for every kind of model and table."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import regard
from regard.data import houses, notes
from regard.model.quantiles import conformal_bound
from regard.reporting.certainty import certainty_of
from regard.reporting.example_rows import examples
from regard.reporting.report_facts import facts_of
from regard.reporting.report_sentences import SENTENCES, number
from support.html_page import read

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")

DATA, NEW = houses(120), houses(60, seed=3)
FRAME, MORE = (pd.DataFrame(data.X, columns=list(data.feature_names)) for data in (DATA, NEW))
KINDS = np.where(DATA.y > 200.0, "dear", np.where(DATA.y > 150.0, "fair", "cheap"))
NOTES = notes()


def fixed(**options):
    return regard.NadarayaWatsonRegressor(bandwidth=[30.0, 20.0, 2.0, 4.0, 1.0, 1.0, 90.0], **options)


@pytest.fixture(scope="module")
def model():
    return fixed().fit(FRAME, DATA.y)


def looked_at(model, X, y):
    facts = facts_of(model, X, y)
    sure = certainty_of(model, X, facts)
    return facts, sure, examples(model, facts, sure)


def mixed():
    """A table with text and two gaps, and y."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"size": rng.normal(80, 20, 90), "hour": rng.uniform(0, 24, 90), "kind": list("abc") * 30})
    y = 3 * X["size"].to_numpy() + 60 * (X["kind"] == "b").to_numpy() + rng.normal(size=90) * 10
    X.loc[3, "size"], X.loc[5, "kind"] = np.nan, None
    return X, y


def test_training_rows_are_judged_by_the_scale_of_the_other_residuals(model, tmp_path):
    facts, sure, _ = looked_at(model, FRAME, DATA.y)
    model.predict_interval(FRAME[:1])
    shown = model.standardised_residuals_
    bound = conformal_bound(np.abs(shown)[:, None], np.ones(len(shown)), 0.9)[0]
    assert np.array_equal(sure.inside, np.abs(shown) <= bound)
    assert sure.inside.mean() >= 0.9
    np.testing.assert_allclose(sure.centre, DATA.y - model.residuals_)
    np.testing.assert_allclose(sure.size, np.abs(model.residuals_ / shown) * bound)
    assert facts.left_out
    page = read(regard.report(model, FRAME, DATA.y, tmp_path / "page.html"))
    assert f"{sure.inside.mean():.1%} lie inside their interval" in page.text
    assert f"no wider than ± {number(np.median(sure.size))}" in page.text


def test_new_rows_are_judged_by_predict_interval(model, tmp_path):
    _, sure, _ = looked_at(model, MORE, NEW.y)
    low, high = model.predict_interval(MORE, 0.9, "conformal").T
    assert np.array_equal(sure.inside, (low <= NEW.y) & (NEW.y <= high))
    page = read(regard.report(model, MORE, NEW.y, tmp_path / "page.html"))
    assert f"which the model has not seen, {sure.inside.mean():.1%} lie inside" in page.text


def test_an_example_is_explained_without_itself(model):
    facts, sure, why = looked_at(model, FRAME, DATA.y)
    assert [one.kind for one in why] == ["ordinary", "unsure", "farthest"]
    assert why[1].place == sure.rows[np.argmax(sure.size)]
    assert why[0].certainty == pytest.approx(np.sort(sure.size)[len(sure.size) // 2])
    for one in why:
        others = np.delete(np.arange(120), one.place)
        without = fixed().fit(DATA.X[others], DATA.y[others])
        explanation = without.explain(DATA.X[one.place : one.place + 1], 5)[0]
        np.testing.assert_allclose(one.explained.weight, explanation.weight, rtol=1e-12)
        assert one.explained.row.tolist() == others[explanation.row].tolist()
        assert one.explained.answer == pytest.approx(facts.answer[one.place], rel=1e-9)
    Z = DATA.X / model.bandwidth_
    apart = np.sqrt(((Z[:, None] - Z) ** 2).sum(axis=2))
    np.fill_diagonal(apart, np.inf)
    nearest = apart.min(axis=1)
    nearest[[why[0].place, why[1].place]] = 0.0
    assert why[2].place == nearest.argmax()


def test_cells_are_those_of_the_rows_named(tmp_path):
    X, y = mixed()
    model = regard.NadarayaWatsonRegressor(bandwidth=[10.0, 3.0, 0.1], missing="ignore").fit(X, y)
    page = tmp_path / "page.html"
    html = regard.report(model, X, y, page).read_text(encoding="utf-8")
    why = html[html.index("Why this prediction?") : html.index("Which features matter?")]
    seen = 0
    for table in re.findall(r"<table>.*?</table>", why, re.S):
        heads = re.findall(r"<th[^>]*>(.*?)</th>", table.split("</thead>")[0])
        for line in re.findall(r"<tr>(<th>\d.*?)</tr>", table):
            cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line)
            row = X.iloc[int(cells[0])]
            shown = dict(zip(heads, cells, strict=True))
            assert shown["kind"] == (row["kind"] or "–")
            if np.isfinite(row["size"]):
                assert float(shown["size"]) == pytest.approx(row["size"], abs=0.06)
            seen += 1
    assert seen == 15
    assert "2 rows have empty cells" in read(page).text
    assert "y from 3 features" in read(page).text
    relevant = re.findall(r"<tr><th>(\w+)</th><td class=n>\d+%</td><td class=n>[±λ]", html)
    assert sorted(relevant) == ["hour", "kind", "size"]
    assert "λ 0.1 / 0.667" in html
    assert re.search(r"<th>kind</th><td class=n>\w 3\d%, \w 3\d%, \w 3\d%</td>", html)
    assert "kind = " not in html


def test_a_far_row_is_flagged(model, tmp_path):
    far = MORE.copy()
    far.loc[7] = 9999.0
    page = read(regard.report(model, far, NEW.y, tmp_path / "page.html"))
    assert "farthest from the others: row 7" in page.text
    assert "Far from all training rows" in page.text
    assert "Far from all training rows" not in read(regard.report(model, MORE, NEW.y, tmp_path / "near.html")).text


@pytest.mark.parametrize("calibrate", [False, True])
def test_classes_come_in_sets(calibrate, tmp_path):
    model = regard.NadarayaWatsonClassifier(bandwidth=20.0, calibrate=calibrate).fit(FRAME, KINDS)
    _, sure, why = looked_at(model, FRAME, KINDS)
    left_out = model._left_out_probabilities()[0]
    left_out = model._calibration()(left_out) if calibrate else left_out
    label = np.searchsorted(model.classes_, KINDS)
    right = left_out[np.arange(120), label]
    bound = -conformal_bound(-right[:, None], np.ones(120), 0.9)[0]
    assert np.array_equal(sure.inside, (right >= bound) | (left_out.argmax(axis=1) == label))
    assert sure.inside.mean() >= 0.9
    np.testing.assert_allclose(sure.centre, left_out.max(axis=1))
    assert why[1].place == sure.rows[np.argmin(sure.centre)]
    page = read(regard.report(model, FRAME, KINDS, tmp_path / "page.html"))
    assert f"{sure.inside.mean():.1%} have the correct class" in page.text
    new = np.where(NEW.y > 200.0, "dear", np.where(NEW.y > 150.0, "fair", "cheap"))
    _, sure, _ = looked_at(model, MORE, new)
    assert np.array_equal(sure.size, model.predict_set(MORE, 0.9).sum(axis=1))


def test_one_feature_has_its_curve(tmp_path):
    model = regard.NadarayaWatsonRegressor(bandwidth=0.4).fit(NOTES.x_train[:, None], NOTES.y_train)
    _, sure, _ = looked_at(model, NOTES.x_train[:, None], NOTES.y_train)
    x, predicted, half = sure.curve
    ends = model.predict_interval(x[:, None], 0.9, "conformal")
    np.testing.assert_allclose(np.column_stack([predicted - half, predicted + half]), ends)
    page = read(regard.report(model, NOTES.x_train[:, None], NOTES.y_train, tmp_path / "page.html"))
    assert "The predictions with their intervals" in page.text


def test_a_model_whose_score_is_no_distance(tmp_path):
    model = regard.AttentionRegressor("dot", max_iter=1, random_state=0).fit(FRAME, DATA.y)
    _, sure, why = looked_at(model, FRAME, DATA.y)
    assert sure.missing == ""
    assert [one.kind for one in why] == ["ordinary", "unsure"]  # without distances no row is farthest
    page = read(regard.report(model, FRAME, DATA.y, tmp_path / "page.html"))
    assert "A typical row: row" in page.text


@pytest.mark.parametrize(("rows", "words"), [(1, "one training row"), (3, "at least nine training rows")])
def test_too_few_training_rows(rows, words, tmp_path):
    model = regard.NadarayaWatsonRegressor(bandwidth=1.0).fit(np.arange(rows)[:, None], np.arange(rows))
    page = read(regard.report(model, [[0.5], [1.5]], [0.0, 1.0], tmp_path / "page.html"))
    assert words in page.text
    assert "Why this prediction?" in page.text
    assert page.tags.count("h3") == 2


def test_one_new_row(model, tmp_path):
    page = read(regard.report(model, MORE[:1], NEW.y[:1], tmp_path / "page.html"))
    assert page.tags.count("h3") == 1
    assert "lie inside their interval" in page.text


def test_a_row_left_out_may_be_empty(tmp_path):
    """Two of 12 rows have no neighbour; evaluating them without themselves is not the caller's mistake."""
    x = np.r_[np.linspace(0.0, 1.0, 10), 5.0, 9.0][:, None]
    for empty in ("nearest", "nan", "raise"):
        model = regard.NadarayaWatsonRegressor(kernel="epanechnikov", bandwidth=0.5, empty=empty).fit(x, x[:, 0])
        page = read(regard.report(model, x, x[:, 0], tmp_path / f"{empty}.html"))
        assert (
            "Far from all training rows" if empty == "nearest" else "No training row is within the bandwidth"
        ) in page.text


@pytest.mark.parametrize("weight", [np.arange(120) % 3, np.arange(120) % 3 / 2.0])
def test_rows_without_weight_are_not_judged(weight):
    model = fixed().fit(FRAME, DATA.y, sample_weight=weight)
    facts, sure, _ = looked_at(model, FRAME, DATA.y)
    assert np.array_equal(facts.rows[sure.rows], np.flatnonzero(weight > 0))
    classifier = regard.NadarayaWatsonClassifier(bandwidth=20.0).fit(FRAME, KINDS, sample_weight=weight)
    facts, sure, _ = looked_at(classifier, FRAME, KINDS)
    assert np.array_equal(facts.rows[sure.rows], np.flatnonzero(weight > 0))


def test_of_many_rows_a_part_is_evaluated_and_reported(model, monkeypatch, tmp_path):
    monkeypatch.setattr("regard.reporting.certainty.MAX_ROWS", 40)
    monkeypatch.setattr("regard.reporting.certainty.MAX_ROWS_OF_SCALE", 50)
    fresh = fixed().fit(FRAME, DATA.y)
    _, sure, _ = looked_at(fresh, FRAME, DATA.y)
    assert (sure.scale_rows, len(sure.rows), hasattr(fresh, "spread_")) == (50, 40, False)
    page = read(regard.report(fresh, FRAME, DATA.y, tmp_path / "page.html"))
    assert "estimated from 50 training rows" in page.text
    assert "(Based on 40 of the 120 rows.)" in page.text
    # New rows, and nothing known of the old ones left out.
    assert "take long to compute" in read(regard.report(fresh, MORE, NEW.y, tmp_path / "new.html")).text
    # What the model knows already is used whole.
    fresh.predict_interval(FRAME[:1])
    assert looked_at(fresh, FRAME, DATA.y)[1].scale_rows == 0


def test_both_languages_have_the_same_fields():
    for text in [text for group in SENTENCES.values() for text in group.values()]:
        english, chinese = (sorted(re.findall(r"\{(\w+)\}", words)) for words in (text.en, text.zh))
        assert english == chinese, text.en
