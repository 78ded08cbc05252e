"""The search: the w, and the ridge λ, where the objective is smallest.

A coarse scan of one common scale finds the valleys and L-BFGS on logarithms walks down from the best of them. Where
rows are few, and valleys many, short walks from scattered places and from the best so far with one feature pushed away
look for a deeper one. Features that run to the widest bandwidth are ignored for good (w = 0) if that is no worse, and
the walk is repeated without them. Everything is deterministic, and Ctrl-C keeps the best so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from regard.bandwidth.objective import Evaluation, Objective
from regard.bandwidth.shapes import Shape, spreads
from regard.kernels import KERNELS

Array = NDArray[Any]
Progress = Callable[[int, float], None]
_At = Callable[[Array, bool], tuple[float, Array]]
_Walk = Callable[[_At, Array, list[tuple[float, float]]], tuple[Array, float]]

# Bounds of λ (below, a line; above, a mean), and where its search starts.
RIDGES = (1e-6, 1e3)
START_RIDGE = 0.1
# w·spread below which a feature may as well be ignored.
NEARLY_NONE = 0.1
# What stands for an infinite criterion, so that a line search can step back from it.
HUGE = 1e100
# Factor between scales of the coarse scan, and how many walks start from its valleys.
STEP = 1.5
WALKS = 2
# The same where one parameter meets a criterion with jumps: keys that enter or leave, lines that lose their footing.
FINE_STEP = 1.03
STAIR_STEP = 1.01
# Scattered places looked at per parameter, how many of them are walked from, and for how long.
SCATTERED = 16
SHORT_WALKS = 4
LONG = {"ftol": 1e-13, "gtol": 1e-9, "maxiter": 200, "maxls": 30}
SHORT = {"ftol": 1e-3, "gtol": 1e-9, "maxiter": 10, "maxls": 20}
# How far (in log w) a feature is pushed from the best so far, beside being nearly ignored; and how often.
PUSHES = (-1.5, 1.5)
PUSH_ROUNDS = 2
# Features up to which that is affordable.
FEW_FEATURES = 5
# Features whose squares neither overflow nor vanish.
SPREADS = (1e-140, 1e140)
# Rows looked at by the scan when there are more; with more, there is also no scattered search.
SCAN_ROWS = 512


class Search(NamedTuple):
    """What was found, and what happened on the way."""

    w: Array  # in the units of X: (), (d,) or (d, r)
    ridge: float
    value: float  # the criterion, in the units of y
    answer: Array  # (n, P)  every row as the others answer it
    evaluations: int
    path: Array  # (evaluations,)  the criterion at every evaluation
    places: Array  # (evaluations, size of w)  where it was evaluated
    smoothed_out: Array  # (d,) boolean: features that are better ignored
    edge: bool  # some bandwidth is as narrow as the search allows
    flat: bool  # the criterion hardly depends on w
    minima: tuple[float, ...]  # the criterion in every valley walked down, best first
    empty: int  # rows with nobody in reach
    interrupted: bool
    looked_at: int | None = None  # how many rows the search looked at; None: all

    def __str__(self) -> str:
        notes = []
        if self.smoothed_out.any():
            notes.append(f"smoothed out: features {', '.join(map(str, np.flatnonzero(self.smoothed_out)))}")
        if self.edge:
            notes.append("a bandwidth is as narrow as the search allows")
        if self.flat:
            notes.append("the criterion hardly depends on the bandwidth")
        if len(self.minima) > 1:
            notes.append(f"{len(self.minima)} valleys, the next best at {self.minima[1]:.6g}")
        if self.empty:
            notes.append(f"{self.empty} rows had nobody in reach and took the nearest other row")
        if self.looked_at is not None:
            notes.append(f"searched by looking at {self.looked_at:,} of {len(self.answer):,} rows")
        if self.interrupted:
            notes.append("interrupted: the best so far")
        return "; ".join([f"criterion {self.value:.6g} after {self.evaluations} evaluations", *notes])


class _Point(NamedTuple):
    """One place of the search: parameters of a shape, and log λ behind them where it is learned."""

    value: float
    shape: Shape
    parameters: Array
    ridge: float

    @property
    def w(self) -> Array:
        return self.shape.w(self.parameters)


@dataclass(eq=False)
class _Trail:
    """Every evaluation of one search, and the best of those over all rows."""

    objective: Objective
    ridge: float | None  # None: learned
    progress: Progress | None
    path: list[float] = field(default_factory=list)
    places: list[Array] = field(default_factory=list)
    best: _Point | None = None

    def __call__(
        self, shape: Shape, parameters: Array, ridge: float, *, gradient: bool = False, rows: Array | None = None
    ) -> Evaluation:
        objective = self.objective if rows is None else self.objective.looking_at(rows)
        w = shape.w(parameters)
        found = objective(w, ridge, gradient=gradient)
        self.places.append(w.ravel())
        self.path.append(self.objective.in_units_of_y(found.value))
        if rows is None and (self.best is None or found.value < self.best.value):
            self.best = _Point(found.value, shape, parameters.copy(), ridge)
        if self.progress is not None:
            self.progress(len(self.path), self.path[-1])
        return found


def learn(
    objective: Objective, metric: str = "feature", *, ridge: float | None = 0.0, progress: Progress | None = None
) -> Search:
    """The w of least criterion; ``ridge`` is a fixed λ, or None to learn it too.

    *Cost*: some 30 to 100 evaluations of the objective, each O(n²·d).
    """
    trail = _Trail(objective, ridge, progress)
    shape = Shape.of(metric, spreads(objective.key, objective.counts))
    _check_spreads(shape.spread[shape.active])
    ends: list[_Point] = []
    flat, interrupted = not shape.size, False
    try:
        valleys, flat = _valleys(trail, shape)
        first = START_RIDGE if ridge is None else ridge
        ends.extend(_descend(trail, shape, shape.start(level), first) for level in valleys)
        _look_further(trail, shape, first)
        _ignore_the_widest(trail)
    except KeyboardInterrupt:
        if trail.best is None:
            raise
        interrupted = True
    return _told(trail, ends, flat, interrupted)


def sharpest(objective: Objective) -> float:
    """The narrowest bandwidth looked at is the spread of a feature over this: a tenth of the rows' mean spacing."""
    return float(np.clip(10.0 * objective.size, 10.0, 1e6))


