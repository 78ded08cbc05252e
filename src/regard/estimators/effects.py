"""How sure marginal effects are, one by one and on average."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from regard.estimators.explaining import (
    attentions,
    by_width,
    column_names,
    copies_of,
    effective_of,
    exact,
    values_of,
)
from regard.estimators.mixed import column_effects
from regard.inference.effects import (
    TILE_CELLS,
    AverageEffects,
    average_change,
    effect_errors,
    line_effects,
    mean_effects,
    score_slopes,
    slope_weights,
)

Array = NDArray[Any]

METHODS = ("derivative", "slope")


class WithEffects:
    """Standard errors of ``marginal_effects``, and averages of both."""

    key_: Array
    value_: Array
    sample_weight_: Array | None
    _query: Callable[[Any], Array]
    marginal_effects: Callable[[Any], Array]

    def effect_errors(self, X: Any, method: str = "derivative") -> Array:
        """Standard errors of the marginal effects at every row of X, shaped as those.

        √Σ_i (∂ℓ_i/∂x)²·residual_i², ℓ the effective weights and residuals left out; ``regard.inference.effects``.

        Parameters
        ----------
        X : (Q, d) array or dataframe
        method : "derivative" for ``marginal_effects``, the derivative of the prediction; "slope" for the slopes of the
            local lines (``LocalLinearRegressor.slopes``, R's gradients), which at degree 0 are the same.

        *Empty rows*: 0, as nothing moves. *Cost*: O(Q·K·d²) time and a tile; residuals once, see ``residuals_``.
        """
        query = self._query(X)
        changes, tile = self._changes(query, method)
        residual, copies = _residuals(self)
        found = effect_errors(changes, len(query), residual, copies, tile)
        return np.asarray(found[:, 0] if _single(self) else found, query.dtype)

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
        share = np.ones(len(query))
        if X is None and self.sample_weight_ is not None:
            share = self.sample_weight_.astype(np.float64) / self.sample_weight_.max()
        change = average_change(*self._changes(query, method), share / share.sum())
        residual, copies = _residuals(self)
        values = values_of(self)
        effect = (values - values.mean(axis=0)).T @ change
        error = np.sqrt((residual**2 / copies[:, None]).T @ change**2)
        single = _single(self)
        names = column_names(self)
        return AverageEffects(effect[0] if single else effect, error[0] if single else error, names, len(query))

    def _changes(self, query: Array, method: str) -> tuple[Callable[[slice], Array], int]:
        """∂ℓ/∂x of some queries (tile, K, d), and how many to ask for at once."""
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}")
        tile = max(1, TILE_CELLS // self.key_.size)
        return partial(_changes, exact(self), query.astype(np.float64), method), tile


def _changes(model: Any, query: Array, method: str, rows: slice) -> Array:
    total: Any = 0.0
    heads = getattr(model, "heads_", None)
    for number, (share, one, at) in enumerate(attentions(model, query[rows])):
        part = share * by_width(one, at, partial(_change, method))
        if heads is not None:
            part = part * model.scaling_.slope(query[rows], heads[number].share)[:, None, :]
        total = total + part
    return column_effects(model, query[rows], np.asarray(total), partial(effective_of, model))


def _change(method: str, model: Any, query: Array) -> tuple[Array, Array]:
    """∂ℓ/∂x (Q, K, d) of one attention of one bandwidth, and which queries had nobody in reach: there it is 0."""
    weights, nobody = model._weights(query)
    score = model.attention_score_
    # A missing entry is at no distance.
    delta = np.nan_to_num(model.key_.astype(np.float64)[None] - query[:, None], nan=0.0)
    slopes = score_slopes(score, delta, weights)
    if model._DEGREE:
        fit = model._local(query, np.zeros((len(model.key_), 1)))[2].fit
        W = score.w if score.w.ndim == 2 else np.diag(np.broadcast_to(score.w, query.shape[1]))
        if method == "slope":
            change = slope_weights(weights, delta, fit, W, model._ridge)
        else:
            change = line_effects(weights, slopes, delta, fit, W, model._ridge)
    else:
        change = mean_effects(weights, slopes)
    return np.where(nobody[:, None, None], 0.0, change), nobody


def _residuals(model: Any) -> tuple[Array, Array]:
    """Left-out residuals (K, P), and how many rows each stands for (K,)."""
    if hasattr(model, "_filled"):
        return model._filled(), copies_of(model)
    model._left_out_probabilities()
    told = getattr(model, "loo_predictions_", None)
    told = model.left_out_probabilities_ if told is None else told
    residual = values_of(model) - told
    seen = ~np.isnan(residual).any(axis=1)
    return np.where(seen[:, None], residual, np.sqrt(np.mean(residual[seen] ** 2, axis=0))), copies_of(model)


def _single(model: Any) -> bool:
    return bool(model.value_.ndim == 1) and not hasattr(model, "classes_")
