"""Local means and lines from moments: against least squares on the keys themselves, and their adjoint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from regard.core.arrays import as_numpy
from regard.core.local_fits import local_adjoint, local_fit
from regard.core.problem import build
from regard.core.state import Partial
from regard.pooling.local_pooling import fit_local
from regard.scores import RADIAL, Gaussian
from support import oracle
from support.engines import EXACT, KERNEL_PATHS, every_engine, sparse
from support.generators import W_KINDS, make_w

every_kind = pytest.mark.parametrize("kind", W_KINDS)
RIDGES = [0.0, 1e-3, 0.5]
every_ridge = pytest.mark.parametrize("ridge", RIDGES)


def example(d, P=2, Q=4, K=20, seed=0):
    rng = np.random.default_rng([seed, d, P])
    return rng.normal(size=(Q, d)), rng.normal(size=(K, d)), rng.normal(size=(K, P))


def as_matrix(w, d):
    return w if np.ndim(w) == 2 else np.diag(np.broadcast_to(w, d))


def state(s, query, key, value, degree=2):
    """The state of scores (Q, K) over all keys."""
    peak = s.max(axis=1)
    e = np.exp(s - peak[:, None])
    products = oracle.products(query, key, value, degree, np.float64)
    return Partial(peak, e.sum(axis=1), np.einsum("qk,qkm->qm", e, products))


def least_squares(weight, z, v, ridge):
    """Height and slopes of one query's line through (z, v), by lstsq with the ridge λ(1 + ‖z̄‖²) as r more rows."""
    root = np.sqrt(weight / weight.sum())
    r = z.shape[1]
    ridge = ridge * (1.0 + ((root**2 @ z) ** 2).sum())
    rows = np.concatenate([np.ones((len(z), 1)), z], axis=1) * root[:, None]
    extra = np.concatenate([np.zeros((r, 1)), np.sqrt(ridge) * np.eye(r)], axis=1)
    right = np.concatenate([v * root[:, None], np.zeros((r, v.shape[1]))])
    return np.linalg.lstsq(np.concatenate([rows, extra]), right, rcond=None)[0]


@every_kind
@every_ridge
@pytest.mark.parametrize("d", [1, 2, 4])
def test_a_line_is_least_squares(d, ridge, kind):
    query, key, value = example(d)
    w = make_w(kind, d)
    if ridge == 0.0 and np.ndim(w) == 2:
        w = w[:, :1] + np.eye(d)  # without a ridge W has to span every feature
    fit = local_fit(state(Gaussian(w)(query, key), query, key, value), 2, d, 1, np.asarray(w), ridge)
    W = as_matrix(w, d)
    for q in range(len(query)):
        weight = np.exp(Gaussian(w)(query[q : q + 1], key)[0])
        solved = least_squares(weight, (key - query[q]) @ W, value, ridge)
        assert np.allclose(fit.output[q], solved[0], rtol=1e-10, atol=1e-11)
        assert np.allclose(fit.slope[q], (W @ solved[1:]).T, rtol=1e-9, atol=1e-10)


@sparse("name", RADIAL, KERNEL_PATHS, ("degree", [0, 1]), ("ridge", RIDGES), ("engine", EXACT))
def test_every_kernel_in_every_engine(name, degree, ridge, engine):
    query, key, value = example(2, K=60)
    score = RADIAL[name](0.4)
    local = fit_local(build(query, key, value, score), degree, ridge, engine)
    for q in range(len(query)):
        weight = np.exp(score(query[q : q + 1], key)[0])
        z = 0.4 * (key - query[q])[:, : 2 * degree]
        assert np.allclose(local.fit.output[q], least_squares(weight, z, value, ridge)[0], rtol=1e-9, atol=1e-10)


@every_ridge
def test_left_makes_the_output_out_of_the_values(ridge):
    query, key, value = example(3)
    s = Gaussian(0.5)(query, key)
    fit = local_fit(state(s, query, key, value), 2, 3, 1, np.array(0.5), ridge)
    alpha = np.exp(s) / np.exp(s).sum(axis=1, keepdims=True)
    x = np.concatenate([np.ones((*s.shape, 1)), key[None] - query[:, None]], axis=2)
    assert np.allclose(np.einsum("qk,qkx,qx,kp->qp", alpha, x, fit.left, value), fit.output, rtol=1e-11)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("w", [1e-9, 0.3, 1.0])
