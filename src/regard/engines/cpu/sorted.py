"""One feature, exactly, without visiting every pair: sums over sorted rows.

Compact kernels: each query combines the running sums of a few blocks of keys (``programs.cpu.sorted_sums``). Each row
has a bound on its rounding error; rows whose mass is too small relative to it (all their keys are at the edge of the
kernel) are recomputed pair by pair. Laplace: sums that decay from key to key, from both sides.

No mask; a query may exclude one key, its own row. Everything is computed in float64.
*Cost*: O((Q + K)·log(Q + K)) for sorting, O(Q + K) for the sums, plus the pairs of the rows recomputed.
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
from regard.engines.cpu.passes import empty_state
from regard.engines.cpu.program_inputs import unsorted
from regard.engines.cpu.sorted_layout import (
    Orders,
    SortedLayout,
    compact_sums,
    decaying_sums_of,
    kernel_arithmetic,
    laplace_sums,
    neighbour_weights,
    sorted_layout,
    sum_pairs,
)
from regard.programs.cpu.sorted_decay import backward_pairs

# Roundings, in units of 2⁻⁵³, of one term of a sum: powers, coefficients, shifts and u² itself.
ROUNDINGS_PER_TERM = 48.0
# Rows whose error bound exceeds that of a plain sum by more than this factor are recomputed pair by pair, unless
# ``tol`` allows more; with products with δ the bound is coarser, and ``tol`` does not apply.
MAX_LOSS = 128.0
MAX_LOSS_WITH_DELTA = 1024.0


def moments(problem: Problem, step: Step) -> Outcome:
    """Attention moments of every query; for Laplace also the queries so far away that every score overflowed."""
    return certified(problem, step)[0]


def certified(problem: Problem, step: Step) -> tuple[Outcome, Array]:
    """The moments, and a bound (Q,) on the rounding error of each mean, in units of the range of the values."""
    require("sorted", problem.sketch())
    if not problem.sketch().pairs:
        return Outcome(empty_state(problem)), np.zeros(len(problem.query))
    layout, queries, _ = sorted_layout(problem, step.threads)
    orders = problem.degree, min(problem.degree, 1)
    if layout.score.kernel.compact:
        out, loss = _compact(layout, orders, problem.tol)
        mass = unsorted(out[:, 0], queries)
        peak, uncertified = np.where(mass > 0.0, 0.0, -np.inf), None
    else:
        out, peak = _laplace(layout, orders)
        loss = np.full(len(queries), (len(layout.x) + ROUNDINGS_PER_TERM) * 2.0**-53)
        mass, peak, largest = unsorted(out[:, 0], queries), unsorted(peak, queries), float(np.finfo(np.float64).max)
        uncertified = at_limit(peak, largest, laplace=True, additive=False)
        peak[uncertified] = np.maximum(peak[uncertified], -np.sqrt(largest))
    flat = unsorted(_flat(out, orders, layout.columns.shape[1]), queries)
    return Outcome(Partial(peak, mass, flat), uncertified), unsorted(loss, queries)


def weights(problem: Problem, step: Step) -> tuple[Array, Array | None]:  # noqa: ARG001
    """Not available: this engine never forms the (Q, K) weights."""
    raise ValueError("engine 'sorted' does not compute attention weights; use engine 'tiled'")


def pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients through the scores; ``partial`` is what ``moments`` returned for the same problem."""
    require("sorted", problem.sketch())
    if not problem.sketch().pairs:
        return no_gradients(problem, want)
    layout, queries, keys = sorted_layout(problem, step.threads)
    grads = _Backward(layout, partial.take(queries), adjoint.take(queries), problem.tol).gradients(want)
    w = problem.score.w  # type: ignore[attr-defined]
    size = float(np.sqrt((w**2).sum()))
    grads["w"] = grads["w"] * (w / size if size > 0.0 else np.zeros_like(w))
    grads["query"], grads["key"] = grads["query"][:, None], grads["key"][:, None]
    orders = {"query": queries, "key": keys, "value": keys}
    return Gradients(**{name: unsorted(grads[name], orders[name]) if name in orders else grads[name] for name in want})


