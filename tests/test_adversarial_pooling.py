"""Bad and extreme input to ``pool``, by line of the list: 23 to 34, 37 to 39, 41 to 50."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from generators import DTYPES, ENGINES, make_inputs, score_table
from regard.pooling import attention_weights, pool
from regard.scores import KERNELS, RADIAL, Additive, DotProduct, Gaussian, Laplace, Nearest

every_engine = pytest.mark.parametrize("engine", ENGINES)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
every_kernel = pytest.mark.parametrize("name", KERNELS)
few_and_many = pytest.mark.parametrize("queries", [3, 40])
SOFT = [name for name, row in KERNELS.items() if not row.compact]

rng = np.random.default_rng(23)
KEY, VALUE = rng.normal(size=(50, 2)), rng.normal(size=50)
QUERY = rng.normal(size=(40, 2))


def arrays(dtype, queries=40):
    return QUERY[:queries].astype(dtype), KEY.astype(dtype), VALUE.astype(dtype)


def close(got, expected, dtype=np.float64):
    return np.allclose(got, expected, rtol=64 * np.finfo(dtype).eps, atol=64 * np.finfo(dtype).eps)


def nearest_value(query, key, value):
    squares = ((query[:, None].astype(float) - key[None].astype(float)) ** 2).sum(-1)
    return value[squares.argmin(axis=1)]


# ---- w


@every_engine
@every_dtype
@few_and_many
@every_kernel
@pytest.mark.parametrize("w", [0.0, 1e-300, 5e-324])
def test_23_24_vanishing_w_is_the_mean(w, name, queries, dtype, engine):
    query, key, value = arrays(dtype, queries)
    for w_ in (w, np.full(2, w), np.full((2, 3), w)):
        assert close(pool(query, key, value, RADIAL[name](w_), engine=engine).output, value.astype(float).mean(), dtype)


@every_engine
@every_dtype
@few_and_many
@pytest.mark.parametrize("name", SOFT)
@pytest.mark.parametrize("w", [1e8, 1e20, 1e50, 1e100, 1e200, 1e300, 1e308, np.finfo(float).max])
def test_25_26_enormous_w_is_the_nearest_key(w, name, queries, dtype, engine):
    query, key, value = arrays(dtype, queries)
    for w_ in (w, np.full(2, w), np.diag([w, w])):
        output, logsumexp = pool(query, key, value, RADIAL[name](w_), engine=engine)
        assert np.array_equal(output, nearest_value(query, key, value))
        assert np.isfinite(logsumexp).all()


@every_engine
@pytest.mark.parametrize("name", [name for name in KERNELS if name not in SOFT])
@pytest.mark.parametrize("w", [1e8, 1e100, 1e200, 1e300, 1e308])
def test_25_26_enormous_w_of_a_compact_kernel_reaches_only_itself(w, name, engine):
    output, logsumexp = pool(KEY, KEY, VALUE, RADIAL[name](w), engine=engine)
    assert np.array_equal(output, VALUE)
    assert np.array_equal(logsumexp, np.zeros(50))
    assert np.isneginf(pool(KEY[:40] + 0.25, KEY, VALUE, RADIAL[name](w), engine=engine).logsumexp).all()


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


# ---- geometry


@every_engine
@few_and_many
@pytest.mark.parametrize("name", SOFT)
@pytest.mark.parametrize("distance", [1e6, 1e10, 1e50, 1e100, 1e150, 1e200, 1e300])
def test_31_far_queries_stay_inside_the_hull(distance, name, queries, engine):
    for direction in (np.array([1.0, 0.0]), np.array([-1.0, 1.0])):
        far = QUERY[:queries] + distance * direction
        output, logsumexp = pool(far, KEY, VALUE, RADIAL[name](1.0), engine=engine)
        assert ((output >= VALUE.min()) & (output <= VALUE.max())).all()
        assert np.isfinite(logsumexp).all()


@every_engine
@few_and_many
@pytest.mark.parametrize("distance", [1e10, 1e100, 1e150, 1e300])
def test_31_far_queries_see_the_key_that_sticks_out(distance, queries, engine):
    key = np.vstack([KEY, [0.5 * distance, 0.0]])
    far = np.repeat([[distance, 0.0]], queries, axis=0)
    assert np.array_equal(
        pool(far, key, np.append(VALUE, 9.0), Gaussian(), engine=engine).output, np.full(queries, 9.0)
    )


@every_engine
@every_dtype
@pytest.mark.parametrize("name", KERNELS)
def test_32_an_offset_of_a_million_costs_nothing(name, dtype, engine):
    query, key, value, _ = make_inputs("plain", 40, 50, 1, d=2, dtype=dtype)
    query, key = (np.round(8 * array) / 8 for array in (query, key))  # exact at an offset of 1e6 in float32
    expected = pool(query, key, value, RADIAL[name](0.75), engine=engine)
    offset = np.array([1e6, -1e6], dtype)
    moved = pool(query + offset, key + offset, value, RADIAL[name](0.75), engine=engine)
    assert np.array_equal(moved.output, expected.output)
    assert np.array_equal(moved.logsumexp, expected.logsumexp)


@every_engine
@every_kernel
def test_33_equal_keys_give_the_mean(name, engine):
    key = np.tile([0.3, -0.7], (50, 1))
    for shift in (0.0, 0.1):
        assert close(pool(key[:40] + shift, key, VALUE, RADIAL[name](1.0), engine=engine).output, VALUE.mean())


@every_engine
@every_kernel
def test_34_duplicates_with_conflicting_values_are_averaged(name, engine):
    key, value = np.repeat(KEY, 2, axis=0), np.column_stack([VALUE, -3.0 * VALUE]).ravel()
    doubled = pool(QUERY, key, value, RADIAL[name](0.3), engine=engine)
    single = pool(QUERY, KEY, -VALUE, RADIAL[name](0.3), engine=engine)
    assert close(doubled.output, single.output)
    assert close(doubled.logsumexp, single.logsumexp + np.log(2.0))
    assert close(pool(KEY, key, value, Nearest(), engine=engine).output, -VALUE)


TINY = 5e-324


@every_engine
@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (Gaussian(), 1.5),
        (RADIAL["boxcar"](), 1.5),
        (Laplace(), 1.5),
        (RADIAL["tricube"](), 1.5),
        (Nearest(), 1.0),
        (Gaussian(1e308), 1.5),
    ],
    ids=["gaussian", "boxcar", "laplace", "tricube", "nearest", "gaussian 1e308"],
)
def test_37_subnormals(score, expected, engine):
    """Numbers below 1e-308 are as good as zero for every kernel, and ordered for the nearest key."""
    for queries in (1, 40):
        output = pool(np.full(queries, 3 * TINY), [0.0, 20 * TINY], [1.0, 2.0], score, engine=engine).output
        assert close(output, expected)


@every_engine
def test_37_subnormal_values_and_weights(engine):
    assert pool([0.0], [0.0], [TINY], Gaussian(), engine=engine).output.tolist() == [TINY]
    output = pool(
        np.zeros(40), [0.0, 0.0], [1.0, 3.0], Gaussian(), sample_weight=[3 * TINY, TINY], engine=engine
    ).output
    assert close(output, 1.5)


@every_engine
@few_and_many
@pytest.mark.parametrize("d", [1, 3, 8])
def test_38_data_near_the_largest_numbers(d, queries, engine):
    key = np.array([-1e307, 1e307])[:, None] * np.ones(d)
    query = np.resize([1e307, 0.0, -9e306], queries)[:, None] * np.ones(d)
    for score in (Gaussian(), Laplace(), Nearest(), Gaussian(np.eye(d))):
        output = pool(query, key, [1.0, 2.0], score, engine=engine).output
        assert np.array_equal(output, np.resize([2.0, 1.5, 1.0], queries))
    with pytest.raises(ValueError, match=r"query holds numbers beyond ±1e\+307"):
        pool(query * 10, key, [1.0, 2.0], Gaussian(), engine=engine)


@every_engine
@few_and_many
@pytest.mark.parametrize("d", [1, 3])
def test_38_single_precision_near_its_largest_numbers(d, queries, engine):
    key = (np.array([-3e38, 3e38])[:, None] * np.ones(d)).astype(np.float32)
    query = (np.resize([3e38, 0.0, -2e38], queries)[:, None] * np.ones(d)).astype(np.float32)
    for score in (Gaussian(), Laplace(), Nearest()):
        output = pool(query, key, np.array([1.0, 2.0], np.float32), score, engine=engine).output
        assert np.array_equal(output, np.resize(np.array([2.0, 1.5, 1.0], np.float32), queries))


@every_engine
@pytest.mark.parametrize(
    ("score", "query", "key"),
    [
        (DotProduct(), 1e200, [1e200, -1e200]),
        (DotProduct(1e300), 1.0, [1e100, -1e50]),
        (Additive([[1e200]], [[1.0]], [3.0]), 1e200, [1e200, -1e200]),
        (Additive([[1.0], [1.0]], [[1.0], [1.0]], [1e308, 1e308]), 1.0, [1.0, -1.0]),
    ],
)
def test_38_scores_that_overflow_are_refused(score, query, key, engine):
    for call in (
        lambda q, k: pool(q, k, [1.0, 2.0], score, engine=engine),
        lambda q, k: attention_weights(q, k, score, engine=engine),
    ):
        with pytest.raises(ValueError, match=f"{type(score).__name__} give scores beyond"):
            call([[query]], np.array(key)[:, None])


@every_engine
def test_38_enormous_projections_that_fit_are_computed(engine):
    score = Additive([[1.0]], [[1.0]], [3.0])
    output, logsumexp = pool([[1e200]], [[1e200], [-3e200]], [1.0, 2.0], score, engine=engine)
    assert close(output, 1.0024726231566347)
    assert np.isfinite(logsumexp).all()


@every_engine
def test_38_scores_that_overflow_single_precision(engine):
    x = np.array([[1e30]], np.float32)
    output, logsumexp = pool(
        x, np.array([[-1e30], [1e30]], np.float32), np.array([1.0, 2.0], np.float32), DotProduct(), engine=engine
    )
    assert output.tolist() == [2.0]
    assert np.isfinite(logsumexp).all()
    output, logsumexp = pool(x, x, np.array([1.0], np.float32), Additive([[1.0]], [[1.0]], [1e100]), engine=engine)
    assert output.tolist() == [1.0]
    assert np.isfinite(logsumexp).all()


@every_engine
@every_dtype
@few_and_many
@pytest.mark.parametrize("w", [1e6, 3.7e9, 1e30, 1e100, 1e200])
def test_39_ties_are_shared_as_w_grows(w, queries, dtype, engine):
    """Two and three keys at one distance, with duplicates among them."""
    key = np.array([[-1, 0], [1, 0], [0, 1], [1, 0], [5, 5]], dtype)
    query = np.resize(np.array([[0, 0], [0, 0.5], [4.0, 4.0]], dtype), (queries, 2))
    value = np.array([1.0, 2.0, 4.0, 6.0, -7.0], dtype)
    expected = np.resize([13 / 4, 4.0, -7.0], queries)
    for score in (Gaussian(w), Laplace(w), Gaussian([w, w]), Nearest(w)):
        assert close(pool(query, key, value, score, engine=engine).output, expected, dtype)


# ---- many


@every_engine
def test_41_a_million_values_of_a_tenth(engine):
    n = 1_000_000
    for value in (np.full(n, 0.1, np.float32), np.where(np.arange(n) % 2, np.float32(0.3), np.float32(-0.1))):
        x = np.zeros(n, np.float32)
        output = pool(x[:1], x, value, Gaussian(), engine=engine).output
        assert abs(output[0] - value.astype(float).mean()) < 1e-6
    if engine == "tiled":
        # The fused program, and weights that fall off.
        x = np.linspace(-3.0, 3.0, n, dtype=np.float32)
        assert (
            np.abs(pool(x[:: n // 40], x, np.full(n, 0.1, np.float32), Gaussian(), engine=engine).output - 0.1).max()
            < 1e-7
        )
        line = pool(np.zeros(40, np.float32), x, x + np.float32(0.1), Gaussian(), engine=engine).output
        assert np.abs(line - 0.1).max() < 1e-6


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="peak memory is read from /proc, which is Linux's")
def test_42_memory_does_not_grow_with_the_pairs():
    """60,000 × 60,000 pairs would be 14 GB of weights; pooling them adds less than 200 MB."""
    code = textwrap.dedent("""
        import re
        import numpy as np
        from regard import pool
        from regard.scores import Epanechnikov, Gaussian

        def peak():
            return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024

        x = np.random.default_rng(0).normal(size=(60_000, 1)).astype(np.float32)
        v = np.sin(x[:, 0])
        small = pool(x[:300], x[:300], v[:300], Gaussian(4.0), engine="tiled")  # compiles, or reads the cache
        before = peak()
        output = pool(x, x, v, Gaussian(4.0)).output
        grown = peak() - before
        assert grown < 200e6, grown
        assert abs(output - v).max() < 0.5
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


