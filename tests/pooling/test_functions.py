"""The public functions: what they accept, what they return, what they refuse and how they say so."""

from __future__ import annotations

import re

import numpy as np
import pytest

import regard
from regard import engines, public
from regard.core.problem import Problem
from regard.pooling.functions import Pooled, attention_weights, pool
from regard.scores import KERNELS, Additive, Boxcar, Gaussian
from support.engines import EACH, every_engine, taken
from support.generators import make_inputs, score_table

SCORES = score_table(2)
COMPACT = tuple(name for name, row in KERNELS.items() if row.compact)
ADDITIVE = Additive(np.ones((2, 1)), np.ones((2, 1)), np.ones(2))


def test_the_public_names():
    assert regard.pool is public.pool
    assert regard.attention_weights is public.attention_weights
    assert regard.explain_plan is public.explain_plan
    assert regard.Pooled is Pooled
    assert Pooled._fields == ("output", "logsumexp")


@every_engine
def test_by_hand(engine):
    output, logsumexp = pool([0.0, 1.0], [0.0, 1.0], [2.0, 6.0], Gaussian(w=np.sqrt(2.0 * np.log(3.0))), engine=engine)
    # One key at the query, one with a third of its weight.
    assert np.allclose(output, [3.0, 5.0], rtol=1e-14)
    assert np.allclose(logsumexp, np.log(4.0 / 3.0), rtol=1e-14)
    weights = attention_weights([0.0, 1.0], [0.0, 1.0], Gaussian(w=np.sqrt(2.0 * np.log(3.0))), engine=engine)
    assert np.allclose(weights, [[0.75, 0.25], [0.25, 0.75]], rtol=1e-14)


# ---- dtypes and shapes

#          query       key         value       computed in  returned
DTYPES = [
    (np.float64, np.float64, np.float64, np.float64, np.float64),
    (np.float32, np.float32, np.float32, np.float32, np.float32),
    (np.float16, np.float16, np.float16, np.float32, np.float16),
    (np.float16, np.float32, np.float32, np.float32, np.float16),
    (np.float32, np.float64, np.float32, np.float64, np.float32),
    (np.float32, np.float32, np.float64, np.float64, np.float32),
    (np.float64, np.float32, np.float32, np.float64, np.float64),
    (np.float32, np.float32, np.int64, np.float64, np.float32),
    (np.int32, np.float32, np.float32, np.float64, np.float64),
    (np.uint8, np.uint8, np.uint8, np.float64, np.float64),
    (bool, bool, bool, np.float64, np.float64),
]


@every_engine
@pytest.mark.parametrize(("query", "key", "value", "computed", "returned"), DTYPES)
def test_dtypes(query, key, value, computed, returned, engine, monkeypatch):
    seen: list[np.dtype] = []
    module = engines.load(engine)
    original = module.moments

    def spy(problem: Problem, step):
        seen.extend(array.dtype for array in (problem.query, problem.key, problem.columns))
        return original(problem, step)

    monkeypatch.setattr(module, "moments", spy)
    x = np.array([[0, 1], [1, 1], [1, 0]])
    arrays = [x.astype(query), x.astype(key), np.array([0, 1, 1]).astype(value)]
    output, logsumexp = pool(*arrays, Gaussian(), engine=engine)
    assert set(seen) == {np.dtype(computed)}
    assert output.dtype == logsumexp.dtype == returned
    expected = pool(*(array.astype(float) for array in arrays), Gaussian(), engine="reference")
    assert np.allclose(output, expected.output, rtol=4 * np.finfo(returned).eps)
    assert attention_weights(*arrays[:2], Gaussian(), engine=engine).dtype == returned


@pytest.mark.parametrize(("value", "output"), [((5,), (7,)), ((5, 1), (7, 1)), ((5, 4), (7, 4)), ((5, 0), (7, 0))])
@every_engine
def test_shapes(value, output, engine):
    rng = np.random.default_rng(0)
    pooled = pool(rng.normal(size=(7, 2)), rng.normal(size=(5, 2)), rng.normal(size=value), Gaussian(), engine=engine)
    assert pooled.output.shape == output
    assert pooled.logsumexp.shape == (7,)
    assert attention_weights(rng.normal(size=(7, 2)), rng.normal(size=(5, 2)), Gaussian(), engine=engine).shape == (
        7,
        5,
    )


def test_one_axis_means_one_feature():
    flat, tall = np.arange(4.0), np.arange(4.0)[:, None]
    a, b = pool(flat, flat, flat, Gaussian()), pool(tall, tall, tall, Gaussian())
    assert np.array_equal(a.output, b.output[:, 0])


