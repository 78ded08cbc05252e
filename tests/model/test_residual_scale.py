"""The parts behind intervals: relearned residuals, the spread, its tails, densities, and large tables."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

import regard
from regard.model.residual_scale import WIDENINGS, StudentT, fit_t, learn_residual_scale, log_density, residual_scale_at
from regard.model.residuals import left_out_answers, relearned_answers
from regard.model.smoother import Head
from regard.scores import Gaussian

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")

rng = np.random.default_rng(7)


def test_relearned_residuals_are_honest_where_learning_over_fits():
    """Twelve features, one of which counts: a matrix learned from 60 rows fits them too well."""
    X = rng.normal(size=(460, 6))
    y = X[:, 0] + 0.5 * rng.normal(size=460)
    model = regard.LocalLinearRegressor(metric="full", ridge="loo").fit(X[:60], y[:60])
    model.predict(X[:1], return_std=True)
    left_out = np.sqrt(np.mean((y[:60] - model.loo_predictions_) ** 2))
    honest = np.sqrt(np.mean(model.residuals_**2))
    new = np.sqrt(np.mean((y[60:] - model.predict(X[60:])) ** 2))
    assert left_out < 0.85 * new
    assert abs(np.log(honest / new)) < 0.6 * abs(np.log(left_out / new))


def test_relearning_starts_from_what_was_learned_and_does_not_write_to_it():
    X = rng.normal(size=(80, 2))
    model = regard.KernelRegressor().fit(X, np.sin(X[:, 0]))
    before = [head.w.copy() for head in model.heads_]
    heads = model._configured_smoother.objectives()
    relearned = relearned_answers(heads, ridge=True)
    assert relearned.shape == (80, 1)
    assert not np.array_equal(relearned, left_out_answers(heads))
    assert all(np.array_equal(head.w, w) for head, w in zip(model.heads_, before, strict=True))


@pytest.mark.parametrize("options", [{"bandwidth": "gcv"}, {"optimizer": "sgd", "random_state": 0}])
def test_other_criteria_are_not_minimised_again(options):
    X = rng.random((50, 1))
    model = regard.NadarayaWatsonRegressor(**options).fit(X, np.sin(6.0 * X[:, 0]))
    model.predict(X[:1], return_std=True)
    assert np.allclose(model.residuals_, np.sin(6.0 * X[:, 0]) - model.loo_predictions_)


@pytest.mark.parametrize("freedom", [3.0, 30.0])
def test_tails_are_found(freedom):
    shown = 0.7 * rng.standard_t(freedom, size=(20_000, 1))
    found = fit_t(shown, np.ones(20_000))
    assert found.width[0] == pytest.approx(0.7, rel=0.05)
    assert found.freedom[0] == (3.0 if freedom == 3.0 else 30.0)


def test_the_density_is_students_and_adds_up_to_one():
    tails = StudentT(np.array([4.0]), np.array([0.6]))
    at = np.linspace(-3.0, 3.0, 7)[:, None]
    assert np.allclose(log_density(at, tails)[:, 0], stats.t.logpdf(at[:, 0], 4.0, scale=0.6))
    X = rng.random((40, 1))
    model = regard.NadarayaWatsonRegressor(bandwidth=0.2).fit(X, rng.normal(size=40))
    whole, _ = quad(lambda y: model.predict_density([[0.5]], [y])[0], -60.0, 60.0, points=[0.0], limit=200)
    assert whole == pytest.approx(1.0, abs=1e-3)
    y = rng.normal(size=40)
    assert model.log_likelihood(X, y) == pytest.approx(np.log(model.predict_density(X, y)).mean())


def test_smoothed_quantiles_are_those_of_the_density():
    X = rng.random((60, 1))
    model = regard.NadarayaWatsonRegressor(bandwidth=0.2).fit(X, rng.normal(size=60))
    level = model.predict_quantiles([[0.5]], 0.8, smoothed=True)[0]
    below, _ = quad(lambda y: model.predict_density([[0.5]], [y])[0], -80.0, level, points=[0.0], limit=200)
    assert below == pytest.approx(0.8, abs=1e-3)


def test_a_spread_that_does_not_vary_is_hardly_found_to():
    draw = np.random.default_rng(11)
    x, residual = draw.random((300, 1)), draw.normal(size=(300, 1))
    spread = learn_residual_scale([(Head(1.0, Gaussian(20.0)), x, x)], residual, None)
    assert spread.scale.max() < 1.5 * spread.scale.min()
    same = learn_residual_scale([(Head(1.0, Gaussian(0.0)), x, x)], residual, None)
    assert same.widening == 0.0
    assert np.allclose(same.scale, np.abs(residual).mean(), rtol=0.02)


def test_sharp_attention_does_not_compete():
    """Three neighbours to a row: too few for a scale, however well it seems to predict."""
    x = np.arange(300.0)[:, None]
    residual = np.repeat(np.random.default_rng(12).normal(size=(100, 1)), 3, axis=0)
    assert learn_residual_scale([(Head(1.0, Gaussian(1.0)), x, x)], residual, None).widening <= WIDENINGS[1]


def test_the_spread_at_a_row_is_its_formula():
    x, residual = rng.random((30, 1)), rng.normal(size=(30, 1))
    at = rng.random((4, 1))
    found = residual_scale_at([(Head(1.0, Gaussian(5.0)), at, x)], 0.3, 0.25, residual, None)
    weights = np.exp(-0.5 * (1.5 * (at - x.T)) ** 2)
    local = weights / weights.sum(axis=1, keepdims=True) @ np.abs(residual)
    assert np.allclose(found, 0.75 * local + 0.25 * np.abs(residual).mean())
    # Rows that were not answered are not there.
    some = residual.copy()
    some[::2] = np.nan
    assert np.allclose(
        residual_scale_at([(Head(1.0, Gaussian(5.0)), at, x)], 0.3, 0.25, some, None),
        residual_scale_at([(Head(1.0, Gaussian(5.0)), at, x[1::2])], 0.3, 0.25, residual[1::2], None),
    )


def test_many_rows_are_answered_by_the_fast_engines():
    x = rng.random((30_000, 1))
    y = np.sin(9.0 * x[:, 0]) + (0.1 + x[:, 0]) * rng.normal(size=30_000)
    model = regard.NadarayaWatsonRegressor(bandwidth=0.01).fit(x, y)
    std = model.predict([[0.1], [0.9]], return_std=True)[1]
    assert np.allclose(std, [0.2, 1.0], rtol=0.2)
    low, high = model.predict_interval(x[:2000], 0.9, "conformal").T
    assert np.mean((low <= y[:2000]) & (y[:2000] <= high)) == pytest.approx(0.9, abs=0.03)
