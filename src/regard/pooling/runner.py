"""Runs a plan: each step on the queries that the previous step did not certify."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from regard import engines
from regard.core.arrays import Array, as_numpy, is_tensor
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Problem, Sketch, moment_count
from regard.core.scores import Gaussian
from regard.core.state import Partial, empty
from regard.engines.costs import estimate
from regard.engines.cpu.prepared import Prepared, few_lines, few_means
from regard.engines.cpu.reference import gaussian_mean as few_averages
from regard.pooling.planner import SMALL, can_overflow, plan, step_at_once

# How much more than pruned a prepared tiled pass may cost: it computes value and gradient together.
MAX_TILED_TO_PRUNED = 5.0
# Threads for numpy's products, at most, and pairs for which each of them is started.
MAX_PRODUCT_THREADS = 4
PAIRS_PER_PRODUCT_THREAD = 5e5
# Dtypes of compiled programs, in native byte order.
REALS = (np.dtype(np.float64), np.dtype(np.float32))


class RunResult(NamedTuple):
    """Attention moments of every query, and the queries so far away that they take the softmax limit."""

    partial: Partial
    limit: Array  # (Q,) boolean


def run_at_once(query: Any, key: Any, value: Any, score: Any, tol: Any) -> tuple[Array, Array] | None:
    """Output and logsumexp of a plain Gaussian mean whose pairs are computed at once: few, or by the tiled engine.

    Returns None if the arguments are not plain arrays of one dtype with matching shapes and a Gaussian score, or if
    their numbers are not safe; then the caller validates them and uses ``run_moments``.
    """
    if not (type(query) is type(key) is type(value) is np.ndarray and type(score) is Gaussian):
        return None
    dtype, w, shape = query.dtype, score.w, value.shape
    if dtype not in REALS or key.dtype != dtype or value.dtype != dtype or is_tensor(w):
        return None
    query, key, value = (array[:, None] if array.ndim == 1 else array for array in (query, key, value))
    if not query.ndim == key.ndim == 2 or value.shape != (key.shape[0], 1):
        return None
    width = key.shape[1]
    if query.shape[1] != width or w.shape not in ((), (width,)):
        return None
    if not (tol is None or (isinstance(tol, int | float) and 0 <= tol < 1)):
        return None
    if 0 < query.shape[0] * key.shape[0] <= SMALL:
        found = few_averages(query, key, value, w) if dtype == np.float64 and width else None
    else:
        step = _step_at_once(query.shape[0], key.shape[0], width, dtype)
        if step is None:
            return None
        # It comes with numba, which small problems do without.
        from regard.engines.cpu.small_means import gaussian_mean

        found = gaussian_mean(query, key, value, score, step)
    if found is None:
        return None
    output, logsumexp = found
    return output.reshape(-1, *shape[1:]).astype(dtype, copy=False), logsumexp.astype(dtype, copy=False)


def _step_at_once(queries: int, keys: int, width: int, dtype: np.dtype[Any]) -> Step | None:
    """The step for a plain Gaussian mean, which depends on sizes only; cached because small calls are frequent."""
    step = _sized_step(queries, keys, width, dtype)
    return step if step is None or queries <= step.query_tile else replace(step, threads=available_threads())


@lru_cache
def _sized_step(queries: int, keys: int, width: int, dtype: np.dtype[Any]) -> Step | None:
    return step_at_once(Sketch(queries, keys, width, 1, dtype, Gaussian()), 1)


def run_moments(problem: Problem, engine: str | Prepared) -> RunResult:
    """Moments by the plan for this problem, or by a prepared problem; *cost* as the engine's."""
    queries = problem.query.shape[0]
    limit = np.zeros(queries, bool)
    if isinstance(engine, Prepared):
        return RunResult(engine.moments(_w_of(problem)).partial, limit)
    first, *others = plan(problem.sketch(), engine, available_threads()).steps
    if not queries or not problem.key.shape[0]:
        return RunResult(
            empty(queries, moment_count(problem.columns.shape[1], problem.key.shape[1], problem.degree)), limit
        )
    whole, uncertified = engines.load(first.engine).moments(problem, first)
    rows = None if uncertified is None else np.flatnonzero(uncertified)
    if uncertified is not None and can_overflow(problem.score):
        limit = uncertified
    for step in others:
        if rows is None or not rows.size:
            break
        partial, uncertified = engines.load(step.engine).moments(replace(problem.take(rows), score=step.score), step)
        # The peak is below every finite number: it is set to the lowest one.
        whole = whole._replace(moments=as_numpy(whole.moments))
        whole.peak[rows], whole.mass[rows] = np.finfo(np.float64).min, partial.mass
        whole.moments[rows] = partial.moments
        rows = None if uncertified is None else rows[uncertified]
    return RunResult(whole, limit)


