"""Learning on a cluster: the leave-one-out criterion by map and reduce, and the searches over it."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import pytest
from sklearn.base import clone

import regard
from regard.bandwidth import subsampling
from regard.bandwidth.binary_scaling import powers_of_two
from regard.bandwidth.objective import Objective
from regard.bandwidth.search import learn
from regard.cluster import cluster_fit
from regard.cluster.blocked_rows import blocked_rows, with_summaries
from regard.cluster.cluster_objective import cluster_objective, divide_keys, learnable
from support.cuts import cut
from support.soak import FULL

RNG = np.random.default_rng(2)
# Beyond 512 rows a search does not look for further minima: some tens of evaluations instead of hundreds.
N = 520
X = RNG.normal(size=(N, 2)) * [1.0, 10.0] + [0.0, 100.0]
Y = np.sin(2.0 * X[:, 0]) + 0.2 * RNG.normal(size=N)
NUMBERS = (Y > 0).astype(int) + (Y > 0.5)
WEIGHTS = {"none": None, "repetitions": RNG.integers(0, 4, N), "importances": RNG.random(N) * (RNG.random(N) < 0.8)}
GROUPS = RNG.integers(0, 12, N)
W = np.array([1.7, 0.09])


def pair(kernel, degree, weights, kind, groups, *, alike=False):
    """The criterion of one machine, that of chunks, and the powers of two between them."""
    weight, target = WEIGHTS[weights], NUMBERS if kind == "classes" else Y
    loss = "absolute" if kind == "absolute" else "squared"
    common = {"kernel": kernel, "degree": degree, "loss": loss}
    here = Objective.of(
        X, target, sample_weight=weight, groups=groups, classes=3 if kind == "classes" else None, **common
    )
    parts = [None if part is None else cut(part, "ragged") for part in (X, target, weight, groups)]
    there, power = in_chunks(parts, alike, classes=3 if kind == "classes" else 0, **common)
    return here, there, power


def in_chunks(parts, alike, **options):
    """The criterion of X, y, weights and groups of dask, and the powers of two that its features are divided by."""
    (rows,) = with_summaries(blocked_rows("X", *parts, names=("y", "sample_weight", "groups")))
    power = powers_of_two(rows.overall_bounds("key"), common=alike)
    return cluster_objective(learnable(rows), partial(divide_keys, power=power), **options), power


CASES = [
    (kernel, degree, weights, kind, groups)
    for kernel, degree, weights, kind, groups in product(
        ("gaussian", "laplace", "epanechnikov"), (0, 1), WEIGHTS, ("squared", "absolute", "classes"), (False, True)
    )
    if not (degree and kind == "classes")
]
# Seven has no factor in common with the lengths of the lists: every entry meets every other.
CASES = CASES if FULL else CASES[::7] + CASES[3::7]


@pytest.mark.parametrize(("kernel", "degree", "weights", "kind", "groups"), CASES)
def test_the_criterion_and_its_gradient(kernel, degree, weights, kind, groups):
    here, there, power = pair(kernel, degree, weights, kind, GROUPS if groups else None)
    for ridge in (0.0, 0.1) if degree else (0.0,):
        a, b = here(W, ridge, gradient=True), there(np.ldexp(W, power), ridge, gradient=True)
        assert b.value == pytest.approx(a.value, rel=1e-12)
        assert np.allclose(np.ldexp(b.w, power), a.w, rtol=0, atol=1e-11 * np.abs(a.w).max())
        assert b.log_ridge == pytest.approx(a.log_ridge, abs=1e-12)
        assert b.empty == a.empty
        assert np.allclose(b.answer.compute(), a.answer, rtol=1e-10, atol=1e-11)
        assert np.allclose(np.ldexp(there.feature_scale, power), here.feature_scale, rtol=1e-12)
        assert there.size == pytest.approx(here.size)


@pytest.mark.parametrize("w", [np.asarray(0.3), np.array([[1.0, 0.2], [0.02, -0.1]])], ids=["scalar", "matrix"])
@pytest.mark.parametrize("degree", [0, 1])
def test_other_shapes_of_w(w, degree):
    here, there, power = pair("gaussian", degree, "none", "squared", None)
    power = power if w.ndim else np.full(2, power[0])
    scaled = np.ldexp(w, power[:, None] if w.ndim == 2 else power[0])
    if not w.ndim:
        parts = [cut(X, "ragged"), cut(Y, "ragged")]
        there, power = in_chunks(parts, True, kernel="gaussian", degree=degree)
        scaled = np.ldexp(w, power[0])
    a, b = here(w, 0.05, gradient=True), there(scaled, 0.05, gradient=True)
    assert b.value == pytest.approx(a.value, rel=1e-12)
    back = np.ldexp(b.w, power[:, None] if w.ndim == 2 else power[0])
    assert np.allclose(back, a.w, rtol=0, atol=1e-11 * np.abs(a.w).max())


def test_evaluating_some_rows():
    here, there, power = pair("gaussian", 0, "importances", "squared", None)
    rows = np.arange(0, len(here.key), 7)
    a, b = here.evaluated_at(rows)(W, gradient=True), there.evaluated_at(rows)(np.ldexp(W, power), gradient=True)
    assert b.value == pytest.approx(a.value, rel=1e-12)
    assert np.allclose(np.ldexp(b.w, power), a.w, rtol=1e-10)
    assert np.allclose(b.answer.compute(), a.answer)


@pytest.mark.parametrize(
    ("kernel", "degree", "kind", "metric", "ridge"),
    [
        ("gaussian", 0, "squared", "feature", 0.0),
        ("gaussian", 0, "squared", "scalar", 0.0),
        ("laplace", 0, "squared", "scalar", 0.0),
        ("gaussian", 0, "classes", "feature", 0.0),
        ("gaussian", 1, "squared", "scalar", None),
    ],
)
def test_a_search_ends_where_that_of_one_machine_does(kernel, degree, kind, metric, ridge):
    """Every evaluation by map and reduce: the same criterion to 1e-9, the same bandwidth to 1e-5."""
    here, there, power = pair(kernel, degree, "none", kind, None, alike=metric == "scalar")
    a, b = learn(here, metric, ridge=ridge), learn(there, metric, ridge=ridge)
    assert b.value == pytest.approx(a.value, rel=1e-9)
    assert np.allclose(np.ldexp(b.w, -power if b.w.ndim else -power[0]), a.w, rtol=1e-5)
    assert b.ridge == pytest.approx(a.ridge, rel=1e-5)
    assert np.allclose(b.answer.compute(), a.answer, atol=1e-6)


def test_rows_without_weight_have_no_left_out_answer(monkeypatch):
    monkeypatch.setattr(cluster_fit, "MAX_ROWS_ON_ONE_WORKER", 0)
    weight = WEIGHTS["importances"]
    model = regard.NadarayaWatsonRegressor(metric="scalar")
    model.fit(cut(X, "halves"), cut(Y, "halves"), cut(weight, "halves"))
    assert np.array_equal(np.isnan(model.loo_predictions_.compute()), weight == 0.0)


def many_rows(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.random((n, 1))
    return x, np.sin(9.0 * x[:, 0]) + 0.3 * rng.normal(size=n)


def test_one_worker_learns_what_one_machine_learns():
    """Up to a million rows, here 24,000 of them: the same steps, and all rows are evaluated in one dimension."""
    x, y = many_rows(24_000)
    here, there = regard.NadarayaWatsonRegressor().fit(x, y), regard.NadarayaWatsonRegressor()
    there.fit(cut(x, "halves"), cut(y, "halves"))
    assert there.search_.looked_at is None
    assert there.search_.value == pytest.approx(here.search_.value, rel=1e-12)
    assert np.allclose(there.bandwidth_, here.bandwidth_, rtol=1e-9)
    assert np.allclose(there.loo_predictions_, here.loo_predictions_, atol=1e-9)


@pytest.fixture
def tiny(monkeypatch):
    """Few rows are many."""
    for name, size in {
        "FIRST_SUBSAMPLE_ROWS": 200,
        "SUBSAMPLE_ROWS": 300,
        "EVALUATED_ROWS": 200,
        "ANSWERED_ROWS": 300,
    }.items():
        monkeypatch.setattr(subsampling, name, size)
    monkeypatch.setattr(cluster_fit, "MAX_ROWS_ON_ONE_WORKER", 0)
    monkeypatch.setattr(cluster_fit, "MAX_ROWS_ON_ONE_WORKER_FOR_HEADS", 0)
    return monkeypatch


def test_beyond_that_all_rows_are_evaluated_where_that_is_quick(tiny):
    """A subsample gives the start, and all rows, by map and reduce, the end."""
    tiny.setattr(subsampling, "MAX_SECONDS_PER_ROW", np.inf)
    x, y = many_rows(400)
    here, there = regard.NadarayaWatsonRegressor().fit(x, y), regard.NadarayaWatsonRegressor()
    there.fit(cut(x, "halves"), cut(y, "halves"))
    assert there.search_.looked_at is None
    assert there.search_.value == pytest.approx(here.search_.value, rel=1e-9)
    assert np.allclose(there.bandwidth_, here.bandwidth_, rtol=1e-5)


def test_where_pairs_cannot_be_avoided_subsamples_are_searched(tiny):
    tiny.setattr(subsampling, "MAX_SECONDS_PER_ROW", 0.0)
    x, y = many_rows(400)
    exact = regard.NadarayaWatsonRegressor().fit(x[:300], y[:300])
    model = regard.NadarayaWatsonRegressor().fit(cut(x, "halves"), cut(y, "halves"))
    assert model.search_.looked_at == 800
    assert np.allclose(model.bandwidth_, exact.bandwidth_, rtol=0.5)
    assert model.loo_predictions_.shape == (400,)


def test_subsamples_that_hold_every_row_learn_what_one_machine_learns(monkeypatch):
    """No more rows than a subsample has: w is not rescaled for a growth that there is not."""
    monkeypatch.setattr(cluster_fit, "MAX_ROWS_ON_ONE_WORKER", 0)
    monkeypatch.setattr(subsampling, "MAX_SECONDS_PER_ROW", 0.0)
    x, y = many_rows(400)
    here, there = regard.NadarayaWatsonRegressor().fit(x, y), regard.NadarayaWatsonRegressor()
    there.fit(cut(x, "halves"), cut(y, "halves"))
    assert np.allclose(there.bandwidth_, here.bandwidth_, rtol=1e-4)


def test_heads_from_a_subsample_and_last_steps_by_map_and_reduce(monkeypatch):
    monkeypatch.setattr(cluster_fit, "MAX_ROWS_ON_ONE_WORKER_FOR_HEADS", 0)
    for model, y in ((regard.KernelRegressor(), Y), (regard.KernelClassifier(), NUMBERS)):
        here, there = clone(model).fit(X, y), clone(model).fit(cut(X, "halves"), cut(y, "halves"))
        assert there.loo_score_ == pytest.approx(here.loo_score_, abs=1e-3)
        ask = "predict_proba" if hasattr(model, "predict_proba") else "predict"
        assert np.allclose(getattr(there, ask)(X[:9]), getattr(here, ask)(X[:9]), atol=0.01)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            regard.NadarayaWatsonRegressor(bandwidth="gcv"),
            "bandwidth='gcv' is learned from dask collections of at most 0 rows and 256 MB",
        ),
        (regard.NadarayaWatsonRegressor(optimizer="sgd"), "optimizer='sgd' takes dask collections of at most 0 rows"),
    ],
)
def test_what_is_not_learned_from_many(model, message, monkeypatch):
    monkeypatch.setattr(cluster_fit, "MAX_ROWS_ON_ONE_WORKER", 0)
    with pytest.raises(ValueError, match=message):
        model.fit(cut(X, "halves"), cut(Y, "halves"))


@pytest.mark.xdist_group("cluster")
def test_on_a_cluster_of_processes(on_cluster):
    here, there, power = pair("gaussian", 0, "none", "squared", None, alike=True)
    assert np.allclose(np.ldexp(learn(there, "scalar").w, -power[0]), learn(here, "scalar").w, rtol=1e-5)
