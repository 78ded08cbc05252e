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
    kernel : str, dict or list, default="gaussian"
        Name in ``regard.scores.KERNELS``; or, for a mixed table, kernels of columns as a dict by name or a list
        (docs/tables.md).
    bandwidth : str, float or array-like of shape (d,), default="loo"
        "loo", "gcv", "aicc", "adaptive", "scott", "silverman", "plugin", or numbers in the units of X; see
        ``NadarayaWatsonRegressor``.
    ridge : float or "loo", default=0.0
        λ ≥ 0, or "loo" to learn it with the bandwidth. 0 is the plain local line; for large λ the prediction is the
        weighted mean of ``NadarayaWatsonRegressor``.
    metric : {"feature", "scalar", "full"}, default="feature"
        Learn one w per feature, one for all, or a matrix (d, d).
    optimizer : {"lbfgs", "sgd"}, default="lbfgs"
        "sgd" is the notes' recipe: five steps of plain gradient descent from a random w.
    empty : {"nearest", "nan", "raise"}, default="nearest"
        Prediction for a row of X without training rows within the bandwidth: the nearest training row's y with a
        warning, NaN, or an error.
    engine : str, default="auto"
        "auto", or the name of an engine of ``regard.pool``, which then is used without fallback.
    tol : float, default=None
        Fraction of its attention mass that a query may lose; see ``regard.pool``.
    random_state : int, RandomState or None, default=None
        Seed of the initial w of "sgd", and of the subsample of rows beyond 20,000; None is a fixed seed for the latter.
    device : {"cpu", "cuda"}, default="cpu"
        "cuda" learns and predicts on a GPU, which needs torch and Triton. ``attend`` is always computed on the CPU.
    missing : {"refuse", "ignore"}, default="refuse"
        "ignore" compares a row with the training rows that have all columns it has (docs/tables.md).
    loss : {"squared", "absolute"}, default="squared"
        Loss of the "loo" criterion. "absolute" is robust to outliers in y; predictions remain linear in y.
    neighbours : int or float, default=None
        k of "adaptive", or a fraction of the training rows; see ``NadarayaWatsonRegressor``.

    Attributes
    ----------
    ridge_ : float
        λ.
    bandwidth_, w_ : float or array of shape (d,)
        The bandwidth and its inverse; a matrix has ``w_`` only.
    neighbours_, feature_relevance_, search_, loo_predictions_, loo_score_ : as in ``NadarayaWatsonRegressor``
        What was learned, and left-out predictions.
    key_, value_, sample_weight_ : arrays of shapes (K, d), (K,) or (K, P), and (K,) or None
        The training rows.
    n_features_in_, feature_names_in_ : int, array of shape (d,)
        As in scikit-learn.

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
        """Slopes b of the lines at every row of X.

        R calls them the gradient of a local linear fit. ``marginal_effects`` is the derivative of the predictions,
        including that of the weights.

        Parameters
        ----------
        X : array-like or dataframe of shape (Q, d)
            Queries.

        Returns
        -------
        array (Q, d) or (Q, P, d)

        *Empty rows*: 0, or NaN with ``empty="nan"``. *Cost*: as ``predict``.
        """
        query = self._query(X)
        return self._shaped(self._handle_empty_rows(slopes(self._configured_smoother, query)), query)
