"""The state of attention over some of the keys, which can be merged with the state over others.

Batches of a stream and blocks on other machines are pooled one by one and merged; none is needed again. Beyond
``core.state.merge`` this accounts for:

- *Sample weights* of a batch, which are relative to a power of two of its own; it is added to the scores again.
- *Far queries.* A score of −10⁶ has a rounding error of 10⁻¹⁰. Inside a batch only differences between scores count,
  and engines compute those in double-double arithmetic. So that two batches compare as precisely, their peaks are
  double-double numbers here, peak + tail. Beyond −10³³ a log sample weight is lost beside a tail: there, ties of two
  batches count as if weights were equal, until the softmax limit.
- *The softmax limit.* If every score overflows, the nearest key answers, and which batch has it is decided by distance:
  such queries have a hard state beside the soft one until a batch gives them a finite score.
- *Huge values*, which are divided by powers of two that grow with the number of keys.
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
from regard.pooling.runner import RunResult, run_moments

# Keys whose score is this far below the highest have no effect on the mass.
NEGLIGIBLE_GAP = 40.0
# Coordinates of pairs held in memory at once.
PAIRS_IN_MEMORY = 1 << 20


@dataclass(frozen=True, eq=False)
class NearestState:
    """Hard attention to the nearest keys so far, of queries without a finite score; masses are in units of 2**unit."""

    state: Partial
    unit: Array  # (Q,) integers


@dataclass(frozen=True, eq=False)
class MergeableState:
    """Attention of some queries over the keys so far: made by ``state_of``, joined with others by ``joined``.

    *Memory*: O(queries·moments).
    """

    keys: int
    hard: bool  # the score is Nearest: everything is in ``near``
    soft: Partial
    tail: Array  # (Q,)  masses are relative to exp(peak + tail)
    near: NearestState | None  # None if no query needs it
    power: Array  # (columns,)  columns are divided by 2**power
    low: Array  # (columns,)  bounds of the columns
    high: Array

    def __sizeof__(self) -> int:
        """Bytes of the arrays: dask decides by them what to move."""
        near = () if self.near is None else (*self.near.state[:3], self.near.unit)
        return sum(part.nbytes for part in (*self.soft[:3], self.tail, *near))

    def joined(self, other: MergeableState) -> MergeableState:
        """The state over the keys of both. Associative and commutative to rounding."""
        keys, low, high = self.keys + other.keys, np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        largest = np.maximum(np.abs(low), np.abs(high)) if keys else np.zeros(len(low))
        common = np.maximum.reduce([self.power, other.power, excess(largest, keys, np.dtype(np.float64))])
        a, b = self._divided(common), other._divided(common)
        soft, tail = _merged(a, b)
        return MergeableState(keys, self.hard, soft, tail, _nearer(a.near, b.near), common, low, high)

    def moments(self, own: Partial | None = None) -> RunResult:
        """Moments, and queries at the softmax limit, as an engine would return them for all keys.

        ``own`` is merged in: further keys whose peaks need no tail. Queries that have one are not at the limit.
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
        return RunResult(partial, limit & (not self.hard))

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

    def _divided(self, common: Array) -> MergeableState:
        more = common - self.power
        if not more.any():
            return self
        near = None if self.near is None else replace(self.near, state=_divided(self.near.state, more))
        return replace(self, soft=_divided(self.soft, more), near=near, power=common)


def empty_state(queries: int, columns: int, width: int = 0, *, degree: int = 0, hard: bool = False) -> MergeableState:
    """The state without any key: the identity of ``joined``."""
    soft = empty(queries, moment_count(columns, width, degree))
    power, bound = np.zeros(columns, int), np.full(columns, np.inf)
    return MergeableState(0, hard, soft, np.zeros(queries), None, power, bound, -bound)


def state_of(problem: Problem, engine: str = "auto", *, nearest: bool = False) -> MergeableState:
    """The state over the keys of one problem; with ``nearest``, empty rows are answered by the nearest key.

    *Cost*: as ``pool``, and a second pass in plain numpy for queries far from all keys.
    """
    columns, hard = problem.columns, isinstance(problem.score, Nearest)
    queries, count, width = len(problem.query), columns.shape[1], problem.key.shape[1]
    if not len(columns):
        return empty_state(queries, count, width, degree=problem.degree, hard=hard)
    low, high = (end.astype(np.float64) for end in problem.column_bounds)
    power = excess(np.maximum(np.abs(low), np.abs(high)), len(columns), columns.dtype)
    problem = replace(problem, columns=np.ldexp(columns, -power) if power.any() else columns)
    partial, limit = run_moments(problem, engine)
    partial = partial._replace(moments=as_numpy(partial.moments))
    near, no_tail = None, np.zeros(queries)
    if hard:
        near, soft = _near(partial, problem), empty(queries, partial.moments.shape[1])
        return MergeableState(len(columns), hard, soft, no_tail, near, power, low, high)
    lost = limit | (partial.mass <= 0.0) if nearest else limit
    if lost.any():
        # Which of all keys is nearest is decided by distance.
        hard_score = Nearest(problem.score.w)  # type: ignore[attr-defined]
        instead = replace(problem.take(np.flatnonzero(lost)), score=hard_score)
        near = _near(_scattered(run_moments(instead, engine).partial, lost), problem)
        partial = partial._replace(mass=np.where(limit, 0.0, partial.mass))
    soft, tail = _sharpened(partial, problem)
    return MergeableState(len(columns), hard, soft, tail, near, power, low, high)


