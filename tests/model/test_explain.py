"""Explanations: effective weights reproduce the prediction, features share the distance, and far is said to be far."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas
import polars
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from regard import (
    AttentionRegressor,
    AveragePoolingRegressor,
    KernelClassifier,
    KernelRegressor,
    LocalLinearRegressor,
    NadarayaWatsonClassifier,
    NadarayaWatsonRegressor,
    NearestKeyRegressor,
)
from regard.model.smoother import Answer
from regard.scores import KERNELS

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")

RNG = np.random.default_rng(7)
X = RNG.normal(size=(90, 3))
Y = np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * RNG.normal(size=90) + 5.0
LABELS = np.where(Y > 5.7, "up", "down")
AT = 0.8 * RNG.normal(size=(12, 3))
WEIGHTS = {"none": None, "integers": RNG.integers(0, 4, 90), "floats": RNG.random(90)}


def exactly(model, explanation, at, values=Y):
    """Distance of effective weights times values from ``predict``, relative to the sum of the products' sizes."""
    weights = explanation.effective_weights
    f, size = weights @ values, np.abs(weights) @ np.abs(values)
    np.testing.assert_allclose(f, explanation.prediction if f.ndim == 2 else explanation.prediction[:, 0], rtol=1e-12)
    p = model.predict_proba(at) if hasattr(model, "classes_") else model.predict(at)
    found = np.abs(f - p) / np.where(size > 0.0, size, 1.0)
    return np.max(found.T / np.maximum(1.0, leverage(model, at) / 500.0))


def leverage(model, at):
    """1 + δ̄ᵀC⁻¹δ̄ of local lines: how far beyond its rows a line is drawn, and by how much rounding grows.

    Among the rows it is around 10; where all rows in reach lie to one side, hundreds of their deviations away, it is
    10⁵, and ``predict`` itself is right to 10⁻¹¹ only.
    """
    out, smoother = np.zeros(len(at)), model._configured_smoother.exactly()

    def left(one, asked):
        fit = one.local(one.heads[0], asked, one.rows.columns)[2].fit
        return Answer(fit.left[:, 0], np.zeros(len(asked), bool))

    for head, query, _ in smoother.each(model._query(at).astype(np.float64)):
        if head.degree:
            out = np.maximum(out, replace(smoother, heads=(head,)).by_width(query, left).output)
    return out


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("kind", [NadarayaWatsonRegressor, LocalLinearRegressor])
@pytest.mark.parametrize("kernel", KERNELS)
def test_effective_weights_times_values_is_the_prediction(kernel, kind, weights):
    model = kind(kernel, bandwidth=[2.0, 2.5, 3.0], tol=0.0).fit(X, Y, sample_weight=WEIGHTS[weights])
    explanation = model.explain(AT)
    assert exactly(model, explanation, AT) < 1e-12
    assert leverage(model, AT).max() < 500.0
    np.testing.assert_allclose(explanation.effective_weights.sum(axis=1), 1.0, rtol=1e-12)


OTHERS = {
    "average": AveragePoolingRegressor(),
    "nearest": NearestKeyRegressor(),
    "ridge": LocalLinearRegressor(bandwidth=0.7, ridge=0.03),
    "adaptive": LocalLinearRegressor(bandwidth="adaptive", metric="scalar"),
    "matrix": NadarayaWatsonRegressor(metric="full"),
    "heads": KernelRegressor(),
    "additive": AttentionRegressor("additive", hidden_size=4, max_iter=1, random_state=0),
    "embedding": AttentionRegressor(embed="mlp", max_iter=1, random_state=0),
    "learned": AttentionRegressor(max_iter=2, random_state=0),
}


@cache
def fitted(name):
    return clone(OTHERS[name]).fit(X, Y)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", OTHERS)
def test_of_every_other_estimator_too(name, weights):
    # What was learned does not matter here, so one fit will do.
    model = copy(fitted(name))
    model.sample_weight_ = WEIGHTS[weights]
    explanation = model.explain(AT, top=90)
    assert exactly(model, explanation, AT) < 1e-12
    assert len(explanation) == 12
    np.testing.assert_allclose(explanation.mass, 1.0, rtol=1e-12)
    for one in explanation:
        assert (np.diff(one.weight) <= 0.0).all()
        assert one.weight.sum() == pytest.approx(1.0)
    if not hasattr(model, "_DEGREE") or not model._DEGREE:
        np.testing.assert_allclose(explanation.effective, explanation.weight, rtol=1e-12)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", ["one bandwidth", "heads"])
