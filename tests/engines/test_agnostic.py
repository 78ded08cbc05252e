"""Answers do not depend on how they were computed nor on how the inputs lie in memory."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from regard import engines
from regard.core.problem import build
from regard.core.state import finish
from regard.pooling import functions as pooling
from regard.pooling import planner, runner
from regard.pooling.functions import pool
from regard.pooling.planner import plan
from regard.scores import Gaussian
from support.agreement import SCORES, D, every_path, identical, near, same
from support.engines import PATHS, every_dtype, every_engine, taken
from support.generators import OPTIONS, make_inputs

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
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # a cluster made by another test sets it
    monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert runner.available_threads() == int(threads)
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


@taken(PATHS, OPTIONS)
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


@every_dtype
@taken(PATHS, "everything")
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


@taken(PATHS, "everything")
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