def _valleys(trail: _Trail, shape: Shape) -> tuple[list[float], bool]:
    """Common scales to start from, best first, and whether the objective hardly depends on the scale."""
    objective = trail.objective
    rows = None
    if len(objective.rows) > SCAN_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(len(objective.rows), SCAN_ROWS, replace=False))
    width = max(int(shape.active.sum()), 1)
    top = min(10.0 * objective.size ** (1.0 / width), sharpest(objective))
    step = _scan_step(trail, shape)
    levels = np.geomspace(0.05, top, int(np.ceil(np.log(top / 0.05) / np.log(step))) + 1)
    ridge = START_RIDGE if trail.ridge is None else trail.ridge
    values = np.array([trail(shape, shape.start(level), ridge, rows=rows).value for level in levels])
    walls = np.r_[np.inf, values, np.inf]
    lowest = np.flatnonzero((values <= walls[:-2]) & (values < walls[2:]))
    order = lowest[np.argsort(values[lowest], kind="stable")][:WALKS]
    known = values[np.isfinite(values)]
    return [float(levels[i]) for i in order], bool(known.size and np.ptp(known) <= 1e-9 * np.abs(known).max())


def _scan_step(trail: _Trail, shape: Shape) -> float:
    """Factor between scales: fine where there is one parameter, few rows, and jumps to be found."""
    if shape.size != 1 or len(trail.objective.rows) > SCAN_ROWS:
        return STEP
    kernel, bare_line = KERNELS[trail.objective.kernel], trail.objective.degree and trail.ridge == 0.0
    return STAIR_STEP if kernel.staircase else FINE_STEP if kernel.compact or bare_line else STEP


def _look_further(trail: _Trail, shape: Shape, ridge: float) -> None:
    """Short walks from scattered places, and from the best so far with one feature pushed away."""
    objective = trail.objective
    few = 0 < shape.size <= FEW_FEATURES and len(objective.rows) <= SCAN_ROWS
    if not few or shape.metric == "full" or objective.kernel == "boxcar":
        return
    low, high = np.log(0.03), np.log(min(10.0 * objective.size ** (1.0 / shape.size), sharpest(objective)))
    places = np.random.default_rng([1, shape.size]).uniform(low, high, (SCATTERED * shape.size, shape.size))
    values = [trail(shape, place, ridge).value for place in places]
    ends = [_descend(trail, shape, places[i], ridge, _briefly) for i in np.argsort(values, kind="stable")[:SHORT_WALKS]]
    end = min(ends, key=lambda end: end.value)
    _descend(trail, shape, end.parameters, end.ridge)
    for _ in range(PUSH_ROUNDS):
        best = _best(trail)
        for i in range(shape.size):
            for to in (low - best.parameters[i], *PUSHES):
                pushed = best.parameters + to * (np.arange(shape.size) == i)
                _descend(trail, shape, pushed, best.ridge, _briefly)
        better = _best(trail)
        if not better.value < best.value - 1e-6 * abs(best.value):
            return
        _descend(trail, shape, better.parameters, better.ridge)


