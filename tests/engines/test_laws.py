"""Answers obey the laws of weighted averages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from regard.pooling.functions import attention_weights, pool
from regard.scores import KERNELS, RADIAL, Gaussian, Nearest
from support.agreement import SCORES, D, identical, near, same
from support.engines import EACH, PATHS, every_dtype, every_engine, taken, takes
from support.generators import OPTIONS, dyadic, make_inputs


@taken(PATHS, "everything")
def test_linear_in_the_values(score, engine):
    query, key, value, options = make_inputs("everything", 34, 40, 2, d=D)

    def run(values):
        return pool(query, key, values, SCORES[score], engine=engine, **options).output

    assert near(run(2.0 * value[:, 0] - 0.5 * value[:, 1]), 2.0 * run(value)[:, 0] - 0.5 * run(value)[:, 1])
    attended = run(np.ones(40)) != 0.0
    assert np.array_equal(run(np.full(40, 0.1))[attended], np.full(attended.sum(), 0.1))


@every_dtype
@taken([name for name in EACH if name not in ("dot", "additive")])
def test_translation_by_exact_offsets(score, dtype, engine):
    query, key, value, _ = make_inputs("plain", 34, 40, 1, d=D, dtype=dtype)
    query, key = (dyadic(array, 8).astype(dtype) for array in (query, key))
    expected = pool(query, key, value, SCORES[score], engine=engine)
    for offset in (64.0, -4096.0, 2.0**20):
        shift = (offset * np.array([1.0, -1.0, 0.5])).astype(dtype)
        assert identical(pool(query + shift, key + shift, value, SCORES[score], engine=engine), expected)


@every_engine
@pytest.mark.parametrize("name", KERNELS)
def test_units_cancel(name, engine):
    query, key, value, _ = make_inputs("plain", 34, 40, 1, d=D)
    expected = pool(query, key, value, RADIAL[name](0.5), engine=engine)
    for scale in (2.0**-300, 2.0**-20, 2.0**20, 2.0**300):
        got = pool(query * scale, key * scale, value, RADIAL[name](0.5 / scale), engine=engine)
        assert same(got, expected), scale


@every_engine
@every_dtype
@pytest.mark.parametrize("name", KERNELS)
def test_small_w_gives_the_mean_and_large_w_the_nearest(name, dtype, engine):
    query, key, value, _ = make_inputs("plain", 40, 50, 2, d=D, dtype=dtype)
    weight = np.random.default_rng(6).random(50)
    for w in (0.0, 1e-300, 1e-30):
        got = pool(query, key, value, RADIAL[name](w), sample_weight=weight, engine=engine)
        assert near(got.output, np.average(value.astype(float), axis=0, weights=weight), dtype)
    if not KERNELS[name].compact:
        nearest = pool(query, key, value, Nearest(), engine=engine).output
        for w in (1e6, 1e30, 1e100, 1e300):
            assert near(pool(query, key, value, RADIAL[name](w), engine=engine).output, nearest, dtype)


@every_engine
@every_dtype
def test_ties_are_shared_at_the_nearest(dtype, engine):
    """On a lattice with duplicates: the plain mean of all keys at the smallest distance."""
    rng = np.random.default_rng(12)
    key = rng.integers(-2, 3, (60, D)).astype(dtype)
    query = rng.integers(-4, 5, (50, D)).astype(dtype) / 2
    value = rng.normal(size=60).astype(dtype)
    squares = ((query[:, None] - key[None]) ** 2).sum(-1)
    shared = (squares == squares.min(axis=1, keepdims=True)).astype(float)
    expected = shared @ value.astype(float) / shared.sum(axis=1)
    assert shared.sum(axis=1).max() > 3
    for score in (
        Nearest(),
        Nearest(4.0),
        Nearest(np.eye(D)),
        Gaussian(1e6),
        Gaussian(1e50),
        Gaussian(1e200),
        Gaussian(2.0**40 * np.eye(D)),
    ):
        got = pool(query, key, value, score, engine=engine)
        assert near(got.output, expected, dtype), score
        if isinstance(score, Nearest):
            assert near(got.logsumexp, np.log(shared.sum(axis=1)), dtype)


@every_engine
@given(
    seed=st.integers(0, 10**6),
    row=st.sampled_from([(name, option) for name in sorted(SCORES) for option in OPTIONS]),
    Q=st.integers(1, 40),
    K=st.integers(1, 40),
)
def test_weights_times_values_is_the_output(engine, seed, row, Q, K):
    name, option = row
    assume(takes(engine, name, option))
    inputs = make_inputs(option, Q, K, 2, d=D, seed=seed)
    weights = attention_weights(inputs.query, inputs.key, SCORES[name], engine=engine, **inputs.options)
    output, logsumexp = pool(*inputs[:3], SCORES[name], engine=engine, **inputs.options)
    attended = np.isfinite(logsumexp)
    assert near(weights.sum(axis=1), attended)
    assert np.allclose(weights @ inputs.value, output, rtol=1e-12, atol=1e-12)
