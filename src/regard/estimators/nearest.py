"""Hard attention: every query sees its nearest training rows and no others."""

from __future__ import annotations

from regard.core.scores import Nearest
from regard.estimators.regressor import SmoothingRegressor
from regard.model.smoother import Head


class NearestKeyRegressor(SmoothingRegressor):
    """The y of the nearest training row; rows equally near share, by their weights.

    predict(x) = mean of y over argmin_k ‖x − x_k‖: the limit of every kernel as the bandwidth goes to 0.
    Distances are Euclidean in the units of X; nothing is rescaled.

    Parameters
    ----------
    engine : "auto", or the name of an engine of ``regard.pool``, which then never falls back to another.
    tol : share of its attention mass a query may lose, see ``regard.pool``.

    Attributes
    ----------
    key_, value_, sample_weight_ : the training rows, (K, d), (K,) or (K, P), and (K,) or None.
    n_features_in_, feature_names_in_ : what ``fit`` saw; names only where X is a dataframe with text names.

    *Empty rows*: there are none. *Cost*: ``predict`` takes O(Q·K·d) time, O(Q + K) memory and a tile.

    >>> NearestKeyRegressor().fit([[0.0], [1.0]], [2.0, 4.0]).predict([[0.4], [0.5]]).tolist()
    [2.0, 3.0]
    """

    _APPENDS = True

    def __init__(self, engine: str = "auto", tol: float | None = None) -> None:
        self._set(locals())

    def _heads(self) -> tuple[Head, ...]:
        return (Head(1.0, Nearest(1.0)),)