def _compact(layout: SortedLayout, orders: Orders, tol: float) -> tuple[Array, Array]:
    """Sums of every query, and a bound on the error of each mean, relative to the range of the values."""
    out, bound = compact_sums(layout, orders)
    redo = _inexact(layout, out, bound, orders, tol)
    sum_pairs(layout, np.flatnonzero(redo), orders, out)
    # Values are differences from one in their block: twice the error of the mass.
    loss = 2.0 * ROUNDINGS_PER_TERM * 2.0**-53 * bound[:, 0] / np.where(out[:, 0] > 0.0, out[:, 0], 1.0)
    return out, np.where(redo, ROUNDINGS_PER_TERM * 2.0**-53, loss)


def _inexact(layout: SortedLayout, out: Array, bound: Array, orders: Orders, tol: float) -> Array:
    """Queries whose sums are too small relative to their rounding error."""
    limit = MAX_LOSS_WITH_DELTA if orders[0] else max(MAX_LOSS, tol / (2.0 * ROUNDINGS_PER_TERM * 2.0**-53))
    inexact = (bound[:, 0] > limit * out[:, 0]) | (out[:, 0] < 0.0)
    if orders[0] >= 2:
        inexact |= bound[:, 1] > limit * out[:, 2]
    return np.asarray(inexact & (layout.lo < layout.hi))


def _laplace(layout: SortedLayout, orders: Orders) -> tuple[Array, Array]:
    """Sums of every query relative to its peak, and the peak."""
    left, right = layout.sides()
    # The median is subtracted and added back, so that an offset of the values costs no digits.
    middle = np.median(layout.columns, axis=0)
    out, peak = laplace_sums(replace(layout, columns=layout.columns - middle), left, right, orders, 1.0)
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


