"""``pool`` of dask arrays: the same answer as on one machine, computed where the keys are.

The result is lazy if the queries are a dask array, and numpy arrays otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.cluster.block_states import BlockPooling, pairs_in_reach, query_states
from regard.cluster.blocked_rows import BlockedRows, RowBlock, blocked_rows, with_summaries
from regard.core.arrays import Array, is_chunked
from regard.core.scores import Score
from regard.engines import check_engine
from regard.engines.tasks import compute, task_for_each
from regard.pooling.functions import as_pooled
from regard.pooling.mergeable_state import MergeableState


class ChunkedProblem(NamedTuple):
    """The validated arguments of ``pool``, and the pairs of their blocks that matter."""

    queries: BlockedRows
    keys: BlockedRows
    pooling: BlockPooling
    near: Array  # (query blocks, key blocks)
    masks: Array | None  # the same shape, delayed


def chunked_problem(
    query: Any,
    key: Any,
    value: Any,
    score: Score,
    *,
    mask: Any = None,
    sample_weight: Any = None,
    exclude: Any = None,
    engine: str = "auto",
    tol: float | None = None,
) -> ChunkedProblem:
    """Validate the arguments of ``pool`` and find the pairs of blocks that matter, in one pass over all blocks."""
    if not isinstance(score, Score):
        raise TypeError(f"score must be a score of regard.scores such as Gaussian(w=1.0), got {score!r}")
    check_engine(engine)
    if exclude is not None and not (isinstance(exclude, tuple | list) and len(exclude) == 2):
        raise TypeError("exclude must be a pair (query_labels, key_labels)")
    query_labels, key_labels = (None, None) if exclude is None else exclude
    queries = blocked_rows("query", query, labels=query_labels)
    keys = blocked_rows("key", key, value, sample_weight, key_labels)
    score.check(queries.width, keys.width)
    queries, keys = with_summaries(queries, keys)
    if keys.size and not keys.weighted_rows:
        raise ValueError("all sample weights are zero")
    # The workers must not use the engine "dask" in turn.
    pooling = BlockPooling(score, "auto" if engine == "dask" else engine, tol)
    near = pairs_in_reach(queries, keys, pooling, masked=mask is not None)
    masks = None if mask is None else _block_masks(mask, queries, keys)
    return ChunkedProblem(queries, keys, pooling, near, masks)


def pool_chunks(query: Any, *arguments: Any, **options: Any) -> tuple[Any, Any]:
    """Output and logsumexp, as ``regard.pool`` of the same arguments gives them.

    Parameters
    ----------
    query : array or dask collection (Q, d)
        The result is lazy if this is a dask array.
    *arguments : arrays or dask collections, and a Score
        ``key``, ``value`` and ``score`` of ``regard.pool``.
    **options : dict
        ``mask``, ``sample_weight``, ``exclude``, ``engine`` and ``tol`` of ``regard.pool``.

    Returns
    -------
    tuple of two arrays (Q,) or (Q, P) and (Q,)
        Dask arrays if the queries are one, numpy arrays otherwise.

    Raises
    ------
    ClusterError
        If the scheduler cannot be reached, or workers or data were lost.

    *Cost*: as ``pool`` of every pair of blocks that matters; blocks of queries and O(queries·key blocks) states move
    between machines.

    >>> import dask.array as da
    >>> from regard.scores import Gaussian
    >>> query, key = da.from_array(np.array([[0.0]])), np.array([[-1.0], [1.0]])
    >>> output, _ = pool_chunks(query, key, np.array([2.0, 4.0]), Gaussian())
    >>> output.compute().tolist()
    [3.0]
    """
    queries, keys, pooling, near, masks = chunked_problem(query, *arguments, **options)
    states = query_states(queries, keys, pooling, near, masks)
    each = ((state, block, keys.single) for state, block in zip(states, queries.blocks, strict=True))
    found = task_for_each("answer", _pooled, each)
    if not is_chunked(query):
        output, logsumexp = map(np.concatenate, zip(*compute(found), strict=True))
        return output, logsumexp
    shapes = () if keys.single else (keys.columns,), ()
    output, logsumexp = (
        lazy_array([one[part] for one in found], queries.lengths, shape, queries.dtype)
        for part, shape in enumerate(shapes)
    )
    return output, logsumexp


def _pooled(state: MergeableState, query: RowBlock, single: bool) -> tuple[Array, Array]:
    """Output and logsumexp of a block of queries."""
    return as_pooled(state.finished(), query.key, single=single)


def lazy_array(blocks: Sequence[Any], lengths: Sequence[int], shape: tuple[int, ...], dtype: Any) -> Any:
    """Delayed blocks as one dask array."""
    import dask.array as da

    parts = zip(blocks, lengths, strict=True)
    return da.concatenate([da.from_delayed(block, (length, *shape), dtype=dtype) for block, length in parts], axis=0)


def _block_masks(mask: Any, queries: BlockedRows, keys: BlockedRows) -> Array:
    """Delayed masks of all pairs of blocks, from an array or a dask array (queries, keys)."""
    import dask.array as da

    shape, chunks = (queries.size, keys.size), (queries.lengths, keys.lengths)
    if is_chunked(mask):
        if tuple(mask.shape) != shape:
            raise ValueError(f"mask must have the shape (queries, keys) = {shape}, got shape {mask.shape}")
        return np.asarray(mask.rechunk(chunks).to_delayed())
    array = np.asarray(mask)
    try:
        whole = np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"mask must broadcast to (queries, keys) = {shape}, got shape {array.shape}") from None
    return np.asarray(da.from_array(whole, chunks, name=False).to_delayed())
