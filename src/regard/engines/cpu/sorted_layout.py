"""Problems with one feature as sorted rows: the range of keys of each query, and sums over these ranges."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from regard.core.arrays import Array
from regard.core.labels import own_rows
from regard.core.problem import Problem
from regard.core.scores import Radial, power_and_stretch
from regard.engines.cpu.worker_threads import run_jobs, split_range
from regard.programs.cpu.sorted_decay import decaying_sums, nearest_weights
from regard.programs.cpu.sorted_sums import pair_sums, side_sums, split_keys, windows

Orders = tuple[int, int]  # largest powers of δ with the weights alone, and with the columns

# Width of a block of keys relative to the kernel's radius: narrow blocks lose fewer digits, wide ones are fewer.
KEY_BLOCK_WIDTH = 0.5
# Kernels that are the same polynomial or sinusoid on both sides of the query.
TWO_SIDED_KERNELS = ("boxcar", "epanechnikov", "biweight", "triweight", "cosine")
# For fewer queries a second thread does not pay.
MIN_QUERIES_TO_THREAD = 1 << 13
# Queries of one job, so that Ctrl-C takes effect within a second.
MAX_QUERIES_PER_JOB = 1 << 20


@dataclass(frozen=True, eq=False)
class SortedLayout:
    """Sources x (n,) with weights and columns, and targets q (m,), both sorted; source ranges of each target."""

    score: Radial
    x: Array
    s: Array
    columns: Array
    q: Array
    own: Array  # (m,) the source that a target excludes, at its own position; −1: none
    w: float
    radius: float
    unit: float  # a power of two near the smaller of 1/w and the extent of the data
    lo: Array
    first: Array
    last: Array
    hi: Array
    threads: int

    def sides(self) -> tuple[Array, Array]:
        """Ends of the sources on the left, and starts of those on the right; a source at the target is on either side.

        Both increase along the targets, as the programs require.
        """
        if not (self.own >= 0).any():
            return self.first, self.first
        right = np.maximum.accumulate(np.where(self.own >= 0, self.own + 1, self.first))
        return np.where(self.own >= 0, self.own, right), right

    def exchanged(self, s: Array, columns: Array) -> SortedLayout:
        """The same pairs with sources and targets exchanged."""
        own = np.full(len(self.x), -1)
        own[self.own[self.own >= 0]] = np.flatnonzero(self.own >= 0)
        lo, first, last, hi = _windows(self.q, self.x, self.radius, self.threads)
        return replace(self, x=self.q, s=s, columns=columns, q=self.x, own=own, lo=lo, first=first, last=last, hi=hi)


def _windows(x: Array, q: Array, radius: float, threads: int) -> tuple[Array, Array, Array, Array]:
    lo, first, last, hi = (np.empty(len(q), np.int64) for _ in range(4))

    def run(rows: slice) -> None:
        windows(x, q, radius, rows.start, rows.stop, lo, first, last, hi)

    run_jobs(run, _target_jobs(len(q), threads), threads)
    return lo, first, last, hi


def _target_jobs(targets: int, threads: int) -> list[slice]:
    """The targets of each job. Every target reads the same blocks in the same order, however jobs are split."""
    jobs = threads if targets >= MIN_QUERIES_TO_THREAD else 1
    return split_range(targets, max(1, min(-(-targets // jobs), MAX_QUERIES_PER_JOB)))


def size_of_w(score: Radial) -> float:
    """|w| of one feature, whatever its shape."""
    return float(np.sqrt((score.w**2).sum())) if score.w.size > 1 else float(np.abs(score.w).sum())


def kernel_radius(score: Radial) -> float:
    """The largest difference at which the kernel is positive, by the score's own arithmetic, so that edges agree."""
    if not (score.kernel.compact and score.w.any()):
        return float(np.inf)
    low, high = 0, int(np.array(np.finfo(np.float64).max).view(np.int64)) + 1
    # Bit patterns of positive floats are ordered like the floats: bisection over integers.
    while high - low > 1:
        middle = (low + high) // 2
        difference = np.array([[middle]], np.int64).view(np.float64)
        inside = score.kernel.value(score.distance2(difference, np.zeros((1, 1))))[0, 0] > 0.0
        low, high = (middle, high) if inside else (low, middle)
    return float(np.array(low, np.int64).view(np.float64)) if high < 0x7FF0000000000000 else float(np.inf)


