"""The exact workhorse: compiled programs over every tile of pairs, threaded, float32 and float64, every score.

*Cost*: O(Q·K·d) time; O(Q + K) memory and a tile per thread.
"""

from __future__ import annotations

from regard.core.arrays import Array
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Outcome, Problem
from regard.core.state import Partial
from regard.engines.cpu import passes
from regard.engines.cpu.words import working


def moments(problem: Problem, step: Step) -> Outcome:
    """Attention moments of every query, and the queries so far away that every score overflowed."""
    return passes.moments(working(problem), step)


def weights(problem: Problem, step: Step) -> tuple[Array, Array | None]:
    """Attention weights (Q, K), zero rows where nobody may attend, and the queries not vouched for."""
    return passes.weights(working(problem), step)


def pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients through the scores; ``partial`` is what ``moments`` returned for the same problem."""
    return passes.precisely(passes.pullback, working(problem), step, partial, adjoint, want)
