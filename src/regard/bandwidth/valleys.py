"""Valleys: where the walks of a search begin.

A coarse scan of one common scale finds the first. Where rows are few there are many more, each a handful of rows that
happen to answer one another well, and nothing tells the deepest but having been there. So walks begin at scattered
places, the promising ones and some that are not; then, from the best so far, every parameter is scanned over its whole
range for another valley, until there is none that is deeper.
"""

from __future__ import annotations

import numpy as np

from regard.bandwidth.shapes import Shape
from regard.bandwidth.walks import (
    RIDGES,
    Point,
    Trail,
    Walk,
    bounds_of,
    briefly,
    by_short_steps,
    descend,
    has_jumps,
    sharpest,
)
from regard.core.arrays import Array
from regard.core.kernels import KERNELS

# Rows looked at by the scan when there are more; with more, one valley is much like another, and few are walked.
SCAN_ROWS = 512
# Widest scale of the scan and of scattered places, as w·spread.
WIDE, SCATTERED_WIDE, LINE_WIDE = 0.05, 0.03, 0.02
# Factor between scales of the scan: with few rows and with many, and where one parameter meets kinks or jumps.
STEP, COARSE_STEP = 1.5, 2.0
FINE_STEP, STAIR_STEP = 1.03, 1.01
# Walks from the scan's valleys; with many rows from a second one only if it is about as deep.
WALKS, ABOUT_AS_DEEP = 2, 1.1
# Features, and rows where lines are fitted, up to which looking further is affordable.
FEW_FEATURES = 5
LINE_ROWS = 100
# Scattered places per parameter; walks from the best of them, from any for every parameter beyond the first, and how
# many of those go on to the end. With more rows than these, fewer walks.
SCATTERED = 48
PROMISING, BLIND, TO_THE_END = 20, 6, 8
FEWEST_ROWS = 100
# Points along the range of a parameter, walks per parameter from what they show, and rounds of it.
LINE_POINTS = 24
ALL_AT_ONCE = 4.0
FROM_LINES = 2
ROUNDS = 6
# w·spread below which a feature may as well be ignored.
NEARLY_NONE = 0.1


def valleys(trail: Trail, shape: Shape, seed: int = 0) -> tuple[list[float], bool]:
    """Common scales to start from, best first, and whether the objective hardly depends on the scale."""
    objective, many = trail.objective, len(trail.objective.rows) > SCAN_ROWS
    some = None
    if many:
        some = objective.looking_at(
            np.sort(np.random.default_rng(seed).choice(len(objective.rows), SCAN_ROWS, replace=False))
        )
    width = max(shape.count, 1)
    top = min(10.0 * objective.size ** (1.0 / width), sharpest(objective))
    step = _scan_step(trail, shape, many)
    levels = np.geomspace(WIDE, top, int(np.ceil(np.log(top / WIDE) / np.log(step))) + 1)
    values = np.array([trail(shape, shape.start(level), trail.first_ridge, some=some).value for level in levels])
    lowest = _lows(values)
    order = lowest[np.argsort(values[lowest], kind="stable")][:WALKS]
    if many and objective.criterion == "loo":
        order = order[values[order] <= ABOUT_AS_DEEP * values[order].min(initial=np.inf)]
    known = values[np.isfinite(values)]
    flat = bool(known.size and np.ptp(known) <= 1e-9 * np.abs(known).max())
    return [_between(levels, values, i) for i in order], flat


def _scan_step(trail: Trail, shape: Shape, many: bool) -> float:
    """Factor between scales: fine where there is one parameter, few rows, and jumps to be found."""
    if many:
        return COARSE_STEP
    if shape.size != 1 or not has_jumps(trail):
        return STEP
    return STAIR_STEP if KERNELS[trail.objective.kernel].staircase else FINE_STEP


def _lows(values: Array) -> Array:
    """Positions lower than both neighbours."""
    walls = np.r_[np.inf, values, np.inf]
    return np.flatnonzero((values <= walls[:-2]) & (values < walls[2:]))


def _between(levels: Array, values: Array, i: int) -> float:
    """The lowest place of the parabola through a low point and its neighbours."""
    if not 0 < i < len(levels) - 1 or not np.isfinite(values[i - 1 : i + 2]).all():
        return float(levels[i])
    before, here, after = values[i - 1 : i + 2]
    bend = before - 2.0 * here + after
    off = 0.5 * (before - after) / bend if bend > 0.0 else 0.0
    return float(levels[i] * (levels[i + 1] / levels[i]) ** off)


