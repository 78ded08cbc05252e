"""Exact to rounding, but only where somebody looks: tiles of keys too far from a block of queries are left out.

Keys and queries are put in the order of a kd-tree under w, so that a tile of keys and a block of queries are small
boxes. A block sees the tile nearest to it first; then it is known how much attention its queries have, and a tile
whose box is so far that none of its keys can reach 2⁻⁵³/n of that is skipped. Compact kernels skip what is beyond
u = 1. What remains is computed as in the tiled engine, by the same passes (``arranged``).

Radial scores, without a mask. Hard attention, queries far from every key and the weights themselves see every pair.
*Cost*: O((Q + K)·log(Q + K)·d) for the order, then O(d) for each tile and the usual for each that is seen.
"""

from __future__ import annotations

from regard.core.arrays import Array
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Outcome, Problem
from regard.core.state import Partial
from regard.engines.costs import require
from regard.engines.cpu import arranged, passes
from regard.engines.cpu.words import working


def moments(problem: Problem, step: Step) -> Outcome:
    """Attention moments of every query, and the queries so far away that every score overflowed."""
    return arranged.moments(_working(problem), step)


def weights(problem: Problem, step: Step) -> tuple[Array, Array | None]:
    """Attention weights (Q, K), zero rows where nobody may attend, and the queries not vouched for."""
    return passes.weights(_working(problem), step)


def pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients through the scores; ``partial`` is what ``moments`` returned for the same problem."""
    return passes.precisely(arranged.pullback, _working(problem), step, partial, adjoint, want)


def _working(problem: Problem) -> Problem:
    require("pruned", problem.sketch())
    return working(problem)
