"""Skips tiles whose weight is provably below tol; otherwise identical to ``tiled``.

Keys and queries are sorted into kd-tree order under w, so that tiles of keys and blocks of queries have small bounding
boxes. Each block starts with the tile nearest to it; this bounds the mass of its queries from below, and a tile so far
away that none of its keys can reach max(tol, 2⁻⁵³)/n of that mass is skipped. Compact kernels skip tiles beyond u = 1.

Radial scores without a mask. Hard attention, queries far from every key and the weights themselves use every pair.
*Cost*: O((Q + K)·log(Q + K)·d) for sorting, O(d) per tile, and the cost of ``tiled`` for each tile that is not skipped.
"""

from __future__ import annotations

from regard.core.arrays import Array
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Outcome, Problem
from regard.core.state import Partial
from regard.engines.costs import require
from regard.engines.cpu import kd_passes, passes
from regard.engines.cpu.program_inputs import in_working_precision


def moments(problem: Problem, step: Step) -> Outcome:
    """Attention moments of every query, and the queries so far away that every score overflowed."""
    return kd_passes.moments(_checked(problem), step)


def weights(problem: Problem, step: Step) -> tuple[Array, Array | None]:
    """Attention weights (Q, K), zero in empty rows, and a mask of uncertified queries (None if there are none)."""
    return passes.weights(_checked(problem), step)


def pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients through the scores; ``partial`` is what ``moments`` returned for the same problem."""
    return passes.pullback_in_precision(kd_passes.pullback, _checked(problem), step, partial, adjoint, want)


def _checked(problem: Problem) -> Problem:
    require("pruned", problem.sketch())
    return in_working_precision(problem)
