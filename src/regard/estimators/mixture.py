"""The estimators to use: several heads of attention, learned and mixed by leave-one-out."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from regard.bandwidth.distinct import distinct, expand_rows
from regard.bandwidth.head_search import HeadSearch, LearnedHead, learn_heads
from regard.bandwidth.scaling import Scaling
from regard.core.arrays import Array
from regard.core.scores import Gaussian
from regard.estimators.callbacks import watched
from regard.estimators.classifier import SmoothingClassifier
from regard.estimators.regressor import SmoothingRegressor
from regard.model.residual_scale import row_counts
from regard.model.smoother import Head, RunOptions, ScaledColumns
from regard.pooling.runner import small_matrices


def _learn_mixture(
    model: Any, key: Array, value: Array, weight: Array | None, groups: Any, classes: int | None
) -> None:
    """Remember the rows; learn scaling, metric, bandwidth and degree of every head, and their mix."""
    rows, target, weights, groups, place = distinct(key, value, weight, groups)
    options: dict[str, Any] = {
        "degree": model._DEGREE,
        "classes": classes,
        "sample_weight": weights,
        "groups": groups,
        "engine": RunOptions(model.engine, model.tol, model.device).options["engine"],
    }
    with small_matrices(), watched(model) as progress:
        found = learn_heads(rows.astype(np.float64), target, seed=model._seed(), progress=progress, **options)
    model._remember(key, value, weight)
    model.heads_, model.scaling_, model.search_ = found.heads, found.scaling, found.search
    answers = expand_rows(found.answer, place)
    model.loo_predictions_ = answers[:, 0] if value.ndim == 1 and classes is None else answers
    model.loo_score_ = found.score


def _mixture(model: Any) -> tuple[Head, ...]:
    """The heads of a fitted mixture."""
    return tuple(
        Head(head.weight, Gaussian(head.w), ScaledColumns(model.scaling_, head.share), model._DEGREE, head.ridge)
        for head in model.heads_
    )


def _rescale(model: Any) -> None:
    """Scalings of the columns from the rows there are, once some have left, as ``learn_heads`` makes them."""
    rows = model._smoother.rows.whole
    table = distinct(rows.key, rows.value, rows.sample_weight)
    model.scaling_ = Scaling.of(table.key.astype(np.float64), row_counts(table.weight, len(table.key)))


def _w(model: Any) -> Array:
    """Sharpness of attention per feature at its median, (d,), in 1/units of X: root mean square over the heads."""
    check_is_fitted(model)
    middle = np.nanmedian(model.key_.astype(np.float64), axis=0, keepdims=True)
    squares = []
    for head in model.heads_:
        size = np.linalg.norm(head.w, axis=1) if head.w.ndim == 2 else head.w
        squares.append(head.weight * (size * model.scaling_.slope(middle, head.share)[0]) ** 2)
    return np.asarray(np.sqrt(np.sum(squares, axis=0)))


def _bandwidth(model: Any) -> Array:
    """1/``w_``: how far attention reaches at each feature's median, in the units of X; inf where it is ignored."""
    coding = vars(model).get("coding_")
    if coding is not None:
        squares = np.bincount(coding.part_of, model.w_**2)
        return np.asarray(coding.bandwidth_of(np.sqrt(squares / np.bincount(coding.part_of))))
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / model.w_)


class KernelRegressor(SmoothingRegressor):
    """The regressor to use: local lines whose reach, scaling, metric and degree are learned by leave-one-out.

    predict(x) = Σ_h c_h·f_h(x), each head f_h a local line (see ``LocalLinearRegressor``) over columns scaled its own
    way, with one w per feature or a full matrix, and a learned ridge between a line and a mean; c on the simplex.

    There is nothing to set: units do not matter, skewed columns are scaled, features that do not help are looked at
    widely, and the choices are those that predict left-out rows well.

    Parameters
    ----------
    engine : "auto", or the name of an engine of ``regard.pool``, which then never falls back to another.
    tol : share of its attention mass a query may lose, see ``regard.pool``.
    random_state : seed of the batches of rows looked at where rows are many; None is a fixed seed, so that ``fit``
        always gives the same model.
    device : "cpu", or "cuda" to learn and to answer on a GPU by the fused programs; which rows were looked at is still
        computed on the CPU. Needs torch and Triton.

    Attributes
    ----------
    heads_ : the heads: weight c, share of the standard score in the scaling per column, w in scaled units, ridge λ.
    scaling_ : the columns' scalings, at most 1,000 knots each.
    bandwidth_, w_ : reach and its inverse per feature at the feature's median, in the units of X, (d,).
    feature_relevance_ : (d,) share of each feature in deciding what is near.
    loo_predictions_, loo_score_ : every row as the others predict it, and the R² of that.
    search_ : evaluations and path of the search.
    key_, value_, sample_weight_ : the training rows, (K, d), (K,) or (K, P), and (K,) or None.
    n_features_in_, feature_names_in_ : what ``fit`` saw; names only where X is a dataframe with text names.

    *Empty rows*: there are none. *Cost*: ``fit`` takes some hundred passes of O(min(K, 2,000)·K·d²) and one of
    O(K²·d²) per head, ``predict`` O(Q·K·d²) per head; memory O((Q·d + K)·d) and a tile.

    >>> import numpy as np
    >>> x = np.linspace(0.0, 3.0, 30)[:, None]
    >>> KernelRegressor().fit(x, np.sin(x[:, 0])).predict([[1.5]]).round(2).tolist()
    [1.0]
    """

    heads_: tuple[LearnedHead, ...]
    scaling_: Scaling
    loo_predictions_: Array
    loo_score_: float
    search_: HeadSearch

    _BANDWIDTH = _MIXED = True
    _DEGREE = 1
    _learn, _heads, _rescale = _learn_mixture, _mixture, _rescale
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
        self._set(locals())


class KernelClassifier(SmoothingClassifier):
    """The classifier to use: class probabilities whose reach, scaling and metric are learned by leave-one-out.

    predict_proba(x) = Σ_h c_h·p_h(x), each head p_h the share of attention that each class holds (see
    ``NadarayaWatsonClassifier``); all is chosen by the log-loss of left-out rows.

    Parameters and attributes as in ``KernelRegressor``, and
    calibrate : as in ``NadarayaWatsonClassifier``.
    classes_ : the labels that occur with a weight above zero, sorted.
    loo_predictions_, loo_score_ : every row's probabilities (K, classes) as the others predict them, and minus their
        log-loss.

    *Empty rows*: there are none. *Cost*: as ``KernelRegressor`` with d + classes for d².

    >>> model = KernelClassifier().fit([[0.0], [1.0], [2.0], [3.0]], ["cat", "cat", "dog", "dog"])
    >>> model.predict([[0.2], [2.9]]).tolist()
    ['cat', 'dog']
    """

    _BANDWIDTH = _MIXED = True
    _DEGREE = 0
    _learn, _heads, _rescale = _learn_mixture, _mixture, _rescale
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
        self._set(locals())
