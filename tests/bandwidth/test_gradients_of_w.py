"""Gradients of every criterion against derivatives at 80 bits, over twelve decades of w.

The line they are held to: with e_i the error of row i, α its weights, δ = key − query, and κ_i the condition number of
its least-squares problem (1 at degree 0),

    |error| ≤ 1e-8·|g| + Σ_i (2/n)|e_i| κ_i Σ_k α|lean|·(1e-14·|v − line| + 2⁻⁵¹·(|v| + |line|))·|δ_a|·Σ_b |δ_b w_br|

lean and line are 1 and f at degree 0, where for one feature the first term of the sum is the 1e-14·w·Σα|v − f|δ² of a
single query. The second is what a float64 can tell of v − f: it matters only where one key holds all but 1e-8 of the
weight, and both gradients are nearly zero.
"""

from __future__ import annotations

import numpy as np
import pytest

from regard.bandwidth.objective import Objective
from support import left_out
from support.engines import every_engine
from support.soak import FULL

every_shape = pytest.mark.parametrize("shape", ["scalar", "feature", "full"])
DECADES = np.arange(-6.0, 6.25, 0.25 if FULL else 1.0)
N = 26


def data(d, seed=0, n=N):
    rng = np.random.default_rng([d, seed])
    X = rng.normal(size=(n, d))
    return X, np.sin(2.0 * X[:, 0]) + X[:, -1] ** 2 + 0.3 * rng.normal(size=n)


def make_w(shape, d, level):
    rng = np.random.default_rng(d)
    if shape == "scalar":
        return np.array(level)
    if shape == "feature":
        return level * np.exp(0.5 * rng.normal(size=d))
    return level * (np.eye(d) + 0.3 * rng.normal(size=(d, d)))


def unit_columns(y):
    """y as the objective stores it: centred, of unit variance."""
    return ((y - y.mean()) / y.std())[:, None]


def of_its_shape(per_entry, w):
    """A (d, d) array of per-entry numbers as those of w."""
    if np.ndim(w) == 2:
        return per_entry
    return np.diag(per_entry) if np.ndim(w) == 1 else np.trace(per_entry)


def rounding(X, v, w, degree, ridge, own=False):
    """All of the line above but 1e-8·|g|."""
    found = left_out.answers(X, v, w, degree=degree, ridge=ridge, own=own)
    delta = np.abs(X[None] - X[:, None])
    reach = delta @ np.abs(left_out.as_matrix(w, X.shape[1]).real)
    values = np.broadcast_to(v[None], found.line.shape)
    grain = 1e-14 * np.abs(values - found.line) + 2.0**-51 * (np.abs(values) + np.abs(found.line))
    error = np.abs(found.output - v) / v.shape[1]
    pair = np.abs(found.alpha * found.lean) * (error[:, None] * grain).sum(-1) * found.condition[:, None]
    return of_its_shape(2.0 / len(X) * np.einsum("qk,qka,qkr->ar", pair, delta, reach), w)


def held(got, truth, grain, where):
    assert np.isfinite(got).all(), where
    error = np.abs(got - truth)
    allowed = 1e-8 * np.abs(truth) + grain
    assert (error <= allowed).all(), f"{where}: error {error}, allowed {allowed}, gradient {truth}"


def check(X, y, w, degree, ridge, criterion, engine, where):
    v = unit_columns(y)
    found = Objective.of(X, y, degree=degree, criterion=criterion, engine=engine)(w, ridge, gradient=True)

    def exact(w):
        return left_out.criterion(X, v, w, criterion, degree=degree, ridge=ridge)

    truth = left_out.slope(exact, w)
    held(found.w, truth, rounding(X, v, w, degree, ridge, own=criterion != "loo"), where)
    condition = left_out.answers(X, v, w, degree=degree, ridge=ridge, own=criterion != "loo").condition.max()
    assert abs(found.value - np.real(exact(w))) <= 1e-13 * condition * (1.0 + abs(found.value)), where


@every_engine
@every_shape
@pytest.mark.parametrize("d", [1, 3])
def test_means(d, shape, engine):
    X, y = data(d)
    for decade in DECADES:
        check(X, y, make_w(shape, d, 10.0**decade), 0, 0.0, "loo", engine, f"w = 1e{decade}")


@every_engine
@every_shape
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("ridge", [1e-2, 1.0])
def test_lines_with_a_ridge(ridge, d, shape, engine):
    X, y = data(d)
    for decade in DECADES:
        check(X, y, make_w(shape, d, 10.0**decade), 1, ridge, "loo", engine, f"w = 1e{decade}")


@every_engine
@every_shape
@pytest.mark.parametrize("d", [1, 3])
def test_lines_without_a_ridge(d, shape, engine):
    """Up to where the neighbourhoods still span every direction: beyond, the line is the one of least norm."""
    X, y = data(d)
    for decade in (*np.arange(-12.0, 0.0, 2.0), -0.2, 0.0):
        check(X, y, make_w(shape, d, 10.0**decade), 1, 0.0, "loo", engine, f"w = 1e{decade}")


