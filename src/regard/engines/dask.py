"""Blocks of queries, each computed by one dask worker over all keys.

Keys are sent once to every worker. Nothing is merged, so the results are exactly those of the worker's own engine. Keys
that are dask arrays themselves are handled by ``regard.cluster``.

Each worker makes its own plan: it receives the module to run (``RUNNER``), not an engine.
*Cost*: that of the best local engine, divided among all workers, and O((Q + K)·d) bytes sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from regard.core.arrays import Array
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Outcome, Problem
from regard.core.state import Partial
from regard.engines.tasks import compute, task_for_each, tasks_of

# Module with a function run_<name>(problem, engine, …) for each function of an engine.
RUNNER = "regard.pooling.runner"


def moments(problem: Problem, step: Step) -> Outcome:
    """Moments of every query, and which of them are softmax limits."""
    parts, limits = zip(*_on_workers("moments", problem, step), strict=True)
    peak, mass, flat = (np.concatenate([part[at] for part in parts]) for at in range(3))
    return Outcome(Partial(peak, mass, flat, parts[0].hard), np.concatenate(limits))


def weights(problem: Problem, step: Step) -> tuple[Array, Array | None]:
    """Weights (Q, K)."""
    return np.concatenate(_on_workers("weights", problem, step)), None


def pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients through the scores; ``partial`` is what ``moments`` returned for the same problem."""
    each = [(partial.take(rows), adjoint.take(rows), want) for rows in _cuts(problem, step)]
    found = _on_workers("pullback", problem, step, each)
    parts = {name: [getattr(part, name) for part in found] for name in want}
    return Gradients(
        **{name: np.concatenate(each) if name == "query" else _added(each) for name, each in parts.items()}
    )


def _added(parts: list[Any]) -> Any:
    """The sum of the gradients of all blocks, in their order; an Additive score has three arrays of them."""
    if isinstance(parts[0], tuple):
        return tuple(_added(list(each)) for each in zip(*parts, strict=True))
    return sum(parts[1:], start=parts[0])


def _cuts(problem: Problem, step: Step) -> list[slice]:
    starts = range(0, max(len(problem.query), 1), step.query_tile)
    return [slice(start, start + step.query_tile) for start in starts]


def _on_workers(
    function: str, problem: Problem, step: Step, more: Sequence[tuple[Any, ...]] | None = None
) -> list[Any]:
    """The results of a runner function for every block of queries, each with ``more`` arguments of its own."""
    cuts = _cuts(problem, step)
    # A task of its own, so that the keys are sent once to each worker.
    shared = tasks_of("keys", replace)(problem.take(slice(0)))  # type: ignore[arg-type]
    labels, mask = None if problem.exclude is None else problem.exclude[0], problem.mask
    blocks = [[None if part is None else part[rows] for part in (problem.query, mask, labels)] for rows in cuts]
    rest = [()] * len(cuts) if more is None else more
    return compute(
        task_for_each(
            "query", _run, [(function, shared, *block, *each) for block, each in zip(blocks, rest, strict=True)]
        )
    )


def _run(function: str, problem: Problem, query: Array, mask: Array | None, labels: Array | None, *more: Any) -> Any:
    """A runner function for one block of queries, on a worker."""
    exclude = None if labels is None or problem.exclude is None else (labels, problem.exclude[1])
    part = replace(problem, query=query, mask=mask, exclude=exclude)
    return getattr(import_module(RUNNER), f"run_{function}")(part, "auto", *more)
