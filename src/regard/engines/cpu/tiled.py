"""Exact attention by compiled programs over every tile of pairs: threaded, float32 and float64, every score.

*Cost*: O(Q·K·d) time; O(Q + K) memory plus one tile per thread.
"""

from __future__ import annotations

from regard.core.arrays import Array
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Outcome, Problem
from regard.core.state import Partial
from regard.engines.cpu import passes
from regard.engines.cpu.program_inputs import in_working_precision


def moments(problem: Problem, step: Step) -> Outcome:
    """Attention moments of every query, and the queries so far away that every score overflowed."""
    return passes.moments(in_working_precision(problem), step)


def weights(problem: Problem, step: Step) -> tuple[Array, Array | None]:
    """Attention weights (Q, K), zero in empty rows, and a mask of uncertified queries (None if there are none)."""
    return passes.weights(in_working_precision(problem), step)


def pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients through the scores; ``partial`` is what ``moments`` returned for the same problem."""
    return passes.pullback_in_precision(passes.pullback, in_working_precision(problem), step, partial, adjoint, want)
