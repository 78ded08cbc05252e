"""Marginal effects: their standard errors, their averages, R np's gradients, and partial dependence."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.inspection import PartialDependenceDisplay, partial_dependence

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
from regard.model.effects import changes as changes_of
from support.soak import FULL

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")

REFERENCE = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "reference"
RNG = np.random.default_rng(11)
X = RNG.normal(size=(80, 3))
Y = np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * RNG.normal(size=80) + 5.0
LABELS = np.where(Y > 5.7, "up", "down")
AT = 0.7 * RNG.normal(size=(9, 3))

MODELS = {
    "mean": NadarayaWatsonRegressor(bandwidth=[0.6, 0.8, 2.0], tol=0.0),
    "laplace": NadarayaWatsonRegressor("laplace", bandwidth=0.7, tol=0.0),
    "biweight": NadarayaWatsonRegressor("biweight", bandwidth=2.5, tol=0.0),
    "matrix": NadarayaWatsonRegressor(metric="full", tol=0.0),
    "line": LocalLinearRegressor(bandwidth=[0.6, 0.8, 2.0], tol=0.0),
    "triweight line": LocalLinearRegressor("triweight", bandwidth=3.0, tol=0.0),
    "ridge": LocalLinearRegressor(bandwidth=0.8, ridge=0.05, tol=0.0),
    "adaptive": LocalLinearRegressor(bandwidth="adaptive", metric="scalar", tol=0.0),
    "heads": KernelRegressor(tol=0.0),
    "class": NadarayaWatsonClassifier(bandwidth=0.8, tol=0.0),
    "class heads": KernelClassifier(tol=0.0),
}


@cache
def fitted(name):
    return clone(MODELS[name]).fit(X, LABELS if "class" in name else Y)


def changes(model, at, method="derivative"):
    """∂ℓ/∂x (Q, K, d), as the errors use it."""
    return changes_of(model._configured_smoother, model._query(at), method)


def values(model):
    return (LABELS[:, None] == model.classes_).astype(float) if hasattr(model, "classes_") else Y


@pytest.mark.parametrize("name", MODELS)
def test_changes_of_weights_times_values_are_the_effects(name):
    model = fitted(name)
    found = np.einsum("qka,k...->q...a", changes(model, AT), values(model) - values(model).mean(axis=0))
    np.testing.assert_allclose(found, model.marginal_effects(AT), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_changes_of_weights_are_their_derivatives(name):
    """Against central differences of the effective weights themselves."""
    model, step = fitted(name), 1e-5
    found = changes(model, AT[:3])
    for a in range(3):
        move = np.zeros(3)
        move[a] = step
        ahead, behind = (model.explain(AT[:3] + sign * move).effective_weights for sign in (1, -1))
        np.testing.assert_allclose(found[..., a], (ahead - behind) / (2.0 * step), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("name", MODELS)
def test_errors_are_the_formula(name):
    model = fitted(name)
    error = model.effect_errors(AT)
    assert error.shape == model.marginal_effects(AT).shape
    if hasattr(model, "classes_"):
        model._left_out_probabilities()
        left_out = getattr(model, "loo_predictions_", None)
        residual = values(model) - (model.left_out_probabilities_ if left_out is None else left_out)
    else:
        model.predict_interval(AT)
        residual = model.residuals_
    wanted = np.sqrt(np.einsum("qka,k...->q...a", changes(model, AT) ** 2, residual**2))
    np.testing.assert_allclose(error, wanted, rtol=1e-12)


@pytest.mark.parametrize("name", ["line", "ridge", "heads", "class"])
def test_average_effects(name):
    model = fitted(name)
    found = model.average_effects(AT)
    np.testing.assert_allclose(found.effect, model.marginal_effects(AT).mean(axis=0), rtol=1e-7, atol=1e-9)
    change = changes(model, AT).mean(axis=0)
    one = model.effect_errors(AT)
    assert (found.error <= one.mean(axis=0) * (1.0 + 1e-12)).all()  # a mean is no less sure than its parts
    assert found.rows == 9
    assert found.error.shape == found.effect.shape
    assert np.abs(change.sum(axis=0)).max() < 1e-9
    assert "feature 2" in str(found)
    whole = model.average_effects()
    np.testing.assert_allclose(whole.effect, model.marginal_effects(X).mean(axis=0), rtol=1e-6, atol=1e-9)


def test_a_flat_world_is_least_squares():
    """With all rows in reach a local line is least squares, its slope's error White's (HC3, for rows are left out)."""
    model = LocalLinearRegressor(bandwidth=1e5).fit(X, Y)
    design = np.column_stack([np.ones(80), X])
    inverse = np.linalg.inv(design.T @ design)
    hat = np.einsum("ia,ab,ib->i", design, inverse, design)
    beta = inverse @ design.T @ Y
    residual = (Y - design @ beta) / (1.0 - hat)
    meat = design.T @ (design * residual[:, None] ** 2)
    wanted = np.sqrt(np.diag(inverse @ meat @ inverse))[1:]
    for method in ("slope", "derivative"):
        np.testing.assert_allclose(model.effect_errors(AT, method), np.tile(wanted, (9, 1)), rtol=1e-5)
    found = model.average_effects(X)
    np.testing.assert_allclose(found.effect, beta[1:], rtol=1e-6)
    np.testing.assert_allclose(found.error, wanted, rtol=1e-5)


@pytest.mark.parametrize("kind", [NadarayaWatsonRegressor, LocalLinearRegressor])
def test_repetitions_are_rows(kind):
    copies = np.random.default_rng(0).integers(1, 4, 80)
    once = kind(bandwidth=0.8).fit(X, Y, sample_weight=copies)
    each = kind(bandwidth=0.8).fit(np.repeat(X, copies, axis=0), np.repeat(Y, copies))
    np.testing.assert_allclose(once.effect_errors(AT), each.effect_errors(AT), rtol=1e-9)
    np.testing.assert_allclose(once.average_effects().error, each.average_effects().error, rtol=1e-9)
    np.testing.assert_allclose(once.average_effects().effect, each.average_effects().effect, rtol=1e-9)


def test_errors_are_honest():
    """Over many training sets, errors are as large as effects scatter."""
    rng = np.random.default_rng(3)
    x = np.linspace(-2.0, 2.0, 120)[:, None]
    at = np.array([[-1.0], [0.3], [1.2]])
    effect, error = [], []
    for _ in range(400 if FULL else 60):
        model = LocalLinearRegressor(bandwidth=0.4).fit(x, np.sin(2.0 * x[:, 0]) + 0.3 * rng.normal(size=120))
        effect.append(model.marginal_effects(at)[:, 0])
        error.append(model.effect_errors(at)[:, 0])
    ratio = np.mean(error, axis=0) / np.std(effect, axis=0)
    assert ((ratio > 0.75) & (ratio < 1.4)).all(), ratio


def test_slopes_have_errors_of_their_own():
    model = fitted("line")
    found = np.einsum("qka,k->qa", changes(model, AT, "slope"), Y - Y.mean())
    np.testing.assert_allclose(found, model.slopes(AT), rtol=1e-9, atol=1e-11)
    assert not np.allclose(model.effect_errors(AT, "slope"), model.effect_errors(AT))
    mean = fitted("mean")
    np.testing.assert_array_equal(mean.effect_errors(AT, "slope"), mean.effect_errors(AT))
    with pytest.raises(ValueError, match="method must be one of 'derivative', 'slope', got 'np'"):
        model.effect_errors(AT, "np")


def test_effects_of_empty_rows_are_zero():
    model = NadarayaWatsonRegressor("biweight", bandwidth=1.0, empty="nan").fit(X, Y)
    assert (model.effect_errors([[50.0, 0.0, 0.0]]) == 0.0).all()


def test_columns_of_mixed_tables():
    frame = pandas.DataFrame({"size": X[:, 0], "kind": np.where(X[:, 1] > 0, "flat", "house")})
    model = NadarayaWatsonRegressor(bandwidth=[0.5, 0.2], tol=0.0).fit(frame, Y)
    at = frame[:6]
    effect, error = model.marginal_effects(at), model.effect_errors(at)
    assert effect.shape == error.shape == (6, 2)
    first = at.assign(kind="flat")
    moved = model.explain(at).effective_weights - model.explain(first).effective_weights
    np.testing.assert_allclose(effect[:, 1], moved @ Y, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(error[:, 1], np.sqrt(moved**2 @ model.residuals_**2), rtol=1e-9)
    assert model.average_effects().names == ("size", "kind")


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reference values lie beside the checkout, not in it")
@pytest.mark.parametrize(
    ("key", "kernel", "bandwidth"),
    [
        ("npreg cps71 bws=2.5 regtype={} ckertype=gaussian", "gaussian", 2.5),
        ("npreg cps71 bws=2.5 regtype={} ckertype=epanechnikov", "epanechnikov", 2.5 * 5**0.5),
        ("npreg sm60 bws=(0.6,0.5) regtype={}", "gaussian", [0.6, 0.5]),
    ],
)
@pytest.mark.parametrize("kind", ["lc", "ll"])
def test_gradients_of_r_np(key, kernel, bandwidth, kind):
    """The derivative of a local mean, and the slope of a local line."""
    inputs, expected = (json.loads((REFERENCE / f"{name}.json").read_text()) for name in ("inputs", "expected"))
    found = expected[key.format(kind)]
    table, names = (inputs["sm60"], ["c1", "c2", "y"]) if "sm60" in key else (inputs["cps71 (np)"], ["age", "logwage"])
    rows = np.column_stack([table[name] for name in names])
    at = np.reshape(found["ex"], (-1, 1)) if "ex" in found else rows[:5, :-1]
    estimator = NadarayaWatsonRegressor if kind == "lc" else LocalLinearRegressor
    model = estimator(kernel, bandwidth=bandwidth).fit(rows[:, :-1], rows[:, -1])
    ours = model.marginal_effects(at) if kind == "lc" else model.slopes(at)
    wanted = [found["grad"]] if "grad" in found else [found["grad_c1_first5"], found["grad_c2_first5"]]
    np.testing.assert_allclose(ours, np.column_stack(wanted), rtol=1e-9)
    assert (model.effect_errors(at, "slope") > 0.0).all()


EVERY = {
    **MODELS,
    "average": AveragePoolingRegressor(),
    "nearest": NearestKeyRegressor(),
    "learned": AttentionRegressor(max_iter=1, random_state=0),
}


@pytest.mark.parametrize("name", EVERY)
def test_partial_dependence(name):
    model = fitted(name) if name in MODELS else clone(EVERY[name]).fit(X, Y)
    found = partial_dependence(model, X, [1], grid_resolution=5, kind="average")
    grid = found["grid_values"][0]
    answer = model.predict_proba if hasattr(model, "classes_") else model.predict
    for point, value in zip(grid, found["average"][0], strict=True):
        at = X.copy()
        at[:, 1] = point
        predictions = answer(at)
        wanted = predictions[:, 1].mean() if predictions.ndim == 2 else predictions.mean()
        assert value == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_partial_dependence_display():
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    display = PartialDependenceDisplay.from_estimator(fitted("line"), X, [0], grid_resolution=6, ax=ax)
    assert len(display.lines_.ravel()) == 1
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    heads = LocalLinearRegressor(bandwidth=0.8).fit(frame, Y)
    PartialDependenceDisplay.from_estimator(heads, frame, ["a", ("a", "b")], grid_resolution=4, ax=Figure().subplots())
