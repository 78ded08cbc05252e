"""Rows in blocks on a cluster: checked there, and known here by a few facts about each block.

What comes to this machine is a box, some counts and some sums per block; the rows themselves stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from regard.cluster.collections import Blocks, blocks_of
from regard.core.arrays import Array
from regard.core.block_bounds import Shelves
from regard.core.bounds import Bounds, bounds_of, require_finite
from regard.core.problem import matrix
from regard.engines.tasks import compute, here, tasks_of


class Block(NamedTuple):
    """Some rows, as arrays in the memory of whoever holds them."""

    key: Array  # (n, d)
    value: Array | None = None  # (n,) or (n, P)
    weight: Array | None = None  # (n,)
    labels: Array | None = None  # (n,) integers


class Facts(NamedTuple):
    """What is known of a block without holding it; bounds are of the rows that have a weight."""

    rows: int
    counted: int  # rows with a weight
    key: Bounds
    value: Bounds
    total: float  # sum of the weights
    sums: Array  # (P,)  of weight·value
    lightest: float  # of the weights that are not zero
    heaviest: float
    alike: int  # how many rows share a label, at most
    nbytes: int
    place: str  # the worker that found this out, which most likely holds the block


@dataclass(frozen=True, eq=False)
class Rows:
    """One argument, or several that belong together row by row."""

    name: str
    blocks: tuple[Any, ...]  # delayed Blocks
    width: int
    columns: int  # of value; 0 without
    single: bool  # value has one axis
    dtype: np.dtype[Any]  # of the keys
    weighted: bool = False
    repeats: bool = False  # weights are repetitions: their dtype says so
    labelled: bool = False
    facts: tuple[Facts, ...] = ()  # see ``examined``

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(fact.rows for fact in self.facts)

    @property
    def size(self) -> int:
        return sum(self.lengths)

    @property
    def bounds(self) -> Bounds:
        """Corners of the blocks' boxes, (blocks, d) each."""
        low, high = ([getattr(fact.key, end) for fact in self.facts] for end in ("low", "high"))
        return Bounds(np.array(low).reshape(-1, self.width), np.array(high).reshape(-1, self.width))

    @property
    def shelves(self) -> Shelves:
        """The blocks as shelves."""
        weights = np.log([[fact.lightest, fact.heaviest] for fact in self.facts]).reshape(-1, 2)
        return Shelves(np.array([fact.counted for fact in self.facts]), *self.bounds, weights[:, 0], weights[:, 1])

    @property
    def mean(self) -> Array:
        """The weighted mean of value, (P,)."""
        total = np.sum([fact.total for fact in self.facts])
        return np.asarray(np.sum([fact.sums / total for fact in self.facts], axis=0))

    def ends(self, part: str) -> Bounds:
        """Bounds (d,) or (P,) of "key" or "value", over the rows that have a weight."""
        counted = [getattr(fact, part) for fact in self.facts if fact.counted]
        return Bounds(np.min([each.low for each in counted], axis=0), np.max([each.high for each in counted], axis=0))

    def each(self, name: str, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """A delayed call of ``function`` for every block, with these arguments behind it."""
        task = tasks_of(name, function)
        return [task((at,), block, *arguments) for at, block in enumerate(self.blocks)]

    def mapped(self, name: str, function: Callable[..., Block], *arguments: Any) -> Rows:
        """The same with other blocks, of which nothing is known yet."""
        return replace(self, blocks=tuple(self.each(name, function, *arguments)), facts=())

    def taken(self, wanted: Array) -> Any:
        """A delayed Block of some of the rows, by their numbers among all, in order."""
        starts = np.concatenate([[0], np.cumsum(self.lengths)])
        cuts, cut = np.searchsorted(wanted, starts), tasks_of("take", _taken)
        parts = [
            cut((at,), block, wanted[cuts[at] : cuts[at + 1]] - starts[at])
            for at, block in enumerate(self.blocks)
            if cuts[at] < cuts[at + 1]
        ]
        return tasks_of("gather", together)((0,), parts)


def rows_of(
    name: str,
    key: Any,
    value: Any = None,
    weight: Any = None,
    labels: Any = None,
    *,
    called: Sequence[str] = ("value", "sample_weight", "exclude"),
) -> Rows:
    """Arguments of dask, or of numpy beside others of dask, as rows in blocks; nothing is computed but lengths.

    ``called`` names value, weight and labels in messages.
    """
    first = blocks_of(name, key)
    others: list[Blocks | None] = [
        None if part is None else blocks_of(what, part, first, ndim)
        for what, part, ndim in zip(called, (value, weight, labels), ((1, 2), (1,), (1,)), strict=True)
    ]
    columns, weights, _ = others
    task = tasks_of("block", checked_block)
    parts = [[None] * first.count if other is None else other.delayed() for other in others]
    names = (name, *called)
    blocks = tuple(
        task((number,), names, number, block, *rest)
        for number, (block, *rest) in enumerate(zip(first.delayed(), *parts, strict=True))
    )
    return Rows(
        name,
        blocks,
        first.width,
        0 if columns is None else columns.width,
        columns is not None and columns.ndim == 1,
        np.dtype(first.dtype) if np.dtype(first.dtype).kind == "f" else np.dtype(np.float64),
        weight is not None,
        weights is not None and np.dtype(weights.dtype).kind in "iub",
        labels is not None,
    )


def examined(*tables: Rows) -> list[Rows]:
    """The same with their facts, all found in one pass over the blocks."""
    found = iter(compute([task for rows in tables for task in rows.each("facts", facts_of)]))
    return [replace(rows, facts=tuple(next(found) for _ in rows.blocks)) for rows in tables]


def checked_block(names: Sequence[str], number: int, key: Any, value: Any, weight: Any, labels: Any) -> Block:
    """A block as plain arrays, on the worker that holds it; errors say which block it was."""
    try:
        arrays = [None if part is None else _plain(part) for part in (value, weight, labels)]
        rows = matrix(names[0], _numbers(names[0], key))
        for name, part in zip(names[1:], arrays, strict=True):
            if part is not None and len(part) != len(rows):
                raise ValueError(f"{names[0]} has {len(rows)} rows but {name} has {len(part)}")
        column, weights, label = arrays
        seen: Any = slice(None)
        if weights is not None:
            seen = _positive(names[2], weights)
        if label is not None and names[3] == "exclude" and label.dtype.kind not in "iu":
            raise TypeError(f"{names[3]} must hold integers, got dtype {label.dtype}")
        require_finite(names[0], rows[seen], bounds_of(rows[seen]))
        if column is not None and column.dtype.kind in "fiub":
            table = matrix(names[1], column)[seen]
            require_finite(names[1], table, bounds_of(table))
        return Block(rows, column, weights, label)
    except (TypeError, ValueError) as reason:
        raise type(reason)(f"chunk {number}: {reason}") from None


def _plain(part: Any) -> Array:
    """An array of a block, which may be a dataframe's."""
    return np.asarray(part.to_numpy() if hasattr(part, "to_numpy") else part)


def _numbers(name: str, part: Any) -> Array:
    """The same of numbers, also where a dataframe holds them as objects."""
    array = _plain(part)
    if array.dtype != object:
        return array
    try:
        # Numbers that may be missing (Int64 and its like) are objects, and missing ones are no floats.
        return np.asarray(part.to_numpy(np.float64, na_value=np.nan) if hasattr(part, "to_numpy") else array, float)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must hold real numbers, got text or other objects; encode them first") from None


def _positive(name: str, weight: Array) -> Array:
    if weight.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {weight.dtype}")
    if not np.isfinite(weight).all() or (weight < 0).any():
        row = int(np.flatnonzero(~np.isfinite(weight) | (weight < 0))[0])
        raise ValueError(f"{name} must be finite and not negative, got {weight[row]} in row {row}")
    return np.asarray(weight > 0)


def facts_of(block: Block) -> Facts:
    """What there is to know of a block."""
    key, value, weight, labels = block
    seen = slice(None) if weight is None else weight > 0
    key = key[seen]
    weights = np.ones(len(key)) if weight is None else weight[seen].astype(np.float64)
    table = np.zeros((len(key), 0))
    if value is not None and value.dtype.kind in "fiub":
        table = matrix("value", value)[seen].astype(np.float64)
    alike = 0 if labels is None or not len(labels) else int(np.unique(labels, return_counts=True)[1].max())
    ends = (float(weights.min()), float(weights.max())) if len(weights) else (1.0, 1.0)
    size = sum(part.nbytes for part in block if part is not None)
    return Facts(
        len(block.key),
        len(key),
        bounds_of(key.astype(np.float64)),
        bounds_of(table),
        float(weights.sum()),
        weights @ table,
        *ends,
        alike,
        size,
        here(),
    )


def together(blocks: Sequence[Block]) -> Block:
    """Several blocks as one."""
    return Block._make(None if each[0] is None else np.concatenate(each) for each in zip(*blocks, strict=True))


def _taken(block: Block, rows: Array) -> Block:
    return Block._make(None if part is None else part[rows] for part in block)
