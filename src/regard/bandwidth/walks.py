"""Walks: from one place of a search down to the minimum of the objective near it.

A place is a vector of parameters (see ``shapes``), logarithms all of them, with log λ behind where λ is learned. One
smooth parameter is followed by secants of the slope, several by L-BFGS, a staircase by steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from regard.bandwidth.objective import Evaluation, Objective
from regard.bandwidth.shapes import Shape
from regard.core.arrays import Array
from regard.core.kernels import KERNELS

Progress = Callable[[int, float], None]
_At = Callable[[Array, bool], tuple[float, Array]]
Walk = Callable[[_At, Array, list[tuple[float, float]]], tuple[Array, float]]

# Bounds of λ (below, a line; above, a mean), and where its search starts.
RIDGES = (1e-6, 1e3)
START_RIDGE = 0.1
# What stands for an infinite criterion, so that a line search can step back from it.
HUGE = 1e100
LONG = {"ftol": 1e-13, "gtol": 1e-9, "maxiter": 200, "maxls": 30}
# Where there are jumps a line search may creep along one for ever.
ALONG_JUMPS = LONG | {"maxfun": 120}
SHORT = {"ftol": 1e-3, "gtol": 1e-9, "maxiter": 10, "maxls": 20}
# Steps along a staircase: the first, the first of an end, and the last, in log w.
FIRST_STEP, SHORT_STEP, LAST_STEP = 0.4, 0.1, 1e-3
LEAST_MOVE = 1e-6
# A secant walk ends where the next step would gain less than this share of the criterion.
LEAST_GAIN = 1e-13
LONGEST_SECANT = 1.0
SECANTS = 40


class Point(NamedTuple):
    """One place of the search: parameters of a shape, and λ."""

    value: float
    shape: Shape
    parameters: Array
    ridge: float

    @property
    def w(self) -> Array:
        return self.shape.w(self.parameters)


@dataclass(eq=False)
class Trail:
    """Every evaluation of one search, and the best of those over all its rows."""

    objective: Objective
    ridge: float | None  # None: learned
    progress: Progress | None
    path: list[float] = field(default_factory=list)
    places: list[Array] = field(default_factory=list)
    best: Point | None = None
    found: Evaluation | None = None  # what was seen at the best; None where it must be looked at again

    def __call__(
        self, shape: Shape, parameters: Array, ridge: float, *, gradient: bool = False, some: Objective | None = None
    ) -> Evaluation:
        """The objective, or ``some`` that looks at fewer rows."""
        objective = self.objective if some is None else some
        w = shape.w(parameters)
        found = objective(w, ridge, gradient=gradient)
        self.places.append(w.ravel())
        self.path.append(self.objective.in_units_of_y(found.value))
        if some is None and (self.best is None or found.value < self.best.value):
            self.best, self.found = Point(found.value, shape, parameters.copy(), ridge), found
        if self.progress is not None:
            self.progress(len(self.path), self.path[-1])
        return found

    @property
    def lowest(self) -> Point:
        assert self.best is not None
        return self.best

    @property
    def first_ridge(self) -> float:
        return START_RIDGE if self.ridge is None else self.ridge


def sharpest(objective: Objective) -> float:
    """The narrowest bandwidth looked at is the spread of a feature over this: a tenth of the rows' mean spacing."""
    return float(np.clip(10.0 * objective.size, 10.0, 1e6))


def bounds_of(trail: Trail, shape: Shape) -> list[tuple[float, float]]:
    """Lowest and highest of every number of a place."""
    low, high = np.log(RIDGES)
    return shape.bounds(sharpest(trail.objective)) + [(float(low), float(high))] * (trail.ridge is None)


def has_jumps(trail: Trail) -> bool:
    """Whether the criterion jumps or has kinks: keys that enter or leave, lines that lose their footing."""
    objective = trail.objective
    return KERNELS[objective.kernel].compact or (objective.degree > 0 and trail.ridge == 0.0)


