"""Far, equal, tiny and enormous queries and keys, by line of the list: 31 to 34, 37 to 39."""

from __future__ import annotations

import numpy as np
import pytest

from regard.pooling.functions import attention_weights, pool
from regard.scores import KERNELS, RADIAL, Additive, DotProduct, Gaussian, Laplace, Nearest
from support.engines import engines_for, every_dtype, every_engine, every_kernel, few_and_many
from support.extremes import KEY, QUERY, SOFT, VALUE, close
from support.generators import make_inputs


@every_engine
@few_and_many
@pytest.mark.parametrize("name", SOFT)
def test_31_far_queries_stay_inside_the_hull(name, queries, engine):
    for distance in (1e6, 1e10, 1e50, 1e100, 1e150, 1e200, 1e300):
        for direction in (np.array([1.0, 0.0]), np.array([-1.0, 1.0])):
            far = QUERY[:queries] + distance * direction
            output, logsumexp = pool(far, KEY, VALUE, RADIAL[name](1.0), engine=engine)
            assert ((output >= VALUE.min()) & (output <= VALUE.max())).all(), distance
            assert np.isfinite(logsumexp).all(), distance


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


@engines_for(Additive([[1.0]], [[1.0]], [3.0]))
def test_38_enormous_projections_that_fit_are_computed(engine):
    score = Additive([[1.0]], [[1.0]], [3.0])
    output, logsumexp = pool([[1e200]], [[1e200], [-3e200]], [1.0, 2.0], score, engine=engine)
    assert close(output, 1.0024726231566347)
    assert np.isfinite(logsumexp).all()


@engines_for(DotProduct(), Additive([[1.0]], [[1.0]], [1.0]))
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


@every_engine
@every_dtype
@few_and_many
def test_39_ties_share_by_their_sample_weights(queries, dtype, engine):
    """However low the scores are: the logarithm of a weight would not show beside them."""
    key = np.array([[-1, 0], [1, 0], [0, 1], [5, 5]], dtype)
    query, value = np.zeros((queries, 2), dtype), np.array([1.0, 2.0, 4.0, -7.0], dtype)
    for weight in (np.array([1.0, 3.0, 4.0, 2.0]), np.array([1e-30, 1e-30, 2e-30, 1e30])):
        expected = weight[:3] @ value[:3] / weight[:3].sum()
        for w in (1e3, 1e6, 1e15, 1e20, 1e30, 1e50, 1e69, 1e71, 1e100, 1e145, 1e160, 1e300):
            for score in (Gaussian(w), Laplace(w), Gaussian([w, w]), Nearest(w)):
                output = pool(query, key, value, score, sample_weight=weight, engine=engine).output
                assert close(output, expected, dtype), score
                weights = attention_weights(query, key, score, sample_weight=weight, engine=engine)
                assert close(weights @ value, expected, dtype), score