# ---- weights

SCORES = score_table(2)


@every_engine
@pytest.mark.parametrize("score", SCORES)
def test_43_zero_weight_is_deletion(score, engine):
    weight = np.where(np.arange(50) % 3, 0.0, 2.0)
    kept = weight > 0.0
    got = pool(QUERY, KEY, VALUE, SCORES[score], sample_weight=weight, engine=engine)
    expected = pool(QUERY, KEY[kept], VALUE[kept], SCORES[score], sample_weight=weight[kept], engine=engine)
    assert np.array_equal(got.output, expected.output)
    assert np.array_equal(got.logsumexp, expected.logsumexp)


@every_engine
@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (np.zeros(50), "sample_weight .*zero"),
        (np.zeros(50, int), "sample_weight .*zero"),
        (np.full(50, -1.0), "sample_weight .*negative"),
        (np.where(np.arange(50), 1.0, np.nan), "sample_weight .*finite"),
        (np.where(np.arange(50), 1.0, np.inf), "sample_weight .*finite"),
    ],
)
def test_44_45_bad_weights_are_errors(weight, words, engine):
    with pytest.raises(ValueError, match=words):
        pool(QUERY, KEY, VALUE, Gaussian(), sample_weight=weight, engine=engine)


@every_engine
@every_dtype
@few_and_many
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("scale", [1e-300, 1e-290, 1e290, 1e300])
def test_46_the_size_of_the_weights_cancels(scale, score, queries, dtype, engine):
    query, key, value = arrays(dtype, queries)
    value = value * dtype(1e20)
    weight = np.random.default_rng(1).random(50) + 0.1
    plain, scaled = (
        pool(query, key, value, SCORES[score], sample_weight=weight * s, engine=engine) for s in (1.0, scale)
    )
    assert close(scaled.output / 1e20, plain.output / 1e20, dtype)
    seen = np.isfinite(plain.logsumexp)
    assert np.allclose(scaled.logsumexp[seen], plain.logsumexp[seen] + np.log(scale), rtol=8 * np.finfo(dtype).eps)
    weights = [
        attention_weights(query, key, SCORES[score], sample_weight=weight * s, engine=engine) for s in (1.0, scale)
    ]
    assert close(weights[0], weights[1], dtype)


