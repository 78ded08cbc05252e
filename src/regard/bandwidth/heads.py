"""Heads: several attentions over the same rows, each with its own scaling and metric, mixed by leave-one-out.

No single scaling of the columns and no single metric wins everywhere, and the best by leave-one-out on a few hundred
rows is often the luckiest. So the finalists all stay: one head for each scaling, with one w per feature and with a
full matrix, every one a local line whose ridge is learned with it. Their answers are mixed by weights on the simplex
that make the left-out answers best, held a little towards equal shares (docs/decisions/0007).

With many rows the search looks at a batch of rows as queries, against all rows as keys: a few hundred to choose
where to start, two thousand to walk down, eight thousand for the last steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from regard.bandwidth.objective import Objective
from regard.bandwidth.scaling import Scaling
from regard.bandwidth.search import RIDGES, sharpest
from regard.bandwidth.shapes import Shape, spreads
from regard.bandwidth.walks import Point
from regard.core.arrays import Array

# Shares of the plain standard score in the scalings tried, and the metrics each keeps as heads.
SCALINGS = ((1.0, ("full",)), (0.5, ("feature", "full")), (0.0, ("feature",)))
# (w·spread, λ) where walks start.
STARTS = ((1.0, 0.1), (2.0, 0.01))
# Rows looked at while choosing a start, while walking and at the end, and iterations, where rows are many.
FEW, SOME, MOST = 500, 2000, 8000
FEW_STEPS, STEPS, FULL_STEPS, LAST_STEPS = 12, 40, 80, 15
# A walk ends when a step improves the logarithm of the criterion by less: where rows are many, and where they are few.
ENOUGH, LITTLE = 3e-4, 1e-7
# Rows, repetitions counted, that a full matrix must have for each of its numbers; with fewer one w per feature stands
# in for it (docs/decisions/0020).
ROWS_PER_PARAMETER = 4.0
# Price of turning away from the features' own axes, over the number of rows looked at.
TURN_PRICE = 30.0
# Share of its attention that a row may lose while walking.
ROUGH = 1e-6
# Squared errors below this, relative to the variance, are all the same to the search.
FINEST = 1e-16


class LearnedHead(NamedTuple):
    """One attention: ``weight`` is its share in the mix."""

    weight: float
    share: Array  # (d,)  t of the scaling
    w: Array  # (d,) or (d, r), in the units of the scaled columns
    ridge: float


class HeadSearch(NamedTuple):
    """What happened while the heads were learned."""

    value: float  # the criterion of the mix, in the units of y
    evaluations: int
    path: Array  # (evaluations,)  the criterion at every evaluation, on the rows looked at
    interrupted: bool

    def __str__(self) -> str:
        told = f"criterion {self.value:.6g} after {self.evaluations} evaluations"
        return told + "; interrupted: the best so far" * self.interrupted


class Heads(NamedTuple):
    """What ``learn_heads`` found."""

    heads: tuple[LearnedHead, ...]
    scaling: Scaling
    answer: Array  # (n, P)  every row as the others answer it
    score: float  # of these answers: R², or minus the log-loss
    search: HeadSearch


# Called at every evaluation with its number, the criterion, and the share of the planned work that is done.
Progress = Callable[[int, float, float], None]


@dataclass(eq=False)
class HeadTrail:
    """Every evaluation of all walks, and how much of the work they are."""

    progress: Progress | None
    planned: float = 1.0  # rows looked at by all iterations of all walks, if none ends early
    path: list[float] = field(default_factory=list)
    before: float = 0.0  # of it, in walks that are over

    def add(self, value: float, rows: float) -> None:
        """One more evaluation, of a descent that has evaluated so many rows."""
        self.path.append(value)
        if self.progress is not None:
            self.progress(len(self.path), value, min((self.before + rows) / self.planned, 1.0))


def learn_heads(X: Array, y: Array, *, seed: int = 0, progress: Progress | None = None, **options: Any) -> Heads:
    """Learn scaling, metric, bandwidth and degree of every head, and their mix; ``options`` as ``Objective.of``.

    *Cost*: some hundred evaluations of O(min(n, 2,000)·n·d²), and one of O(n²·d²) per head.
    """
    first = Objective.of(X, y, **options)
    trail = HeadTrail(progress, _planned(first))
    scaling = Scaling.of(first.key, first.counts)
    heads: list[LearnedHead] = []
    answers: list[Array] = []
    interrupted = False
    try:
        for t, metrics in SCALINGS:
            share = np.full(X.shape[1], t)
            objective = replace(first, key=scaling(first.key, share))
            for end in _walks(objective, metrics, seed, trail):
                answers.append(first.loss.from_units_of_y(objective(end.w, end.ridge).answer))
                heads.append(LearnedHead(0.0, share, end.w, end.ridge))
    except KeyboardInterrupt:
        if not heads:
            raise
        interrupted = True
    return mixed(first, heads, answers, scaling, trail.path, interrupted)


def mixed(
    objective: Objective,
    heads: Sequence[LearnedHead],
    answers: Sequence[Array],
    scaling: Scaling,
    path: Sequence[float],
    interrupted: bool,
) -> Heads:
    """The heads with their shares in the mix, by their left-out answers to the rows of an objective in memory."""
    loss, stacked = objective.loss, np.stack(answers[: len(heads)])
    weights = loss.mix(stacked, objective.counts)
    answer = np.tensordot(weights, stacked, 1)
    value = objective.in_units_of_y(loss(answer, objective.rows, objective.counts).value)
    kept = tuple(head._replace(weight=float(c)) for head, c in zip(heads, weights, strict=True) if c > 0.0)
    answer = loss.in_units_of_y(answer)
    return Heads(
        kept, scaling, answer, objective.score(answer), HeadSearch(value, len(path), np.array(path), interrupted)
    )


def _planned(objective: Objective) -> float:
    """Rows looked at by all iterations of all walks."""
    n, full = len(objective.rows), _carries_full(objective, int((objective.spread > 0.0).sum()))
    few, some, most = (min(n, size) if n > SOME else n for size in (FEW, SOME, MOST))
    start = len(STARTS) * FEW_STEPS * few + STEPS * some
    last = LAST_STEPS * most * (n > SOME)
    return float(
        sum(start + (full and "full" in metrics) * FULL_STEPS * some + len(metrics) * last for _, metrics in SCALINGS)
    )


def _walks(objective: Objective, metrics: tuple[str, ...], seed: int, trail: HeadTrail) -> list[Point]:
    """The best w per feature, and the best full matrix from there, as far as ``metrics`` asks for them."""
    n = len(objective.rows)
    rng = np.random.default_rng(seed)
    few = some = most = replace(objective, tol=ROUGH)
    if n > SOME:
        order, rough = rng.permutation(n), replace(most, rough=objective.degree > 0)
        few, some, most = (rough.looking_at(np.sort(order[:size])) for size in (FEW, SOME, MOST))
    shape = Shape.of("feature", spreads(objective.key, objective.counts))
    if not shape.size:
        return [Point(0.0, shape, np.zeros(0), RIDGES[1])]
    walk = partial(walk_head, trail=trail, gain=LITTLE if n <= SOME else ENOUGH)
    starts = [walk(few, shape, shape.start(level), ridge, FEW_STEPS) for level, ridge in STARTS]
    best = min(starts, key=lambda end: end.value)
    walked = walk(some, shape, best.parameters, best.ridge, STEPS)
    carried = _carries_full(objective, shape.size)
    found = [walked] if not carried or "feature" in metrics else []
    if carried and "full" in metrics:
        full, parameters = shape.turned(walked.parameters)
        found.append(walk(some, full, parameters, walked.ridge, FULL_STEPS))
    if n <= SOME:
        return found
    return [walk(most, end.shape, end.parameters, end.ridge, LAST_STEPS) for end in found]


def _carries_full(objective: Objective, width: int) -> bool:
    """Whether there are rows enough for a matrix of so many features."""
    return width > 1 and ROWS_PER_PARAMETER * width**2 <= objective.size


def walk_head(
    objective: Objective, shape: Shape, start: Array, ridge: float, steps: int, trail: HeadTrail, gain: float
) -> Point:
    """Down the logarithm of the criterion, with a price on turning, until a step brings less than ``gain``."""
    turns = slice(shape.count, shape.size)
    learned, rows, begun = objective.degree > 0, len(objective.rows), len(trail.path)
    price = TURN_PRICE / rows

    def at(x: Array) -> tuple[float, Array]:
        parameters = x[: shape.size]
        found = objective(shape.w(parameters), float(np.exp(x[-1])) if learned else 0.0, gradient=True)
        trail.add(objective.in_units_of_y(found.value), rows * min(len(trail.path) - begun + 1, steps))
        assert found.w is not None
        # What is learned to perfection may be rounded to less than nothing.
        level = max(found.value, 0.0) + FINEST
        slope = np.zeros(len(x))
        slope[: shape.size] = shape.pull(parameters, found.w) / level
        slope[shape.size :] = found.log_ridge / level
        slope[turns] += 2.0 * price * x[turns]
        return float(np.log(level) + price * (x[turns] ** 2).sum()), slope

    bounds = shape.bounds(sharpest(objective)) + [tuple(np.log(RIDGES))] * learned
    x = np.r_[start, np.log(ridge)] if learned else start
    options = {"maxiter": steps, "maxcor": 20, "ftol": gain}
    found = minimize(at, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    trail.before += rows * steps
    return Point(float(found.fun), shape, found.x[: shape.size], float(np.exp(found.x[-1])) if learned else 0.0)
