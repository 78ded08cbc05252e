"""Learning from more rows than one worker takes: as ``many``, spread over a cluster.

A bag of rows is searched in one task, bags side by side; every look at rows of all blocks is a map and reduce over
pairs of blocks (``chunked``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.bandwidth import many
from regard.bandwidth.chunked import ChunkedObjective, Part
from regard.bandwidth.losses import LogLoss, SquaredError
from regard.bandwidth.objective import Objective
from regard.bandwidth.search import Progress, Search, refine
from regard.engines.tasks import compute, cores, tasks_of
from regard.pooling.runner import small_matrices

Array = NDArray[Any]


class Recipe(NamedTuple):
    """What a worker needs to know to search a bag of rows."""

    loss: SquaredError | LogLoss
    kernel: str
    degree: int
    engine: str
    metric: str
    ridge: float | None


def learn_chunks(
    objective: ChunkedObjective,
    metric: str = "feature",
    *,
    ridge: float | None = 0.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Search:
    """The w of least criterion; ``ridge`` is a fixed λ, or None to learn it too. ``answer`` is lazy.

    As ``learn_from_many`` beyond 200,000 rows: in few features, where all cores together can look at all rows quickly,
    every step does; elsewhere four bags of 20,000 rows are searched.
    """
    n, rng = len(objective.rows), np.random.default_rng(seed)
    recipe = Recipe(objective.loss, objective.kernel, objective.degree, objective.engine, metric, ridge)
    task = tasks_of("bag", search_bag)
    if many.few_features(objective.width, metric):
        rows = many.batch(n, rng, many.FIRST_BAG)
        (bag,) = compute([task((0,), objective.taken(rows), None, recipe)])
        first, every = many.joined_bags([bag], n / len(rows)), replace(objective, tol=many.EXACT)
        if every.seconds(first.w) <= many.QUICK * n * cores():
            return refine(every, metric, first, ridge=ridge, gain=many.GAIN, progress=progress)
    bags = [task((at,), objective.taken(bag), some, recipe) for at, (bag, some) in enumerate(many.bags_of(n, rng), 1)]
    joined = many.joined_bags(compute(bags), n / many.BAG)
    final = objective.looking_at(many.batch(n, rng, many.ANSWERED))(joined.w, joined.ridge)
    return joined._replace(
        value=objective.in_units_of_y(final.value),
        answer=objective.answers(joined.w, joined.ridge),
        empty=final.empty,
        looked_at=many.BAGS * many.BATCH,
    )


def search_bag(part: Part, some: Array | None, recipe: Recipe) -> Search:
    """The search of rows as if there were no others, looking at some of them, on the worker that does it."""
    with small_matrices():
        return many.learn_bag(objective_here(part, recipe), some, recipe.metric, ridge=recipe.ridge)


def objective_here(part: Part, recipe: Recipe) -> Objective:
    """The criterion of a part in memory."""
    rows = np.arange(len(part.key))
    loss = replace(recipe.loss, columns=part.columns)
    if isinstance(loss, LogLoss):
        loss = replace(loss, size=float(len(rows)))
    repeated = part.counts - 1.0 if part.repeats and part.weight is not None else None
    facts = (part.key, loss, part.weight, part.counts, repeated, part.labels, rows, recipe.kernel, recipe.degree)
    return Objective(*facts, "loo", recipe.engine)
