"""One feature, exactly, without seeing every pair: sums along the sorted line.

Compact kernels: a query reads what it needs off the running sums of a few blocks of keys (``programs.sorted_sums``).
Each row comes with what its rounding is relative to; rows whose mass is too small beside that (all their keys lie
at the edge of the kernel) are done again pair by pair. Laplace: sums that decay from key to key, from both sides.

No mask; a query may leave out one key, its own row. Everything is computed in float64.
*Cost*: O((Q + K)·log(Q + K)) for the order, O(Q + K) for the sums, plus the pairs of the rows done again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from regard.core.arrays import Array
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Outcome, Problem
from regard.core.scores import at_limit
from regard.core.state import Partial
from regard.engines.costs import require
from regard.engines.cpu.gradients import no_gradients
from regard.engines.cpu.line import (
    Line,
    Orders,
    arithmetic,
    compact_sums,
    decayed,
    decays,
    laid,
    laplace_sums,
    pairwise,
)
from regard.engines.cpu.passes import empty_state
from regard.engines.cpu.words import restored
from regard.programs.cpu.sorted_decay import pull_pairs

# Roundings, in units of 2⁻⁵³, that one term of a sum goes through: powers, coefficients, shifts and what u² itself has.
ROUNDINGS = 48.0
# How much more than the plain sum's own rounding a row may lose before it is done pair by pair, whatever ``tol`` says;
# with products with δ, where the bound is coarser, and ``tol`` says nothing of what a fit makes of them.
PLAIN = 128.0
PLAIN_DELTA = 1024.0


def moments(problem: Problem, step: Step) -> Outcome:
    """Attention moments of every query; for Laplace also the queries so far away that every score overflowed."""
    return certified(problem, step)[0]


def certified(problem: Problem, step: Step) -> tuple[Outcome, Array]:
    """The moments, and a bound (Q,) on what rounding moves each mean by, in units of the range of the values."""
    require("sorted", problem.sketch())
    if not problem.sketch().pairs:
        return Outcome(empty_state(problem)), np.zeros(len(problem.query))
    line, queries, _ = laid(problem, step.threads)
    orders = problem.degree, min(problem.degree, 1)
    if line.score.kernel.compact:
        out, loss = _compact(line, orders, problem.tol)
        mass = restored(out[:, 0], queries)
        peak, lost = np.where(mass > 0.0, 0.0, -np.inf), None
    else:
        out, height = _laplace(line, orders)
        loss = np.full(len(queries), (len(line.x) + ROUNDINGS) * 2.0**-53)
        mass, peak, largest = restored(out[:, 0], queries), restored(height, queries), float(np.finfo(np.float64).max)
        lost = at_limit(peak, largest, laplace=True, additive=False)
        peak[lost] = np.maximum(peak[lost], -np.sqrt(largest))
    flat = restored(_flat(out, orders, line.columns.shape[1]), queries)
    return Outcome(Partial(peak, mass, flat), lost), restored(loss, queries)


def weights(problem: Problem, step: Step) -> tuple[Array, Array | None]:  # noqa: ARG001
    """Not here: (Q, K) numbers are what this engine exists to avoid."""
    raise ValueError("engine 'sorted' gives no weights; engine 'tiled' does")


def pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients through the scores; ``partial`` is what ``moments`` returned for the same problem."""
    require("sorted", problem.sketch())
    if not problem.sketch().pairs:
        return no_gradients(problem, want)
    line, queries, keys = laid(problem, step.threads)
    grads = _Pull(line, partial.take(queries), adjoint.take(queries), problem.tol).gradients(want)
    w = problem.score.w  # type: ignore[attr-defined]
    size = float(np.sqrt((w**2).sum()))
    grads["w"] = grads["w"] * (w / size if size > 0.0 else np.zeros_like(w))
    grads["query"], grads["key"] = grads["query"][:, None], grads["key"][:, None]
    orders = {"query": queries, "key": keys, "value": keys}
    return Gradients(**{name: restored(grads[name], orders[name]) if name in orders else grads[name] for name in want})


