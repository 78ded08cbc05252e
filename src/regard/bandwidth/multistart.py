"""Multistart: where the descents of a search start.

A coarse scan of one common scale finds the first starts. With few rows the criterion has many local minima, each from a
handful of rows that happen to predict one another well, and only a descent tells which is lowest. So descents also
start at random points, the best of them and a few others. Then, from the best minimum so far, every parameter is
scanned over its whole range for a lower one, until there is none.
"""

from __future__ import annotations

import numpy as np

from regard.bandwidth.descent import (
    RIDGE_BOUNDS,
    Method,
    Point,
    SearchLog,
    descend,
    has_jumps,
    max_scaled_w,
    parameter_bounds,
    short_lbfgs,
    short_pattern_search,
)
from regard.bandwidth.parametrization import Parametrization
from regard.core.arrays import Array
from regard.core.kernels import KERNELS

# Rows evaluated by the scan if there are more; beyond this number the criterion has few local minima.
SCAN_ROWS = 512
# Smallest w·scale of the scan.
SCAN_MIN_W = 0.05
# Smallest w·scale of random starts.
START_MIN_W = 0.03
# Smallest w·scale of scans along one parameter.
LINE_MIN_W = 0.02
# Factor between two scales of the scan.
SCAN_FACTOR = 1.5
# The same with many rows.
SCAN_FACTOR_MANY_ROWS = 2.0
# The same for one parameter whose criterion has kinks or jumps.
SCAN_FACTOR_JUMPS = 1.03
# The same for one parameter whose criterion is a step function.
SCAN_FACTOR_STAIRCASE = 1.01
# Descents from minima of the scan.
SCAN_DESCENTS = 2
# With many rows the second descent needs a minimum of the scan within this factor of the best.
SIMILAR_MINIMUM = 1.1
# Number of parameters up to which multistart is affordable.
MULTISTART_MAX_PARAMETERS = 5
# Number of rows up to which it is affordable for local lines.
MULTISTART_MAX_ROWS_OF_LINES = 100
# Random points evaluated per parameter.
STARTS_PER_PARAMETER = 48
# Descents from the best of them.
BEST_STARTS = 20
# Descents from any of them, per parameter beyond the first.
RANDOM_STARTS_PER_PARAMETER = 6
# Short descents that are continued to the minimum.
FULL_DESCENTS = 8
# Number of rows beyond which there are fewer descents, in inverse proportion.
ROWS_OF_ALL_STARTS = 100
# Points of a scan along one parameter.
LINE_POINTS = 24
# Range of a scan along all scales together, in log w to either side.
COMMON_SCALE_RANGE = 4.0
# Descents from minima of these scans, per parameter.
LINE_DESCENTS_PER_PARAMETER = 2
# Rounds of scans along every parameter.
LINE_SCAN_ROUNDS = 6
# w·scale below which a feature may be ignored altogether.
IGNORABLE_W = 0.1


def scan_scales(log: SearchLog, space: Parametrization, seed: int = 0) -> tuple[list[float], bool]:
    """Common scales to start from, best first, and whether the criterion hardly depends on the scale."""
    objective, many = log.objective, len(log.objective.rows) > SCAN_ROWS
    some = None
    if many:
        some = objective.evaluated_at(
            np.sort(np.random.default_rng(seed).choice(len(objective.rows), SCAN_ROWS, replace=False))
        )
    width = max(space.count, 1)
    top = min(10.0 * objective.size ** (1.0 / width), max_scaled_w(objective))
    step = _scan_step(log, space, many)
    levels = np.geomspace(SCAN_MIN_W, top, int(np.ceil(np.log(top / SCAN_MIN_W) / np.log(step))) + 1)
    values = np.array([log(space, space.uniform(level), log.first_ridge, some=some).value for level in levels])
    lowest = _local_minima(values)
    order = lowest[np.argsort(values[lowest], kind="stable")][:SCAN_DESCENTS]
    if many and objective.criterion == "loo":
        order = order[values[order] <= SIMILAR_MINIMUM * values[order].min(initial=np.inf)]
    known = values[np.isfinite(values)]
    flat = bool(known.size and np.ptp(known) <= 1e-9 * np.abs(known).max())
    return [_parabola_minimum(levels, values, i) for i in order], flat


def _scan_step(log: SearchLog, space: Parametrization, many: bool) -> float:
    """Factor between scales: small for one parameter, few rows, and a criterion with jumps."""
    if many:
        return SCAN_FACTOR_MANY_ROWS
    if space.size != 1 or not has_jumps(log):
        return SCAN_FACTOR
    return SCAN_FACTOR_STAIRCASE if KERNELS[log.objective.kernel].staircase else SCAN_FACTOR_JUMPS


def _local_minima(values: Array) -> Array:
    """Positions of values lower than both neighbours."""
    walls = np.r_[np.inf, values, np.inf]
    return np.flatnonzero((values <= walls[:-2]) & (values < walls[2:]))


def _parabola_minimum(levels: Array, values: Array, i: int) -> float:
    """The minimum of the parabola through a local minimum and its neighbours."""
    if not 0 < i < len(levels) - 1 or not np.isfinite(values[i - 1 : i + 2]).all():
        return float(levels[i])
    before, here, after = values[i - 1 : i + 2]
    bend = before - 2.0 * here + after
    off = 0.5 * (before - after) / bend if bend > 0.0 else 0.0
    return float(levels[i] * (levels[i + 1] / levels[i]) ** off)


