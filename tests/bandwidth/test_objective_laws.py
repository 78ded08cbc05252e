"""Laws of the leave-one-out objective: deletion, repetition, importance, groups, order, units, minibatches."""

from __future__ import annotations

import numpy as np
import pytest

from regard.bandwidth.objective import CRITERIA, Objective
from regard.pooling.functions import pool
from regard.scores import RADIAL
from support.engines import EXACT, KERNEL_PATHS, every_engine, sparse

every_kernel = pytest.mark.parametrize("name", RADIAL)
DEGREES = ("degree", "ridge"), [(0, 0.0), (1, 0.0), (1, 0.1)]
# Degrees of freedom are for ridge = 0.
CRITERIA_OF_DEGREES = (
    ("criterion", "degree", "ridge"),
    [*((c, degree, 0.0) for c in CRITERIA for degree in (0, 1)), ("loo", 1, 0.1)],
)
every_degree = pytest.mark.parametrize(*DEGREES)
every_criterion = pytest.mark.parametrize(*CRITERIA_OF_DEGREES)
each_kernel = ("name", RADIAL, KERNEL_PATHS)
W = (np.array(0.45), np.array([0.5, 0.3]), np.array([[0.4, 0.1], [-0.1, 0.3]]))


def example(n=30, seed=0):
    rng = np.random.default_rng([seed, n])
    X = rng.uniform(-1.5, 1.5, size=(n, 2))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=n)


def answered(x, key, y, score, degree, ridge, weight=None):
    """One query from the keys, literally: pool at degree 0, least squares at degree 1."""
    if degree == 0:
        return pool(x[None], key, y, score, sample_weight=weight, engine="reference").output[0]
    alpha = np.exp(score(x[None], key)[0]) * (1.0 if weight is None else weight)
    root = np.sqrt(alpha / alpha.sum())
    M = score.w if score.w.ndim == 2 else np.diag(np.broadcast_to(score.w, 2))
    z = (key - x) @ M
    ridge = ridge * (1.0 + ((root**2 @ z) ** 2).sum())
    design = np.concatenate([np.ones((len(z), 1)), z], axis=1) * root[:, None]
    extra = np.concatenate([np.zeros((2, 1)), np.sqrt(ridge) * np.eye(2)], axis=1)
    return np.linalg.lstsq(np.concatenate([design, extra]), np.r_[y * root, 0.0, 0.0], rcond=None)[0][0]


def same(a, b, rtol=1e-10):
    """Two evaluations agree in value, gradients and answers."""
    return (
        np.isclose(a.value, b.value, rtol=rtol)
        and np.allclose(a.w, b.w, rtol=1e3 * rtol, atol=1e2 * rtol)
        and np.isclose(a.log_ridge, b.log_ridge, rtol=1e3 * rtol, atol=1e2 * rtol)
        and a.empty == b.empty
    )


@sparse(*each_kernel, DEGREES, ("engine", EXACT))
def test_leaving_out_is_deleting(name, degree, ridge, engine):
    X, y = example()
    for w in W:
        score = RADIAL[name](w)
        found = Objective.of(X, y, kernel=name, degree=degree, engine=engine)(w, ridge)
        assert not found.empty
        expected = [
            answered(X[i], np.delete(X, i, axis=0), np.delete(y, i), score, degree, ridge) for i in range(len(y))
        ]
        assert np.allclose(found.answer[:, 0], expected, rtol=1e-9, atol=1e-10)
        assert np.isclose(found.value * y.var(), np.mean((y - expected) ** 2), rtol=1e-9)