@every_engine
@every_shape
@pytest.mark.parametrize("criterion", ["gcv", "aicc"])
@pytest.mark.parametrize("degree", [0, 1])
def test_penalised_criteria(degree, criterion, shape, engine):
    """Up to where rows still see others than themselves: beyond, nothing is left to charge for."""
    for d in (1, 2):
        X, y = data(d)
        for decade in (*np.arange(-12.0, 0.0, 2.0), -0.2, 0.0, 0.2):
            check(X, y, make_w(shape, d, 10.0**decade), degree, 0.0, criterion, engine, f"d = {d}, w = 1e{decade}")


@every_engine
@pytest.mark.parametrize("ridge", [1e-6, 1e-2, 1.0, 1e3])
def test_the_ridge(ridge, engine):
    """By log λ, where W is what standard scaling and a moderate bandwidth give."""
    X, y = data(2)
    v = unit_columns(y)
    for level in (1e-3, 0.1, 1.0, 4.0, 30.0):
        found = Objective.of(X, y, degree=1, engine=engine)(level, ridge, gradient=True)

        def exact(log_ridge, level=level):
            return left_out.criterion(X, v, level, degree=1, ridge=np.exp(log_ridge))

        truth = left_out.slope(exact, np.log(np.longdouble(ridge)))
        condition = left_out.answers(X, v, level, degree=1, ridge=ridge).condition.max()
        assert abs(found.log_ridge - truth) <= 1e-8 * abs(truth) + 1e-15 * condition


@every_engine
@pytest.mark.parametrize(
    "kernel", ["laplace", "triangular", "epanechnikov", "biweight", "triweight", "tricube", "cosine"]
)
@pytest.mark.parametrize("degree", [0, 1])
def test_other_kernels(kernel, degree, engine):
    """Where no row is empty; a pair that enters or leaves has no slope to compare."""
    X, y = data(2, n=40)
    X = np.tanh(X)
    v = unit_columns(y)
    for ridge in (0.0, 0.1)[: 1 + degree]:
        for w in (np.array(0.4), np.array([0.5, 0.3]), np.array([[0.4, 0.1], [-0.1, 0.3]])):
            options = {"kernel": kernel, "degree": degree}
            found = Objective.of(X, y, **options, engine=engine)(w, ridge, gradient=True)
            assert not found.empty
            truth = left_out.slope(lambda w: left_out.criterion(X, v, w, ridge=ridge, **options), w)  # noqa: B023
            held(found.w, truth, rounding(X, v, w, degree, ridge), kernel)


@every_engine
def test_log_loss(engine):
    X, _ = data(2)
    labels = (X[:, 0] + 0.5 * np.random.default_rng(1).normal(size=N) > 0.0).astype(int) + (X[:, 1] > 1.0)
    onehot = np.eye(3)[labels]

    def exact(w):
        p = (left_out.answers(X, onehot, w).output * onehot).sum(axis=1)
        return -np.log((N * p + onehot.mean(axis=0)[labels]) / (N + 1)).sum() / N

    for decade in DECADES:
        w = make_w("feature", 2, 10.0**decade)
        found = Objective.of(X, labels, classes=3, engine=engine)(w, gradient=True)
        truth = left_out.slope(exact, w)
        p = (left_out.answers(X, onehot, w).output * onehot).sum(axis=1).real
        answers = left_out.answers(X, onehot, w)
        residual = np.abs((onehot[None] - answers.output[:, None]) * onehot[:, None]).sum(-1)
        factor = N / (N + 1) / ((N * p + onehot.mean(axis=0)[labels]) / (N + 1)) / N
        delta = X[None] - X[:, None]
        grain = 1e-14 * residual + 2.0**-51
        held(
            found.w, truth, w * np.einsum("q,qk,qk,qka->a", factor, np.abs(answers.alpha), grain, delta**2), f"{decade}"
        )
        assert abs(found.value - exact(w).real) <= 1e-11


@every_engine
def test_weights_and_groups(engine):
    """Repetitions as copies, groups as sums over deleted problems."""
    X, y = data(2)
    rng = np.random.default_rng(3)
    counts, groups = rng.integers(1, 4, N), rng.integers(0, 9, N)
    for w in (0.3, np.array([2.0, 0.7])):
        for degree, ridge in ((0, 0.0), (1, 0.0), (1, 0.1)):
            weighted = Objective.of(X, y, degree=degree, sample_weight=counts, engine=engine)(w, ridge, gradient=True)
            copied = Objective.of(X.repeat(counts, axis=0), y.repeat(counts), degree=degree, engine=engine)
            found = copied(w, ridge, gradient=True)
            assert np.allclose(weighted.w, found.w, rtol=1e-9, atol=1e-12)
            assert np.isclose(weighted.log_ridge, found.log_ridge, rtol=1e-9, atol=1e-12)
            objective = Objective.of(X, y, degree=degree, groups=groups, engine=engine)
            got = np.atleast_1d(objective(w, ridge, gradient=True).w)
            for i in range(got.size):
                bump = 1e-6 * np.eye(got.size)[i].reshape(np.shape(w))
                up, down = objective(w + bump, ridge).value, objective(w - bump, ridge).value
                assert np.isclose(got[i], (up - down) / 2e-6, rtol=1e-6, atol=1e-8)