class _Backward:
    """The backward pass. The cotangent of a pair is weight·(h₀ + h₁δ + h₂δ² + Σ_p v_p·(a_p + b_p·δ))."""

    def __init__(self, layout: SortedLayout, partial: Partial, adjoint: Adjoint, tol: float) -> None:
        self.layout, self.linear = layout, adjoint.left.shape[1] > 1
        pad = ((0, 0), (0, 0 if self.linear else 1))
        plain = np.zeros(adjoint.left.shape) if adjoint.plain is None else adjoint.plain
        parts = adjoint.left, adjoint.right, plain
        self.left, self.right, self.plain = (np.pad(part.astype(np.float64), pad) for part in parts)
        self.value = adjoint.value.astype(np.float64)
        attended = partial.mass > 0.0
        peak, self.inexact = np.zeros(len(attended)), np.zeros(len(attended), bool)
        if layout.score.kernel.compact:
            bare, orders = replace(layout, columns=layout.columns[:, :0].copy()), (2, 0) if self.linear else (0, 0)
            self.inexact = _inexact(bare, *compact_sums(bare, orders), orders, tol)
        else:
            peak = np.maximum(neighbour_weights(layout, *layout.sides())[2], -np.sqrt(np.finfo(np.float64).max))
        with np.errstate(over="ignore"):
            rise = np.exp(np.where(attended, peak - np.where(attended, partial.peak, 0.0), -np.inf))
        self.inverse_mass = rise / np.where(attended, partial.mass, 1.0)

    def gradients(self, want: frozenset[str]) -> dict[str, Any]:
        """Gradients by w (a number), query (Q,), key (K,) and value (K, P), all in sorted order."""
        layout = self.layout
        grads: dict[str, Any] = {
            "w": 0.0,
            "query": np.zeros(len(layout.q)),
            "key": np.zeros(len(layout.x)),
            "value": np.zeros(layout.columns.shape),
        }
        if want & {"w", "query"}:
            self._queries(grads)
        if want & {"key", "value"}:
            self._keys(grads, want)
        if self.inexact.any():
            rows = np.flatnonzero(self.inexact)
            grads["query"][rows] = 0.0
            pairs = layout.x, layout.s, layout.columns, layout.q, layout.lo, layout.hi, layout.own
            adjoint = self.left, self.right, self.plain, self.value
            out = grads["query"], grads["key"], grads["value"]
            grads["w"] += backward_pairs(rows, *pairs, kernel_arithmetic(layout.score), self.inverse_mass, adjoint, out)
        return grads

    def _coefficients(self) -> tuple[Array, Array, Array, Array, Array]:
        """h₀, h₁, h₂ (Q,) and a, b (Q, P)."""
        (l0, l1), (r0, r1), (p0, p1) = self.left.T, self.right.T, self.plain.T
        return p0 - l0 * r0, p1 - l0 * r1 - l1 * r0, -l1 * r1, l0[:, None] * self.value, l1[:, None] * self.value

    def _queries(self, grads: dict[str, Any]) -> None:
        """Gradients of w and of the queries, from signed sums of the kernel's derivative."""
        layout, orders = self.layout, (3, 2) if self.linear else (1, 1)
        if layout.score.kernel.compact:
            sums = compact_sums(layout, orders, rate=True)[0]
        else:
            sums = -laplace_sums(layout, layout.first, layout.last, orders, -1.0)[0]
        h0, h1, h2, a, b = self._coefficients()
        inverse_mass = np.where(self.inexact, 0.0, self.inverse_mass)

        def total(shift: int) -> Array:
            """Σ_k over pairs of the cotangent, times δ^shift."""
            found = h0 * sums[:, shift]
            if self.linear:
                found = found + h1 * sums[:, 1 + shift] + h2 * sums[:, 2 + shift]
            for p in range(layout.columns.shape[1]):
                place = 1 + orders[0] + p * (1 + orders[1]) + shift
                found = found + a[:, p] * sums[:, place] + (b[:, p] * sums[:, place + 1] if self.linear else 0.0)
            return np.asarray(found * inverse_mass)

        grads["w"] = float(total(1).sum())
        grads["query"] = -layout.w * total(0)

    def _keys(self, grads: dict[str, Any], want: frozenset[str]) -> None:
        """Gradients of keys and values: sums at the keys with the queries as sources."""
        layout, width = self.layout, self.layout.columns.shape[1]
        h0, h1, h2, a, b = self._coefficients()
        inverse_mass = np.where(self.inexact, 0.0, self.inverse_mass)
        orders = (2, 2) if self.linear else (0, 0)
        columns = np.column_stack([a, b, h0, h1, h2] if self.linear else [a, h0])
        place = [1 + orders[0] + p * (1 + orders[1]) for p in range(columns.shape[1])]

        def affine_sums(sums: Array) -> Array:
            """Σ_q of (a + bδ), δ = key − query; the sums have query − key."""
            found = sums[:, place[:width]]
            return found - sums[:, [at + 1 for at in place[width : 2 * width]]] if self.linear else found

        if "value" in want:
            sums = self._from_queries(inverse_mass, columns, orders, rate=False)
            grads["value"] = affine_sums(sums) * layout.s[:, None]
        if "key" in want:
            sums = self._from_queries(inverse_mass, columns, orders, rate=True)
            at = place[2 * width :] if self.linear else place[width:]
            found = sums[:, at[0]] + (affine_sums(sums) * layout.columns).sum(axis=1)
            if self.linear:
                found = found - sums[:, at[1] + 1] + sums[:, at[2] + 2]
            # The sums have the signs of query − key.
            grads["key"] = -layout.w * layout.s * found

    def _from_queries(self, inverse_mass: Array, columns: Array, orders: Orders, rate: bool) -> Array:
        """Sums at each key over the queries in range, of K or of sgn(query − key)·dK/du."""
        layout = self.layout
        if layout.score.kernel.compact:
            return compact_sums(layout.exchanged(inverse_mass, columns), orders, rate)[0]
        ends = (layout.first, layout.last) if rate else layout.sides()
        by_left, by_right, _ = neighbour_weights(layout, *ends)
        n, every = len(layout.x), np.arange(len(layout.x))
        # Each query contributes to its nearest keys, from where the sums decay.
        behind, ahead = layout.x[np.maximum(ends[0] - 1, 0)], layout.x[np.minimum(ends[1], n - 1)]
        above_ends = np.searchsorted(ends[1], every, side="right")
        below_ends = np.searchsorted(ends[0], every, side="right")
        from_left = ahead, layout.q, inverse_mass * by_right, columns
        from_right = behind, layout.q, inverse_mass * by_left, columns
        above = decaying_sums_of(from_left, layout.x, layout.x, above_ends, layout.w, orders, False)
        below = decaying_sums_of(from_right, layout.x, layout.x, below_ends, layout.w, orders, True)
        # dK/du = −K, and queries before a key are on its left.
        return above - below if rate else above + below
