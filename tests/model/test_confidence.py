"""The mean and its doubt: standard errors against the formula and R np, the wild bootstrap, coverage of the mean."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import regard
from support.soak import FULL

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")

REFERENCE = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "reference"
beside = pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reference values lie beside the checkout, not in it")
rng = np.random.default_rng(5)
X = rng.random((50, 1)) * 4.0
Y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=50)
NEW = np.linspace(0.3, 3.7, 6)[:, None]


@pytest.mark.parametrize("degree", ["lc", "ll"])
@pytest.mark.parametrize(("kernel", "factor"), [("gaussian", 1.0), ("epanechnikov", 5**0.5)])
@beside
def test_merr_of_np_in_one_feature(degree, kernel, factor):
    expected = json.loads((REFERENCE / "expected.json").read_text())
    found = expected[f"npreg cps71 bws=2.5 regtype={degree} ckertype={kernel}"]
    table = json.loads((REFERENCE / "inputs.json").read_text())["cps71 (np)"]
    kind = regard.NadarayaWatsonRegressor if degree == "lc" else regard.LocalLinearRegressor
    model = kind(kernel, bandwidth=2.5 * factor).fit(np.array(table["age"], float)[:, None], table["logwage"])
    at = np.array(found["ex"], float)[:, None]
    assert np.allclose(model.standard_error(at, "np"), found["merr"], rtol=1e-10)


@pytest.mark.parametrize("degree", ["lc", "ll"])
@beside
def test_merr_of_np_in_two_features(degree):
    found = json.loads((REFERENCE / "expected.json").read_text())[f"npreg sm60 bws=(0.6,0.5) regtype={degree}"]
    table = json.loads((REFERENCE / "inputs.json").read_text())["sm60"]
    X = np.column_stack([table["c1"], table["c2"]])
    kind = regard.NadarayaWatsonRegressor if degree == "lc" else regard.LocalLinearRegressor
    model = kind(bandwidth=[0.6, 0.5]).fit(X, table["y"])
    assert np.allclose(model.standard_error(X[:5], "np"), found["merr_first5"], rtol=1e-10)


@pytest.mark.parametrize("kind", [regard.NadarayaWatsonRegressor, regard.LocalLinearRegressor])
def test_standard_errors_are_their_formula(kind):
    model = kind(bandwidth=0.5).fit(X, Y)
    found = model.standard_error(NEW)
    wanted = np.sqrt(model.effective_weights(NEW) ** 2 @ model.residuals_**2)
    assert np.allclose(found, wanted, rtol=1e-10)
    low, high = model.confidence_interval(NEW, 0.95).T
    assert np.allclose((high - low) / 2.0, 1.959963984540054 * wanted)


def test_np_needs_one_bandwidth_and_a_product_kernel():
    for model, need in (
        (regard.KernelRegressor().fit(X, Y), "a single bandwidth"),
        (regard.AttentionRegressor(score="dot", max_iter=2).fit(X, Y), "a kernel"),
        (regard.NadarayaWatsonRegressor("biweight", bandwidth=1.0).fit(np.hstack([X, X]), Y), "kernel='gaussian'"),
        (regard.NadarayaWatsonRegressor(bandwidth=[1.0, np.inf]).fit(np.hstack([X, X]), Y), "a finite bandwidth"),
    ):
        at = NEW if model.n_features_in_ == 1 else np.hstack([NEW, NEW])
        with pytest.raises(ValueError, match=f"method='np'.* needs {need}"):
            model.standard_error(at, "np")
    with pytest.raises(ValueError, match="method must be"):
        model.standard_error(at, "stata")


def test_the_bootstrap_agrees_with_the_formula_where_there_is_no_bias():
    """A line smoothed by lines stays a line: only the spread is left."""
    y = 2.0 * X[:, 0] + 0.3 * rng.normal(size=50)
    model = regard.LocalLinearRegressor(bandwidth=1.5).fit(X, y)
    low, high = model.confidence_interval(NEW, 0.9, "bootstrap", draws=4000 if FULL else 1000, random_state=0).T
    error = model.standard_error(NEW)
    assert np.allclose((high - low) / 2.0, 1.645 * error, rtol=0.15)
    assert np.allclose((high + low) / 2.0, model.predict(NEW), atol=0.6 * error.max())


def test_the_bootstrap_includes_bias_and_is_reproducible():
    peak = np.linspace(-2.0, 2.0, 200)[:, None]
    model = regard.NadarayaWatsonRegressor(bandwidth=0.5).fit(peak, np.exp(-4.0 * peak[:, 0] ** 2))
    plain, shifted = model.predict([[0.0]])[0], model.confidence_interval([[0.0]], method="bootstrap", random_state=1)
    assert shifted.mean() > plain  # a mean is too low at a peak
    again = model.confidence_interval([[0.0]], method="bootstrap", random_state=1)
    assert np.array_equal(shifted, again)
    with pytest.raises(ValueError, match="draws"):
        model.confidence_interval([[0.0]], method="bootstrap", draws=1)


def test_the_mean_is_covered():
    """Where lines have no bias, nine of ten intervals hold the truth."""
    draw = np.random.default_rng(6)
    times, hits = (2000 if FULL else 120), 0
    for _ in range(times):
        x = draw.random((60, 1))
        model = regard.LocalLinearRegressor(bandwidth=0.3).fit(x, 1.0 + x[:, 0] + draw.normal(size=60))
        low, high = model.confidence_interval([[0.5]], 0.9)[0]
        hits += low <= 1.5 <= high
    assert abs(hits / times - 0.9) < 5.0 * np.sqrt(0.09 / times)


def test_a_weight_is_as_many_signs_and_as_many_rows():
    times = 1 + np.arange(50) % 3
    model = regard.NadarayaWatsonRegressor(bandwidth=0.5).fit(X, Y, sample_weight=times)
    copied = regard.NadarayaWatsonRegressor(bandwidth=0.5).fit(np.repeat(X, times, axis=0), np.repeat(Y, times))
    assert np.allclose(model.standard_error(NEW), copied.standard_error(NEW))
    assert np.allclose(model.standard_error(NEW, "np"), copied.standard_error(NEW, "np"))
    ends = [m.confidence_interval(NEW, method="bootstrap", draws=1000, random_state=0) for m in (model, copied)]
    assert np.allclose(*ends, atol=0.3 * model.standard_error(NEW).max())
