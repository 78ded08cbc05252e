"""The absolute loss: its gradient, what it is for, and where it is refused."""

from __future__ import annotations

import numpy as np
import pytest

from regard import NadarayaWatsonClassifier, NadarayaWatsonRegressor
from regard.bandwidth import Objective
from regard.bandwidth.losses import AbsoluteError, SquaredError

RNG = np.random.default_rng(4)


def curve(n: int = 200, wild: int = 6):
    x = np.sort(RNG.uniform(0.0, 6.0, n))
    y = np.sin(2.0 * x) + 0.1 * RNG.normal(size=n)
    y[RNG.choice(n, wild, replace=False)] += RNG.choice([-40.0, 40.0], wild)
    return x[:, None], y


def test_the_formula_in_the_units_of_y():
    y, counts = RNG.normal(size=30) * 7.0 + 3.0, RNG.integers(1, 4, 30).astype(float)
    loss = AbsoluteError.of(y, counts)
    answer = RNG.normal(size=(30, 1))
    found = loss(answer, np.arange(30), counts)
    error = loss.in_units_of_y(answer)[:, 0] - y
    corner = 0.1 * np.median(np.abs(y - np.median(y)))
    expected = counts @ (np.sqrt(error**2 + corner**2) - corner) / counts.sum()
    assert found.value * loss.unit == pytest.approx(expected, rel=1e-12)
    for row in (0, 7):
        step = np.zeros((30, 1))
        step[row] = 1e-6
        slope = (
            loss(answer + step, np.arange(30), counts).value - loss(answer - step, np.arange(30), counts).value
        ) / 2e-6
        assert found.gradient[row, 0] == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("degree", [0, 1])
def test_the_objective_and_its_slope(degree):
    x, y = curve(60)
    objective = Objective.of(x, y, degree=degree, loss="absolute")
    found = objective(np.array([3.0]), 0.1, gradient=True)
    high, low = (objective(np.array([3.0 + step]), 0.1).value for step in (1e-6, -1e-6))
    assert found.w[0] == pytest.approx((high - low) / 2e-6, rel=1e-5)


def test_with_heavy_tails_the_curve_is_found_better():
    """Of Student's t with 1.2 degrees of freedom not even the mean is worth much: squares of it are worth nothing."""
    errors = {"squared": [], "absolute": []}
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x = np.sort(rng.uniform(0.0, 6.0, 250))[:, None]
        truth = np.sin(2.0 * x[:, 0])
        y = truth + 0.1 * rng.standard_t(1.2, 250)
        for loss, found in errors.items():
            found.append(np.abs(NadarayaWatsonRegressor(loss=loss).fit(x, y).predict(x) - truth).mean())
    assert np.mean(errors["absolute"]) < 0.9 * np.mean(errors["squared"])


def test_laws():
    x, y = curve(80)
    model = NadarayaWatsonRegressor(loss="absolute").fit(x, y)
    moved = NadarayaWatsonRegressor(loss="absolute").fit(x * 1e3, 5.0 + 2.0 * y)
    assert moved.bandwidth_[0] == pytest.approx(1e3 * model.bandwidth_[0], rel=1e-4)
    assert moved.search_.value == pytest.approx(2.0 * model.search_.value, rel=1e-6)
    twice = np.where(np.arange(80) < 20, 2, 1)
    rows = np.repeat(np.arange(80), twice)
    weighted = NadarayaWatsonRegressor(loss="absolute").fit(x, y, sample_weight=twice)
    copied = NadarayaWatsonRegressor(loss="absolute").fit(x[rows], y[rows])
    assert weighted.bandwidth_[0] == pytest.approx(copied.bandwidth_[0], rel=1e-3)
    assert model.loo_score_ == pytest.approx(1.0 - np.mean((y - model.loo_predictions_) ** 2) / np.var(y), rel=1e-9)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"loss": "huber"}, "loss must be one of 'squared', 'absolute'"),
        ({"loss": "absolute", "bandwidth": "aicc"}, "loss='absolute' needs bandwidth='loo'"),
        ({"loss": "absolute", "bandwidth": 1.0}, "loss='absolute' needs bandwidth='loo'"),
        ({"loss": "absolute", "optimizer": "sgd"}, "optimizer='sgd' needs loss='squared', got loss='absolute'"),
    ],
)
def test_what_is_refused(options, match):
    with pytest.raises(ValueError, match=match):
        NadarayaWatsonRegressor(**options).fit([[0.0], [1.0], [2.0]], [1.0, 2.0, 3.0])


def test_classes_have_their_own_loss():
    assert "loss" not in NadarayaWatsonClassifier().get_params()
    assert isinstance(Objective.of([[0.0], [1.0]], [1.0, 2.0]).loss, SquaredError)
