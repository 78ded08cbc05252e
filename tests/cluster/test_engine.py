"""``engine="dask"``: ordinary arrays, answered block by block by workers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

import regard
from regard.pooling import planner
from regard.pooling.local_pooling import pool_local
from regard.scores import Gaussian
from support.generators import OPTIONS, make_inputs, score_table

# One of each way; what a worker does with it is tested elsewhere.
WAYS = ("gaussian-scalar", "laplace-feature", "epanechnikov-matrix", "nearest-scalar", "dot", "additive")
SCORES = {name: score for name, score in score_table(3).items() if name in WAYS}
RNG = np.random.default_rng(3)
X = RNG.normal(size=(90, 2))
Y = np.sin(2.0 * X[:, 0])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(planner, "SENT_PAIRS", 1)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("score", SCORES)
def test_the_numbers_of_this_machine(score, option):
    inputs = make_inputs(option, 75, 40, 2)
    truth = regard.pool(*inputs[:3], SCORES[score], tol=0.0, **inputs.options)
    got = regard.pool(*inputs[:3], SCORES[score], tol=0.0, engine="dask", **inputs.options)
    assert np.allclose(got.output, truth.output, rtol=1e-12, atol=1e-12)
    assert np.allclose(got.logsumexp, truth.logsumexp, rtol=1e-12)
    weights = regard.attention_weights(*inputs[:2], SCORES[score], engine="dask", **inputs.options)
    assert np.allclose(
        weights, regard.attention_weights(*inputs[:2], SCORES[score], **inputs.options), rtol=1e-12, atol=1e-14
    )


def test_gradients():
    for degree in (0, 1):
        found = []
        for engine in ("tiled", "dask"):
            _, _, local = pool_local(X, X, Y[:, None], Gaussian([1.0, 2.0]), degree=degree, ridge=0.1, engine=engine)
            found.append(local.gradients(np.ones((90, 1)), frozenset({"w", "query"})))
        here, there = found
        assert np.allclose(there.w, here.w, rtol=1e-11)
        assert np.allclose(there.query, here.query, rtol=1e-11, atol=1e-13)


def test_estimators_learn_and_predict_by_it():
    for kind in (regard.NadarayaWatsonRegressor, regard.LocalLinearRegressor):
        here, there = kind(bandwidth=0.3).fit(X, Y), kind(bandwidth=0.3, engine="dask").fit(X, Y)
        assert np.allclose(there.predict(X), here.predict(X), rtol=1e-12)
    learned = regard.NadarayaWatsonRegressor(metric="scalar", engine="dask").fit(X[:40], Y[:40])
    assert np.allclose(learned.w_, regard.NadarayaWatsonRegressor(metric="scalar").fit(X[:40], Y[:40]).w_, rtol=1e-5)


def test_the_plan_says_where():
    plan = regard.explain_plan(X, X, Y, Gaussian(), engine="dask")
    assert [step.engine for step in plan.steps] == ["dask"]
    assert "on dask workers" in str(plan)


def test_no_queries_and_no_keys():
    assert regard.pool(np.zeros((0, 2)), X, Y, Gaussian(), engine="dask").output.shape == (0,)
    assert np.isneginf(regard.pool(X, np.zeros((0, 2)), np.zeros(0), Gaussian(), engine="dask").logsumexp).all()


@pytest.mark.xdist_group("cluster")
def test_on_a_cluster_of_processes(on_cluster):
    got = regard.pool(X, X, Y, Gaussian(3.0), engine="dask", tol=0.0)
    assert np.allclose(got.output, regard.pool(X, X, Y, Gaussian(3.0), tol=0.0).output, rtol=1e-12)


@pytest.mark.xdist_group("cluster")
def test_under_joblib(on_cluster):
    """Estimators are sent to workers when joblib spreads fits over a cluster."""
    from joblib import parallel_config

    model = regard.NadarayaWatsonRegressor(bandwidth=0.3)
    with parallel_config(backend="dask"):
        there = cross_val_score(model, X, Y, cv=3, n_jobs=2)
    assert np.allclose(there, cross_val_score(model, X, Y, cv=3))
