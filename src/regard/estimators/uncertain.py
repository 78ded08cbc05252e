"""How sure is it: spread, intervals, quantiles and densities around the predictions of a regressor."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.utils import check_random_state

from regard.arrays import is_chunked
from regard.estimators.base import Array
from regard.estimators.deleting import answers_without_each
from regard.estimators.explaining import attentions, copies_of, effective_of
from regard.estimators.gappy import has_gaps
from regard.estimators.lazily import lazy_answers
from regard.estimators.looking_back import LookingBack, as_columns
from regard.inference.confidence import np_merr, standard_errors, wild_draws
from regard.inference.jackknife import jackknife_interval
from regard.inference.ranks import checked_coverage, checked_levels, conformal_bound, quantiles, smooth_quantiles
from regard.inference.spread import fit_tails, log_density, row_counts

METHODS = ("local", "conformal", "jackknife")
CONFIDENCE = ("asymptotic", "bootstrap")
ERRORS = ("weights", "np")
# Weights held at once by the jackknife.
TILE_CELLS = 1 << 19


class UncertainRegressor(LookingBack):
    """What a regressor knows about its own errors, from every training row as the others predict it."""

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
        output, nobody = self._answers(query)
        self._report(nobody)
        if not return_std:
            return output
        shown, counts = self._shown()
        size = np.sqrt(counts / counts.sum() @ shown**2)
        return output, self._told(self._spread(query) * size, output)

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
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}")
        query, output, centre, nobody = self._centred(X)
        self._report(nobody)
        shown, counts = self._shown()
        if method == "jackknife":
            return self._told(self._jackknifed(query, level), output, ends=True)
        if method == "conformal":
            bound = conformal_bound(np.abs(shown), counts, level)
            reach = np.stack([-bound, bound])
        else:
            reach = quantiles(shown, counts, np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0]))
        ends = centre[..., None] + _times(self._spread(query)[..., None], reach.T)
        return self._told(ends, output, ends=True)

    def predict_quantiles(self, X: Any, q: Any, smoothed: bool = False) -> Array:
        """Quantiles of y given x: (Q, m) for m levels q, (Q,) for one; (Q, P, m) and (Q, P) where y has P columns.

        f(x) + s(x)·(quantile of the standardised residuals): left-out residuals carried to the prediction, which score
        better than quantiles of the attended y itself. They never cross. ``smoothed`` takes the quantiles of Student's
        t fitted to the residuals, which go on beyond the largest; that is what ``predict_density`` uses.

        *Empty rows*: around what ``empty`` answers. *Cost*: as ``predict`` with ``return_std``.
        """
        levels = checked_levels(q)
        query, output, centre, nobody = self._centred(X)
        self._report(nobody)
        shown, counts = self._shown()
        at = levels.reshape(-1)
        reach = smooth_quantiles(fit_tails(shown, counts), at) if smoothed else quantiles(shown, counts, at)
        found = self._told(centre[..., None] + self._spread(query)[..., None] * reach.T, output, ends=True)
        return found if levels.ndim else found[..., 0]

    def predict_density(self, X: Any, y: Any) -> Array:
        """Density of y given x at every row, (Q,), or (Q, P) column by column; in units of 1/y.

        Student's t around f(x), its width s(x) times one width for all rows, its degrees of freedom one for all.

        *Cost*: as ``predict`` with ``return_std``.
        """
        told, nobody = self._log_density(X, y)
        self._report(nobody)
        return np.exp(told)

    def log_likelihood(self, X: Any, y: Any) -> float:
        """Mean logarithm of the density of y given x over the rows; columns of y add up. Higher is better."""
        told, nobody = self._log_density(X, y)
        self._report(nobody)
        return float(told.reshape(len(told), -1).sum(axis=1).mean())

    def standard_error(self, X: Any, method: str = "weights") -> Array:
        """Standard error of the prediction itself as a mean, (Q,) or (Q, P).

        "weights": √Σ ℓ_i²·residual_i², ℓ the effective weights and residuals left out. "np": ``merr`` of R's np, the
        variance of y in the window times R(K)/Σ K; for one bandwidth, given or learned. Neither knows about bias.

        *Empty rows*: those of ``attend``; NaN with "np". *Cost*: "weights" O(Q·K·d) and a tile, "np" one ``pool``.
        """
        if method not in ERRORS:
            raise ValueError(f"method must be one of {', '.join(map(repr, ERRORS))}, got {method!r}")
        query = self._query(X)
        if method == "weights":
            found = standard_errors(partial(effective_of, self), query, self._filled(), copies_of(self))
        else:
            if hasattr(self, "heads_") or hasattr(self, "neighbours_"):
                raise ValueError("method='np' is for one bandwidth; this model has several: use 'weights'")
            options: dict[str, Any] = {"sample_weight": self.sample_weight_, "engine": self._engine, "tol": self.tol}
            key, value = self.key_.astype(np.float64), as_columns(self.value_)
            found = np_merr(query.astype(np.float64), key, value, self.attention_score_, **options)
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
        if method not in CONFIDENCE:
            raise ValueError(f"method must be one of {', '.join(map(repr, CONFIDENCE))}, got {method!r}")
        query, output, centre, nobody = self._centred(X)
        self._report(nobody)
        if method == "asymptotic":
            error = standard_errors(partial(effective_of, self), query, self._filled(), copies_of(self))
            reach = ndtri((1.0 + level) / 2.0) * error
            return self._told(np.stack([centre - reach, centre + reach], axis=-1), output, ends=True)
        if isinstance(draws, bool) or not isinstance(draws, int | np.integer) or draws < 2:
            raise ValueError(f"draws must be a whole number of at least 2, got {draws!r}")
        value = as_columns(self.value_)
        fitted = self._pooled(self.key_.astype(np.float64), value)[0]
        twice = self._pooled(query.astype(np.float64), fitted)[0]
        moved = wild_draws(
            lambda values: self._pooled(query.astype(np.float64), values)[0],
            self._filled(),
            copies_of(self),
            int(draws),
            check_random_state(random_state),
        )
        high, low = np.quantile(moved, [(1.0 + level) / 2.0, (1.0 - level) / 2.0], axis=0)
        bias = twice - centre
        return self._told(np.stack([centre - bias - high, centre - bias - low], axis=-1), output, ends=True)

    def _centred(self, X: Any) -> tuple[Array, Array, Array, Array]:
        """Queries, predictions as ``predict`` gives them and as float64 columns (Q, P), and who had nobody in reach."""
        query = self._query(X)
        output, nobody = self._answers(query)
        return query, output, as_columns(output), nobody

    def _told(self, found: Array, output: Array, *, ends: bool = False) -> Array:
        """Columns (Q, P) or ends (Q, P, m) shaped and typed as the predictions are; NaN where those are."""
        nothing = np.asarray(np.isnan(as_columns(output)))
        found = np.where(nothing[..., None] if ends else nothing, np.nan, found)
        with np.errstate(over="ignore"):
            return np.asarray(found[:, 0] if output.ndim == 1 else found, output.dtype)

    def _log_density(self, X: Any, y: Any) -> tuple[Array, Array]:
        query, output, centre, nobody = self._centred(X)
        given = np.asarray(y, np.float64)
        if given.shape != output.shape:
            raise ValueError(f"y must have shape {output.shape}, one entry per prediction, got {given.shape}")
        shown, counts = self._shown()
        spread = self._spread(query)
        told = log_density((as_columns(given) - centre) / spread, fit_tails(shown, counts)) - np.log(spread)
        return np.asarray(told[:, 0] if output.ndim == 1 else told), nobody

    def _jackknifed(self, query: Array, coverage: float) -> Array:
        """Jackknife+ intervals (Q, P, 2)."""
        if hasattr(self, "neighbours_"):
            raise ValueError("method='jackknife' needs one bandwidth, and bandwidth='adaptive' has one for every row")
        if has_gaps(self, query):
            raise ValueError("method='jackknife' needs rows without gaps; use method='conformal'")
        self._look_back()
        residual, value = as_columns(self.residuals_), as_columns(self.value_)
        told = ~np.isnan(residual).any(axis=1)
        counts = row_counts(None if self.sample_weight_ is None else self.sample_weight_[told], int(told.sum()))
        out = np.empty((len(query), value.shape[1], 2))
        tile = max(1, TILE_CELLS // (len(value) * query.shape[1]))
        for start in range(0, len(query), tile):
            rows = slice(start, min(start + tile, len(query)))
            for column in range(value.shape[1]):
                answer: Any = 0.0
                for share, model, at in attentions(self, query[rows]):
                    answer = answer + share * answers_without_each(model, at, value[:, column], copies_of(self))
                size = np.abs(residual[told, column])
                out[rows, column] = jackknife_interval(answer[:, told], size, counts, coverage)
        return out


def _times(spread: Array, reach: Array) -> Array:
    """Their product, 0·inf being inf: no rank, no bound."""
    with np.errstate(invalid="ignore"):
        return np.where(
            np.isinf(reach), np.broadcast_to(reach, np.broadcast_shapes(spread.shape, reach.shape)), spread * reach
        )
