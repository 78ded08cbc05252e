"""Answers do not depend on how they were computed, and obey the laws of weighted averages."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from generators import DTYPES, ENGINES, OPTIONS, dyadic, make_inputs, score_table
from regard import engines, planner, pooling
from regard.partial import finish
from regard.planner import plan
from regard.pooling import attention_weights, pool
from regard.problem import build
from regard.scores import KERNELS, RADIAL, Gaussian, Nearest

D = 3
SCORES = score_table(D)
# One of each path through the engines.
PATHS = [
    "gaussian-scalar",
    "gaussian-feature",
    "gaussian-matrix",
    "laplace-scalar",
    "tricube-scalar",
    "nearest-feature",
    "dot",
    "additive",
]

every_engine = pytest.mark.parametrize("engine", ENGINES)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
every_score = pytest.mark.parametrize("score", SCORES)
every_path = pytest.mark.parametrize("score", PATHS)
every_option = pytest.mark.parametrize("option", OPTIONS)


def near(a: Any, b: Any, dtype: Any = np.float64) -> bool:
    """Equal to rounding, for values of order one; infinities in the same places."""
    scale = 64 * np.finfo(dtype).eps
    return np.allclose(a, b, rtol=scale, atol=scale)


def same(a: pooling.Pooled, b: pooling.Pooled, dtype: Any = np.float64) -> bool:
    return near(a.output, b.output, dtype) and near(a.logsumexp, b.logsumexp, dtype)


def identical(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# ---- how it was computed

TILES = [
    {"key_tile": 1},
    {"key_tile": 7},
    {"query_tile": 1},
    {"query_tile": 50},
    {"key_shard": 1},
    {"key_shard": 130},
    {"query_tile": 33, "key_tile": 64, "key_shard": 100},
]


def finished(score: str, option: str, dtype: Any, engine: str, **changes: Any) -> Any:
    inputs = make_inputs(option, 70, 150, 1, d=D, dtype=dtype)
    problem = build(*inputs[:3], SCORES[score], **inputs.options)
    step = replace(plan(problem.sketch(), engine).steps[0], **changes)
    module = engines.load(engine)
    return (*finish(module.moments(problem, step).partial), module.weights(problem, step)[0])


@every_dtype
@pytest.mark.parametrize("option", ["plain", "everything"])
@every_path
def test_tiles_jobs_and_shards_do_not_matter(score, option, dtype):
    whole = finished(score, option, dtype, "tiled")
    for changes in TILES:
        if score == "additive" and changes == {"key_shard": 1}:
            continue  # slow for its size, and no path of its own
        for a, b in zip(finished(score, option, dtype, "tiled", **changes), whole, strict=True):
            assert near(a, b, dtype), changes
    for tile in (1, 7, 69):
        for a, b in zip(
            finished(score, option, dtype, "reference", query_tile=tile),
            finished(score, option, dtype, "reference"),
            strict=True,
        ):
            assert near(a, b), tile


@every_dtype
@pytest.mark.parametrize("option", ["plain", "everything"])
@every_path
def test_threads_do_not_change_a_bit(score, option, dtype):
    cut = {"query_tile": 17, "key_shard": 40}
    alone = finished(score, option, dtype, "tiled", threads=1, **cut)
    for threads in (2, 4):
        assert identical(finished(score, option, dtype, "tiled", threads=threads, **cut), alone)


@pytest.mark.parametrize("threads", ["1", "2", "4"])
def test_the_environment_sets_threads_and_no_bit_of_the_answer(threads, monkeypatch):
    inputs = make_inputs("weights", 300, 400, 1, d=D)
    expected = pool(*inputs[:3], Gaussian(), engine="tiled", **inputs.options)
    monkeypatch.setattr(planner, "JOB_PAIRS", 1 << 12)
    cut = pool(*inputs[:3], Gaussian(), engine="tiled", **inputs.options)
    monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert pooling.available_threads() == int(threads)
    assert identical(pool(*inputs[:3], Gaussian(), engine="tiled", **inputs.options), cut)
    assert same(cut, expected)


def test_calls_from_many_threads_at_once():
    inputs = make_inputs("plain", 70, 150, 1, d=D)
    expected = pool(*inputs[:3], Gaussian(), engine="tiled")
    got: list[Any] = []
    workers = [
        threading.Thread(target=lambda: got.append(pool(*inputs[:3], Gaussian(), engine="tiled"))) for _ in range(8)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(got) == 8
    assert all(identical(one, expected) for one in got)


@every_option
@every_score
def test_engines_agree(score, option):
    inputs = make_inputs(option, 70, 80, 2, d=D)
    one, two = (pool(*inputs[:3], SCORES[score], engine=engine, **inputs.options) for engine in ENGINES)
    # The scores' own digits: with weights of 1e-200 they are those of log 1e-200.
    slack = 500 * np.finfo(float).eps
    assert np.allclose(one.output, two.output, rtol=slack, atol=slack)
    assert np.allclose(one.logsumexp, two.logsumexp, rtol=slack, atol=slack)


@every_engine
@every_option
@every_path
def test_order_of_keys_does_not_matter(score, option, engine):
    query, key, value, options = make_inputs(option, 40, 90, 2, d=D)
    order = np.random.default_rng(5).permutation(90)
    turned = dict(options)
    if "mask" in options:
        turned["mask"] = options["mask"][:, order]
    if "sample_weight" in options:
        turned["sample_weight"] = options["sample_weight"][order]
    if "exclude" in options:
        turned["exclude"] = options["exclude"][0], options["exclude"][1][order]
    before = pool(query, key, value, SCORES[score], engine=engine, **options)
    assert same(pool(query, key[order], value[order], SCORES[score], engine=engine, **turned), before)


@every_engine
@every_dtype
@every_path
def test_the_batch_of_queries_does_not_matter(score, dtype, engine):
    inputs = make_inputs("everything", 70, 90, 1, d=D, dtype=dtype)

    def run(rows):
        options = dict(
            inputs.options,
            mask=inputs.options["mask"][rows],
            exclude=(inputs.options["exclude"][0][rows], inputs.options["exclude"][1]),
        )
        return pool(inputs.query[rows], inputs.key, inputs.value, SCORES[score], engine=engine, **options)

    whole = run(slice(None))
    # Below 32 queries another program has its turn.
    for size in (1, 5, 40):
        parts = [run(slice(start, start + size)) for start in range(0, 70, size)]
        together = pooling.Pooled(*(np.concatenate(pieces) for pieces in zip(*parts, strict=True)))
        assert same(together, whole, dtype)
    twice = run(np.r_[0:70, 0:70])
    assert identical((twice.output[:70], twice.logsumexp[:70]), (twice.output[70:], twice.logsumexp[70:]))


# ---- how the inputs lie in memory


def layouts(array: np.ndarray) -> dict[str, np.ndarray]:
    wide = np.zeros((2 * len(array), *array.shape[1:]), array.dtype)
    wide[::2] = array
    frozen = array.copy()
    frozen.flags.writeable = False
    return {
        "Fortran": np.asfortranarray(array),
        "strided": wide[::2],
        "reversed": array[::-1].copy()[::-1],
        "read-only": frozen,
        "big-endian": array.astype(array.dtype.newbyteorder(">")),
        "list": array.tolist(),
    }


@every_engine
@every_path
@pytest.mark.parametrize("layout", ["Fortran", "strided", "reversed", "read-only", "big-endian", "list"])
def test_layouts_are_equal_and_untouched(layout, score, engine):
    query, key, value, options = make_inputs("everything", 34, 50, 2, d=D)
    expected = pool(query, key, value, SCORES[score], engine=engine, **options)
    given = {name: layouts(array)[layout] for name, array in (("query", query), ("key", key), ("value", value))}
    given |= {
        "mask": layouts(options["mask"])[layout],
        "sample_weight": layouts(options["sample_weight"])[layout],
        "exclude": tuple(layouts(labels)[layout] for labels in options["exclude"]),
    }
    before = [
        np.array(part)
        for part in (*[given[name] for name in ("query", "key", "value", "mask", "sample_weight")], *given["exclude"])
    ]
    assert identical(pool(**given, score=SCORES[score], engine=engine), expected)
    after = [
        np.array(part)
        for part in (*[given[name] for name in ("query", "key", "value", "mask", "sample_weight")], *given["exclude"])
    ]
    assert identical(before, after)


@every_engine
@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64, np.uint64, bool])
def test_integers_count_as_float64(kind, engine):
    rng = np.random.default_rng(1)
    query, key, value = (
        rng.integers(0, 2 if kind is bool else 100, shape).astype(kind) for shape in ((40, 2), (30, 2), 30)
    )
    got = pool(query, key, value, Gaussian(0.1), engine=engine)
    assert got.output.dtype == np.float64
    assert identical(
        got, pool(query.astype(float), key.astype(float), value.astype(float), Gaussian(0.1), engine=engine)
    )


# ---- deletion


@every_engine
@every_score
def test_leave_one_out_is_literal_deletion(score, engine):
    _, key, value, _ = make_inputs("plain", 1, 37, 2, d=D)
    rows = np.arange(37)
    left_out = pool(key, key, value, SCORES[score], exclude=(rows, rows), engine=engine)
    for i in rows:
        others = rows != i
        assert same(
            pooling.Pooled(left_out.output[i : i + 1], left_out.logsumexp[i : i + 1]),
            pool(key[i : i + 1], key[others], value[others], SCORES[score], engine=engine),
        )


@every_engine
@every_path
def test_leaving_groups_out_is_literal_deletion(score, engine):
    _, key, value, _ = make_inputs("plain", 1, 60, 1, d=D)
    groups = np.random.default_rng(3).integers(-2, 4, 60)
    left_out = pool(key, key, value, SCORES[score], exclude=(groups, groups), engine=engine)
    for group in np.unique(groups):
        own = groups == group
        expected = pool(key[own], key[~own], value[~own], SCORES[score], engine=engine)
        assert same(pooling.Pooled(left_out.output[own], left_out.logsumexp[own]), expected)


@every_engine
@every_path
def test_labels_survive_batches_and_any_integers(score, engine):
    """Only equality of labels counts, whatever numbers they are and in whatever batch the queries come."""
    query, key, value, options = make_inputs("exclude", 40, 60, 1, d=D)
    expected = pool(query, key, value, SCORES[score], engine=engine, **options)
    far = np.array([-(2**62), -1, 0, 7, 2**31 + 5, 2**62])
    renamed = tuple(far[labels] for labels in options["exclude"])
    assert same(pool(query, key, value, SCORES[score], exclude=renamed, engine=engine), expected)
    half = pool(query[20:], key, value, SCORES[score], exclude=(renamed[0][20:], renamed[1]), engine=engine)
    assert same(half, pooling.Pooled(expected.output[20:], expected.logsumexp[20:]))


@every_engine
@every_dtype
@every_score
def test_weight_k_is_k_copies_and_zero_is_deletion(score, dtype, engine):
    query, key, value, _ = make_inputs("plain", 35, 40, 2, d=D, dtype=dtype)
    counts = np.random.default_rng(9).integers(0, 4, 40)
    copies = np.repeat(np.arange(40), counts)
    expected = pool(query, key[copies], value[copies], SCORES[score], engine=engine)
    for weight in (counts, counts.astype(float), counts.astype(np.float32)):
        assert same(pool(query, key, value, SCORES[score], sample_weight=weight, engine=engine), expected, dtype)


@every_engine
@every_score
@pytest.mark.parametrize("garbage", [0.0, np.nan, np.inf, -np.inf, 1e308])
def test_a_mask_is_deletion_whatever_it_covers(garbage, score, engine):
    query, key, value, _ = make_inputs("plain", 34, 40, 2, d=D)
    covered = np.random.default_rng(4).random(40) < 0.3
    expected = pool(query, key[~covered], value[~covered], SCORES[score], engine=engine)
    key, value = key.copy(), value.copy()
    key[covered, 1], value[covered, 0] = garbage, garbage
    for mask in (~covered, np.where(covered, -np.inf, 0.0), np.broadcast_to(~covered, (34, 40))):
        assert same(pool(query, key, value, SCORES[score], mask=mask, engine=engine), expected)
    assert same(pool(query, key, value, SCORES[score], sample_weight=(~covered).astype(float), engine=engine), expected)
    weights = attention_weights(query, key, SCORES[score], mask=~covered, engine=engine)
    assert not weights[:, covered].any()
    assert near(weights[:, ~covered], attention_weights(query, key[~covered], SCORES[score], engine=engine))


@every_engine
@every_score
def test_a_mask_row_by_row_is_deletion_row_by_row(score, engine):
    query, key, value, options = make_inputs("mask", 34, 40, 1, d=D)
    got = pool(query, key, value, SCORES[score], engine=engine, **options)
    for i, seen in enumerate(options["mask"]):
        expected = pool(query[i : i + 1], key[seen], value[seen], SCORES[score], engine=engine)
        assert same(pooling.Pooled(got.output[i : i + 1], got.logsumexp[i : i + 1]), expected)


# ---- laws of weighted averages


@every_engine
@every_path
def test_linear_in_the_values(score, engine):
    query, key, value, options = make_inputs("everything", 34, 40, 2, d=D)

    def run(values):
        return pool(query, key, values, SCORES[score], engine=engine, **options).output

    assert near(run(2.0 * value[:, 0] - 0.5 * value[:, 1]), 2.0 * run(value)[:, 0] - 0.5 * run(value)[:, 1])
    attended = run(np.ones(40)) != 0.0
    assert np.array_equal(run(np.full(40, 0.1))[attended], np.full(attended.sum(), 0.1))


@every_engine
@every_dtype
@pytest.mark.parametrize("score", [name for name in SCORES if name not in ("dot", "additive")])
def test_translation_by_exact_offsets(score, dtype, engine):
    query, key, value, _ = make_inputs("plain", 34, 40, 1, d=D, dtype=dtype)
    query, key = (dyadic(array, 8).astype(dtype) for array in (query, key))
    expected = pool(query, key, value, SCORES[score], engine=engine)
    for offset in (64.0, -4096.0, 2.0**20):
        shift = (offset * np.array([1.0, -1.0, 0.5])).astype(dtype)
        assert identical(pool(query + shift, key + shift, value, SCORES[score], engine=engine), expected)


@every_engine
@pytest.mark.parametrize("scale", [2.0**-300, 2.0**-20, 2.0**20, 2.0**300])
@pytest.mark.parametrize("name", KERNELS)
def test_units_cancel(name, scale, engine):
    query, key, value, _ = make_inputs("plain", 34, 40, 1, d=D)
    expected = pool(query, key, value, RADIAL[name](0.5), engine=engine)
    assert same(pool(query * scale, key * scale, value, RADIAL[name](0.5 / scale), engine=engine), expected)


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
    name=st.sampled_from(sorted(SCORES)),
    option=st.sampled_from(OPTIONS),
    Q=st.integers(1, 40),
    K=st.integers(1, 40),
)
def test_weights_times_values_is_the_output(engine, seed, name, option, Q, K):
    inputs = make_inputs(option, Q, K, 2, d=D, seed=seed)
    weights = attention_weights(inputs.query, inputs.key, SCORES[name], engine=engine, **inputs.options)
    output, logsumexp = pool(*inputs[:3], SCORES[name], engine=engine, **inputs.options)
    attended = np.isfinite(logsumexp)
    assert near(weights.sum(axis=1), attended)
    assert np.allclose(weights @ inputs.value, output, rtol=1e-12, atol=1e-12)
