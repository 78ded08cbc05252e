"""Learning of heads: several attentions over the same rows, each with its own scaling and metric, and their mix.

No single scaling of the columns and no single metric is best on all data, and the best by leave-one-out on a few
hundred rows is often so by chance. So all candidates are kept: one head for each scaling, with one w per feature and
with a full matrix, each a local line whose ridge is learned with it. Their mix has the weights on the simplex with the
best leave-one-out predictions, with a small penalty on unequal weights (docs/decisions/0007).

Most searches are those of ``line_heads`` and ``class_heads``; those with a named engine and many rows are here, with
the gradient of that engine.

With many rows the criterion is evaluated at a subsample of the rows with all rows as keys: a few hundred to choose a
start, two thousand for the descent, eight thousand for the last iterations.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize

from regard.bandwidth.class_heads import MAX_ROWS_CROSS_FITTED, learn_class_heads
from regard.bandwidth.descent import Point
from regard.bandwidth.learned_heads import Heads, HeadSearchLog, LearnedHead, Progress, mix_heads
from regard.bandwidth.line_heads import ERROR_FLOOR, ROTATION_PENALTY, learn_line_heads, supports_full
from regard.bandwidth.losses import LogLoss
from regard.bandwidth.objective import Objective
from regard.bandwidth.parametrization import Parametrization, feature_scales
from regard.bandwidth.scaling import Scaling
from regard.bandwidth.search import RIDGE_BOUNDS, max_scaled_w
from regard.bandwidth.subsampling import SEARCH_TOL
from regard.core.arrays import Array

# Shares t of the standard score in the scalings (see ``scaling``), and the metrics of the heads of each.
SCALINGS = ((1.0, ("full",)), (0.5, ("feature", "full")), (0.0, ("feature",)))
# (w·scale, λ) at which descents start.
START_POINTS = ((1.0, 0.1), (2.0, 0.01))
# Rows evaluated to choose a start, if there are many.
START_ROWS = 500
# Rows evaluated by descents.
DESCENT_ROWS = 2000
# Rows evaluated by the last iterations.
FINAL_ROWS = 8000
# Iterations from each start.
START_ITERATIONS = 12
# Iterations from the best of them, with one w per feature.
FEATURE_ITERATIONS = 40
# Iterations from there with a full matrix.
FULL_ITERATIONS = 80
# Iterations with the most rows.
FINAL_ITERATIONS = 15
# A descent ends when an iteration improves the logarithm of the criterion by less than this: with many rows …
GAIN_MANY_ROWS = 3e-4
# … and with few.
GAIN_FEW_ROWS = 1e-7


def learn_heads(X: Array, y: Array, *, seed: int = 0, progress: Progress | None = None, **options: Any) -> Heads:
    """Learn scaling, metric, bandwidth and degree of every head, and their mix; ``options`` as ``Objective.of``.

    Lines (``line_heads``) and class probabilities (``class_heads``) are learned by products of matrices, lines on a GPU
    too. With many rows and another named engine they are learned by descents with the gradient that it computes.

    *Cost*: see there; otherwise some hundred evaluations of O(min(n, 2,000)·n·d²), and one of O(n²·d²) per head.
    """
    first = Objective.of(X, y, **options)
    scaling = Scaling.of(first.key, first.counts)
    classes = isinstance(first.loss, LogLoss)
    if first.degree and (first.engine in ("auto", "fused") or len(first.rows) <= DESCENT_ROWS):
        return learn_line_heads(first, scaling, seed, progress)
    if classes and (first.engine == "auto" or len(first.rows) <= MAX_ROWS_CROSS_FITTED):
        return learn_class_heads(first, scaling, seed, progress)
    log = HeadSearchLog(progress, _planned_rows(first))
    heads: list[tuple[LearnedHead]] = []
    answers: list[Array] = []
    interrupted = False
    try:
        for t, metrics in SCALINGS:
            share = np.full(X.shape[1], t)
            objective = replace(first, key=scaling(first.key, share))
            for end in _descents(objective, metrics, seed, log):
                answers.append(first.loss.from_units_of_y(objective(end.w, end.ridge).answer))
                heads.append((LearnedHead(0.0, share, end.w, end.ridge),))
    except KeyboardInterrupt:
        if not heads:
            raise
        interrupted = True
    return mix_heads(first, heads, answers, scaling, log.path, interrupted)


def _planned_rows(objective: Objective) -> float:
    """Rows evaluated by all iterations of all descents, if none ends early."""
    n, full = len(objective.rows), supports_full(objective, int((objective.feature_scale > 0.0).sum()))
    few, some, most = (min(n, size) if n > DESCENT_ROWS else n for size in (START_ROWS, DESCENT_ROWS, FINAL_ROWS))
    start = len(START_POINTS) * START_ITERATIONS * few + FEATURE_ITERATIONS * some
    last = FINAL_ITERATIONS * most * (n > DESCENT_ROWS)
    return float(
        sum(
            start + (full and "full" in metrics) * FULL_ITERATIONS * some + len(metrics) * last
            for _, metrics in SCALINGS
        )
    )


def _descents(objective: Objective, metrics: tuple[str, ...], seed: int, log: HeadSearchLog) -> list[Point]:
    """The best w per feature, and the best full matrix from there, as far as ``metrics`` asks for them."""
    n = len(objective.rows)
    rng = np.random.default_rng(seed)
    few = some = most = replace(objective, tol=SEARCH_TOL)
    if n > DESCENT_ROWS:
        order, rough = rng.permutation(n), replace(most, rough=objective.degree > 0)
        few, some, most = (rough.evaluated_at(np.sort(order[:size])) for size in (START_ROWS, DESCENT_ROWS, FINAL_ROWS))
    space = Parametrization.of("feature", feature_scales(objective.key, objective.counts))
    if not space.size:
        return [Point(0.0, space, np.zeros(0), RIDGE_BOUNDS[1])]
    descend = partial(descend_head, log=log, gain=GAIN_FEW_ROWS if n <= DESCENT_ROWS else GAIN_MANY_ROWS)
    starts = [descend(few, space, space.uniform(level), ridge, START_ITERATIONS) for level, ridge in START_POINTS]
    best = min(starts, key=lambda end: end.value)
    by_feature = descend(some, space, best.parameters, best.ridge, FEATURE_ITERATIONS)
    full_metric = supports_full(objective, space.size)
    found = [by_feature] if not full_metric or "feature" in metrics else []
    if full_metric and "full" in metrics:
        full, parameters = space.as_full(by_feature.parameters)
        found.append(descend(some, full, parameters, by_feature.ridge, FULL_ITERATIONS))
    if n <= DESCENT_ROWS:
        return found
    return [descend(most, end.space, end.parameters, end.ridge, FINAL_ITERATIONS) for end in found]


def descend_head(
    objective: Objective,
    space: Parametrization,
    start: Array,
    ridge: float,
    steps: int,
    log: HeadSearchLog,
    gain: float,
) -> Point:
    """A minimum of log criterion plus the penalty on rotation; ends when an iteration gains less than ``gain``."""
    rotations = slice(space.count, space.size)
    learned, rows, begun = objective.degree > 0, len(objective.rows), len(log.path)
    penalty = ROTATION_PENALTY / rows

    def at(x: Array) -> tuple[float, Array]:
        parameters = x[: space.size]
        found = objective(space.w(parameters), float(np.exp(x[-1])) if learned else 0.0, gradient=True)
        log.add(objective.in_units_of_y(found.value), rows * min(len(log.path) - begun + 1, steps))
        assert found.w is not None
        # A criterion of zero may be negative after rounding.
        level = max(found.value, 0.0) + ERROR_FLOOR
        slope = np.zeros(len(x))
        slope[: space.size] = space.gradient(parameters, found.w) / level
        slope[space.size :] = found.log_ridge / level
        slope[rotations] += 2.0 * penalty * x[rotations]
        return float(np.log(level) + penalty * (x[rotations] ** 2).sum()), slope

    bounds = space.bounds(max_scaled_w(objective)) + [tuple(np.log(RIDGE_BOUNDS))] * learned
    x = np.r_[start, np.log(ridge)] if learned else start
    options = {"maxiter": steps, "maxcor": 20, "ftol": gain}
    found = minimize(at, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    log.before += rows * steps
    return Point(
        float(found.fun),
        space,
        found.x[: space.size],
        float(np.exp(found.x[-1])) if learned else 0.0,
    )