@taken(["gaussian-scalar", "boxcar-scalar", "nearest-scalar", "dot"])
def test_no_features_at_all_is_the_mean(score, engine):
    for queries in (3, 40):
        output = pool(
            np.empty((queries, 0)), np.empty((4, 0)), [1.0, 2.0, 3.0, 6.0], SCORES[score], engine=engine
        ).output
        assert np.allclose(output, 3.0, rtol=1e-15)


# ---- empties


@taken(EACH)
def test_no_queries(score, engine):
    output, logsumexp = pool(np.empty((0, 2)), np.ones((3, 2)), np.ones((3, 4)), SCORES[score], engine=engine)
    assert output.shape == (0, 4)
    assert logsumexp.shape == (0,)
    assert attention_weights(np.empty((0, 2)), np.ones((3, 2)), SCORES[score], engine=engine).shape == (0, 3)


@taken(EACH)
def test_no_keys(score, engine):
    output, logsumexp = pool(np.ones((3, 2)), np.empty((0, 2)), np.empty((0, 4)), SCORES[score], engine=engine)
    assert np.array_equal(output, np.zeros((3, 4)))
    assert np.isneginf(logsumexp).all()
    assert attention_weights(np.ones((3, 2)), np.empty((0, 2)), SCORES[score], engine=engine).shape == (3, 0)
    both = pool(np.empty((0, 2)), np.empty((0, 2)), np.empty(0), SCORES[score], engine=engine)
    assert both.output.shape == both.logsumexp.shape == (0,)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@taken(EACH, "mask")
def test_queries_that_may_attend_to_no_key(score, dtype, engine):
    inputs = make_inputs("plain", 40, 6, 2, d=2, dtype=dtype)
    allowed = np.zeros((40, 6), bool)
    allowed[:, 2] = True
    allowed[[0, 7, 39]] = False
    blocked = np.where(allowed, 0.0, -np.inf)
    labels = np.where(allowed.any(axis=1), 0, 1), np.ones(6, int)
    for options in ({"mask": allowed}, {"mask": blocked}, {"exclude": labels}):
        output, logsumexp = pool(*inputs[:3], SCORES[score], engine=engine, **options)
        weights = attention_weights(*inputs[:2], SCORES[score], engine=engine, **options)
        for part in (output[[0, 7, 39]], weights[[0, 7, 39]]):
            assert not part.any()
        assert np.isneginf(logsumexp[[0, 7, 39]]).all()
        if not score.startswith(COMPACT):
            assert np.isfinite(np.delete(logsumexp, [0, 7, 39])).all()
    everyone = pool(*inputs[:3], SCORES[score], mask=np.zeros((40, 6), bool), engine=engine)
    assert not everyone.output.any()
    assert np.isneginf(everyone.logsumexp).all()


@every_engine
def test_out_of_reach_is_empty(engine):
    output, logsumexp = pool([0.0, 10.0], [0.5], [3.0], Boxcar(), engine=engine)
    assert output.tolist() == [3.0, 0.0]
    assert logsumexp.tolist() == [0.0, -np.inf]


# ---- large values


@every_engine
@pytest.mark.parametrize("largest", [1e19, 1e150, 1e300, 1e307])
@pytest.mark.parametrize("queries", [3, 40])
def test_large_values(largest, queries, engine):
    rng = np.random.default_rng(3)
    query, key, value = rng.normal(size=(queries, 2)), rng.normal(size=(50, 2)), rng.uniform(-1.0, 1.0, (50, 2))
    small, large = (pool(query, key, value * scale, Gaussian(), engine=engine) for scale in (1.0, largest))
    assert np.allclose(large.output, small.output * largest, rtol=1e-13, atol=1e-14 * largest)
    assert np.array_equal(large.logsumexp, small.logsumexp)
    constant = pool(query, key, np.full(50, largest), Gaussian(), engine=engine)
    assert np.array_equal(constant.output, np.full(queries, largest))


@every_engine
def test_large_values_in_single_precision(engine):
    largest = np.finfo(np.float32).max
    x = np.linspace(0.0, 1.0, 40, dtype=np.float32)
    assert np.array_equal(pool(x, x, np.full(40, largest), Gaussian(), engine=engine).output, np.full(40, largest))
    mixed = pool(x, x, np.where(x < 0.5, largest, -largest), Gaussian(), engine=engine).output
    assert np.isfinite(mixed).all()


