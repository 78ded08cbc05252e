"""A problem with one feature, laid out along the line: sorted rows, what each query reaches, and sums over that."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from regard.core.arrays import Array
from regard.core.labels import own_rows
from regard.core.problem import Problem
from regard.core.scores import Radial, power_and_stretch
from regard.engines.cpu.jobs import blocks, each
from regard.programs.cpu.sorted_decay import decaying_sums, neighbours
from regard.programs.cpu.sorted_sums import cut, pair_sums, side_sums, windows

Orders = tuple[int, int]  # largest powers of δ with the weights alone, and with the columns

# Width of a block of keys in units of the reach: narrow ones lose fewer digits, wide ones are fewer to read.
BLOCK = 0.5
# Kernels that are the same polynomial, or wave, on both sides of the query.
SMOOTH = ("boxcar", "epanechnikov", "biweight", "triweight", "cosine")
# Fewer queries than this are not worth a second thread.
FEWEST = 1 << 13
# Queries of one job, so that Ctrl-C is heard within a second.
MOST = 1 << 20


@dataclass(frozen=True, eq=False)
class Line:
    """Sources x (n,) with their weights and columns, targets q (m,), both sorted; ends of the sources they reach."""

    score: Radial
    x: Array
    s: Array
    columns: Array
    q: Array
    own: Array  # (m,) the source a target may not see, −1: none; it lies at the target itself
    w: float
    reach: float
    unit: float  # a power of two near the smaller of 1/w and the extent of the data
    lo: Array
    first: Array
    last: Array
    hi: Array
    threads: int

    def halves(self) -> tuple[Array, Array]:
        """Ends of the sources on the left, and beginnings of those on the right; one at the target is on either.

        Both rise along the targets, which the programs rely on.
        """
        if not (self.own >= 0).any():
            return self.first, self.first
        right = np.maximum.accumulate(np.where(self.own >= 0, self.own + 1, self.first))
        return np.where(self.own >= 0, self.own, right), right

    def turned(self, s: Array, columns: Array) -> Line:
        """The same pairs with the roles exchanged."""
        own = np.full(len(self.x), -1)
        own[self.own[self.own >= 0]] = np.flatnonzero(self.own >= 0)
        lo, first, last, hi = _windows(self.q, self.x, self.reach, self.threads)
        return replace(self, x=self.q, s=s, columns=columns, q=self.x, own=own, lo=lo, first=first, last=last, hi=hi)


def _windows(x: Array, q: Array, reach: float, threads: int) -> tuple[Array, Array, Array, Array]:
    lo, first, last, hi = (np.empty(len(q), np.int64) for _ in range(4))

    def run(rows: slice) -> None:
        windows(x, q, reach, rows.start, rows.stop, lo, first, last, hi)

    each(run, _shares(len(q), threads), threads)
    return lo, first, last, hi


def _shares(targets: int, threads: int) -> list[slice]:
    """Targets for each job. Every target reads the same blocks in the same order, however they are shared out."""
    return blocks(targets, max(1, min(-(-targets // (threads if targets >= FEWEST else 1)), MOST)))


def slope(score: Radial) -> float:
    """|w| of one feature, whatever its shape."""
    return float(np.sqrt((score.w**2).sum())) if score.w.size > 1 else float(np.abs(score.w).sum())


def reach_of(score: Radial) -> float:
    """The largest difference whose kernel is not zero, by the score's own arithmetic: edges are the same everywhere."""
    if not (score.kernel.compact and score.w.any()):
        return float(np.inf)
    low, high = 0, int(np.array(np.finfo(np.float64).max).view(np.int64)) + 1
    # Bits of positive numbers are in the numbers' order.
    while high - low > 1:
        middle = (low + high) // 2
        difference = np.array([[middle]], np.int64).view(np.float64)
        inside = score.kernel.value(score.distance2(difference, np.zeros((1, 1))))[0, 0] > 0.0
        low, high = (middle, high) if inside else (low, middle)
    return float(np.array(low, np.int64).view(np.float64)) if high < 0x7FF0000000000000 else float(np.inf)