@every_engine
@every_degree
def test_importances_leave_whole(degree, ridge, engine):
    """Also where they are whole numbers in floating dtype; errors are averaged by importance."""
    X, y = example()
    weight = np.random.default_rng(1).integers(0, 4, len(y)).astype(float)
    kept = np.flatnonzero(weight)
    score = RADIAL["gaussian"](W[1])
    expected = [
        answered(X[i], X[kept[kept != i]], y[kept[kept != i]], score, degree, ridge, weight[kept[kept != i]])
        for i in kept
    ]
    for scale in (1.0, 1e-290, 1e290):
        objective = Objective.of(X, y, degree=degree, sample_weight=weight * scale, engine=engine)
        found = objective(W[1], ridge)
        assert np.allclose(found.answer[:, 0], expected, rtol=1e-9)
        value = np.average((y[kept] - expected) ** 2, weights=weight[kept])
        assert np.isclose(objective.in_units_of_y(found.value), value, rtol=1e-9)


@sparse(*each_kernel, DEGREES, ("engine", EXACT))
def test_repetitions_are_copies_of_which_one_leaves(name, degree, ridge, engine):
    X, y = example()
    counts = np.random.default_rng(2).integers(0, 4, len(y))
    for w in (W[1], 3.0 * W[0]):
        options = {"kernel": name, "degree": degree, "engine": engine}
        weighted = Objective.of(X, y, sample_weight=counts, **options)(w, ridge, gradient=True)
        copied = Objective.of(X.repeat(counts, axis=0), y.repeat(counts), **options)(w, ridge, gradient=True)
        kept = counts > 0
        assert np.allclose(weighted.answer.repeat(counts[kept], axis=0), copied.answer, rtol=1e-9, atol=1e-10)
        assert np.isclose(weighted.value, copied.value, rtol=1e-10)
        if degree == 0 or ridge or not copied.empty:
            assert np.allclose(weighted.w, copied.w, rtol=1e-7, atol=1e-9)
        assert np.isclose(weighted.log_ridge, copied.log_ridge, rtol=1e-7, atol=1e-9)


def test_ones_are_no_weights_at_all():
    X, y = example()
    plain = Objective.of(X, y)(W[1], gradient=True)
    for weight in (np.ones(30, int), np.ones(30), np.full(30, 1e-300), np.ones(30, bool)):
        assert same(Objective.of(X, y, sample_weight=weight)(W[1], gradient=True), plain)


def test_two_copies_of_one_row_can_answer_each_other():
    found = Objective.of([[1.0]], [3.0], sample_weight=[2])(1.0)
    assert found.answer.tolist() == [[3.0]]
    with pytest.raises(ValueError, match="got 1 row"):
        Objective.of([[1.0]], [3.0], sample_weight=[2.0])


@every_engine
@every_degree
@pytest.mark.parametrize("name", ["gaussian", "tricube", "boxcar"])
def test_a_group_leaves_together(name, degree, ridge, engine):
    """Whatever its labels are called, with counts and without."""
    X, y = example()
    groups = np.random.default_rng(3).integers(0, 6, len(y))
    score = RADIAL[name](W[1])
    for weight in (None, np.random.default_rng(4).integers(1, 4, len(y))):
        expected = [
            answered(
                X[i],
                X[groups != groups[i]],
                y[groups != groups[i]],
                score,
                degree,
                ridge,
                None if weight is None else weight[groups != groups[i]],
            )
            for i in range(len(y))
        ]
        for labels in (groups, groups * -1000, groups.astype(float) / 8, np.array(list("abcdef"))[groups]):
            objective = Objective.of(
                X, y, kernel=name, degree=degree, groups=labels, sample_weight=weight, engine=engine
            )
            found = objective(W[1], ridge)
            assert np.allclose(found.answer[:, 0], expected, rtol=1e-9, atol=1e-10)
            value = np.average((y - expected) ** 2, weights=weight)
            assert np.isclose(objective.in_units_of_y(found.value), value, rtol=1e-9)


@every_kernel
def test_duplicates_stay(name):
    """A row is left out by identity: another one at its place answers for it."""
    X = np.array([[0.0, 0.0], [0.0, 0.0], [9.0, 9.0], [9.0, 9.0]])
    found = Objective.of(X, [1.0, 2.0, 5.0, 7.0], kernel=name)(100.0)
    assert np.allclose(found.answer[:, 0], [2.0, 1.0, 7.0, 5.0])
    assert found.empty == 0


