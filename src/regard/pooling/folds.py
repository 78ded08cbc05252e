"""The state of attention over some of the keys, as a whole that can be merged with that of others.

Batches of a stream and chunks on other machines are pooled each on its own and merged; none is needed again. What
``partial.merge`` alone does not know:

- *Sample weights* of a batch are relative to a power of two of its own, which is added to its scores again.
- *Far queries.* A score of −10⁶ is rounded to 10⁻¹⁰. Inside a batch only differences between scores count, and engines
  take those in twice the precision; so that two batches compare as well, their peaks here are sums of two numbers,
  peak + tail. Beyond −10³³ a sample weight does not show beside a tail: ties of two batches share as if weights were
  equal there, until the softmax limit.
- *The softmax limit.* Where every score overflows, the nearest key answers, and which batch holds it is a matter of
  distance: such queries have a hard state beside the soft one, for as long as no batch comes nearer.
- *Huge values* are divided by powers of two that grow with the number of keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from regard.core.arrays import Array, as_numpy
from regard.core.bounds import excess
from regard.core.problem import Problem, moment_count
from regard.core.scores import LIMIT, Nearest, Radial
from regard.core.state import Finished, Partial, empty, finish, merge
from regard.engines.cpu.reference import adjusted
from regard.pooling.runner import Ran, run_moments

# Keys lighter than exp(−40) of the heaviest do not show in the mass.
DEEPEST = 40.0
# Pairs whose scores are held at once.
CELLS = 1 << 20


@dataclass(frozen=True, eq=False)
class Near:
    """The nearest keys so far of queries that have nobody nearer: hard attention, masses in units of 2**unit."""

    state: Partial
    unit: Array  # (Q,) integers


@dataclass(frozen=True, eq=False)
class Fold:
    """Attention of some queries over the keys seen so far: make it by ``fold`` and join it with others.

    *Memory*: O(queries·moments).
    """

    keys: int
    hard: bool  # of a Nearest score: all is in ``near``
    soft: Partial
    tail: Array  # (Q,)  peak + tail is what masses are relative to
    near: Near | None  # None where nobody needs it
    power: Array  # (columns,)  columns are divided by 2 to this power
    low: Array  # (columns,)  bounds of the columns
    high: Array

    def __sizeof__(self) -> int:
        """Bytes of its arrays: a cluster decides by them what to move."""
        near = () if self.near is None else (*self.near.state[:3], self.near.unit)
        return sum(part.nbytes for part in (*self.soft[:3], self.tail, *near))

    def joined(self, other: Fold) -> Fold:
        """The state over the keys of both. Associative and commutative to rounding."""
        keys, low, high = self.keys + other.keys, np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        largest = np.maximum(np.abs(low), np.abs(high)) if keys else np.zeros(len(low))
        common = np.maximum.reduce([self.power, other.power, excess(largest, keys, np.dtype(np.float64))])
        a, b = self._divided(common), other._divided(common)
        soft, tail = _merged(a, b)
        return Fold(keys, self.hard, soft, tail, _nearer(a.near, b.near), common, low, high)

    def moments(self, own: Partial | None = None) -> Ran:
        """Moments and queries at the softmax limit, as an engine that saw all keys would give them.

        ``own`` is merged in: keys at peaks that need no tail. Whoever has it is at no limit.
        """
        soft = self.soft._replace(peak=self.soft.peak + self.tail)
        peak, mass, flat, _ = soft if own is None else merge(soft, own)
        limit = np.zeros(len(self.tail), bool)
        if self.near is not None:
            near = self.near.state
            limit = (mass <= 0.0) & (near.mass > 0.0)
            peak = np.where(limit, near.peak if self.hard else np.finfo(np.float64).min, peak)
            mass, flat = np.where(limit, near.mass, mass), np.where(limit[:, None], near.moments, flat)
        partial = _divided(Partial(peak, mass, flat, self.hard), -self.power)
        return Ran(partial, limit & (not self.hard))

    def finished(self) -> Finished:
        """Divide by the mass: averages of the columns inside their hull, and logsumexp.

        *Empty rows*: output 0 and logsumexp −inf. Rows at the softmax limit have the lowest float64.
        """
        count = len(self.power)
        output, logsumexp = finish(self.soft)
        output, logsumexp = output[:, :count], logsumexp + self.tail
        if self.near is not None:
            nearest = finish(self.near.state)
            rows = (self.soft.mass <= 0.0) & (self.near.state.mass > 0.0)
            lowest = np.finfo(np.float64).min
            height = nearest.logsumexp + self.near.unit * np.log(2.0) if self.hard else lowest
            output = np.where(rows[:, None], nearest.output[:, :count], output)
            logsumexp = np.where(rows, height, logsumexp)
        attended = logsumexp > -np.inf
        with np.errstate(over="ignore"):
            output[attended] = np.clip(np.ldexp(output[attended], self.power), self.low, self.high)
        return Finished(output, logsumexp)

    def _divided(self, common: Array) -> Fold:
        more = common - self.power
        if not more.any():
            return self
        near = None if self.near is None else replace(self.near, state=_divided(self.near.state, more))
        return replace(self, soft=_divided(self.soft, more), near=near, power=common)


def nothing(queries: int, columns: int, width: int = 0, *, degree: int = 0, hard: bool = False) -> Fold:
    """The state before any key was seen: joining it changes nothing."""
    soft = empty(queries, moment_count(columns, width, degree))
    power, bound = np.zeros(columns, int), np.full(columns, np.inf)
    return Fold(0, hard, soft, np.zeros(queries), None, power, bound, -bound)


def fold(problem: Problem, engine: str = "auto", *, nearest: bool = False) -> Fold:
    """The state over the keys of one problem. ``nearest``: whoever has nobody in reach is answered by the nearest key.

    *Cost*: as ``pool``; queries far from all its keys see them once more, in plain numpy.
    """
    columns, hard = problem.columns, isinstance(problem.score, Nearest)
    queries, count, width = len(problem.query), columns.shape[1], problem.key.shape[1]
    if not len(columns):
        return nothing(queries, count, width, degree=problem.degree, hard=hard)
    low, high = (end.astype(np.float64) for end in problem.column_bounds)
    power = excess(np.maximum(np.abs(low), np.abs(high)), len(columns), columns.dtype)
    problem = replace(problem, columns=np.ldexp(columns, -power) if power.any() else columns)
    partial, limit = run_moments(problem, engine)
    partial = partial._replace(moments=as_numpy(partial.moments))
    near, no_tail = None, np.zeros(queries)
    if hard:
        near, soft = _near(partial, problem), empty(queries, partial.moments.shape[1])
        return Fold(len(columns), hard, soft, no_tail, near, power, low, high)
    lost = limit | (partial.mass <= 0.0) if nearest else limit
    if lost.any():
        # Which key of all is nearest is known only by distance.
        hard_score = Nearest(problem.score.w)  # type: ignore[attr-defined]
        instead = replace(problem.take(np.flatnonzero(lost)), score=hard_score)
        near = _near(_spread(run_moments(instead, engine).partial, lost), problem)
        partial = partial._replace(mass=np.where(limit, 0.0, partial.mass))
    soft, tail = _sharpened(partial, problem)
    return Fold(len(columns), hard, soft, tail, near, power, low, high)


def _near(state: Partial, problem: Problem) -> Near:
    own = round(problem.weight_shift / np.log(2.0))
    return Near(state, np.full(len(state.mass), own))


def _spread(partial: Partial, rows: Array) -> Partial:
    """States of the queries that ``rows`` (Q,) names, and empty ones of the others."""
    whole = empty(len(rows), partial.moments.shape[1], hard=True)
    for into, part in zip(whole[:3], partial[:3], strict=True):
        into[rows] = part
    return whole


def _sharpened(new: Partial, problem: Problem) -> tuple[Partial, Array]:
    """A soft state whose peaks, with their tails (Q,), are as precise as comparing far queries needs."""
    found, score = new.mass > 0.0, problem.score
    # Beyond, there is an additive mask, and a weight does not show beside such scores.
    tail = np.where(new.peak > LIMIT, problem.weight_shift, 0.0)
    height = np.where(found, new.peak + np.log(np.where(found, new.mass, 1.0)), -np.inf)
    peak = np.where(found, new.peak, -np.inf)
    if isinstance(score, Radial):
        rows = np.flatnonzero(score.is_far(height, *problem.key.shape) & found)
        if rows.size:
            # An engine's arrays are not ours to write to.
            new = Partial(peak, np.array(new.mass), np.array(new.moments))
            new.moments[rows] /= new.mass[rows, None]
            new.peak[rows], new.mass[rows] = height[rows], 1.0
            tail[rows] += log_mass(problem.take(rows), height[rows])
    return new._replace(peak=peak), np.where(found, tail, 0.0)


def _merged(a: Fold, b: Fold) -> tuple[Partial, Array]:
    """Both soft states together, and the tails of their peaks."""
    seen, found = a.soft.mass > 0.0, b.soft.mass > 0.0
    with np.errstate(invalid="ignore"):
        gap = np.where(seen & found, (b.soft.peak - a.soft.peak) + (b.tail - a.tail), 0.0)
    merged = merge(
        a.soft._replace(peak=np.where(seen, 0.0, -np.inf)), b.soft._replace(peak=np.where(found, gap, -np.inf))
    )
    leads = found & (~seen | (gap > 0.0))
    peak, tail = (np.where(leads, *pair) for pair in ((b.soft.peak, a.soft.peak), (b.tail, a.tail)))
    return merged._replace(peak=peak), tail


def _nearer(a: Near | None, b: Near | None) -> Near | None:
    """The nearest keys of both; ties share."""
    if a is None or b is None:
        return b if a is None else a
    ahead, level = a.state.peak > b.state.peak, a.state.peak == b.state.peak
    unit = np.where(ahead, a.unit, np.where(level, np.maximum(a.unit, b.unit), b.unit))
    states = []
    for near in (a, b):
        share = np.ldexp(1.0, np.minimum(near.unit - unit, 0))
        state = near.state
        states.append(state._replace(mass=state.mass * share, moments=state.moments * share[:, None]))
    return Near(merge(*states), unit)


def log_mass(problem: Problem, height: Array) -> Array:
    """log Σ exp(score − height) of every query, (Q,), rounded relative to itself; height (Q,) is near the top score.

    For Gaussian and Laplace scores; everybody has somebody to attend to. *Cost*: O(Q·K·d) in plain numpy, of which keys
    that matter are looked at in twice the precision; memory a tile.
    """
    score, out = problem.score, np.empty(len(height))
    assert isinstance(score, Radial)
    tile = max(1, CELLS // max(problem.key.size, 1))
    for start in range(0, len(out), tile):
        rows = np.arange(start, min(start + tile, len(out)))
        part = problem.take(rows)
        scores = adjusted(part, score(part.query, part.key))
        # Scores of this size may be off by their own rounding, and a key that matters must not be missed.
        least = scores.max(axis=1) - DEEPEST + 1e-13 * (1 + problem.key.shape[1]) * height[rows]
        near = np.flatnonzero((scores >= least[:, None]).any(axis=0))
        rises = adjusted(part, score.rises(part.query, part.key[near], height[rows]), near)
        top = rises.max(axis=1)
        out[rows] = top + np.log(np.exp(rises - top[:, None]).sum(axis=1))
    return out


def _divided(partial: Partial, power: Array) -> Partial:
    """A state whose columns are divided by powers of two, one each."""
    if not power.any():
        return partial
    # Lines are fitted to values of size 1: beyond degree 0 there is nothing to divide.
    assert partial.moments.shape[1] == len(power)
    return partial._replace(moments=np.ldexp(partial.moments, -power))
