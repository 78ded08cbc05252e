"""``partial_fit``: more training rows for an estimator that has some, without copying those each time."""

from __future__ import annotations

from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples, check_is_fitted

from regard.bandwidth.rules import checked_weight
from regard.estimators.base import Array, KeyPooling, KeyPoolingRegressor
from regard.estimators.callbacks import with_callbacks
from regard.estimators.classes import numbered
from regard.estimators.forgetting import keep_rows
from regard.estimators.inputs import training_arrays
from regard.estimators.learning import LearningClassifier


class Room:
    """Where rows are appended to: room that doubles, so that n rows cost O(n) however many times they come."""

    def __init__(self) -> None:
        self._array: Array | None = None
        self._used = 0

    def extended(self, rows: Array, more: Array) -> Array:
        """Both one below the other; in place if ``rows`` is what this room gave last."""
        total, dtype = len(rows) + len(more), np.result_type(rows, more)
        array = self._array
        # A copy of the estimator shares its room: whoever appends second must not write over what the first wrote.
        mine = array is not None and rows.base is array and len(rows) == self._used
        if array is None or not mine or total > len(array) or array.dtype != dtype:
            array = self._array = np.empty((max(total, 2 * len(rows)), *rows.shape[1:]), dtype)
            array[: len(rows)] = rows
        array[len(rows) : total] = more
        self._used = total
        return array[:total]

    def __reduce__(self) -> tuple[type[Room], tuple[()]]:
        """A pickle has the rows already; it needs no room for more."""
        return Room, ()


class Aging(NamedTuple):
    """How rows grow old: all but the last ``window`` leave, and each that comes makes the others count ``rate`` times.

    >>> Aging(None, 0.5).aged(None, None, 1, 2)
    (array([0.25]), array([0.5, 1. ]))
    """

    window: int | None
    rate: float | None

    @classmethod
    def of(cls, window: Any, forgetting: Any) -> Aging:
        if window is not None and (
            isinstance(window, bool) or not isinstance(window, int | np.integer) or not window > 0
        ):
            raise ValueError(f"window must be a whole number of at least 1, or None, got {window!r}")
        if forgetting is not None and (
            isinstance(forgetting, bool) or not isinstance(forgetting, Real) or not 0.0 < float(forgetting) <= 1.0
        ):
            raise ValueError(f"forgetting must be a number above 0 and at most 1, or None, got {forgetting!r}")
        return cls(None if window is None else int(window), None if forgetting is None else float(forgetting))

    def aged(
        self, before: Array | None, weight: Array | None, rows: int, more: int
    ) -> tuple[Array | None, Array | None]:
        """Weights of ``rows`` rows and of ``more`` that come after them; an error where none of them would count."""
        if self == (None, None):
            return before, weight
        if self.rate is not None:
            before = (np.ones(rows) if before is None else before) * self.rate**more
            weight = (np.ones(more) if weight is None else weight) * self.rate ** np.arange(more)[::-1]
        old, new = (np.ones(n) if part is None else part for part, n in ((before, rows), (weight, more)))
        if not np.concatenate([old, new])[-(self.window or rows + more) :].any():
            raise ValueError("sample_weight is zero for every row that window and forgetting leave")
        return before, weight

    def first(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """X, y and weights for ``fit``, of rows that come before any other: the last ``window`` of them, aged."""
        if self == (None, None):
            return X, y, sample_weight
        rows = _num_samples(X)
        weight = self.aged(None, checked_weight(sample_weight, rows), 0, rows)[1]
        if self.window is None or rows <= self.window:
            return X, y, weight
        last = np.arange(rows - self.window, rows)
        return _safe_indexing(X, last), _safe_indexing(y, last), None if weight is None else weight[last]


class Appending(KeyPooling):
    """Keys, values and weights that grow."""

    _rooms: tuple[Room, Room, Room]

    def _append(self, key: Array, value: Array, weight: Array | None, aging: Aging) -> None:
        if value.shape[1:] != self.value_.shape[1:]:
            wanted, given = (f"({', '.join(['rows', *map(str, y.shape[1:])])})" for y in (self.value_, value))
            raise ValueError(f"y must have shape {wanted} as before, got {given}")
        if not hasattr(self, "_rooms"):
            self._rooms = Room(), Room(), Room()
        keys, values, weights = self._rooms
        before, weight = aging.aged(self.sample_weight_, weight, len(self.key_), len(key))
        stream = {name: vars(self)[name] for name in ("arrival_", "classes_given_") if name in vars(self)}
        if before is not None or weight is not None:
            # Rows that came without weights count 1, in the dtype of those that came with some.
            dtype = np.result_type(*(part for part in (before, weight) if part is not None))
            old = np.ones(len(self.key_), dtype) if before is None else before
            before = weights.extended(old, np.ones(len(key), dtype) if weight is None else weight)
        self._remember(keys.extended(self.key_, key), values.extended(self.value_, value), before)
        for name in ("loo_predictions_", "loo_score_"):
            self.__dict__.pop(name, None)  # they are of the rows before
        self.__dict__.update(stream)
        if "arrival_" in stream:
            numbers, came = self.arrival_
            self.arrival_ = np.concatenate([numbers, np.arange(came, came + len(key))]), came + len(key)
        self._look_through(aging)

    def _begun(self, came: int) -> Self:
        """After the first ``fit``: of ``came`` rows, those beyond the window have left already."""
        if came > len(self.key_):
            self.arrival_ = np.arange(came - len(self.key_), came), came
        return self

    def _look_through(self, aging: Aging) -> None:
        """Let rows that the window has passed go."""
        if aging.window is not None and len(self.key_) > aging.window:
            keep_rows(self, np.arange(len(self.key_) - aging.window, len(self.key_)))


class AppendingRegressor(Appending, KeyPoolingRegressor):
    """``partial_fit`` of the regressors."""

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, window: int | None = None, forgetting: float | None = None
    ) -> Self:
        """Append training rows to those that ``fit`` or earlier calls brought.

        With a bandwidth given as numbers, and where there is none, the result is that of ``fit`` on all rows together.
        A bandwidth that is learned, or comes from a rule, is that of the first call, and later calls keep it; ``fit``
        learns anew. ``loo_predictions_`` and ``loo_score_`` are gone once there are rows they do not know.

        Parameters
        ----------
        X : (k, d) array or dataframe, y : (k,) or (k, P) numbers, sample_weight : (k,) or None, as in ``fit``; rows
            without a weight count 1. Floats among integer weights make all of them importances.
        window : keep the last ``window`` rows only, these among them; the others leave as by ``forget``.
        forgetting : number in (0, 1]: every row that comes makes all before it count ``forgetting`` times as much, so
            that a row with a later ones after it counts forgetting^a, however rows are cut into batches.

        Returns
        -------
        self; it is ``fit`` on the rows left, with the weights they have. *Cost*: the first call is ``fit``; then O(k·d)
        on average, in room for up to twice the rows; O(window·d) or O(K) with ``window`` or ``forgetting``.

        >>> from regard import NearestKeyRegressor
        >>> model = NearestKeyRegressor().partial_fit([[0.0]], [2.0]).partial_fit([[1.0]], [4.0])
        >>> model.predict([[0.1], [0.9]]).tolist()
        [2.0, 4.0]
        """
        aging = Aging.of(window, forgetting)
        if not hasattr(self, "key_"):
            first, value, weight = aging.first(X, y, sample_weight)
            self.fit(first, value, sample_weight=weight)
            return self._begun(_num_samples(X))
        check_is_fitted(self)
        self._check_parameters()
        key, value = training_arrays(self, X, y, labels=False, again=True)
        self._append(key, value, checked_weight(sample_weight, len(key), all_zero=True), aging)
        return self


