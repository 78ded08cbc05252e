"""Intervals, quantiles and densities of y around the predictions of a smoother, from its left-out residuals.

All results are columns in float64: (Q, P) or, with several ends or levels m, (Q, P, m); ``centre`` (Q, P) are the
predictions.

Standard errors and confidence intervals concern the prediction as an estimate of the mean. It is Σ ℓ_i·y_i; with
independent errors its variance is Σ ℓ_i²·var(y_i), estimated conservatively from left-out residuals. They do not
include the bias: they measure the variation of the estimate around its own expectation, the smoothed mean.
"""

from __future__ import annotations

import numpy as np
from scipy.integrate import quad
from scipy.special import ndtri, stdtrit

from regard.core.arrays import Array
from regard.core.scores import Radial
from regard.model.jackknife import jackknife_intervals
from regard.model.quantiles import conformal_bound, quantiles
from regard.model.residual_scale import fit_t, log_density
from regard.model.residuals import Residuals
from regard.model.smoother import Smoother, tiles
from regard.pooling.functions import pool

INTERVALS = ("local", "conformal", "jackknife")
CONFIDENCE = ("asymptotic", "bootstrap")
ERRORS = ("weights", "np")
# Effective weights in one tile.
TILE_CELLS = 1 << 20


def deviation(smoother: Smoother, residuals: Residuals, query: Array) -> Array:
    """Standard deviation of y around the prediction."""
    standardised, counts = residuals.known(smoother.rows.sample_weight)
    return np.asarray(residuals.scale_at(smoother, query) * np.sqrt(counts / counts.sum() @ standardised**2))


def interval(
    smoother: Smoother, residuals: Residuals, query: Array, centre: Array, coverage: float, method: str
) -> Array:
    """Bounds (Q, P, 2) of prediction intervals; ``method`` is one of ``INTERVALS``."""
    standardised, counts = residuals.known(smoother.rows.sample_weight)
    if method == "jackknife":
        return jackknife_intervals(smoother, residuals, query, coverage)
    if method == "conformal":
        bound = conformal_bound(np.abs(standardised), counts, coverage)
        reach = np.stack([-bound, bound])
    else:
        reach = quantiles(standardised, counts, np.array([(1.0 - coverage) / 2.0, (1.0 + coverage) / 2.0]))
    return np.asarray(centre[..., None] + _times(residuals.scale_at(smoother, query)[..., None], reach.T))


def quantiles_at(
    smoother: Smoother, residuals: Residuals, query: Array, centre: Array, levels: Array, *, smoothed: bool
) -> Array:
    """Quantiles (Q, P, m) at levels (m,): those of the residuals, or of Student's t fitted to them."""
    standardised, counts = residuals.known(smoother.rows.sample_weight)
    if smoothed:
        t = fit_t(standardised, counts)
        reach = t.width * stdtrit(t.freedom, levels[:, None])
    else:
        reach = quantiles(standardised, counts, levels)
    return np.asarray(centre[..., None] + residuals.scale_at(smoother, query)[..., None] * reach.T)


def log_densities(smoother: Smoother, residuals: Residuals, query: Array, error: Array) -> Array:
    """Log-density (Q, P) of y at a distance ``error`` (Q, P) from the predictions."""
    standardised, counts = residuals.known(smoother.rows.sample_weight)
    scale = residuals.scale_at(smoother, query)
    return np.asarray(log_density(error / scale, fit_t(standardised, counts)) - np.log(scale))


def standard_error(smoother: Smoother, residuals: Residuals | None, query: Array, method: str) -> Array:
    """Standard error (Q, P) of the predictions; ``method`` is one of ``ERRORS``, "weights" needs residuals.

    "weights": √Σ_i ℓ_i(x)²·residual_i²/copies_i, ℓ the effective weights. *Cost*: O(Q·K·d) time, a tile of memory.
    """
    if method == "np":
        return _np_merr(smoother, query)
    assert residuals is not None
    residual = residuals.filled()
    out, squares = np.empty((len(query), residual.shape[1])), residual**2 / smoother.rows.copies[:, None]
    for some in tiles(len(query), len(residual), TILE_CELLS):
        out[some] = np.sqrt(smoother.effective_weights(query[some]).output.astype(np.float64) ** 2 @ squares)
    return out


