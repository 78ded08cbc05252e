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
    query : (Q, d), key : (K, d), value : (K,) or (K, P)
        Real numbers; one axis means one feature. Never written to. Torch tensors may have batch axes in front, and
        have gradients, as have the score's parameters (``regard.tensors.pool_tensors`` computes them).
    score : a score of ``regard.scores``, such as ``Gaussian(w=1.0)``.
    mask : boolean (Q, K), True = may attend; or floats to add to the scores (−inf = may not).
    sample_weight : (K,), not negative; weight k is the same as k copies, 0 as deletion.
    exclude : (query_labels, key_labels), integers; a pair with equal labels may not attend. Row numbers on
        both sides give leave-one-out, group numbers leave whole groups out.
    engine : "auto", or the name of an engine, which then never falls back to another.
    tol : share of its attention mass that a query may lose; 0 is exact. Default 1e-9 (float64) or 1e-5 (float32), and 0
        for tensors.

    Returns
    -------
    Pooled(output, logsumexp), in the query's dtype.

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

    weights[q, k] = softmax_k(score(query[q], key[k]) + log sample_weight[k]); parameters as in ``pool``. Torch tensors
    give a tensor (…, Q, K), with gradients.

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
    """How ``pool`` would compute this, and why; print it to read it. Takes pool's arguments.

    For tensors: the implementation that will be used, and on a CPU, where engines compute them, the engines' own plan.
    For dask arrays: the number of pairs of chunks computed, what moves between workers, and the expected time.

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
