"""Tempering of class probabilities: what it learns, its derivatives, and the weights that reproduce it."""

import numpy as np
import pytest

from regard.bandwidth.tempering import Tempering, learn_tempering

RNG = np.random.default_rng(8)
P = RNG.dirichlet(np.ones(3), 4000)
FREQUENCY = np.array([0.2, 0.3, 0.5])


def drawn(p):
    return np.eye(p.shape[1])[(p.cumsum(axis=1) < RNG.uniform(size=(len(p), 1))).sum(axis=1)]


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_it_finds_the_temperature_that_was_applied(temperature):
    found = learn_tempering(P, drawn(Tempering(temperature, 0.0, FREQUENCY)(P)), np.ones(len(P)))
    assert found.temperature == pytest.approx(temperature, rel=0.1)


def test_it_finds_labels_drawn_at_random():
    truth = Tempering(0.6, 0.2, np.full(3, 1.0 / 3.0))(P)
    found = learn_tempering(P, drawn(truth), np.ones(len(P)))
    assert found.frequency_weight == pytest.approx(0.2, abs=0.06)
    assert found.temperature == pytest.approx(0.6, rel=0.2)


def test_right_probabilities_stay_and_none_is_zero():
    sure = np.eye(3)[RNG.integers(0, 3, 50)]
    found = learn_tempering(P, drawn(P), np.ones(len(P)))
    assert np.abs(found(P) - P).max() < 0.05
    assert (learn_tempering(sure, sure, np.ones(50))(sure) > 0.0).all()


def test_a_weight_of_k_is_k_copies():
    columns, times = drawn(P)[:200], RNG.integers(1, 4, 200)
    one = learn_tempering(P[:200], columns, times.astype(float))
    many = learn_tempering(P[:200].repeat(times, axis=0), columns.repeat(times, axis=0), np.ones(times.sum()))
    assert one.temperature == pytest.approx(many.temperature, rel=1e-6)
    assert one.frequency_weight == pytest.approx(many.frequency_weight, rel=1e-4)


@pytest.mark.parametrize("temperature", [0.5, 1.7])
def test_derivatives_are_finite_differences(temperature):
    tempering, p = Tempering(temperature, 0.1, FREQUENCY), P[:20]
    away = RNG.normal(size=(20, 3, 2))
    away -= away.mean(axis=1, keepdims=True)
    for j in range(2):
        step = 1e-6 * p.min(axis=1, keepdims=True)
        up, down = (tempering(p + sign * step * away[:, :, j]) for sign in (1.0, -1.0))
        np.testing.assert_allclose(
            tempering.derivatives(p, away)[:, :, j], (up - down) / (2.0 * step), rtol=1e-4, atol=1e-5
        )


def test_weights_add_up_to_the_probabilities():
    value, weights = RNG.integers(0, 3, 40), RNG.dirichlet(np.ones(40), 15)
    mass = RNG.uniform(0.5, 2.0, 40)
    frequency = np.bincount(value, mass) / mass.sum()
    tempering = Tempering(0.7, 0.05, frequency)
    columns = np.eye(3)[value]
    np.testing.assert_allclose(
        tempering.weights(weights, value, mass) @ columns, tempering(weights @ columns), atol=1e-12
    )
    weights[:, value == 1] = 0.0  # a class that nothing attends to
    weights /= weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        tempering.weights(weights, value, mass) @ columns, tempering(weights @ columns), atol=1e-12
    )


def test_rows_of_nan_stay():
    found = Tempering(0.7, 0.05, FREQUENCY)(np.array([[np.nan, np.nan, np.nan], [0.2, 0.3, 0.5]]))
    assert np.isnan(found[0]).all()
    assert found[1].sum() == pytest.approx(1.0)