def _np_merr(smoother: Smoother, query: Array) -> Array:
    """``merr`` of R's np, (Q, P): √(σ²(x)·R(K)^d / Σ_i K((x − x_i)/h)), the same for means and for lines.

    σ²(x) = Σ α·y² − (Σ α·y)² is the variance of y in the window, not around the prediction; R(K) = ∫K². Kernels other
    than the Gaussian need a single feature: with several, those of np are products, while those here are radial.

    *Empty rows*: NaN. *Cost*: one ``pool``.
    """
    rows, features, (head, *others) = smoother.rows, query.shape[1], smoother.heads
    if others or head.neighbours is not None:
        raise ValueError("method='np' needs a single bandwidth, but this model has several; use method='weights'")
    score = head.score
    if not isinstance(score, Radial):
        raise ValueError("method='np' needs a kernel, but this model has a learned score; use method='weights'")
    if head.w.ndim == 2 or not np.all(head.w):
        raise ValueError("method='np' needs a finite bandwidth for every feature; use method='weights'")
    kernel = score.kernel
    if features > 1 and kernel.name != "gaussian":
        raise ValueError(
            f"method='np' with {features} features needs kernel='gaussian', got {kernel.name!r}; use method='weights'"
        )
    whole = 2.0 * quad(lambda u: float(kernel.value(np.asarray(u * u))), 0.0, 1.0 if kernel.compact else 60.0)[0]
    value = rows.columns
    centre = value.mean(axis=0)
    columns = np.concatenate([value - centre, (value - centre) ** 2], axis=1)
    options = {"sample_weight": rows.sample_weight, **smoother.run.options}
    output, logsumexp = pool(query.astype(np.float64), rows.key.astype(np.float64), columns, score, **options)
    mean, square = np.split(output, 2, axis=1)
    variance = np.maximum(square - mean**2, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        out = np.sqrt(variance * (kernel.roughness * whole) ** features / np.exp(logsumexp)[:, None])
    out[np.isneginf(logsumexp)] = np.nan
    return np.asarray(out)


def confidence(smoother: Smoother, residuals: Residuals, query: Array, centre: Array, coverage: float) -> Array:
    """Bounds (Q, P, 2): predictions ± z·standard error."""
    reach = ndtri((1.0 + coverage) / 2.0) * standard_error(smoother, residuals, query, "weights")
    return np.stack([centre - reach, centre + reach], axis=-1)


def bootstrap(
    smoother: Smoother,
    residuals: Residuals,
    query: Array,
    centre: Array,
    coverage: float,
    draws: int,
    random: np.random.RandomState,
) -> Array:
    """Bounds (Q, P, 2) by the wild bootstrap (random signs of residuals), corrected for the bias of smoothing the fit.

    A row of k repetitions adds up k random signs. *Cost*: a prediction of ``draws`` columns for each output, 64 at a
    time, and of all training rows.
    """
    rows, at, copies = smoother.rows, query.astype(np.float64), smoother.rows.copies[:, None]
    fitted = smoother.answer(rows.key.astype(np.float64), rows.columns).output
    moved = []
    for start in range(0, draws, 64):
        count = min(64, draws - start)
        signs = (2.0 * random.binomial(copies.astype(np.int64), 0.5, (len(copies), count)) - copies) / copies  # (K, m)
        columns = [smoother.answer(at, signs * residual[:, None]).output for residual in residuals.filled().T]
        moved.append(np.stack(columns, axis=-1))  # (Q, m, P)
    levels = [(1.0 + coverage) / 2.0, (1.0 - coverage) / 2.0]
    high, low = np.quantile(np.concatenate(moved, axis=1), levels, axis=1)
    bias = smoother.answer(at, fitted).output - centre
    return np.stack([centre - bias - high, centre - bias - low], axis=-1)


def _times(scale: Array, reach: Array) -> Array:
    """Their product with 0·inf = inf: without enough ranks there is no bound."""
    with np.errstate(invalid="ignore"):
        return np.where(
            np.isinf(reach), np.broadcast_to(reach, np.broadcast_shapes(scale.shape, reach.shape)), scale * reach
        )