def test_of_classifiers(name, weights):
    model = NadarayaWatsonClassifier(bandwidth=0.6) if name == "one bandwidth" else KernelClassifier()
    model.fit(X, LABELS, sample_weight=WEIGHTS[weights])
    explanation = model.explain(AT)
    assert exactly(model, explanation, AT, np.column_stack([LABELS == "down", LABELS == "up"]).astype(float)) < 1e-12
    assert explanation.answer.tolist() == model.predict(AT).tolist()
    assert set(explanation[0].value) <= {"up", "down"}
    assert "predicted" in str(explanation[0])


def test_several_outputs_float32_and_the_models_own_tolerance():
    both = np.column_stack([Y, -2.0 * Y]).astype(np.float32)
    model = LocalLinearRegressor(bandwidth=0.8).fit(X.astype(np.float32), both)
    explanation = model.explain(AT.astype(np.float32))
    np.testing.assert_allclose(
        explanation.effective_weights @ both.astype(np.float64), explanation.prediction, rtol=1e-12
    )
    np.testing.assert_allclose(explanation.prediction, model.predict(AT.astype(np.float32)), rtol=1e-5)
    assert explanation.answer.shape == (12, 2)
    rough = NadarayaWatsonRegressor(bandwidth=0.1, tol=1e-3, engine="pruned").fit(X, Y)
    fine = NadarayaWatsonRegressor(bandwidth=0.1, tol=0.0).fit(X, Y)
    np.testing.assert_array_equal(rough.explain(AT).prediction, fine.explain(AT).prediction)


def test_blocks_of_queries_are_the_queries(monkeypatch):
    model = LocalLinearRegressor(bandwidth=0.8).fit(X, Y)
    whole = model.explain(AT)
    monkeypatch.setattr("regard.model.explanation.TILE_CELLS", 3 * X.size)
    parts = model.explain(AT)
    for name in ("index", "prediction", "effective", "effective_weights", "nearness", "distance", "far"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-11, err_msg=name)


def test_an_explanation_is_of_the_model_as_it_was():
    model = NadarayaWatsonRegressor(bandwidth=0.8).fit(X, Y)
    explanation = model.explain(AT)
    before = explanation.effective_weights
    model.partial_fit(X + 0.1, Y).forget([0, 1])
    np.testing.assert_array_equal(explanation.effective_weights, before)


def literal_parts(w, query, key):
    return (w * (key - query)) ** 2