@every_engine
@every_dtype
@few_and_many
@pytest.mark.parametrize(
    "score", [*(score(0.5) for score in RADIAL.values()), Nearest()], ids=lambda s: type(s).__name__
)
@pytest.mark.parametrize("light", [1e-50, 1e-300])
def test_46_a_light_key_is_seen_where_it_is_alone(light, score, queries, dtype, engine):
    """Far from the heavy key, or masked from it, the light one is all there is."""
    query = np.resize(np.array([0.0, 100.0], dtype), queries)
    key, value = np.array([0.0, 100.0], dtype), np.array([1.0, 2.0], dtype)
    for heavy in (1.0, 1e300):
        weight = [heavy, light]
        alone = (
            {"mask": np.arange(queries)[:, None] % 2 == np.arange(2)} if type(score).__name__.lower() in SOFT else {}
        )
        output, logsumexp = pool(query, key, value, score, sample_weight=weight, engine=engine, **alone)
        assert np.array_equal(output, np.resize([1.0, 2.0], queries))
        assert np.isfinite(logsumexp).all()


# ---- masks


@every_engine
@every_dtype
@pytest.mark.parametrize("score", SCORES)
def test_47_a_fully_masked_row_is_zeros(score, dtype, engine):
    query, key, value = arrays(dtype)
    mask = np.ones((40, 50), bool)
    mask[3] = False
    for given in (mask, np.where(mask, 0.0, -np.inf)):
        output, logsumexp = pool(query, key, value, SCORES[score], mask=given, engine=engine)
        assert output[3] == 0.0
        assert np.isneginf(logsumexp[3])
        assert not attention_weights(query, key, SCORES[score], mask=given, engine=engine)[3].any()


