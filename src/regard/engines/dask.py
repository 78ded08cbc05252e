"""Elsewhere: blocks of queries of an ordinary problem, each answered whole by a worker of dask.

Keys travel once to every worker, queries and answers as far as they must; nothing is merged, so a worker's answer is
the very answer that its own engines give. Keys that lie on many machines themselves are for ``regard.cluster``.

How a worker computes is not this engine's business: it is handed the verbs of the plan (``local``).
*Cost*: as the best local engine over all workers, and sending O((Q + K)·d).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.core.arrays import as_numpy
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Problem
from regard.core.state import Partial
from regard.engines.tasks import compute, tasks_of

Array = NDArray[Any]
Local = Callable[..., Any]


class Queries(NamedTuple):
    """What a block of queries brings to a problem."""

    query: Array
    mask: Array | None
    labels: Array | None

    def into(self, problem: Problem) -> Problem:
        exclude = None if self.labels is None or problem.exclude is None else (self.labels, problem.exclude[1])
        return replace(problem, query=self.query, mask=self.mask, exclude=exclude)


def moments(problem: Problem, step: Step, local: Local) -> tuple[Partial, Array]:
    """Moments of every query, and which are at a limit; ``local`` is ``runner.run_moments``."""
    found = _everywhere(problem, step, _moments, local)
    parts, limits = zip(*found, strict=True)
    peak, mass, flat = (np.concatenate([part[at] for part in parts]) for at in range(3))
    return Partial(peak, mass, flat, parts[0].hard), np.concatenate(limits)


def weights(problem: Problem, step: Step, local: Local) -> Array:
    """Weights (Q, K); ``local`` is ``runner.run_weights``."""
    return np.concatenate(_everywhere(problem, step, _weights, local))


def pullback(
    problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str], local: Local
) -> Gradients:
    """Gradients through the scores; ``local`` is ``runner.run_pullback``."""
    states = (
        (Partial(partial.peak[rows], partial.mass[rows], as_numpy(partial.moments)[rows], partial.hard), rows)
        for rows in _cuts(problem, step)
    )
    each = [(state, adjoint.take(rows), want) for state, rows in states]
    found = _everywhere(problem, step, _pullback, local, each)
    together: dict[str, Any] = {name: _added([getattr(part, name) for part in found]) for name in want - {"query"}}
    if "query" in want:
        together["query"] = np.concatenate([part.query for part in found])
    return Gradients(**together)


def _added(parts: list[Any]) -> Any:
    """Gradients of all blocks together, in their order; those of an Additive score are three."""
    if isinstance(parts[0], tuple):
        return tuple(_added(list(each)) for each in zip(*parts, strict=True))
    return sum(parts[1:], start=parts[0])


def _cuts(problem: Problem, step: Step) -> Iterator[slice]:
    return (slice(start, start + step.query_tile) for start in range(0, len(problem.query), step.query_tile))


def _everywhere(problem: Problem, step: Step, verb: Local, local: Local, each: list[Any] | None = None) -> list[Any]:
    # What all blocks share travels on its own, once to each worker.
    shared = tasks_of("keys", _itself)((0,), replace(problem, query=problem.query[:0], mask=None))
    task, tasks = tasks_of("look", verb), []
    for number, rows in enumerate(_cuts(problem, step)):
        labels = None if problem.exclude is None else problem.exclude[0][rows]
        brought = Queries(problem.query[rows], None if problem.mask is None else problem.mask[rows], labels)
        more = () if each is None else each[number]
        tasks.append(task((number,), local, shared, brought, *more))
    return compute(tasks)


def _itself(problem: Problem) -> Problem:
    return problem


def _moments(local: Local, problem: Problem, queries: Queries) -> tuple[Partial, Array]:
    partial, limit = local(queries.into(problem), "auto")
    return partial._replace(moments=as_numpy(partial.moments)), limit


def _weights(local: Local, problem: Problem, queries: Queries) -> Array:
    return np.asarray(local(queries.into(problem), "auto"))


def _pullback(
    local: Local, problem: Problem, queries: Queries, partial: Partial, adjoint: Adjoint, want: frozenset[str]
) -> Gradients:
    found: Gradients = local(queries.into(problem), "auto", partial, adjoint, want)
    return found
