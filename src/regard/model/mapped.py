"""Memory-mapped models: a second copy of the rows, sorted into blocks, so that a few queries read a few blocks.

Training rows keep their order, which is not spatial. So ``save`` adds a second copy of the rows of a large model,
sorted so that near rows are together, with bounding boxes of its blocks. A mapped model finds the blocks that a query
needs from the boxes and predicts from those alone; the others hold less of the attention than rounding does.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.core.block_bounds import (
    NEGLIGIBLE_MASS,
    NEGLIGIBLE_MASS_OF_LINES,
    BlockBounds,
    blocks_in_reach,
    nearest_block,
)
from regard.core.bounds import Bounds
from regard.core.scores import Radial
from regard.model.smoother import Answer, Embedded, Head, Smoother, TrainingRows

# Below this many rows, reading all of them is fast enough.
MIN_ROWS_TO_SORT = 1 << 16
# Rows of a block: a few pages of a file, and a thousand boxes for a million rows.
BLOCK_ROWS = 1 << 10
# Pairs in one tile, of queries and blocks or of queries and numbers of a block.
TILE_CELLS = 1 << 18
# If queries need more than this fraction of the rows, all rows are used.
MAX_FRACTION_READ = 0.5
# Rows used as queries to decide whether sorting is worthwhile.
SAMPLED_QUERIES = 64


class SortedRows(NamedTuple):
    """The training rows of positive weight, sorted into blocks of near rows; ``blocks.keys`` are the blocks' sizes."""

    key: Array  # (K, d)
    value: Array  # (K,) or (K, P)
    sample_weight: Array | None  # (K,)
    blocks: BlockBounds


def sorted_rows(smoother: Smoother, key: Array, value: Array, sample_weight: Array | None) -> SortedRows | None:
    """The rows of a smoother, sorted; None if they are few, or if sorting would save little reading.

    *Cost*: O(K·log K·d) time, three times the rows of memory.
    """
    first = smoother.heads[0]
    if first.neighbours is not None or len(key) < MIN_ROWS_TO_SORT or np.isnan(key).any():
        return None
    if not all(isinstance(head.score, Radial) and head.transform.by_column for head in smoother.heads):
        return None
    if isinstance(first.transform, Embedded) or not all(np.any(head.w) for head in smoother.heads):
        return None
    # Loads compiled programs.
    from regard.engines.cpu.kd_passes import kd_order

    rows = np.arange(len(key)) if sample_weight is None else np.flatnonzero(sample_weight > 0)
    w = np.linalg.norm(first.w, axis=1) if first.w.ndim == 2 else np.broadcast_to(first.w, key.shape[1]).copy()
    rows = rows[kd_order(np.asarray(first.transform.keys(key[rows]), np.float64), w, BLOCK_ROWS, BLOCK_ROWS)]
    key, value, weight = key[rows], value[rows], None if sample_weight is None else sample_weight[rows]
    starts = np.arange(0, len(rows), BLOCK_ROWS)
    logs = np.zeros(len(rows)) if weight is None else np.log(weight.astype(np.float64))
    blocks = BlockBounds(
        np.diff(starts, append=len(rows)),
        np.minimum.reduceat(key, starts),
        np.maximum.reduceat(key, starts),
        np.minimum.reduceat(logs, starts),
        np.maximum.reduceat(logs, starts),
    )
    found = SortedRows(key, value, weight, blocks)
    some = key[np.linspace(0, len(key) - 1, SAMPLED_QUERIES).astype(int)]
    read = np.median(_needed(smoother.heads, found, some) @ blocks.keys)
    return found if read <= MAX_FRACTION_READ * len(rows) else None


