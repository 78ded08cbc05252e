"""Local lines: a weighted least-squares line at every query instead of a weighted mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.core.arrays import Array
from regard.estimators.regressor import SmoothingRegressor
from regard.estimators.width import kernel_heads, learn_width
from regard.model.effects import slopes


class LocalLinearRegressor(SmoothingRegressor):
    """The height of a line fitted to the training rows around x, near ones counting most.

    predict(x) = a of the least Σ_k α_k (y_k − a − b·(x_k − x))² + λ‖b/w‖², α = softmax of the score, w = 1/bandwidth

    At the edges of the data, and wherever rows lie to one side, a weighted mean is drawn towards them; a line is not.

    Parameters
    ----------
    ridge : λ ≥ 0, or "loo" to learn it with the bandwidth. 0 is the plain local line, which follows the rows in reach
        wherever they point; a large λ is the weighted mean of ``NadarayaWatsonRegressor``.
    kernel, bandwidth, metric, optimizer, empty, engine, tol, random_state, device : as in ``NadarayaWatsonRegressor``.

    Attributes
    ----------
    ridge_ : λ.
    bandwidth_, w_, feature_relevance_, search_, loo_predictions_, loo_score_, key_, value_, sample_weight_,
        n_features_in_, feature_names_in_ : as in ``NadarayaWatsonRegressor``.

    *Empty rows*: as ``empty`` says. Where the rows in reach do not span every direction, the line is the one of least
    norm. *Far rows*: a line that would reach beyond 10⁴ times the spread of the rows in reach (10⁷ with a ridge) is
    flat, their weighted mean; until there rounding moves slopes by a part in 10⁸ or less. Features may span 10⁻¹⁵⁰ to
    10¹⁵⁰. *Cost*: ``predict`` takes O(Q·K·d²) time, O((Q·d + K)·d) memory and a tile.

    >>> model = LocalLinearRegressor(bandwidth=1.0).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> model.predict([[0.5], [3.0]]).round(12).tolist()
    [2.0, 7.0]
    """

    _BANDWIDTH = _APPENDS = _MIXED = True
    _DEGREE = 1
    _learn, _heads = learn_width, kernel_heads

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
    ) -> None:
        self._set(locals())

    def slopes(self, X: Any) -> Array:
        """Slopes b of the lines at every row of X: (Q, d), or (Q, P, d) where y has P columns.

        What R calls the gradient of a local-linear fit. ``marginal_effects`` is the derivative of the predictions, in
        which the weights move too. *Empty rows*: 0, or NaN with ``empty="nan"``. *Cost*: as ``predict``.
        """
        query = self._query(X)
        slope = self._reported(slopes(self._asked, query))
        return np.asarray(slope[:, 0] if self.value_.ndim == 1 else slope, query.dtype)
