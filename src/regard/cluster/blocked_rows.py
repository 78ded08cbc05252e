"""Rows in blocks on a cluster, validated there, and a summary of each block that is held here.

This process receives a bounding box, some counts and some sums per block; the rows themselves stay on the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from regard.cluster.dask_blocks import dask_blocks
from regard.core.arrays import Array
from regard.core.block_bounds import BlockBounds
from regard.core.bounds import Bounds, bounds_of, require_finite
from regard.core.problem import checked_weight, matrix
from regard.engines.tasks import compute, current_worker, task_for_each, tasks_of


class RowBlock(NamedTuple):
    """The rows of one block, as arrays in a worker's memory."""

    key: Array  # (n, d)
    value: Array | None = None  # (n,) or (n, P)
    weight: Array | None = None  # (n,)
    labels: Array | None = None  # (n,) integers


class BlockSummary(NamedTuple):
    """Counts, bounds and sums of a block; bounds are over the rows of positive weight."""

    rows: int
    weighted_rows: int  # rows of positive weight
    key: Bounds
    value: Bounds
    total_weight: float
    weighted_sums: Array  # (P,)  of weight·value
    min_weight: float  # over the positive weights
    max_weight: float
    max_same_label: int  # rows that share a label, at most
    nbytes: int
    worker: str  # address of the worker that computed this summary and so most likely holds the block


@dataclass(frozen=True, eq=False)
class BlockedRows:
    """One argument, or several that belong together row by row."""

    blocks: tuple[Any, ...]  # delayed RowBlocks
    width: int
    columns: int  # of value; 0 without
    single: bool  # value has one axis
    dtype: np.dtype[Any]  # of the keys
    weighted: bool = False
    repeats: bool = False  # weights are repetitions: their dtype is integer
    labelled: bool = False
    summaries: tuple[BlockSummary, ...] = ()  # filled in by ``with_summaries``

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(summary.rows for summary in self.summaries)

    @property
    def size(self) -> int:
        return sum(self.lengths)

    @property
    def offsets(self) -> Array:
        """Number of the first row of each block, (blocks + 1,); the last is the number of rows."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=int)])

    @property
    def weighted_rows(self) -> int:
        """Rows of positive weight."""
        return sum(summary.weighted_rows for summary in self.summaries)

    @property
    def bounds(self) -> Bounds:
        """Corners of the bounding boxes of the blocks, (blocks, d) each."""
        low, high = ([getattr(summary.key, end) for summary in self.summaries] for end in ("low", "high"))
        return Bounds(np.array(low).reshape(-1, self.width), np.array(high).reshape(-1, self.width))

    @property
    def block_bounds(self) -> BlockBounds:
        """Bounding boxes and weights of the blocks, from which scores are bounded."""
        weights = np.log([[summary.min_weight, summary.max_weight] for summary in self.summaries]).reshape(-1, 2)
        keys = np.array([summary.weighted_rows for summary in self.summaries])
        return BlockBounds(keys, *self.bounds, weights[:, 0], weights[:, 1])

    @property
    def mean(self) -> Array:
        """The weighted mean of value, (P,)."""
        total = np.sum([summary.total_weight for summary in self.summaries])
        return np.asarray(np.sum([summary.weighted_sums / total for summary in self.summaries], axis=0))

    def overall_bounds(self, part: str) -> Bounds:
        """Bounds (d,) or (P,) of "key" or "value" over all rows of positive weight."""
        each = [getattr(summary, part) for summary in self.summaries if summary.weighted_rows]
        return Bounds(np.min([one.low for one in each], axis=0), np.max([one.high for one in each], axis=0))

    def tasks(self, name: str, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """A delayed ``function(block, *arguments)`` for every block."""
        return task_for_each(name, function, ((block, *arguments) for block in self.blocks))

    def map_blocks(self, name: str, function: Callable[..., RowBlock], *arguments: Any) -> BlockedRows:
        """The same with the blocks that ``function`` returns, not summarised yet."""
        return replace(self, blocks=tuple(self.tasks(name, function, *arguments)), summaries=())

    def take(self, wanted: Array) -> Any:
        """A delayed RowBlock of some rows, by their sorted numbers among all."""
        starts = self.offsets
        cuts = np.searchsorted(wanted, starts)
        parts = [
            (block, wanted[cuts[number] : cuts[number + 1]] - starts[number])
            for number, block in enumerate(self.blocks)
            if cuts[number] < cuts[number + 1]
        ]
        return tasks_of("gather", concatenate_blocks)(task_for_each("take", _take, parts))


def blocked_rows(
    name: str,
    key: Any,
    value: Any = None,
    weight: Any = None,
    labels: Any = None,
    *,
    names: Sequence[str] = ("value", "sample_weight", "exclude"),
) -> BlockedRows:
    """Dask collections, or arrays used beside them, as rows in blocks; nothing is computed but unknown lengths.

    ``names`` are those of value, weight and labels in messages.
    """
    keys = dask_blocks(name, key)
    others = [
        None if part is None else dask_blocks(what, part, keys, ndim)
        for what, part, ndim in zip(names, (value, weight, labels), ((1, 2), (1,), (1,)), strict=True)
    ]
    values, weights, _ = others
    parts = [[None] * keys.count if other is None else other.delayed() for other in others]
    blocks = zip(keys.delayed(), *parts, strict=True)
    return BlockedRows(
        tuple(
            task_for_each(
                "block", _validated_block, (((name, *names), number, *each) for number, each in enumerate(blocks))
            )
        ),
        keys.width,
        0 if values is None else values.width,
        values is not None and values.ndim == 1,
        np.dtype(keys.dtype) if np.dtype(keys.dtype).kind == "f" else np.dtype(np.float64),
        weight is not None,
        weights is not None and np.dtype(weights.dtype).kind in "iub",
        labels is not None,
    )


def with_summaries(*tables: BlockedRows) -> list[BlockedRows]:
    """The same with their summaries, all computed in one pass over the blocks."""
    found = iter(compute([task for rows in tables for task in rows.tasks("summary", _summary)]))
    return [replace(rows, summaries=tuple(next(found) for _ in rows.blocks)) for rows in tables]


def _validated_block(names: Sequence[str], number: int, key: Any, value: Any, weight: Any, labels: Any) -> RowBlock:
    """A block as plain arrays, on the worker that holds it; errors name the block."""
    try:
        value, weight, labels = (None if part is None else _plain(part) for part in (value, weight, labels))
        rows = matrix(names[0], _numbers(names[0], key))
        for name, part in zip(names[1:], (value, weight, labels), strict=True):
            if part is not None and len(part) != len(rows):
                raise ValueError(f"{names[0]} has {len(rows)} rows but {name} has {len(part)}")
        weight = checked_weight(weight, len(rows), all_zero=True)
        if labels is not None and names[3] == "exclude" and labels.dtype.kind not in "iu":
            raise TypeError(f"{names[3]} must hold integers, got dtype {labels.dtype}")
        block = RowBlock(rows, value, weight, labels)
        positive = positive_rows(block)
        require_finite(names[0], rows[positive], bounds_of(rows[positive]))
        if value is not None and value.dtype.kind in "fiub":
            table = matrix(names[1], value)[positive]
            require_finite(names[1], table, bounds_of(table))
        return block
    except (TypeError, ValueError) as reason:
        raise type(reason)(f"chunk {number}: {reason}") from None


def _plain(part: Any) -> Array:
    """An array of a block, which may be a dataframe's."""
    return np.asarray(part.to_numpy() if hasattr(part, "to_numpy") else part)