def laid(problem: Problem, threads: int) -> tuple[Line, Array, Array]:
    """The problem along the line, and the numbers of its queries and keys in their new order."""
    score = problem.score
    assert isinstance(score, Radial)
    own = np.full(len(problem.query), -1)
    if problem.exclude is not None:
        found = own_rows(problem.query, problem.key, problem.exclude)
        # ``refusal`` comes first: labels name rows of their own.
        assert not isinstance(found, str)
        own = found
    x, q = problem.key[:, 0].astype(np.float64), problem.query[:, 0].astype(np.float64)
    orders = each(np.argsort, [x] if np.array_equal(x, q) else [x, q], threads)
    keys, queries = orders[0], orders[-1]
    if problem.exclude is not None and len(keys):
        rank = np.empty(len(keys), np.int64)
        rank[keys] = np.arange(len(keys))
        own = np.where(own >= 0, rank[own], -1)
        held = own[queries]
        if (np.diff(held[held >= 0]) < 0).any():
            queries = np.lexsort((own, q))
        own = own[queries]
    x, q = x[keys], q[queries]
    w, reach = slope(score), reach_of(score)
    extent = max(x[-1], q[-1]) - min(x[0], q[0])
    length = min(1.0 / w if w > 0.0 else np.inf, extent if extent > 0.0 else np.inf)
    unit = float(np.ldexp(1.0, int(np.clip(np.frexp(length)[1], -1000, 1000)))) if length < np.inf else 1.0
    s = np.ones(len(x)) if problem.sample_weight is None else problem.sample_weight[keys]
    columns = problem.columns[keys].astype(np.float64)
    ends = _windows(x, q, reach, threads)
    return Line(score, x, s, columns, q, own, w, reach, unit, *ends, threads), queries, keys


def compact_sums(line: Line, orders: Orders, rate: bool = False) -> tuple[Array, Array]:
    """Σ s·K·δ^r, Σ s·v·K·δ^r (m, …), and what rounding is relative to (m, 2); with ``rate`` sgn(δ)·dK/du for K.

    *Cost*: O(n + m) and one pass for each side that differs.
    """
    out = np.zeros((len(line.q), 1 + orders[0] + line.columns.shape[1] * (1 + orders[1])))
    bound = np.zeros((len(line.q), 2))
    starts = np.empty(len(line.x) + 1, np.int64)
    count = cut(line.x, BLOCK * line.reach, starts)
    starts = starts[: count + 1].copy()

    def add(side: int, begin: Array, end: Array) -> None:
        kind = line.score.kernel.code, rate, side, line.w * line.unit, line.unit, orders

        def run(rows: slice) -> None:
            sources = line.x, line.s, line.columns, starts, count
            side_sums(*sources, line.q, begin, end, *kind, rows.start, rows.stop, out, bound)

        each(run, _shares(len(line.q), line.threads), line.threads)

    if rate:
        add(-1, line.lo, line.first)
        np.negative(out, out=out)
        add(1, line.last, line.hi)
    elif line.score.kernel.name in SMOOTH and not (line.own >= 0).any():
        add(0, line.lo, line.hi)
    else:
        left, right = line.halves()
        add(-1, line.lo, left)
        add(1, right, line.hi)
    return out, bound


def pairwise(line: Line, rows: Array, orders: Orders, out: Array) -> None:
    """The sums of some targets pair by pair, into ``out``."""
    sources = line.x, line.s, line.columns
    pair_sums(rows, *sources, line.q, line.lo, line.hi, line.own, *arithmetic(line.score), orders, out)


def arithmetic(score: Radial) -> tuple[int, float, float, float]:
    """The kernel's code, |w|, and how the score rounds u²: (difference·power)²·stretch."""
    power, stretch = power_and_stretch(score.w) if score.w.ndim == 0 else (slope(score), 1.0)
    return score.kernel.code, slope(score), power, stretch


def decays(line: Line, left: Array, right: Array) -> tuple[Array, Array, Array]:
    """exp(score − peak) of the last source before ``left`` and the first from ``right`` on (m,), and the peak (m,).

    Gaps between the two sides are taken before they are scaled, in twice the precision.
    """
    by_left, by_right, peak = (np.empty(len(line.q)) for _ in range(3))
    neighbours(line.x, line.q, *line.halves(), left, right, line.w, by_left, by_right, peak)
    return by_left, by_right, peak


def laplace_sums(line: Line, left: Array, right: Array, orders: Orders, sign: float) -> tuple[Array, Array]:
    """Sums at the height of the peak (m, …) over sources from ``right`` on plus ``sign`` times those before ``left``.

    Also returns the peak (m,). *Cost*: O(n + m), a thread for each side.
    """
    by_left, by_right, peak = decays(line, left, right)
    behind, ahead = line.x[np.maximum(left - 1, 0)], line.x[np.minimum(right, len(line.x) - 1)]

    def run(back: bool) -> Array:
        to, ends = (ahead, right) if back else (behind, left)
        return decayed(line.x, line.x, line.s, line.columns, to, line.q, ends, line.w, orders, back)

    before, after = each(run, [False, True], line.threads)
    total: Array = after * by_right[:, None]
    total += (sign * by_left)[:, None] * before
    return total, peak


def decayed(
    at: Array,
    x: Array,
    s: Array,
    columns: Array,
    to: Array,
    q: Array,
    ends: Array,
    w: float,
    orders: Orders,
    back: bool,
) -> Array:
    """Decaying sums over sources before ``ends``, or with ``back`` from there on, as ``decaying_sums`` says."""
    out = np.empty((len(q), 1 + orders[0] + columns.shape[1] * (1 + orders[1])))
    decaying_sums(at, x, s, columns, to, q, ends, w, orders, back, out)
    return out