def _compact(line: Line, orders: Orders, tol: float) -> tuple[Array, Array]:
    """Sums of every query, and how much each mean may have lost, relative to the range of the values."""
    out, bound = compact_sums(line, orders)
    again = _doubtful(line, out, bound, orders, tol)
    pairwise(line, np.flatnonzero(again), orders, out)
    # Values count as differences from one in the block: twice what the mass loses.
    loss = 2.0 * ROUNDINGS * 2.0**-53 * bound[:, 0] / np.where(out[:, 0] > 0.0, out[:, 0], 1.0)
    return out, np.where(again, ROUNDINGS * 2.0**-53, loss)


def _doubtful(line: Line, out: Array, bound: Array, orders: Orders, tol: float) -> Array:
    """Queries whose sums are too small beside their rounding."""
    limit = PLAIN_DELTA if orders[0] else max(PLAIN, tol / (2.0 * ROUNDINGS * 2.0**-53))
    doubtful = (bound[:, 0] > limit * out[:, 0]) | (out[:, 0] < 0.0)
    if orders[0] >= 2:
        doubtful |= bound[:, 1] > limit * out[:, 2]
    return np.asarray(doubtful & (line.lo < line.hi))


def _laplace(line: Line, orders: Orders) -> tuple[Array, Array]:
    """Sums of every query at the height of its peak, and the peak."""
    left, right = line.halves()
    # An offset of the values is taken off and put back, so that it costs no digits.
    middle = np.median(line.columns, axis=0)
    out, peak = laplace_sums(replace(line, columns=line.columns - middle), left, right, orders, 1.0)
    for p, value in enumerate(middle):
        start = 1 + orders[0] + p * (1 + orders[1])
        out[:, start : start + 1 + orders[1]] += value * out[:, : 1 + orders[1]]
    return out, peak


def _flat(out: Array, orders: Orders, columns: int) -> Array:
    """Sums in the order of the moment axis: columns, δ, columns·δ, δδ."""
    value = [1 + orders[0] + p * (1 + orders[1]) for p in range(columns)]
    if orders[0] >= 1:
        value += [1, *(place + 1 for place in value)]
    return out[:, value + ([2] if orders[0] >= 2 else [])]