@every_engine
@pytest.mark.parametrize(
    ("dtype", "large", "small"),
    [(np.float64, 1e307, 1e-10 / 3), (np.float64, 1e200, 1e-130 / 3), (np.float32, 1e20, 1e-22 / 3)],
)
def test_a_large_column_takes_no_digits_from_a_small_one(dtype, large, small, engine):
    x = np.zeros(40, dtype)
    output = pool(x, x, np.tile(np.array([large, small], dtype), (40, 1)), Gaussian(), engine=engine).output
    assert np.array_equal(output, np.tile(np.array([large, small], dtype), (40, 1)))


@every_engine
def test_a_large_value_out_of_sight_takes_no_digits_from_a_small_one(engine):
    output = pool([0.0, 1e3], [0.0, 1e3], [1e-200 / 3, 1e200], Gaussian(), engine=engine).output
    assert output.tolist() == [1e-200 / 3, 1e200]


@every_engine
def test_half_precision_keeps_large_scores_finite(engine):
    """Scores beyond 65504 are computed in float32 and reported at half precision's lowest number."""
    x = np.array([0.0, 300.0, -300.0], np.float16)
    output, logsumexp = pool(x, x[1:], np.array([1.0, 3.0], np.float16), Gaussian(2.0), engine=engine)
    assert output.tolist() == [2.0, 1.0, 3.0]
    assert logsumexp[0] == np.finfo(np.float16).min
    assert np.allclose(logsumexp[1:], 0.0, atol=1e-6)


# ---- the weights


@taken(EACH, "everything")
def test_weights_are_a_distribution_and_make_the_output(score, engine):
    inputs = make_inputs("everything", 40, 50, 3, d=2)
    weights = attention_weights(*inputs[:2], SCORES[score], engine=engine, **inputs.options)
    output, logsumexp = pool(*inputs[:3], SCORES[score], engine=engine, **inputs.options)
    assert (weights >= 0.0).all()
    assert np.allclose(weights.sum(axis=1), np.isfinite(logsumexp), rtol=1e-14)
    assert np.allclose(weights @ inputs.value, output, rtol=1e-13, atol=1e-14)
    # Keys dropped before the engine are put back as columns of zeros.
    assert not weights[:, inputs.options["sample_weight"] == 0.0].any()
    assert weights.shape == (40, 50)


@every_engine
def test_far_weights_are_the_nearest_keys(engine):
    weights = attention_weights([1e200, -1e200, 0.5], [0.0, 1e190, 0.0], Gaussian(), engine=engine)
    assert weights.tolist() == [[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.5, 0.0, 0.5]]


# ---- what is refused

X = np.zeros((3, 2))
V = np.zeros(3)
HOLE, HUGE = X.copy(), X.copy()
HOLE[1, 0], HUGE[1, 0] = np.nan, 2e307
GOOD = {"query": X, "key": X, "value": V, "score": Gaussian()}