def sorted_layout(problem: Problem, threads: int) -> tuple[SortedLayout, Array, Array]:
    """The sorted problem, and the indices of its queries and keys in sorted order."""
    score = problem.score
    assert isinstance(score, Radial)
    own = np.full(len(problem.query), -1)
    if problem.exclude is not None:
        found = own_rows(problem.query, problem.key, problem.exclude)
        # Checked by ``refusal``: each query excludes at most its own row.
        assert not isinstance(found, str)
        own = found
    x, q = problem.key[:, 0].astype(np.float64), problem.query[:, 0].astype(np.float64)
    orders = run_jobs(np.argsort, [x] if np.array_equal(x, q) else [x, q], threads)
    keys, queries = orders[0], orders[-1]
    if problem.exclude is not None and len(keys):
        rank = np.empty(len(keys), np.int64)
        rank[keys] = np.arange(len(keys))
        own = np.where(own >= 0, rank[own], -1)
        own_in_order = own[queries]
        if (np.diff(own_in_order[own_in_order >= 0]) < 0).any():
            queries = np.lexsort((own, q))
        own = own[queries]
    x, q = x[keys], q[queries]
    w, radius = size_of_w(score), kernel_radius(score)
    extent = max(x[-1], q[-1]) - min(x[0], q[0])
    length = min(1.0 / w if w > 0.0 else np.inf, extent if extent > 0.0 else np.inf)
    unit = float(np.ldexp(1.0, int(np.clip(np.frexp(length)[1], -1000, 1000)))) if length < np.inf else 1.0
    s = np.ones(len(x)) if problem.sample_weight is None else problem.sample_weight[keys]
    columns = problem.columns[keys].astype(np.float64)
    ends = _windows(x, q, radius, threads)
    return SortedLayout(score, x, s, columns, q, own, w, radius, unit, *ends, threads), queries, keys


def compact_sums(layout: SortedLayout, orders: Orders, rate: bool = False) -> tuple[Array, Array]:
    """Σ s·K·δ^r, Σ s·v·K·δ^r (m, …), and the magnitude that rounding is relative to (m, 2).

    With ``rate``, sgn(δ)·dK/du takes the place of K. *Cost*: O(n + m) and one pass for each side that differs.
    """
    out = np.zeros((len(layout.q), 1 + orders[0] + layout.columns.shape[1] * (1 + orders[1])))
    bound = np.zeros((len(layout.q), 2))
    starts = np.empty(len(layout.x) + 1, np.int64)
    count = split_keys(layout.x, KEY_BLOCK_WIDTH * layout.radius, starts)
    starts = starts[: count + 1].copy()

    def add(side: int, begin: Array, end: Array) -> None:
        kind = layout.score.kernel.code, rate, side, layout.w * layout.unit, layout.unit, orders

        def run(rows: slice) -> None:
            sources = layout.x, layout.s, layout.columns, starts, count
            side_sums(*sources, layout.q, begin, end, *kind, rows.start, rows.stop, out, bound)

        run_jobs(run, _target_jobs(len(layout.q), layout.threads), layout.threads)

    if rate:
        add(-1, layout.lo, layout.first)
        np.negative(out, out=out)
        add(1, layout.last, layout.hi)
    elif layout.score.kernel.name in TWO_SIDED_KERNELS and not (layout.own >= 0).any():
        add(0, layout.lo, layout.hi)
    else:
        left, right = layout.sides()
        add(-1, layout.lo, left)
        add(1, right, layout.hi)
    return out, bound


def sum_pairs(layout: SortedLayout, rows: Array, orders: Orders, out: Array) -> None:
    """The sums of the targets ``rows`` pair by pair, into ``out``."""
    sources = layout.x, layout.s, layout.columns
    pair_sums(rows, *sources, layout.q, layout.lo, layout.hi, layout.own, kernel_arithmetic(layout.score), orders, out)


def kernel_arithmetic(score: Radial) -> tuple[int, float, float, float]:
    """The kernel's code, |w|, and the factors in the score's u² = (difference·power)²·stretch."""
    power, stretch = power_and_stretch(score.w) if score.w.ndim == 0 else (size_of_w(score), 1.0)
    return score.kernel.code, size_of_w(score), power, stretch


def neighbour_weights(layout: SortedLayout, left: Array, right: Array) -> tuple[Array, Array, Array]:
    """exp(score − peak) of the last source before ``left`` and the first from ``right`` on (m,), and the peak (m,).

    The difference of the gaps to both sides is computed in double-double arithmetic before it is scaled.
    """
    by_left, by_right, peak = (np.empty(len(layout.q)) for _ in range(3))
    nearest_weights(layout.x, layout.q, *layout.sides(), left, right, layout.w, by_left, by_right, peak)
    return by_left, by_right, peak


def laplace_sums(layout: SortedLayout, left: Array, right: Array, orders: Orders, sign: float) -> tuple[Array, Array]:
    """Sums relative to the peak (m, …) over sources from ``right`` on plus ``sign`` times those before ``left``.

    Also returns the peak (m,). *Cost*: O(n + m), one thread for each side.
    """
    by_left, by_right, peak = neighbour_weights(layout, left, right)
    behind, ahead = layout.x[np.maximum(left - 1, 0)], layout.x[np.minimum(right, len(layout.x) - 1)]

    def run(back: bool) -> Array:
        to, ends = (ahead, right) if back else (behind, left)
        sources = layout.x, layout.x, layout.s, layout.columns
        return decaying_sums_of(sources, to, layout.q, ends, layout.w, orders, back)

    before, after = run_jobs(run, [False, True], layout.threads)
    total: Array = after * by_right[:, None]
    total += (sign * by_left)[:, None] * before
    return total, peak


def decaying_sums_of(
    sources: tuple[Array, ...], to: Array, q: Array, ends: Array, w: float, orders: Orders, back: bool
) -> Array:
    """Sums over sources (at, x, s, columns) before ``ends``, or with ``back`` from there on; see ``decaying_sums``."""
    out = np.empty((len(q), 1 + orders[0] + sources[-1].shape[1] * (1 + orders[1])))
    decaying_sums(*sources, to, q, ends, w, orders, back, out)
    return out
