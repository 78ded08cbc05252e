"""Means at many w, laid out once: equal to the engines' two verbs, whatever w, weights, labels and places."""

from __future__ import annotations

import numpy as np
import pytest

from regard.bandwidth.objective import Objective
from regard.engines.cpu.prepared_tiles import TiledMeans
from support.generators import uneven as data

DECADES = np.arange(-8.0, 9.0)


def agree(objective, w):
    swept, pooled = objective(w, gradient=True), objective._pooled(w, 0.0, True)
    assert isinstance(objective._prepared, TiledMeans)
    assert np.isclose(swept.value, pooled.value, rtol=1e-11)
    assert np.allclose(swept.answer, pooled.answer, rtol=1e-10, atol=1e-10)
    # Where one key holds nearly all attention the slope is a small difference of large sums.
    assert np.allclose(
        w * swept.w, w * pooled.w, rtol=1e-8, atol=1e-9 * np.abs(w * swept.w).max() + 1e-12 * swept.value
    )
    assert swept.empty == pooled.empty
    assert objective(w).value == pytest.approx(swept.value, rel=1e-12)


@pytest.mark.parametrize("d", range(1, 9))
def test_it_is_what_the_engines_say(d):
    X, y = data(150, d)
    objective = Objective.of(X, y, engine="tiled")
    for decade in DECADES:
        agree(objective, 10.0**decade / X.std(axis=0))
        agree(objective, np.array(10.0**decade / X.std()))


@pytest.mark.parametrize("dtype", [int, float])
def test_weights_and_groups(dtype):
    X, y = data(200, 2)
    rng = np.random.default_rng(1)
    weight = rng.integers(1, 5, len(X)).astype(dtype)
    groups = rng.integers(0, 20, len(X))
    for options in ({"sample_weight": weight}, {"groups": groups}, {"sample_weight": weight, "groups": groups}):
        objective = Objective.of(X, y, engine="tiled", **options)
        for level in (0.01, 1.0, 30.0, 1e4):
            agree(objective, level / X.std(axis=0))


def test_importances_far_apart_still_count_where_they_stand():
    """A light key nearby must not make a tile of heavy keys far away look negligible."""
    rng = np.random.default_rng(2)
    X = np.r_[rng.normal(size=300), 8.0 + rng.normal(size=300)][:, None]
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=600)
    weight = np.r_[np.full(300, 1e-25), np.ones(300)]
    objective = Objective.of(X, y, sample_weight=weight, engine="tiled")
    for level in (0.3, 1.0, 1.5, 3.0):
        agree(objective, np.array([level]))


def test_skipped_tiles_do_not_show():
    X, y = data(1500, 2)
    objective = Objective.of(X, y, engine="tiled")
    for level in (0.1, 3.0, 30.0, 300.0):
        agree(objective, level / X.std(axis=0))
    agree(objective, np.array([5.0 / X[:, 0].std(), 0.0]))


def test_some_of_the_rows_only():
    X, y = data(300, 3)
    objective = Objective.of(X, y, engine="tiled").evaluated_at(np.arange(0, 300, 7))
    agree(objective, 2.0 / X.std(axis=0))


def test_equal_rows_and_constant_features():
    X, y = data(120, 3)
    X[:, 1] = 4.0
    X[30:60] = X[:30]
    agree(Objective.of(X, y, engine="tiled"), np.array([3.0, 1.0, 2.0]) / np.array([X[:, 0].std(), 1.0, X[:, 2].std()]))


@pytest.mark.parametrize("scale", [1e-120, 1e-40, 1e40, 1e120])
def test_units_far_from_one(scale):
    """Beyond squares that can be trusted the engines take over; the answer is the same."""
    X, y = data(150, 2)
    plain, scaled = Objective.of(X, y, engine="tiled"), Objective.of(scale * X, y, engine="tiled")
    w = 2.0 / X.std(axis=0)
    assert scaled(w / scale).value == pytest.approx(plain(w).value, rel=1e-10)
    assert np.allclose(scaled(w / scale, gradient=True).w * (w / scale), plain(w, gradient=True).w * w, rtol=1e-7)


def test_who_has_no_sweep():
    X, y = data(150, 2)
    for options in ({"degree": 1}, {"kernel": "laplace"}, {"criterion": "gcv"}, {"engine": "reference"}):
        assert Objective.of(X, y, **{"engine": "tiled", **options})._prepared is None
    assert Objective.of(X, np.c_[y, y], engine="tiled")._prepared is None
    assert Objective.of(*data(150, 9), engine="tiled")._prepared is None