def run_pullback(
    problem: Problem, engine: str | Prepared, partial: Partial, adjoint: Adjoint, want: frozenset[str]
) -> Gradients:
    """Gradients through the scores by the plan's first step; ``partial`` is what ``run_moments`` returned."""
    if isinstance(engine, Prepared):
        return Gradients(w=engine.pullback(_w_of(problem), partial, adjoint))
    step = plan(problem.sketch(), engine, available_threads()).steps[0]
    return engines.load(step.engine).pullback(problem, step, partial, adjoint, want)


def run_weights(problem: Problem, engine: str) -> Array:
    """Weights (Q, K) by the plan for this problem."""
    out = np.zeros((problem.query.shape[0], problem.key.shape[0]))
    steps = plan(problem.sketch(), engine, available_threads()).steps
    if engine == "auto" and steps[0].engine != "reference":
        # The weights of all pairs are needed: no engine can skip any.
        steps = plan(problem.sketch(), "tiled", available_threads()).steps
    if not out.size:
        return out
    rows = np.arange(out.shape[0])
    for step in steps:
        part = replace(problem.take(rows), score=step.score)
        out[rows], uncertified = engines.load(step.engine).weights(part, step)
        rows = rows[uncertified] if uncertified is not None else rows[:0]
        if not rows.size:
            break
    return out


def prepare(problem: Problem, engine: str, own: Array, staying: Array | None = None) -> Prepared | None:
    """A Gaussian problem prepared once for many w, if the plan would compute it in the same way.

    Lines (degree 2) of few rows if no engine is named; means (degree 0) of one column if the plan is the reference
    engine, or tiled, or pruned at a similar cost. ``own`` (Q,) are the queries' own values, ``staying`` (Q,) the masses
    of copies of them that are not among the keys; for means only. None otherwise: use ``run_moments`` and
    ``run_pullback`` at every w, as also for a named reference engine.
    """
    if problem.degree:
        return few_lines(problem) if engine == "auto" else None
    sketch = problem.sketch()
    step = plan(sketch, engine, available_threads()).steps[0]
    if step.engine == "reference" and engine == "auto":
        return few_means(problem, own, staying)
    if (
        step.engine == "pruned"
        and engine == "auto"
        and estimate(sketch, "tiled") <= MAX_TILED_TO_PRUNED * estimate(sketch, "pruned")
    ):
        step = plan(sketch, "tiled", available_threads()).steps[0]
    if step.engine != "tiled":
        return None
    # It comes with numba and scipy, which small problems do without.
    from regard.engines.cpu.prepared_tiles import tiled_means

    return tiled_means(problem, own, staying, step)


def _w_of(problem: Problem) -> Array:
    assert isinstance(problem.score, Gaussian)
    w: Array = problem.score.w
    return w


@contextmanager
def small_matrices() -> Iterator[None]:
    """Limit BLAS to one thread: for the small matrices of a search, starting threads costs more than it gains."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):
        yield


def available_threads() -> int:
    """Number of cores this process may use, limited by NUMBA_NUM_THREADS and OMP_NUM_THREADS (joblib sets both)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        limit = os.environ.get(name, "")
        if limit.isdigit() and int(limit) > 0:
            cores = min(cores, int(limit))
    return cores


def threads_for_products(pairs: float) -> int:
    """Number of threads for numpy's products over so many pairs; more would wait for each other.

    Between two products a thread needs the interpreter, which one of them has at a time: on 16 cores, fits of 1,000
    rows are fastest with two threads and fits of 16,000 with four, and take three times as long with sixteen.
    """
    return min(available_threads(), MAX_PRODUCT_THREADS, math.ceil(pairs / PAIRS_PER_PRODUCT_THREAD))
