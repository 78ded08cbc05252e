"""The search: the w, and the ridge λ, with the smallest criterion.

A coarse scan of one common scale finds starts, and descents go to the minima near them (``descent``). With few rows,
and so many local minima, a multistart looks for a lower one (``multistart``). Features whose bandwidth is very large
are ignored (w = 0) if the criterion does not get worse, and the descent is repeated without them. The search is
deterministic, and Ctrl-C returns the best point so far.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard.bandwidth.descent import RIDGE_BOUNDS, Point, Progress, SearchLog, descend, final_method, max_scaled_w
from regard.bandwidth.multistart import drop_wide_features, multistart, scan_scales
from regard.bandwidth.objective import Objective
from regard.bandwidth.parametrization import Parametrization
from regard.core.arrays import Array

__all__ = ["RIDGE_BOUNDS", "Progress", "Search", "learn", "max_scaled_w"]


# Scales of features whose squares neither overflow nor underflow.
SCALE_BOUNDS = (1e-140, 1e140)


class Search(NamedTuple):
    """The result of a search, and its history.

    Attributes
    ----------
    w : array (), (d,) or (d, r)
        In the inverse units of X.
    ridge : float
        λ of local lines.
    value : float
        The criterion, in the units of y.
    answer : array (n, P)
        Leave-one-out predictions.
    evaluations : int
        Number of evaluations of the criterion.
    path : array (evaluations,)
        The criterion at every evaluation.
    places : array (evaluations, size of w)
        The w of every evaluation.
    smoothed_out : array (d,) of bool
        Features that are ignored.
    edge : bool
        Some bandwidth is at the lower bound of the search.
    flat : bool
        The criterion hardly depends on w.
    minima : tuple of float
        The criterion in the local minima of the first descents, best first.
    empty : int
        Number of rows without another row in reach.
    interrupted : bool
        The search was stopped by Ctrl-C; this is the best so far.
    looked_at : int, default=None
        Number of rows that the search evaluated; None means all.

    >>> from regard import NadarayaWatsonRegressor
    >>> x = np.linspace(0.0, 6.0, 40)[:, None]
    >>> search = NadarayaWatsonRegressor().fit(x, np.sin(x[:, 0])).search_
    >>> search.interrupted, search.smoothed_out.tolist(), len(search.path) == search.evaluations
    (False, [False], True)
    """

    w: Array  # in the units of X: (), (d,) or (d, r)
    ridge: float
    value: float  # the criterion, in the units of y
    answer: Array  # (n, P)  leave-one-out predictions
    evaluations: int
    path: Array  # (evaluations,)  the criterion at every evaluation
    places: Array  # (evaluations, size of w)  where it was evaluated
    smoothed_out: Array  # (d,) boolean: features that are ignored
    edge: bool  # some bandwidth is at the lower bound of the search
    flat: bool  # the criterion hardly depends on w
    minima: tuple[float, ...]  # the criterion in the local minima of the first descents, best first
    empty: int  # rows without another row in reach
    interrupted: bool
    looked_at: int | None = None  # number of rows the search evaluated; None: all

    def __str__(self) -> str:
        notes = []
        if self.smoothed_out.any():
            notes.append(f"smoothed out: features {', '.join(map(str, np.flatnonzero(self.smoothed_out)))}")
        if self.edge:
            notes.append("a bandwidth is at the lower bound of the search")
        if self.flat:
            notes.append("the criterion hardly depends on the bandwidth")
        if len(self.minima) > 1:
            notes.append(f"{len(self.minima)} local minima, the next best at {self.minima[1]:.6g}")
        if self.empty:
            notes.append(f"{self.empty} rows had no other row in reach and used the nearest one")
        if self.looked_at is not None:
            notes.append(f"searched by evaluating {self.looked_at:,} of {len(self.answer):,} rows")
        if self.interrupted:
            notes.append("interrupted: this is the best so far")
        return "; ".join([f"criterion {self.value:.6g} after {self.evaluations} evaluations", *notes])


def learn(
    objective: Objective,
    metric: str = "feature",
    *,
    ridge: float | None = 0.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Search:
    """The w with the smallest criterion.

    Parameters
    ----------
    objective : Objective
        Data and criterion.
    metric : {"feature", "scalar", "full"}, default="feature"
        Learn one w per feature, one for all, or a matrix (d, d).
    ridge : float or None, default=0.0
        A fixed λ of local lines; None learns it too.
    seed : int, default=0
        For the starts of the descents.
    progress : callable (evaluation, criterion), default=None
        Called after every evaluation.

    Returns
    -------
    Search

    Raises
    ------
    ValueError
        If standard deviations of the features are too small or too large to be squared.

    *Cost*: some 20 to 80 evaluations of the objective, each O(n²·d); with at most 512 rows and 5 features up to some
    thousand.

    >>> x = np.linspace(0.0, 6.0, 40)[:, None]
    >>> learn(Objective.of(x, np.sin(x[:, 0]))).w.shape
    (1,)
    """
    log = SearchLog(objective, ridge, progress)
    space = Parametrization.of(metric, objective.feature_scale)
    scale = space.scale[space.active]
    if ((scale < SCALE_BOUNDS[0]) | (scale > SCALE_BOUNDS[1])).any():
        raise ValueError(
            f"to learn a bandwidth, standard deviations of the features of X must lie between {SCALE_BOUNDS[0]:g} "
            f"and {SCALE_BOUNDS[1]:g}, got {scale.min():g} to {scale.max():g}; rescale X"
        )
    ends: list[Point] = []
    flat, interrupted = not space.size, False
    try:
        levels, flat = scan_scales(log, space, seed)
        ends.extend(descend(log, space, space.uniform(level), log.first_ridge) for level in levels)
        multistart(log, space, seed)
        drop_wide_features(log)
    except KeyboardInterrupt:
        if log.best is None:
            raise
        interrupted = True
    return _result(log, ends, flat, interrupted)


def refine(
    objective: Objective,
    metric: str,
    first: Search,
    *,
    ridge: float | None = 0.0,
    gain: float,
    progress: Progress | None = None,
) -> Search:
    """The minimum of this objective nearest to what a search over other rows found.

    *Cost*: some 5 to 15 evaluations.
    """
    log = SearchLog(objective, ridge, progress, path=first.path.tolist(), places=list(first.places))
    space = Parametrization.of(metric, objective.feature_scale)
    space = space.without(np.broadcast_to(first.w == 0.0, space.active.shape))
    ends, interrupted = [], False
    try:
        ends.append(descend(log, space, space.parameters(first.w), first.ridge, final_method(log, gain)))
    except KeyboardInterrupt:
        if log.best is None:
            raise
        interrupted = True
    return _result(log, ends, first.flat, interrupted)


def _result(log: SearchLog, ends: list[Point], flat: bool, interrupted: bool) -> Search:
    objective, best = log.objective, log.lowest
    final = objective(best.w, best.ridge) if log.found is None else log.found
    values = sorted(objective.in_units_of_y(end.value) for end in ends)
    minima = [value for i, value in enumerate(values) if i == 0 or value > values[i - 1] + 1e-6 * abs(values[i - 1])]
    top = np.log(max_scaled_w(objective))
    return Search(
        w=best.w,
        ridge=best.ridge,
        value=objective.in_units_of_y(final.value),
        answer=final.answer,
        evaluations=len(log.path),
        path=np.array(log.path),
        places=np.array(log.places),
        smoothed_out=(best.space.scale > 0.0) & ~best.space.active,
        edge=best.space.metric != "full" and bool((best.parameters >= top - 1e-6).any()),
        flat=flat,
        minima=tuple(minima),
        empty=final.empty,
        interrupted=interrupted,
    )
