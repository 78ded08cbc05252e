"""The recommended estimators: mixtures of several heads of attention, learned by leave-one-out."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from regard.bandwidth.distinct import distinct, expand_rows
from regard.bandwidth.head_search import learn_heads
from regard.bandwidth.learned_heads import HeadSearch, LearnedHead
from regard.bandwidth.scaling import Scaling
from regard.core.arrays import Array
from regard.core.scores import Gaussian
from regard.estimators.callbacks import callback_progress
from regard.estimators.classifier import SmoothingClassifier
from regard.estimators.regressor import SmoothingRegressor
from regard.model.residual_scale import row_counts
from regard.model.smoother import Head, RunOptions, ScaledColumns
from regard.pooling.runner import small_matrices


def _learn_mixture(
    model: Any, key: Array, value: Array, weight: Array | None, groups: Any, classes: int | None
) -> None:
    """Store the rows; learn the scaling, metric, bandwidth and ridge of every head, and the mixture weights."""
    rows, target, weights, groups, place = distinct(key, value, weight, groups)
    options: dict[str, Any] = {
        "degree": model._DEGREE,
        "classes": classes,
        "sample_weight": weights,
        "groups": groups,
        "engine": RunOptions(model.engine, model.tol, model.device).options["engine"],
    }
    with small_matrices(), callback_progress(model) as progress:
        found = learn_heads(rows.astype(np.float64), target, seed=model._seed(), progress=progress, **options)
    model._set_training_rows(key, value, weight)
    model.heads_, model.scaling_, model.search_ = found.heads, found.scaling, found.search
    if found.tempering is not None:
        model.tempering_ = found.tempering
    answers = expand_rows(found.answer, place)
    model.loo_predictions_ = answers[:, 0] if value.ndim == 1 and classes is None else answers
    model.loo_score_ = found.score


def _mixture_heads(model: Any) -> tuple[Head, ...]:
    """The heads of a fitted mixture."""
    return tuple(
        Head(head.weight, Gaussian(head.w), ScaledColumns(model.scaling_, head.share), model._DEGREE, head.ridge)
        for head in model.heads_
    )


def _rescale(model: Any) -> None:
    """Recompute scalings of columns and class frequencies as ``learn_heads`` does, after rows were removed."""
    rows = model._smoother.rows.whole
    table = distinct(rows.key, rows.value, rows.sample_weight)
    counts = row_counts(table.weight, len(table.key))
    model.scaling_ = Scaling.of(table.key.astype(np.float64), counts)
    if "tempering_" in vars(model):
        frequency = np.bincount(table.value, counts, len(model.classes_)) / counts.sum()
        model.tempering_ = model.tempering_._replace(frequency=frequency)


def _w(model: Any) -> Array:
    """1/bandwidth of each feature at its median, (d,), in 1/units of X: root mean square over the heads."""
    check_is_fitted(model)
    median = np.nanmedian(model.key_.astype(np.float64), axis=0, keepdims=True)
    squares = []
    for head in model.heads_:
        size = np.linalg.norm(head.w, axis=1) if head.w.ndim == 2 else head.w
        squares.append(head.weight * (size * model.scaling_.slope(median, head.share)[0]) ** 2)
    return np.asarray(np.sqrt(np.sum(squares, axis=0)))


def _bandwidth(model: Any) -> Array:
    """1/``w_``: the bandwidth of each feature at its median, in the units of X; inf for an ignored feature."""
    coding = vars(model).get("coding_")
    if coding is not None:
        squares = np.bincount(coding.part_of, model.w_**2)
        return np.asarray(coding.bandwidth_of(np.sqrt(squares / np.bincount(coding.part_of))))
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / model.w_)


class KernelRegressor(SmoothingRegressor):
    """The recommended regressor: a mixture of local lines, with everything learned by leave-one-out.

    predict(x) = Σ_h c_h·f_h(x), where each head f_h is a local line (see ``LocalLinearRegressor``) with its own scaling
    of the columns, one w per feature or a full matrix, and a ridge between a line and a mean; c_h ≥ 0, Σ c_h = 1.

    Nothing needs to be set: the units of X do not matter, skewed columns are transformed, irrelevant features get wide
    bandwidths. Predictions are linear in y with weights that sum to 1 but may be negative (``effective_weights``).

    Parameters
    ----------
    engine : str, default="auto"
        "auto", or the name of an engine of ``regard.pool``, which then is used without fallback: for predictions, and
        with more than 2,000 rows also for the search.
    tol : float, default=None
        Fraction of its attention mass that a query may lose; see ``regard.pool``.
    random_state : int, RandomState or None, default=None
        Seed of folds and subsamples of rows; None is a fixed seed.
    device : {"cpu", "cuda"}, default="cpu"
        "cuda" searches and predicts on a GPU, which needs torch and Triton.
    kernel : dict or list, default=None
        Kernels of the columns of a mixed table (docs/tables.md).
    missing : {"refuse", "ignore"}, default="refuse"
        "ignore" compares a row with the training rows that have all columns it has (docs/tables.md).

    Attributes
    ----------
    heads_ : tuple of records
        The heads: mixture weight c, weight of the standard score in the scaling of each column, w in scaled units,
        ridge λ. Up to 2,000 rows each kind of head occurs once for each fold that its search has left out.
    scaling_ : record
        The scalings of the columns, with at most 1,000 knots each.
    bandwidth_, w_ : arrays of shape (d,)
        Bandwidth of each feature at its median, in the units of X, and its inverse.
    loo_predictions_, loo_score_ : array of the shape of y, float
        Left-out predictions, and their R²: each row without itself and, up to 2,000 rows, by heads whose search has not
        seen it. With more than 20,000 rows those of a sample; the others are NaN.
    search_ : record
        Evaluations and path of the search.
    feature_relevance_ : array of shape (d,)
        Relevance of each feature for nearness, summing to 1.
    key_, value_, sample_weight_ : arrays of shapes (K, d), (K,) or (K, P), and (K,) or None
        The training rows.
    n_features_in_, feature_names_in_ : int, array of shape (d,)
        As in scikit-learn.

    *Empty rows*: there are none. *Cost*: ``fit`` takes some hundred passes of O(min(K, 2,000)²·d²), and with more
    rows some ten per head of O(min(K, 4,000)·K·d²), ``predict`` O(Q·K·d²) per head; memory O((Q·d + K)·d) and a tile.

    >>> import numpy as np
    >>> x = np.linspace(0.0, 3.0, 30)[:, None]
    >>> KernelRegressor().fit(x, np.sin(x[:, 0])).predict([[1.5]]).round(2).tolist()
    [0.99]
    """

    heads_: tuple[LearnedHead, ...]
    scaling_: Scaling
    loo_predictions_: Array
    loo_score_: float
    search_: HeadSearch

    _HAS_BANDWIDTH = _ACCEPTS_MIXED_TABLES = True
    _DEGREE = 1
    _learn, _heads, _rescale = _learn_mixture, _mixture_heads, _rescale
    w_, bandwidth_ = property(_w), property(_bandwidth)

    def __init__(
        self,
        engine: str = "auto",
        tol: float | None = None,
        random_state: Any = None,
        device: str = "cpu",
        kernel: Any = None,
        missing: str = "refuse",
    ) -> None:
        self._set_parameters(locals())


class KernelClassifier(SmoothingClassifier):
    """The recommended classifier: a mixture of kernel classifiers, with everything learned from left-out rows.

    predict_proba(x) = (1 − ε)·p^(1/T)/Σ p^(1/T) + ε·frequency, p = Σ_h c_h·p_h(x)

    Each head p_h is the attention that each class holds (see ``NadarayaWatsonClassifier``), with one w, one per
    feature, a full matrix, or in the projection onto the coefficients of a logistic regression. Rows that a search has
    not seen choose the mixture weights c, the temperature T and ε, so that no probability is surer than they support.

    Parameters
    ----------
    engine : str, default="auto"
        "auto", or the name of an engine of ``regard.pool``, which then is used without fallback: for predictions, and
        with more than 2,500 rows also for the search.
    tol : float, default=None
        Fraction of its attention mass that a query may lose; see ``regard.pool``.
    random_state : int, RandomState or None, default=None
        Seed of folds and subsamples of rows; None is a fixed seed.
    device : {"cpu", "cuda"}, default="cpu"
        "cuda" predicts on a GPU, which needs torch and Triton, and with more than 2,500 rows searches there too.
    calibrate : bool, default=False
        As in ``NadarayaWatsonClassifier``; rarely of use, since probabilities are tempered already.
    kernel : dict or list, default=None
        Kernels of the columns of a mixed table (docs/tables.md).
    missing : {"refuse", "ignore"}, default="refuse"
        "ignore" compares a row with the training rows that have all columns it has (docs/tables.md).

    Attributes
    ----------
    heads_, scaling_, bandwidth_, w_, search_ : as in ``KernelRegressor``
        What was learned; ``heads_`` are those of all rows.
    tempering_ : record
        Temperature T, ``frequency_weight`` ε and class frequencies.
    loo_predictions_, loo_score_ : array of shape (K, classes), float
        Left-out class probabilities, and minus their log-loss: up to 2,500 rows by heads whose search has not seen the
        row. With more rows those of a sample; the others are NaN.
    classes_ : array of shape (classes,)
        The sorted labels of rows of positive weight.
    value_ : array of shape (K,)
        Class indices of the training rows.
    feature_relevance_ : array of shape (d,)
        Relevance of each feature for nearness, summing to 1.
    key_, sample_weight_ : arrays of shapes (K, d), and (K,) or None
        The training rows and their weights.
    n_features_in_, feature_names_in_ : int, array of shape (d,)
        As in scikit-learn.

    *Empty rows*: there are none. *Cost*: ``fit`` takes some hundred passes of O(min(K, 2,500)²·d), d² for matrices, and
    with more rows some five per head of O(1,000·min(K, 20,000)·d); ``predict`` O(Q·K·(d + classes)) per head; memory
    O((Q + K)·(d + classes)) and a tile.

    >>> model = KernelClassifier().fit([[0.0], [1.0], [2.0], [3.0]], ["cat", "cat", "dog", "dog"])
    >>> model.predict([[0.2], [2.9]]).tolist()
    ['cat', 'dog']
    """

    _HAS_BANDWIDTH = _ACCEPTS_MIXED_TABLES = True
    _DEGREE = 0
    _learn, _heads, _rescale = _learn_mixture, _mixture_heads, _rescale
    w_, bandwidth_ = property(_w), property(_bandwidth)

    def __init__(
        self,
        engine: str = "auto",
        tol: float | None = None,
        random_state: Any = None,
        device: str = "cpu",
        calibrate: bool = False,
        kernel: Any = None,
        missing: str = "refuse",
    ) -> None:
        self._set_parameters(locals())
