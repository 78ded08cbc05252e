"""Rules of thumb, and what a ``bandwidth`` parameter means."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import gaussian_kde

from regard.bandwidth import RULES, resolve, scott, silverman
from regard.scores import KERNELS

rng = np.random.default_rng(3)
X = rng.normal(size=(60, 3)) * [1.0, 20.0, 0.01] + [0.0, 5.0, 1e4]
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def test_scott_is_scipys_factor_times_the_deviation():
    factor = gaussian_kde(X.T, "scott").factor
    assert np.allclose(scott(X), factor * X.std(axis=0, ddof=1), rtol=1e-12)


def test_silverman_is_scipys_factor_times_the_robust_spread():
    factor = gaussian_kde(X.T, "silverman").factor
    quartiles = np.quantile(X, [0.25, 0.75], axis=0)
    spread = np.minimum(X.std(axis=0, ddof=1), np.ptp(quartiles, axis=0) / 1.349)
    assert np.allclose(silverman(X), factor * spread, rtol=1e-9)


def test_silverman_ignores_outliers_and_survives_no_quartile_range():
    outlier = np.append(np.linspace(0, 1, 99), 1e6)[:, None]
    assert silverman(outlier) < 1.0 < scott(outlier)
    spike = np.append(np.zeros(9), 1.0)[:, None]
    assert np.isclose(silverman(spike)[0], scott(spike)[0] * (4 / 3) ** 0.2)


@every_rule
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_smooth_alike(rule, kernel):
    factor = KERNELS[kernel].canonical / KERNELS["gaussian"].canonical
    assert np.allclose(rule(X, kernel=kernel), factor * rule(X), rtol=1e-14)


@every_rule
def test_repetitions_are_copies(rule):
    counts = rng.integers(0, 4, len(X))
    assert np.allclose(rule(X, sample_weight=counts), rule(X.repeat(counts, axis=0)), rtol=1e-9)
    assert np.allclose(rule(X, sample_weight=counts > 0), rule(X[counts > 0]), rtol=1e-12)
    once = np.ones(len(X), np.uint8)
    assert np.allclose(rule(X, sample_weight=once), rule(X), rtol=1e-14)


@every_rule
@pytest.mark.parametrize("scale", [1.0, 7.0, 1e-290, 1e290])
def test_importances_are_relative(rule, scale):
    ones = np.full(len(X), scale)
    assert np.allclose(rule(X, sample_weight=ones), rule(X), rtol=1e-12)
    some = np.where(np.arange(len(X)) % 3 == 0, 0.0, scale)
    assert np.allclose(rule(X, sample_weight=some), rule(X[some > 0]), rtol=1e-12)
    uneven = rng.uniform(0.5, 2.0, len(X))
    assert np.allclose(rule(X, sample_weight=uneven * scale), rule(X, sample_weight=uneven), rtol=1e-12)


@every_rule
def test_importances_pull_the_spread(rule):
    centre = np.exp(-0.5 * (X[:, 0]) ** 2)
    assert rule(X, sample_weight=centre)[0] < 0.9 * rule(X)[0]
    # An importance of 2 is no second observation: n stays, h does not shrink.
    assert np.allclose(rule(X, sample_weight=np.full(len(X), 2.0)), rule(X))
    assert (rule(X, sample_weight=np.full(len(X), 2)) < rule(X)).all()


@every_rule
def test_equivariance(rule):
    assert np.allclose(rule(-3.0 * X), 3.0 * rule(X), rtol=1e-12)
    assert np.allclose(rule(X[rng.permutation(len(X))]), rule(X), rtol=1e-12)
    assert np.allclose(rule(X[:, :2] + 2.0**20), rule(X[:, :2]), rtol=1e-9)
    assert np.allclose(rule(X.astype(np.float32)[:, :2]), rule(X[:, :2]), rtol=1e-4)


@every_rule
def test_a_constant_feature_is_ignored(rule):
    constant = np.full((len(X), 1), 0.1)  # whose computed mean is not 0.1
    h = rule(np.hstack([constant, X]))
    assert h[0] == np.inf
    assert np.array_equal(h[1:], rule(X))
    assert np.array_equal(rule(constant), [np.inf])
    assert np.array_equal(rule(X[:1]), [np.inf] * 3)


@every_rule
@pytest.mark.parametrize("size", [5e-324, 1e-310, 1e-200, 1e200, 9e306])
def test_any_size_of_data(rule, size):
    x = np.array([[0.0], [0.0], [1.0], [1.0]]) * size
    h = rule(x)
    assert np.isfinite(h).all()
    assert np.isfinite(1.0 / h).all()
    if size > 1e-300:
        assert np.allclose(h / size, rule(x / size))


@every_rule
@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"X": np.empty((0, 1))}, "X must have at least one row"),
        ({"X": [[np.nan]]}, "X must have"),
        ({"X": [[1e308]]}, "X holds numbers beyond"),
        ({"X": [["a"]]}, "X must hold real numbers"),
        ({"X": [[1.0]], "kernel": "unknown"}, "kernel must be one of 'gaussian'"),
        ({"X": [[1.0]], "sample_weight": [1.0, 2.0]}, "sample_weight must have one entry per row"),
        ({"X": [[1.0]], "sample_weight": [-1.0]}, "sample_weight must be finite and not negative"),
        ({"X": [[1.0]], "sample_weight": [0.0]}, "all sample weights are zero"),
        ({"X": [[1.0]], "sample_weight": ["a"]}, "sample_weight must hold real numbers"),
    ],
)
def test_bad_arguments(rule, given, match):
    with pytest.raises((ValueError, TypeError), match=match):
        rule(**given)


@pytest.mark.parametrize(
    ("bandwidth", "h", "w"),
    [
        (2, 2.0, 0.5),
        (4.0, 4.0, 0.25),
        (np.float32(0.5), 0.5, 2.0),
        (np.array(0.5), 0.5, 2.0),
        (np.inf, np.inf, 0.0),
        (1e-300, 1e-300, 1e300),
        ([1, 2, np.inf], [1.0, 2.0, np.inf], [1.0, 0.5, 0.0]),
        ((1.0, 2.0, 4.0), [1.0, 2.0, 4.0], [1.0, 0.5, 0.25]),
    ],
)
def test_resolve_numbers(bandwidth, h, w):
    width = resolve(bandwidth, X)
    assert isinstance(width.bandwidth, float) == isinstance(h, float) == isinstance(width.w, float)
    assert np.allclose(width.bandwidth, h, rtol=1e-15)
    assert np.allclose(width.w, w, rtol=1e-15)


@pytest.mark.parametrize("name", RULES)
def test_resolve_rules(name):
    counts = np.arange(len(X))
    width = resolve(name, X, kernel="tricube", sample_weight=counts)
    assert np.array_equal(width.bandwidth, RULES[name](X, kernel="tricube", sample_weight=counts))
    assert np.array_equal(width.w, 1.0 / width.bandwidth)


@pytest.mark.parametrize(
    ("bandwidth", "error", "match"),
    [
        (0, ValueError, "bandwidth must be finite and not zero"),
        (-0.0, ValueError, "NearestKeyRegressor"),
        (np.nan, ValueError, "bandwidth must be finite and not zero"),
        ([1.0, 0.0, 1.0], ValueError, "bandwidth must be finite and not zero"),
        (-0.5, ValueError, "bandwidth must be above 0, or inf to ignore a feature; got -0.5"),
        (-np.inf, ValueError, "bandwidth must be above 0"),
        ([1.0, -2.0, 1.0], ValueError, "bandwidth must be above 0"),
        (5e-324, ValueError, "bandwidth is too small"),
        ([1.0, 2.0], ValueError, "bandwidth has 2 numbers but X has 3 features"),
        ([], ValueError, "bandwidth has 0 numbers"),
        ([[1.0, 2.0, 3.0]], TypeError, "bandwidth must be a number"),
        ([1.0, [2.0]], TypeError, "bandwidth must be a number"),
        ("unknown", ValueError, "'scott', 'silverman', 'plugin', got 'unknown'"),
        ("1.0", ValueError, "bandwidth must be a number"),
        (None, TypeError, "bandwidth must be a number"),
        (True, TypeError, "bandwidth must be a number"),
        (1j, TypeError, "bandwidth must be a number"),
        ({}, TypeError, "bandwidth must be a number"),
    ],
)
def test_resolve_refuses(bandwidth, error, match):
    with pytest.raises(error, match=match):
        resolve(bandwidth, X)
