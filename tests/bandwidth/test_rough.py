"""Rough fits, for searches: single precision about the centres of tiles, held against the exact objective."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from regard.bandwidth.objective import MAX_CONDITION, MAX_PROJECTION, Objective


def data(n, d, seed=0, outputs=1):
    rng = np.random.default_rng([n, d, seed])
    X = rng.normal(size=(n, d)) * np.exp(rng.normal(size=d)) + 100.0 * rng.normal(size=d)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    y = np.stack([np.sin(Z + p).sum(axis=1) + 0.3 * rng.normal(size=n) for p in range(outputs)], axis=1)
    return X, y[:, 0] if outputs == 1 else y


def shapes(X, level, seed=1):
    d = X.shape[1]
    rng = np.random.default_rng(seed)
    w = level * np.exp(0.3 * rng.normal(size=d)) / X.std(axis=0)
    return w, w[:, None] * (np.eye(d) + 0.3 * rng.normal(size=(d, d)))


def close(objective, w, ridge, engine, value=1e-4, slope=3e-3):
    fine = replace(objective, engine=engine)
    rough = replace(fine, tol=1e-6, rough=True)
    a, b = fine(w, ridge, gradient=True), rough(w, ridge, gradient=True)
    assert rough._projected(np.asarray(w)) is not None
    assert b.value == pytest.approx(a.value, rel=value)
    assert np.abs(b.w - a.w).max() <= slope * (np.abs(a.w).max() + np.abs(a.value / w).max() * 1e-2)
    assert b.log_ridge == pytest.approx(a.log_ridge, rel=slope, abs=slope * a.value)
    assert np.allclose(a.answer, b.answer, rtol=1e-3, atol=1e-3 * np.abs(a.answer).max())
    assert a.value != b.value or not np.array_equal(a.answer, b.answer)


@pytest.mark.parametrize("engine", ["tiled", "pruned"])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_near_the_exact_objective(d, engine):
    X, y = data(400, d)
    objective = Objective.of(X, y, degree=1)
    for level in (0.1, 1.0, 5.0):
        for ridge in (1e-3, 0.1, 10.0):
            for w in shapes(X, level):
                close(objective, w, ridge, engine)


def test_one_w_several_outputs_weights_groups_and_some_rows():
    X, y = data(300, 3, outputs=2)
    rng = np.random.default_rng(2)
    close(Objective.of(X, y, degree=1), shapes(X, 1.0)[0], 0.1, "tiled")
    X, y = data(300, 3)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    close(Objective.of(X, y, degree=1), np.array(1.3), 0.1, "tiled")
    for weight in (rng.integers(1, 4, 300), rng.uniform(0.1, 3.0, 300)):
        close(Objective.of(X, y, degree=1, sample_weight=weight), np.array([1.0, 2.0, 0.5]), 0.1, "tiled")
    objective = Objective.of(X, y, degree=1, groups=rng.integers(0, 30, 300))
    close(objective.evaluated_at(np.arange(0, 300, 3)), np.array([1.0, 2.0, 0.5]), 0.1, "pruned")


def test_lonely_rows_are_done_in_double_precision():
    """At 30 bandwidths from the next row single precision knows no weight."""
    X, y = data(300, 2)
    X[:5] += 30.0 * X.std(axis=0)
    close(Objective.of(X, y, degree=1), shapes(X, 10.0)[0], 0.1, "tiled")
    close(Objective.of(X, y, degree=1), shapes(X, 10.0)[1], 0.1, "pruned")


def test_an_ignored_feature_stays_ignored():
    X, y = data(300, 3)
    w = shapes(X, 1.0)[0]
    w[1] = 0.0
    fine = Objective.of(X, y, degree=1, engine="tiled")
    a, b = fine(w, 0.1, gradient=True), replace(fine, tol=1e-6, rough=True)(w, 0.1, gradient=True)
    assert b.value == pytest.approx(a.value, rel=1e-5)
    assert b.w[1] == 0.0
    assert a.w[1] == pytest.approx(0.0, abs=1e-9 * np.abs(a.w).max())


def test_what_cannot_be_projected_is_computed_exactly():
    X, y = data(200, 2)
    rough = replace(Objective.of(X, y, degree=1, engine="tiled"), rough=True)
    narrow = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-9]]) / X.std(axis=0)[:, None]
    tall = np.array([[1.0], [2.0]]) / X.std(axis=0)[:, None]
    for w in (narrow, tall, 1e9 / X.std(axis=0)):
        assert rough._projected(np.asarray(w)) is None
        assert rough(w, 0.1).value == replace(rough, rough=False)(w, 0.1).value


def test_up_to_which_w_it_is_projected():
    """To the largest condition number and the largest coordinate that are accepted, and not beyond."""
    X, y = data(200, 2)
    rough = replace(Objective.of(X, y, degree=1, engine="tiled"), rough=True)
    for factor, projected in ((1.0, True), (0.99, False)):
        assert (rough._projected(np.array([1.0, factor / MAX_CONDITION])) is not None) == projected
    rough = replace(rough, key=np.array([[1.0], [-1.0]] * 100))
    for factor, projected in ((1.0, True), (1.01, False)):
        assert (rough._projected(np.array([factor * MAX_PROJECTION])) is not None) == projected


def test_nothing_is_projected_without_a_feature():
    X, y = data(200, 2)
    fine = Objective.of(X, y, degree=1, engine="tiled")
    for w in (np.zeros(2), np.zeros((2, 2)), np.array(0.0)):
        assert replace(fine, rough=True)._projected(w) is None
        assert replace(fine, rough=True)(w, 0.1).value == fine(w, 0.1).value


def test_a_matrix_that_ignores_a_feature():
    X, y = data(300, 3)
    w = np.array([[1.0, 0.2], [0.0, 0.0], [-0.3, 0.8]]) / X.std(axis=0)[:, None]
    fine = Objective.of(X, y, degree=1, engine="tiled")
    rough = replace(fine, tol=1e-6, rough=True)
    there, W, taken = rough._projected(w)
    assert there.key.dtype == np.float32
    assert there.key.shape == (300, 2)
    assert taken.tolist() == [True, False, True]
    assert np.array_equal(W, w[taken])
    a, b = fine(w, 0.1, gradient=True), rough(w, 0.1, gradient=True)
    assert b.value == pytest.approx(a.value, rel=1e-5)
    assert not b.w[1].any()
    assert np.allclose(b.w[taken], a.w[taken], atol=1e-3 * np.abs(a.w[taken]).max())


def test_a_distant_origin_costs_no_digits():
    """Rows are projected relative to their mean: single precision has no digits left for 1e5 deviations."""
    X, y = data(300, 2)
    close(Objective.of(X + 1e5 * X.std(axis=0), y, degree=1), shapes(X, 1.0)[0], 0.1, "tiled")
