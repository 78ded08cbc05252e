"""Least squares by Gauss–Newton steps with Levenberg's and Marquardt's damping, within bounds.

Where residuals stay large, Gauss–Newton's curvature lacks their second derivatives, and convergence is linear and slow.
As in NL2SOL (Dennis, Gay and Welsch, 1981) a secant update approximates this part from the changes of the gradient, and
each step uses the model, with or without it, that predicted the last gain better.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from regard.core.arrays import Array

# Damping of the first step, and its smallest value.
FIRST_DAMPING = 0.1
MIN_DAMPING = 1e-6
# Above this damping no step can be found.
MAX_DAMPING = 1e8
# Fraction of the largest curvature that is added to that of every parameter: flat directions move little.
CURVATURE_FLOOR = 0.01
# Largest change of a parameter in one step.
MAX_STEP = 1.5
# Factors on the damping after a step that gained as predicted, less than predicted, and nothing.
DAMPING_AFTER_GOOD_STEP = 0.2
DAMPING_AFTER_POOR_STEP = 3.0
DAMPING_AFTER_FAILED_STEP = 6.0
# Steps in a row with a small gain after which a descent ends: plateaus are common.
MAX_SMALL_STEPS = 2
# Ratios of actual to predicted gain from which a step is good, and up to which it is poor.
GOOD_GAIN_RATIO = 0.75
POOR_GAIN_RATIO = 0.25
# Cosine between a step and the change of the gradient above which they update the curvature.
MIN_COSINE = 1e-8


class Curved(NamedTuple):
    """A function at one point, with the quadratic that approximates it there."""

    value: float
    gradient: Array  # (k,)
    curvature: Array  # (k, k)  positive semidefinite

    @classmethod
    def flat(cls, value: float, size: int) -> Curved:
        """The value alone, of a function of so many parameters."""
        return cls(value, np.zeros(size), np.zeros((size, size)))


def minimise(
    at: Callable[[Array, bool], Curved], x: Array, low: Array, high: Array, *, evaluations: int, gain: float
) -> tuple[Array, float]:
    """A minimum near x (k,) within bounds, and the value there.

    ``at`` gets a point and whether the quadratic is used: after the last of ``evaluations`` evaluations it is not. A
    descent also ends when the predicted gain of a step is below ``gain``, and when two steps in a row gained less.

    >>> def at(x, derivatives):
    ...     return Curved(float((x[0] - 3.0) ** 2), 2.0 * (x - 3.0), np.array([[2.0]]))
    >>> minimise(at, np.zeros(1), np.full(1, -9.0), np.full(1, 9.0), evaluations=20, gain=1e-12)[0].round(3).tolist()
    [3.0]
    """
    x = np.clip(x, low, high)
    here, damping, left, small = at(x, True), FIRST_DAMPING, evaluations - 1, 0
    second_order, use_second_order = np.zeros_like(here.curvature), False
    while left > 0:
        # A parameter at a bound that it would cross stays there.
        free = ~((x <= low) & (here.gradient > 0.0)) & ~((x >= high) & (here.gradient < 0.0))
        if not free.any():
            break
        gradient, plain = here.gradient[free], here.curvature[np.ix_(free, free)]
        whole = plain + second_order[np.ix_(free, free)]
        diagonal = np.diagonal(plain)
        unit = diagonal + CURVATURE_FLOOR * diagonal.max() + np.finfo(np.float64).tiny
        model = whole if use_second_order and _is_positive(whole + np.diag(damping * unit)) else plain
        step = -np.linalg.solve(model + np.diag(damping * unit), gradient)
        step *= min(1.0, MAX_STEP / max(float(np.abs(step).max()), MAX_STEP))
        there = x.copy()
        there[free] += step
        there = np.clip(there, low, high)
        step = (there - x)[free]
        by_plain, by_whole = (-float(gradient @ step + 0.5 * step @ matrix @ step) for matrix in (plain, whole))
        predicted = by_whole if model is whole else by_plain
        if not predicted > gain or damping > MAX_DAMPING:
            break
        left -= 1
        found = at(there, left > 0)
        gained = here.value - found.value
        if left == 0:
            return (there, found.value) if gained > 0.0 else (x, here.value)
        use_second_order = abs(by_whole - gained) < abs(by_plain - gained)
        second_order = _secant_update(second_order, there - x, found.gradient - here.gradient, found.curvature)
        if not gained > 0.0:
            damping *= DAMPING_AFTER_FAILED_STEP
            continue
        if gained > GOOD_GAIN_RATIO * predicted:
            damping = max(DAMPING_AFTER_GOOD_STEP * damping, MIN_DAMPING)
        elif gained < POOR_GAIN_RATIO * predicted:
            damping *= DAMPING_AFTER_POOR_STEP
        x, here = there, found
        small = small + 1 if gained < gain else 0
        if small == MAX_SMALL_STEPS:
            break
    return x, here.value


def _is_positive(matrix: Array) -> bool:
    """Whether a symmetric matrix is positive definite."""
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _secant_update(second_order: Array, step: Array, change: Array, curvature: Array) -> Array:
    """The part of the curvature that Gauss–Newton's lacks, such that the whole maps the step to the gradient's change.

    Of all symmetric matrices that do so it is the one nearest to the last, which is first reduced to the size that the
    step has shown.
    """
    along = float(change @ step)
    if not along > MIN_COSINE * float(np.linalg.norm(change) * np.linalg.norm(step)):
        return second_order
    lacking = change - curvature @ step
    size = abs(float(step @ second_order @ step))
    if size > 0.0:
        second_order = min(1.0, abs(float(step @ lacking)) / size) * second_order
    rest = lacking - second_order @ step
    both = np.outer(rest, change)
    return np.asarray(second_order + (both + both.T) / along - float(rest @ step) / along**2 * np.outer(change, change))
