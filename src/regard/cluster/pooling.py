"""``pool`` of dask arrays: the same answer as on one machine, computed where the keys are.

Answers are as queries are: lazy where the queries are of dask, numbers where they are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.cluster.rows import Block, Rows, examined, rows_of
from regard.cluster.states import Look, pairs_in_reach, states
from regard.core.arrays import Array, is_chunked
from regard.core.scores import Score
from regard.engines import check_engine
from regard.engines.tasks import compute, tasks_of
from regard.pooling.folds import Fold
from regard.pooling.functions import told


class Chunked(NamedTuple):
    """The arguments of ``pool``, checked, and the pairs of their blocks that matter."""

    queries: Rows
    keys: Rows
    look: Look
    near: Array  # (query blocks, key blocks)
    masks: Callable[[int, int], Any] | None
    lazy: bool


def prepared(
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
) -> Chunked:
    """Check the arguments of ``pool`` and find out which pairs of blocks matter: one pass over all blocks."""
    if not isinstance(score, Score):
        raise TypeError(f"score must be a score of regard.scores such as Gaussian(w=1.0), got {score!r}")
    check_engine(engine)
    if exclude is not None and not (isinstance(exclude, tuple | list) and len(exclude) == 2):
        raise TypeError("exclude must be a pair (query_labels, key_labels)")
    labels = (None, None) if exclude is None else exclude
    queries = rows_of("query", query, labels=labels[0])
    keys = rows_of("key", key, value, sample_weight, labels[1])
    score.check(queries.width, keys.width)
    queries, keys = examined(queries, keys)
    if keys.size and not any(fact.counted for fact in keys.facts):
        raise ValueError("sample_weight is zero for every key: nobody is left to attend to")
    # Of a pair of blocks dask itself is no engine.
    look = Look(score, "auto" if engine == "dask" else engine, tol)
    near = pairs_in_reach(queries, keys, look, masked=mask is not None)
    masks = None if mask is None else _masks(mask, queries, keys)
    return Chunked(queries, keys, look, near, masks, is_chunked(query))


def pool_chunks(*arguments: Any, **options: Any) -> tuple[Any, Any]:
    """Output and logsumexp, as ``regard.pool`` of the same arguments gives them.

    *Cost*: as ``pool`` of every pair of blocks that matters; what moves between machines are blocks of queries and
    states, O(queries·key blocks).
    """
    queries, keys, look, near, masks, lazy = prepared(*arguments, **options)
    task = tasks_of("answer", answered)
    folds = states(queries, keys, look, near, masks)
    pairs = enumerate(zip(folds, queries.blocks, strict=True))
    found = [task((at,), fold, block, keys.single) for at, (fold, block) in pairs]
    if not lazy:
        parts = compute(found)
        output, logsumexp = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
        return output, logsumexp
    shape = () if keys.single else (keys.columns,)
    return (
        as_array([one[0] for one in found], queries.lengths, shape, queries.dtype),
        as_array([one[1] for one in found], queries.lengths, (), queries.dtype),
    )


def answered(fold: Fold, query: Block, single: bool) -> tuple[Array, Array]:
    """Output and logsumexp of a block of queries."""
    output, logsumexp = told(fold.finished(), query.key, single=single)
    return output, logsumexp


def as_array(parts: Sequence[Any], lengths: Sequence[int], shape: tuple[int, ...], dtype: Any) -> Any:
    """Delayed blocks as one dask array."""
    import dask.array as da

    blocks = [da.from_delayed(part, (length, *shape), dtype=dtype) for part, length in zip(parts, lengths, strict=True)]
    return da.concatenate(blocks, axis=0)


def _masks(mask: Any, queries: Rows, keys: Rows) -> Callable[[int, int], Any]:
    """The mask of a pair of blocks: of an array, or of a dask array, (queries, keys)."""
    shape = queries.size, keys.size
    cuts = [np.concatenate([[0], np.cumsum(rows.lengths)]) for rows in (queries, keys)]
    if is_chunked(mask):
        if tuple(mask.shape) != shape:
            raise ValueError(f"mask must have the shape (queries, keys) = {shape}, got shape {mask.shape}")
        blocks = mask.rechunk((queries.lengths, keys.lengths)).to_delayed()
        return lambda i, j: blocks[i, j]
    array = np.asarray(mask)
    try:
        whole = np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"mask must broadcast to (queries, keys) = {shape}, got shape {array.shape}") from None
    return lambda i, j: whole[cuts[0][i] : cuts[0][i + 1], cuts[1][j] : cuts[1][j + 1]]
