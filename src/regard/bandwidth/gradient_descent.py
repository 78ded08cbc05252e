"""The notes' recipe: plain gradient descent on the sum of squared leave-one-out errors."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from regard.bandwidth.objective import Objective
from regard.bandwidth.search import Progress, Search

RATE = 0.5
EPOCHS = 5


def follow_the_notes(
    objective: Objective,
    start: ArrayLike,
    *,
    rate: float = RATE,
    epochs: int = EPOCHS,
    progress: Progress | None = None,
) -> Search:
    """The notes' recipe: steps w ← w − rate·∂/∂w Σᵢ (yᵢ − f₋ᵢ(xᵢ))² from ``start``; the result is the absolute value of
    w.

    ``path`` of the result holds the sum of squared errors before each step. There is no line search: on other data than
    the notes' the steps may be much too long and the result bad, but it is never negative or infinite.

    Parameters
    ----------
    objective : Objective
        Data and criterion.
    start : float or array (d,)
        First w.
    rate : float, default=0.5
        Length of a step in units of the gradient.
    epochs : int, default=5
        Number of steps.
    progress : callable (epoch, sum of squared errors), default=None
        Called after every step.

    Returns
    -------
    Search

    *Cost*: epochs + 1 evaluations, each O(n²·d).

    >>> x = np.linspace(0.0, 5.0, 20)[:, None]
    >>> found = follow_the_notes(Objective.of(x, np.sin(x[:, 0])), 1.0)
    >>> len(found.path), found.evaluations
    (5, 6)
    """
    w = np.array(start, np.float64)
    total = objective.size * objective.loss.unit
    path, places = [], []
    for epoch in range(epochs):
        found = objective(np.abs(w), gradient=True)
        assert found.w is not None
        path.append(found.value * total)
        places.append(w.ravel().copy())
        if progress is not None:
            progress(epoch + 1, path[-1])
        with np.errstate(over="ignore"):
            # The error depends on w² alone, so its slope changes sign with w.
            w = np.clip(w - rate * total * np.where(w < 0.0, -1.0, 1.0) * found.w, -LARGEST_W, LARGEST_W)
    final = objective(np.abs(w))
    return Search(
        w=np.abs(w),
        ridge=0.0,
        value=objective.in_units_of_y(final.value),
        answer=final.answer,
        evaluations=epochs + 1,
        path=np.array(path),
        places=np.array(places),
        smoothed_out=np.zeros(len(objective.feature_scale), bool),
        edge=False,
        flat=False,
        minima=(objective.in_units_of_y(final.value),),
        empty=final.empty,
        interrupted=False,
    )


# Squares of w times squares of features must not overflow.
LARGEST_W = 1e100