def test_a_plane_is_reproduced(d, w):
    query, key, _ = example(d)
    slopes = np.arange(1.0, 1.0 + 2 * d).reshape(d, 2)
    local = fit_local(build(query, key, key @ slopes + 3.0, Gaussian(w)), 1)
    assert np.allclose(local.fit.output, query @ slopes + 3.0, rtol=1e-10)
    assert np.allclose(local.fit.slope, slopes.T, rtol=1e-9)


@every_kind
def test_the_ridge_leads_from_line_to_mean(kind):
    query, key, value = example(3)
    problem = build(query, key, value, Gaussian(np.eye(3) if kind == "matrix" else make_w(kind, 3)))
    line, mean = fit_local(problem, 1).fit, fit_local(problem, 0).fit
    assert np.allclose(fit_local(problem, 1, 1e-12).fit.output, line.output, rtol=1e-8)
    assert np.allclose(fit_local(problem, 1, 1e12).fit.output, mean.output, rtol=1e-8)
    gaps = [np.abs(fit_local(problem, 1, ridge).fit.output - mean.output).max() for ridge in (0.1, 10.0, 1e3)]
    assert gaps[0] > gaps[1] > gaps[2] > 0.0
    assert mean.slope.shape == (len(query), 2, 0)


@every_ridge
@every_engine
def test_one_key_in_reach_is_a_flat_line(ridge, engine):
    """Also where the others are there but weigh next to nothing, and where the key is far away."""
    key = np.array([[0.0, 1.0], [50.0, 60.0], [70.0, -90.0]])
    value = np.array([[2.0], [5.0], [-7.0]])
    for query in ([[0.1, 0.9]], [[4.0, 3.0]], [[-3e3, 2e3]]):
        for score in (Gaussian(1e3), Gaussian(1e5)):
            fit = fit_local(build(np.array(query), key[:1], value[:1], score), 1, ridge, engine).fit
            assert np.abs(fit.output - 2.0).max() <= 1e-12
            assert np.abs(fit.slope).max() <= 1e-9
            among = fit_local(build(np.array(query), key, value, score), 1, ridge, engine).fit
            assert np.abs(among.output - 2.0).max() <= 1e-9


def test_directions_without_variation_have_slope_zero():
    """Keys on a line in the plane, and a feature that does not vary: the least slope that fits, in units of spread."""
    t = np.linspace(-1.0, 1.0, 9)
    query = np.array([[0.2, 0.2]])
    diagonal = fit_local(build(query, np.stack([t, t], 1), 3.0 * t[:, None], Gaussian(0.5)), 1).fit
    assert np.allclose(diagonal.output, 0.6)
    assert np.allclose(diagonal.slope, 1.5)
    stretched = fit_local(build(query * [1, 1e6], np.stack([t, 1e6 * t], 1), 3.0 * t[:, None], Gaussian([0.5, 0])), 1)
    assert np.allclose(stretched.fit.output, 0.6)
    assert np.allclose(stretched.fit.slope, [1.5, 1.5e-6])
    constant = fit_local(build(query, np.stack([t, 0 * t + 7.0], 1), 3.0 * t[:, None], Gaussian([0.5, 0])), 1).fit
    assert np.allclose(constant.output, 0.6)
    assert np.allclose(constant.slope, [3.0, 0.0])


@every_ridge
@pytest.mark.parametrize("degree", [0, 1])
def test_empty_rows(degree, ridge):
    query, key, value = example(2)
    query[1] = 100.0
    local = fit_local(build(query, key, value, RADIAL["tricube"](0.2)), degree, ridge)
    assert local.settled.tolist() == [False, True, False, False]
    assert not local.fit.output[1].any()
    assert not local.fit.slope[1].any()
    found = local.gradients(np.ones((4, 2)), frozenset({"w", "query"}))
    assert np.isfinite(found.w).all()
    assert not found.query[1].any()