@dataclass(frozen=True, eq=False)
class MappedRows(TrainingRows):
    """Training rows in a memory-mapped file, with a sorted copy of which each query needs a few blocks."""

    found: SortedRows = field(kw_only=True)
    copied: tuple[Array, Array, Array | None] = field(kw_only=True)  # the keys, values and weights it is a copy of

    def answer(self, smoother: Smoother, query: Array) -> Answer:
        """Predictions from the rows that these queries (Q, d) need, or from all rows if they need most.

        *Cost*: O(Q·K/BLOCK_ROWS·d) time and reading these rows.
        """
        near = self.near(smoother.heads, query)
        output, empty = replace(smoother, rows=near).answer(query, near.pooled)
        if near is not self and smoother.empty == "prior" and empty.any():
            # Class frequencies are over all rows.
            output[empty] = smoother.answer(query[empty], self.pooled).output
        return Answer(output, empty)

    def near(self, heads: tuple[Head, ...], query: Array) -> TrainingRows:
        """The rows that these queries need, or all rows if they need most."""
        now = self.key, self.value, self.sample_weight
        if any(mine is not theirs for mine, theirs in zip(self.copied, now, strict=True)):
            return self  # the rows have changed since
        if np.isnan(query).any():
            return self  # distances with missing entries are over other columns
        found = self.found
        count = np.asarray(found.blocks.keys)
        needed, step = np.zeros(len(count), bool), max(1, TILE_CELLS // len(count))
        for start in range(0, len(query), step):
            needed |= _needed(heads, found, query[start : start + step]).any(axis=0)
            if count[needed].sum() > MAX_FRACTION_READ * count.sum():
                return self
        key, value = _read(found.key, count, needed), _read(found.value, count, needed)
        weight = None if found.sample_weight is None else _read(found.sample_weight, count, needed)
        return self.over(key, value, weight)


def mapped_rows(found: Any, key: Array, value: Array, sample_weight: Array | None) -> Callable[..., MappedRows]:
    """``MappedRows`` from the contents of a file; raises ValueError if they do not match the rows."""
    if not isinstance(found, SortedRows) or not isinstance(found.blocks, BlockBounds):
        raise ValueError("shelves_ must hold sorted rows")
    if found.key.shape != (found.blocks.keys.sum(), *key.shape[1:]):
        raise ValueError("shelves_ has other rows than key_")
    for part in found[:3]:
        _advise(part, "MADV_RANDOM")
    return partial(MappedRows, found=found, copied=(key, value, sample_weight))


def _needed(heads: tuple[Head, ...], found: SortedRows, query: Array) -> Array:
    """Which blocks (Q, S) the predictions at queries need."""
    needed = np.zeros((len(query), len(found.blocks.keys)), bool)
    for head in heads:
        placed, score, share = (
            head.transform.keys,
            head.score,
            NEGLIGIBLE_MASS_OF_LINES if head.degree else NEGLIGIBLE_MASS,
        )
        assert isinstance(score, Radial)
        at, blocks = placed(query), found.blocks
        blocks = blocks._replace(low=placed(blocks.low), high=placed(blocks.high))
        known, first = np.empty(len(at)), nearest_block(at, blocks, score.w)
        for block in np.unique(first):
            rows = placed(_read(found.key, blocks.keys, np.arange(len(blocks.keys)) == block))
            mine = np.flatnonzero(first == block)
            step = max(1, TILE_CELLS // rows.size)
            for some in np.split(mine, range(step, len(mine), step)):
                known[some] = score.distance2(at[some], rows).min(axis=1)
        needed |= blocks_in_reach(Bounds(at, at), blocks, score, share=share, nearest=True, known=known)
    return needed


def _read(rows: Array, count: Array, blocks: Array) -> Array:
    """Rows of some blocks (S,) read into memory, contiguous blocks at once."""
    ends = np.r_[0, np.cumsum(count)]
    edges = np.flatnonzero(np.diff(np.r_[0, blocks.astype(np.int8), 0]))
    runs = [rows[ends[a] : ends[b]] for a, b in edges.reshape(-1, 2)]
    for run in runs:
        _advise(run, "MADV_WILLNEED")
    return np.concatenate(runs)


def in_file(value: Any) -> bool:
    """Whether an array, or one inside of tuples, lists and dicts, is a view of a memory-mapped file."""
    if isinstance(value, dict | tuple | list):
        return any(map(in_file, value.values() if isinstance(value, dict) else value))
    return isinstance(_owner(value), mmap.mmap)


def _owner(value: Any) -> Any:
    """The object that owns the memory of an array."""
    while isinstance(value, np.ndarray):
        value = value.base
    return value


def _advise(rows: Array | None, advice: str) -> None:
    """Advise the system how rows in a file are read, if it can be: by default it reads megabytes around every page."""
    owner = _owner(rows)
    if rows is None or not rows.size or not isinstance(owner, mmap.mmap) or not hasattr(mmap, advice):
        return
    first = rows.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    start = first - first % mmap.PAGESIZE
    with suppress(OSError):
        owner.madvise(getattr(mmap, advice), start, first + rows.nbytes - start)
