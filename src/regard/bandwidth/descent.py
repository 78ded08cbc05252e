"""Descents: from one point of a search down to the nearest minimum of the objective.

A point is a vector of parameters (see ``parametrization``), all of them logarithms, followed by log λ if λ is learned.
One smooth parameter is minimised by the secant method, several by L-BFGS, and a step function by pattern search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from regard.bandwidth.objective import Evaluation, Objective
from regard.bandwidth.parametrization import Parametrization
from regard.core.arrays import Array
from regard.core.kernels import KERNELS

Progress = Callable[[int, float], None]
CriterionAt = Callable[[Array, bool], tuple[float, Array]]
Method = Callable[[CriterionAt, Array, list[tuple[float, float]]], tuple[Array, float]]

# Bounds of λ: below them a fit is a plain line, above them a mean.
RIDGE_BOUNDS = (1e-6, 1e3)
# Where the search for λ starts.
INITIAL_RIDGE = 0.1
# Replaces an infinite criterion, so that a line search can step back from it.
INFINITE_CRITERION = 1e100
# Options of L-BFGS: down to the minimum, …
FULL_DESCENT = {"ftol": 1e-13, "gtol": 1e-9, "maxiter": 200, "maxls": 30}
# … where the criterion jumps and a line search could make tiny steps for ever, …
DESCENT_ACROSS_JUMPS = FULL_DESCENT | {"maxfun": 120}
# … and a few iterations only.
SHORT_DESCENT = {"ftol": 1e-3, "gtol": 1e-9, "maxiter": 10, "maxls": 20}
# First step of a pattern search, in log w.
PATTERN_STEP = 0.4
# First step of a pattern search near a minimum.
SHORT_PATTERN_STEP = 0.1
# Step at which a pattern search ends.
MIN_PATTERN_STEP = 1e-3
# Relative improvement below which a pattern search halves its step.
MIN_IMPROVEMENT = 1e-6
# The secant method ends when the next step would improve the criterion by less than this share.
MIN_SECANT_GAIN = 1e-13
# Largest step of the secant method, in log w.
MAX_SECANT_STEP = 1.0
MAX_SECANT_ITERATIONS = 40


class Point(NamedTuple):
    """One point of a search: the parameters of w, λ, and the criterion there."""

    value: float
    space: Parametrization
    parameters: Array
    ridge: float

    @property
    def w(self) -> Array:
        return self.space.w(self.parameters)


@dataclass(eq=False)
class SearchLog:
    """Every evaluation of one search, and the best of those over all rows of its objective."""

    objective: Objective
    ridge: float | None  # None: learned
    progress: Progress | None
    path: list[float] = field(default_factory=list)
    places: list[Array] = field(default_factory=list)
    best: Point | None = None
    found: Evaluation | None = None  # the evaluation at the best point; None if it must be evaluated again

    def __call__(
        self,
        space: Parametrization,
        parameters: Array,
        ridge: float,
        *,
        gradient: bool = False,
        some: Objective | None = None,
    ) -> Evaluation:
        """Evaluate the objective, or ``some`` with fewer rows."""
        objective = self.objective if some is None else some
        w = space.w(parameters)
        found = objective(w, ridge, gradient=gradient)
        self.places.append(w.ravel())
        self.path.append(self.objective.in_units_of_y(found.value))
        if some is None and (self.best is None or found.value < self.best.value):
            self.best, self.found = Point(found.value, space, parameters.copy(), ridge), found
        if self.progress is not None:
            self.progress(len(self.path), self.path[-1])
        return found

    @property
    def lowest(self) -> Point:
        assert self.best is not None
        return self.best

    @property
    def first_ridge(self) -> float:
        return INITIAL_RIDGE if self.ridge is None else self.ridge


def max_scaled_w(objective: Objective) -> float:
    """Largest w·scale of a search: the smallest bandwidth is about a tenth of the mean spacing of the rows."""
    return float(np.clip(10.0 * objective.size, 10.0, 1e6))


def parameter_bounds(log: SearchLog, space: Parametrization) -> list[tuple[float, float]]:
    """Lower and upper bound of every parameter, and of log λ if it is learned."""
    low, high = np.log(RIDGE_BOUNDS)
    return space.bounds(max_scaled_w(log.objective)) + [(float(low), float(high))] * (log.ridge is None)


def has_jumps(log: SearchLog) -> bool:
    """Whether the criterion jumps or has kinks: keys enter or leave the reach, or lines become singular."""
    objective = log.objective
    return KERNELS[objective.kernel].compact or (objective.degree > 0 and log.ridge == 0.0)


def descend(log: SearchLog, space: Parametrization, start: Array, ridge: float, method: Method | None = None) -> Point:
    """A minimum near ``start``, parameters of w; λ starts at ``ridge`` if it is learned."""
    learned, bounds = log.ridge is None, parameter_bounds(log, space)
    x = np.r_[start, np.log(ridge)] if learned else start
    if not bounds:
        return Point(log(space, x, ridge).value, space, x, ridge)

    def at(x: Array, gradient: bool) -> tuple[float, Array]:
        parameters, level = x[: space.size], float(np.exp(x[-1])) if learned else ridge
        found = log(space, parameters, level, gradient=gradient)
        slope = np.zeros(len(x))
        if gradient and found.w is not None and np.isfinite(found.value):
            slope[: space.size] = space.gradient(parameters, found.w)
            slope[space.size :] = found.log_ridge
        return float(np.clip(found.value, -INFINITE_CRITERION, INFINITE_CRITERION)), slope

    method = method or _default_method(log, len(x))
    x, value = method(at, np.clip(x, *np.array(bounds).T), bounds)
    return Point(value, space, x[: space.size], float(np.exp(x[-1])) if learned else ridge)


def _default_method(log: SearchLog, size: int) -> Method:
    objective = log.objective
    if KERNELS[objective.kernel].staircase:
        return pattern_search
    if has_jumps(log):
        return lbfgs_across_jumps
    # Only plain leave-one-out is finite and smooth everywhere.
    return secant_descent if size == 1 and objective.criterion == "loo" else lbfgs


def lbfgs(
    at: CriterionAt, x: Array, bounds: list[tuple[float, float]], options: dict[str, float] = FULL_DESCENT
) -> tuple[Array, float]:
    """L-BFGS."""
    found = minimize(lambda x: at(x, True), x, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return found.x, float(found.fun)


# L-BFGS with a limit on evaluations, and with few iterations.
lbfgs_across_jumps: Method = partial(lbfgs, options=DESCENT_ACROSS_JUMPS)
short_lbfgs: Method = partial(lbfgs, options=SHORT_DESCENT)


def final_method(log: SearchLog, gain: float) -> Method:
    """A method for the last steps, which ends when the next one would gain less than a share ``gain``."""
    # Gradients of local lines are expensive with many rows: queries at the edges are summed pair by pair.
    if KERNELS[log.objective.kernel].staircase or log.objective.degree:
        return short_pattern_search
    options = {"ftol": gain, "gtol": 1e-12, "maxiter": 20, "maxls": 10}

    def method(at: CriterionAt, x: Array, bounds: list[tuple[float, float]]) -> tuple[Array, float]:
        return secant_descent(at, x, bounds, gain) if len(x) == 1 else lbfgs(at, x, bounds, options)

    return method


def secant_descent(
    at: CriterionAt, x: Array, bounds: list[tuple[float, float]], gain: float = MIN_SECANT_GAIN
) -> tuple[Array, float]:
    """The secant method for the root of the derivative by one parameter, bracketed by its sign."""
    (low, high) = bounds[0]
    here, (value, slope) = float(x[0]), at(x, True)
    best, least, bend = here, value, abs(value)
    for _ in range(MAX_SECANT_ITERATIONS):
        g = float(slope[0])
        low, high = (low, here) if g > 0.0 else (here, high)
        step = float(
            np.clip(-g / bend if bend > 0.0 else -np.sign(g) * MAX_SECANT_STEP, -MAX_SECANT_STEP, MAX_SECANT_STEP)
        )
        there = float(np.clip(here + step, low, high))
        if there in (low, high) and there not in bounds[0]:
            there = 0.5 * (low + high)
        if abs(g * (there - here)) <= gain * abs(value):
            break
        new, slope = at(np.array([there]), True)
        bend = (float(slope[0]) - g) / (there - here)
        here, value = there, new
        if value < least:
            best, least = here, value
    return np.array([best]), least


def pattern_search(
    at: CriterionAt, x: Array, bounds: list[tuple[float, float]], step: float = PATTERN_STEP
) -> tuple[Array, float]:
    """Steps along one parameter after another, halved when none improves: for a criterion without a gradient."""
    low, high = np.array(bounds).T
    value = at(x, False)[0]
    while step > MIN_PATTERN_STEP:
        moved = False
        for i in range(len(x)):
            for sign in (1.0, -1.0):
                trial = x.copy()
                trial[i] = np.clip(trial[i] + sign * step, low[i], high[i])
                found = at(trial, False)[0]
                if found < value:
                    # A tiny improvement does not count: the step would never shrink.
                    moved = moved or found < value - MIN_IMPROVEMENT * abs(value)
                    x, value = trial, found
                    break
        step = step if moved else 0.5 * step
    return x, value


# For the last steps, where gradients miss the jumps of the criterion.
short_pattern_search: Method = partial(pattern_search, step=SHORT_PATTERN_STEP)
