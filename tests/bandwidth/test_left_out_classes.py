"""Left-out class attention by products of matrices: literal deletion, the engines, finite differences."""

import numpy as np
import pytest

from regard.bandwidth import Objective
from regard.bandwidth.left_out_classes import LeftOutClasses

RNG = np.random.default_rng(31)
N, D, C = 120, 3, 4
X = RNG.normal(size=(N, D))
LABEL = (np.abs(X[:, 0] + X[:, 1] * X[:, 2]) * 2.0 + RNG.uniform(size=N)).astype(int) % C
W = np.diag([1.2, 0.6, 2.0]) + 0.2 * RNG.normal(size=(D, D))
CASES = {
    "plain": {},
    "importances": {"sample_weight": RNG.uniform(0.1, 3.0, N)},
    "repetitions": {"sample_weight": RNG.integers(1, 4, N)},
    "groups": {"groups": RNG.integers(0, 20, N)},
}


def classes_of(case, X=X, label=LABEL):
    objective = Objective.of(X, label, classes=C, **CASES[case])
    return objective, LeftOutClasses.of(objective, objective.key)


def deleted(case, factor, i, X=X):
    """Class probabilities of row i from the rows that stay when it is deleted, in long double."""
    weight = np.asarray(CASES[case].get("sample_weight", np.ones(N)), np.longdouble).copy()
    groups = CASES[case].get("groups", np.arange(N))
    if case == "repetitions":
        weight[i] -= 1.0
    else:
        weight[groups == groups[i]] = 0.0
    stays = weight > 0.0
    z = X.astype(np.longdouble) @ (factor * W).astype(np.longdouble)
    score = -0.5 * ((z[stays] - z[i]) ** 2).sum(axis=1)
    mass = weight[stays] * np.exp(score - score.max())
    return np.array([mass[LABEL[stays] == c].sum() for c in range(C)], np.float64) / float(mass.sum())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("factor", [0.01, 1.0, 5.0])
def test_answers_are_those_of_literal_deletion(case, factor):
    _, classes = classes_of(case)
    expected = np.stack([deleted(case, factor, i) for i in range(N)])
    np.testing.assert_allclose(classes.answer(factor * W), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(classes.answer(factor * W, single=True), expected, rtol=0, atol=1e-4)
    own = expected[np.arange(N), LABEL]
    found = classes(factor * W, derivatives=False).log_odds
    np.testing.assert_allclose(1.0 / (1.0 + np.exp(-found)), own, rtol=0, atol=1e-12)


def test_rows_far_from_the_others_are_computed_from_differences():
    far = X.copy()
    far[:3] += 1e7
    _, classes = classes_of("plain", far)
    expected = np.stack([deleted("plain", 1.0, i, far) for i in range(3)])
    np.testing.assert_allclose(classes.answer(W, np.arange(3)), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_the_log_loss_is_that_of_the_engines(case):
    objective, classes = classes_of(case)
    found = objective.loss(classes.answer(W), objective.rows, objective.counts).value
    assert found == pytest.approx(objective(W).value, rel=1e-10)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rank", [3, 1])
def test_derivatives_are_finite_differences(case, rank):
    _, classes = classes_of(case)
    rows, here, step = RNG.permutation(N)[:40], W[:, :rank], 1e-6
    found = classes(here, rows)
    for a in range(D):
        for b in range(rank):
            away = np.zeros(here.shape)
            away[a, b] = step
            up, down = (classes(here + sign * away, rows).log_odds for sign in (1.0, -1.0))
            np.testing.assert_allclose(found.by_metric[:, a, b], (up - down) / (2.0 * step), rtol=1e-5, atol=1e-6)
    diagonal = np.diag([1.0, 0.5, 2.0])
    found = classes(diagonal, rows, diagonal=True)
    for a in range(D):
        factor = np.ones(D)
        factor[a] = np.exp(step)
        up, down = (classes(diagonal @ np.diag(factor**sign), rows).log_odds for sign in (1.0, -1.0))
        np.testing.assert_allclose(found.by_metric[:, a], (up - down) / (2.0 * step), rtol=1e-5, atol=1e-6)


def test_a_weight_of_k_is_k_copies():
    times = CASES["repetitions"]["sample_weight"]
    _, weighted = classes_of("repetitions")
    copied = Objective.of(X.repeat(times, axis=0), LABEL.repeat(times), classes=C)
    copies = LeftOutClasses.of(copied, copied.key)
    np.testing.assert_allclose(weighted.answer(W).repeat(times, axis=0), copies.answer(W), atol=1e-12)
    one, many = weighted(W), copies(W)
    np.testing.assert_allclose(one.log_odds.repeat(times), many.log_odds, atol=1e-9)
    np.testing.assert_allclose(one.by_metric.repeat(times, axis=0), many.by_metric, atol=1e-9)


def test_the_order_of_rows_and_a_translation_change_nothing():
    _, classes = classes_of("plain")
    order = RNG.permutation(N)
    _, moved = classes_of("plain", X[order] + 1000.0, LABEL[order])
    np.testing.assert_allclose(moved.answer(W), classes.answer(W)[order], atol=1e-9)
    np.testing.assert_allclose(moved(W).log_odds, classes(W).log_odds[order], atol=1e-8)


def test_given_keys_are_the_only_ones():
    _, classes = classes_of("plain")
    rows, keys = np.arange(20), np.arange(20, N)
    z = X @ W
    weight = np.exp(-0.5 * ((z[rows][:, None] - z[keys][None]) ** 2).sum(axis=2))
    expected = weight @ np.eye(C)[LABEL[keys]] / weight.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(classes.answer(W, rows, keys), expected, atol=1e-12)


def test_a_class_of_one_row_and_a_row_without_keys():
    label = np.zeros(N, int)
    label[7] = 1
    objective = Objective.of(X, label, classes=2)
    classes = LeftOutClasses.of(objective, objective.key)
    found = classes(W)
    assert found.log_odds[7] < -500.0  # no other row is in its class
    assert np.isfinite(found.by_metric).all()
    np.testing.assert_allclose(classes.answer(W)[7], [1.0, 0.0], atol=1e-12)
    grouped = Objective.of(X[:4], LABEL[:4], classes=C, groups=[0, 0, 0, 1])
    alone = LeftOutClasses.of(grouped, grouped.key)
    np.testing.assert_allclose(alone.answer(W).sum(axis=1), 1.0)