def look_further(trail: Trail, shape: Shape, seed: int = 0) -> None:
    """Other valleys than the scan's, where rows are few."""
    objective = trail.objective
    few = 0 < shape.size <= FEW_FEATURES and len(objective.rows) <= (LINE_ROWS if objective.degree else SCAN_ROWS)
    if not few or shape.metric == "full" or KERNELS[objective.kernel].staircase:
        return
    _from_scattered_places(trail, shape, seed)
    _along_lines(trail, shape)
    if has_jumps(trail):
        _walk(trail, shape, _place(trail, trail.lowest), by_short_steps)


def _from_scattered_places(trail: Trail, shape: Shape, seed: int) -> None:
    """Short walks, the best of them gone on to the end."""
    objective, rng = trail.objective, np.random.default_rng([1, shape.size, seed])
    narrow = min(10.0 * objective.size ** (1.0 / shape.size), sharpest(objective))
    bounds = [(np.log(SCATTERED_WIDE), np.log(narrow))] * shape.size
    if trail.ridge is None:
        bounds.append((np.log(RIDGES[0]), 0.0))  # with more, a line is a mean
    size = len(bounds)
    low, high = np.array(bounds).T
    places = rng.uniform(low, high, (SCATTERED * size, size))
    values = np.array([_look(trail, shape, place) for place in places])
    # Twice as many rows, half as many valleys.
    share = min(1.0, FEWEST_ROWS / len(objective.rows))
    chosen = list(_apart(places, values)[: max(3, int(share * PROMISING))])
    chosen += [i for i in range(int(share * BLIND * (size - 1))) if i not in chosen]
    ends = sorted((_walk(trail, shape, places[i], briefly) for i in chosen), key=lambda end: end.value)
    for end in ends[: max(1, int(share * TO_THE_END))]:
        _walk(trail, shape, _place(trail, end))


def _apart(places: Array, values: Array) -> Array:
    """Numbers of places, best first, but those lower than all around them before the rest."""
    distance = ((places[:, None] - places[None]) ** 2).sum(axis=-1)
    around = np.argsort(distance, axis=1, kind="stable")[:, 1 : 1 + 2 * places.shape[1]]
    low = values <= values[around].min(axis=1)
    return np.lexsort((np.arange(len(values)), values, ~low))


def _along_lines(trail: Trail, shape: Shape) -> None:
    """From the best so far, along every parameter and along all scales at once, to valleys that lie there."""
    for _ in range(ROUNDS):
        best = trail.lowest
        start = _place(trail, best)
        found = sorted(_line_lows(trail, shape, start), key=lambda low: low[0])[: FROM_LINES * len(start)]
        ends = sorted((_walk(trail, shape, place, briefly) for _, place in found), key=lambda end: end.value)
        if ends:
            _walk(trail, shape, _place(trail, ends[0]))
        if not trail.lowest.value < best.value - 1e-6 * abs(best.value):
            return
        _walk(trail, shape, _place(trail, trail.lowest))


def _line_lows(trail: Trail, shape: Shape, start: Array) -> list[tuple[float, Array]]:
    """Low places, with their values, on lines through ``start``, its own valley left out."""
    low, high = np.array(bounds_of(trail, shape)).T
    low[: shape.size] = np.log(LINE_WIDE)
    lines = [(np.arange(len(start)) == i, low[i] - start[i], high[i] - start[i]) for i in range(len(start))]
    if shape.size > 1:
        lines.append((np.arange(len(start)) < shape.size, -ALL_AT_ONCE, ALL_AT_ONCE))
    found = []
    for moved, down, up in lines:
        steps = np.linspace(down, up, LINE_POINTS)
        places = np.clip(start + steps[:, None] * moved, np.minimum(low, start), high)
        values = np.array([_look(trail, shape, place) for place in places])
        own = np.searchsorted(steps, 0.0)
        found += [(values[i], places[i]) for i in _lows(values) if i not in (own - 1, own)]
    return found


def _look(trail: Trail, shape: Shape, place: Array) -> float:
    return trail(shape, place[: shape.size], _ridge(trail, place)).value


def _walk(trail: Trail, shape: Shape, place: Array, walk: Walk | None = None) -> Point:
    return descend(trail, shape, place[: shape.size], _ridge(trail, place), walk)


def _ridge(trail: Trail, place: Array) -> float:
    return float(np.exp(place[-1])) if trail.ridge is None else trail.ridge


def _place(trail: Trail, point: Point) -> Array:
    """A point as one vector, log λ behind where it is learned."""
    return np.r_[point.parameters, np.log(point.ridge)] if trail.ridge is None else point.parameters


def ignore_the_widest(trail: Trail) -> None:
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
        point = descend(trail, shape, kept, best.ridge)
    else:
        point = Point(trail(shape, kept[:0], best.ridge).value, shape, kept[:0], best.ridge)
    # A tie goes to the simpler answer.
    if point.value <= best.value + 1e-12 * abs(best.value) and trail.best is not point:
        trail.best, trail.found = point, None