def descend(trail: Trail, shape: Shape, start: Array, ridge: float, walk: Walk | None = None) -> Point:
    """Down to a minimum near ``start``, parameters of w; λ starts at ``ridge`` where it is learned."""
    learned, bounds = trail.ridge is None, bounds_of(trail, shape)
    x = np.r_[start, np.log(ridge)] if learned else start
    if not bounds:
        return Point(trail(shape, x, ridge).value, shape, x, ridge)

    def at(x: Array, gradient: bool) -> tuple[float, Array]:
        parameters, level = x[: shape.size], float(np.exp(x[-1])) if learned else ridge
        found = trail(shape, parameters, level, gradient=gradient)
        slope = np.zeros(len(x))
        if gradient and found.w is not None and np.isfinite(found.value):
            slope[: shape.size] = shape.pull(parameters, found.w)
            slope[shape.size :] = found.log_ridge
        return float(np.clip(found.value, -HUGE, HUGE)), slope

    walk = walk or _usual(trail, len(x))
    x, value = walk(at, np.clip(x, *np.array(bounds).T), bounds)
    return Point(value, shape, x[: shape.size], float(np.exp(x[-1])) if learned else ridge)


def _usual(trail: Trail, size: int) -> Walk:
    objective = trail.objective
    if KERNELS[objective.kernel].staircase:
        return by_steps
    if has_jumps(trail):
        return along_jumps
    # Only plain leave-one-out is finite and smooth everywhere.
    return by_secants if size == 1 and objective.criterion == "loo" else by_gradient


def by_gradient(
    at: _At, x: Array, bounds: list[tuple[float, float]], options: dict[str, float] = LONG
) -> tuple[Array, float]:
    """L-BFGS."""
    found = minimize(lambda x: at(x, True), x, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return found.x, float(found.fun)


# L-BFGS, but not for ever; and a few steps of it.
along_jumps: Walk = partial(by_gradient, options=ALONG_JUMPS)
briefly: Walk = partial(by_gradient, options=SHORT)


def closely(trail: Trail, gain: float) -> Walk:
    """A walk for the neighbourhood of a minimum that ends where the next step would gain less than a share ``gain``."""
    # Slopes of lines are dear where rows are many: those at the edges are summed pair by pair.
    if KERNELS[trail.objective.kernel].staircase or trail.objective.degree:
        return by_short_steps
    options = {"ftol": gain, "gtol": 1e-12, "maxiter": 20, "maxls": 10}

    def walk(at: _At, x: Array, bounds: list[tuple[float, float]]) -> tuple[Array, float]:
        return by_secants(at, x, bounds, gain) if len(x) == 1 else by_gradient(at, x, bounds, options)

    return walk


def by_secants(at: _At, x: Array, bounds: list[tuple[float, float]], gain: float = LEAST_GAIN) -> tuple[Array, float]:
    """One parameter, to where its slope changes sign: steps by secants of the slope, kept between two signs."""
    (low, high) = bounds[0]
    here, (value, slope) = float(x[0]), at(x, True)
    best, least, bend = here, value, abs(value)
    for _ in range(SECANTS):
        g = float(slope[0])
        low, high = (low, here) if g > 0.0 else (here, high)
        step = float(
            np.clip(-g / bend if bend > 0.0 else -np.sign(g) * LONGEST_SECANT, -LONGEST_SECANT, LONGEST_SECANT)
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


def by_steps(at: _At, x: Array, bounds: list[tuple[float, float]], step: float = FIRST_STEP) -> tuple[Array, float]:
    """Along one parameter after another, with shorter and shorter steps, where there is no slope to follow."""
    low, high = np.array(bounds).T
    value = at(x, False)[0]
    while step > LAST_STEP:
        moved = False
        for i in range(len(x)):
            for sign in (1.0, -1.0):
                trial = x.copy()
                trial[i] = np.clip(trial[i] + sign * step, low[i], high[i])
                found = at(trial, False)[0]
                if found < value:
                    # Creeping down a ramp does not count as getting anywhere.
                    moved = moved or found < value - LEAST_MOVE * abs(value)
                    x, value = trial, found
                    break
        step = step if moved else 0.5 * step
    return x, value


# The end of a walk where slopes do not tell of jumps.
by_short_steps: Walk = partial(by_steps, step=SHORT_STEP)