def _best(trail: _Trail) -> _Point:
    assert trail.best is not None
    return trail.best


def _descend(trail: _Trail, shape: Shape, start: Array, ridge: float, walk: _Walk | None = None) -> _Point:
    """Down to a minimum near ``start``."""
    objective, learned = trail.objective, trail.ridge is None
    bounds = shape.bounds(sharpest(objective)) + [tuple(np.log(RIDGES))] * learned
    x = np.r_[start, np.log(ridge)] if learned else start
    if not bounds:
        return _Point(trail(shape, x, ridge).value, shape, x, ridge)
    walk = walk or (_by_steps if objective.kernel == "boxcar" else _by_gradient)

    def at(x: Array, gradient: bool) -> tuple[float, Array]:
        parameters, level = x[: shape.size], float(np.exp(x[-1])) if learned else ridge
        found = trail(shape, parameters, level, gradient=gradient)
        slope = np.zeros(len(x))
        if gradient and found.w is not None and np.isfinite(found.value):
            slope[: shape.size] = shape.pull(parameters, found.w)
            slope[shape.size :] = found.log_ridge
        return float(np.clip(found.value, -HUGE, HUGE)), slope

    x, value = walk(at, np.clip(x, *np.array(bounds).T), bounds)
    return _Point(value, shape, x[: shape.size], float(np.exp(x[-1])) if learned else ridge)


def _by_gradient(
    at: _At, x: Array, bounds: list[tuple[float, float]], options: dict[str, float] = LONG
) -> tuple[Array, float]:
    found = minimize(lambda x: at(x, True), x, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return found.x, float(found.fun)


def _briefly(at: _At, x: Array, bounds: list[tuple[float, float]]) -> tuple[Array, float]:
    return _by_gradient(at, x, bounds, SHORT)


def _by_steps(at: _At, x: Array, bounds: list[tuple[float, float]]) -> tuple[Array, float]:
    """Where the objective is a staircase: along one parameter after another, with shorter and shorter steps."""
    low, high = np.array(bounds).T
    value, step = at(x, False)[0], np.log(STEP)
    while step > 1e-3:
        moved = False
        for i in range(len(x)):
            for sign in (1.0, -1.0):
                trial = x.copy()
                trial[i] = np.clip(trial[i] + sign * step, low[i], high[i])
                found = at(trial, False)[0]
                if found < value:
                    x, value, moved = trial, found, True
                    break
        step = step if moved else 0.5 * step
    return x, value


def _ignore_the_widest(trail: _Trail) -> None:
    """Features with a bandwidth of ten spreads or more may be better off without any influence."""
    best = trail.best
    if best is None or best.shape.metric == "full" or not best.shape.size:
        return
    wide = best.shape.active & (np.broadcast_to(best.w * best.shape.spread, best.shape.active.shape) < NEARLY_NONE)
    if not wide.any():
        return
    shape = best.shape.without(wide)
    kept = best.parameters if best.shape.metric == "scalar" else best.parameters[~wide[best.shape.active]]
    if shape.size:
        point = _descend(trail, shape, kept, best.ridge)
    else:
        point = _Point(trail(shape, kept[:0], best.ridge).value, shape, kept[:0], best.ridge)
    # A tie goes to the simpler answer.
    if point.value <= best.value + 1e-12 * abs(best.value):
        trail.best = point


def _check_spreads(spread: Array) -> None:
    if ((spread < SPREADS[0]) | (spread > SPREADS[1])).any():
        raise ValueError(
            f"features of X must vary by {SPREADS[0]:g} to {SPREADS[1]:g} for a bandwidth to be learned, "
            f"got {spread.min():g} to {spread.max():g}; rescale X"
        )


def _told(trail: _Trail, ends: list[_Point], flat: bool, interrupted: bool) -> Search:
    objective, best = trail.objective, trail.best
    assert best is not None
    final = objective(best.w, best.ridge)
    values = sorted(objective.in_units_of_y(end.value) for end in ends)
    minima = [value for i, value in enumerate(values) if i == 0 or value > values[i - 1] + 1e-6 * abs(values[i - 1])]
    top = np.log(sharpest(objective))
    return Search(
        w=best.w,
        ridge=best.ridge,
        value=objective.in_units_of_y(final.value),
        answer=final.answer,
        evaluations=len(trail.path),
        path=np.array(trail.path),
        places=np.array(trail.places),
        smoothed_out=(best.shape.spread > 0.0) & ~best.shape.active,
        edge=best.shape.metric != "full" and bool((best.parameters >= top - 1e-6).any()),
        flat=flat,
        minima=tuple(minima),
        empty=final.empty,
        interrupted=interrupted,
    )