def _numbers(name: str, part: Any) -> Array:
    """The same, converted to numbers if a dataframe holds them as objects."""
    array = _plain(part)
    if array.dtype != object:
        return array
    try:
        # Nullable dtypes such as Int64 become objects, with missing values that are no floats.
        return np.asarray(part.to_numpy(np.float64, na_value=np.nan) if hasattr(part, "to_numpy") else array, float)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must hold real numbers, got text or other objects; encode them first") from None


def positive_rows(block: RowBlock) -> Any:
    """An index of the rows of positive weight."""
    return slice(None) if block.weight is None else block.weight > 0


def weights_of(block: RowBlock) -> Array:
    """Weights of the rows, (n,) float64."""
    return np.ones(len(block.key)) if block.weight is None else block.weight.astype(np.float64)


def _summary(block: RowBlock) -> BlockSummary:
    value, labels = block.value, block.labels
    positive = positive_rows(block)
    key, weights = block.key[positive], weights_of(block)[positive]
    table = np.zeros((len(key), 0))
    if value is not None and value.dtype.kind in "fiub":
        table = matrix("value", value)[positive].astype(np.float64)
    return BlockSummary(
        len(block.key),
        len(key),
        bounds_of(key.astype(np.float64)),
        bounds_of(table),
        float(weights.sum()),
        weights @ table,
        float(weights.min()) if len(weights) else 1.0,
        float(weights.max()) if len(weights) else 1.0,
        0 if labels is None or not len(labels) else int(np.unique(labels, return_counts=True)[1].max()),
        sum(part.nbytes for part in block if part is not None),
        current_worker(),
    )


def concatenate_blocks(blocks: Sequence[RowBlock]) -> RowBlock:
    """Several blocks as one."""
    return RowBlock._make(None if each[0] is None else np.concatenate(each) for each in zip(*blocks, strict=True))


def _take(block: RowBlock, rows: Array) -> RowBlock:
    return RowBlock._make(None if part is None else part[rows] for part in block)
