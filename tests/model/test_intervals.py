"""Intervals and spreads by their laws: copies, order, units, deletion, noise that grows, bad arguments."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import regard
from regard.model.jackknife import jackknife_interval
from regard.model.quantiles import conformal_bound, quantiles
from support.soak import FULL

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")

rng = np.random.default_rng(0)
X = rng.random((60, 2)) * 3.0
Y = np.sin(2.0 * X[:, 0]) + 0.2 * (1.0 + X[:, 0]) * rng.normal(size=60)
NEW = rng.random((7, 2)) * 3.0
METHODS = ("local", "conformal", "jackknife")
MODELS = {
    "mean": lambda: regard.NadarayaWatsonRegressor(bandwidth=0.5),
    "compact": lambda: regard.NadarayaWatsonRegressor("epanechnikov", bandwidth=2.0),
    "line": lambda: regard.LocalLinearRegressor(bandwidth=0.9),
    "ridged line": lambda: regard.LocalLinearRegressor(bandwidth=0.9, ridge=0.01),
    "average": lambda: regard.AveragePoolingRegressor(),
    "nearest": lambda: regard.NearestKeyRegressor(),
}
LEARNED = {
    "learned": lambda: regard.NadarayaWatsonRegressor(),
    "matrix": lambda: regard.LocalLinearRegressor(metric="full", ridge="loo"),
    "adaptive": lambda: regard.NadarayaWatsonRegressor(bandwidth="adaptive"),
    "heads": lambda: regard.KernelRegressor(),
}


@cache
def fitted(name):
    return {**MODELS, **LEARNED}[name]().fit(X, Y)


def statements(model, at=NEW):
    """All that a model says about doubt."""
    methods = METHODS if not hasattr(model, "neighbours_") else METHODS[:2]
    return np.concatenate(
        [
            model.predict(at, return_std=True)[1][:, None],
            *(model.predict_interval(at, 0.8, method) for method in methods),
            model.predict_quantiles(at, [0.1, 0.5, 0.9]),
            model.predict_quantiles(at, [0.1, 0.5, 0.9], smoothed=True),
            model.confidence_interval(at),
        ],
        axis=1,
    )


def rest(row):
    return np.delete(X, row, axis=0), np.delete(Y, row)


@pytest.mark.parametrize("name", MODELS)
def test_residuals_are_those_of_literal_deletion(name):
    model = MODELS[name]().fit(X, Y)
    model.predict(NEW, return_std=True)
    for row in range(0, 60, 7):
        left = MODELS[name]().fit(*rest(row)).predict(X[[row]])[0]
        assert model.residuals_[row] == pytest.approx(Y[row] - left, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "ridged line"])
def test_jackknife_plus_is_that_of_literal_deletion(name):
    model = MODELS[name]().fit(X, Y)
    without = np.stack([MODELS[name]().fit(*rest(row)).predict(NEW) for row in range(60)], axis=1)
    size = np.abs([Y[row] - MODELS[name]().fit(*rest(row)).predict(X[[row]])[0] for row in range(60)])
    wanted = jackknife_interval(without, size, np.ones(60), 0.8)
    assert np.allclose(model.predict_interval(NEW, 0.8, "jackknife"), wanted, atol=1e-8)


def test_the_jackknife_of_a_ridged_line_is_close_to_literal_deletion():
    """The ridge is in units of the mass, a row of which is gone."""
    model = MODELS["ridged line"]().fit(X, Y)
    without = np.stack([MODELS["ridged line"]().fit(*rest(row)).predict(NEW) for row in range(60)], axis=1)
    size = np.abs([Y[row] - MODELS["ridged line"]().fit(*rest(row)).predict(X[[row]])[0] for row in range(60)])
    wanted = jackknife_interval(without, size, np.ones(60), 0.8)
    assert np.allclose(model.predict_interval(NEW, 0.8, "jackknife"), wanted, atol=2e-3)


@pytest.mark.parametrize("name", [*MODELS, "learned", "adaptive"])
def test_a_weight_of_k_is_k_copies(name):
    make = {**MODELS, **LEARNED}[name]
    times = 1 + np.arange(60) % 3
    weighted = make().fit(X, Y, sample_weight=times)
    copied = make().fit(np.repeat(X, times, axis=0), np.repeat(Y, times))
    assert np.allclose(statements(weighted), statements(copied), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [*MODELS, *LEARNED])
def test_order_does_not_matter(name):
    make = {**MODELS, **LEARNED}[name]
    order = np.random.default_rng(1).permutation(60)
    assert np.allclose(statements(fitted(name)), statements(make().fit(X[order], Y[order])), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [*MODELS, "learned", "heads"])
def test_units_of_y_move_everything_along(name):
    make = {**MODELS, **LEARNED}[name]
    plain, moved = fitted(name), make().fit(X, 100.0 + 8.0 * Y)
    spread, *places = statements(plain).T
    spread_there, *places_there = statements(moved).T
    assert np.allclose(spread_there, 8.0 * spread, rtol=1e-5)
    assert np.allclose(places_there, 100.0 + 8.0 * np.array(places), rtol=1e-5)
    y = plain.predict(NEW) + 0.1
    there = 100.0 + 8.0 * y
    assert np.allclose(moved.predict_density(NEW, there), plain.predict_density(NEW, y) / 8.0, rtol=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["mean", "line", "nearest", "heads"])
def test_intervals_grow_with_coverage(name, method):
    model = fitted(name)
    low, high = np.stack([model.predict_interval(NEW, c, method) for c in (0.3, 0.6, 0.8, 0.95, 0.98)]).T
    assert (np.diff(low, axis=1) <= 1e-12).all()
    assert (np.diff(high, axis=1) >= -1e-12).all()
    assert (low[:, 2] <= model.predict(NEW)).all()
    assert (model.predict(NEW) <= high[:, 2]).all()


@pytest.mark.parametrize("name", ["mean", "heads", "adaptive", "average"])
@pytest.mark.parametrize("smoothed", [False, True])
def test_quantiles_never_cross_and_one_level_is_one_column(name, smoothed):
    model = fitted(name)
    levels = np.linspace(0.01, 0.99, 25)
    found = model.predict_quantiles(NEW, levels, smoothed=smoothed)
    assert found.shape == (7, 25)
    assert (np.diff(found, axis=1) >= 0.0).all()
    assert np.array_equal(model.predict_quantiles(NEW, levels[3], smoothed=smoothed), found[:, 3])


def test_two_outputs_are_two_models():
    both = MODELS["line"]().fit(X, np.column_stack([Y, X[:, 1] ** 2]))
    one = MODELS["line"]().fit(X, Y)
    # Attention over residuals is widened by one factor for both outputs.
    both.predict_interval(NEW), one.predict_interval(NEW)
    assert both.predict_interval(NEW).shape == (7, 2, 2)
    assert both.predict_quantiles(NEW, [0.2, 0.5, 0.9]).shape == (7, 2, 3)
    assert both.predict_quantiles(NEW, 0.5).shape == both.predict(NEW, return_std=True)[1].shape == (7, 2)
    assert np.allclose(both.predict_interval(NEW, 0.8, "jackknife")[:, 0], one.predict_interval(NEW, 0.8, "jackknife"))
    assert np.allclose(both.confidence_interval(NEW)[:, 0], one.confidence_interval(NEW))
    assert np.allclose(both.residuals_[:, 0], one.residuals_)


@pytest.mark.parametrize("method", ["local", "conformal"])
def test_noisier_places_get_wider_intervals(method):
    x = np.linspace(0.0, 1.0, 400)[:, None]
    y = np.where(x[:, 0] < 0.5, 0.1, 1.0) * np.random.default_rng(3).normal(size=400)
    model = regard.NadarayaWatsonRegressor(bandwidth=0.05).fit(x, y)
    quiet, loud = np.diff(model.predict_interval([[0.2], [0.8]], 0.9, method), axis=1)[:, 0]
    assert loud > 3.0 * quiet
    quiet, loud = model.predict([[0.2], [0.8]], return_std=True)[1]
    assert 0.05 < quiet < 0.35
    assert 0.6 < loud < 1.4


@pytest.mark.parametrize("method", METHODS)
def test_coverage_of_exchangeable_rows(method):
    """New rows of the same kind are covered as often as asked, within five standard errors of the count."""
    draw = np.random.default_rng(4)
    times, rows = (400 if FULL else 30), 25
    hits = 0
    for _ in range(times):
        x = draw.random((80 + rows, 1)) * 4.0
        y = np.sin(2.0 * x[:, 0]) + 0.3 * draw.standard_t(4, size=80 + rows)
        model = regard.NadarayaWatsonRegressor(bandwidth=0.25).fit(x[:80], y[:80])
        low, high = model.predict_interval(x[80:], 0.9, method).T
        hits += int(((low <= y[80:]) & (y[80:] <= high)).sum())
    share = hits / (times * rows)
    # Rows of one round share a training set: its quantile is off by as much as a count among 80.
    error = np.sqrt(0.09 / (times * rows) + 0.09 / (80 * times))
    assert abs(share - 0.9) < 5.0 * error + 0.01


def test_the_conformal_rank_is_that_of_one_more_row():
    scores = np.arange(1.0, 20.0)[:, None]
    assert conformal_bound(scores, np.ones(19), 0.9)[0] == 18.0
    assert conformal_bound(scores, np.ones(19), 0.95)[0] == 19.0
    assert conformal_bound(scores, np.ones(19), 0.96)[0] == np.inf
    assert conformal_bound(scores[:2], np.array([17.0, 2.0]), 0.9)[0] == 2.0


def test_quantiles_are_those_of_numpy_on_copies():
    values, times, levels = rng.normal(size=(30, 2)), 1 + np.arange(30) % 4, np.array([0.01, 0.3, 0.5, 0.77])
    wanted = np.quantile(np.repeat(values, times, axis=0), levels, axis=0)
    assert np.allclose(quantiles(values, times.astype(float), levels), wanted)


@pytest.mark.parametrize("bad", [0, 1, 0.0, 1.0, -0.1, 1.5, float("nan"), "0.9", None, True, [0.9]])
def test_a_bad_coverage_is_named(bad):
    model = MODELS["mean"]().fit(X, Y)
    for ask in (model.predict_interval, model.confidence_interval):
        with pytest.raises((TypeError, ValueError), match="coverage"):
            ask(NEW, bad)


@pytest.mark.parametrize("bad", [0.0, 1.0, [0.5, 1.5], float("nan"), "0.5", None, [], [[0.5]]])
def test_a_bad_level_is_named(bad):
    with pytest.raises((TypeError, ValueError), match="q must"):
        MODELS["mean"]().fit(X, Y).predict_quantiles(NEW, bad)


def test_unknown_methods_are_named():
    model = MODELS["mean"]().fit(X, Y)
    for ask in (model.predict_interval, model.confidence_interval):
        with pytest.raises(ValueError, match=r"method must be one of .*'wishful'"):
            ask(NEW, 0.9, "wishful")
    with pytest.raises(ValueError, match="adaptive"):
        LEARNED["adaptive"]().fit(X, Y).predict_interval(NEW, 0.9, "jackknife")
    with pytest.raises(ValueError, match="y must have shape"):
        model.predict_density(NEW, [1.0])


@pytest.mark.parametrize("name", [*MODELS, "learned"])
def test_a_constant_y_has_no_spread(name):
    model = {**MODELS, **LEARNED}[name]().fit(X, np.full(60, 0.1))
    mean, std = model.predict(NEW, return_std=True)
    assert np.allclose(mean, 0.1)
    assert (std == 0.0).all()
    for method in METHODS:
        assert np.allclose(model.predict_interval(NEW, 0.9, method), 0.1)


@pytest.mark.parametrize("name", MODELS)
def test_two_rows_are_too_few_for_a_rank_and_one_has_nothing_to_leave_out(name):
    two = MODELS[name]().fit([[0.0, 0.0], [1.0, 0.0]], [1.0, 3.0])
    assert np.isinf(two.predict_interval([[0.5, 0.0]], 0.9, "conformal")).all()
    assert np.isinf(two.predict_interval([[0.5, 0.0]], 0.9, "jackknife")).all()
    assert np.isfinite(two.predict_interval([[0.5, 0.0]], 0.9, "local")).all()
    with pytest.raises(ValueError, match="at least 2 training rows, but this model has 1"):
        MODELS[name]().fit([[0.0, 0.0]], [1.0]).predict([[0.5, 0.0]], return_std=True)


def test_intervals_of_empty_rows_follow_empty():
    far = [[0.5, 0.5], [50.0, 50.0]]
    with pytest.warns(UserWarning, match="1 of 2 rows"):
        nearest = regard.NadarayaWatsonRegressor("epanechnikov", bandwidth=1.0).fit(X, Y).predict_interval(far)
    assert np.isfinite(nearest).all()
    nan = regard.NadarayaWatsonRegressor("epanechnikov", bandwidth=1.0, empty="nan").fit(X, Y)
    for found in (*nan.predict(far, return_std=True), *(nan.predict_interval(far, 0.8, m) for m in METHODS)):
        assert np.isnan(found[1]).all()
        assert np.isfinite(found[0]).all()
    with pytest.raises(ValueError, match="no training row"):
        regard.NadarayaWatsonRegressor("epanechnikov", bandwidth=1.0, empty="raise").fit(X, Y).predict_quantiles(
            far, 0.5
        )


def test_single_precision_stays_single():
    model = MODELS["line"]().fit(X.astype(np.float32), Y)
    at = NEW.astype(np.float32)
    assert model.predict_interval(at).dtype == model.predict(at, return_std=True)[1].dtype == np.float32


def test_a_saved_model_keeps_its_residuals(tmp_path):
    model = MODELS["line"]().fit(X, Y)
    wanted = statements(model)
    regard.save(model, tmp_path / "m.regard")
    back = regard.load(tmp_path / "m.regard")
    assert np.array_equal(back.residuals_, model.residuals_)
    assert np.array_equal(statements(back), wanted)
    back.fit(X[:30], Y[:30])
    assert not hasattr(back, "residuals_")


def test_residuals_are_gone_once_there_are_more_rows():
    model = MODELS["mean"]().fit(X[:40], Y[:40])
    model.predict(NEW, return_std=True)
    model.partial_fit(X[40:], Y[40:])
    assert np.allclose(statements(model), statements(MODELS["mean"]().fit(X, Y)))