def test_features_share_the_distance():
    w = np.array([2.0, 1.0, 0.25])
    model = NadarayaWatsonRegressor(bandwidth=1.0 / w).fit(X, Y)
    explanation, alpha = model.explain(AT, top=4), model.attend(AT)
    for q, one in enumerate(explanation):
        parts = literal_parts(w, AT[q], X)
        np.testing.assert_allclose(one.nearness, alpha[q] @ parts / (alpha[q] @ parts).sum(), rtol=1e-12)
        np.testing.assert_allclose(one.square, parts[one.index], rtol=1e-12)
        np.testing.assert_allclose(one.score, -0.5 * parts[one.index], rtol=1e-12)
        assert one.distance == pytest.approx(np.sqrt(parts.sum(axis=1).min()))
        assert one.neighbours == pytest.approx(1.0 / (alpha[q] ** 2).sum())
    scores = model.attention_score_(AT, X)
    np.testing.assert_allclose(
        explanation.score.sum(axis=2), np.take_along_axis(scores, explanation.index, 1), rtol=1e-12
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_parts_of_a_score_add_up_to_it(kernel):
    model = NadarayaWatsonRegressor(kernel, bandwidth=2.0).fit(X, Y)
    explanation = model.explain(AT, top=3)
    scores = np.take_along_axis(model.attention_score_(AT, X), explanation.index, 1)
    np.testing.assert_allclose(explanation.score.sum(axis=2), scores, rtol=1e-10, atol=1e-14)


def test_a_matrix_shares_the_same_distance():
    model = NadarayaWatsonRegressor(metric="full").fit(X, Y)
    explanation = model.explain(AT, top=90)
    u2 = model.attention_score_.distance2(AT, X)
    np.testing.assert_allclose(explanation.square.sum(axis=2), np.take_along_axis(u2, explanation.index, 1), rtol=1e-9)
    np.testing.assert_allclose(explanation.nearness.sum(axis=1), 1.0, rtol=1e-12)


def test_an_ignored_feature_has_no_share():
    model = NadarayaWatsonRegressor(bandwidth=[0.5, np.inf, 1.0]).fit(X, Y)
    assert (model.explain(AT).nearness[:, 1] == 0.0).all()
    assert not AveragePoolingRegressor().fit(X, Y).explain(AT).nearness.any()
    for name in ("additive", "embedding"):
        explanation = fitted(name).explain(AT)
        assert np.isnan(explanation.nearness).all()
        assert not explanation.far.any()
        assert "not a distance" in str(explanation[0])


FAR = {
    "gaussian": NadarayaWatsonRegressor(bandwidth=0.5),
    "laplace": NadarayaWatsonRegressor("laplace", bandwidth=0.5),
    "line": LocalLinearRegressor(bandwidth=0.5),
    "adaptive": LocalLinearRegressor(bandwidth="adaptive", metric="scalar"),
    "heads": KernelRegressor(),
    "classes": KernelClassifier(),
}


@pytest.mark.parametrize("name", FAR)
def test_31_far_is_far_and_near_is_not(name):
    model = clone(FAR[name]).fit(X, LABELS if name == "classes" else Y)
    near = model.explain(X[:30])
    assert near.far.mean() < 0.1
    far = model.explain(np.array([[30.0, 0.0, 0.0], [1e6, 1e6, 0.0], [-1e150, 0.0, 1e150]]))
    assert far.far.all()
    assert np.isfinite(far.prediction).all()
    assert "Far from everything" in str(far[0])
    assert "Far from everything" not in str(near)


def test_a_bandwidth_narrower_than_all_distances_makes_no_query_far():
    """Learned on a grid, a bandwidth may be a tenth of its steps; the rows between its points are still near."""
    grid = np.arange(50.0)[:, None]
    model = NadarayaWatsonRegressor(bandwidth=0.1).fit(grid, grid[:, 0])
    assert model.explain([[25.5], [50.5], [52.5]]).far.tolist() == [False, False, True]


def test_explanations_of_empty_rows():
    at = np.array([[0.0, 0.0, 0.0], [50.0, 0.0, 0.0]])
    model = NadarayaWatsonRegressor("epanechnikov", bandwidth=1.0).fit(X, Y)
    with pytest.warns(UserWarning, match="no training row within the bandwidth") as caught:
        explanation = model.explain(at)
    assert caught[0].filename == __file__
    assert explanation.far.tolist() == [False, True]
    assert explanation[1].weight.tolist() == [1.0]
    assert explanation.prediction[1, 0] == Y[explanation[1].index[0]]
    nothing = NadarayaWatsonRegressor("epanechnikov", bandwidth=1.0, empty="nan").fit(X, Y).explain(at)
    assert np.isnan(nothing.prediction[1])
    assert len(nothing[1].index) == 0
    assert "No training row is within the bandwidth" in str(nothing)
    with pytest.raises(ValueError, match="within the bandwidth"):
        NadarayaWatsonRegressor("epanechnikov", bandwidth=1.0, empty="raise").fit(X, Y).explain(at)
    classes = NadarayaWatsonClassifier("epanechnikov", bandwidth=1.0, empty="nan").fit(X, LABELS)
    assert classes.explain(at)[1].answer is None


def test_calibrated_classes_are_explained_before_calibration():
    plain = NadarayaWatsonClassifier(bandwidth=0.6).fit(X, LABELS)
    model = NadarayaWatsonClassifier(bandwidth=0.6, calibrate=True).fit(X, LABELS)
    explanation = model.explain(AT)
    np.testing.assert_allclose(explanation.prediction, plain.predict_proba(AT), rtol=1e-12)
    assert explanation.answer.tolist() == model.predict(AT).tolist()


@pytest.mark.parametrize("top", [0, -1, 2.0, True, None, "3"])
def test_top_is_checked(top):
    with pytest.raises(ValueError, match="top must be a whole number of at least 1"):
        NadarayaWatsonRegressor(bandwidth=1.0).fit(X, Y).explain(AT, top=top)


def test_other_bad_input():
    with pytest.raises(NotFittedError):
        NadarayaWatsonRegressor().explain(X)
    model = NadarayaWatsonRegressor(bandwidth=1.0).fit(X, Y)
    with pytest.raises(ValueError, match="expecting 3 features"):
        model.explain(X[:, :2])  # 6
    with pytest.raises(ValueError, match="at least one row"):
        model.explain(X[:0])  # 2
    with pytest.raises(ValueError, match="NaN"):
        model.explain(np.full((1, 3), np.nan))  # 7
    assert len(model.explain(AT, top=1000)[0].index) <= 90


def test_a_deleted_row_is_never_listed():
    """43: a weight of zero is deletion, also for the distance to the nearest row."""
    weight = np.ones(90)
    weight[5] = 0.0
    explanation = NadarayaWatsonRegressor(bandwidth=0.5).fit(X, Y, sample_weight=weight).explain(X[5:6], top=90)
    assert 5 not in explanation[0].index
    assert explanation[0].distance > 0.0


def test_words_and_frames():
    frame = pandas.DataFrame(X, columns=["income", "age", "rooms"])
    model = LocalLinearRegressor(bandwidth=0.9).fit(frame, Y)
    explanation = model.explain(frame[:2], top=3)
    words = str(explanation)
    assert words.count(": predicted ") == 2
    assert re.search(r"income [\d.]+ %", words)
    assert re.search(r"the 3 below hold [\d.]+ % of the attention", words)
    for row, effective in zip(explanation[0].row, explanation[0].effective, strict=True):
        assert any(line.split()[:1] == [str(row)] and f"{effective:+.4f}" in line for line in words.splitlines())
    table = explanation.to_frame()
    assert isinstance(table, pandas.DataFrame)
    assert table["row"].tolist() == explanation.row.ravel().tolist()
    assert {"query", "attention", "effective_weight", "y", "prediction", "score: age", "nearness: age", "far"} <= set(
        table.columns
    )
    other = explanation.to_frame("polars")
    assert isinstance(other, polars.DataFrame)
    assert other["attention"].to_list() == table["attention"].tolist()
    with pytest.raises(ValueError, match="library must be one of"):
        explanation.to_frame("excel")
    assert [one.query for one in explanation] == [0, 1]
    assert explanation[-1].query == 1
    with pytest.raises(IndexError):
        explanation[2]


def test_without_a_library_of_dataframes(monkeypatch):
    explanation = NadarayaWatsonRegressor(bandwidth=0.9).fit(X, Y).explain(AT)
    monkeypatch.setattr("regard.model.formatting.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="needs pandas or polars or pyarrow"):
        explanation.to_frame()
    assert len(explanation.columns()["row"]) == 60


def test_a_picture(tmp_path):
    from regard import plot

    model = LocalLinearRegressor(bandwidth=0.9).fit(X, Y)
    display = plot.ExplanationDisplay.from_estimator(model, AT[:1], top=4)
    explanation = model.explain(AT[:1], top=4)[0]
    np.testing.assert_allclose([bar.get_width() for bar in display.bars_], explanation.weight)
    np.testing.assert_allclose(display.marks_.get_xdata(), explanation.effective)
    display.figure_.savefig(tmp_path / "e.png")
    far = plot.ExplanationDisplay.from_estimator(model, [[40.0, 0.0, 0.0]])
    assert "far from all training rows" in far.ax_.get_title()
    with pytest.raises(ValueError, match="X must be one row, got 2"):
        plot.ExplanationDisplay.from_estimator(model, AT[:2])


def test_mixed_tables_are_explained_by_column():
    frame = pandas.DataFrame({"size": X[:, 0], "kind": np.where(X[:, 1] > 0, "flat", "house")})
    model = NadarayaWatsonRegressor(bandwidth=[0.5, 0.2]).fit(frame, Y)
    explanation = model.explain(frame[:5], top=90)
    assert explanation.names == ("size", "kind")
    assert explanation.nearness.shape == (5, 2)
    assert exactly(model, explanation, frame[:5]) < 1e-12
    same = frame["kind"].to_numpy()[explanation.index] == frame["kind"].to_numpy()[:5, None]
    assert (explanation.score[..., 1][same] == 0.0).all()
    assert np.ptp(explanation.score[..., 1][~same]) < 1e-12


def test_the_page_runs():
    page = Path(__file__).resolve().parents[2] / "docs" / "explanations.md"
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"```python\n(.*?)```", text, re.S)
    assert found
    exec(compile("\n".join(found), str(page), "exec"), {})
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (page.parent / target).exists(), target
