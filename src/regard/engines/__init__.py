"""Engines: ways to compute attention moments. They never import each other.

Each engine is a module with the same verbs over a ``Problem``:

- ``moments(problem, step) → Outcome``: the associative state, and the queries it could not vouch for;
- ``pullback(problem, step, partial, adjoint, want) → Gradients``: the adjoint pass, tile by tile;
- ``weights(problem, step) → (Q, K), uncertified``: the weights themselves, for callers who ask for them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from regard.partial import Array, Partial
from regard.planner import ENGINES, Step
from regard.problem import Adjoint, Gradients, Outcome, Problem


class Engine(Protocol):
    """What an engine module offers."""

    def moments(self, problem: Problem, step: Step) -> Outcome: ...
    def pullback(
        self, problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]
    ) -> Gradients: ...
    def weights(self, problem: Problem, step: Step) -> tuple[Array, Array | None]: ...


def load(name: str) -> Engine:
    """The engine module of that name, imported only now."""
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(['auto', *ENGINES])}, got {name!r}")
    return import_module(f"regard.engines.{name}")  # type: ignore[return-value]
