"""Streams: rows that have to go, and whether those that come are still alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from regard.bandwidth.distinct import distinct
from regard.bandwidth.rules import checked_weight
from regard.bandwidth.scaling import Scaling
from regard.bandwidth.shapes import spreads
from regard.data.columns import ORDERS, UNORDERED, Coding
from regard.estimators.explaining import told_columns
from regard.estimators.mixed import given_width
from regard.inference.drift import Drift, Sample, moved, rank_probability
from regard.inference.spread import row_counts

Array = NDArray[Any]

# The name of a category that no table has.
GONE = "\x00"

# What a search or a training remembers of the rows: blank once some of them are gone.
_OF_ROWS = ("answer", "path", "places", "tried", "loss", "validation", "minima", "value")


class Forgetting:
    """``forget`` and ``drift`` of every estimator."""

    key_: Array
    value_: Array
    sample_weight_: Array | None
    arrival_: tuple[Array, int]  # numbers of the rows there are, and how many ever came; absent while none has left
    _remember: Callable[[Array, Array, Array | None], None]
    _query: Callable[[Any], Array]

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
        have = self.row_ids_
        gone = np.atleast_1d(np.asarray(ids))
        if gone.size and (gone.ndim != 1 or gone.dtype.kind not in "iu"):
            raise TypeError(f"ids must be whole numbers as in row_ids_, got {ids!r}")
        unknown = gone[~np.isin(gone, have)]
        if unknown.size:
            raise ValueError(
                f"ids holds {unknown[0]}, which is none of the {len(have)} training rows: it never came, or it has left"
            )
        if gone.size:
            keep_rows(self, np.flatnonzero(~np.isin(have, gone)))
        return self

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
        new, signed, left_out = _errors(self, X, y, query)
        old, old_signed, before = left_out
        batch = Sample.of(weight, len(query))
        told = ~np.isnan(new)
        now = batch.among(told)
        if not now.size:
            raise ValueError("no row of X has a training row within the bandwidth: there are no errors to compare")
        bias, bias_error = _mean_and_error(signed[told], now.share)
        usual_bias, usual_error = _mean_and_error(old_signed, before.share)
        names, fold = told_columns(self)
        rows = Sample.of(self.sample_weight_, len(self.key_))
        far = self.explain(X, top=1).far  # type: ignore[attr-defined]
        return Drift(
            rows=len(query),
            error=float(now.share @ new[told]),
            usual=float(before.share @ old),
            probability=rank_probability(old, before, new[told], now),
            bias=bias - usual_bias,
            bias_error=np.hypot(bias_error, usual_error),
            moved=moved(self.key_.astype(np.float64), rows, query.astype(np.float64), batch, fold),
            names=names,
            far=float(batch.share @ far),
        )


def _mean_and_error(values: Array, share: Array) -> tuple[Array, Array]:
    """Weighted mean (P,) of values (m, P), and its standard error."""
    mean = share @ values
    return mean, np.sqrt(share**2 @ (values - mean) ** 2)


def _errors(model: Any, X: Any, y: Any, query: Array) -> tuple[Array, Array, tuple[Array, Array, Sample]]:
    """Errors (m,) and y − prediction (m, P) of new rows; the same of left-out ones, and what those count."""
    if hasattr(model, "classes_"):
        labels = np.asarray(y)
        if labels.shape != (len(query),):
            raise ValueError(f"y must be one label per row of X, shape ({len(query)},), got shape {labels.shape}")
        probability = np.asarray(model.predict_proba(X), np.float64)
        # A label that fit did not know has probability 0.
        right = (probability * (labels[:, None] == model.classes_)).sum(axis=1)
        left_out, label, _ = model._left_out_probabilities()
        told = getattr(model, "loo_predictions_", None)
        told = model.left_out_probabilities_ if told is None else told
        sample = Sample.of(model.sample_weight_, len(told)).among(~np.isnan(told).any(axis=1))
        if model.calibrate:
            left_out = model._calibration()(left_out)
        old = 1.0 - left_out[np.arange(len(label)), label]
        return 1.0 - right, np.zeros((len(query), 0)), (old, np.zeros((len(old), 0)), sample)
    output = np.asarray(model.predict(X), np.float64)
    given = np.asarray(y, np.float64)
    if given.shape != output.shape or not np.isfinite(given).all():
        raise ValueError(f"y must be finite numbers of shape {output.shape}, one entry per prediction, got {y!r:.80}")
    signed = (given - output).reshape(len(query), -1)
    residual = _left_out_residuals(model)
    seen = np.asarray(~np.isnan(residual).any(axis=1))
    sample = Sample.of(model.sample_weight_, len(seen)).among(seen)
    residual = residual[seen]
    unit = sample.share @ np.abs(residual)
    unit = np.where((unit > 0.0) & (len(unit) > 1), unit, 1.0)
    new, old = ((np.abs(part) / unit).mean(axis=1) for part in (signed, residual))
    return new, signed, (old, residual, sample)


def _left_out_residuals(model: Any) -> Array:
    """y less what the other rows predict (K, P); NaN where that is not known."""
    if hasattr(model, "_filled"):
        model._look_back()
        residual = np.asarray(model.residuals_)
    else:
        residual = model.value_ - model.loo_predictions_
    return residual.reshape(len(residual), -1).astype(np.float64)


def keep_rows(model: Any, rows: Array) -> None:
    """Let a fitted model have these of its rows only, (n,) positions in ``key_``, and nothing of the others."""
    weight = None if model.sample_weight_ is None else model.sample_weight_[rows]
    if not len(rows) or (weight is not None and not weight.any()):
        raise ValueError("a model needs a training row with a weight above zero: these are all that it has")
    arrival = model.row_ids_[rows], (model.arrival_[1] if "arrival_" in vars(model) else len(model.key_))
    given = vars(model).get("classes_given_")
    for name in ("_rooms", "loo_predictions_", "loo_score_"):
        model.__dict__.pop(name, None)
    # Copies: a view would keep the whole array alive.
    model._remember(model.key_[rows], model.value_[rows], weight)
    model.arrival_ = arrival
    if given is not None:
        model.classes_given_ = given
    elif hasattr(model, "classes_"):
        _drop_classes(model)
    if hasattr(model, "coding_"):
        _drop_levels(model)
    for name in ("search_", "history_"):
        if name in vars(model):
            setattr(model, name, _blank(vars(model)[name]))
    if hasattr(model, "heads_"):
        _scale_heads(model)
    if hasattr(model, "embedding_"):
        _scale_score(model)


def _drop_classes(model: Any) -> None:
    """Classes of which some row is left."""
    counted = model.value_ if model.sample_weight_ is None else model.value_[model.sample_weight_ > 0]
    present = np.unique(counted)
    model.classes_ = model.classes_[present]
    # As in ``numbered``: a row without weight may be of no class.
    model.value_ = np.minimum(np.searchsorted(present, model.value_), len(present) - 1)


def _drop_levels(model: Any) -> None:
    """Categories of a mixed table of which some row is left; ordered ones of text keep their order whole.

    Heads have learned a w for each: there a category that is gone loses its name only.
    """
    coding, parts, columns = model.coding_, [], []
    for part, first in zip(coding.parts, coding.firsts, strict=True):
        features = model.key_[:, first : first + part.width]
        unordered = part.kernel in UNORDERED
        if unordered or (part.kernel in ORDERS and not isinstance(part.levels[0], str)):
            codes = part.coded([np.array(part.levels, object)])
            seen = [bool((features == code).all(axis=1).any()) for code in codes]
            if not hasattr(model, "heads_"):
                kept = part._replace(levels=tuple(np.array(part.levels, object)[seen])) if any(seen) else part
                place = (features[:, None] == codes[seen]).all(axis=2).argmax(axis=1)
                missing = np.isnan(features).any(axis=1)
                part = kept
                features = part.coded([np.array(part.levels, object)])[place] if any(seen) else features
                features[missing] = np.nan
            elif unordered:
                part = part._replace(
                    levels=tuple(level if here else GONE for level, here in zip(part.levels, seen, strict=True))
                )
        parts.append(part)
        columns.append(features)
    model.coding_, model.key_ = Coding(tuple(parts)), np.concatenate(columns, axis=1).astype(model.key_.dtype)
    if hasattr(model, "heads_"):
        return
    given = not isinstance(model.bandwidth, str)
    w = given_width(model.coding_, model.bandwidth).w if given else np.asarray(model.w_)[coding.firsts]
    model.w_, model.bandwidth_ = model.coding_.spread(w), model.coding_.bandwidth_of(w)


def _blank(record: Any) -> Any:
    """A search or a history without what it says of rows."""
    empty = {"value": np.nan, "minima": (), "validation": None}
    return record._replace(
        **{
            name: empty[name] if name in empty else np.empty((0, *np.shape(getattr(record, name))[1:]))
            for name in _OF_ROWS
            if name in record._fields
        }
    )


def _scale_heads(model: Any) -> None:
    """Scalings of the columns from the rows there are, as ``learn_heads`` makes them."""
    whole = ~np.isnan(model.key_).any(axis=1)
    weight = None if model.sample_weight_ is None else model.sample_weight_[whole]
    table = distinct(model.key_[whole], model.value_[whole], weight)
    model.scaling_ = Scaling.of(table.key.astype(np.float64), row_counts(table.weight, len(table.key)))


def _scale_score(model: Any) -> None:
    """Mean and scale of the features, and all rows as the score sees them."""
    from regard.bandwidth.losses import SquaredError
    from regard.estimators.left_out import LeftOut

    table = distinct(model.key_, model.value_, model.sample_weight_)
    rows, counts = table.key.astype(np.float64), row_counts(table.weight, len(table.key))
    scale = spreads(rows, counts)
    model.mean_, model.scale_ = counts / counts.sum() @ rows, np.where(scale > 0.0, scale, np.inf)
    model.embedding_ = model._placed(model.key_)
    if "w_" in vars(model):
        w = np.exp(model.parameters_["score.log_w"].astype(np.float64))
        with np.errstate(over="ignore"):
            model.w_, model.bandwidth_ = w / model.scale_, model.scale_ / w
    if len(rows) > 1:
        model._look_back(table, LeftOut.of(table), SquaredError.of(table.value.astype(np.float64), counts))
