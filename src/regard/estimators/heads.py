"""The estimators to use: several heads of attention, learned and mixed by leave-one-out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from regard.arrays import is_chunked
from regard.bandwidth.distinct import distinct, spread_out
from regard.bandwidth.heads import Head, HeadSearch, learn_heads
from regard.bandwidth.scaling import Scaling
from regard.bandwidth.shapes import spreads
from regard.data.columns import Coding
from regard.estimators.base import Array, KeyPooling
from regard.estimators.callbacks import CallbackSupportMixin, watched
from regard.estimators.classes import onehot
from regard.estimators.effects import WithEffects
from regard.estimators.explaining import values_of
from regard.estimators.gappy import whole_rows
from regard.estimators.judged import data_to_diagnose, most_relevant, rows_with_gaps
from regard.estimators.kernel_pooling import KernelPooling
from regard.estimators.lazily import lazy_answers
from regard.estimators.learning import LearningRegressor
from regard.estimators.local_linear import LocalLinearRegressor
from regard.estimators.mixed import MISSING, by_column, column_effects
from regard.estimators.nadaraya_watson import NadarayaWatsonRegressor
from regard.estimators.uncertain import UncertainRegressor
from regard.estimators.uncertain_classes import UncertainClassifier
from regard.inference import Diagnosis, Look, LossPath, diagnose, loss_path
from regard.runner import small_matrices
from regard.scores import Radial


class HeadPooling(WithEffects, CallbackSupportMixin, KeyPooling):  # type: ignore[misc]
    """Heads over the same keys: every answer is Σ weight·answer of a head."""

    heads_: tuple[Head, ...]
    scaling_: Scaling
    coding_: Coding  # where X is more than numbers
    loo_predictions_: Array
    loo_score_: float
    search_: HeadSearch

    _DEGREE = 0

    def __init__(
        self,
        engine: str = "auto",
        tol: float | None = None,
        random_state: Any = None,
        device: str = "cpu",
        kernel: Any = None,
        missing: str = "refuse",
    ) -> None:
        self.engine = engine
        self.tol = tol
        self.random_state = random_state
        self.device = device
        self.kernel = kernel
        self.missing = missing

    @property
    def attention_score_(self) -> Radial:
        raise AttributeError("a mix of heads has no single score; heads_ has the w of each")

    @property
    def w_(self) -> Array:
        """Sharpness of attention per feature at its median, (d,), in 1/units of X: root mean square over the heads."""
        check_is_fitted(self)
        middle = np.nanmedian(self.key_.astype(np.float64), axis=0, keepdims=True)
        squares = [
            head.weight * (_sizes(head.w) * self.scaling_.slope(middle, head.share)[0]) ** 2 for head in self.heads_
        ]
        return np.asarray(np.sqrt(np.sum(squares, axis=0)))

    @property
    def bandwidth_(self) -> Array:
        """1/``w_``: how far attention reaches at each feature's median, in the units of X; inf where it is ignored."""
        if hasattr(self, "coding_"):
            squares = np.bincount(self.coding_.part_of, self.w_**2)
            return np.asarray(self.coding_.bandwidth_of(np.sqrt(squares / np.bincount(self.coding_.part_of))))
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / self.w_)

    @property
    def feature_relevance_(self) -> Array:
        """How much each column decides about nearness, (d,), adding up to 1 over the heads' own scales."""
        return by_column(self, self._relevance())

    def _relevance(self) -> Array:
        check_is_fitted(self)
        key, counts = whole_rows(self)
        total = np.zeros(self.key_.shape[1])
        for head in self.heads_:
            reach = (_sizes(head.w) * spreads(self.scaling_(key, head.share), counts)) ** 2
            total += head.weight * (reach / reach.sum() if reach.any() else reach)
        return total

    def effective_weights(self, X: Any) -> Array:
        """What each training row's y counts in each prediction, (Q, K): predict(X) = effective_weights(X) @ y.

        May be negative, and adds up to 1. *Cost*: O(Q·K·d) time per head and O(Q·K) memory.
        """
        query = self._query(X)
        return np.asarray(sum(c * model.effective_weights(z) for c, model, z in self._scaled(query)), query.dtype)

    def marginal_effects(self, X: Any) -> Array:
        """∂predict/∂x at every row of X: (Q, d), or (Q, P, d) for several outputs; in the units of y over X.

        Scalings are straight between knots, so this jumps at a knot. *Cost*: as ``predict``, three times per output.
        """
        query = self._query(X)
        total: Any = 0.0
        for (c, model, z), head in zip(self._scaled(query), self.heads_, strict=True):
            slope = self.scaling_.slope(query, head.share)
            effects = model.marginal_effects(z)
            total = total + c * effects * (slope if effects.ndim == 2 else slope[:, None, :])
        if hasattr(self, "coding_"):
            part = total if total.ndim == 3 else total[:, None, :]
            whole = column_effects(self, query, part, lambda at: self._pooled(at, values_of(self))[0])
            total = whole if total.ndim == 3 else whole[:, 0]
        return np.asarray(total, query.dtype)

    def diagnose(self) -> Diagnosis:
        """Is the mixed attention too thin, too thick or about right; see ``NadarayaWatsonRegressor.diagnose``.

        *Cost*: O(min(K, 2,000)·K·d²) for each of some 10 passes and each head.
        """
        looks, key = self._looks()
        feature, name = most_relevant(self)
        return diagnose(looks, key[:, feature], name, rows_with_gaps=rows_with_gaps(self))

    def loss_path(self, multiples: Any) -> LossPath:
        """Training and left-out loss with every head's w times each of ``multiples`` (M,).

        Losses are those of ``diagnose``, of rows without gaps. *Cost*: 2·M passes of O(min(K, 2,000)·K·d²) for each
        head.
        """
        return loss_path(self._looks()[0], multiples)

    def _looks(self) -> tuple[list[Look], Array]:
        """The heads' attentions, and the keys in the units of X."""
        check_is_fitted(self)
        first = data_to_diagnose(self, degree=self._DEGREE)
        looks = [
            Look(head.weight, replace(first, key=self.scaling_(first.key, head.share)), head.w, head.ridge)
            for head in self.heads_
        ]
        return looks, first.key

    def _scaled(self, query: Array) -> Iterator[tuple[float, KernelPooling, Array]]:
        """Weight, estimator and scaled queries of every head."""
        for head in self.heads_:
            model = LocalLinearRegressor() if self._DEGREE else NadarayaWatsonRegressor()
            model.engine, model.tol, model.device = self.engine, self.tol, self.device
            key = self.scaling_(self.key_, head.share)
            model.key_, model.value_, model.sample_weight_ = key, self._values(), self.sample_weight_
            model.w_, model.ridge_, model.n_features_in_ = head.w, head.ridge, key.shape[1]
            model.missing = self.missing
            if hasattr(self, "coding_"):
                model._feature_parts = self.coding_.part_of
            yield head.weight, model, self.scaling_(query, head.share)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.missing not in MISSING:
            raise ValueError(f"missing must be one of {', '.join(map(repr, MISSING))}, got {self.missing!r}")
        if not (self.kernel is None or isinstance(self.kernel, Mapping | list | tuple)):
            raise ValueError(f"kernel must be None, or kernels of columns as a dict or a list, got {self.kernel!r}")

    def _values(self) -> Array:
        return self.value_

    def _averages(self, query: Array, value: Array) -> tuple[Array, Array]:
        total: Any = 0.0
        for c, model, z in self._scaled(query):
            output, _ = model._pooled(z, value.astype(np.float64))
            total = total + c * output
        return np.asarray(total, query.dtype), np.zeros(len(query), bool)

    def _weights(self, query: Array) -> tuple[Array, Array]:
        total = sum(c * model._weights(z)[0] for c, model, z in self._scaled(query))
        return np.asarray(total, query.dtype), np.zeros(len(query), bool)

    def _learn(self, key: Array, value: Array, weight: Array | None, groups: Any, classes: int | None = None) -> None:
        rows, target, weights, groups, place = distinct(key, value, weight, groups)
        options: dict[str, Any] = {
            "degree": self._DEGREE,
            "classes": classes,
            "sample_weight": weights,
            "groups": groups,
            "engine": self._engine,
        }
        with small_matrices(), watched(self) as progress:
            found = learn_heads(rows.astype(np.float64), target, seed=self._seed(), progress=progress, **options)
        self._remember(key, value, weight)
        self.heads_, self.scaling_, self.search_ = found.heads, found.scaling, found.search
        answers = spread_out(found.answer, place)
        self.loo_predictions_ = answers[:, 0] if value.ndim == 1 and classes is None else answers
        self.loo_score_ = found.score


class KernelRegressor(UncertainRegressor, HeadPooling, LearningRegressor):
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

    _DEGREE = 1


class KernelClassifier(UncertainClassifier, HeadPooling):
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
        super().__init__(engine, tol, random_state, device, kernel, missing)
        self.calibrate = calibrate

    def predict_proba(self, X: Any) -> Array:
        """Probability of each class, (Q, classes) in the order of ``classes_``; rows sum to 1."""
        if is_chunked(X):
            return lazy_answers(self, X, "predict_proba")
        query = self._query(X)
        return self._calibrated(self._answers(query)[0])

    def predict(self, X: Any) -> Array:
        """The most probable class of every row of X, (Q,); of equally probable ones the first in ``classes_``."""
        if is_chunked(X):
            return lazy_answers(self, X, "predict")
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def _values(self) -> Array:
        return onehot(self.value_, len(self.classes_))

    def _told_rows(self) -> Array:
        return self._values()


def _sizes(w: Array) -> Array:
    """Sharpness per feature: w itself, or the lengths of the rows of a matrix."""
    return np.linalg.norm(w, axis=1) if w.ndim == 2 else w