class _Pull:
    """The adjoint pass. The cotangent of a pair is weight·(h₀ + h₁δ + h₂δ² + Σ_p v_p·(a_p + b_p·δ))."""

    def __init__(self, line: Line, partial: Partial, adjoint: Adjoint, tol: float) -> None:
        self.line, self.deep = line, adjoint.left.shape[1] > 1
        pad = ((0, 0), (0, 0 if self.deep else 1))
        plain = np.zeros(adjoint.left.shape) if adjoint.plain is None else adjoint.plain
        parts = adjoint.left, adjoint.right, plain
        self.left, self.right, self.plain = (np.pad(part.astype(np.float64), pad) for part in parts)
        self.value = adjoint.value.astype(np.float64)
        attended = partial.mass > 0.0
        height, self.doubtful = np.zeros(len(attended)), np.zeros(len(attended), bool)
        if line.score.kernel.compact:
            bare, orders = replace(line, columns=line.columns[:, :0].copy()), (2, 0) if self.deep else (0, 0)
            self.doubtful = _doubtful(bare, *compact_sums(bare, orders), orders, tol)
        else:
            height = np.maximum(decays(line, *line.halves())[2], -np.sqrt(np.finfo(np.float64).max))
        with np.errstate(over="ignore"):
            rise = np.exp(np.where(attended, height - np.where(attended, partial.peak, 0.0), -np.inf))
        self.share = rise / np.where(attended, partial.mass, 1.0)

    def gradients(self, want: frozenset[str]) -> dict[str, Any]:
        line = self.line
        grads: dict[str, Any] = {
            "w": 0.0,
            "query": np.zeros(len(line.q)),
            "key": np.zeros(len(line.x)),
            "value": np.zeros(line.columns.shape),
        }
        if want & {"w", "query"}:
            self._queries(grads)
        if want & {"key", "value"}:
            self._keys(grads, want)
        if self.doubtful.any():
            rows = np.flatnonzero(self.doubtful)
            grads["query"][rows] = 0.0
            kind = (*arithmetic(line.score), self.share)
            parts = self.left, self.value, self.right, self.plain
            ends = line.q, line.lo, line.hi, line.own
            out = grads["query"], grads["key"], grads["value"]
            grads["w"] += pull_pairs(rows, line.x, line.s, line.columns, *ends, *kind, *parts, *out)
        return grads

    def _h(self) -> tuple[Array, Array, Array, Array, Array]:
        """h₀, h₁, h₂ (Q,) and a, b (Q, P)."""
        (l0, l1), (r0, r1), (p0, p1) = self.left.T, self.right.T, self.plain.T
        return p0 - l0 * r0, p1 - l0 * r1 - l1 * r0, -l1 * r1, l0[:, None] * self.value, l1[:, None] * self.value

    def _queries(self, grads: dict[str, Any]) -> None:
        """Gradients of w and of the queries, from signed sums of the kernel's slope."""
        line, most = self.line, 2 if self.deep else 0
        orders = most + 1, (1 if self.deep else 0) + 1
        if line.score.kernel.compact:
            sums = compact_sums(line, orders, rate=True)[0]
        else:
            sums = -laplace_sums(line, line.first, line.last, orders, -1.0)[0]
        h0, h1, h2, a, b = self._h()
        share = np.where(self.doubtful, 0.0, self.share)

        def total(shift: int) -> Array:
            """Σ_k over pairs of the cotangent, times δ^shift."""
            found = h0 * sums[:, shift]
            if self.deep:
                found = found + h1 * sums[:, 1 + shift] + h2 * sums[:, 2 + shift]
            for p in range(line.columns.shape[1]):
                place = 1 + orders[0] + p * (1 + orders[1]) + shift
                found = found + a[:, p] * sums[:, place] + (b[:, p] * sums[:, place + 1] if self.deep else 0.0)
            return np.asarray(found * share)

        grads["w"] = float(total(1).sum())
        grads["query"] = -line.w * total(0)

    def _keys(self, grads: dict[str, Any], want: frozenset[str]) -> None:
        """Gradients of keys and values: the queries as sources of their cotangents, seen from the keys."""
        line, width = self.line, self.line.columns.shape[1]
        h0, h1, h2, a, b = self._h()
        share = np.where(self.doubtful, 0.0, self.share)
        powers = 2 if self.deep else 0
        columns = np.column_stack([a, b, h0, h1, h2] if self.deep else [a, h0])
        orders = powers, powers
        place = [1 + orders[0] + p * (1 + orders[1]) for p in range(columns.shape[1])]

        def lean(sums: Array) -> Array:
            """Σ_q of (a + bδ), δ = key − query; the sums have query − key."""
            found = sums[:, place[:width]]
            return found - sums[:, [at + 1 for at in place[width : 2 * width]]] if self.deep else found

        if "value" in want:
            grads["value"] = lean(self._from_queries(share, columns, orders, rate=False)) * line.s[:, None]
        if "key" in want:
            sums = self._from_queries(share, columns, orders, rate=True)
            at = place[2 * width :] if self.deep else place[width:]
            found = sums[:, at[0]] + (lean(sums) * line.columns).sum(axis=1)
            if self.deep:
                found = found - sums[:, at[1] + 1] + sums[:, at[2] + 2]
            # Signs are those of query − key.
            grads["key"] = -line.w * line.s * found

    def _from_queries(self, share: Array, columns: Array, orders: Orders, rate: bool) -> Array:
        """Sums over the queries that see each key, of K or of sgn(query − key)·dK/du."""
        line = self.line
        if line.score.kernel.compact:
            return compact_sums(line.turned(share, columns), orders, rate)[0]
        ends = (line.first, line.last) if rate else line.halves()
        by_left, by_right, _ = decays(line, *ends)
        n, every = len(line.x), np.arange(len(line.x))
        # Each query hands its share to its neighbours, who pass it on.
        behind, ahead = line.x[np.maximum(ends[0] - 1, 0)], line.x[np.minimum(ends[1], n - 1)]
        upto = np.searchsorted(ends[1], every, side="right")
        since = np.searchsorted(ends[0], every, side="right")
        above = decayed(ahead, line.q, share * by_right, columns, line.x, line.x, upto, line.w, orders, False)
        below = decayed(behind, line.q, share * by_left, columns, line.x, line.x, since, line.w, orders, True)
        # dK/du = −K, and queries before a key are on its left.
        return above - below if rate else above + below
