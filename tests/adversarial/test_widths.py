"""Extreme bandwidths and distances, for every estimator that takes a bandwidth: lines 23 to 31 and 39 to 42."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from sklearn.base import clone

import regard
from regard import AveragePoolingRegressor, LocalLinearRegressor, NadarayaWatsonRegressor, NearestKeyRegressor
from regard.scores import KERNELS, Gaussian
from support.adversaries import CLASSIFIERS, GIVEN, LABELS, Q, X, Y, answer

TAKERS = {name: model for name, model in GIVEN.items() if "bandwidth" in model.get_params()} | {
    "LocalLinearRegressor without a ridge": LocalLinearRegressor(ridge=0.0)
}
MEANS = [name for name in TAKERS if "Linear" not in name]
every_taker = pytest.mark.parametrize("name", TAKERS)
SOFT = [name for name, row in KERNELS.items() if not row.compact]
MANY = np.random.default_rng(1).normal(size=(300, 2))


def fit(name, bandwidth, rows=X, y=None, kernel="gaussian", **given):
    y = (LABELS if name in CLASSIFIERS else Y) if y is None else y
    return clone(TAKERS[name]).set_params(bandwidth=bandwidth, kernel=kernel).fit(rows, y, **given)


TARGETS = {True: np.unique(LABELS) == LABELS[:, None], False: Y}


def is_nearest(name, got, at):
    """Whether answers are those of the nearest row or, beyond 1e8, of all that float64 cannot distinguish from it."""
    targets, right = TARGETS[name in CLASSIFIERS], []
    for query, one in zip(at, got, strict=True):
        exact = [sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(query, row, strict=True)) for row in X]
        squares = (((query - X) / np.abs(query).max()) ** 2).sum(axis=1)
        expected = [targets[int(np.argmin(exact))]]
        if np.abs(query).max() > 1e8:
            expected.append(targets[squares == squares.min()].mean(axis=0))
        right.append(any(np.allclose(one, answer, rtol=1e-12) for answer in expected))
    return all(right)


# --- no bandwidth is too wide --------------------------------------------------------------------------------------


@every_taker
@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "boxcar"])
@pytest.mark.parametrize("bandwidth", [np.inf, [np.inf, np.inf], 1e300, 1e200])
def test_23_24_the_widest_bandwidths_weight_all_rows_equally(name, kernel, bandwidth):
    """The mean of y, or the line through all rows; with a ridge on slopes in bandwidths, its mean."""
    got = answer(fit(name, bandwidth, kernel=kernel))
    if name.endswith("without a ridge"):
        slopes = np.linalg.lstsq(np.c_[np.ones(12), X], Y, rcond=None)[0]
        assert np.allclose(got, np.c_[np.ones(7), Q] @ slopes, rtol=1e-9)
    else:
        mean = [(label == LABELS).mean() for label in np.unique(LABELS)] if name in CLASSIFIERS else Y.mean()
        assert np.allclose(got, mean, rtol=1e-12)


# --- none is too narrow, and nothing too far -----------------------------------------------------------------------


@every_taker
@pytest.mark.parametrize("kernel", SOFT)
@pytest.mark.parametrize("bandwidth", [1e-8, 1e-50, 1e-100, 1e-200, 1e-300, 1e-308])
def test_25_26_31_the_narrowest_see_the_nearest_row(name, kernel, bandwidth):
    """Near and far, for few rows and for many, in every way that there is to ask."""
    model = fit(name, bandwidth, kernel=kernel)
    for distance in (1.0, 1e3, 1e50, 1e150, 1e300):
        far = Q[:3] + distance * np.array([[1.0, -0.5]])
        got = answer(model, far)
        assert is_nearest(name, got, far)
        assert is_nearest(name, answer(model, np.resize(far, (60, 2))), np.resize(far, (60, 2)))
        assert np.allclose(model.effective_weights(far) @ TARGETS[name in CLASSIFIERS], got, rtol=1e-12)
        effects = [model.marginal_effects(far)] + ([model.slopes(far)] if "Linear" in name else [])
        assert np.isfinite(effects[0]).all()
        assert np.isfinite(effects[-1]).all()
        assert distance > 1e8 or not any(part.any() for part in effects)
        explanation = model.explain(far)
        assert (explanation.distance > 0.0).all()
        assert explanation.far.all() or distance == 1.0
        if name not in CLASSIFIERS:
            assert np.isfinite(model.predict_interval(far, 0.5)).all()


@every_taker
def test_28_negative_bandwidths_are_an_error(name):
    """|w| is what counts in a score, but a bandwidth is a length."""
    for width in (-0.7, np.array([0.7, -2.0]), -np.inf):
        with pytest.raises(ValueError, match="bandwidth must be above 0"):
            fit(name, width)


@pytest.mark.parametrize("name", MEANS)
def test_30_a_feature_with_an_infinite_bandwidth_is_ignored(name):
    got, alone = answer(fit(name, [0.7, np.inf])), answer(fit(name, 0.7, X[:, :1]), Q[:, :1])
    assert np.allclose(got, alone, rtol=1e-13)


@every_taker
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.filterwarnings("ignore:.* have no training row within the bandwidth:UserWarning")
def test_31_far_queries_stay_inside_the_hull(name, kernel):
    far = np.outer(np.logspace(6, 150, 7), [1.0, -0.5])
    got = answer(fit(name, 0.5, kernel=kernel), far)
    low, high = (0.0, 1.0) if name in CLASSIFIERS else (Y.min(), Y.max())
    assert ((low - 1e-12 <= got) & (got <= high + 1e-12)).all()
    if kernel != "laplace":  # whose weights far away follow the direction of the query, not the nearest key
        assert is_nearest(name, got, far)


# --- lines that reach far ------------------------------------------------------------------------------------------


def line_at(query, h, ridge, kernel):
    """The local line in fifty digits."""
    number, h = mpmath.mpf, mpmath.mpf(h)
    delta = [[number(float(a)) - number(float(b)) for a, b in zip(row, query, strict=True)] for row in MANY[:60]]
    u2 = [sum((part / h) ** 2 for part in row) for row in delta]
    score = [-mpmath.sqrt(one) if kernel == "laplace" else -one / 2 for one in u2]
    weight = [mpmath.exp(one - max(score)) for one in score]
    weight = [one / sum(weight) for one in weight]
    y = [number(float(one)) for one in np.sin(MANY[:60].sum(axis=1))]
    mean, d = [sum(w * row[a] for w, row in zip(weight, delta, strict=True)) for a in range(2)], range(2)
    height = sum(w * v for w, v in zip(weight, y, strict=True))
    C, c = mpmath.matrix(2, 2), mpmath.matrix(2, 1)
    for a in d:
        c[a] = sum(w * (row[a] - mean[a]) * v for w, row, v in zip(weight, delta, y, strict=True))
        for b in d:
            C[a, b] = sum(w * (row[a] - mean[a]) * (row[b] - mean[b]) for w, row in zip(weight, delta, strict=True))
        C[a, a] += ridge * (h**2 + sum(one**2 for one in mean))
    slope = mpmath.lu_solve(C, c)
    return float(height - sum(slope[a] * mean[a] for a in d))


@pytest.mark.parametrize("engine", ["reference", "tiled", "auto"])
@pytest.mark.parametrize("ridge", [0.0, 1e-6, 1e-3])
def test_31_lines_that_reach_far_keep_their_digits(ridge, engine):
    """A thousand away, moments about the query would leave six digits of the variance of the keys."""
    far = np.array([[3.0, -1.0], [30.0, 20.0], [300.0, 0.0], [1000.0, -300.0]])
    model = LocalLinearRegressor("laplace", 0.3, ridge=ridge, engine=engine)
    got = model.fit(MANY[:60], np.sin(MANY[:60].sum(axis=1))).predict(far)
    with mpmath.workdps(50):
        expected = [line_at(query, 0.3, ridge, "laplace") for query in far]
    assert np.allclose(got, expected, rtol=1e-11, atol=0.0)
    # What is beside them does not matter.
    beside = model.predict(np.concatenate([MANY[:7], far]))
    assert np.allclose(beside[7:], expected, rtol=1e-11, atol=0.0)


# --- ties ----------------------------------------------------------------------------------------------------------

SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


@pytest.mark.parametrize("kernel", SOFT)
@pytest.mark.parametrize("bandwidth", [1e-3, 1e-10, 1e-20, 1e-50, 1e-100, 1e-200, 1e-300])
def test_39_ties_share_by_their_weights(bandwidth, kernel):
    at, y = np.array([[0.5, 0.5], [0.5, 0.0]]), np.array([1.0, 2.0, 3.0, 6.0])
    for weight in (None, np.array([1.0, 3.0, 2.0, 2.0]), np.array([1, 3, 2, 2])):
        share = np.ones(4) if weight is None else weight
        expected = [share @ y / share.sum(), share[:2] @ y[:2] / share[:2].sum()]
        options = {"sample_weight": weight}
        model = NadarayaWatsonRegressor(kernel, bandwidth).fit(SQUARE, y, **options)
        for queries in (at, np.resize(at, (60, 2))):
            assert np.allclose(model.predict(queries)[:2], expected, rtol=1e-13)
            assert np.allclose(model.attend(queries)[:2] @ y, expected, rtol=1e-13)
        assert np.allclose(NearestKeyRegressor().fit(SQUARE, y, **options).predict(at), expected, rtol=1e-13)
        labels = regard.NadarayaWatsonClassifier(kernel, bandwidth).fit(SQUARE, list("abba"), **options)
        high = [share[[0, 3]].sum() / share.sum(), share[0] / share[:2].sum()]
        assert np.allclose(labels.predict_proba(at)[:, 0], high, rtol=1e-13)
    line = LocalLinearRegressor(kernel, bandwidth).fit(SQUARE, y).predict(at)
    assert np.allclose(line, [3.0, 1.5], rtol=1e-12)


# --- left out, and many --------------------------------------------------------------------------------------------


def test_40_an_isolated_row_left_out_is_finite():
    x, rows, y = np.array([[0.0], [0.1], [1e6]]), np.arange(3), np.array([1.0, 2.0, 9.0])
    left = regard.pool(x, x, y, Gaussian(10.0), exclude=(rows, rows))
    assert left.output.tolist() == [2.0, 1.0, 2.0]
    x, y = np.r_[MANY, [[1e6, 1e6]]], np.r_[np.sin(MANY[:, 0]), 9.0]
    for model in (NadarayaWatsonRegressor("epanechnikov", 0.5), LocalLinearRegressor("epanechnikov", 0.5)):
        assert np.isfinite(model.fit(x, y).predict_interval(x, 0.9)).all()
        assert np.isfinite(model.residuals_).all()


@pytest.mark.parametrize(
    "model",
    [
        NadarayaWatsonRegressor(bandwidth=np.inf, engine="reference"),
        NadarayaWatsonRegressor(bandwidth=0.5),
        LocalLinearRegressor(bandwidth=0.5),
        AveragePoolingRegressor(),
        NearestKeyRegressor(),
    ],
    ids=["mean", "kernel", "line", "average", "nearest"],
)
def test_41_a_million_tenths(model):
    tenths = np.full(1_000_000, 0.1, np.float32)
    got = model.fit(np.zeros((1_000_000, 1), np.float32), tenths).predict(np.zeros((1, 1), np.float32))
    assert np.allclose(got, 0.1, rtol=1e-6, atol=0.0)


def test_42_memory_stays_below_the_weights():
    n = 4_000  # all weights would be 128 MB
    x, y = np.linspace(0.0, 1.0, n)[:, None], np.linspace(0.0, 1.0, n)
    model = NadarayaWatsonRegressor(bandwidth=0.01).fit(x, y)
    model.predict(x[:100])  # whatever is compiled, is compiled before we measure
    tracemalloc.start()
    try:
        predicted, shown = model.predict(x), model.attend(x, top=3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100e6
    assert np.allclose(predicted[n // 2], y[n // 2], rtol=1e-3)
    assert np.array_equal(shown.index[:, 0], np.arange(n))
