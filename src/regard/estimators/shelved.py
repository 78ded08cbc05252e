"""Models that stay in their file: a second copy of the rows, shelf by shelf, so that a few queries read a few shelves.

Training rows keep their order, which is not one of space. So ``save`` adds to a large model its rows once more, near
ones together, and boxes around them; a mapped model finds in the boxes which shelves an answer needs, and is asked as
if it had no other rows. What it does not see holds less of the attention than rounding takes.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.bounds import Bounds
from regard.scores import Gaussian, Radial
from regard.shelves import LINES, SHARE, Shelves, in_reach, nearest_shelf

Array = NDArray[Any]

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
    shelves: Shelves


def shelved(model: Any, key: Array, value: Array, sample_weight: Array | None) -> Shelved | None:
    """The rows of a fitted model on shelves; None where they are few, or shelves would spare little reading.

    *Cost*: O(K·log K·d) time, three times the rows of memory.
    """
    if hasattr(model, "neighbours_") or hasattr(model, "embedding_") or len(key) < MANY or np.isnan(key).any():
        return None
    spaces = list(_spaces(model))
    if not all(np.any(score.w) for score, _ in spaces):
        return None
    from regard.engines.arranged import space_order

    score, placed = spaces[0]
    rows = np.arange(len(key)) if sample_weight is None else np.flatnonzero(sample_weight > 0)
    w = np.linalg.norm(score.w, axis=1) if score.w.ndim == 2 else np.broadcast_to(score.w, key.shape[1]).copy()
    rows = rows[space_order(np.asarray(placed(key[rows]), np.float64), w, SHELF, SHELF)]
    key, value, weight = key[rows], value[rows], None if sample_weight is None else sample_weight[rows]
    starts = np.arange(0, len(rows), SHELF)
    logs = np.zeros(len(rows)) if weight is None else np.log(weight.astype(np.float64))
    shelves = Shelves(
        np.diff(starts, append=len(rows)),
        np.minimum.reduceat(key, starts),
        np.maximum.reduceat(key, starts),
        np.minimum.reduceat(logs, starts),
        np.maximum.reduceat(logs, starts),
    )
    found = Shelved(key, value, weight, shelves)
    some = key[np.linspace(0, len(key) - 1, SAMPLE).astype(int)]
    return found if np.median(_needed(model, found, some) @ shelves.keys) <= MOST * len(rows) else None


def put_up(model: Any, found: Any) -> None:
    """Let a model that was just loaded answer from its shelves, for as long as it has the rows that it has now."""
    if not isinstance(found, Shelved) or not isinstance(found.shelves, Shelves):
        raise ValueError("shelves_ are none")
    if found.key.shape != (found.shelves.keys.sum(), *model.key_.shape[1:]):
        raise ValueError("shelves_ are of other rows")
    for part in found[:3]:
        _advise(part, "MADV_RANDOM")
    model._shelves = found, _rows_of(model)


def nearby(model: Any, query: Array) -> Any:
    """A copy of the model with the rows that these queries (Q, d) need; itself, if it has no shelves or needs most.

    *Cost*: O(Q·K/SHELF·d) time and the reading of these rows.
    """
    found, rows = getattr(model, "_shelves", (None, ()))
    if found is None or any(mine is not theirs for mine, theirs in zip(_rows_of(model), rows, strict=True)):
        return model
    if np.isnan(query).any():
        return model  # a row with gaps is compared by other columns
    count = np.asarray(found.shelves.keys)
    needed, step = np.zeros(len(count), bool), max(1, CELLS // len(count))
    for start in range(0, len(query), step):
        needed |= _needed(model, found, query[start : start + step]).any(axis=0)
        if count[needed].sum() > MOST * count.sum():
            return model
    out = copy(model)
    del out._shelves
    out.key_, out.value_, out.sample_weight_ = (
        None if part is None else _on(part, count, needed) for part in (found.key, found.value, found.sample_weight)
    )
    return out


def _rows_of(model: Any) -> tuple[Any, Any, Any]:
    return model.key_, model.value_, model.sample_weight_


def _spaces(model: Any) -> Iterator[tuple[Radial, Callable[[Array], Array]]]:
    """The score of every attention that a model is made of, and where rows stand for it: monotone, column by column."""
    if hasattr(model, "heads_"):
        for head in model.heads_:
            yield Gaussian(head.w), partial(model.scaling_, t=head.share)
    else:
        yield model.attention_score_, np.asarray


def _needed(model: Any, found: Shelved, query: Array) -> Array:
    """Which shelves (Q, S) the answers to queries need."""
    share = LINES if getattr(model, "_DEGREE", 0) else SHARE
    needed = np.zeros((len(query), len(found.shelves.keys)), bool)
    for score, placed in _spaces(model):
        at, shelves = placed(query), found.shelves
        shelves = shelves._replace(low=placed(shelves.low), high=placed(shelves.high))
        known, first = np.empty(len(at)), nearest_shelf(at, shelves, score.w)
        for shelf in np.unique(first):
            rows = placed(_on(found.key, shelves.keys, np.arange(len(shelves.keys)) == shelf))
            mine = np.flatnonzero(first == shelf)
            step = max(1, CELLS // rows.size)
            for block in np.split(mine, range(step, len(mine), step)):
                known[block] = score.distance2(at[block], rows).min(axis=1)
        needed |= in_reach(Bounds(at, at), shelves, score, share=share, nearest=True, known=known)
    return needed


def _on(rows: Array, count: Array, shelves: Array) -> Array:
    """Rows of some shelves (S,) read into memory, run by run."""
    ends = np.r_[0, np.cumsum(count)]
    edges = np.flatnonzero(np.diff(np.r_[0, shelves.astype(np.int8), 0]))
    runs = [rows[ends[a] : ends[b]] for a, b in edges.reshape(-1, 2)]
    for run in runs:
        _advise(run, "MADV_WILLNEED")
    return np.concatenate(runs)


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
