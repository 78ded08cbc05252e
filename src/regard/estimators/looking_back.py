"""A regressor looks back at its training rows, each left out: the residuals behind every statement of doubt."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from regard.bandwidth.distinct import Distinct, distinct, spread_out
from regard.bandwidth.rules import counts_repetitions
from regard.estimators.base import Array, KeyPoolingRegressor
from regard.estimators.explaining import attentions
from regard.estimators.left_out import LeftOut
from regard.inference.residuals import MANY, adaptive_answers, left_out_answers, relearned_answers, rows_to_answer
from regard.inference.spread import View, learn_spread, row_counts, spread_at
from regard.pooling import pool

# How bandwidths are learned where learning can go on without a row.
USUAL = {"bandwidth": "loo", "optimizer": "lbfgs", "loss": "squared"}
# Residuals below this share of the range of y, or so many times as far as its numbers are apart, are what rounding
# leaves of an exact fit.
ROUNDING, ROUNDINGS = 1e-13, 2.0


class LookingBack(KeyPoolingRegressor):
    """Residuals and their spread, computed once, when first asked for, and kept with the model.

    residuals_ : (K,) or (K, P), y less what the other rows predict. NaN for rows without weight, and beyond 200,000
        rows for all but 20,000 where no engine makes them cheap. Where the bandwidth was learned from up to 2,000
        rows, a row's residual is that of a bandwidth that went on learning without the row and its fold
        (``regard.inference.residuals``), which costs about as much as ``fit``. Groups given to ``fit`` are not known
        any more: every row is left out on its own.
    standardised_residuals_ : the same over the spread at the row as the other rows tell it.
    spread_ : share of w at which attention averages residuals, and the share of the mean of all in the spread
        (``regard.inference.spread``).
    """

    residuals_: Array
    standardised_residuals_: Array
    spread_: tuple[float, float]

    def _spread(self, query: Array) -> Array:
        """s(x), (Q, P); of a row with gaps, that in the middle of the columns it lacks."""
        self._look_back()
        whole = self._whole()
        gaps = np.isnan(query)
        if gaps.any():
            query = np.where(gaps, np.median(whole.key_, axis=0), query)
        views = (View(share, model.key_, model.attention_score_, at) for share, model, at in attentions(whole, query))
        return spread_at(
            views,
            *self.spread_,
            as_columns(whole.residuals_),
            whole.sample_weight_,
            engine=self._engine,
            tol=self.tol,
        )

    def _whole(self) -> LookingBack:
        """This model over the training rows that lack nothing: itself, unless there are gaps."""
        told = ~np.isnan(self.key_).any(axis=1)
        if told.all():
            return self
        model = copy(self)
        for name in ("key_", "value_", "sample_weight_", "loo_predictions_", "residuals_", "standardised_residuals_"):
            rows = getattr(self, name, None)
            if rows is not None:
                setattr(model, name, rows[told])
        return model

    def _shown(self) -> tuple[Array, Array]:
        """Standardised residuals (m, P) of the rows that were answered, and what those count (m,)."""
        self._look_back()
        shown = as_columns(self.standardised_residuals_)
        told = ~np.isnan(shown).any(axis=1)
        weight = None if self.sample_weight_ is None else self.sample_weight_[told]
        return shown[told], row_counts(weight, int(told.sum()))

    def _filled(self) -> Array:
        """Residuals (K, P), those of rows not answered as large as the others are on average."""
        self._look_back()
        residual = as_columns(self.residuals_)
        told = np.asarray(~np.isnan(residual).any(axis=1))
        return np.where(told[:, None], residual, np.sqrt(np.mean(residual[told] ** 2, axis=0)))

    def _look_back(self) -> None:
        """Residuals and their spread, once."""
        check_is_fitted(self)
        if hasattr(self, "spread_"):
            return
        whole = self._whole()
        if whole is not self:
            whole._look_back()
            for name in ("residuals_", "standardised_residuals_"):
                known = getattr(whole, name)
                full = np.full((len(self.key_), *known.shape[1:]), np.nan)
                full[~np.isnan(self.key_).any(axis=1)] = known
                setattr(self, name, full)
            self.spread_ = whole.spread_
            return
        table = distinct(self.key_, self.value_, self.sample_weight_)
        if len(table.key) == 1 and (
            table.weight is None or table.weight[0] < 2 or not counts_repetitions(table.weight)
        ):
            raise ValueError("residuals leave rows out and need two of them; this model has 1 training row")
        value = as_columns(table.value)
        residual = value - self._left_out(table)
        rounded = ROUNDING * np.ptp(value, axis=0) + ROUNDINGS * np.spacing(np.abs(value).max(axis=0))
        residual[np.abs(residual) <= rounded] = 0.0
        told = np.flatnonzero(~np.isnan(residual).any(axis=1))
        weight = None if table.weight is None else table.weight[told]
        seen = table.key[told].astype(np.float64)
        views = [View(share, model.key_, model.attention_score_, at) for share, model, at in attentions(self, seen)]
        spread = learn_spread(views, residual[told], weight, self._engine)
        shown = np.full(residual.shape, np.nan)
        shown[told] = residual[told] / spread.scale
        single = self.value_.ndim == 1
        for name, rows in (("residuals_", residual), ("standardised_residuals_", shown)):
            full = spread_out(rows, table.place)
            setattr(self, name, full[:, 0] if single else full)
        self.spread_ = spread.widening, spread.overall

    def _left_out(self, table: Distinct) -> Array:
        """Every row of the table (n, P) as the others answer it; NaN where that would take too long."""
        looks_of = getattr(self, "_looks", None) or getattr(self, "_look", None)
        if looks_of is None:
            left = LeftOut.of(table)
            # About their mean: sums of numbers far from 0 are rounded coarsely.
            value = as_columns(table.value)
            centre = value.mean(axis=0)
            pooled = pool(
                table.key.astype(np.float64),
                table.key[left.key].astype(np.float64),
                (value - centre)[left.key],
                self.attention_score_,
                sample_weight=left.key_weight,
                exclude=(left.label, left.key_label),
                engine=self._engine,
            )
            return np.asarray(centre + pooled.output)
        # Steps down the same criterion; the notes' recipe and other criteria end elsewhere.
        walked = tuple(getattr(self, name, usual) for name, usual in USUAL.items())
        relearn = hasattr(self, "search_") and 2 < len(table.key) <= MANY and walked == tuple(USUAL.values())
        if not relearn and hasattr(self, "loo_predictions_"):
            out = np.full((len(table.key), as_columns(self.value_).shape[1]), np.nan)
            seen = table.place >= 0
            out[table.place[seen]] = as_columns(self.loo_predictions_)[seen]
            return out
        looks = self._looks_at(table)
        if hasattr(self, "neighbours_"):
            return adaptive_answers(looks[0], self.neighbours_)
        if relearn:
            return relearned_answers(looks, ridge=getattr(self, "ridge", "loo") == "loo")
        rows = rows_to_answer(looks)
        answer = np.full((len(table.key), looks[0].objective.loss.columns.shape[1]), np.nan)
        answer[rows] = left_out_answers(looks, rows)
        return answer

    def _looks_at(self, table: Distinct) -> list[Any]:
        """This model's attentions over the rows of a table."""
        model = copy(self)
        model.key_, model.value_, model.sample_weight_ = table.key.astype(np.float64), table.value, table.weight
        model.__dict__.pop("neighbours_", None)
        looks = getattr(model, "_looks", None)
        return list(looks()[0]) if looks is not None else [model._look("residuals")]  # type: ignore[attr-defined]


def as_columns(values: Array) -> Array:
    """Float64 columns (n, P)."""
    values = np.asarray(values, np.float64)
    return values[:, None] if values.ndim == 1 else values