@sparse(*each_kernel, CRITERIA_OF_DEGREES, ("engine", EXACT))
def test_order_does_not_matter(criterion, name, degree, ridge, engine):
    X, y = example()
    order = np.random.default_rng(5).permutation(len(y))
    options = {"kernel": name, "degree": degree, "criterion": criterion, "engine": engine}
    a = Objective.of(X, y, **options)(W[1], ridge, gradient=True)
    b = Objective.of(X[order], y[order], **options)(W[1], ridge, gradient=True)
    assert same(a, b)
    assert np.allclose(a.answer[order], b.answer, rtol=1e-10, atol=1e-11)


@every_engine
@every_criterion
@pytest.mark.parametrize("scale", [2.0**-40, 1.0, 2.0**40])
def test_units_do_not_matter(scale, criterion, degree, ridge, engine):
    """X moved and stretched with w shrunk, y moved and stretched: powers of two, so nothing is rounded on the way."""
    X, y = example()
    X = np.round(X * 2**20) / 2**20
    options = {"degree": degree, "criterion": criterion, "engine": engine}
    for w in W:
        plain = Objective.of(X, y, **options)(w, ridge, gradient=True)
        moved = Objective.of((X + 1024.0) * scale, y * scale + 8.0 * scale, **options)(w / scale, ridge, gradient=True)
        assert np.isclose(plain.value, moved.value, rtol=1e-9)
        assert np.allclose(plain.w, moved.w / scale, rtol=1e-7, atol=1e-9)
        assert np.allclose(plain.answer, moved.answer / scale - 8.0, rtol=1e-9, atol=1e-10)


@every_engine
@every_degree
@pytest.mark.parametrize("weighted", [False, True])
def test_a_minibatch_asks_some_rows_and_answers_with_all(weighted, degree, ridge, engine):
    X, y = example()
    weight = np.random.default_rng(6).integers(1, 4, len(y)) if weighted else None
    objective = Objective.of(X, y, degree=degree, sample_weight=weight, engine=engine)
    whole = objective(W[1], ridge, gradient=True)
    parts = np.array_split(np.random.default_rng(7).permutation(len(y)), 4)
    shares = [objective.counts[rows].sum() / objective.counts.sum() for rows in parts]
    found = [objective.evaluated_at(rows)(W[1], ridge, gradient=True) for rows in parts]
    for rows, part in zip(parts, found, strict=True):
        assert np.allclose(part.answer, whole.answer[rows], rtol=1e-12)
    # Values and gradients of all parts, by how much they count, are those of the whole.
    assert np.isclose(np.dot(shares, [part.value for part in found]), whole.value, rtol=1e-12)
    assert np.allclose(sum(s * p.w for s, p in zip(shares, found, strict=True)), whole.w, rtol=1e-9, atol=1e-12)
    assert np.isclose(np.dot(shares, [p.log_ridge for p in found]), whole.log_ridge, rtol=1e-9, atol=1e-12)


@every_engine
def test_a_staircase_has_no_slope(engine):
    X, y = example()
    found = Objective.of(X, y, kernel="boxcar", engine=engine)(W[1], gradient=True)
    assert not np.any(found.w)
    on_the_edge = Objective.of([[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0], kernel="boxcar", engine=engine)(1.0)
    assert np.allclose(on_the_edge.answer[:, 0], [2.0, 2.5, 2.0])  # edges are inside


@every_engine
@pytest.mark.parametrize("name", ["gaussian", "laplace"])
def test_far_rows_take_the_limit(name, engine):
    """Beyond every finite score a row is answered by its nearest other, and does not move with w."""
    X, y = example()
    found = Objective.of(X * 1e200, y, kernel=name, engine=engine)(1e150, gradient=True)
    distance = np.linalg.norm(X[:, None] - X[None], axis=-1) + np.diag(np.full(len(y), np.inf))
    assert np.allclose(found.answer[:, 0], y[distance.argmin(axis=1)])
    assert not np.any(found.w)
