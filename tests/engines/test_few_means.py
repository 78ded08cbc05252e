"""Means of a few rows in plain numpy: equal to the reference engine, whatever w, weights, labels and places."""

from __future__ import annotations

import numpy as np
import pytest

from regard.bandwidth.objective import Objective
from regard.engines.cpu.prepared import FewMeans
from support.generators import uneven as data

DECADES = np.arange(-8.0, 9.0)


def agree(objective, w):
    quick, pooled = objective(w, gradient=True), objective._pooled(w, 0.0, True)
    assert isinstance(objective._prepared, FewMeans)
    assert np.isclose(quick.value, pooled.value, rtol=1e-11)
    assert np.allclose(quick.answer, pooled.answer, rtol=1e-10, atol=1e-10)
    # Far apart, scores are rounded to 1e-13 of a weight, and a slope is what is left of weights that cancel.
    assert np.allclose(w * quick.w, w * pooled.w, rtol=1e-8, atol=1e-12 * quick.value)
    assert quick.empty == pooled.empty
    assert objective(w).value == pytest.approx(quick.value, rel=1e-12)


@pytest.mark.parametrize("d", [1, 2, 5, 12])
@pytest.mark.parametrize("n", [2, 3, 40])
def test_it_is_what_the_reference_engine_says(n, d):
    X, y = data(n, d)
    objective = Objective.of(X, y)
    for decade in DECADES:
        agree(objective, 10.0**decade / X.std(axis=0))
        agree(objective, np.array(10.0**decade / X.std()))
    assert objective(np.zeros(d)).value == pytest.approx(objective._pooled(np.zeros(d), 0.0, False).value, rel=1e-13)


@pytest.mark.parametrize("dtype", [int, float])
def test_weights_and_groups(dtype):
    X, y = data(50, 2)
    rng = np.random.default_rng(1)
    weight = rng.integers(1, 5, len(X)).astype(dtype)
    groups = rng.integers(0, 20, len(X))
    for options in ({"sample_weight": weight}, {"groups": groups}, {"sample_weight": weight, "groups": groups}):
        objective = Objective.of(X, y, **options)
        for level in (0.01, 1.0, 30.0, 1e4):
            agree(objective, level / X.std(axis=0))


def test_copies_that_stay_hold_their_row():
    """Of two copies one leaves: however sharp, the other answers."""
    X, y = data(20, 1)
    objective = Objective.of(X, y, sample_weight=np.full(20, 2))
    for level in (1e-3, 1.0, 1e3, 1e8):
        agree(objective, np.array([level / X.std()]))
    assert objective(np.array([1e8 / X.std()])).value < 1e-20


def test_importances_far_apart():
    X, y = data(30, 2)
    objective = Objective.of(X, y, sample_weight=np.geomspace(1e-290, 1.0, 30))
    for level in (0.01, 1.0, 100.0, 1e6):
        agree(objective, level / X.std(axis=0))


def test_slopes_are_exact_where_one_key_holds_all_attention():
    """A slope of 1e-80 is not lost in the rounding of the weights it is a difference of."""
    X, y = data(28, 1)
    objective, w = Objective.of(X, y), np.array([1e3 / data(28, 1)[0].std()])
    assert 0.0 < abs(objective._pooled(w, 0.0, True).w[0]) < 1e-30
    assert np.isclose(objective(w, gradient=True).w, objective._pooled(w, 0.0, True).w, rtol=1e-9, atol=0.0)


def test_it_steps_aside():
    X, y = data(20, 1)
    for options in ({"engine": "reference"}, {"kernel": "tricube"}, {"degree": 1}, {"criterion": "gcv"}):
        assert not isinstance(Objective.of(X, y, **options)._prepared, FewMeans)
    assert Objective.of(X, np.column_stack([y, y**2]))._prepared is None
    assert Objective.of(X * 1e100, y)._prepared is None
    assert not Objective.of(X, y)._prepared.holds(np.array([1e100]))
