"""The search: the w, and the ridge λ, where the objective is smallest.

A coarse scan of one common scale finds the valleys and walks go down from the best of them (``walks``). Where rows are
few, and valleys many, more is done to find the deepest (``valleys``). Features that run to the widest bandwidth are
ignored for good (w = 0) if that is no worse, and the walk is repeated without them. Everything is deterministic, and
Ctrl-C keeps the best so far.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard.bandwidth.objective import Objective
from regard.bandwidth.shapes import Shape
from regard.bandwidth.valleys import ignore_the_widest, look_further, valleys
from regard.bandwidth.walks import RIDGES, Point, Progress, Trail, closely, descend, sharpest
from regard.core.arrays import Array

__all__ = ["RIDGES", "Progress", "Search", "learn", "sharpest"]


# Features whose squares neither overflow nor vanish.
SPREADS = (1e-140, 1e140)


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


def learn(
    objective: Objective,
    metric: str = "feature",
    *,
    ridge: float | None = 0.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Search:
    """The w of least criterion over the rows looked at; ``ridge`` is a fixed λ, or None to learn it too.

    *Cost*: some 20 to 80 evaluations of the objective, each O(n²·d); with at most 512 rows and 5 features up to some
    thousand.
    """
    trail = Trail(objective, ridge, progress)
    shape = Shape.of(metric, objective.spread)
    spread = shape.spread[shape.active]
    if ((spread < SPREADS[0]) | (spread > SPREADS[1])).any():
        raise ValueError(
            f"features of X must vary by {SPREADS[0]:g} to {SPREADS[1]:g} for a bandwidth to be learned, "
            f"got {spread.min():g} to {spread.max():g}; rescale X"
        )
    ends: list[Point] = []
    flat, interrupted = not shape.size, False
    try:
        levels, flat = valleys(trail, shape, seed)
        ends.extend(descend(trail, shape, shape.start(level), trail.first_ridge) for level in levels)
        look_further(trail, shape, seed)
        ignore_the_widest(trail)
    except KeyboardInterrupt:
        if trail.best is None:
            raise
        interrupted = True
    return _told(trail, ends, flat, interrupted)


def refine(
    objective: Objective,
    metric: str,
    first: Search,
    *,
    ridge: float | None = 0.0,
    gain: float,
    progress: Progress | None = None,
) -> Search:
    """On from what a search over other rows found, down to the minimum of this objective in the same valley.

    *Cost*: some 5 to 15 evaluations.
    """
    trail = Trail(objective, ridge, progress, path=first.path.tolist(), places=list(first.places))
    shape = Shape.of(metric, objective.spread)
    shape = shape.without(np.broadcast_to(first.w == 0.0, shape.active.shape))
    ends, interrupted = [], False
    try:
        ends.append(descend(trail, shape, shape.parameters(first.w), first.ridge, closely(trail, gain)))
    except KeyboardInterrupt:
        if trail.best is None:
            raise
        interrupted = True
    return _told(trail, ends, first.flat, interrupted)


def _told(trail: Trail, ends: list[Point], flat: bool, interrupted: bool) -> Search:
    objective, best = trail.objective, trail.lowest
    final = objective(best.w, best.ridge) if trail.found is None else trail.found
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
