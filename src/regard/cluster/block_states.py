"""States of blocks of queries over blocks of keys, as tasks: one per pair of blocks that matters, merged in a tree.

Pairs that cannot matter are found from the bounding boxes of the blocks and never scheduled. The order of the blocks
fixes the tree, so results are reproducible to the last bit on any number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from regard.cluster.blocked_rows import BlockedRows, RowBlock
from regard.core.arrays import Array
from regard.core.block_bounds import NEGLIGIBLE_MASS, NEGLIGIBLE_MASS_OF_LINES, blocks_in_reach
from regard.core.bounds import Bounds
from regard.core.local_fits import LocalFit, local_fit
from regard.core.problem import Problem, Sketch, build, matrix
from regard.core.scores import Nearest, Radial, Score
from regard.core.state import Partial
from regard.engines.tasks import tasks_of, worker_engine
from regard.pooling.mergeable_state import MergeableState, empty_state, state_of


@dataclass(frozen=True, eq=False)
class BlockPooling:
    """How blocks of queries are pooled over blocks of keys, for one head."""

    score: Score
    engine: str = "auto"
    tol: float | None = None
    degree: int = 0  # of the moments: 2 for local lines
    nearest: bool = False  # empty rows are answered by the nearest key
    classes: int = 0  # if positive, values are class numbers
    centre: Array | None = None  # (P,)  subtracted from the values
    scale: Array | None = None  # (P,)  centred values are divided by this
    transform: Callable[[Array], Array] | None = None  # of keys and queries, monotone in every column

    def points(self, key: Array) -> Array:
        """Keys or queries in the coordinates of the score; local lines need float64."""
        key = key if self.transform is None else self.transform(key)
        return key.astype(np.float64) if self.degree else key

    def columns(self, value: Array, dtype: Any) -> Array:
        """The columns to average, (n, P); one-hot columns of this dtype for classes."""
        if self.classes:
            return np.eye(self.classes, dtype=dtype)[value]
        table = matrix("value", value)
        if self.centre is None or self.scale is None:
            return table
        return np.asarray((table.astype(np.float64) - self.centre) / self.scale)


def block_problem(
    pooling: BlockPooling, query: RowBlock, key: RowBlock, mask: Array | None = None
) -> tuple[Problem, str]:
    """The problem of a block of queries over a block of keys, and the engine for it on this worker."""
    if not len(query.key) or not len(key.key):
        mask = None
    assert key.value is not None
    keys = pooling.points(matrix("key", key.key))
    problem = build(
        pooling.points(matrix("query", query.key)),
        keys,
        pooling.columns(key.value, keys.dtype if keys.dtype.kind == "f" else np.float64),
        pooling.score,
        mask=mask,
        sample_weight=key.weight,
        exclude=None if query.labels is None else (query.labels, key.labels),  # type: ignore[arg-type]
        degree=pooling.degree,
        tol=pooling.tol,
    )
    return problem, worker_engine(pooling.engine, len(problem.query) * len(problem.key))


def _state(pooling: BlockPooling, query: RowBlock, key: RowBlock, mask: Array | None = None) -> MergeableState:
    """The state of a block of queries over a block of keys, on the worker that computes it."""
    return state_of(*block_problem(pooling, query, key, mask), nearest=pooling.nearest)


class BlockFit(NamedTuple):
    """Local means or lines of a block of queries, from its state over all keys."""

    partial: Partial
    fit: LocalFit
    output: Array  # (Q, P)  averages of the columns; of the nearest key for empty rows
    settled: Array  # (Q,)  queries whose output does not depend on w: empty rows and softmax limits
    empty: Array  # (Q,)  queries with no key in reach


def fit_block(
    pooling: BlockPooling, state: MergeableState, ridge: float, width: int, own: Partial | None = None
) -> BlockFit:
    """Local fits from a state over keys of ``width`` features; ``own`` is merged in: copies of the query itself."""
    score, columns = pooling.score, len(state.power)
    assert isinstance(score, Radial)
    partial, limit = state.moments(own)
    settled = limit | (partial.mass <= 0.0)
    empty = settled & out_of_reach(pooling, state)
    fit = local_fit(partial, columns, width, pooling.degree // 2, score.w, ridge)
    nearest = partial.moments[:, :columns] / np.where(partial.mass > 0.0, partial.mass, 1.0)[:, None]
    return BlockFit(partial, fit, np.where((limit & empty)[:, None], nearest, fit.output), settled, empty)


def out_of_reach(pooling: BlockPooling, state: MergeableState) -> Array:
    """Queries (Q,) outside the support of a compact kernel around every key; none if the kernel is not compact."""
    compact = pooling.score.kernel.compact and not state.hard  # type: ignore[attr-defined]
    return state.soft.mass <= 0.0 if compact else np.zeros(len(state.tail), bool)


def pairs_in_reach(queries: BlockedRows, keys: BlockedRows, pooling: BlockPooling, *, masked: bool = False) -> Array:
    """Pairs of blocks (query blocks, key blocks) that can contribute to an answer."""
    same_label = sum(summary.max_same_label for summary in keys.summaries) if keys.labelled else 0
    boxes, key_bounds = queries.bounds, keys.block_bounds
    if pooling.transform is not None:
        # Monotone: corners stay corners.
        boxes = Bounds(*map(pooling.transform, boxes))
        low, high = map(pooling.transform, (key_bounds.low, key_bounds.high))
        key_bounds = key_bounds._replace(low=low, high=high)
    near = blocks_in_reach(
        boxes,
        key_bounds,
        pooling.score,
        share=NEGLIGIBLE_MASS_OF_LINES if pooling.degree else NEGLIGIBLE_MASS,
        excluded=None if masked else same_label,
        nearest=pooling.nearest,
    )
    return near & (np.array(queries.lengths) > 0)[:, None]


def query_states(
    queries: BlockedRows,
    keys: BlockedRows,
    pooling: BlockPooling,
    near: Array,
    masks: Array | None = None,
) -> list[Any]:
    """One delayed MergeableState for each block of queries, over all blocks of keys that are near; so are masks."""
    state, merge = tasks_of("state", _state), tasks_of("merge", MergeableState.joined)
    hard, columns = isinstance(pooling.score, Nearest), pooling.classes or keys.columns
    found = []
    for i, query in enumerate(queries.blocks):
        tasks = [
            state(pooling, query, keys.blocks[j], None if masks is None else masks[i, j])
            for j in np.flatnonzero(near[i])
        ]
        if not tasks:
            no_keys = tasks_of("empty", empty_state)
            tasks = [no_keys(queries.lengths[i], columns, keys.width, degree=pooling.degree, hard=hard)]
        found.append(merge_tree(tasks, merge))
    return found


def merge_tree(items: Sequence[Any], merge: Callable[[Any, Any], Any]) -> Any:
    """Adjacent items merged, level by level, until one is left."""
    items = list(items)
    while len(items) > 1:
        items = [*map(merge, items[::2], items[1::2]), *items[len(items) // 2 * 2 :]]
    return items[0]


def sketches(queries: BlockedRows, keys: BlockedRows, pooling: BlockPooling, near: Array) -> Iterator[Sketch]:
    """The planner's description of every pair of blocks that is near, as far as it is known beforehand."""
    score, columns = pooling.score, pooling.classes or keys.columns
    tol = 1e-9 if pooling.tol is None else pooling.tol
    for i, j in zip(*np.nonzero(near), strict=True):
        query, key = queries.summaries[i], keys.summaries[j]
        span: tuple[float, ...] = ()
        if isinstance(score, Radial) and score.w.ndim < 2 and query.weighted_rows and key.weighted_rows:
            width = np.maximum(query.key.high, key.key.high) - np.minimum(query.key.low, key.key.low)
            span = tuple((width * score.w).tolist())
        shape = query.rows, key.weighted_rows, len(key.key.low), columns
        yield Sketch(*shape, np.dtype(np.float64), score, pooling.degree, tol=tol, span=span)
