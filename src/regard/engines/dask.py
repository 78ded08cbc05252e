"""Blocks of queries, each answered whole by a worker of dask.

Keys travel once to every worker, queries and answers as far as they must; nothing is merged, so a worker's answer is
the very answer that its own engines give. Keys that lie on many machines themselves are for ``regard.cluster``.

A worker makes its own plan: it is given the name of what to run (``RUNNER``), not an engine.
*Cost*: as the best local engine over all workers, and sending O((Q + K)·d).
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

# Has a function run_<verb>(problem, engine, …) for each verb of an engine.
RUNNER = "regard.pooling.runner"


def moments(problem: Problem, step: Step) -> Outcome:
    """Moments of every query, and which of them were answered by a limit."""
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
    """Gradients of all blocks together, in their order; those of an Additive score are three."""
    if isinstance(parts[0], tuple):
        return tuple(_added(list(each)) for each in zip(*parts, strict=True))
    return sum(parts[1:], start=parts[0])


def _cuts(problem: Problem, step: Step) -> list[slice]:
    starts = range(0, max(len(problem.query), 1), step.query_tile)
    return [slice(start, start + step.query_tile) for start in starts]


def _on_workers(verb: str, problem: Problem, step: Step, more: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
    """What ``verb`` gives for every block of queries, each with ``more`` arguments of its own."""
    cuts = _cuts(problem, step)
    # What all blocks share travels on its own, once to each worker.
    shared = tasks_of("keys", replace)((0,), problem.take(slice(0)))  # type: ignore[arg-type]
    labels, mask = None if problem.exclude is None else problem.exclude[0], problem.mask
    blocks = [[None if part is None else part[rows] for part in (problem.query, mask, labels)] for rows in cuts]
    rest = [()] * len(cuts) if more is None else more
    return compute(
        task_for_each("query", _run, [(verb, shared, *block, *each) for block, each in zip(blocks, rest, strict=True)])
    )


def _run(verb: str, problem: Problem, query: Array, mask: Array | None, labels: Array | None, *more: Any) -> Any:
    """A verb of the runner for one block of queries, on the worker that answers it."""
    exclude = None if labels is None or problem.exclude is None else (labels, problem.exclude[1])
    part = replace(problem, query=query, mask=mask, exclude=exclude)
    return getattr(import_module(RUNNER), f"run_{verb}")(part, "auto", *more)
