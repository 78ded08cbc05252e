"""Lines of a few rows in plain numpy: equal to the reference engine, whatever w, ridge, weights, labels and places."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from regard.bandwidth.objective import Objective
from regard.engines.cpu.prepared import MAX_ENTRIES, FewLines
from support.generators import uneven as data

RIDGES = [0.0, 1e-3, 1.0]


def agree(objective, w, ridge):
    quick, exact = objective(w, ridge, gradient=True), replace(objective, engine="reference")(w, ridge, gradient=True)
    assert isinstance(objective._prepared, FewLines)
    assert np.isclose(quick.value, exact.value, rtol=1e-9)
    assert np.allclose(quick.answer, exact.answer, rtol=1e-8, atol=1e-8)
    # A slope is what is left of weights that cancel.
    assert np.allclose(w * quick.w, w * exact.w, rtol=1e-6, atol=1e-9 * quick.value)
    assert np.isclose(quick.log_ridge, exact.log_ridge, rtol=1e-6, atol=1e-9 * quick.value)
    assert quick.empty == exact.empty


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("n", [3, 40])
def test_it_is_what_the_reference_engine_says(n, d, ridge):
    X, y = data(n, d)
    objective = Objective.of(X, y, degree=1)
    for level in (1e-8, 1e-3, 0.1, 1.0) + (() if ridge == 0.0 else (10.0, 1e3)):
        agree(objective, level / X.std(axis=0), ridge)
        agree(objective, np.array(level / X.std()), ridge)


@pytest.mark.parametrize("criterion", ["gcv", "aicc"])
def test_other_criteria(criterion):
    X, y = data(40, 2)
    agree(Objective.of(X, y, degree=1, criterion=criterion), 0.8 / X.std(axis=0), 0.0)


@pytest.mark.parametrize("dtype", [int, float])
def test_weights_groups_and_columns(dtype):
    X, y = data(40, 2)
    rng = np.random.default_rng(1)
    weight, groups = rng.integers(1, 5, len(X)).astype(dtype), rng.integers(0, 20, len(X))
    for options in ({"sample_weight": weight}, {"groups": groups}, {"sample_weight": weight, "groups": groups}):
        for target in (y, np.column_stack([y, y**2])):
            objective = Objective.of(X, target, degree=1, **options)
            for level in (0.1, 1.0, 3.0):
                agree(objective, level / X.std(axis=0), 0.01)


def test_some_of_the_rows():
    X, y = data(40, 2)
    agree(Objective.of(X, y, degree=1).evaluated_at(np.arange(3, 30, 4)), 1.0 / X.std(axis=0), 0.1)


def test_it_steps_aside():
    X, y = data(20, 1)
    for options in ({"engine": "tiled"}, {"kernel": "tricube"}, {"degree": 0}):
        assert not isinstance(Objective.of(X, y, **{"degree": 1, **options})._prepared, FewLines)
    many = data(int(np.sqrt(MAX_ENTRIES / 4)) + 1, 1)
    assert Objective.of(*many, degree=1)._prepared is None
    kept = Objective.of(X, y, degree=1)._prepared
    assert not kept.holds(np.array([1e100]))
    assert not kept.holds(np.eye(1))
