"""Bandwidths in the units of the features, given, by a rule or learned.

``resolve`` turns an estimator's ``bandwidth`` parameter and its data into numbers, ``learned`` minimises a criterion;
``rules`` has the rules of thumb, which need no search, ``objective`` the criteria and ``search`` the search. h is the
bandwidth of statistics, w = 1/h the parameter of the score.

>>> CRITERIA, OPTIMIZERS, sorted(RULES)
(('loo', 'gcv', 'aicc'), ('lbfgs', 'sgd'), ['scott', 'silverman'])
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from regard.bandwidth.gradient_descent import follow_the_notes
from regard.bandwidth.loo import loo_objective
from regard.bandwidth.objective import CRITERIA, Objective
from regard.bandwidth.plugin import plugin
from regard.bandwidth.rules import RULES, scott, silverman
from regard.bandwidth.search import Progress, Search, learn
from regard.bandwidth.subsampling import learn_from_subsamples
from regard.core.arrays import Array

__all__ = [
    "CRITERIA",
    "OPTIMIZERS",
    "RULES",
    "Objective",
    "Search",
    "Width",
    "follow_the_notes",
    "learn",
    "learned",
    "loo_objective",
    "plugin",
    "resolve",
    "scott",
    "silverman",
]

OPTIMIZERS = ("lbfgs", "sgd")


class Width(NamedTuple):
    """h and w = 1/h of one choice: numbers if a number was given, otherwise one entry per feature.

    Attributes
    ----------
    bandwidth : float, array (d,) or None
        h > 0, inf for an ignored feature; None if w is a matrix.
    w : float, array (d,) or (d, r)
        1/h, 0 for an ignored feature.
    ridge : float, default=0.0
        λ of local lines.
    search : Search, default=None
        The search that found it, if it was learned.

    >>> Width(2.0, 0.5).ridge
    0.0
    """

    bandwidth: Any  # h > 0, inf for an ignored feature; None if w is a matrix
    w: Any  # 1/h, 0 for an ignored feature
    ridge: float = 0.0
    search: Search | None = None

    @classmethod
    def of(cls, w: Array, ridge: float = 0.0, search: Search | None = None) -> Width:
        """The width of a w: (), (d,) or a matrix.

        Parameters
        ----------
        w : array (), (d,) or (d, r)
            1/bandwidth.
        ridge : float, default=0.0
            λ of local lines.
        search : Search, default=None
            The search that found it.

        Returns
        -------
        Width
            With plain floats if w is a single number.
        """
        if w.ndim == 2:
            return cls(None, w, ridge, search)
        with np.errstate(divide="ignore", over="ignore"):
            bandwidth = 1.0 / w
        return cls(bandwidth, w, ridge, search) if w.ndim else cls(float(bandwidth), float(w), ridge, search)


def learned(
    objective: Objective,
    *,
    metric: str = "feature",
    optimizer: str = "lbfgs",
    ridge: float | None = 0.0,
    start: ArrayLike | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Width:
    """The width with the smallest criterion, in the units of X.

    Parameters
    ----------
    objective : Objective
        Data and criterion.
    metric : {"feature", "scalar", "full"}, default="feature"
        Learn one w per feature, one for all, or a matrix (d, d).
    optimizer : {"lbfgs", "sgd"}, default="lbfgs"
        "lbfgs" is the search, "sgd" the notes' recipe from ``start``.
    ridge : float or None, default=0.0
        λ of local lines; None learns it too.
    start : float or array (d,), default=None
        First w of "sgd", which needs it.
    seed : int, default=0
        Chooses the subsamples if rows are many.
    progress : callable (evaluation, criterion), default=None
        Called after every evaluation.

    Returns
    -------
    Width
        With its ``search``.

    *Cost*: see ``learn``; with more than 20,000 rows the search runs on subsamples.

    >>> x = np.linspace(0.0, 6.0, 40)[:, None]
    >>> found = learned(Objective.of(x, np.sin(x[:, 0])))
    >>> bool(0.01 < found.bandwidth[0] < 1.0)
    True
    """
    if optimizer == "sgd":
        assert start is not None
        search = follow_the_notes(objective, start, progress=progress)
    else:
        search = learn_from_subsamples(objective, metric, ridge=ridge, seed=seed, progress=progress)
    return Width.of(search.w, search.ridge, search)


def resolve(
    bandwidth: Any,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    kernel: str = "gaussian",
    sample_weight: ArrayLike | None = None,
) -> Width:
    """The bandwidth h and w = 1/h that a ``bandwidth`` parameter means for these data.

    Parameters
    ----------
    bandwidth : float, array (d,) or str
        Numbers are in the units of X and nothing is rescaled. They are above 0; inf ignores a feature. A text is the
        name of a rule in ``RULES``, or "plugin", which needs y.
    X : array (n, d)
        Training rows. Rules use them; of numbers only the count of features is checked.
    y : array (n,) or (n, P), default=None
        What "plugin" uses.
    kernel : str, default="gaussian"
        Name in ``regard.scores.KERNELS``, for which a rule is scaled.
    sample_weight : array (n,), default=None
        What the rules use; see ``regard.bandwidth.scott``.

    Returns
    -------
    Width
        ``bandwidth`` and ``w``.

    Raises
    ------
    TypeError, ValueError
        If ``bandwidth`` is not one of these.

    *Cost*: O(d), or that of the rule.

    >>> resolve(2.0, [[0.0], [1.0]])[:2]
    (2.0, 0.5)
    """
    accepted = (
        f"a number, one number per feature, or one of {', '.join(map(repr, (*CRITERIA, 'adaptive', *RULES, 'plugin')))}"
    )
    if isinstance(bandwidth, str):
        rules = RULES if y is None else RULES | {"plugin": partial(plugin, y=y)}
        if bandwidth not in rules:
            raise ValueError(f"bandwidth must be {accepted}, got {bandwidth!r}")
        h = rules[bandwidth](X, kernel=kernel, sample_weight=sample_weight)
        return Width(h, 1.0 / h)
    try:
        given = np.asarray(bandwidth)
    except ValueError:  # a ragged list
        given = np.empty(0, object)
    if given.dtype.kind not in "fiu" or given.ndim > 1:
        raise TypeError(f"bandwidth must be {accepted}, got {bandwidth!r}")
    h = given.astype(np.float64)
    if (h < 0.0).any():
        raise ValueError(f"bandwidth must be above 0, or inf to ignore a feature; got {bandwidth!r}")
    if np.isnan(h).any() or (h == 0.0).any():
        raise ValueError(
            f"bandwidth must be finite and not zero, or inf to ignore a feature; got {bandwidth!r} "
            "(for the nearest training row alone use NearestKeyRegressor)"
        )
    with np.errstate(over="ignore"):
        w = 1.0 / h
    if np.isinf(w).any():
        raise ValueError(f"bandwidth is too small: 1/bandwidth must be finite, got {bandwidth!r}")
    if given.ndim == 0:
        return Width(float(h), float(w))
    features = np.shape(X)[1]
    if h.shape != (features,):
        raise ValueError(f"bandwidth has {len(h)} numbers but X has {features} features")
    return Width(h, w)