def multistart(log: SearchLog, space: Parametrization, seed: int = 0) -> None:
    """Other local minima than the scan's, if rows and parameters are few."""
    objective = log.objective
    few = 0 < space.size <= MULTISTART_MAX_PARAMETERS and len(objective.rows) <= (
        MULTISTART_MAX_ROWS_OF_LINES if objective.degree else SCAN_ROWS
    )
    if not few or space.metric == "full" or KERNELS[objective.kernel].staircase:
        return
    _random_starts(log, space, seed)
    _scan_lines(log, space)
    if has_jumps(log):
        _descend(log, space, _as_vector(log, log.lowest), short_pattern_search)


def _random_starts(log: SearchLog, space: Parametrization, seed: int) -> None:
    """Short descents from random points; the best are continued to the minimum."""
    objective, rng = log.objective, np.random.default_rng([1, space.size, seed])
    narrow = min(10.0 * objective.size ** (1.0 / space.size), max_scaled_w(objective))
    bounds = [(np.log(START_MIN_W), np.log(narrow))] * space.size
    if log.ridge is None:
        bounds.append((np.log(RIDGE_BOUNDS[0]), 0.0))  # beyond λ = 1 a line is nearly a mean
    size = len(bounds)
    low, high = np.array(bounds).T
    places = rng.uniform(low, high, (STARTS_PER_PARAMETER * size, size))
    values = np.array([_evaluate(log, space, place) for place in places])
    # Twice as many rows have half as many local minima.
    fraction = min(1.0, ROWS_OF_ALL_STARTS / len(objective.rows))
    chosen = list(_ranked_starts(places, values)[: max(3, int(fraction * BEST_STARTS))])
    chosen += [i for i in range(int(fraction * RANDOM_STARTS_PER_PARAMETER * (size - 1))) if i not in chosen]
    ends = sorted((_descend(log, space, places[i], short_lbfgs) for i in chosen), key=lambda end: end.value)
    for end in ends[: max(1, int(fraction * FULL_DESCENTS))]:
        _descend(log, space, _as_vector(log, end))


def _ranked_starts(places: Array, values: Array) -> Array:
    """Indices of points, best first, with those lower than their nearest neighbours before the others."""
    distance = ((places[:, None] - places[None]) ** 2).sum(axis=-1)
    around = np.argsort(distance, axis=1, kind="stable")[:, 1 : 1 + 2 * places.shape[1]]
    low = values <= values[around].min(axis=1)
    return np.lexsort((np.arange(len(values)), values, ~low))


def _scan_lines(log: SearchLog, space: Parametrization) -> None:
    """Descents from local minima on lines through the best point so far: each parameter, and all scales together."""
    for _ in range(LINE_SCAN_ROUNDS):
        best = log.lowest
        start = _as_vector(log, best)
        found = sorted(_line_minima(log, space, start), key=lambda low: low[0])[
            : LINE_DESCENTS_PER_PARAMETER * len(start)
        ]
        ends = sorted((_descend(log, space, place, short_lbfgs) for _, place in found), key=lambda end: end.value)
        if ends:
            _descend(log, space, _as_vector(log, ends[0]))
        if not log.lowest.value < best.value - 1e-6 * abs(best.value):
            return
        _descend(log, space, _as_vector(log, log.lowest))


def _line_minima(log: SearchLog, space: Parametrization, start: Array) -> list[tuple[float, Array]]:
    """Values and points of local minima on lines through ``start``, without the minimum it lies in."""
    low, high = np.array(parameter_bounds(log, space)).T
    low[: space.size] = np.log(LINE_MIN_W)
    lines = [(np.arange(len(start)) == i, low[i] - start[i], high[i] - start[i]) for i in range(len(start))]
    if space.size > 1:
        lines.append((np.arange(len(start)) < space.size, -COMMON_SCALE_RANGE, COMMON_SCALE_RANGE))
    found = []
    for moved, down, up in lines:
        steps = np.linspace(down, up, LINE_POINTS)
        places = np.clip(start + steps[:, None] * moved, np.minimum(low, start), high)
        values = np.array([_evaluate(log, space, place) for place in places])
        own = np.searchsorted(steps, 0.0)
        found += [(values[i], places[i]) for i in _local_minima(values) if i not in (own - 1, own)]
    return found


def _evaluate(log: SearchLog, space: Parametrization, place: Array) -> float:
    return log(space, place[: space.size], _ridge(log, place)).value


def _descend(log: SearchLog, space: Parametrization, place: Array, method: Method | None = None) -> Point:
    return descend(log, space, place[: space.size], _ridge(log, place), method)


def _ridge(log: SearchLog, place: Array) -> float:
    return float(np.exp(place[-1])) if log.ridge is None else log.ridge


def _as_vector(log: SearchLog, point: Point) -> Array:
    """A point as one vector, with log λ last if it is learned."""
    return np.r_[point.parameters, np.log(point.ridge)] if log.ridge is None else point.parameters


def drop_wide_features(log: SearchLog) -> None:
    """Ignore features whose bandwidth is at least ten times their scale, if the criterion does not get worse."""
    best = log.best
    if best is None or best.space.metric == "full" or not best.space.size:
        return
    wide = best.space.active & (np.broadcast_to(best.w * best.space.scale, best.space.active.shape) < IGNORABLE_W)
    if not wide.any():
        return
    space = best.space.without(wide)
    parameters = best.parameters if best.space.metric == "scalar" else best.parameters[~wide[best.space.active]]
    if space.size:
        point = descend(log, space, parameters, best.ridge)
    else:
        point = Point(log(space, parameters[:0], best.ridge).value, space, parameters[:0], best.ridge)
    # Of two equal values, the one with fewer features wins.
    if point.value <= best.value + 1e-12 * abs(best.value) and log.best is not point:
        log.best, log.found = point, None
