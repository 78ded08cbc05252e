"""The state of a stream of keys: batches are pooled one after the other and merged, and none is needed again.

What ``merge`` alone does not know:

- *Sample weights* of a batch are relative to a power of two of its own, which is added to its scores again.
- *Far queries.* A score of −10⁶ is rounded to 10⁻¹⁰. Inside a batch only differences between scores count, and engines
  take those in twice the precision; so that two batches compare as well, their peaks here are sums of two numbers,
  peak + tail.
- *The softmax limit.* Where every score overflows, the nearest key answers, and which batch holds it is a matter of
  distance: such queries have a hard state beside the soft one, for as long as no batch comes nearer.
- *Huge values* are divided by powers of two that grow with the number of keys.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.arrays import as_numpy
from regard.bounds import excess
from regard.partial import Finished, Partial, empty, finish, merge
from regard.problem import Problem
from regard.runner import run_moments
from regard.scores import Nearest, Radial

Array = NDArray[Any]

# Keys lighter than exp(−40) of the heaviest do not show in the mass.
DEEPEST = 40.0
# Pairs whose scores are held at once.
CELLS = 1 << 20


class Fold:
    """Attention of the same queries over all keys seen so far; ``add`` batches, then ``finished``.

    *Cost* of a batch: as ``pool``; queries far from all its keys see them once more, in plain numpy. Memory
    O(queries·columns) beyond the batch.
    """

    def __init__(self, queries: int, columns: int, hard: bool) -> None:
        self.keys = 0
        self._hard = hard
        self._soft = empty(queries, columns)
        self._tail = np.zeros(queries)  # peak + tail is what masses are relative to
        self._nearest = empty(queries, columns, hard=True)
        self._unit = np.zeros(queries, int)  # its mass is in units of 2 to this power
        self._power = np.zeros(columns, int)  # moments are divided by 2 to this power
        self._low, self._high = np.full(columns, np.inf), np.full(columns, -np.inf)

    def add(self, problem: Problem, engine: str) -> None:
        """Pool a batch of keys and merge it in."""
        columns = problem.columns
        power = excess(np.abs(columns).max(axis=0, initial=0.0), len(columns), columns.dtype)
        problem = replace(problem, columns=np.ldexp(columns, -power) if power.any() else columns)
        partial, limit = run_moments(problem, engine)
        if not len(columns):
            return
        self.keys += len(columns)
        self._low = np.minimum(self._low, columns.min(axis=0))
        self._high = np.maximum(self._high, columns.max(axis=0))
        largest = np.maximum(np.abs(self._low), np.abs(self._high))
        common = np.maximum.reduce([self._power, power, excess(largest, self.keys, np.dtype(np.float64))])
        self._soft, self._nearest = (_divided(old, common - self._power) for old in (self._soft, self._nearest))
        self._power = common
        if self._hard:
            self._approach(np.arange(len(limit)), _divided(partial, common - power), problem)
            return
        if limit.any():
            # Which key of all batches is nearest is known only by distance, and of no use once a batch has a score.
            rows = np.flatnonzero(limit & (self._soft.mass <= 0.0))
            nearest = replace(problem.take(rows), score=Nearest(problem.score.w))  # type: ignore[attr-defined]
            self._approach(rows, _divided(run_moments(nearest, engine).partial, common - power), problem)
            partial = partial._replace(mass=np.where(limit, 0.0, partial.mass))
        self._join(_divided(partial, common - power), problem)

    def finished(self) -> Finished:
        """Divide by the mass: answers inside the hull of the values, and logsumexp.

        *Empty rows*: output 0 and logsumexp −inf. Rows at the softmax limit have the lowest float64.
        """
        output, logsumexp = finish(self._soft)
        logsumexp, nearest = logsumexp + self._tail, finish(self._nearest)
        rows = (self._soft.mass <= 0.0) & (self._nearest.mass > 0.0)
        height = nearest.logsumexp + self._unit * np.log(2.0) if self._hard else np.finfo(np.float64).min
        output, logsumexp = np.where(rows[:, None], nearest.output, output), np.where(rows, height, logsumexp)
        attended = logsumexp > -np.inf
        with np.errstate(over="ignore"):
            output[attended] = np.clip(np.ldexp(output[attended], self._power), self._low, self._high)
        return Finished(output, logsumexp)

    def _approach(self, rows: Array, new: Partial, problem: Problem) -> None:
        """Merge the nearest keys of a batch into those before."""
        if not rows.size:
            return
        peak, mass, moments, _ = self._nearest
        old, unit = Partial(peak[rows], mass[rows], moments[rows], hard=True), self._unit[rows]
        own = round(problem.weight_shift / np.log(2.0))
        common = np.where(new.peak > old.peak, own, np.where(new.peak == old.peak, np.maximum(unit, own), unit))
        shares = (np.ldexp(1.0, np.minimum(given - common, 0)) for given in (unit, own))
        merged = merge(
            *(
                state._replace(mass=state.mass * share, moments=state.moments * share[:, None])
                for state, share in zip((old, new), shares, strict=True)
            )
        )
        peak[rows], mass[rows], moments[rows], self._unit[rows] = *merged[:3], common

    def _join(self, new: Partial, problem: Problem) -> None:
        """Merge a soft state, peaks compared to the precision that far queries need."""
        old, seen, found = self._soft, self._soft.mass > 0.0, new.mass > 0.0
        score = problem.score
        # Beyond, a weight does not show beside a score; nor does it inside a batch.
        tail = np.where(new.peak > -1e140, problem.weight_shift, 0.0)
        height = np.where(found, new.peak + np.log(np.where(found, new.mass, 1.0)), -np.inf)
        if isinstance(score, Radial):
            rows = np.flatnonzero(score.is_far(height, self.keys, problem.key.shape[1]) & found)
            if rows.size:
                # An engine's arrays are not ours to write to.
                new = Partial(np.array(new.peak), np.array(new.mass), np.array(new.moments))
                new.moments[rows] /= new.mass[rows, None]
                new.peak[rows], new.mass[rows] = height[rows], 1.0
                tail[rows] += log_mass(problem.take(rows), height[rows])
        with np.errstate(invalid="ignore"):
            gap = np.where(seen & found, (new.peak - old.peak) + (tail - self._tail), 0.0)
        merged = merge(
            old._replace(peak=np.where(seen, 0.0, -np.inf)), new._replace(peak=np.where(found, gap, -np.inf))
        )
        leads = found & (~seen | (gap > 0.0))
        self._soft = merged._replace(peak=np.where(leads, new.peak, old.peak))
        self._tail = np.where(leads, tail, self._tail)


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
        scores = _adjusted(part, score(part.query, part.key), slice(None))
        # Scores of this size may be off by their own rounding, and a key that matters must not be missed.
        least = scores.max(axis=1) - DEEPEST + 1e-13 * (1 + problem.key.shape[1]) * height[rows]
        near = np.flatnonzero((scores >= least[:, None]).any(axis=0))
        rises = _adjusted(part, score.rises(part.query, part.key[near], height[rows]), near)
        top = rises.max(axis=1)
        out[rows] = top + np.log(np.exp(rises - top[:, None]).sum(axis=1))
    return out


def _adjusted(problem: Problem, scores: Array, keys: Any) -> Array:
    """Scores of some of the keys, with their sample weights and without those a query may not attend to."""
    if problem.log_weight is not None:
        scores = scores + problem.log_weight[keys]
    if problem.exclude is not None:
        scores = np.where(problem.exclude[0][:, None] == problem.exclude[1][keys], -np.inf, scores)
    return scores


def _divided(partial: Partial, power: Array) -> Partial:
    """A state whose moments are divided by powers of two, one per column, in this machine's memory."""
    moments = as_numpy(partial.moments)
    return partial._replace(moments=np.ldexp(moments, -power) if power.any() else moments)
