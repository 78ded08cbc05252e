"""``partial_fit``: more training rows for an estimator that has some, without copying those each time."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from regard.bandwidth.rules import checked_weight
from regard.estimators.base import Array, KeyPooling, KeyPoolingRegressor
from regard.estimators.callbacks import with_callbacks
from regard.estimators.classes import numbered
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


class Appending(KeyPooling):
    """Keys, values and weights that grow."""

    _rooms: tuple[Room, Room, Room]

    def _append(self, key: Array, value: Array, weight: Array | None) -> None:
        if value.shape[1:] != self.value_.shape[1:]:
            wanted, given = (f"({', '.join(['rows', *map(str, y.shape[1:])])})" for y in (self.value_, value))
            raise ValueError(f"y must have shape {wanted} as before, got {given}")
        if not hasattr(self, "_rooms"):
            self._rooms = Room(), Room(), Room()
        keys, values, weights = self._rooms
        before = self.sample_weight_
        if before is not None or weight is not None:
            # Rows that came without weights count 1, in the dtype of those that came with some.
            dtype = np.result_type(*(part for part in (before, weight) if part is not None))
            old = np.ones(len(self.key_), dtype) if before is None else before
            before = weights.extended(old, np.ones(len(key), dtype) if weight is None else weight)
        self._remember(keys.extended(self.key_, key), values.extended(self.value_, value), before)
        for name in ("loo_predictions_", "loo_score_"):
            self.__dict__.pop(name, None)  # they are of the rows before


class AppendingRegressor(Appending, KeyPoolingRegressor):
    """``partial_fit`` of the regressors."""

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Append training rows to those that ``fit`` or earlier calls brought.

        With a bandwidth given as numbers, and where there is none, the result is that of ``fit`` on all rows together.
        A bandwidth that is learned, or comes from a rule, is that of the first call, and later calls keep it; ``fit``
        learns anew. ``loo_predictions_`` and ``loo_score_`` are gone once there are rows they do not know.

        Parameters
        ----------
        X : (k, d) array or dataframe, y : (k,) or (k, P) numbers, sample_weight : (k,) or None, as in ``fit``; rows
            without a weight count 1. Floats among integer weights make all of them importances.

        Returns
        -------
        self. *Cost*: the first call is ``fit``; then O(k·d) on average, in room for up to twice the rows.

        >>> from regard import NearestKeyRegressor
        >>> model = NearestKeyRegressor().partial_fit([[0.0]], [2.0]).partial_fit([[1.0]], [4.0])
        >>> model.predict([[0.1], [0.9]]).tolist()
        [2.0, 4.0]
        """
        if not hasattr(self, "key_"):
            self.fit(X, y, sample_weight=sample_weight)
            return self
        self._check_parameters()
        key, value = training_arrays(self, X, y, labels=False, again=True)
        self._append(key, value, checked_weight(sample_weight, len(key), all_zero=True))
        return self


class AppendingClassifier(Appending, LearningClassifier):
    """``partial_fit`` of a classifier."""

    @with_callbacks  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Append training rows to those that ``fit`` or earlier calls brought.

        As ``partial_fit`` of the regressors: with a bandwidth given as numbers it is ``fit`` on all rows together, and
        one that is learned is that of the first call.

        Parameters
        ----------
        X : (k, d) array or dataframe, y : (k,) labels, sample_weight : (k,) or None, as in ``fit``.
        classes : every label there will be; the first call needs it, unless ``fit`` came before.

        Returns
        -------
        self. *Cost*: as of the regressors.

        >>> from regard import NadarayaWatsonClassifier
        >>> model = NadarayaWatsonClassifier(bandwidth=1.0).partial_fit([[0.0]], ["cat"], classes=["cat", "dog"])
        >>> model.partial_fit([[2.0]], ["dog"]).predict([[0.9], [1.1]]).tolist()
        ['cat', 'dog']
        """
        if not hasattr(self, "key_"):
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit: every label there will be")
            return self._fit(X, y, sample_weight, None, np.unique(np.asarray(classes)))
        if classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
            raise ValueError(f"classes must be those of the first call, {self.classes_.tolist()}, got {classes!r}")
        self._check_parameters()
        key, labels = training_arrays(self, X, y, labels=True, again=True)
        weight = checked_weight(sample_weight, len(key), all_zero=True)
        self._append(key, numbered(labels, weight, self.classes_)[1], weight)
        return self
