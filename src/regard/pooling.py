"""Attention pooling, the public functions: ``pool``, ``attention_weights`` and ``explain_plan``.

The walk of the data, once down and once up: check (``problem``) → decide (``planner``) → compute
(``engines``) → divide by the mass (``partial.finish``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.arrays import is_chunked, is_tensor
from regard.bounds import excess
from regard.partial import Finished, finish
from regard.planner import Plan, plan
from regard.problem import Problem, build, matrix
from regard.runner import available_threads, run_at_once, run_moments, run_weights
from regard.scores import Score

if TYPE_CHECKING:
    from regard.chunks.plan import ChunkedPlan

Array = NDArray[Any]


class Pooled(NamedTuple):
    """What ``pool`` returns."""

    output: Array  # (Q, …)  Σ weight · value, one row per query
    logsumexp: Array  # (Q,)  log Σ exp(score): how much attention there was; −inf where nobody may attend


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
    """Weighted averages of the values, one per query.

    output[q] = Σ_k softmax_k(score(query[q], key[k]) + log sample_weight[k]) value[k]

    Parameters
    ----------
    query : (Q, d), key : (K, d), value : (K,) or (K, P)
        Real numbers; one axis means one feature. Never written to. Torch tensors may have batch axes in front, and
        gradients reach them and the score's parameters (``regard.tensors.pool_tensors`` is what computes them).
    score : a score of ``regard.scores``, such as ``Gaussian(w=1.0)``.
    mask : boolean (Q, K), True = may attend; or floats to add to the scores (−inf = may not).
    sample_weight : (K,), not negative; weight k is the same as k copies, 0 as deletion.
    exclude : (query_labels, key_labels), integers; a pair with equal labels may not attend. Row numbers on
        both sides give leave-one-out, group numbers leave whole groups out.
    engine : "auto", or the name of an engine, which then never falls back to another.
    tol : share of its attention mass a query may lose; 0 is exact. Default 1e-9 (float64) or 1e-5 (float32).

    Returns
    -------
    Pooled(output, logsumexp), in the query's dtype.

    *Empty rows*: where nobody may attend, output is 0 and logsumexp −inf. *Cost*: O(Q·K·d) time at most, far less
    where an engine can avoid the pairs (``explain_plan`` tells); memory O(Q + K) and a tile, never (Q, K).

    >>> from regard.scores import Gaussian
    >>> pool([0.0], [-1.0, 1.0], [2.0, 4.0], Gaussian()).output.tolist()
    [3.0]
    """
    if is_tensor(query):
        return _pool_tensors(query, key, value, score, mask, sample_weight, exclude, engine)
    if is_chunked(query) or is_chunked(key) or is_chunked(value):
        return _pool_chunks(query, key, value, score, mask, sample_weight, exclude, engine, tol)
    if engine == "auto" and mask is None and sample_weight is None and exclude is None:
        # Small problems of the common kind take longer to be described than to be computed.
        at_once = run_at_once(query, key, value, score, tol)
        if at_once is not None:
            return Pooled(*at_once)
    queries, keys, columns = matrix("query", query), matrix("key", key), matrix("value", value)
    problem = build(queries, keys, columns, score, mask=mask, sample_weight=sample_weight, exclude=exclude, tol=tol)
    return told(_averages(problem, engine), queries, single=np.ndim(value) == 1)


def told(finished: Finished, queries: Array, *, single: bool) -> Pooled:
    """A finished state as ``pool`` returns it: in the queries' dtype, one axis where the values had one."""
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
    """The weights themselves, (Q, K): not negative, each row sums to 1.

    weights[q, k] = softmax_k(score(query[q], key[k]) + log sample_weight[k]); parameters as in ``pool``.

    *Empty rows*: all zero. *Cost*: O(Q·K·d) time and, since you ask for it, O(Q·K) memory.

    >>> from regard.scores import Gaussian
    >>> attention_weights([0.0], [-1.0, 1.0], Gaussian()).tolist()
    [[0.5, 0.5]]
    """
    queries, keys = matrix("query", query), matrix("key", key)
    no_columns = np.empty((keys.shape[0], 0), np.float32)
    problem = build(queries, keys, no_columns, score, mask=mask, sample_weight=sample_weight, exclude=exclude)
    dtype = queries.dtype if queries.dtype.kind == "f" else np.dtype(np.float64)
    weights = run_weights(problem, engine).astype(dtype, copy=False)
    if problem.kept is None:
        return weights
    out = np.zeros((queries.shape[0], keys.shape[0]), dtype)
    out[:, problem.kept] = weights
    return out


def explain_plan(
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
) -> Plan | ChunkedPlan:
    """How ``pool`` would compute this, and why; print it to read it. Takes pool's arguments.

    Of dask arrays: how many pairs of chunks are looked at, what moves between workers, and the time expected.

    >>> from regard.scores import Gaussian
    >>> print(explain_plan([0.0], [-1.0, 1.0], [2.0, 4.0], Gaussian()))  # doctest: +ELLIPSIS
    1 queries × 2 keys in 1-D, 1 value column, float64, Gaussian score
      1. reference, Gaussian: 2 pairs are few enough for plain numpy; ...
    """
    if is_chunked(query) or is_chunked(key) or is_chunked(value):
        from regard.chunks import explain_chunks

        options = {"mask": mask, "sample_weight": sample_weight, "exclude": exclude, "engine": engine, "tol": tol}
        return explain_chunks(query, key, value, score, **options)
    problem = build(
        matrix("query", query),
        matrix("key", key),
        matrix("value", value),
        score,
        mask=mask,
        sample_weight=sample_weight,
        exclude=exclude,
        tol=tol,
    )
    return plan(problem.sketch(), engine, available_threads())


def _pool_tensors(
    query: Any, key: Any, value: Any, score: Score, mask: Any, sample_weight: Any, exclude: Any, engine: str
) -> Pooled:
    if engine not in ("auto", "fused"):
        raise ValueError(f"tensors are pooled by the fused programs: engine must be 'auto' or 'fused', got {engine!r}")
    from regard.tensors import pool_tensors

    pooled: Any = pool_tensors(query, key, value, score, mask=mask, sample_weight=sample_weight, exclude=exclude)
    return Pooled(*pooled)


def _pool_chunks(
    query: Any, key: Any, value: Any, score: Score, mask: Any, weight: Any, exclude: Any, engine: str, tol: float | None
) -> Pooled:
    from regard.chunks import pool_chunks

    options = {"mask": mask, "sample_weight": weight, "exclude": exclude, "engine": engine, "tol": tol}
    return Pooled(*pool_chunks(query, key, value, score, **options))


def _averages(problem: Problem, engine: str) -> Finished:
    """Normalised moments of degree 0, inside the hull of the columns."""
    power = excess(problem.column_bounds.size, len(problem.columns), problem.columns.dtype)
    if power.any():
        # Divided by powers of two, each column by its own, so that no sum overflows.
        problem = replace(problem, columns=np.ldexp(problem.columns, -power))
    partial, limit = run_moments(problem, engine)
    output, logsumexp = finish(partial)
    # ``pool`` clips what the limit stands for to the lowest number of its dtype.
    logsumexp = np.where(limit, np.finfo(np.float64).min, logsumexp + problem.weight_shift)
    inside = np.clip(output, *problem.column_bounds)
    output = np.where((logsumexp > -np.inf)[:, None], inside, output)
    return Finished(np.ldexp(output, power) if power.any() else output, logsumexp)
