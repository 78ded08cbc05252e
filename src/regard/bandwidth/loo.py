"""The leave-one-out criterion of given data at a given score, as one number."""

from __future__ import annotations

from dataclasses import replace

from numpy.typing import ArrayLike

from regard.bandwidth.objective import Objective
from regard.bandwidth.subsampling import FINAL_TOL, MAX_ROWS_ALL_EVALUATED
from regard.core.problem import matrix
from regard.core.scores import Nearest, Radial


def loo_objective(
    X: ArrayLike,
    y: ArrayLike,
    score: Radial,
    *,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> float:
    """Mean squared error of predicting every row from all others.

    mean_i (y_i − f_{−i}(x_i))²; with several outputs each is divided by its variance and they are averaged.

    Parameters
    ----------
    X : array (n, d)
        Rows.
    y : array (n,) or (n, P)
        Their values.
    score : Radial
        A score of a kernel of ``regard.scores``, such as ``Gaussian(w=1.0)``; not ``Nearest``.
    sample_weight : array (n,), default=None
        Integers are repetitions, of which one is left out; floats are importances of whole rows.
    groups : array (n,) of int, default=None
        Rows of one group may not attend to each other.

    Returns
    -------
    float
        In the units of y², or relative to the variances if y has several columns.

    Raises
    ------
    TypeError
        If the score is not that of a kernel.
    ValueError
        If X, y and weights do not fit together or are not finite.

    *Empty rows*: predicted by the nearest other row. *Cost*: O(n²·d) time, O(n) memory and a tile. Beyond 20,000 rows a
    row may lose 1e-9 of its attention mass, and the time is that of ``pool``.

    >>> from regard.scores import Gaussian
    >>> round(loo_objective([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0], Gaussian(0.0)), 12)
    1.5
    """
    if not isinstance(score, Radial) or isinstance(score, Nearest):
        raise TypeError(f"score must be a radial score of regard.scores such as Gaussian(w=1.0), got {score!r}")
    width = matrix("X", X).shape[1]
    score.check(width, width)
    objective = Objective.of(X, y, kernel=score.kernel.name, sample_weight=sample_weight, groups=groups)
    if len(objective.rows) > MAX_ROWS_ALL_EVALUATED:
        objective = replace(objective, tol=FINAL_TOL)
    return objective.in_units_of_y(objective(score.w).value)
