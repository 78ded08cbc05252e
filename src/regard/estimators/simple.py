"""The two ends of attention, with nothing to learn: all training rows alike, and the nearest ones alone."""

from __future__ import annotations

from typing import Any

from regard.core.scores import Gaussian, Nearest
from regard.estimators.regressor import SmoothingRegressor
from regard.model.smoother import Head


class AveragePoolingRegressor(SmoothingRegressor):
    """The weighted mean of y, whatever X is: attention that ignores the query.

    predict(x) = Σ sample_weight · y / Σ sample_weight. The baseline that every other estimator should beat.

    Attributes
    ----------
    key_, value_, sample_weight_ : the training rows, (K, d), (K,) or (K, P), and (K,) or None.
    n_features_in_, feature_names_in_ : what ``fit`` saw; names only where X is a dataframe with text names.

    *Empty rows*: there are none. *Cost*: ``predict`` takes O(K + Q) time.

    >>> AveragePoolingRegressor().fit([[0.0], [1.0]], [2.0, 4.0]).predict([[9.0]]).tolist()
    [3.0]
    """

    _APPENDS = True

    def _heads(self) -> tuple[Head, ...]:
        return (Head(1.0, Gaussian(0.0)),)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


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
