"""Rows on a cluster made ready to be learned from: what they spread and count, found out block by block."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.bandwidth.chunked import ChunkedObjective, Part
from regard.bandwidth.losses import AbsoluteError, LogLoss, SquaredError, corner_of
from regard.cluster.rows import Block, Rows
from regard.core.bounds import Bounds
from regard.engines.tasks import compute, persisted, tasks_of

Array = NDArray[Any]


class Summary(NamedTuple):
    """What rows count together, mean and summed squares of columns (C,); two of them make one."""

    total: float
    mean: Array
    squares: Array

    def with_(self, other: Summary) -> Summary:
        total = self.total + other.total
        if not total:
            return self
        gap, share = other.mean - self.mean, other.total / total
        squares = self.squares + other.squares + gap**2 * self.total * share
        return Summary(total, self.mean + gap * share, squares)


class Units(NamedTuple):
    """How blocks become parts."""

    power: Array  # (d,)  features are divided by 2 to this power
    mean_weight: float | None  # importances count relative to it; None: weights are repetitions, or there are none
    classes: int  # 0: values are numbers
    centre: Array  # (P,)
    scale: Array  # (P,)
    grouped: bool  # labels number groups that leave together; otherwise every row leaves on its own


def objective_of(
    rows: Rows,
    *,
    kernel: str,
    degree: int,
    classes: int = 0,
    repeats: bool = False,
    grouped: bool = False,
    engine: str = "auto",
    loss: str = "squared",
    common: bool = False,
) -> tuple[ChunkedObjective, Array]:
    """The leave-one-out criterion of examined rows, and the powers of two (d,) that its features are divided by.

    Values are numbers, or numbers of ``classes``. ``repeats``: weights are repetitions. ``grouped``: rows of one
    label leave together. ``common``: one power for all features.

    *Cost*: two passes over the blocks; what is made of them stays on the cluster.
    """
    power = _powers(rows, common)
    low, high = _ends(rows)
    low, span = np.ldexp(low, -power), np.ldexp(high, -power) - np.ldexp(low, -power)
    counted = sum(fact.counted for fact in rows.facts)
    weighs = rows.weighted and not repeats
    mean_weight = float(np.sum([fact.total for fact in rows.facts])) / counted if weighs else None
    units = Units(power, mean_weight, classes, np.zeros(1), np.ones(1), grouped)
    found = compute(_each("summary", summary_of, rows, units, low, np.where(span > 0.0, span, 1.0)))
    whole = reduce(Summary.with_, found)
    deviation = np.sqrt(whole.squares / whole.total)
    spread = np.where(span > 0.0, np.maximum(deviation[: len(span)], 1e-9) * span, 0.0)
    judge = _loss(rows, whole, classes, len(span))
    if isinstance(judge, SquaredError):
        units = units._replace(centre=judge.centre, scale=judge.scale)
    starts = np.concatenate([[0], np.cumsum(rows.lengths)]).tolist()
    parts = persisted(_each("part", part_of, rows, units, repeats, numbers=starts))
    if loss == "absolute" and isinstance(judge, SquaredError):
        corner = compute([tasks_of("corner", _corner)((0,), parts)])[0]
        judge = AbsoluteError(judge.columns, judge.centre, judge.scale, corner)
    facts = tuple(
        fact._replace(
            rows=fact.counted,
            key=Bounds(np.ldexp(fact.key.low, -power), np.ldexp(fact.key.high, -power)),
            alike=fact.alike if grouped else int(fact.counted > 0),
        )
        for fact in rows.facts
    )
    size = whole.total
    made = ChunkedObjective(tuple(parts), facts, judge, kernel, degree, engine, tuple(parts), facts, size, spread, size)
    return made, power


def _each(name: str, function: Any, rows: Rows, *arguments: Any, numbers: Sequence[int] | None = None) -> list[Any]:
    task = tasks_of(name, function)
    if numbers is None:
        return [task((at,), block, *arguments) for at, block in enumerate(rows.blocks)]
    return [task((at,), block, *arguments, numbers[at]) for at, block in enumerate(rows.blocks)]


def _ends(rows: Rows) -> Bounds:
    counted = [fact.key for fact in rows.facts if fact.counted]
    return Bounds(np.min([ends.low for ends in counted], axis=0), np.max([ends.high for ends in counted], axis=0))


def _powers(rows: Rows, common: bool) -> Array:
    """As ``units.powers_of_two``, from the ends."""
    low, high = _ends(rows)
    half = high / 2.0 - low / 2.0
    half = np.full(len(half), half.max(initial=0.0)) if common else half
    return np.asarray(np.where(half > 0.0, np.frexp(half)[1], 0))


def _loss(rows: Rows, whole: Summary, classes: int, width: int) -> SquaredError | LogLoss:
    mean, squares = whole.mean[width:], whole.squares[width:]
    if classes:
        return LogLoss(np.zeros((0, classes)), mean, whole.total)
    ends = rows.value_bounds
    varies = ends.low < ends.high
    scale = np.where(varies, np.sqrt(squares / whole.total), 1.0)
    return SquaredError(np.zeros((0, len(mean))), np.where(varies, mean, ends.low), scale)


def counted(block: Block, units: Units) -> tuple[Array, Array, Array]:
    """Rows of a block that have a weight: which, their keys by powers of two, and how often each counts."""
    seen = np.arange(len(block.key)) if block.weight is None else np.flatnonzero(block.weight > 0)
    counts = np.ones(len(seen))
    if block.weight is not None:
        counts = block.weight[seen].astype(np.float64)
        counts = counts if units.mean_weight is None else counts / units.mean_weight
    return seen, np.ldexp(block.key[seen].astype(np.float64), -units.power), counts


def _table(block: Block, seen: Array, classes: int) -> Array:
    """Values as columns (n, P), one per class."""
    assert block.value is not None
    value = block.value[seen]
    if classes:
        return np.asarray(np.eye(classes)[value])
    table = value.astype(np.float64)
    return table[:, None] if table.ndim == 1 else table


def summary_of(block: Block, units: Units, low: Array, span: Array) -> Summary:
    """Means and squares of the features, between 0 and 1, and of the values."""
    seen, key, counts = counted(block, units)
    table = np.concatenate([(key - low) / span, _table(block, seen, units.classes)], axis=1)
    if not len(table):
        return Summary(0.0, np.zeros(table.shape[1]), np.zeros(table.shape[1]))
    total = float(counts.sum())
    mean = counts / total @ table
    return Summary(total, mean, counts @ (table - mean) ** 2)


def part_of(block: Block, units: Units, repeats: bool, start: int) -> Part:
    """A block ready to be learned from; its first row is row ``start`` of all."""
    seen, key, counts = counted(block, units)
    columns = _table(block, seen, units.classes)
    if not units.classes:
        columns = (columns - units.centre) / units.scale
    weight = None if block.weight is None else block.weight[seen]
    labels = start + seen
    if units.grouped:
        assert block.labels is not None
        labels = block.labels[seen]
    return Part(key, columns, weight, counts, labels, repeats and not units.grouped)


def _corner(parts: Sequence[Part]) -> Array:
    """Where absolute errors are rounded off, from all values on one worker."""
    return corner_of(np.concatenate([part.columns for part in parts]))
