"""Engines: ways to compute attention moments. They never import each other.

Each engine is a module with the same verbs over a ``Problem``:

- ``moments(problem, step) → Outcome``: the associative state, and the queries whose error bound is not certain;
- ``pullback(problem, step, partial, adjoint, want) → Gradients``: the adjoint pass, tile by tile;
- ``weights(problem, step) → (Q, K), uncertified``: the weights themselves, if a caller needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from regard.core.arrays import Array
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Outcome, Problem
from regard.core.state import Partial

# Module path of each engine.
ENGINES = {
    "reference": "regard.engines.cpu.reference",
    "tiled": "regard.engines.cpu.tiled",
    "pruned": "regard.engines.cpu.pruned",
    "graded": "regard.engines.cpu.graded",
    "sorted": "regard.engines.cpu.sorted",
    "spectral": "regard.engines.cpu.spectral",
    "fused": "regard.engines.gpu.fused",
    "dask": "regard.engines.dask",
}


class Engine(Protocol):
    """The functions of an engine module."""

    def moments(self, problem: Problem, step: Step) -> Outcome: ...
    def pullback(
        self, problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]
    ) -> Gradients: ...
    def weights(self, problem: Problem, step: Step) -> tuple[Array, Array | None]: ...


def check_engine(name: Any) -> None:
    """Raise ValueError if this is neither "auto" nor the name of an engine."""
    if name not in ("auto", *ENGINES):
        raise ValueError(f"engine must be one of {', '.join(['auto', *ENGINES])}, got {name!r}")


def load(name: str) -> Engine:
    """The engine module of that name, imported on first use."""
    check_engine(name)
    return import_module(ENGINES[name])  # type: ignore[return-value]
