"""The two limits of attention, with nothing to learn: uniform weights, and the nearest rows only."""

from __future__ import annotations

from regard.core.scores import Gaussian, Nearest
from regard.estimators.regressor import SmoothingRegressor
from regard.model.smoother import Head


class AveragePoolingRegressor(SmoothingRegressor):
    """Average pooling: the weighted mean of y, independent of X.

    predict(x) = Σ sample_weight · y / Σ sample_weight. The baseline that every other estimator should beat.

    Attributes
    ----------
    key_, value_, sample_weight_ : arrays of shapes (K, d), (K,) or (K, P), and (K,) or None
        The training rows.
    n_features_in_, feature_names_in_ : int, array of shape (d,)
        As in scikit-learn.

    *Empty rows*: there are none. *Cost*: ``predict`` takes O(K + Q) time.

    >>> AveragePoolingRegressor().fit([[0.0], [1.0]], [2.0, 4.0]).predict([[9.0]]).tolist()
    [3.0]
    """

    _HAS_PARTIAL_FIT = _IGNORES_X = True

    def _heads(self) -> tuple[Head, ...]:
        return (Head(1.0, Gaussian(0.0)),)


class NearestKeyRegressor(SmoothingRegressor):
    """Hard attention: the y of the nearest training row, or the weighted mean of those equally near.

    predict(x) = mean of y over argmin_k ‖x − x_k‖: the limit of every kernel as the bandwidth goes to 0.
    Distances are Euclidean in the units of X; nothing is rescaled.

    Parameters
    ----------
    engine : str, default="auto"
        "auto", or the name of an engine of ``regard.pool``, which then is used without fallback.
    tol : float, default=None
        As in ``regard.pool``.

    Attributes
    ----------
    key_, value_, sample_weight_ : arrays of shapes (K, d), (K,) or (K, P), and (K,) or None
        The training rows.
    n_features_in_, feature_names_in_ : int, array of shape (d,)
        As in scikit-learn.

    *Empty rows*: there are none. *Cost*: ``predict`` takes O(Q·K·d) time, O(Q + K) memory and a tile.

    >>> NearestKeyRegressor().fit([[0.0], [1.0]], [2.0, 4.0]).predict([[0.4], [0.5]]).tolist()
    [2.0, 3.0]
    """

    _HAS_PARTIAL_FIT = True

    def __init__(self, engine: str = "auto", tol: float | None = None) -> None:
        self._set_parameters(locals())

    def _heads(self) -> tuple[Head, ...]:
        return (Head(1.0, Nearest(1.0)),)