@every_engine
@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("score", SCORES)
def test_48_nan_and_inf_behind_a_mask_have_no_effect(score, garbage, engine):
    key, value = KEY.copy(), VALUE.copy()
    key[7], value[7], value[11] = garbage, garbage, garbage
    mask = np.ones((40, 50), bool)
    mask[:, [7, 11]] = False
    clean = pool(QUERY, KEY, VALUE, SCORES[score], mask=mask, engine=engine)
    dirty = pool(QUERY, key, value, SCORES[score], mask=mask, engine=engine)
    assert np.array_equal(clean.output, dirty.output)
    assert np.array_equal(clean.logsumexp, dirty.logsumexp)


def test_48_nan_in_a_key_that_somebody_sees_is_an_error():
    key = KEY.copy()
    key[7] = np.nan
    mask = np.ones((40, 50), bool)
    mask[1:, 7] = False
    with pytest.raises(ValueError, match=r"key row \d+ is not finite"):
        pool(QUERY, key, VALUE, Gaussian(), mask=mask)


@every_engine
@few_and_many
@pytest.mark.parametrize("distance", [1e4, 1e8, 1e200])
def test_49_a_masked_key_gets_nothing_from_a_far_query(distance, queries, engine):
    """With −1e6 in place of −inf the nearest key would win although it is masked."""
    key = np.array([0.0, 1.0, 2.0])
    mask = np.array([[True, True, False]])
    far = np.full(queries, distance)
    for given in (mask, np.where(mask, 0.0, -np.inf)):
        weights = attention_weights(far, key, Gaussian(), mask=given, engine=engine)
        assert not weights[:, 2].any()
        assert close(weights.sum(axis=1), 1.0)
        output = pool(far, key, [1.0, 2.0, 99.0], Gaussian(), mask=given, engine=engine).output
        assert (output <= 2.0).all()


@every_engine
@every_dtype
def test_49_a_finite_mask_is_obeyed_however_low(dtype, engine):
    """An additive mask near the lowest number is not mistaken for a query far away."""
    low = np.finfo(dtype).min
    mask = np.array([[low, 0.1 * low], [0.0, low], [low, low]], dtype)
    key, value = np.array([0.0, 1.0], dtype), np.array([1.0, 2.0], dtype)
    output = pool(np.zeros(3, dtype), key, value, Gaussian(), mask=mask, engine=engine).output
    assert output[:2].tolist() == [2.0, 1.0]
    assert 1.0 <= output[2] <= 2.0


@pytest.mark.parametrize(
    "mask",
    [
        np.ones((40, 50), int),
        np.ones((40, 50), np.uint8),
        [[1] * 50] * 40,
        np.full((40, 50), "x"),
        np.full((40, 50), None),
    ],
)
def test_50_a_mask_that_is_neither_boolean_nor_float_is_an_error(mask):
    with pytest.raises(TypeError, match="mask must be boolean"):
        pool(QUERY, KEY, VALUE, Gaussian(), mask=mask)