@every_kind
@pytest.mark.parametrize("ridge", [1e-3, 0.5])
def test_w_and_ridge_with_the_weights_held_fixed(ridge, kind):
    query, key, value = example(3)
    W = as_matrix(make_w(kind, 3), 3)
    partial = state(Gaussian(0.5)(query, key), query, key, value)
    cotangent = np.random.default_rng(5).normal(size=(4, 2))

    def total(W, ridge):
        return float((local_fit(partial, 2, 3, 1, W, ridge).output * cotangent).sum())

    back = local_adjoint(local_fit(partial, 2, 3, 1, W, ridge), cotangent, W, ridge)
    step = 1e-6
    for index in np.ndindex(W.shape):
        bump = np.zeros_like(W)
        bump[index] = step
        slope = (total(W + bump, ridge) - total(W - bump, ridge)) / (2 * step)
        assert np.isclose(back.w[index], slope, rtol=1e-6, atol=1e-8)
    slope = (total(W, ridge * np.exp(step)) - total(W, ridge * np.exp(-step))) / (2 * step)
    assert np.isclose(back.log_ridge, slope, rtol=1e-6, atol=1e-8)


@every_ridge
@every_kind
def test_tensors_are_fitted_as_arrays_are(ridge, kind):
    torch = pytest.importorskip("torch")
    query, key, value = example(3)
    W = as_matrix(make_w(kind, 3), 3)
    cotangent = np.random.default_rng(5).normal(size=(4, 2))
    partial = state(Gaussian(0.5)(query, key), query, key, value)
    there = partial._replace(moments=torch.tensor(partial.moments))
    fits = [local_fit(one, 2, 3, 1, W, ridge) for one in (partial, there)]
    assert isinstance(fits[1].left, torch.Tensor) == (ridge > 0.0)
    for array, tensor in zip(*fits, strict=True):
        assert np.allclose(array, as_numpy(tensor), rtol=1e-11, atol=1e-12)
    here, there = (local_adjoint(fit, cotangent, W, ridge) for fit in fits)
    assert np.isclose(here.log_ridge, there.log_ridge, rtol=1e-10)
    for array, tensor in zip((*here.adjoint, here.w, here.query), (*there.adjoint, there.w, there.query), strict=True):
        assert (array is None) == (tensor is None)
        assert array is None or np.allclose(array, as_numpy(tensor), rtol=1e-10, atol=1e-11)


@every_ridge
@pytest.mark.parametrize("degree", [0, 1])
def test_the_cotangent_of_a_score(degree, ridge):
    """weight·((left·x)(f̄·v − right·x) + plain·x), whatever the scores are."""
    query, key, value = example(2, Q=1, K=7)
    s = np.random.default_rng(6).normal(size=(1, 7))
    w, cotangent = np.array([0.7, 1.3]), np.array([[1.5, -0.5]])

    def fit(s):
        return local_fit(state(s, query, key, value, 2 * degree), 2, 2, degree, w, ridge)

    back = local_adjoint(fit(s), cotangent, np.diag(w), ridge)
    alpha = np.exp(s[0]) / np.exp(s[0]).sum()
    x = np.concatenate([np.ones((7, 1)), key - query], axis=1)[:, : back.adjoint.left.shape[1]]
    given = alpha * ((x @ back.adjoint.left[0]) * (value @ back.adjoint.value[0] - x @ back.adjoint.right[0]))
    if back.adjoint.plain is not None:
        given += alpha * (x @ back.adjoint.plain[0])
    for k in range(7):
        bump = 1e-6 * np.eye(7)[k]
        slope = ((fit(s + bump).output - fit(s - bump).output) * cotangent).sum() / 2e-6
        assert np.isclose(given[k], slope, rtol=1e-6, atol=1e-9)


@every_engine
@every_ridge
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", ["gaussian", "laplace", "tricube", "epanechnikov"])
def test_how_answers_move_with_the_query(name, degree, ridge, engine):
    """Marginal effects ∂f/∂x against finite differences."""
    query, key, value = example(2, K=60)
    for w in (0.4, np.array([0.5, 0.3]), np.array([[0.4, 0.1], [0.0, 0.3]])):
        problem = build(query, key, value, RADIAL[name](w))
        cotangent = np.random.default_rng(7).normal(size=(4, 2))
        got = fit_local(problem, degree, ridge, engine).gradients(cotangent, frozenset({"query"})).query

        def total(moved, problem=problem, cotangent=cotangent):
            return (fit_local(replace(problem, query=moved), degree, ridge, engine).fit.output * cotangent).sum(axis=1)

        for a in range(2):
            bump = 1e-6 * np.eye(2)[a]
            slope = (total(query + bump) - total(query - bump)) / 2e-6
            assert np.allclose(got[:, a], slope, rtol=2e-6, atol=1e-7)