BAD = [
    ({"query": np.zeros((3, 3))}, ValueError, "query has 3 features and key has 2"),
    ({"query": np.zeros((3, 2, 1))}, ValueError, "query must have shape (rows, features), got (3, 2, 1)"),
    ({"query": 3.0}, ValueError, "query must have shape"),
    ({"query": X + 1j}, TypeError, "query must hold real numbers, got dtype complex128"),
    ({"query": [["a", "b"]]}, TypeError, "query must hold real numbers"),
    ({"query": np.array(["2020-01-01"], "datetime64[D]")}, TypeError, "query must hold real numbers"),
    ({"query": np.ma.masked_array(X, X == 0)}, TypeError, "query is a masked array"),
    ({"query": HOLE}, ValueError, "query row 1 is not finite"),
    ({"query": HUGE}, ValueError, "query holds numbers beyond ±1e+307"),
    ({"key": HOLE}, ValueError, "key row 1 is not finite"),
    ({"key": HUGE}, ValueError, "key holds numbers beyond"),
    ({"key": np.zeros((3, 2), object)}, TypeError, "key must hold real numbers"),
    ({"key": np.zeros((4, 2))}, ValueError, "value has 3 rows but key has 4"),
    ({"value": np.zeros(4)}, ValueError, "value has 4 rows but key has 3"),
    ({"value": np.array([0.0, np.inf, 0.0])}, ValueError, "value row 1 is not finite"),
    ({"value": np.zeros((3, 1, 1))}, ValueError, "value must have shape"),
    ({"score": "gaussian"}, TypeError, "score must be a score of regard.scores"),
    ({"score": Gaussian}, TypeError, "score must be a score of regard.scores"),
    ({"score": Gaussian([1.0, 2.0, 3.0])}, ValueError, "w is for 3 features but key has 2"),
    ({"score": ADDITIVE}, ValueError, "W_q and W_k are for widths 1 and 1"),
    ({"mask": np.ones((3, 3), int)}, TypeError, "mask must be boolean (True = may attend) or an additive float mask"),
    ({"mask": [[1, 0, 1]] * 3}, TypeError, "mask must be boolean"),
    ({"mask": np.ones((2, 3), bool)}, ValueError, "mask must broadcast to (queries, keys) = (3, 3), got shape (2, 3)"),
    ({"mask": np.ones((1, 3, 3), bool)}, ValueError, "mask must broadcast"),
    ({"mask": np.full((3, 3), np.nan)}, ValueError, "mask may contain −inf, but neither NaN nor +inf"),
    ({"mask": np.full((3, 3), np.inf)}, ValueError, "mask may contain −inf, but neither NaN nor +inf"),
    (
        {"sample_weight": np.ones(2)},
        ValueError,
        "sample_weight must have one entry per key, shape (3,), got shape (2,)",
    ),
    ({"sample_weight": np.ones((3, 1))}, ValueError, "sample_weight must have one entry per key, shape (3,)"),
    ({"sample_weight": [1.0, -1.0, 1.0]}, ValueError, "sample_weight must be finite and not negative"),
    ({"sample_weight": [1.0, np.nan, 1.0]}, ValueError, "sample_weight must be finite and not negative"),
    ({"sample_weight": [1.0, np.inf, 1.0]}, ValueError, "sample_weight must be finite and not negative"),
    ({"sample_weight": np.zeros(3)}, ValueError, "all sample weights are zero"),
    ({"sample_weight": ["a", "b", "c"]}, TypeError, "sample_weight must hold real numbers"),
    ({"exclude": np.arange(3)}, TypeError, "exclude must be a pair (query_labels, key_labels)"),
    ({"exclude": 5}, TypeError, "exclude must be a pair"),
    (
        {"exclude": (np.arange(3.0), np.arange(3))},
        TypeError,
        "exclude: query labels must be integers, got dtype float64",
    ),
    ({"exclude": (np.arange(3), ["a", "b", "c"])}, TypeError, "exclude: key labels must be integers"),
    ({"exclude": (np.arange(4), np.arange(3))}, ValueError, "exclude: query labels must have shape (3,), got (4,)"),
    ({"exclude": (np.arange(3), np.arange(2))}, ValueError, "exclude: key labels must have shape (3,), got (2,)"),
    (
        {"engine": "fast"},
        ValueError,
        "engine must be one of auto, reference, tiled, pruned, graded, sorted, spectral, fused, dask",
    ),
    ({"tol": -1e-9}, ValueError, "tol must be a number in [0, 1), got -1e-09"),
    ({"tol": 1.0}, ValueError, "tol must be a number in [0, 1)"),
    ({"tol": np.nan}, ValueError, "tol must be a number in [0, 1)"),
    ({"tol": [0.0]}, ValueError, "tol must be a number in [0, 1)"),
    ({"tol": "small"}, ValueError, "tol must be a number in [0, 1)"),
]


@pytest.mark.parametrize(
    ("changes", "kind", "message"), BAD, ids=[f"{next(iter(row[0]))}-{i}" for i, row in enumerate(BAD)]
)
def test_errors_name_the_argument(changes, kind, message):
    arguments = GOOD | changes
    with pytest.raises(kind, match=re.escape(message)):
        pool(**arguments)
    if not {"value", "tol"} & set(changes) and "value" not in message:
        arguments.pop("value")
        with pytest.raises(kind, match=re.escape(message)):
            attention_weights(**arguments)


def test_errors_come_before_any_work(monkeypatch):
    monkeypatch.setattr(engines, "load", lambda name: pytest.fail("an engine was loaded"))
    with pytest.raises(ValueError, match="engine must be one of"):
        pool(X, X, V, Gaussian(), engine="magic")


@pytest.mark.parametrize("rows", [0, 3])
def test_an_unknown_engine_is_refused_also_where_there_is_nothing_to_do(rows):
    nothing = np.empty((0, 2))
    for query, key in ((X[:rows], nothing), (nothing, X[:rows])):
        with pytest.raises(ValueError, match="engine must be one of"):
            pool(query, key, np.zeros(len(key)), Gaussian(), engine="magic")
        with pytest.raises(ValueError, match="engine must be one of"):
            attention_weights(query, key, Gaussian(), engine="magic")


@pytest.mark.parametrize("tol", [0, 0.0, 1e-9, np.float32(0.5), 0.999])
def test_tolerances_that_are_accepted(tol):
    assert pool([0.0], [0.0], [2.0], Gaussian(), tol=tol).output.tolist() == [2.0]
