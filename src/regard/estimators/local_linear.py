"""Local linear regression: a weighted least-squares line at every query instead of a weighted mean."""

from __future__ import annotations

from typing import Any

from regard.core.arrays import Array
from regard.estimators.regressor import SmoothingRegressor
from regard.estimators.width import kernel_heads, learn_bandwidth
from regard.model.effects import slopes


class LocalLinearRegressor(SmoothingRegressor):
    """Local linear regression: the intercept at x of a line fitted by least squares weighted by the kernel.

    predict(x) = a, (a, b) = argmin Σ_k α_k (y_k − a − b·(x_k − x))² + λ‖b/w‖², α = attend(x), w = 1/bandwidth

    It avoids the bias of a weighted mean at the edges of the data and wherever rows lie to one side. Predictions are
    linear in y with weights that sum to 1 but may be negative (``effective_weights``): they may exceed the range of y.

    Parameters
    ----------
    ridge : float or "loo", default=0.0
        λ ≥ 0, or "loo" to learn it with the bandwidth. 0 is the plain local line; for large λ the prediction is the
        weighted mean of ``NadarayaWatsonRegressor``.
    kernel, bandwidth, metric, optimizer, empty, engine, tol, random_state, device, missing, loss, neighbours :
        as in ``NadarayaWatsonRegressor``.

    Attributes
    ----------
    ridge_ : float
        λ.
    bandwidth_, w_, neighbours_, feature_relevance_, search_, loo_predictions_, loo_score_, key_, value_,
        sample_weight_, n_features_in_, feature_names_in_ : as in ``NadarayaWatsonRegressor``.

    *Empty rows*: according to ``empty``. If the rows within the bandwidth do not span every direction, the slope of
    least norm is used. *Far rows*: where a line would extrapolate beyond 10⁴ standard deviations of these rows (10⁷
    with a ridge), the prediction is their weighted mean; up to there, rounding changes slopes by a part in 10⁸ or less.
    Features may range from 10⁻¹⁵⁰ to 10¹⁵⁰. *Cost*: ``predict`` takes O(Q·K·d²) time, O((Q·d + K)·d) memory and a tile.

    >>> model = LocalLinearRegressor(bandwidth=1.0).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> model.predict([[0.5], [3.0]]).round(12).tolist()
    [2.0, 7.0]
    """

    _HAS_BANDWIDTH = _HAS_PARTIAL_FIT = _ACCEPTS_MIXED_TABLES = True
    _DEGREE = 1
    _learn, _heads = learn_bandwidth, kernel_heads

    def __init__(
        self,
        kernel: Any = "gaussian",
        bandwidth: Any = "loo",
        ridge: Any = 0.0,
        metric: str = "feature",
        optimizer: str = "lbfgs",
        empty: str = "nearest",
        engine: str = "auto",
        tol: float | None = None,
        random_state: Any = None,
        device: str = "cpu",
        missing: str = "refuse",
        loss: str = "squared",
        neighbours: float | None = None,
    ) -> None:
        self._set_parameters(locals())

    def slopes(self, X: Any) -> Array:
        """Slopes b of the lines at every row of X: (Q, d), or (Q, P, d) if y has P columns.

        R calls them the gradient of a local linear fit. ``marginal_effects`` is the derivative of the predictions,
        including that of the weights. *Empty rows*: 0, or NaN with ``empty="nan"``. *Cost*: as ``predict``.
        """
        query = self._query(X)
        return self._shaped(self._handle_empty_rows(slopes(self._configured_smoother, query)), query)
