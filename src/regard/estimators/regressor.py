"""The base class of regressors: predictions, and their uncertainty."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from regard.cluster.cluster_predict import lazy_answers
from regard.core.arrays import Array, is_chunked
from regard.estimators.base import SmoothingEstimator, if_has_partial_fit
from regard.estimators.parameters import one_of, whole_number
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

# With these parameters a bandwidth can be relearned without a fold; other criteria and optimizers end elsewhere.
RELEARNABLE_PARAMETERS = {"bandwidth": "loo", "optimizer": "lbfgs", "loss": "squared"}


class SmoothingRegressor(RegressorMixin, SmoothingEstimator):  # type: ignore[misc]
    """``predict``, and intervals and densities from leave-one-out residuals.

    Attributes that are computed when first needed, and stored with the model:

    residuals_ : array of shape (K,) or (K, P)
        y minus its leave-one-out prediction. NaN for rows of zero weight, and beyond 200,000 rows for all but 20,000
        unless an engine is fast enough. If the bandwidth was learned from at most 2,000 rows, it is relearned without
        the row's fold (``regard.model.residuals``), which costs about as much as ``fit``. Groups given to ``fit`` are
        not stored, so rows are left out one by one.
    standardised_residuals_ : array of the same shape
        Residuals divided by their scale at the row, estimated from the other rows.
    spread_ : tuple of two floats
        Factor of w for attention over residuals, and weight of the overall mean in their scale
        (``regard.model.residual_scale``).
    """

    _IGNORES_X: ClassVar[bool] = False

    residuals_: Array
    standardised_residuals_: Array
    spread_: tuple[float, float]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict y for every row of X.

        Parameters
        ----------
        X : array-like, dataframe or dask collection of shape (Q, d)
            Queries.
        return_std : bool, default=False
            Also return the standard deviation of y around the prediction, estimated from leave-one-out residuals (those
            of the fit itself are too small).

        Returns
        -------
        array (Q,) or (Q, P), or a tuple of two
            Like y, in the dtype of X (at least float32); with ``return_std`` predictions and standard deviations. Lazy
            if X is a dask collection.

        *Empty rows*: according to ``empty``, if the estimator has it. *Cost*: O(Q·K·d) time, O(Q + K) memory and a
        tile; twice that with ``return_std``, and the residuals at its first call.
        """
        if is_chunked(X):
            if return_std:
                raise TypeError("return_std=True needs X in memory, but X is a dask collection; call X.compute() first")
            return lazy_answers(self, X, "predict")
        query = self._query(X)
        output = self._handle_empty_rows(self._answer(query))
        if not return_std:
            return output
        return output, _shaped(deviation(self._configured_smoother, self._residuals(), query), output)

    @if_has_partial_fit
    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, window: int | None = None, forgetting: float | None = None
    ) -> Self:
        """Append training rows.

        With a numeric bandwidth, or none, the result equals ``fit`` on all rows together. A bandwidth that is learned
        or comes from a rule is determined by the first call and then kept; call ``fit`` to learn it again.
        ``loo_predictions_`` and ``loo_score_`` are dropped once rows were added.

        Parameters
        ----------
        X : array-like or dataframe of shape (k, d)
            New rows.
        y : array-like of shape (k,) or (k, P)
            Their values.
        sample_weight : array-like of shape (k,), default=None
            As in ``fit``; rows without a weight have weight 1. If some batches have float weights, all weights are
            importances.
        window : int, default=None
            Keep only the last ``window`` rows, including the new ones; the others are removed as by ``forget``.
        forgetting : float in (0, 1], default=None
            Every new row multiplies the weights of all earlier rows by ``forgetting``: a row that is followed by a rows
            has weight forgetting^a, however rows are split into batches.

        Returns
        -------
        self
            Equal to ``fit`` on the remaining rows with their weights.

        *Cost*: the first call is ``fit``; later ones take O(k·d) amortised time and memory for up to twice the rows, or
        O(window·d) with ``window`` and O(K) with ``forgetting``.

        >>> from regard import NearestKeyRegressor
        >>> model = NearestKeyRegressor().partial_fit([[0.0]], [2.0]).partial_fit([[1.0]], [4.0])
        >>> model.predict([[0.1], [0.9]]).tolist()
        [2.0, 4.0]
        """
        self._partial_fit(X, y, None, sample_weight, window, forgetting)
        return self

    def predict_interval(self, X: Any, coverage: float = 0.9, method: str = "local") -> Array:
        """Prediction intervals for y of new rows: bounds (Q, 2), or (Q, P, 2) if y has P columns.

        ===========  ================================================================================================
        "local"      f(x) + s(x)·quantiles of the standardised residuals; not necessarily symmetric
        "conformal"  f(x) ± s(x)·(the ⌈coverage·(n + 1)⌉-th smallest absolute standardised residual of n)
        "jackknife"  jackknife+: quantiles of f_{−i}(x) ± |residual_i| over the training rows i, about equally wide
        ===========  ================================================================================================

        Guarantees for exchangeable rows: "jackknife" covers at least 2·coverage − 1 in any finite sample and for any
        distribution if the bandwidth is numeric (in practice ``coverage``; with a ridge the guarantee is approximate).
        "conformal" contains at least ``coverage`` of the training rows, each predicted without itself; this extends to
        a new row as far as adding one row changes neither f(x) nor s(x). Its bounds are infinite if n is too small.
        "local" has no guarantee and is the narrowest. With a learned bandwidth none of them is guaranteed, since the
        search used all rows; residuals are then relearned without the row's fold (up to 2,000 rows), with the coverage
        reported in benchmarks/results/intervals.md.

        Parameters
        ----------
        X : array-like or dataframe of shape (Q, d)
            Queries.
        coverage : float, default=0.9
            Fraction of new y that the intervals are to contain, between 0 and 1.
        method : {"local", "conformal", "jackknife"}, default="local"
            How bounds are computed.

        Returns
        -------
        array (Q, 2) or (Q, P, 2)
            Lower and upper bounds.

        *Empty rows*: around the prediction that ``empty`` gives. *Cost*: as ``predict`` with ``return_std``;
        "jackknife" computes every weight, in O(Q·K·d²) time and a tile of memory.

        >>> from regard import AveragePoolingRegressor
        >>> model = AveragePoolingRegressor().fit([[0.0]] * 9, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
        >>> model.predict_interval([[0.0]], 0.8, "jackknife").round(3).tolist()
        [[1.0, 9.0]]
        """
        level = checked_coverage(coverage)
        one_of(*INTERVALS)("method", method)
        query, output = self._query_and_prediction(X)
        smoother, centre = self._configured_smoother, as_columns(output)
        return _shaped(interval(smoother, self._residuals(), query, centre, level, method), output)

    def predict_quantiles(self, X: Any, q: Any, smoothed: bool = False) -> Array:
        """Conditional quantiles of y.

        f(x) + s(x)·(quantile of the standardised residuals). They never cross.

        Parameters
        ----------
        X : array-like or dataframe of shape (Q, d)
            Queries.
        q : float or array-like of shape (m,)
            Levels, between 0 and 1.
        smoothed : bool, default=False
            Use the quantiles of the Student's t of ``predict_density`` instead, which extend beyond the largest
            residual.

        Returns
        -------
        array (Q, m) for m levels, (Q,) for one
            (Q, P, m) and (Q, P) if y has P columns.

        *Empty rows*: around the prediction that ``empty`` gives. *Cost*: as ``predict`` with ``return_std``.
        """
        levels = checked_levels(q)
        query, output = self._query_and_prediction(X)
        centre, at = as_columns(output), levels.reshape(-1)
        ends = quantiles_at(self._configured_smoother, self._residuals(), query, centre, at, smoothed=smoothed)
        found = _shaped(ends, output)
        return found if levels.ndim else found[..., 0]

    def predict_density(self, X: Any, y: Any) -> Array:
        """Conditional density of y at every row, (Q,), or (Q, P) for each column; in units of 1/y.

        Student's t around f(x), with scale proportional to s(x) and the same degrees of freedom for all rows.

        Parameters
        ----------
        X : array-like or dataframe of shape (Q, d)
            Queries.
        y : array-like of shape (Q,) or (Q, P)
            Where to evaluate the density, one for each query.

        Returns
        -------
        array (Q,) or (Q, P)

        *Cost*: as ``predict`` with ``return_std``.
        """
        return np.exp(self._log_density(X, y))

    def log_likelihood(self, X: Any, y: Any) -> float:
        """Mean conditional log-density of y over the rows, summed over the columns of y. Higher is better.

        Parameters
        ----------
        X : array-like or dataframe of shape (Q, d)
            Queries.
        y : array-like of shape (Q,) or (Q, P)
            Their values.

        Returns
        -------
        float
        """
        found = self._log_density(X, y)
        return float(found.reshape(len(found), -1).sum(axis=1).mean())

    def standard_error(self, X: Any, method: str = "weights") -> Array:
        """Standard error of the prediction as an estimate of the mean, (Q,) or (Q, P).

        "weights": √Σ ℓ_i²·residual_i² with effective weights ℓ and leave-one-out residuals. "np": ``merr`` of R's np,
        from the variance of y in the window times R(K)/Σ K; needs a fixed bandwidth. Neither includes the bias.

        Parameters
        ----------
        X : array-like or dataframe of shape (Q, d)
            Queries.
        method : {"weights", "np"}, default="weights"
            How the error is estimated.

        Returns
        -------
        array (Q,) or (Q, P)

        *Empty rows*: as in ``attend``; NaN with "np". *Cost*: "weights" O(Q·K·d) and a tile, "np" one ``pool``.
        """
        one_of(*ERRORS)("method", method)
        query = self._query(X)
        residuals = self._residuals() if method == "weights" else None
        return self._shaped(standard_error(self._configured_smoother, residuals, query, method), query)

    def confidence_interval(
        self,
        X: Any,
        coverage: float = 0.9,
        method: str = "asymptotic",
        *,
        draws: int = 500,
        random_state: Any = None,
    ) -> Array:
        """Confidence intervals for the conditional mean of y: (Q, 2), or (Q, P, 2) if y has P columns.

        "asymptotic": f(x) ± z·``standard_error``, an interval for the expectation of f(x) over training sets: it does
        not include the bias of smoothing, which for a learned bandwidth is about as large as the standard error.
        "bootstrap": the wild bootstrap with random signs of the residuals, shifted by an estimate of the bias from
        smoothing the fit again.

        Parameters
        ----------
        X : array-like or dataframe of shape (Q, d)
            Queries.
        coverage : float, default=0.9
            Between 0 and 1.
        method : {"asymptotic", "bootstrap"}, default="asymptotic"
            How bounds are computed.
        draws : int, default=500
            Draws of the bootstrap, at least 2.
        random_state : int, RandomState or None, default=None
            Seed of the bootstrap.

        Returns
        -------
        array (Q, 2) or (Q, P, 2)
            Lower and upper bounds.

        *Empty rows*: around the prediction that ``empty`` gives. *Cost*: O(Q·K·d) time and a tile, or ``predict`` of
        ``draws`` columns and of all training rows.
        """
        level = checked_coverage(coverage)
        one_of(*CONFIDENCE)("method", method)
        query, output = self._query_and_prediction(X)
        centre, known = as_columns(output), self._residuals()
        if method == "asymptotic":
            return _shaped(confidence(self._configured_smoother, known, query, centre, level), output)
        whole_number("draws", draws, least=2)
        random = check_random_state(random_state)
        return _shaped(bootstrap(self._configured_smoother, known, query, centre, level, int(draws), random), output)

    def _query_and_prediction(self, X: Any) -> tuple[Array, Array]:
        """X as an array, and its predictions."""
        query = self._query(X)
        return query, self._handle_empty_rows(self._answer(query))

    def _log_density(self, X: Any, y: Any) -> Array:
        query, output = self._query_and_prediction(X)
        given = np.asarray(y, np.float64)
        if given.shape != output.shape:
            raise ValueError(f"y must have shape {output.shape}, one entry per prediction, got {given.shape}")
        error = as_columns(given) - as_columns(output)
        found = log_densities(self._configured_smoother, self._residuals(), query, error)
        return np.asarray(found[:, 0] if output.ndim == 1 else found)

    # ---- residuals

    def _residuals(self) -> Residuals:
        """Residuals and their scale, computed once."""
        check_is_fitted(self)
        if "spread_" not in vars(self):
            answers = vars(self).get("loo_predictions_")
            answers = None if answers is None else as_columns(answers)
            found = learn_residuals(self._configured_smoother, answers, self._what_to_relearn())
            single = self.value_.ndim == 1
            self.residuals_ = found.residual[:, 0] if single else found.residual
            self.standardised_residuals_ = found.standardised[:, 0] if single else found.standardised
            self.spread_ = found.widening, found.overall
        return Residuals(as_columns(self.residuals_), as_columns(self.standardised_residuals_), *self.spread_)

    def _what_to_relearn(self) -> Relearn | None:
        """What is relearned without a row's fold; nothing for a mixture, whose left-out answers are cross-fitted."""
        if "heads_" in vars(self):
            return None
        params = self.get_params(deep=False)
        given = [(params.get(name, expected), expected) for name, expected in RELEARNABLE_PARAMETERS.items()]
        if "search_" not in vars(self) or not all(isinstance(one, str) and one == expected for one, expected in given):
            return None
        return "w and ridge" if params.get("ridge", "loo") == "loo" else "w"

    def _left_out_errors(self) -> Array:
        """Leave-one-out residuals (K, P), without NaN."""
        return self._residuals().filled()

    def _to_predictions(self, prediction: Array) -> Array:
        """Pooled values (Q, P) in the shape that ``predict`` returns."""
        return prediction[:, 0] if self.value_.ndim == 1 else prediction

    def _drift_errors(self, X: Any, y: Any, query: Array) -> Errors:
        """Errors of new rows and of left-out ones, relative to the latter's mean if there are several outputs."""
        output = np.asarray(self.predict(X), np.float64)
        given = np.asarray(y, np.float64)
        if given.shape != output.shape or not np.isfinite(given).all():
            raise ValueError(
                f"y must be finite numbers of shape {output.shape}, one entry per prediction, got {y!r:.80}"
            )
        signed = (given - output).reshape(len(query), -1)
        residual = self._residuals().residual
        known = np.asarray(~np.isnan(residual).any(axis=1))
        sample = Sample.of(self._configured_smoother.rows.sample_weight, len(known)).among(known)
        residual = residual[known]
        unit = sample.share @ np.abs(residual)
        unit = np.where((unit > 0.0) & (len(unit) > 1), unit, 1.0)
        new, old = ((np.abs(part) / unit).mean(axis=1) for part in (signed, residual))
        return Errors(new, signed, old, residual, sample)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        tags.regressor_tags.poor_score = self._IGNORES_X
        return tags


def _shaped(found: Array, output: Array) -> Array:
    """Columns (Q, P) or bounds (Q, P, m) in the shape and dtype of the predictions; NaN where those are NaN."""
    missing = np.asarray(np.isnan(as_columns(output)))
    found = np.where(missing[..., None] if found.ndim > missing.ndim else missing, np.nan, found)
    with np.errstate(over="ignore"):
        return np.asarray(found[:, 0] if output.ndim == 1 else found, output.dtype)
