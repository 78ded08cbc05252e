"""Learning from many rows: all of them if an engine is fast enough, else subsamples of queries, or of rows.

If one evaluation of all rows costs little more than sorting them (``regard.engines.costs``), a subsample of rows gives
the start, and the descent goes on from there with every row, to the exact optimum. Otherwise the criterion is evaluated
at a subsample of the rows with all rows as keys: an unbiased estimate of the same criterion, large enough that its
optimum is that of all rows to a percent. With fewer *keys* the optimum differs: the best bandwidth of m rows is larger
than that of n. It decreases like n^(−1/(d + 4)), so the optima of subsamples of m rows are averaged and rescaled.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from regard.bandwidth.objective import Objective
from regard.bandwidth.search import Progress, Search, learn, refine
from regard.core.arrays import Array
from regard.engines.costs import MAX_SPECTRAL_FEATURES

# Number of rows up to which every row is evaluated, whatever it costs.
MAX_ROWS_ALL_EVALUATED = 20_000
# Rows evaluated if there are more.
EVALUATED_ROWS = 5_000
# Number of rows up to which all rows are keys of such a subsample.
MAX_ROWS_ALL_KEYS = 200_000
# Number and size of the subsamples that are searched if there are more.
SUBSAMPLES = 4
SUBSAMPLE_ROWS = 20_000
# Seconds per row, by the planner's estimate, up to which all rows are evaluated.
MAX_SECONDS_PER_ROW = 2e-6
# Rows of the subsample whose optimum is then the start.
FIRST_SUBSAMPLE_ROWS = 4_000
# Share of its attention mass that a row may lose when all rows are evaluated.
FINAL_TOL = 1e-9
# Relative improvement at which the descent with all rows ends.
REFINE_GAIN = 1e-13
# Rows predicted at the end if not all are.
ANSWERED_ROWS = 20_000
# Share of its attention mass that a row may lose during a search.
SEARCH_TOL = 1e-6


def learn_from_subsamples(
    objective: Objective,
    metric: str = "feature",
    *,
    ridge: float | None = 0.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Search:
    """As ``learn``; with many rows, or on a cluster, from subsamples of them as described above.

    If all rows are evaluated, ``answer`` has the leave-one-out predictions of all. Otherwise they are computed at the
    end: of every row up to 200,000 rows, of 20,000 rows beyond; the others are NaN, and the criterion is the mean over
    those computed. On a cluster the predictions of all rows are lazy.

    *Cost*: with all rows some 10 evaluations, each a few passes; otherwise that of ``learn`` with 5,000·n pairs instead
    of n² beyond 20,000 rows, and with 4·5,000·20,000 beyond 200,000 rows and on a cluster.
    """
    n, here = len(objective.rows), objective.in_memory
    if here and (n <= MAX_ROWS_ALL_EVALUATED or objective.criterion != "loo"):
        return learn(objective, metric, ridge=ridge, progress=progress)
    rng, search = np.random.default_rng(seed), partial(search_subsample, metric=metric, ridge=ridge)
    # With many features, or a matrix w, no engine is faster than all pairs.
    if objective.key.shape[1] <= MAX_SPECTRAL_FEATURES and metric != "full":
        rows = draw_rows(n, rng, FIRST_SUBSAMPLE_ROWS)
        first = averaged_searches(objective.search_each(search, [(rows, None)], progress), n / len(rows))
        every = replace(objective, tol=FINAL_TOL)
        if not first.interrupted and every.seconds(first.w) <= MAX_SECONDS_PER_ROW * n:
            return refine(every, metric, first, ridge=ridge, gain=REFINE_GAIN, progress=progress)
    if here and n <= MAX_ROWS_ALL_KEYS:
        found = search(objective, draw_rows(n, rng, EVALUATED_ROWS), progress=progress)
        rows, evaluations = np.arange(n), EVALUATED_ROWS
    else:
        subsamples = [
            (draw_rows(n, rng, SUBSAMPLE_ROWS), draw_rows(min(SUBSAMPLE_ROWS, n), rng, EVALUATED_ROWS))
            for _ in range(SUBSAMPLES)
        ]
        growth = n / len(subsamples[0][0])
        found = averaged_searches(objective.search_each(search, subsamples, progress), growth)
        rows, evaluations = draw_rows(n, rng, ANSWERED_ROWS), SUBSAMPLES * EVALUATED_ROWS
    final, answer = objective.answered(found.w, found.ridge, rows)
    value = objective.in_units_of_y(final.value)
    return found._replace(value=value, answer=answer, empty=final.empty, looked_at=evaluations)


def search_subsample(
    objective: Objective, rows: Array | None, metric: str, ridge: float | None, progress: Progress | None = None
) -> Search:
    """Search with the criterion evaluated at some of the rows and a small tolerance; at all and exactly if None."""
    some = objective if rows is None else replace(objective, tol=SEARCH_TOL).evaluated_at(rows)
    return learn(some, metric, ridge=ridge, progress=progress)


def draw_rows(n: int, rng: np.random.Generator, size: int) -> Array:
    """Indices of at most ``size`` of n rows, drawn without replacement, sorted."""
    return np.sort(rng.choice(n, min(size, n), replace=False))


def rescaled(w: Array, growth: float) -> Array:
    """The w of a subsample for ``growth`` times as many rows: bandwidths decrease like n^(−1/(d + 4))."""
    dimensions = max(1, int(np.linalg.matrix_rank(w)) if w.ndim == 2 else int(np.count_nonzero(w)))
    return np.asarray(w * growth ** (1.0 / (dimensions + 4)))


def averaged_searches(searches: list[Search], growth: float) -> Search:
    """One search for all: w is averaged as logarithms and rescaled for ``growth`` times as many rows.

    A feature is ignored if most searches ignore it. Matrices are averaged as they are: they start from the same axes.
    """
    best = min(searches, key=lambda one: one.value)
    ws = np.stack([one.w for one in searches])
    if best.w.ndim == 2:
        w = ws.mean(axis=0)
    else:
        used = ws > 0.0
        logs = np.log(np.where(used, ws, 1.0)).sum(axis=0) / np.maximum(used.sum(axis=0), 1)
        w = np.where(2 * used.sum(axis=0) > len(searches), np.exp(logs), 0.0)
    return best._replace(
        w=rescaled(w, growth),
        ridge=float(np.exp(np.mean([np.log(max(one.ridge, 1e-300)) for one in searches]))) if best.ridge else 0.0,
        evaluations=sum(one.evaluations for one in searches),
        path=np.concatenate([one.path for one in searches]),
        places=np.concatenate([one.places for one in searches]),
        smoothed_out=np.mean([one.smoothed_out for one in searches], axis=0) > 0.5,
        minima=(),
        interrupted=any(one.interrupted for one in searches),
    )
