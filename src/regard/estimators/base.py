"""What every estimator is: parameters in, a ``Smoother`` out of ``fit``, and what that says about X.

An estimator names its parameters, learns what was not given (``_learn``) and says which heads of attention follow
(``_heads``). All else is here and in ``SmoothingRegressor`` and ``SmoothingClassifier``, as calls of functions of
``regard.model``.
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
from regard.estimators.callbacks import CallbackSupportMixin, watched, with_callbacks
from regard.estimators.parameters import check_parameters, one_of, whole
from regard.estimators.streams import Aging, append_rows, begin_stream, keep_rows, rows_to_forget
from regard.estimators.validation import query_array, training_arrays
from regard.estimators.width import remember_width, ridge_to_learn
from regard.model.attended_rows import Attention, attend_top, checked_top
from regard.model.diagnosis import Diagnosis, diagnose, relevance
from regard.model.drift import Drift, Errors, Sample, compare
from regard.model.effects import METHODS, AverageEffects, average_effects, effect_errors, marginal_effects
from regard.model.explanation import Explanation, explain
from regard.model.loss_path import LossPath, loss_path
from regard.model.mapped import in_file
from regard.model.smoother import Answer, Head, RunOptions, Smoother, TrainingRows

T = TypeVar("T")

# Computed from the training rows when first needed.
DERIVED = ("residuals_", "standardised_residuals_", "spread_", "calibration_", "left_out_probabilities_")

# What a smoother is made from.
MADE_FROM = (
    *("key_", "value_", "sample_weight_", "classes_", "coding_", "arrival_", "feature_names_in_", "missing"),
    *("kernel", "w_", "ridge_", "neighbours_"),
    *("heads_", "scaling_"),
    *("embed", "parameters_", "mean_", "scale_", "embedding_"),
)


# Decorators of methods that only some estimators have.
if_bandwidth: Callable[[T], T] = available_if(attrgetter("_BANDWIDTH"))
if_appends: Callable[[T], T] = available_if(attrgetter("_APPENDS"))


class SmoothingEstimator(CallbackSupportMixin, BaseEstimator):  # type: ignore[misc]
    """Training rows, and attention over them."""

    key_: Array  # (K, d)
    value_: Array  # (K,) or (K, P) numbers; (K,) class numbers in a classifier
    sample_weight_: Array | None  # (K,) in the dtype given: integers are repetitions, floats importances
    arrival_: tuple[Array, int]  # numbers of the rows there are, and how many ever came; absent while none has left
    coding_: Coding  # where X is more than numbers

    # What an estimator without the parameter does.
    empty: Any = "raise"
    engine: Any = "auto"
    device: Any = "cpu"
    tol: Any = None
    random_state: Any = None
    missing: Any = "refuse"

    _BANDWIDTH: ClassVar[bool] = False  # whether there is a bandwidth to judge
    _APPENDS: ClassVar[bool] = False  # whether there is partial_fit
    _MIXED: ClassVar[bool] = False  # whether tables of more than numbers are accepted
    _LABELS: ClassVar[bool] = False  # whether y is labels
    _EMPTY: ClassVar[tuple[str, ...]] = ("nearest", "nan", "raise")

    _make_rows: Callable[..., TrainingRows] | None = None  # of training rows in a file or on a cluster
    _file: Any = None  # the file that arrays are in
    _made: tuple[tuple[Any, ...], Smoother] | None = None  # what the smoother was made from, and it

    def _set(self, given: dict[str, Any]) -> None:
        """The parameters of ``__init__``, its ``locals()``, each as the attribute of its name."""
        self.__dict__.update((name, value) for name, value in given.items() if name != "self")

    # ---- fit

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Remember the training rows and learn from them what was not given.

        Parameters
        ----------
        X : (K, d) array or dataframe, y : (K,) or (K, P) numbers, or (K,) labels for a classifier
        sample_weight : (K,), not negative. Integers count repetitions, floats are importances; 0 deletes the row.
        groups : (K,) labels. While learning, rows of one group do not see each other.

        Returns
        -------
        self. *Cost*: O(K·d) with a bandwidth given; learning takes some 50 to 200 passes of O(K²·d) each, see the
        class. Ctrl-C keeps the best so far, once there is one.
        """
        if not any(map(is_chunked, (X, y, sample_weight, groups))):
            return self._fit(X, y, sample_weight, groups)
        width = fit_on_cluster(self, X, y, sample_weight, groups, ridge_to_learn(self), watched)
        if width is not None:
            remember_width(self, width)
        self._smoother  # noqa: B018  # made here: predict must not change an estimator
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any, classes: Array | None = None) -> Self:
        """``fit``, with ``classes`` where they are known before the rows of all of them are."""
        self._check_parameters()
        key, target = training_arrays(self, X, y, labels=self._LABELS)
        weight = checked_weight(sample_weight, len(key))
        value, found = self._numbered(target, weight, classes)
        self._learn_without_gaps(key, value, weight, groups, None if found is None else len(found))
        for name in ("arrival_", "classes_given_"):
            self.__dict__.pop(name, None)  # they are of an earlier stream
        if found is not None:
            self.classes_ = found
        self._smoother  # noqa: B018  # made here: predict must not change an estimator
        return self

    def _numbered(self, target: Array, weight: Array | None, classes: Array | None) -> tuple[Array, Array | None]:  # noqa: ARG002
        """y as it is pooled, and the classes if it is labels."""
        return target, None

    def _learn(self, key: Array, value: Array, weight: Array | None, groups: Any, classes: int | None) -> None:  # noqa: ARG002
        """Remember the rows, and learn what was not given; an estimator with something to learn has its own."""
        if groups is not None:
            raise ValueError(f"groups are for learning, and {type(self).__name__} learns nothing from its rows")
        self._remember(key, value, weight)

    def _heads(self) -> tuple[Head, ...]:
        """The heads of attention that the fitted attributes mean."""
        raise NotImplementedError

    def _rescale(self) -> None:
        """Make anew what was made of all rows and is not learned, once some have left."""

    def _learn_without_gaps(
        self, key: Array, value: Array, weight: Array | None, groups: Any, classes: int | None
    ) -> None:
        """``_learn`` from the rows that lack nothing; then all rows are remembered."""
        whole = np.asarray(~np.isnan(key).any(axis=1))
        if whole.all() or not isinstance(getattr(self, "bandwidth", "loo"), str):
            self._learn(key, value, weight, groups, classes)
            return
        learnable = whole if weight is None else whole & (weight > 0)
        if learnable.sum() < 2:
            raise ValueError(
                f"missing='ignore' learns from the rows that lack nothing, and X has {int(learnable.sum())} of them; "
                "drop the columns with most gaps"
            )
        if groups is not None:
            groups = np.asarray(groups)
            if len(groups) != len(key):
                raise ValueError(f"groups must have one entry per row of X ({len(key)}), got {len(groups)}")
            groups = groups[whole]
        self._learn(key[whole], value[whole], None if weight is None else weight[whole], groups, classes)
        self._remember(key, value, weight)
        known = vars(self).get("loo_predictions_")
        if known is not None:
            self.loo_predictions_ = np.full((len(key), *known.shape[1:]), np.nan)
            self.loo_predictions_[whole] = known

    def _remember(self, key: Array, value: Array, sample_weight: Array | None) -> None:
        self.key_, self.value_, self.sample_weight_ = key, value, sample_weight
        for name in (*DERIVED, "_make_rows", "_made"):
            self.__dict__.pop(name, None)  # they are of the rows before

    @property
    def _smoother(self) -> Smoother:
        """The smoother that the fitted attributes mean; made once for as long as they stay what they are."""
        source = tuple(vars(self).get(name) for name in MADE_FROM)
        if self._made is None or any(new is not old for new, old in zip(source, self._made[0], strict=True)):
            self._made = source, self._make_smoother()
        return self._made[1]

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
        return Smoother(self._heads(), rows)

    @property
    def _asked(self) -> Smoother:
        """The smoother, computing and answering as the parameters say now."""
        if self._made is None:
            check_is_fitted(self)
        self._check_file()
        return replace(self._smoother, empty=self.empty, run=RunOptions(self.engine, self.tol, self.device))

    def __sklearn_is_fitted__(self) -> bool:
        """Asked by every public method, before it reads an array."""
        self._check_file()
        return "key_" in vars(self)

    def _check_file(self) -> None:
        """Raise the error of ``MappedFile.check`` if an array is in a file that is not what it was.

        *Cost*: two calls of the system; nothing for a model in memory.
        """
        if self._file is not None and in_file(vars(self)):
            self._file.check()

    def __getstate__(self) -> dict[str, Any]:
        self._check_file()
        return {name: value for name, value in super().__getstate__().items() if name != "_made"}

    def _check_parameters(self) -> None:
        check_parameters(self)

    def _seed(self) -> int:
        """Of the rows drawn where rows are many: always the same unless ``random_state`` says otherwise."""
        return 0 if self.random_state is None else int(check_random_state(self.random_state).randint(2**31))

    # ---- answers

    def _query(self, X: Any) -> Array:
        """X of a fitted estimator, checked."""
        check_is_fitted(self)
        return query_array(self, X)

    def _answer(self, query: Array) -> Answer:
        """What ``predict`` goes by, wherever the training rows are."""
        return self._asked.answer(query)

    def _reported(self, found: tuple[T, Array]) -> T:
        """The first of ``found``, after a warning or an error about empty rows (Q,), the second.

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
            raise ValueError(f"{counted}; widen bandwidth, or choose another empty= than 'raise'")
        answer = "the nearest training row" if self.empty == "nearest" else "the class frequencies"
        warnings.warn(f"{counted}; they are answered by {answer} (empty={self.empty!r})", UserWarning, stacklevel=3)
        return output

    @property
    def attention_score_(self) -> Score:
        """The score of ``regard.scores`` between a row of X and a training row, in the coordinates of its head."""
        check_is_fitted(self)
        head, *others = self._smoother.heads
        if others:
            raise AttributeError("a mix of heads has no single score; heads_ has the w of each")
        return head.score

    def attend(self, X: Any, top: int | None = None) -> Array | Attention:
        """Which training rows each row of X looks at.

        weight[q, k] = softmax_k(score(X[q], training row k) + log sample_weight[k])

        Parameters
        ----------
        X : (Q, d) array or dataframe
        top : None for all weights, or how many of the most attended training rows to show.

        Returns
        -------
        (Q, K) weights, not negative, rows summing to 1; or, with ``top``, ``Attention(index, weight, mass)``:
        the rows shown, best first (ties by smaller number), their weights out of all, and the sum of those shown.
        Row numbers are those of ``fit``'s X; rows of zero weight are never attended to.

        *Empty rows*: as ``empty`` says; with "nan" their weights are 0. *Cost*: O(Q·K·d) time; memory O(Q·K), or
        with ``top`` O(Q·top) and a tile of about 64 MB.

        >>> from regard import NearestKeyRegressor
        >>> NearestKeyRegressor().fit([[0.0], [1.0], [2.0]], [5.0, 6.0, 7.0]).attend([[1.5]]).tolist()
        [[0.0, 0.5, 0.5]]
        """
        query, smoother = self._query(X), self._asked
        if top is None:
            return self._reported(smoother.weights(query))
        return self._reported(attend_top(smoother, query, checked_top(top, len(self.key_))))

    def effective_weights(self, X: Any) -> Array:
        """What each training row's y counts in each prediction, (Q, K): predict(X) = effective_weights(X) @ y.

        ``attend`` says how near a row is, this how much it moves the answer. The two agree for weighted averages; for
        local lines these may be negative, and still add up to 1.

        *Empty rows*: as ``attend``. *Cost*: O(Q·K·d) time per head and O(Q·K) memory.
        """
        return self._reported(self._asked.effective_weights(self._query(X)))

    def explain(self, X: Any, top: int = 5) -> Explanation:
        """Which training rows each prediction comes from, what they count, and what made them near.

        prediction = effective_weights @ y, all of it computed exactly (tol = 0), whatever ``engine`` and ``tol`` say;
        ``predict`` is off from it by its tolerance at most, and by its rounding: 1e-12 unless a line is drawn hundreds
        of deviations beyond the rows it was fitted to.

        Parameters
        ----------
        X : (Q, d) array or dataframe
        top : of how many training rows to tell at most, the most attended first.

        Returns
        -------
        Explanation: iterate over it for one ``Explained`` per row of X, print it for words, ``to_frame()`` for a table,
        ``regard.plot.ExplanationDisplay`` for a picture. ``effective_weights`` has all (Q, K) of them. ``far`` says of
        each query whether nobody is in reach, or all training rows are farther than 3 bandwidths (4.6 for the Laplace
        kernel, 1 for those that end there) and farther than twice what nine of ten training rows have to another one.
        Nearest keys have no bandwidth, and a learned score over an embedding no distance: they are never ``far``.
        In a classifier ``prediction`` has the share of attention of each class, before ``calibrate`` changes it.

        *Empty rows*: as ``empty`` says. *Cost*: O(Q·K·d) time, d² for local lines, and a tile of memory.

        >>> from regard import NadarayaWatsonRegressor
        >>> told = NadarayaWatsonRegressor(bandwidth=1.0).fit([[0.0], [1.0], [9.0]], [1.0, 2.0, 3.0]).explain([[0.1]])
        >>> told[0].row.tolist(), told[0].effective.round(2).tolist()
        ([0, 1, 2], [0.6, 0.4, 0.0])
        """
        query = self._query(X)
        whole("top", top)
        return self._reported(explain(self._asked, query, int(top), self._decided))

    # ---- effects

    @if_bandwidth
    def marginal_effects(self, X: Any) -> Array:
        """∂predict/∂x at every row of X: (Q, d), or (Q, P, d) where y has P columns.

        The derivative of the very function that ``predict`` computes, weights and all, in the units of y over X. The
        scalings of ``KernelRegressor`` are straight between knots, so there it jumps at a knot.

        *Empty rows*: 0, as the nearest training row's y does not move; NaN with ``empty="nan"``. *Cost*: as
        ``predict``, three times for every column of y.

        >>> from regard import LocalLinearRegressor
        >>> model = LocalLinearRegressor(bandwidth=1.0).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
        >>> model.marginal_effects([[0.5]]).round(12).tolist()
        [[2.0]]
        """
        query = self._query(X)
        return self._shaped(self._reported(marginal_effects(self._asked, query)), query)

    @if_bandwidth
    def effect_errors(self, X: Any, method: str = "derivative") -> Array:
        """Standard errors of the marginal effects at every row of X, shaped as those.

        √Σ_i (∂ℓ_i/∂x)²·residual_i², ℓ the effective weights and residuals left out; ``regard.model.effects``.

        Parameters
        ----------
        X : (Q, d) array or dataframe
        method : "derivative" for ``marginal_effects``, the derivative of the prediction; "slope" for the slopes of the
            local lines (``LocalLinearRegressor.slopes``, R's gradients), which at degree 0 are the same.

        *Empty rows*: 0, as nothing moves. *Cost*: O(Q·K·d²) time and a tile; residuals once, see ``residuals_``.
        """
        query = self._query(X)
        one_of(*METHODS)("method", method)
        return self._shaped(effect_errors(self._asked, query, method, self._errors_of_rows()), query)

    @if_bandwidth
    def average_effects(self, X: Any = None, method: str = "derivative") -> AverageEffects:
        """Mean of the marginal effects over the rows of X, with its standard error; by default over the training rows.

        Errors of neighbouring rows go together, and the standard error of the mean knows it. It is for these rows of X;
        that other ones might have been drawn is not in it. Training rows count by their weights.

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
        share = np.ones(len(query))
        if X is None and self.sample_weight_ is not None:
            share = self.sample_weight_.astype(np.float64) / self.sample_weight_.max()
        found = average_effects(self._asked, query, method, share / share.sum(), self._errors_of_rows())
        effect, error = (part[0] if self._smoother.rows.single else part for part in found)
        return AverageEffects(effect, error, self._smoother.rows.names, len(query))

    def _shaped(self, found: Array, query: Array) -> Array:
        """(Q, P, …) without the axis of outputs where y has one column."""
        single = self.value_.ndim == 1 and found.shape[1] == 1
        return np.asarray(found[:, 0] if single else found, query.dtype)

    # ---- judging it

    @property
    def feature_relevance_(self) -> Array:
        """How much each column decides about nearness, (d,), adding up to 1: its share of Σ (w·spread)².

        0 for a column that was smoothed out or does not vary; all 0 where attention ignores every one.
        """
        check_is_fitted(self)
        if not self._BANDWIDTH:
            raise AttributeError(f"{type(self).__name__} has no bandwidth, and so no relevance of features")
        shares, coding = relevance(self._smoother), vars(self).get("coding_")
        if coding is None:
            return shares
        sums = np.bincount(coding.part_of, shares, len(coding.parts))
        return np.asarray(coding.by_column(sums / [len(part.columns) for part in coding.parts]))

    @if_bandwidth
    def diagnose(self) -> Diagnosis:
        """Is attention too thin (like a needle), too thick (like a river) or about right, and what to do about it.

        Left-out rows are the judge: their error with this w, and with the best multiple of it. Printing the result
        tells it in words. Groups given to ``fit`` are not known any more: every row is left out on its own. Rows with
        gaps are not judged; ``rows_with_gaps`` says how many.

        *Cost*: O(min(K, 2,000)·K·d) for each of some 10 passes and each head, d² at degree 1.

        >>> from regard import NadarayaWatsonRegressor
        >>> x = np.linspace(0.0, 6.0, 40)[:, None]
        >>> NadarayaWatsonRegressor(bandwidth=5.0).fit(x, np.sin(x[:, 0])).diagnose().verdict
        'too thick'
        """
        return diagnose(self._of_one_width("diagnose"))

    @if_bandwidth
    def loss_path(self, multiples: Any) -> LossPath:
        """Training and left-out loss with every w times each of ``multiples`` (M,): what another width would have cost.

        Losses are those of ``diagnose``, of rows without gaps. *Cost*: 2·M passes of O(min(K, 2,000)·K·d) for each
        head, d² at degree 1.
        """
        return loss_path(self._of_one_width("loss_path").objectives(), multiples)

    def _of_one_width(self, method: str) -> Smoother:
        smoother = self._asked
        if smoother.heads[0].neighbours is not None:
            raise ValueError(f"{method} judges one bandwidth, and bandwidth='adaptive' has one for every row")
        return smoother

    # ---- streams

    @property
    def row_ids_(self) -> Array:
        """Number of every training row (K,) in order of arrival, from 0 at ``fit``; ``partial_fit`` counts on.

        A row keeps its number when others leave, and no number is ever given twice.
        """
        check_is_fitted(self)
        return self.arrival_[0] if "arrival_" in vars(self) else np.arange(len(self.key_))

    def forget(self, ids: Any) -> Self:
        """Remove training rows, as if they had never come.

        With a bandwidth given as numbers the result is ``fit`` on the rows that are left. What was learned stays as it
        was learned, from rows of which some are gone now: bandwidth, ridge, heads, parameters of a score. Everything
        else is made anew without them: the scaling of columns, left-out predictions and residuals (when next asked
        for), calibration, and classes of which no row is left, unless ``partial_fit`` was told them. Left-out
        predictions, losses and the course of a search are gone. Copies, files and explanations made before are not
        reached: make them again.

        Parameters
        ----------
        ids : numbers as in ``row_ids_``; one that is not there is an error, and nothing is removed.

        Returns
        -------
        self. *Cost*: O(K·d), a copy of what is left.

        >>> from regard import AveragePoolingRegressor
        >>> model = AveragePoolingRegressor().fit([[0.0], [1.0], [2.0]], [1.0, 5.0, 9.0]).forget([1]).forget([2])
        >>> model.predict([[0.0]]).tolist(), model.row_ids_.tolist()
        ([1.0], [0])
        """
        gone = rows_to_forget(ids, self.row_ids_)
        if gone.any():
            keep_rows(self, np.flatnonzero(~gone))
        return self

    def _partial_fit(
        self, X: Any, y: Any, classes: Any, sample_weight: Any, window: int | None, forgetting: float | None
    ) -> None:
        """``partial_fit`` of regressors and of classifiers."""
        aging = Aging.of(window, forgetting)
        if "key_" not in vars(self):
            begin_stream(self, aging, X, y, classes, sample_weight)
            return
        check_is_fitted(self)
        self._check_parameters()
        append_rows(self, aging, X, y, classes, sample_weight)

    def drift(self, X: Any, y: Any, sample_weight: Any = None) -> Drift:
        """Whether new rows are predicted worse than left-out training rows were, and which features have moved.

        Nothing is learned from them: ask before ``partial_fit`` takes them.

        Parameters
        ----------
        X : (m, d) array or dataframe, y : (m,) or (m, P) numbers, or (m,) labels
        sample_weight : (m,) or None, as in ``fit``.

        Returns
        -------
        Drift; print it to read it. ``worse`` and ``ratio`` are about errors, ``moved`` about X. With several outputs
        errors are relative to each one's usual size.

        *Empty rows*: as ``empty`` answers them; with "nan" they are left out. *Cost*: ``predict`` and ``explain`` of X,
        and the left-out residuals once.
        """
        query = self._query(X)
        weight = checked_weight(sample_weight, len(query))
        errors, far = self._drift_errors(X, y, query), self.explain(X, top=1).far
        return compare(self._smoother.rows, query, Sample.of(weight, len(query)), errors, far)

    # ---- of regressors and of classifiers

    _decided: Callable[[Array], Array]
    _errors_of_rows: Callable[[], Array]
    _drift_errors: Callable[[Any, Any, Array], Errors]
