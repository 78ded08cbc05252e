"""Nadaraya–Watson: attention pooling with a kernel of given or learned bandwidth, for regression and classification."""

from __future__ import annotations

from typing import Any

from regard.estimators.classifier import SmoothingClassifier
from regard.estimators.regressor import SmoothingRegressor
from regard.estimators.width import kernel_heads, learn_bandwidth


class NadarayaWatsonRegressor(SmoothingRegressor):
    """Nadaraya–Watson kernel regression: a weighted average of y, with weights that decrease with distance.

    predict(x) = Σ_k K(‖w∘(x − x_k)‖) y_k / Σ_k K(‖w∘(x − x_k)‖), w = 1/bandwidth

    Parameters
    ----------
    kernel : str, dict or list, default="gaussian"
        Name in ``regard.scores.KERNELS`` ("gaussian", "epanechnikov", "boxcar", …); or, for a mixed table, kernels of
        columns as a dict by name or a list (docs/tables.md). Text and categorical columns have default kernels.
    bandwidth : str, float or array-like of shape (d,), default="loo"
        - "loo" minimises the leave-one-out squared error; "gcv" and "aicc" penalise the degrees of freedom instead.
          The search works in units of the features' standard deviations, so the units of X do not matter; the result
          is in the units of X.
        - "adaptive": every row has its own bandwidth, the distance to its k-th nearest training row (rounded to eight
          steps per doubling): wide where rows are sparse, narrow where they are dense. k minimises the "loo" criterion.
        - Numbers are positive and in the units of X: nothing is rescaled, and inf ignores a feature.
        - "scott", "silverman" and "plugin" are rules that give one number per feature, scaled so that all kernels
          smooth alike; a constant feature is ignored. See ``regard.bandwidth.rules``.
    metric : {"feature", "scalar", "full"}, default="feature"
        Learn one w per feature, one for all, or a matrix (d, d).
    optimizer : {"lbfgs", "sgd"}, default="lbfgs"
        "sgd" is the notes' recipe: five steps of plain gradient descent from a random w.
    empty : {"nearest", "nan", "raise"}, default="nearest"
        Prediction for a row of X without training rows within the bandwidth, which only kernels of compact support
        have: the nearest training row's y with a warning, NaN, or an error.
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
        Loss of the "loo" criterion. "absolute" is robust to outliers in y; predictions remain weighted averages.
    neighbours : int or float, default=None
        k of "adaptive" as a whole number, or as a fraction of the training rows above 0 and below 1, also known as the
        span; None learns it.

    Attributes
    ----------
    bandwidth_, w_ : float or array of shape (d,)
        The bandwidth and its inverse; a matrix has ``w_`` only. With "adaptive", those of a row of typical width.
    neighbours_ : int
        k of "adaptive", learned or given.
    feature_relevance_ : array of shape (d,)
        Relevance of each feature for nearness, summing to 1.
    search_ : Search
        The search for a learned bandwidth: path, evaluations, smoothed-out features, …; see
        ``regard.bandwidth.Search``.
    loo_predictions_, loo_score_ : array of the shape of y, float
        Leave-one-out predictions with a learned bandwidth, and their R². Of more than 200,000 rows 20,000 are
        predicted, the others are NaN.
    key_, value_, sample_weight_ : arrays of shapes (K, d), (K,) or (K, P), and (K,) or None
        The training rows.
    n_features_in_, feature_names_in_ : int, array of shape (d,)
        As in scikit-learn.

    *Empty rows*: according to ``empty``. *Cost*: ``predict`` takes O(Q·K·d) time, O(Q + K) memory and a tile.

    >>> model = NadarayaWatsonRegressor(bandwidth=1.0).fit([[-1.0], [1.0]], [2.0, 4.0])
    >>> model.predict([[0.0], [1e9]]).tolist()
    [3.0, 4.0]
    """

    _HAS_BANDWIDTH = _HAS_PARTIAL_FIT = _ACCEPTS_MIXED_TABLES = True
    _DEGREE = 0
    _learn, _heads = learn_bandwidth, kernel_heads

    def __init__(
        self,
        kernel: Any = "gaussian",
        bandwidth: Any = "loo",
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


class NadarayaWatsonClassifier(SmoothingClassifier):
    """Nadaraya–Watson classification: the probability of a class is the attention that its training rows hold.

    P(class c | x) = Σ_{k: y_k = c} K(‖w∘(x − x_k)‖) / Σ_k K(‖w∘(x − x_k)‖), w = 1/bandwidth

    Parameters
    ----------
    kernel : str, dict or list, default="gaussian"
        Name in ``regard.scores.KERNELS``; or, for a mixed table, kernels of columns as a dict by name or a list
        (docs/tables.md).
    bandwidth : str, float or array-like of shape (d,), default="loo"
        As in ``NadarayaWatsonRegressor``; "loo" minimises the log-loss of leave-one-out probabilities, mixed with a
        small part of the class frequencies; "gcv" and "aicc" are for regression only.
    metric : {"feature", "scalar", "full"}, default="feature"
        Learn one w per feature, one for all, or a matrix (d, d).
    optimizer : {"lbfgs", "sgd"}, default="lbfgs"
        "sgd" is the notes' recipe: five steps of plain gradient descent from a random w.
    empty : {"nearest", "prior", "nan", "raise"}, default="nearest"
        Prediction for a row of X without training rows within the bandwidth: the nearest training row's class with a
        warning, the class frequencies with a warning, NaN probabilities (``predict`` then raises), or an error.
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
    neighbours : int or float, default=None
        k of "adaptive", or a fraction of the training rows; see ``NadarayaWatsonRegressor``.
    calibrate : bool, default=False
        Learn a temperature and a mixture with the class frequencies from left-out rows, if that reduces their log-loss;
        see ``regard.model.calibration``.

    Attributes
    ----------
    classes_ : array of shape (classes,)
        The sorted labels of rows of positive weight.
    bandwidth_, w_, neighbours_, feature_relevance_, search_ : as in ``NadarayaWatsonRegressor``
        What was learned.
    loo_predictions_, loo_score_ : array of shape (K, classes), float
        Leave-one-out class probabilities with a learned bandwidth, and minus their log-loss.
    value_ : array of shape (K,)
        Class indices of the training rows.
    key_, sample_weight_ : arrays of shapes (K, d), and (K,) or None
        The training rows and their weights.
    n_features_in_, feature_names_in_ : int, array of shape (d,)
        As in scikit-learn.

    *Empty rows*: according to ``empty``. *Cost*: O(Q·K·(d + classes)) time, O((Q + K)·classes) memory and a tile.

    >>> model = NadarayaWatsonClassifier(bandwidth=1.0).fit([[-1.0], [1.0]], ["cat", "dog"])
    >>> model.predict_proba([[0.0]]).tolist(), model.predict([[0.1]]).tolist()
    ([[0.5, 0.5]], ['dog'])
    """

    _HAS_BANDWIDTH = _HAS_PARTIAL_FIT = _ACCEPTS_MIXED_TABLES = True
    _DEGREE = 0
    _EMPTY_CHOICES = ("nearest", "prior", "nan", "raise")
    _learn, _heads = learn_bandwidth, kernel_heads

    def __init__(
        self,
        kernel: Any = "gaussian",
        bandwidth: Any = "loo",
        metric: str = "feature",
        optimizer: str = "lbfgs",
        empty: str = "nearest",
        engine: str = "auto",
        tol: float | None = None,
        random_state: Any = None,
        device: str = "cpu",
        missing: str = "refuse",
        calibrate: bool = False,
        neighbours: float | None = None,
    ) -> None:
        self._set_parameters(locals())
