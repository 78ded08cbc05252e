"""Models that stay in their file: a second copy of the rows, shelf by shelf, so that a few queries read a few shelves.

Training rows keep their order, which is not one of space. So ``save`` adds to a large model its rows once more, near
ones together, and boxes around them; a mapped model finds in the boxes which shelves an answer needs, and answers as
if it had no other rows. What it leaves out holds less of the attention than rounding takes.
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

# Fewer rows than this are read as fast as they are asked for.
MANY = 1 << 16
# Rows of a shelf: some pages of a file, and a thousand boxes to look at where there are a million rows.
SHELF = 1 << 10
# Pairs looked at together, of queries and shelves or of queries and numbers on a shelf.
CELLS = 1 << 18
# Where queries need more than this share of the rows, all of them are as good.
MOST = 0.5
# Rows whose needs tell whether shelves are worth their place.
SAMPLE = 64


class Shelved(NamedTuple):
    """The training rows that have a weight, shelf by shelf; ``shelves.keys`` says how many stand on each."""

    key: Array  # (K, d)
    value: Array  # (K,) or (K, P)
    sample_weight: Array | None  # (K,)
    shelves: BlockBounds


def shelved(smoother: Smoother, key: Array, value: Array, sample_weight: Array | None) -> Shelved | None:
    """The rows of a smoother on shelves; None where they are few, or shelves would spare little reading.

    *Cost*: O(K·log K·d) time, three times the rows of memory.
    """
    first = smoother.heads[0]
    if first.neighbours is not None or len(key) < MANY or np.isnan(key).any():
        return None
    if not all(isinstance(head.score, Radial) and head.transform.by_column for head in smoother.heads):
        return None
    if isinstance(first.transform, Embedded) or not all(np.any(head.w) for head in smoother.heads):
        return None
    # Compiled programs load when they are first used.
    from regard.engines.cpu.kd_passes import kd_order

    rows = np.arange(len(key)) if sample_weight is None else np.flatnonzero(sample_weight > 0)
    w = np.linalg.norm(first.w, axis=1) if first.w.ndim == 2 else np.broadcast_to(first.w, key.shape[1]).copy()
    rows = rows[kd_order(np.asarray(first.transform.keys(key[rows]), np.float64), w, SHELF, SHELF)]
    key, value, weight = key[rows], value[rows], None if sample_weight is None else sample_weight[rows]
    starts = np.arange(0, len(rows), SHELF)
    logs = np.zeros(len(rows)) if weight is None else np.log(weight.astype(np.float64))
    shelves = BlockBounds(
        np.diff(starts, append=len(rows)),
        np.minimum.reduceat(key, starts),
        np.maximum.reduceat(key, starts),
        np.minimum.reduceat(logs, starts),
        np.maximum.reduceat(logs, starts),
    )
    found = Shelved(key, value, weight, shelves)
    some = key[np.linspace(0, len(key) - 1, SAMPLE).astype(int)]
    return found if np.median(_needed(smoother.heads, found, some) @ shelves.keys) <= MOST * len(rows) else None


@dataclass(frozen=True, eq=False)
class MappedRows(TrainingRows):
    """Training rows that stay in their file, near ones together, and which of them some queries need."""

    found: Shelved = field(kw_only=True)
    copied: tuple[Array, Array, Array | None] = field(kw_only=True)  # the keys, values and weights that it is a copy of

    def answer(self, smoother: Smoother, query: Array) -> Answer:
        """From the rows that these queries (Q, d) need; from all, if they need most.

        *Cost*: O(Q·K/SHELF·d) time and the reading of these rows.
        """
        near = self.near(smoother.heads, query)
        output, empty = replace(smoother, rows=near).answer(query, near.pooled)
        if near is not self and smoother.empty == "prior" and empty.any():
            # The class frequencies are those of all rows.
            output[empty] = smoother.answer(query[empty], self.pooled).output
        return Answer(output, empty)

    def near(self, heads: tuple[Head, ...], query: Array) -> TrainingRows:
        """The rows that these queries need; all, if they need most."""
        now = self.key, self.value, self.sample_weight
        if any(mine is not theirs for mine, theirs in zip(self.copied, now, strict=True)):
            return self  # there are other rows now
        if np.isnan(query).any():
            return self  # a row with gaps is compared by other columns
        found = self.found
        count = np.asarray(found.shelves.keys)
        needed, step = np.zeros(len(count), bool), max(1, CELLS // len(count))
        for start in range(0, len(query), step):
            needed |= _needed(heads, found, query[start : start + step]).any(axis=0)
            if count[needed].sum() > MOST * count.sum():
                return self
        key, value = _on(found.key, count, needed), _on(found.value, count, needed)
        weight = None if found.sample_weight is None else _on(found.sample_weight, count, needed)
        return self.over(key, value, weight)


def mapped_rows(found: Any, key: Array, value: Array, sample_weight: Array | None) -> Callable[..., MappedRows]:
    """``MappedRows`` of what a file holds; raises ValueError where that is not about rows like these."""
    if not isinstance(found, Shelved) or not isinstance(found.shelves, BlockBounds):
        raise ValueError("shelves_ are none")
    if found.key.shape != (found.shelves.keys.sum(), *key.shape[1:]):
        raise ValueError("shelves_ are of other rows")
    for part in found[:3]:
        _advise(part, "MADV_RANDOM")
    return partial(MappedRows, found=found, copied=(key, value, sample_weight))


def _needed(heads: tuple[Head, ...], found: Shelved, query: Array) -> Array:
    """Which shelves (Q, S) the answers to queries need."""
    needed = np.zeros((len(query), len(found.shelves.keys)), bool)
    for head in heads:
        placed, score, share = (
            head.transform.keys,
            head.score,
            NEGLIGIBLE_MASS_OF_LINES if head.degree else NEGLIGIBLE_MASS,
        )
        assert isinstance(score, Radial)
        at, shelves = placed(query), found.shelves
        shelves = shelves._replace(low=placed(shelves.low), high=placed(shelves.high))
        known, first = np.empty(len(at)), nearest_block(at, shelves, score.w)
        for shelf in np.unique(first):
            rows = placed(_on(found.key, shelves.keys, np.arange(len(shelves.keys)) == shelf))
            mine = np.flatnonzero(first == shelf)
            step = max(1, CELLS // rows.size)
            for block in np.split(mine, range(step, len(mine), step)):
                known[block] = score.distance2(at[block], rows).min(axis=1)
        needed |= blocks_in_reach(Bounds(at, at), shelves, score, share=share, nearest=True, known=known)
    return needed


def _on(rows: Array, count: Array, shelves: Array) -> Array:
    """Rows of some shelves (S,) read into memory, run by run."""
    ends = np.r_[0, np.cumsum(count)]
    edges = np.flatnonzero(np.diff(np.r_[0, shelves.astype(np.int8), 0]))
    runs = [rows[ends[a] : ends[b]] for a, b in edges.reshape(-1, 2)]
    for run in runs:
        _advise(run, "MADV_WILLNEED")
    return np.concatenate(runs)


def in_file(value: Any) -> bool:
    """Whether an array, or one inside of tuples, lists and dicts, is a view of a mapped file."""
    if isinstance(value, dict | tuple | list):
        return any(map(in_file, value.values() if isinstance(value, dict) else value))
    while isinstance(value, np.ndarray):
        value = value.base
    return isinstance(value, mmap.mmap)


def _advise(rows: Array | None, advice: str) -> None:
    """Tell the system how rows in a file are read, where it listens: else it reads megabytes around every page."""
    owner: Any = rows
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if rows is None or not rows.size or not isinstance(owner, mmap.mmap) or not hasattr(mmap, advice):
        return
    first = rows.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    start = first - first % mmap.PAGESIZE
    with suppress(OSError):
        owner.madvise(getattr(mmap, advice), start, first + rows.nbytes - start)
