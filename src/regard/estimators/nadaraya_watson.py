"""Nadaraya–Watson: attention pooling with a kernel of a given or learned bandwidth, for numbers and for classes."""

from __future__ import annotations

from typing import Any

from regard.estimators.classifier import SmoothingClassifier
from regard.estimators.regressor import SmoothingRegressor
from regard.estimators.width import kernel_heads, learn_width


class NadarayaWatsonRegressor(SmoothingRegressor):
    """A weighted average of y in which near training rows count most.

    predict(x) = Σ_k K(‖w∘(x − x_k)‖) y_k / Σ_k K(‖w∘(x − x_k)‖), w = 1/bandwidth

    Parameters
    ----------
    kernel : a name of ``regard.scores.KERNELS``: "gaussian", "epanechnikov", "boxcar", …; or kernels of the columns
        of a mixed table, as a dict by name or a list (docs/tables.md); text and categories have theirs already.
    bandwidth : "loo", "gcv", "aicc", "adaptive", number, (d,) numbers, "scott", "silverman" or "plugin"
        "loo" learns it: every row is answered by all others, and the bandwidth is the one with the least squared error.
        "gcv" and "aicc" charge for degrees of freedom instead. Features are compared in units of their spread, so
        that the units of X do not matter; the result is in the units of X.
        "adaptive" gives every row a bandwidth of its own, the distance to its k-th nearest training row (eight widths
        per doubling): wide where rows are sparse, narrow where they are dense. k is learned as "loo" learns.
        Numbers are in the units of X and above 0: nothing is rescaled, and inf ignores a feature.
        Rules give one number per feature, widened so that all kernels smooth alike; a constant feature is ignored.
        See ``regard.bandwidth.rules``.
    metric : "feature" learns one w per feature, "scalar" one for all, "full" a matrix (d, d).
    optimizer : "lbfgs", or "sgd" for the notes' recipe: five steps of plain gradient descent from a random w.
    empty : "nearest", "nan" or "raise"
        What a row of X gets with no training row in reach (only kernels that end at the bandwidth have such rows):
        the nearest one's y with a warning, NaN, or an error.
    engine : "auto", or the name of an engine of ``regard.pool``, which then never falls back to another.
    tol : share of its attention mass a query may lose, see ``regard.pool``.
    random_state : seed of the random w that "sgd" starts from, and of the rows looked at beyond 20,000; None always
        looks at the same.
    device : "cpu", or "cuda" to learn and to answer on a GPU by the fused programs; which rows were looked at is still
        computed on the CPU. Needs torch and Triton.

    missing : "refuse", or "ignore": rows are compared by the columns that both have (docs/tables.md).
    loss : "squared", or "absolute" for heavy tails: how left-out rows are judged while "loo" learns. One wild y then
        does not decide how far everybody looks; answers stay weighted averages.

    Attributes
    ----------
    bandwidth_, w_ : h and 1/h, numbers for one w, otherwise (d,); a matrix has ``w_`` only. Those of a row of middling
        width with "adaptive".
    neighbours_ : k of "adaptive".
    feature_relevance_ : (d,) share of each feature in deciding what is near.
    search_ : where a bandwidth was learned, what happened: path, evaluations, smoothed-out features, …
    loo_predictions_, loo_score_ : there too, every row as the others predict it, and the R² of that. Of more than
        200,000 rows 20,000 are predicted, the others are NaN.
    key_, value_, sample_weight_ : the training rows, (K, d), (K,) or (K, P), and (K,) or None.
    n_features_in_, feature_names_in_ : what ``fit`` saw; names only where X is a dataframe with text names.

    *Empty rows*: as ``empty`` says. *Cost*: ``predict`` takes O(Q·K·d) time, O(Q + K) memory and a tile.

    >>> model = NadarayaWatsonRegressor(bandwidth=1.0).fit([[-1.0], [1.0]], [2.0, 4.0])
    >>> model.predict([[0.0], [1e9]]).tolist()
    [3.0, 4.0]
    """

    _BANDWIDTH = _APPENDS = _MIXED = True
    _DEGREE = 0
    _learn, _heads = learn_width, kernel_heads

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
    ) -> None:
        self._set(locals())


class NadarayaWatsonClassifier(SmoothingClassifier):
    """Class probabilities: the share of attention that the training rows of each class hold.

    P(class c | x) = Σ_{k: y_k = c} K(‖w∘(x − x_k)‖) / Σ_k K(‖w∘(x − x_k)‖), w = 1/bandwidth

    Parameters
    ----------
    kernel, bandwidth, metric, optimizer, engine, tol, random_state, device : as in ``NadarayaWatsonRegressor``. "loo"
        goes by the log-loss of left-out probabilities, with a pinch of the class frequencies; "gcv" and "aicc" are for
        numbers.
    empty : "nearest", "prior", "nan" or "raise"
        What a row of X gets with no training row in reach: the nearest one's class with a warning, the class
        frequencies with a warning, NaN probabilities (``predict`` is then an error), or an error.
    calibrate : True learns a temperature and a share of the class frequencies from left-out rows, where that makes
        their log-loss smaller; see ``regard.model.calibration``.

    Attributes
    ----------
    classes_ : the labels that occur with a weight above zero, sorted.
    bandwidth_, w_, feature_relevance_, search_ : as in ``NadarayaWatsonRegressor``.
    loo_predictions_, loo_score_ : where a bandwidth was learned, every row's class probabilities (K, classes) as the
        others predict them, and minus their log-loss.
    key_, value_, sample_weight_ : the training rows, (K, d), (K,) positions in ``classes_``, and (K,) or None.
    n_features_in_, feature_names_in_ : what ``fit`` saw; names only where X is a dataframe with text names.

    *Empty rows*: as ``empty`` says. *Cost*: O(Q·K·(d + classes)) time, O((Q + K)·classes) memory and a tile.

    >>> model = NadarayaWatsonClassifier(bandwidth=1.0).fit([[-1.0], [1.0]], ["cat", "dog"])
    >>> model.predict_proba([[0.0]]).tolist(), model.predict([[0.1]]).tolist()
    ([[0.5, 0.5]], ['dog'])
    """

    _BANDWIDTH = _APPENDS = _MIXED = True
    _DEGREE = 0
    _EMPTY = ("nearest", "prior", "nan", "raise")
    _learn, _heads = learn_width, kernel_heads

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
    ) -> None:
        self._set(locals())
