"""An offset of y moves the answers by itself and changes nothing else: not scores, residuals, spreads or intervals."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import r2_score

from regard import (
    AttentionRegressor,
    AveragePoolingRegressor,
    KernelRegressor,
    LocalLinearRegressor,
    NadarayaWatsonRegressor,
    NearestKeyRegressor,
)
from regard.bandwidth import plugin
from regard.bandwidth.losses import SquaredError
from support.engines import sparse

RNG = np.random.default_rng(15)
X = RNG.uniform(-2.0, 2.0, (150, 2))
# Numbers near 1e15 are an eighth apart: these can be moved there and back without rounding.
OFFSET, APART = 1e15, 0.125
NOISE = {size: np.rint(RNG.normal(0.0, size, 150) / APART) * APART for size in (3, 16)}
CURVE = np.rint(5.0 * np.sin(2.0 * X[:, 0]) / APART) * APART

MODELS = {
    "mean": AveragePoolingRegressor(),
    "nearest": NearestKeyRegressor(),
    "means": NadarayaWatsonRegressor(),
    "means, given": NadarayaWatsonRegressor(bandwidth=0.7),
    "means, aicc": NadarayaWatsonRegressor(bandwidth="aicc"),
    "means, adaptive": NadarayaWatsonRegressor(bandwidth="adaptive"),
    "means, absolute": NadarayaWatsonRegressor(loss="absolute"),
    "lines": LocalLinearRegressor(),
    "heads": KernelRegressor(),
    "attention": AttentionRegressor(max_iter=2, random_state=0),
}


def both(model, y):
    """The model fitted to y, and to y at the offset."""
    return clone(model).fit(X, y), clone(model).fit(X, y + OFFSET)


@pytest.mark.usefixtures("brief_learning")
@sparse("name", MODELS, ["means", "lines"], ("size", NOISE))
def test_scores_and_residuals_do_not_move(name, size):
    here, there = both(MODELS[name], CURVE + NOISE[size])
    close = {"atol": 4.0 * APART, "rtol": 0.0}
    np.testing.assert_allclose(there.predict(X[:20]) - OFFSET, here.predict(X[:20]), atol=8.0 * APART)
    if hasattr(here, "loo_score_"):
        assert there.loo_score_ == pytest.approx(here.loo_score_, abs=0.02)
        left_out = r2_score(there.value_, there.loo_predictions_)
        assert there.loo_score_ == pytest.approx(left_out, abs=0.02)
    if hasattr(here, "predict_interval"):
        moved, ends = there.predict_interval(X[:20]) - OFFSET, here.predict_interval(X[:20])
        np.testing.assert_allclose(there.residuals_, here.residuals_, **close)
        np.testing.assert_allclose(moved, ends, atol=0.1 * size + 4.0 * APART)
        spread = there.predict(X[:20], return_std=True)[1]
        np.testing.assert_allclose(spread, here.predict(X[:20], return_std=True)[1], rtol=0.1)


def test_the_plug_in_rule_does_not_move():
    y = CURVE + NOISE[3]
    np.testing.assert_allclose(plugin(X, y + OFFSET), plugin(X, y), rtol=1e-9)


@pytest.mark.parametrize("value", [0.1, 1e15, -1e300, 1e-300])
def test_equal_numbers_do_not_vary(value):
    """However their mean is rounded."""
    loss = SquaredError.of(np.full(7, value), RNG.uniform(0.5, 2.0, 7))
    assert not loss.columns.any()
    assert loss.in_units_of_y(loss.columns) == pytest.approx(value, rel=1e-15)