class AppendingClassifier(Appending, LearningClassifier):
    """``partial_fit`` of a classifier."""

    @with_callbacks  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        window: int | None = None,
        forgetting: float | None = None,
    ) -> Self:
        """Append training rows to those that ``fit`` or earlier calls brought.

        As ``partial_fit`` of the regressors: with a bandwidth given as numbers it is ``fit`` on all rows together, and
        one that is learned is that of the first call.

        Parameters
        ----------
        X : (k, d) array or dataframe, y : (k,) labels, sample_weight : (k,) or None, as in ``fit``.
        classes : every label there will be; the first call needs it, unless ``fit`` came before.
        window, forgetting : as of the regressors.

        Returns
        -------
        self. *Cost*: as of the regressors.

        >>> from regard import NadarayaWatsonClassifier
        >>> model = NadarayaWatsonClassifier(bandwidth=1.0).partial_fit([[0.0]], ["cat"], classes=["cat", "dog"])
        >>> model.partial_fit([[2.0]], ["dog"]).predict([[0.9], [1.1]]).tolist()
        ['cat', 'dog']
        """
        aging = Aging.of(window, forgetting)
        if not hasattr(self, "key_"):
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit: every label there will be")
            first, given, weights = aging.first(X, y, sample_weight)
            self._fit(first, given, weights, None, np.unique(np.asarray(classes)))
            self.classes_given_ = True
            return self._begun(_num_samples(X))
        check_is_fitted(self)
        if classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
            raise ValueError(f"classes must be those of the first call, {self.classes_.tolist()}, got {classes!r}")
        self._check_parameters()
        key, labels = training_arrays(self, X, y, labels=True, again=True)
        weight = checked_weight(sample_weight, len(key), all_zero=True)
        self._append(key, numbered(labels, weight, self.classes_)[1], weight, aging)
        return self
