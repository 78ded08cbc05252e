"""Attention pooling of arrays in memory: ``pool``, ``attention_weights`` and ``explain_plan``.

The data flow: validate (``core.problem``) → plan (``planner``) → compute (``engines``) → divide by the mass
(``core.state.finish``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from regard.core.arrays import Array
from regard.core.bounds import excess
from regard.core.problem import Problem, build, matrix
from regard.core.scores import Score
from regard.core.state import Finished, finish
from regard.pooling.planner import Plan, plan
from regard.pooling.runner import available_threads, run_at_once, run_moments, run_weights


class Pooled(NamedTuple):
    """What ``pool`` returns.

    Attributes
    ----------
    output : array (Q,) or (Q, P)
        Σ weight · value, one row per query, in the query's dtype.
    logsumexp : array (Q,)
        log Σ exp(score), the attention before normalising; −inf in empty rows.

    >>> from regard import pool
    >>> from regard.scores import Gaussian
    >>> output, logsumexp = pool([0.0], [0.0], [7.0], Gaussian())
    >>> output.tolist(), logsumexp.tolist()
    ([7.0], [0.0])
    """

    output: Array  # (Q, …)  Σ weight · value, one row per query
    logsumexp: Array  # (Q,)  log Σ exp(score): the attention before normalising; −inf in empty rows


def pool(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    score: Score,
    *,
    mask: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    exclude: tuple[ArrayLike, ArrayLike] | None = None,
    engine: str = "auto",
    tol: float | None = None,
) -> Pooled:
    """``regard.pool`` of arrays in memory."""
    if engine == "auto" and mask is None and sample_weight is None and exclude is None:
        # For small problems of the common kind validating and planning take longer than computing.
        at_once = run_at_once(query, key, value, score, tol)
        if at_once is not None:
            return Pooled(*at_once)
    queries, keys, columns = matrix("query", query), matrix("key", key), matrix("value", value)
    problem = build(queries, keys, columns, score, tol=tol, mask=mask, sample_weight=sample_weight, exclude=exclude)
    return as_pooled(_averages(problem, engine), queries, single=np.ndim(value) == 1)


def as_pooled(finished: Finished, queries: Array, *, single: bool) -> Pooled:
    """A finished state as ``pool`` returns it: in the queries' dtype, with one axis if the values had one."""
    dtype = queries.dtype if queries.dtype.kind == "f" else np.dtype(np.float64)
    limits, height = np.finfo(dtype), finished.logsumexp
    logsumexp = np.where(np.isneginf(height), -np.inf, np.clip(height, limits.min, limits.max))
    return Pooled((finished.output[:, 0] if single else finished.output).astype(dtype), logsumexp.astype(dtype))


def attention_weights(
    query: ArrayLike,
    key: ArrayLike,
    score: Score,
    *,
    mask: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    exclude: tuple[ArrayLike, ArrayLike] | None = None,
    engine: str = "auto",
) -> Array:
    """``regard.attention_weights`` of arrays in memory."""
    queries, keys = matrix("query", query), matrix("key", key)
    no_columns = np.empty((keys.shape[0], 0), np.float32)
    problem = build(queries, keys, no_columns, score, mask=mask, sample_weight=sample_weight, exclude=exclude)
    dtype = queries.dtype if queries.dtype.kind == "f" else np.dtype(np.float64)
    weights = run_weights(problem, engine).astype(dtype, copy=False)
    if problem.used_keys is None:
        return weights
    out = np.zeros((queries.shape[0], keys.shape[0]), dtype)
    out[:, problem.used_keys] = weights
    return out


def explain_plan(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    score: Score,
    *,
    engine: str = "auto",
    tol: float | None = None,
    **options: Any,
) -> Plan:
    """``regard.explain_plan`` of arrays in memory."""
    sides = matrix("query", query), matrix("key", key), matrix("value", value)
    problem = build(*sides, score, tol=tol, **options)
    return plan(problem.sketch(), engine, available_threads())


def _averages(problem: Problem, engine: str) -> Finished:
    """Normalised moments of degree 0, inside the hull of the columns."""
    power = excess(problem.column_bounds.size, len(problem.columns), problem.columns.dtype)
    if power.any():
        # Each column is divided by a power of two, so that no sum overflows.
        problem = replace(problem, columns=np.ldexp(problem.columns, -power))
    partial, limit = run_moments(problem, engine)
    output, logsumexp = finish(partial)
    # ``as_pooled`` clips this to the lowest number of the dtype.
    logsumexp = np.where(limit, np.finfo(np.float64).min, logsumexp + problem.weight_shift)
    inside = np.clip(output, *problem.column_bounds)
    output = np.where((logsumexp > -np.inf)[:, None], inside, output)
    return Finished(np.ldexp(output, power) if power.any() else output, logsumexp)
