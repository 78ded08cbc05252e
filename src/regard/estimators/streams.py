"""Adding and removing training rows: ``partial_fit``, its window and forgetting, and ``forget``.

All of them keep what was learned and rebuild the smoother for the new set of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples, check_is_fitted

from regard.core.arrays import Array
from regard.core.problem import checked_weight
from regard.data.columns import ORDERED_KERNELS, UNORDERED_KERNELS, Coding
from regard.estimators.parameters import whole_number
from regard.estimators.validation import training_arrays
from regard.estimators.width import given_bandwidth

# Name of removed categories, which occurs in no table.
REMOVED_CATEGORY = "\x00"
# Fields of search and history records that depend on the rows; cleared when rows are removed.
_FIELDS_OF_ROWS = ("answer", "path", "places", "tried", "loss", "validation", "minima", "value")


class GrowingArray:
    """A buffer that grows by doubling, so that appending n rows costs O(n) however they are batched."""

    def __init__(self) -> None:
        self._array: Array | None = None
        self._used = 0

    def extended(self, rows: Array, more: Array) -> Array:
        """``rows`` followed by ``more``; in place if ``rows`` is the latest result of this buffer."""
        total, dtype = len(rows) + len(more), np.result_type(rows, more)
        array = self._array
        # A copy of the estimator shares its buffer: the second to append must not overwrite the rows of the first.
        mine = array is not None and rows.base is array and len(rows) == self._used
        if array is None or not mine or total > len(array) or array.dtype != dtype:
            array = self._array = np.empty((max(total, 2 * len(rows)), *rows.shape[1:]), dtype)
            array[: len(rows)] = rows
        array[len(rows) : total] = more
        self._used = total
        return array[:total]

    def __reduce__(self) -> tuple[type[GrowingArray], tuple[()]]:
        """An empty buffer: a pickle holds the rows already."""
        return GrowingArray, ()


class Aging(NamedTuple):
    """A window of the last rows, and exponential forgetting: every new row multiplies earlier weights by ``rate``.

    >>> Aging(None, 0.5).aged(None, None, 1, 2)
    (array([0.25]), array([0.5, 1. ]))
    """

    window: int | None
    rate: float | None

    @classmethod
    def of(cls, window: Any, forgetting: Any) -> Aging:
        if window is not None:
            whole_number("window", window)
        if forgetting is not None and (
            isinstance(forgetting, bool) or not isinstance(forgetting, Real) or not 0.0 < float(forgetting) <= 1.0
        ):
            raise ValueError(f"forgetting must be a number in (0, 1] or None, got {forgetting!r}")
        return cls(None if window is None else int(window), None if forgetting is None else float(forgetting))

    def aged(
        self, before: Array | None, weight: Array | None, rows: int, more: int
    ) -> tuple[Array | None, Array | None]:
        """Weights of ``rows`` rows and of ``more`` rows after them; raises ValueError if all are zero."""
        if self == (None, None):
            return before, weight
        if self.rate is not None:
            before = (np.ones(rows) if before is None else before) * self.rate**more
            weight = (np.ones(more) if weight is None else weight) * self.rate ** np.arange(more)[::-1]
        old, new = (np.ones(n) if part is None else part for part, n in ((before, rows), (weight, more)))
        if not np.concatenate([old, new])[-(self.window or rows + more) :].any():
            raise ValueError("all sample weights are zero after window and forgetting")
        return before, weight

    def first(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """X, y and weights of the first batch for ``fit``: its last ``window`` rows, with forgetting applied."""
        if self == (None, None):
            return X, y, sample_weight
        rows = _num_samples(X)
        weight = self.aged(None, checked_weight(sample_weight, rows), 0, rows)[1]
        if self.window is None or rows <= self.window:
            return X, y, weight
        last = np.arange(rows - self.window, rows)
        return _safe_indexing(X, last), _safe_indexing(y, last), None if weight is None else weight[last]


class StreamMixin:
    """Methods of estimators whose training rows come and go."""

    key_: Array
    arrival_: tuple[Array, int]
    _check_parameters: Callable[[], None]

    @property
    def row_ids_(self) -> Array:
        """Ids of the training rows (K,) in order of arrival, from 0 in ``fit``; ``partial_fit`` continues the count.

        A row keeps its id when others are removed, and no id is used twice.
        """
        check_is_fitted(self)
        return self.arrival_[0] if "arrival_" in vars(self) else np.arange(len(self.key_))

    def forget(self, ids: Any) -> Self:
        """Remove training rows.

        With a numeric bandwidth the result equals ``fit`` on the remaining rows. What was learned is kept, although it
        was learned with the removed rows: bandwidth, ridge, heads, parameters of a score. Everything else is recomputed
        without them: the scaling of columns, residuals and calibration (when next needed), and the classes, unless
        ``partial_fit`` was given them. ``loo_predictions_``, losses and the record of a search are dropped. Copies,
        files and explanations made before are not affected.

        Parameters
        ----------
        ids : int or array-like of int
            Ids as in ``row_ids_``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If an id is unknown; nothing is removed then.

        *Cost*: O(K·d), a copy of the remaining rows.

        >>> from regard import AveragePoolingRegressor
        >>> model = AveragePoolingRegressor().fit([[0.0], [1.0], [2.0]], [1.0, 5.0, 9.0]).forget([1]).forget([2])
        >>> model.predict([[0.0]]).tolist(), model.row_ids_.tolist()
        ([1.0], [0])
        """
        gone = rows_to_forget(ids, self.row_ids_)
        if gone.any():
            select_rows(self, np.flatnonzero(~gone))
        return self

    def _partial_fit(
        self, X: Any, y: Any, classes: Any, sample_weight: Any, window: int | None, forgetting: float | None
    ) -> None:
        """``partial_fit`` of regressors and classifiers."""
        aging = Aging.of(window, forgetting)
        if "key_" not in vars(self):
            begin_stream(self, aging, X, y, classes, sample_weight)
            return
        check_is_fitted(self)
        self._check_parameters()
        append_rows(self, aging, X, y, classes, sample_weight)


def begin_stream(model: Any, aging: Aging, X: Any, y: Any, classes: Any, sample_weight: Any) -> None:
    """The first ``partial_fit``: ``fit`` on the rows inside the window."""
    if model._IS_CLASSIFIER and classes is None:
        raise ValueError("classes must be passed on the first call to partial_fit, with all labels that will occur")
    first, target, weight = aging.first(X, y, sample_weight)
    if model._IS_CLASSIFIER:
        model._fit(first, target, weight, None, np.unique(np.asarray(classes)))
        model.classes_given_ = True
    else:
        model.fit(first, target, sample_weight=weight)
    came = _num_samples(X)
    if came > len(model.key_):
        model.arrival_ = np.arange(came - len(model.key_), came), came


def append_rows(model: Any, aging: Aging, X: Any, y: Any, classes: Any, sample_weight: Any) -> None:
    """A later ``partial_fit``: append the rows, then remove those outside the window."""
    known = model.classes_ if model._IS_CLASSIFIER else None
    if known is not None and classes is not None and not np.array_equal(np.unique(np.asarray(classes)), known):
        raise ValueError(f"classes must be the same as in the first call, {known.tolist()}, got {classes!r}")
    key, target = training_arrays(model, X, y, labels=model._IS_CLASSIFIER, again=True)
    weight = checked_weight(sample_weight, len(key), all_zero=True)
    value, _ = model._encode_target(target, weight, known)
    if value.shape[1:] != model.value_.shape[1:]:
        wanted, given = (f"({', '.join(['rows', *map(str, part.shape[1:])])})" for part in (model.value_, value))
        raise ValueError(f"y must have shape {wanted}, as in earlier calls, got {given}")
    if "_buffers" not in vars(model):
        model._buffers = GrowingArray(), GrowingArray(), GrowingArray()
    keys, values, weights = model._buffers
    before, weight = aging.aged(model.sample_weight_, weight, len(model.key_), len(key))
    if before is not None or weight is not None:
        # Rows without weights have weight 1, in the dtype of the weights given.
        dtype = np.result_type(*(part for part in (before, weight) if part is not None))
        old = np.ones(len(model.key_), dtype) if before is None else before
        before = weights.extended(old, np.ones(len(key), dtype) if weight is None else weight)
    model._set_training_rows(keys.extended(model.key_, key), values.extended(model.value_, value), before)
    for name in ("loo_predictions_", "loo_score_"):
        model.__dict__.pop(name, None)  # of earlier rows
    if "arrival_" in vars(model):
        numbers, came = model.arrival_
        model.arrival_ = np.concatenate([numbers, np.arange(came, came + len(key))]), came + len(key)
    if aging.window is not None and len(model.key_) > aging.window:
        select_rows(model, np.arange(len(model.key_) - aging.window, len(model.key_)))


def rows_to_forget(ids: Any, have: Array) -> Array:
    """Which of the rows with ids ``have`` (K,) are among ``ids``; raises ValueError if one of ``ids`` is unknown."""
    gone = np.atleast_1d(np.asarray(ids))
    if gone.size and (gone.ndim != 1 or gone.dtype.kind not in "iu"):
        raise TypeError(f"ids must be whole numbers as in row_ids_, got {ids!r}")
    unknown = gone[~np.isin(gone, have)]
    if unknown.size:
        raise ValueError(
            f"ids has {unknown[0]}, which is not the id of any of the {len(have)} training rows; see row_ids_"
        )
    return np.isin(have, gone)


def select_rows(model: Any, rows: Array) -> None:
    """Remove all rows of a fitted model but these, (n,) positions in ``key_``, and all that depends on the others."""
    weight = None if model.sample_weight_ is None else model.sample_weight_[rows]
    if not len(rows) or (weight is not None and not weight.any()):
        raise ValueError("cannot remove all training rows of positive weight; at least one must remain")
    arrival = model.row_ids_[rows], (model.arrival_[1] if "arrival_" in vars(model) else len(model.key_))
    for name in ("_buffers", "loo_predictions_", "loo_score_"):
        model.__dict__.pop(name, None)
    # Copies: a view would keep the whole array alive.
    model._set_training_rows(model.key_[rows], model.value_[rows], weight)
    model.arrival_ = arrival
    if model._IS_CLASSIFIER and "classes_given_" not in vars(model):
        _drop_classes(model)
    if "coding_" in vars(model):
        _drop_levels(model)
    for name in ("search_", "history_"):
        if name in vars(model):
            setattr(model, name, _without_row_data(vars(model)[name]))
    model._rescale()
    model._smoother  # noqa: B018  # cached now: predict must not change an estimator


def _drop_classes(model: Any) -> None:
    """Remove the classes without rows."""
    counted = model.value_ if model.sample_weight_ is None else model.value_[model.sample_weight_ > 0]
    present = np.unique(counted)
    model.classes_ = model.classes_[present]
    # A row of zero weight may have none of these classes.
    model.value_ = np.minimum(np.searchsorted(present, model.value_), len(present) - 1)


def _drop_levels(model: Any) -> None:
    """Remove the categories of a mixed table without rows; ordered categories of text are kept.

    A mixture of heads has learned a w for each category: there a removed category only loses its name.
    """
    coding, parts, columns, heads = model.coding_, [], [], "heads_" in vars(model)
    for part, first in zip(coding.parts, coding.firsts, strict=True):
        features = model.key_[:, first : first + part.width]
        unordered = part.kernel in UNORDERED_KERNELS
        if unordered or (part.kernel in ORDERED_KERNELS and not isinstance(part.levels[0], str)):
            codes = part.coded([np.array(part.levels, object)])
            present = [bool((features == code).all(axis=1).any()) for code in codes]
            if not heads and any(present):
                place = (features[:, None] == codes[present]).all(axis=2).argmax(axis=1)
                missing = np.isnan(features).any(axis=1)
                part = part._replace(levels=tuple(np.array(part.levels, object)[present]))
                features = part.coded([np.array(part.levels, object)])[place]
                features[missing] = np.nan
            elif heads and unordered:
                levels = zip(part.levels, present, strict=True)
                part = part._replace(levels=tuple(level if here else REMOVED_CATEGORY for level, here in levels))
        parts.append(part)
        columns.append(features)
    model.coding_, model.key_ = Coding(tuple(parts)), np.concatenate(columns, axis=1).astype(model.key_.dtype)
    if heads:
        return
    given = not isinstance(model.bandwidth, str)
    w = given_bandwidth(model.coding_, model.bandwidth).w if given else np.asarray(model.w_)[coding.firsts]
    model.w_, model.bandwidth_ = model.coding_.per_feature(w), model.coding_.bandwidth_of(w)


def _without_row_data(record: Any) -> Any:
    """A record of a search or of training without the fields that depend on the rows."""
    empty = {"value": np.nan, "minima": (), "validation": None}
    return record._replace(
        **{
            name: empty[name] if name in empty else np.empty((0, *np.shape(getattr(record, name))[1:]))
            for name in _FIELDS_OF_ROWS
            if name in record._fields
        }
    )
