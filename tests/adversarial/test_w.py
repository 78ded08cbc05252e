"""Bad and extreme w, by line of the list: 23 to 30."""

from __future__ import annotations

import numpy as np
import pytest

from regard.pooling.functions import pool
from regard.scores import KERNELS, RADIAL, Gaussian
from support.engines import every_dtype, every_engine, every_kernel, few_and_many
from support.extremes import KEY, QUERY, SOFT, VALUE, arrays, close


def nearest_value(query, key, value):
    squares = ((query[:, None].astype(float) - key[None].astype(float)) ** 2).sum(-1)
    return value[squares.argmin(axis=1)]


@every_engine
@every_dtype
@few_and_many
@every_kernel
def test_23_24_vanishing_w_is_the_mean(name, queries, dtype, engine):
    """Also of data so far apart that squares overflow, where w ignores them."""
    query, key, value = arrays(dtype, queries)
    mean = value.astype(float).mean()
    for w in (0.0, 1e-300, 5e-324):
        for w_ in (w, np.full(2, w), np.full((2, 3), w)):
            assert close(pool(query, key, value, RADIAL[name](w_), engine=engine).output, mean, dtype), w_
    if dtype is np.float64:
        for w_ in (0.0, np.zeros(2), np.zeros((2, 3))):
            far = pool(query * 1e300, key * 1e300, value, RADIAL[name](w_), engine=engine)
            assert close(far.output, mean), w_


@every_engine
@every_dtype
@few_and_many
@pytest.mark.parametrize("name", SOFT)
def test_25_26_enormous_w_is_the_nearest_key(name, queries, dtype, engine):
    query, key, value = arrays(dtype, queries)
    for w in (1e8, 1e20, 1e50, 1e100, 1e200, 1e300, 1e308, np.finfo(float).max):
        for w_ in (w, np.full(2, w), np.diag([w, w])):
            output, logsumexp = pool(query, key, value, RADIAL[name](w_), engine=engine)
            assert np.array_equal(output, nearest_value(query, key, value)), w_
            assert np.isfinite(logsumexp).all(), w_


@every_engine
@pytest.mark.parametrize("name", [name for name in KERNELS if name not in SOFT])
def test_25_26_enormous_w_of_a_compact_kernel_reaches_only_itself(name, engine):
    for w in (1e8, 1e100, 1e200, 1e300, 1e308):
        output, logsumexp = pool(KEY, KEY, VALUE, RADIAL[name](w), engine=engine)
        assert np.array_equal(output, VALUE), w
        assert np.array_equal(logsumexp, np.zeros(50)), w
        assert np.isneginf(pool(KEY[:40] + 0.25, KEY, VALUE, RADIAL[name](w), engine=engine).logsumexp).all(), w


@every_engine
def test_26_a_w_beyond_single_precision_keeps_its_ratios(engine):
    """Data of 1e-38 times a w of 1e60: the second key is 1e22 bandwidths away and a tenth nearer than the third."""
    key = np.array([1.1e-38, 1e-38, 1.2e-38], np.float32)
    output = pool(
        np.zeros(40, np.float32), key, np.array([1.0, 2.0, 3.0], np.float32), Gaussian(1e60), engine=engine
    ).output
    assert np.array_equal(output, np.full(40, 2.0))
    small = pool(
        np.full(40, 3e38, np.float32),
        np.array([-3e38, 2e38], np.float32),
        np.array([0.0, 1.0], np.float32),
        Gaussian(5e-39),
        engine=engine,
    )
    assert np.allclose(small.output, 1.0 / (1.0 + np.exp(-0.5 * (3.0**2 - 0.5**2))), rtol=1e-4)


@pytest.mark.parametrize("w", [np.nan, np.inf, -np.inf, [1.0, np.nan]])
@every_kernel
def test_27_a_w_that_is_not_finite_is_an_error(name, w):
    with pytest.raises(ValueError, match="w must be finite"):
        pool(QUERY, KEY, VALUE, RADIAL[name](w))


@every_engine
@every_kernel
def test_28_negative_w_counts_by_size(name, engine):
    for w in (0.4, np.array([0.4, 0.8])):
        a, b = (pool(QUERY, KEY, VALUE, RADIAL[name](sign * w), engine=engine).output for sign in (1.0, -1.0))
        assert np.array_equal(a, b)


@every_kernel
def test_29_a_w_of_the_wrong_length_is_an_error(name):
    for w in (np.ones(3), np.ones((3, 2)), np.ones(0)):
        with pytest.raises(ValueError, match=r"w is for [03] features but key has 2"):
            pool(QUERY, KEY, VALUE, RADIAL[name](w))


@every_engine
@every_dtype
@every_kernel
def test_30_a_feature_with_w_zero_is_ignored(name, dtype, engine):
    query, key, value = arrays(dtype)
    without = pool(query[:, :1], key[:, :1], value, RADIAL[name](0.5), engine=engine)
    wild = query * np.array([1.0, 1e30], dtype), key * np.array([1.0, -1e30], dtype)
    for w in (np.array([0.5, 0.0]), np.array([[0.5], [0.0]])):
        for q, k in ((query, key), wild):
            got = pool(q, k, value, RADIAL[name](w), engine=engine)
            assert close(got.output, without.output, dtype)
            assert close(got.logsumexp, without.logsumexp, dtype)
