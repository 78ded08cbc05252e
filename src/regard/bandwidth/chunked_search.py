"""Learning on a cluster: a bag of rows on one worker says where to begin, and all rows, or many, say where to end.

As ``many``, with other prices: a bag is searched in one task, bags side by side; every look at rows of all blocks is a
map and reduce over pairs of blocks (``chunked``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.bandwidth.chunked import ChunkedObjective, Part
from regard.bandwidth.losses import LogLoss, SquaredError
from regard.bandwidth.many import (
    ANSWERED,
    BAG,
    BAGGED,
    BAGS,
    BATCH,
    BATCHED,
    EXACT,
    FIRST_BAG,
    GAIN,
    QUICK,
    ROUGH,
    joined_bags,
    learn_from_many,
)
from regard.bandwidth.objective import Objective
from regard.bandwidth.search import Progress, Search, learn, refine
from regard.cluster import compute, cores, tasks_of
from regard.costs import WAVY
from regard.runner import small_matrices

Array = NDArray[Any]


class Bag(NamedTuple):
    """What a worker needs to know to search a bag of rows."""

    loss: SquaredError | LogLoss
    kernel: str
    degree: int
    engine: str
    metric: str
    ridge: float | None
    seed: int


def learn_chunks(
    objective: ChunkedObjective,
    metric: str = "feature",
    *,
    ridge: float | None = 0.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Search:
    """The w of least criterion; ``ridge`` is a fixed λ, or None to learn it too.

    With at most 20,000 rows, and with more where engines avoid most pairs, all rows are looked at at every step.
    Elsewhere 5,000 rows against all others, beyond 200,000 rows four bags of 20,000 rows each. ``answer`` is lazy.
    """
    n, rng = len(objective.rows), np.random.default_rng(seed)
    options: dict[str, Any] = {"ridge": ridge, "progress": progress}
    if n <= BATCHED:
        return learn(objective, metric, **options)
    bag = Bag(objective.loss, objective.kernel, objective.degree, objective.engine, metric, ridge, seed)
    if objective.width <= WAVY and metric != "full":
        first = joined_bags(_searched(objective, bag, rng, 1, FIRST_BAG), n / FIRST_BAG)
        every = replace(objective, tol=EXACT)
        if every.seconds(first.w) <= QUICK * n * cores():
            return refine(every, metric, first, gain=GAIN, **options)
    if n <= BAGGED:
        rows = np.sort(rng.choice(n, BATCH, replace=False))
        found = learn(replace(objective, tol=ROUGH).looking_at(rows), metric, **options)
        return _told(objective, found, rng, BATCH)
    found = joined_bags(_searched(objective, bag, rng, BAGS, BAG), n / BAG)
    return _told(objective, found, rng, BAGS * BATCH)


def _searched(objective: ChunkedObjective, bag: Bag, rng: np.random.Generator, count: int, size: int) -> list[Search]:
    """What searches of so many bags of so many rows found, each on a worker."""
    n, task = len(objective.rows), tasks_of("bag", search_bag)
    rows = [np.sort(rng.choice(n, min(size, n), replace=False)) for _ in range(count)]
    return compute([task((at,), objective.taken(one), bag) for at, one in enumerate(rows)])


def search_bag(part: Part, bag: Bag) -> Search:
    """The search of some rows as if there were no others, on the worker that does it."""
    with small_matrices():
        return learn_from_many(objective_here(part, bag), bag.metric, ridge=bag.ridge, seed=bag.seed)


def objective_here(part: Part, bag: Bag) -> Objective:
    """The criterion of a part in memory."""
    rows = np.arange(len(part.key))
    loss = replace(bag.loss, columns=part.columns)
    if isinstance(loss, LogLoss):
        loss = replace(loss, size=float(len(rows)))
    repeated = part.counts - 1.0 if part.repeats and part.weight is not None else None
    facts = (part.key, loss, part.weight, part.counts, repeated, part.labels, rows, bag.kernel, bag.degree)
    return Objective(*facts, "loo", bag.engine)


def _told(objective: ChunkedObjective, found: Search, rng: np.random.Generator, looked_at: int) -> Search:
    """The search with the exact criterion over many rows at its end, and the lazy answers of all."""
    n = len(objective.rows)
    some = objective.looking_at(np.sort(rng.choice(n, min(ANSWERED, n), replace=False)))
    final = some(found.w, found.ridge)
    return found._replace(
        value=objective.in_units_of_y(final.value),
        answer=objective.answers(found.w, found.ridge),
        empty=final.empty,
        looked_at=looked_at,
    )