def _near(state: Partial, problem: Problem) -> NearestState:
    own = round(problem.weight_shift / np.log(2.0))
    return NearestState(state, np.full(len(state.mass), own))


def _scattered(partial: Partial, rows: Array) -> Partial:
    """The states of the queries selected by ``rows`` (Q,) boolean, and empty states of the others."""
    whole = empty(len(rows), partial.moments.shape[1], hard=True)
    for into, part in zip(whole[:3], partial[:3], strict=True):
        into[rows] = part
    return whole


def _sharpened(new: Partial, problem: Problem) -> tuple[Partial, Array]:
    """A soft state and the tails (Q,) of its peaks, precise enough to compare far queries between batches."""
    found, score = new.mass > 0.0, problem.score
    # Scores below LIMIT come from an additive mask, and a log weight is lost beside them.
    tail = np.where(new.peak > LIMIT, problem.weight_shift, 0.0)
    height = np.where(found, new.peak + np.log(np.where(found, new.mass, 1.0)), -np.inf)
    peak = np.where(found, new.peak, -np.inf)
    if isinstance(score, Radial):
        rows = np.flatnonzero(score.is_far(height, *problem.key.shape) & found)
        if rows.size:
            # The engine's arrays must not be written to.
            new = Partial(peak, np.array(new.mass), np.array(new.moments))
            new.moments[rows] /= new.mass[rows, None]
            new.peak[rows], new.mass[rows] = height[rows], 1.0
            tail[rows] += log_mass(problem.take(rows), height[rows])
    return new._replace(peak=peak), np.where(found, tail, 0.0)


def _merged(a: MergeableState, b: MergeableState) -> tuple[Partial, Array]:
    """Both soft states together, and the tails of their peaks."""
    has_a, has_b = a.soft.mass > 0.0, b.soft.mass > 0.0
    with np.errstate(invalid="ignore"):
        gap = np.where(has_a & has_b, (b.soft.peak - a.soft.peak) + (b.tail - a.tail), 0.0)
    merged = merge(
        a.soft._replace(peak=np.where(has_a, 0.0, -np.inf)), b.soft._replace(peak=np.where(has_b, gap, -np.inf))
    )
    leads = has_b & (~has_a | (gap > 0.0))
    peak, tail = (np.where(leads, *pair) for pair in ((b.soft.peak, a.soft.peak), (b.tail, a.tail)))
    return merged._replace(peak=peak), tail


def _nearer(a: NearestState | None, b: NearestState | None) -> NearestState | None:
    """The nearest keys of both; ties count equally."""
    if a is None or b is None:
        return b if a is None else a
    ahead, level = a.state.peak > b.state.peak, a.state.peak == b.state.peak
    unit = np.where(ahead, a.unit, np.where(level, np.maximum(a.unit, b.unit), b.unit))
    states = []
    for near in (a, b):
        factor = np.ldexp(1.0, np.minimum(near.unit - unit, 0))
        state = near.state
        states.append(state._replace(mass=state.mass * factor, moments=state.moments * factor[:, None]))
    return NearestState(merge(*states), unit)


def log_mass(problem: Problem, height: Array) -> Array:
    """log Σ exp(score − height) of every query, (Q,), rounded relative to itself; height (Q,) is near the top score.

    For Gaussian and Laplace scores, and queries with at least one key. *Cost*: O(Q·K·d) in plain numpy, with keys that
    matter in double-double arithmetic; memory a tile.
    """
    score, out = problem.score, np.empty(len(height))
    assert isinstance(score, Radial)
    tile = max(1, PAIRS_IN_MEMORY // max(problem.key.size, 1))
    for start in range(0, len(out), tile):
        rows = np.arange(start, min(start + tile, len(out)))
        part = problem.take(rows)
        scores = adjusted(part, score(part.query, part.key))
        # The threshold allows for the rounding error of scores of this size, so that no key that matters is missed.
        least = scores.max(axis=1) - NEGLIGIBLE_GAP + 1e-13 * (1 + problem.key.shape[1]) * height[rows]
        near = np.flatnonzero((scores >= least[:, None]).any(axis=0))
        rises = adjusted(part, score.rises(part.query, part.key[near], height[rows]), near)
        top = rises.max(axis=1)
        out[rows] = top + np.log(np.exp(rises - top[:, None]).sum(axis=1))
    return out


def _divided(partial: Partial, power: Array) -> Partial:
    """A state whose columns are divided by powers of two, one each."""
    if not power.any():
        return partial
    # Lines are fitted to values scaled to 1, so only moments of degree 0 are ever divided.
    assert partial.moments.shape[1] == len(power)
    return partial._replace(moments=np.ldexp(partial.moments, -power))
