"""``pool_state``: any split of the keys, merged in any order, is ``pool`` of all of them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from regard import pool, pool_state
from regard.scores import Additive, Boxcar, DotProduct, Epanechnikov, Gaussian, Laplace, Nearest

SCORES = {
    "gaussian": Gaussian([1.0, 0.3]),
    "laplace": Laplace(2.0),
    "epanechnikov": Epanechnikov(0.6),
    "boxcar": Boxcar(0.2),
    "nearest": Nearest(1.0),
    "dot": DotProduct(),
    "additive": Additive(np.ones((3, 2)), -np.ones((3, 2)), [1.0, 0.5, -1.0]),
}
every_score = pytest.mark.parametrize("name", SCORES)


def problem(K=40):
    rng = np.random.default_rng(0)
    query = np.concatenate([rng.normal(size=(9, 2)), [[1e6, 0.0], [-1e160, 1e150]]])
    return query, rng.normal(size=(K, 2)), rng.normal(size=(K, 2))


def close(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


@every_score
@pytest.mark.parametrize("cuts", [(), (13,), (0, 1, 20, 20, 39)])
def test_any_split_is_pool(name, cuts):
    query, key, value = problem()
    query = query[:9] if name in ("dot", "additive") else query
    parts = np.split(np.arange(40), cuts)
    states = [pool_state(query, key[rows], value[rows], SCORES[name], tol=0.0) for rows in parts]
    expected = pool(query, key, value, SCORES[name], tol=0.0)
    close(states[0].merged(*states[1:]).pooled(), expected)
    close(states[-1].merged(*reversed(states[:-1])).pooled(), expected)
    middle = len(states) // 2
    if middle:
        close(
            states[0].merged(*states[1:middle]).merged(states[middle].merged(*states[middle + 1 :])).pooled(), expected
        )
    assert states[0].merged(*states[1:]).keys == 40


def test_masks_weights_and_labels_are_those_of_the_part():
    query, key, value = problem()
    rng = np.random.default_rng(1)
    options = {
        "mask": rng.random((11, 40)) < 0.7,
        "sample_weight": rng.random(40) * (rng.random(40) < 0.8),
        "exclude": (np.arange(11), np.arange(40) % 11),
    }
    states = [
        pool_state(
            query,
            key[rows],
            value[rows, 0],
            SCORES["gaussian"],
            tol=0.0,
            mask=options["mask"][:, rows],
            sample_weight=options["sample_weight"][rows],
            exclude=(options["exclude"][0], options["exclude"][1][rows]),
        )
        for rows in np.split(np.arange(40), [11, 30])
    ]
    close(states[0].merged(*states[1:]).pooled(), pool(query, key, value[:, 0], SCORES["gaussian"], tol=0.0, **options))


def test_nothing_to_attend_to():
    query, key, value = problem()
    none = pool_state(query, key[:0], value[:0], Gaussian())
    weightless = pool_state(query, key, value, Gaussian(), sample_weight=np.zeros(40))
    for state in (none, weightless, none.merged(weightless)):
        assert state.keys == 0
        assert not state.pooled().output.any()
        assert np.isneginf(state.pooled().logsumexp).all()
    close(
        none.merged(pool_state(query, key, value, Gaussian(), tol=0.0)).pooled(),
        pool(query, key, value, Gaussian(), tol=0.0),
    )


def test_a_state_can_be_sent():
    query, key, value = problem()
    state = pool_state(query, key[:20], value[:20], Gaussian())
    query_after = state.query.copy()
    query[:] = 0.0
    sent = pickle.loads(pickle.dumps(state))
    np.testing.assert_array_equal(sent.query, query_after)
    close(sent.pooled(), state.pooled())
    close(sent.merged(state).pooled()[:1], state.pooled()[:1])


def test_dtype_and_size():
    query, key, value = problem(1000)
    query, key, value = (part.astype(np.float32) for part in (query[:9], key, value))
    state = pool_state(query, key, value[:, 0], Gaussian())
    assert state.pooled().output.dtype == np.float32
    assert state.pooled().output.shape == (9,)
    assert len(pickle.dumps(state)) < 3000


def test_what_does_not_match_is_refused():
    query, key, value = problem()
    state = pool_state(query, key, value, Gaussian(2.0))
    for other, words in (
        (pool_state(query[:3], key, value, Gaussian(2.0)), "the same queries"),
        (pool_state(query, key, value, Gaussian(2.1)), "of one score"),
        (pool_state(query, key, value, Laplace(2.0)), "of one score"),
        (pool_state(query, key, value[:, 0], Gaussian(2.0)), r"one shape, got \(2,\) and \(\)"),
    ):
        with pytest.raises(ValueError, match=words):
            state.merged(other)
    with pytest.raises(TypeError, match="query must be an array, got a tensor"):
        pool_state(torch.ones(2, 1), key, value, Gaussian())
    with pytest.raises(ValueError, match="value has 39 rows but key has 40"):
        pool_state(query, key, value[:39], Gaussian())
