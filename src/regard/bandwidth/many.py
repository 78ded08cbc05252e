"""Learning from many rows: all of them where engines allow it, else a batch of them as queries, and then bags of rows.

Where one look at all rows costs little more than sorting them (``regard.engines.costs``), a bag of rows says where to
begin, and the walk goes on from there with every row, to the exact optimum. Elsewhere only some rows are looked at,
against all rows as keys: the same criterion with more noise, unbiased, and the batch is large enough that its optimum
is that of all rows to a percent. Fewer *keys* are another matter: the best bandwidth of m rows is wider than that of
n. It shrinks like n^(−1/(d + 4)), so what bags of m rows find is averaged and rescaled.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from regard.bandwidth.objective import Objective
from regard.bandwidth.search import Progress, Search, learn, refine
from regard.core.arrays import Array
from regard.engines.costs import MAX_SPECTRAL_FEATURES

# More rows than this: a batch of so many is looked at.
BATCHED, BATCH = 20_000, 5_000
# More rows than this: so many bags of so many rows are searched instead.
BAGGED, BAGS, BAG = 200_000, 4, 20_000
# Seconds a row, by the planner's estimate, up to which all rows are looked at; rows of the bag that comes first.
QUICK, FIRST_BAG = 2e-6, 4_000
# Share of its attention that a row may lose then, and what the walk has to gain to go on.
EXACT, GAIN = 1e-9, 1e-13
# Rows answered at the end where not all are.
ANSWERED = 20_000
# Share of its attention that a row may lose while searching.
ROUGH = 1e-6


def learn_from_many(
    objective: Objective,
    metric: str = "feature",
    *,
    ridge: float | None = 0.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Search:
    """As ``learn``; where rows are many, or on a cluster, from some of them, see above.

    Where all rows are looked at, all are answered. Elsewhere up to 200,000 rows every row's left-out answer is computed
    at the end, beyond that those of 20,000 rows; others are NaN, and the criterion is the mean over the answered ones.
    On a cluster the answers of all rows are lazy.

    *Cost*: with all rows some 10 evaluations, each a few passes; elsewhere that of ``learn`` with 5,000·n pairs for n²
    beyond 20,000 rows, with 4·5,000·20,000 beyond 200,000, and on a cluster.
    """
    n, here = len(objective.rows), objective.in_memory
    if here and (n <= BATCHED or objective.criterion != "loo"):
        return learn(objective, metric, ridge=ridge, progress=progress)
    rng, search = np.random.default_rng(seed), partial(search_some, metric=metric, ridge=ridge)
    # In many features, or with a matrix, no engine avoids the pairs.
    if objective.key.shape[1] <= MAX_SPECTRAL_FEATURES and metric != "full":
        rows = batch(n, rng, FIRST_BAG)
        first = joined_bags(objective.each_among(search, [(rows, None)], progress), n / len(rows))
        every = replace(objective, tol=EXACT)
        if not first.interrupted and every.seconds(first.w) <= QUICK * n:
            return refine(every, metric, first, ridge=ridge, gain=GAIN, progress=progress)
    if here and n <= BAGGED:
        found, rows, looked_at = search(objective, batch(n, rng, BATCH), progress=progress), np.arange(n), BATCH
    else:
        bags = [(batch(n, rng, BAG), batch(min(BAG, n), rng, BATCH)) for _ in range(BAGS)]
        found, looked_at = joined_bags(objective.each_among(search, bags, progress), n / BAG), BAGS * BATCH
        rows = batch(n, rng, ANSWERED)
    final, answer = objective.answered(found.w, found.ridge, rows)
    value = objective.in_units_of_y(final.value)
    return found._replace(value=value, answer=answer, empty=final.empty, looked_at=looked_at)


def search_some(
    objective: Objective, rows: Array | None, metric: str, ridge: float | None, progress: Progress | None = None
) -> Search:
    """What a search finds that evaluates some of the rows, which may lose a little of their attention; None: all."""
    some = objective if rows is None else replace(objective, tol=ROUGH).looking_at(rows)
    return learn(some, metric, ridge=ridge, progress=progress)


def batch(n: int, rng: np.random.Generator, size: int) -> Array:
    """Numbers of some of n rows, in order."""
    return np.sort(rng.choice(n, min(size, n), replace=False))


def sharpened(w: Array, growth: float) -> Array:
    """The w of a subsample for ``growth`` times as many rows: bandwidths shrink like n^(−1/(d + 4))."""
    dimensions = max(1, int(np.linalg.matrix_rank(w)) if w.ndim == 2 else int(np.count_nonzero(w)))
    return np.asarray(w * growth ** (1.0 / (dimensions + 4)))


def joined_bags(bags: list[Search], growth: float) -> Search:
    """One search that stands for all: w averaged as logarithms and sharpened for ``growth`` times as many rows.

    A feature is ignored where most bags ignore it. Matrices are averaged as they are: they start from the same axes.
    """
    best = min(bags, key=lambda bag: bag.value)
    ws = np.stack([bag.w for bag in bags])
    if best.w.ndim == 2:
        w = ws.mean(axis=0)
    else:
        seen = ws > 0.0
        logs = np.log(np.where(seen, ws, 1.0)).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
        w = np.where(2 * seen.sum(axis=0) > len(bags), np.exp(logs), 0.0)
    return best._replace(
        w=sharpened(w, growth),
        ridge=float(np.exp(np.mean([np.log(max(bag.ridge, 1e-300)) for bag in bags]))) if best.ridge else 0.0,
        evaluations=sum(bag.evaluations for bag in bags),
        path=np.concatenate([bag.path for bag in bags]),
        places=np.concatenate([bag.places for bag in bags]),
        smoothed_out=np.mean([bag.smoothed_out for bag in bags], axis=0) > 0.5,
        minima=(),
        interrupted=any(bag.interrupted for bag in bags),
    )
