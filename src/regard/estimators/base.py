"""The base class of all estimators: ``fit`` turns parameters, X and y into a ``Smoother``; methods are functions of it.

An estimator declares its parameters, learns what was not given (``_learn``) and builds the heads of attention
(``_heads``). Everything else is here, in ``streams`` (rows that come and go), and in ``SmoothingRegressor`` and
``SmoothingClassifier``, as calls of functions of ``regard.model``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from regard.cluster.cluster_fit import fit_on_cluster
from regard.core.arrays import Array, is_chunked
from regard.core.problem import checked_weight
from regard.core.scores import Score
from regard.data.columns import Coding
from regard.estimators.callbacks import CallbackSupportMixin, callback_progress, with_callbacks
from regard.estimators.parameters import check_parameters, one_of, whole_number
from regard.estimators.streams import StreamMixin
from regard.estimators.validation import query_array, training_arrays
from regard.estimators.width import fixed_ridge, set_bandwidth
from regard.model.attended_rows import Attention, attend_top, checked_top
from regard.model.diagnosis import Diagnosis, diagnose, relevance
from regard.model.drift import Drift, Errors, Sample, compare
from regard.model.effects import METHODS, AverageEffects, average_effects, effect_errors, marginal_effects
from regard.model.explanation import Explanation, explain
from regard.model.loss_path import LossPath, loss_path
from regard.model.mapped import in_file
from regard.model.smoother import Answer, Head, RunOptions, Smoother, TrainingRows

T = TypeVar("T")

# Fitted attributes that are computed from the training rows when first needed.
DERIVED_ATTRIBUTES = ("residuals_", "standardised_residuals_", "spread_", "calibration_", "left_out_probabilities_")

# Attributes that determine the smoother.
SMOOTHER_SOURCES = (
    *("key_", "value_", "sample_weight_", "classes_", "coding_", "arrival_", "feature_names_in_", "missing"),
    *("kernel", "w_", "ridge_", "neighbours_"),
    *("heads_", "scaling_", "tempering_"),
    *("embed", "parameters_", "mean_", "scale_", "embedding_"),
)


# Decorators of methods that only some estimators have.
if_has_bandwidth: Callable[[T], T] = available_if(attrgetter("_HAS_BANDWIDTH"))
if_has_partial_fit: Callable[[T], T] = available_if(attrgetter("_HAS_PARTIAL_FIT"))


class SmoothingEstimator(StreamMixin, CallbackSupportMixin, BaseEstimator):  # type: ignore[misc]
    """Attention over training rows."""

    key_: Array  # (K, d)
    value_: Array  # (K,) or (K, P) numbers; (K,) class indices in a classifier
    sample_weight_: Array | None  # (K,) in the dtype given: integers are repetitions, floats importances
    arrival_: tuple[Array, int]  # ids of the rows, and how many rows there ever were; absent until a row is removed
    coding_: Coding  # of a mixed table

    # Defaults for estimators without the parameter.
    empty: Any = "raise"
    engine: Any = "auto"
    device: Any = "cpu"
    tol: Any = None
    random_state: Any = None
    missing: Any = "refuse"

    _HAS_BANDWIDTH: ClassVar[bool] = False
    _HAS_PARTIAL_FIT: ClassVar[bool] = False
    _ACCEPTS_MIXED_TABLES: ClassVar[bool] = False
    _IS_CLASSIFIER: ClassVar[bool] = False
    _EMPTY_CHOICES: ClassVar[tuple[str, ...]] = ("nearest", "nan", "raise")

    _make_rows: Callable[..., TrainingRows] | None = None  # for training rows in a file or on a cluster
    _file: Any = None  # the memory-mapped file of the arrays
    _smoother_cache: tuple[tuple[Any, ...], Smoother] | None = None  # values of SMOOTHER_SOURCES, and the smoother

    def _set_parameters(self, given: dict[str, Any]) -> None:
        """Set the parameters of ``__init__``, given as its ``locals()``."""
        self.__dict__.update((name, value) for name, value in given.items() if name != "self")

    # ---- fit

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Store the training rows and learn from them what was not given.

        Parameters
        ----------
        X : array-like, dataframe or dask collection of shape (K, d)
            Training rows: the keys.
        y : array-like of shape (K,) or (K, P); labels of shape (K,) for a classifier
            Their values.
        sample_weight : array-like of shape (K,), non-negative, default=None
            Integers are repetitions, floats are importances; a row of weight 0 is ignored.
        groups : array-like of shape (K,), default=None
            Group labels. While learning, a row is predicted from rows of other groups only.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If a parameter, X, y or a weight is not accepted; the message says what is.

        *Cost*: O(K·d) with a given bandwidth; learning takes some 50 to 200 passes of O(K²·d) each, see the class.
        Ctrl-C stops the search and keeps the best parameters so far, if there are any.
        """
        if not any(map(is_chunked, (X, y, sample_weight, groups))):
            return self._fit(X, y, sample_weight, groups)
        width = fit_on_cluster(self, X, y, sample_weight, groups, fixed_ridge(self), callback_progress)
        if width is not None:
            set_bandwidth(self, width)
        self._smoother  # noqa: B018  # cached now: predict must not change an estimator
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any, classes: Array | None = None) -> Self:
        """``fit`` of rows in memory; ``classes`` are given if rows of some of them are still to come."""
        self._check_parameters()
        key, target = training_arrays(self, X, y, labels=self._IS_CLASSIFIER)
        weight = checked_weight(sample_weight, len(key))
        value, found = self._encode_target(target, weight, classes)
        self._learn_without_gaps(key, value, weight, groups, None if found is None else len(found))
        for name in ("arrival_", "classes_given_"):
            self.__dict__.pop(name, None)  # of earlier rows
        if found is not None:
            self.classes_ = found
        self._smoother  # noqa: B018  # cached now: predict must not change an estimator
        return self

    def _encode_target(self, target: Array, weight: Array | None, classes: Array | None) -> tuple[Array, Array | None]:  # noqa: ARG002
        """y as stored, and the classes if y holds labels."""
        return target, None

    def _learn(self, key: Array, value: Array, weight: Array | None, groups: Any, classes: int | None) -> None:  # noqa: ARG002
        """Store the rows; estimators that learn override this."""
        if groups is not None:
            raise ValueError(f"groups must be None for {type(self).__name__}, which has nothing to learn")
        self._set_training_rows(key, value, weight)

    def _heads(self) -> tuple[Head, ...]:
        """The heads of attention, from the fitted attributes."""
        raise NotImplementedError

    def _rescale(self) -> None:
        """Recompute what depends on all rows but is not learned, after rows were removed."""

    def _learn_without_gaps(
        self, key: Array, value: Array, weight: Array | None, groups: Any, classes: int | None
    ) -> None:
        """``_learn`` from the rows without missing entries; then store all rows."""
        whole = np.asarray(~np.isnan(key).any(axis=1))
        if whole.all() or not isinstance(getattr(self, "bandwidth", "loo"), str):
            self._learn(key, value, weight, groups, classes)
            return
        learnable = whole if weight is None else whole & (weight > 0)
        if learnable.sum() < 2:
            raise ValueError(
                "missing='ignore' learns from rows without missing entries and needs at least 2 of them, got "
                f"{int(learnable.sum())}; drop the columns with most missing entries"
            )
        if groups is not None:
            groups = np.asarray(groups)
            if len(groups) != len(key):
                raise ValueError(f"groups must have one entry per row of X ({len(key)}), got {len(groups)}")
            groups = groups[whole]
        self._learn(key[whole], value[whole], None if weight is None else weight[whole], groups, classes)
        self._set_training_rows(key, value, weight)
        known = vars(self).get("loo_predictions_")
        if known is not None:
            self.loo_predictions_ = np.full((len(key), *known.shape[1:]), np.nan)
            self.loo_predictions_[whole] = known

    def _set_training_rows(self, key: Array, value: Array, sample_weight: Array | None) -> None:
        self.key_, self.value_, self.sample_weight_ = key, value, sample_weight
        for name in (*DERIVED_ATTRIBUTES, "_make_rows", "_smoother_cache"):
            self.__dict__.pop(name, None)  # of earlier rows

    @property
    def _smoother(self) -> Smoother:
        """The smoother of the fitted attributes, cached until one of them changes."""
        source, cache = tuple(vars(self).get(name) for name in SMOOTHER_SOURCES), self._smoother_cache
        if cache is None or any(new is not old for new, old in zip(source, cache[0], strict=True)):
            cache = self._smoother_cache = source, self._make_smoother()
        return cache[1]

    def _make_smoother(self) -> Smoother:
        fitted, names = vars(self), vars(self).get("feature_names_in_")
        rows = (self._make_rows or TrainingRows)(
            self.key_,
            self.value_,
            self.sample_weight_,
            fitted.get("classes_"),
            fitted.get("coding_"),
            gaps=self.missing == "ignore",
            names=tuple(map(str, [f"feature {j}" for j in range(self.n_features_in_)] if names is None else names)),
            ids=self.arrival_[0] if "arrival_" in fitted else None,
        )
        return Smoother(self._heads(), rows, tempering=fitted.get("tempering_"))

    @property
    def _configured_smoother(self) -> Smoother:
        """The smoother with the current parameters ``empty``, ``engine``, ``tol`` and ``device``."""
        if self._smoother_cache is None:
            check_is_fitted(self)
        self._check_file()
        return replace(self._smoother, empty=self.empty, run=RunOptions(self.engine, self.tol, self.device))

    def __sklearn_is_fitted__(self) -> bool:
        """Called by every public method before it reads an array."""
        self._check_file()
        return "key_" in vars(self)

    def _check_file(self) -> None:
        """Raise the error of ``MappedFile.check`` if an array is in a file that has changed.

        *Cost*: two system calls; none for a model in memory.
        """
        if self._file is not None and in_file(vars(self)):
            self._file.check()

    def __getstate__(self) -> dict[str, Any]:
        self._check_file()
        return {name: value for name, value in super().__getstate__().items() if name != "_smoother_cache"}

    def _check_parameters(self) -> None:
        check_parameters(self)

    def _seed(self) -> int:
        """Seed for subsampling rows: 0 if ``random_state`` is None."""
        return 0 if self.random_state is None else int(check_random_state(self.random_state).randint(2**31))

    # ---- answers

    def _query(self, X: Any) -> Array:
        """X as a validated array, of a fitted estimator."""
        check_is_fitted(self)
        return query_array(self, X)

    def _answer(self, query: Array) -> Answer:
        """The pooled values behind ``predict``."""
        return self._configured_smoother.answer(query)

    def _handle_empty_rows(self, found: tuple[T, Array]) -> T:
        """The first of ``found``, after a warning or an error if the second, (Q,) booleans, has empty rows.

        Called by public methods only, so that the warning points at their caller.
        """
        output, empty = found
        count = int(empty.sum())
        if not count or self.empty == "nan":
            return output
        counted = (
            f"{count} of {len(empty)} rows of X (the first is row {int(empty.argmax())}) "
            "have no training row within the bandwidth"
        )
        if self.empty == "raise":
            raise ValueError(f"{counted}; use a larger bandwidth, or empty='nearest' or 'nan'")
        used = "the nearest training row" if self.empty == "nearest" else "the class frequencies"
        warnings.warn(f"{counted}; {used} will be used (empty={self.empty!r})", UserWarning, stacklevel=3)
        return output

    @property
    def attention_score_(self) -> Score:
        """The score of ``regard.scores`` between a query and a key, in the coordinates of the head."""
        check_is_fitted(self)
        head, *others = self._smoother.heads
        if others:
            raise AttributeError("a mixture of heads has no single score; heads_ holds the w of each head")
        return head.score

    def attend(self, X: Any, top: int | None = None) -> Array | Attention:
        """Attention weights of the training rows for each row of X.

        weight[q, k] = softmax_k(score(X[q], training row k) + log sample_weight[k])

        Parameters
        ----------
        X : array-like or dataframe of shape (Q, d)
            Queries.
        top : int, default=None
            Return only this many most attended training rows per query. None returns all weights.

        Returns
        -------
        array (Q, K), or Attention(index, weight, mass)
            Weights, non-negative with rows summing to 1. With ``top``: positions of the most attended rows in
            decreasing order (ties by position), their weights, both (Q, top), and the sum of these (Q,). Rows of zero
            ``sample_weight`` are never attended to.

        *Empty rows*: according to ``empty``; with "nan" their weights are 0. *Cost*: O(Q·K·d) time; memory O(Q·K), or
        with ``top`` O(Q·top) and a tile of about 64 MB.

        >>> from regard import NearestKeyRegressor
        >>> NearestKeyRegressor().fit([[0.0], [1.0], [2.0]], [5.0, 6.0, 7.0]).attend([[1.5]]).tolist()
        [[0.0, 0.5, 0.5]]
        """
        query, smoother = self._query(X), self._configured_smoother
        if top is None:
            return self._handle_empty_rows(smoother.weights(query))
        return self._handle_empty_rows(attend_top(smoother, query, checked_top(top, len(self.key_))))

    def effective_weights(self, X: Any) -> Array:
        """Coefficients of the training values in each prediction, (Q, K): predict(X) = effective_weights(X) @ y.

        They sum to 1 for every row of X. For weighted averages they equal the weights of ``attend``; for local lines
        (``LocalLinearRegressor``, ``KernelRegressor``) they may be negative.

        Parameters
        ----------
        X : array-like or dataframe of shape (Q, d)
            Queries.

        Returns
        -------
        array (Q, K)

        *Empty rows*: as in ``attend``. *Cost*: O(Q·K·d) time per head and O(Q·K) memory.
        """
        return self._handle_empty_rows(self._configured_smoother.effective_weights(self._query(X)))

    def explain(self, X: Any, top: int = 5) -> Explanation:
        """The training rows behind each prediction, their weights in it, and what made them near.

        prediction = effective_weights @ y, computed exactly (tol = 0) regardless of ``engine`` and ``tol``. ``predict``
        agrees with it up to ``tol`` and rounding, which is 1e-12 unless a line extrapolates by hundreds of standard
        deviations.

        Parameters
        ----------
        X : array-like or dataframe of shape (Q, d)
            Queries.
        top : int, default=5
            Maximum number of training rows per query, the most attended ones.

        Returns
        -------
        Explanation
            A sequence of one ``Explained`` per row of X; ``print`` it, ``to_frame()`` gives a table, and
            ``regard.plot.ExplanationDisplay`` a figure. ``effective_weights`` has all (Q, K) weights. ``far`` is true
            for queries with no training row within the bandwidth, and for those farther from every training row than
            the kernel reaches (3 bandwidths; 4.6 for the Laplace kernel, 1 for compact kernels) and than twice the
            distance within which 90 % of the training rows have another. It is never true for ``NearestKeyRegressor``,
            which has no bandwidth, or for a learned score over an embedding, which is not a distance. For a classifier,
            ``prediction`` is the attention that each class holds, before calibration.

        *Empty rows*: according to ``empty``. *Cost*: O(Q·K·d) time, d² for local lines, and a tile of memory.

        >>> from regard import NadarayaWatsonRegressor
        >>> model = NadarayaWatsonRegressor(bandwidth=1.0).fit([[0.0], [1.0], [9.0]], [1.0, 2.0, 3.0])
        >>> first = model.explain([[0.1]])[0]
        >>> first.row.tolist(), first.effective.round(2).tolist()
        ([0, 1, 2], [0.6, 0.4, 0.0])
        """
        query = self._query(X)
        whole_number("top", top)
        return self._handle_empty_rows(explain(self._configured_smoother, query, int(top), self._to_predictions))

    # ---- effects

    @if_has_bandwidth
    def marginal_effects(self, X: Any) -> Array:
        """∂predict/∂x at every row of X: (Q, d), or (Q, P, d) if y has P columns.

        The exact derivative of ``predict``, including that of the weights, in units of y over units of X. It jumps at
        the knots of the piecewise linear scalings of ``KernelRegressor``.

        Parameters
        ----------
        X : array-like or dataframe of shape (Q, d)
            Where to differentiate.

        Returns
        -------
        array (Q, d) or (Q, P, d)

        *Empty rows*: 0, the derivative of the nearest training row's y; NaN with ``empty="nan"``. *Cost*: three times
        that of ``predict`` for every column of y.

        >>> from regard import LocalLinearRegressor
        >>> model = LocalLinearRegressor(bandwidth=1.0).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
        >>> model.marginal_effects([[0.5]]).round(12).tolist()
        [[2.0]]
        """
        query = self._query(X)
        return self._shaped(self._handle_empty_rows(marginal_effects(self._configured_smoother, query)), query)

    @if_has_bandwidth
    def effect_errors(self, X: Any, method: str = "derivative") -> Array:
        """Standard errors of the marginal effects at every row of X, in the same shape.

        √Σ_i (∂ℓ_i/∂x)²·residual_i² with effective weights ℓ and leave-one-out residuals; see ``regard.model.effects``.

        Parameters
        ----------
        X : array-like or dataframe of shape (Q, d)
            Where to differentiate.
        method : {"derivative", "slope"}, default="derivative"
            "derivative" for ``marginal_effects``; "slope" for the slopes of the local lines
            (``LocalLinearRegressor.slopes``, R's gradients), which is the same at degree 0.

        Returns
        -------
        array (Q, d) or (Q, P, d)

        *Empty rows*: 0. *Cost*: O(Q·K·d²) time and a tile; the residuals once, see ``residuals_``.
        """
        query = self._query(X)
        one_of(*METHODS)("method", method)
        return self._shaped(effect_errors(self._configured_smoother, query, method, self._left_out_errors()), query)

    @if_has_bandwidth
    def average_effects(self, X: Any = None, method: str = "derivative") -> AverageEffects:
        """Mean of the marginal effects over the rows of X, with its standard error; by default over the training rows.

        The standard error accounts for the correlation between effects at different rows. It is conditional on the rows
        of X: the variation from drawing other rows is not included. Training rows are weighted by ``sample_weight``.

        Parameters
        ----------
        X : array-like or dataframe of shape (Q, d), default=None
            Rows to average over; None is the training rows.
        method : {"derivative", "slope"}, default="derivative"
            As in ``effect_errors``.

        Returns
        -------
        AverageEffects
            ``effect`` and ``error``, (d,) or (P, d), ``names`` (d,) and ``rows``; ``print`` it.

        *Cost*: as ``effect_errors``.

        >>> from regard import LocalLinearRegressor
        >>> x = [[0.0], [1.0], [2.0], [3.0], [4.0]]
        >>> model = LocalLinearRegressor(bandwidth=2.0).fit(x, [1.0, 3.0, 5.0, 7.0, 9.0])
        >>> model.average_effects().effect.round(9).tolist()
        [2.0]
        """
        check_is_fitted(self)
        query = self.key_ if X is None else self._query(X)
        one_of(*METHODS)("method", method)
        weight = np.ones(len(query))
        if X is None and self.sample_weight_ is not None:
            weight = self.sample_weight_.astype(np.float64) / self.sample_weight_.max()
        weight, errors = weight / weight.sum(), self._left_out_errors()
        found = average_effects(self._configured_smoother, query, method, weight, errors)
        effect, error = (part[0] if self._smoother.rows.single else part for part in found)
        return AverageEffects(effect, error, self._smoother.rows.names, len(query))

    def _shaped(self, found: Array, query: Array) -> Array:
        """(Q, P, …) without the axis of outputs if y is one-dimensional."""
        single = self.value_.ndim == 1 and found.shape[1] == 1
        return np.asarray(found[:, 0] if single else found, query.dtype)

    # ---- evaluation

    @property
    def feature_relevance_(self) -> Array:
        """Relevance of each column for nearness, (d,), summing to 1: its fraction of Σ (w·standard deviation)².

        0 for a column that was smoothed out or is constant; all 0 if attention ignores every column.
        """
        check_is_fitted(self)
        if not self._HAS_BANDWIDTH:
            raise AttributeError(f"{type(self).__name__} has no bandwidth, so it has no feature_relevance_")
        found, coding = relevance(self._smoother), vars(self).get("coding_")
        if coding is None:
            return found
        sums = np.bincount(coding.part_of, found, len(coding.parts))
        return np.asarray(coding.by_column(sums / [len(part.columns) for part in coding.parts]))

    @if_has_bandwidth
    def diagnose(self) -> Diagnosis:
        """Whether attention is too thin (like a needle), too thick (like a river) or about right, and what to do.

        Compares the leave-one-out loss at the fitted w with that at the best multiple of it; ``print`` the result for a
        summary. Groups given to ``fit`` are not stored, so rows are left out one by one. Rows with missing entries are
        not evaluated; ``rows_with_gaps`` is their number.

        Returns
        -------
        Diagnosis
            ``verdict``, ``why`` and ``advice`` in words, and the numbers they follow from.

        *Cost*: O(min(K, 2,000)·K·d) for each of some 10 passes and each head, d² at degree 1.

        >>> from regard import NadarayaWatsonRegressor
        >>> x = np.linspace(0.0, 6.0, 40)[:, None]
        >>> NadarayaWatsonRegressor(bandwidth=5.0).fit(x, np.sin(x[:, 0])).diagnose().verdict
        'too thick'
        """
        return diagnose(self._smoother_with_one_bandwidth("diagnose"))

    @if_has_bandwidth
    def loss_path(self, multiples: Any) -> LossPath:
        """Training and leave-one-out loss with every w times each of some multiples.

        Losses are those of ``diagnose``, over rows without missing entries.

        Parameters
        ----------
        multiples : array-like of shape (M,)
            Positive factors of w.

        Returns
        -------
        LossPath
            ``multiple``, ``training`` and ``left_out``, each (M,).

        *Cost*: 2·M passes of O(min(K, 2,000)·K·d) for each head, d² at degree 1.
        """
        return loss_path(self._smoother_with_one_bandwidth("loss_path").objectives(), multiples)

    def _smoother_with_one_bandwidth(self, method: str) -> Smoother:
        smoother = self._configured_smoother
        if smoother.heads[0].neighbours is not None:
            raise ValueError(f"{method} needs a fixed bandwidth, but bandwidth='adaptive' varies from row to row")
        return smoother

    def drift(self, X: Any, y: Any, sample_weight: Any = None) -> Drift:
        """Test whether new rows are predicted worse than left-out training rows, and which features have moved.

        The model does not change: call it before ``partial_fit`` adds the rows.

        Parameters
        ----------
        X : array-like or dataframe of shape (m, d)
            New rows.
        y : array-like of shape (m,) or (m, P), or labels of shape (m,)
            Their values.
        sample_weight : array-like of shape (m,), default=None
            As in ``fit``.

        Returns
        -------
        Drift
            ``print`` it for a summary. ``worse`` and ``ratio`` concern errors, ``moved`` concerns X. With several
            outputs errors are relative to the mean left-out error of each.

        *Empty rows*: according to ``empty``; with "nan" they are left out. *Cost*: ``predict`` and ``explain`` of X,
        and the left-out residuals once.
        """
        query = self._query(X)
        weight = checked_weight(sample_weight, len(query))
        errors, far = self._drift_errors(X, y, query), self.explain(X, top=1).far
        return compare(self._smoother.rows, query, Sample.of(weight, len(query)), errors, far)

    # ---- defined by regressors and classifiers

    _to_predictions: Callable[[Array], Array]
    _left_out_errors: Callable[[], Array]
    _drift_errors: Callable[[Any, Any, Array], Errors]
