"""``pool``, ``attention_weights`` and ``explain_plan`` of arrays in memory, torch tensors and dask arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from regard.cluster import explain_chunks, pool_chunks
from regard.cluster.chunked_plan import ChunkedPlan
from regard.core.arrays import Array, is_chunked, is_tensor
from regard.core.scores import Score
from regard.pooling import functions
from regard.pooling.functions import Pooled
from regard.pooling.planner import Plan


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
    query : array or tensor (Q, d)
        Real numbers; one axis means one feature. Never written to. Tensors may have batch axes in front, and have
        gradients, as have the score's parameters (``regard.tensors.pool_tensors`` computes them). Dask arrays are
        pooled where they are.
    key : array or tensor (K, d)
        Real numbers, as many features as the score takes.
    value : array or tensor (K,) or (K, P)
        What is averaged: one number or P numbers for each key.
    score : Score
        A score of ``regard.scores``, such as ``Gaussian(w=1.0)``.
    mask : array (Q, K), default=None
        Booleans, True = may attend; or floats to add to the scores (−inf = may not). Integers are an error.
    sample_weight : array (K,), default=None
        Not negative; weight k is the same as k copies, 0 as deletion.
    exclude : tuple of arrays (Q,) and (K,), default=None
        Integer labels of queries and keys; a pair with equal labels may not attend. Row numbers on both sides give
        leave-one-out, group numbers leave whole groups out.
    engine : str, default="auto"
        "auto", or the name of an engine, which then never falls back to another.
    tol : float, default=None
        Fraction of its attention mass that a query may lose; 0 is exact. None is 1e-9 in float64 and 1e-5 in float32,
        and 0 for tensors.

    Returns
    -------
    Pooled
        ``output`` and ``logsumexp``, in the query's dtype.

    Raises
    ------
    TypeError, ValueError
        The message names the argument, what was given and what is accepted.

    *Empty rows* (no key may be attended to): output 0 and logsumexp −inf. *Cost*: at most O(Q·K·d) time, far less if an
    engine can skip pairs (see ``explain_plan``); memory O(Q + K) and a tile, never (Q, K).

    >>> from regard.scores import Gaussian
    >>> pool([0.0], [-1.0, 1.0], [2.0, 4.0], Gaussian()).output.tolist()
    [3.0]
    """
    # Plain arrays, the common case, are recognised at once: a small call takes 15 µs in all.
    if not (type(query) is type(key) is type(value) is np.ndarray):
        options: dict[str, Any] = {"mask": mask, "sample_weight": sample_weight, "exclude": exclude}
        if is_tensor(query):
            return Pooled(*_tensors(engine).pool_tensors(query, key, value, score, **options, tol=tol))
        if is_chunked(query) or is_chunked(key) or is_chunked(value):
            return Pooled(*pool_chunks(query, key, value, score, engine=engine, tol=tol, **options))
    return functions.pool(
        query, key, value, score, mask=mask, sample_weight=sample_weight, exclude=exclude, engine=engine, tol=tol
    )


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

    weights[q, k] = softmax_k(score(query[q], key[k]) + log sample_weight[k])

    Parameters
    ----------
    query, key, score, mask, sample_weight, exclude, engine : as in ``pool``
        Arrays in memory, or torch tensors, which may have batch axes in front.

    Returns
    -------
    array or tensor (Q, K)
        In the query's dtype if that is a floating one, otherwise float64. Tensors give a tensor (…, Q, K), with
        gradients.

    *Empty rows*: all zero. *Cost*: O(Q·K·d) time and O(Q·K) memory.

    >>> from regard.scores import Gaussian
    >>> attention_weights([0.0], [-1.0, 1.0], Gaussian()).tolist()
    [[0.5, 0.5]]
    """
    options: dict[str, Any] = {"mask": mask, "sample_weight": sample_weight, "exclude": exclude}
    if is_tensor(query):
        weights: Array = _tensors(engine).weights_of_tensors(query, key, score, **options)
        return weights
    return functions.attention_weights(query, key, score, **options, engine=engine)


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
    """How ``pool`` would compute this, and why; print it to read it.

    For tensors: the implementation that will be used, and on a CPU, where engines compute them, the engines' own plan.
    For dask arrays: the number of pairs of chunks computed, what moves between workers, and the expected time.

    Parameters
    ----------
    query, key, value, score, mask, sample_weight, exclude, engine, tol : as in ``pool``
        The call of ``pool`` to explain.

    Returns
    -------
    Plan
        Steps with their engines, estimated costs and reasons. Nothing is pooled.

    >>> from regard.scores import Gaussian
    >>> print(explain_plan([0.0], [-1.0, 1.0], [2.0, 4.0], Gaussian()))  # doctest: +ELLIPSIS
    1 queries × 2 keys in 1-D, 1 value column, float64, Gaussian score
      1. reference, Gaussian: 2 pairs are few enough for plain numpy; ...
    """
    options: dict[str, Any] = {"mask": mask, "sample_weight": sample_weight, "exclude": exclude}
    if is_tensor(query):
        plan: Plan = _tensors(engine).explain_tensors(query, key, value, score, **options, tol=tol)
        return plan
    options |= {"engine": engine, "tol": tol}
    if is_chunked(query) or is_chunked(key) or is_chunked(value):
        return explain_chunks(query, key, value, score, **options)
    return functions.explain_plan(query, key, value, score, **options)


def _tensors(engine: str) -> Any:
    """``regard.tensors``, which needs torch, after a check that the engine takes tensors."""
    if engine not in ("auto", "fused"):
        raise ValueError(f"tensors are pooled by the fused programs: engine must be 'auto' or 'fused', got {engine!r}")
    from regard import tensors

    return tensors
