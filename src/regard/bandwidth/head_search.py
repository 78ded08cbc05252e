"""Learning of heads: several attentions over the same rows, each with its own scaling and metric, and their mix.

No single scaling of the columns and no single metric is best on all data, and the best by leave-one-out on a few
hundred rows is often so by chance. So all candidates are kept: one head for each scaling, with one w per feature and
with a full matrix, each a local line whose ridge is learned with it. Their mix has the weights on the simplex with the
best leave-one-out predictions, with a small penalty on unequal weights (docs/decisions/0007).

With many rows the criterion is evaluated at a subsample of the rows with all rows as keys: a few hundred to choose a
start, two thousand for the descent, eight thousand for the last iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from regard.bandwidth.descent import Point
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
# Rows, repetitions counted, needed for each entry of a full matrix; with fewer there is one w per feature instead
# (docs/decisions/0020).
ROWS_PER_PARAMETER = 4.0
# Penalty on the squared entries of N in W = diag(w)(I + N), over the number of rows evaluated.
ROTATION_PENALTY = 30.0
# Added to squared errors relative to the variance, so that their logarithm is finite.
ERROR_FLOOR = 1e-16


class LearnedHead(NamedTuple):
    """One head: ``weight`` is its weight in the mix."""

    weight: float
    share: Array  # (d,)  t of the scaling
    w: Array  # (d,) or (d, r), in the units of the scaled columns
    ridge: float


class HeadSearch(NamedTuple):
    """The history of learning the heads."""

    value: float  # the criterion of the mix, in the units of y
    evaluations: int
    path: Array  # (evaluations,)  the criterion at every evaluation, on the rows evaluated
    interrupted: bool

    def __str__(self) -> str:
        summary = f"criterion {self.value:.6g} after {self.evaluations} evaluations"
        return summary + "; interrupted: this is the best so far" * self.interrupted


class Heads(NamedTuple):
    """The result of ``learn_heads``."""

    heads: tuple[LearnedHead, ...]
    scaling: Scaling
    answer: Array  # (n, P)  leave-one-out predictions
    score: float  # of these predictions: R², or minus the log-loss
    search: HeadSearch


# Called at every evaluation with its number, the criterion, and the share of the planned work that is done.
Progress = Callable[[int, float, float], None]


@dataclass(eq=False)
class HeadSearchLog:
    """Every evaluation of all descents, and the share of the planned work that is done."""

    progress: Progress | None
    planned: float = 1.0  # rows evaluated by all iterations of all descents, if none ends early
    path: list[float] = field(default_factory=list)
    before: float = 0.0  # the part of them in finished descents

    def add(self, value: float, rows: float) -> None:
        """Record an evaluation of a descent that has evaluated so many rows."""
        self.path.append(value)
        if self.progress is not None:
            self.progress(len(self.path), value, min((self.before + rows) / self.planned, 1.0))


def learn_heads(X: Array, y: Array, *, seed: int = 0, progress: Progress | None = None, **options: Any) -> Heads:
    """Learn scaling, metric, bandwidth and degree of every head, and their mix; ``options`` as ``Objective.of``.

    *Cost*: some hundred evaluations of O(min(n, 2,000)·n·d²), and one of O(n²·d²) per head.
    """
    first = Objective.of(X, y, **options)
    log = HeadSearchLog(progress, _planned_rows(first))
    scaling = Scaling.of(first.key, first.counts)
    heads: list[LearnedHead] = []
    answers: list[Array] = []
    interrupted = False
    try:
        for t, metrics in SCALINGS:
            share = np.full(X.shape[1], t)
            objective = replace(first, key=scaling(first.key, share))
            for end in _descents(objective, metrics, seed, log):
                answers.append(first.loss.from_units_of_y(objective(end.w, end.ridge).answer))
                heads.append(LearnedHead(0.0, share, end.w, end.ridge))
    except KeyboardInterrupt:
        if not heads:
            raise
        interrupted = True
    return mix_heads(first, heads, answers, scaling, log.path, interrupted)


def mix_heads(
    objective: Objective,
    heads: Sequence[LearnedHead],
    answers: Sequence[Array],
    scaling: Scaling,
    path: Sequence[float],
    interrupted: bool,
) -> Heads:
    """The heads with their weights in the mix, from leave-one-out predictions of the rows of an objective in memory."""
    loss, stacked = objective.loss, np.stack(answers[: len(heads)])
    weights = loss.mix(stacked, objective.counts)
    answer = np.tensordot(weights, stacked, 1)
    value = objective.in_units_of_y(loss(answer, objective.rows, objective.counts).value)
    used = tuple(head._replace(weight=float(c)) for head, c in zip(heads, weights, strict=True) if c > 0.0)
    answer = loss.in_units_of_y(answer)
    return Heads(
        used, scaling, answer, objective.score(answer), HeadSearch(value, len(path), np.array(path), interrupted)
    )


def _planned_rows(objective: Objective) -> float:
    """Rows evaluated by all iterations of all descents, if none ends early."""
    n, full = len(objective.rows), _supports_full(objective, int((objective.feature_scale > 0.0).sum()))
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
    full_metric = _supports_full(objective, space.size)
    found = [by_feature] if not full_metric or "feature" in metrics else []
    if full_metric and "full" in metrics:
        full, parameters = space.as_full(by_feature.parameters)
        found.append(descend(some, full, parameters, by_feature.ridge, FULL_ITERATIONS))
    if n <= DESCENT_ROWS:
        return found
    return [descend(most, end.space, end.parameters, end.ridge, FINAL_ITERATIONS) for end in found]


def _supports_full(objective: Objective, width: int) -> bool:
    """Whether there are enough rows for a full matrix of so many features."""
    return width > 1 and ROWS_PER_PARAMETER * width**2 <= objective.size


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
