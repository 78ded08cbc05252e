"""What every regressor is: predictions, and how sure they are."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from regard.cluster.cluster_predict import lazy_answers
from regard.core.arrays import Array, is_chunked
from regard.estimators.base import SmoothingEstimator, if_appends
from regard.estimators.parameters import one_of, whole
from regard.model.drift import Errors, Sample
from regard.model.intervals import (
    CONFIDENCE,
    ERRORS,
    INTERVALS,
    bootstrap,
    confidence,
    deviation,
    interval,
    log_densities,
    quantiles_at,
    standard_error,
)
from regard.model.quantiles import checked_coverage, checked_levels
from regard.model.residuals import Relearn, Residuals, as_columns, learn_residuals

# How a bandwidth is learned where learning can go on without a row: the notes' recipe and other criteria end elsewhere.
USUAL = {"bandwidth": "loo", "optimizer": "lbfgs", "loss": "squared"}


class SmoothingRegressor(RegressorMixin, SmoothingEstimator):  # type: ignore[misc]
    """``predict``, intervals and densities, from every training row as the others predict it.

    Computed when first needed, and kept with the model:

    residuals_ : (K,) or (K, P), y less what the other rows predict. NaN for rows without weight, and beyond 200,000
        rows for all but 20,000 where no engine makes them cheap. Where the bandwidth was learned from up to 2,000
        rows, a row's residual is that of a bandwidth that went on learning without the row and its fold
        (``regard.model.residuals``), which costs about as much as ``fit``. Groups given to ``fit`` are not known any
        more: every row is left out on its own.
    standardised_residuals_ : the same over the spread at the row as the other rows tell it.
    spread_ : share of w at which attention averages residuals, and the share of the mean of all in the spread
        (``regard.model.residual_scale``).
    """

    residuals_: Array
    standardised_residuals_: Array
    spread_: tuple[float, float]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The prediction for every row of X: Σ weight · y, or the height of the line.

        Parameters
        ----------
        X : (Q, d) array or dataframe
        return_std : also the standard deviation of y around the prediction, from left-out residuals pooled with the
            same attention made wider (not from the residuals of the fit, which are too small).

        Returns
        -------
        (Q,) or (Q, P), as y was, in the dtype of X (at least float32); with ``return_std`` two such arrays.

        *Empty rows*: as ``empty`` says, where the estimator has it. *Cost*: O(Q·K·d) time, O(Q + K) memory and a tile;
        ``return_std`` twice that, and at the first call that of the residuals.
        """
        if is_chunked(X):
            if return_std:
                raise TypeError("return_std=True needs X in memory, got X of dask; ask for some rows at a time")
            return lazy_answers(self, X, "predict")
        query = self._query(X)
        output = self._reported(self._answer(query))
        if not return_std:
            return output
        return output, _shaped(deviation(self._asked, self._residuals(), query), output)

    @if_appends
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
        self._partial_fit(X, y, None, sample_weight, window, forgetting)
        return self

    def predict_interval(self, X: Any, coverage: float = 0.9, method: str = "local") -> Array:
        """Where y of a new row should lie: (Q, 2), lower and upper ends, or (Q, P, 2) where y has P columns.

        ===========  ================================================================================================
        "local"      f(x) + s(x)·quantiles of the standardised residuals; the two sides may differ
        "conformal"  f(x) ± s(x)·(the ⌈coverage·(n + 1)⌉-th smallest of n standardised left-out residuals, in size)
        "jackknife"  jackknife+: ranks of f_{−i}(x) ± |residual_i| over the training rows i, of one width everywhere
        ===========  ================================================================================================

        What is promised, for rows that are exchangeable: "jackknife" covers at least 2·coverage − 1 in any finite
        sample, whatever the distribution, if the bandwidth was given as numbers (``coverage`` itself in practice, and
        rows of ``LocalLinearRegressor`` keep their ridge). "conformal" contains at least ``coverage`` of the training
        rows, each answered without itself; it holds for a new row as far as one row more moves neither f(x) nor s(x),
        and says infinity where n is too small for the rank. With a learned bandwidth neither is a theorem, for its
        search has seen the rows: residuals then come from a bandwidth learned without the row (up to 2,000 rows), and
        benchmarks/results/intervals.md has what that covers. "local" promises nothing and is the narrowest.

        *Empty rows*: around what ``empty`` answers. *Cost*: as ``predict`` with ``return_std``; "jackknife" looks at
        every weight, O(Q·K·d²) time and a tile of memory.

        >>> from regard import AveragePoolingRegressor
        >>> model = AveragePoolingRegressor().fit([[0.0]] * 9, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
        >>> model.predict_interval([[0.0]], 0.8, "jackknife").round(3).tolist()
        [[1.0, 9.0]]
        """
        level = checked_coverage(coverage)
        one_of(*INTERVALS)("method", method)
        query, output = self._centred(X)
        return _shaped(interval(self._asked, self._residuals(), query, as_columns(output), level, method), output)

    def predict_quantiles(self, X: Any, q: Any, smoothed: bool = False) -> Array:
        """Quantiles of y given x: (Q, m) for m levels q, (Q,) for one; (Q, P, m) and (Q, P) where y has P columns.

        f(x) + s(x)·(quantile of the standardised residuals): left-out residuals carried to the prediction, which score
        better than quantiles of the attended y itself. They never cross. ``smoothed`` takes the quantiles of Student's
        t fitted to the residuals, which go on beyond the largest; that is what ``predict_density`` uses.

        *Empty rows*: around what ``empty`` answers. *Cost*: as ``predict`` with ``return_std``.
        """
        levels = checked_levels(q)
        query, output = self._centred(X)
        centre, at = as_columns(output), levels.reshape(-1)
        ends = quantiles_at(self._asked, self._residuals(), query, centre, at, smoothed=smoothed)
        found = _shaped(ends, output)
        return found if levels.ndim else found[..., 0]

    def predict_density(self, X: Any, y: Any) -> Array:
        """Density of y given x at every row, (Q,), or (Q, P) column by column; in units of 1/y.

        Student's t around f(x), its width s(x) times one width for all rows, its degrees of freedom one for all.

        *Cost*: as ``predict`` with ``return_std``.
        """
        return np.exp(self._log_density(X, y))

    def log_likelihood(self, X: Any, y: Any) -> float:
        """Mean logarithm of the density of y given x over the rows; columns of y add up. Higher is better."""
        found = self._log_density(X, y)
        return float(found.reshape(len(found), -1).sum(axis=1).mean())

    def standard_error(self, X: Any, method: str = "weights") -> Array:
        """Standard error of the prediction itself as a mean, (Q,) or (Q, P).

        "weights": √Σ ℓ_i²·residual_i², ℓ the effective weights and residuals left out. "np": ``merr`` of R's np, the
        variance of y in the window times R(K)/Σ K; for one bandwidth, given or learned. Neither knows about bias.

        *Empty rows*: those of ``attend``; NaN with "np". *Cost*: "weights" O(Q·K·d) and a tile, "np" one ``pool``.
        """
        one_of(*ERRORS)("method", method)
        query = self._query(X)
        found = standard_error(self._asked, self._residuals() if method == "weights" else None, query, method)
        return np.asarray(found[:, 0] if self.value_.ndim == 1 else found, query.dtype)

    def confidence_interval(
        self,
        X: Any,
        coverage: float = 0.9,
        method: str = "asymptotic",
        *,
        draws: int = 500,
        random_state: Any = None,
    ) -> Array:
        """Where the mean of y given x should lie: (Q, 2), or (Q, P, 2) where y has P columns.

        "asymptotic": f(x) ± z·``standard_error``. It is an interval for what f(x) is on average over training sets, the
        smoothed mean: the bias of smoothing is not in it, and a learned bandwidth makes bias and error of one size.
        "bootstrap": residuals flip their signs at random ``draws`` times, and the interval is shifted by the bias that
        smoothing the fit once more shows.

        *Empty rows*: around what ``empty`` answers. *Cost*: O(Q·K·d) time and a tile, or ``predict`` of ``draws``
        columns and of all training rows.
        """
        level = checked_coverage(coverage)
        one_of(*CONFIDENCE)("method", method)
        query, output = self._centred(X)
        centre, known = as_columns(output), self._residuals()
        if method == "asymptotic":
            return _shaped(confidence(self._asked, known, query, centre, level), output)
        whole("draws", draws, least=2)
        random = check_random_state(random_state)
        return _shaped(bootstrap(self._asked, known, query, centre, level, int(draws), random), output)

    def _centred(self, X: Any) -> tuple[Array, Array]:
        """Queries, and predictions as ``predict`` gives them."""
        query = self._query(X)
        return query, self._reported(self._answer(query))

    def _log_density(self, X: Any, y: Any) -> Array:
        query, output = self._centred(X)
        given = np.asarray(y, np.float64)
        if given.shape != output.shape:
            raise ValueError(f"y must have shape {output.shape}, one entry per prediction, got {given.shape}")
        error = as_columns(given) - as_columns(output)
        found = log_densities(self._asked, self._residuals(), query, error)
        return np.asarray(found[:, 0] if output.ndim == 1 else found)

    # ---- residuals

    def _residuals(self) -> Residuals:
        """Residuals and their spread, computed once."""
        check_is_fitted(self)
        if "spread_" not in vars(self):
            answers = vars(self).get("loo_predictions_")
            answers = None if answers is None else as_columns(answers)
            found = learn_residuals(self._asked, answers, self._relearned())
            single = self.value_.ndim == 1
            self.residuals_ = found.residual[:, 0] if single else found.residual
            self.standardised_residuals_ = found.standardised[:, 0] if single else found.standardised
            self.spread_ = found.widening, found.overall
        return Residuals(as_columns(self.residuals_), as_columns(self.standardised_residuals_), *self.spread_)

    def _relearned(self) -> Relearn | None:
        """What of the heads goes on learning without a row's fold."""
        params = self.get_params(deep=False)
        given = {name: params.get(name, word) for name, word in USUAL.items()}
        usual = all(isinstance(given[name], str) and given[name] == word for name, word in USUAL.items())
        if "search_" not in vars(self) or not usual:
            return None
        return "w and ridge" if params.get("ridge", "loo") == "loo" else "w"

    def _errors_of_rows(self) -> Array:
        """Left-out residuals (K, P), without gaps."""
        return self._residuals().filled()

    def _decided(self, prediction: Array) -> Array:
        """What ``predict`` says of predictions (Q, P)."""
        return prediction[:, 0] if self.value_.ndim == 1 else prediction

    def _drift_errors(self, X: Any, y: Any, query: Array) -> Errors:
        """Errors of new rows and of left-out ones, in units of the latter's size where there are several outputs."""
        output = np.asarray(self.predict(X), np.float64)
        given = np.asarray(y, np.float64)
        if given.shape != output.shape or not np.isfinite(given).all():
            raise ValueError(
                f"y must be finite numbers of shape {output.shape}, one entry per prediction, got {y!r:.80}"
            )
        signed = (given - output).reshape(len(query), -1)
        residual = self._residuals().residual
        known = np.asarray(~np.isnan(residual).any(axis=1))
        sample = Sample.of(self._asked.rows.sample_weight, len(known)).among(known)
        residual = residual[known]
        unit = sample.share @ np.abs(residual)
        unit = np.where((unit > 0.0) & (len(unit) > 1), unit, 1.0)
        new, old = ((np.abs(part) / unit).mean(axis=1) for part in (signed, residual))
        return Errors(new, signed, old, residual, sample)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


def _shaped(found: Array, output: Array) -> Array:
    """Columns (Q, P) or ends (Q, P, m) shaped and typed as the predictions are; NaN where those are."""
    nothing = np.asarray(np.isnan(as_columns(output)))
    found = np.where(nothing[..., None] if found.ndim > nothing.ndim else nothing, np.nan, found)
    with np.errstate(over="ignore"):
        return np.asarray(found[:, 0] if output.ndim == 1 else found, output.dtype)
