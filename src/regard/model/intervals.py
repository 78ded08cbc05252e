"""Intervals, quantiles and densities of y around the answers of a smoother, from its left-out residuals.

All are columns in float64: (Q, P) or, with several ends or levels m, (Q, P, m); ``centre`` (Q, P) are the answers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from regard.core.arrays import Array
from regard.model.confidence import np_merr, standard_errors, wild_draws
from regard.model.jackknife import answers_without_each, jackknife_interval
from regard.model.ranks import conformal_bound, quantiles, smooth_quantiles
from regard.model.residual_scale import fit_tails, log_density, row_counts
from regard.model.residuals import Residuals
from regard.model.smoother import Smoother

INTERVALS = ("local", "conformal", "jackknife")
CONFIDENCE = ("asymptotic", "bootstrap")
ERRORS = ("weights", "np")
# Weights held at once by the jackknife.
TILE_CELLS = 1 << 19


def deviation(smoother: Smoother, known: Residuals, query: Array) -> Array:
    """Standard deviation of y around the answer."""
    shown, counts = known.shown(smoother.rows.sample_weight)
    return np.asarray(known.scale_at(smoother, query) * np.sqrt(counts / counts.sum() @ shown**2))


def interval(smoother: Smoother, known: Residuals, query: Array, centre: Array, coverage: float, method: str) -> Array:
    """Ends (Q, P, 2) of prediction intervals; ``method`` is one of ``INTERVALS``."""
    shown, counts = known.shown(smoother.rows.sample_weight)
    if method == "jackknife":
        return _jackknifed(smoother, known, query, coverage)
    if method == "conformal":
        bound = conformal_bound(np.abs(shown), counts, coverage)
        reach = np.stack([-bound, bound])
    else:
        reach = quantiles(shown, counts, np.array([(1.0 - coverage) / 2.0, (1.0 + coverage) / 2.0]))
    return np.asarray(centre[..., None] + _times(known.scale_at(smoother, query)[..., None], reach.T))


def quantiles_at(
    smoother: Smoother, known: Residuals, query: Array, centre: Array, levels: Array, *, smoothed: bool
) -> Array:
    """Quantiles (Q, P, m) at levels (m,): those of the residuals, or of Student's t fitted to them."""
    shown, counts = known.shown(smoother.rows.sample_weight)
    reach = smooth_quantiles(fit_tails(shown, counts), levels) if smoothed else quantiles(shown, counts, levels)
    return np.asarray(centre[..., None] + known.scale_at(smoother, query)[..., None] * reach.T)


def log_densities(smoother: Smoother, known: Residuals, query: Array, error: Array) -> Array:
    """Logarithm of the density (Q, P) of y at a distance ``error`` (Q, P) from the answers."""
    shown, counts = known.shown(smoother.rows.sample_weight)
    scale = known.scale_at(smoother, query)
    return np.asarray(log_density(error / scale, fit_tails(shown, counts)) - np.log(scale))


def standard_error(smoother: Smoother, known: Residuals | None, query: Array, method: str) -> Array:
    """Standard error (Q, P) of the answers as means; ``method`` is one of ``ERRORS``, "weights" needs residuals."""
    rows = smoother.rows
    if method == "weights":
        assert known is not None
        return standard_errors(lambda at: smoother.effective_weights(at).output, query, known.filled(), rows.copies)
    head, *others = smoother.heads
    if others or head.neighbours is not None:
        raise ValueError("method='np' is for one bandwidth; this model has several: use 'weights'")
    key, score = rows.key.astype(np.float64), head.score
    options = {"sample_weight": rows.sample_weight, **smoother.run.options}
    return np_merr(query.astype(np.float64), key, rows.columns, score, **options)  # type: ignore[arg-type]


def confidence(smoother: Smoother, known: Residuals, query: Array, centre: Array, coverage: float) -> Array:
    """Ends (Q, P, 2): answers ± z·standard error."""
    reach = ndtri((1.0 + coverage) / 2.0) * standard_error(smoother, known, query, "weights")
    return np.stack([centre - reach, centre + reach], axis=-1)


def bootstrap(
    smoother: Smoother,
    known: Residuals,
    query: Array,
    centre: Array,
    coverage: float,
    draws: int,
    random: np.random.RandomState,
) -> Array:
    """Ends (Q, P, 2) from residuals that flip their signs at random, shifted by the bias of smoothing once more."""
    rows, at = smoother.rows, query.astype(np.float64)

    def answers(values: Array) -> Array:
        return smoother.answer(at, values).output

    fitted = smoother.answer(rows.key.astype(np.float64), rows.columns).output
    moved = wild_draws(answers, known.filled(), rows.copies, draws, random)
    high, low = np.quantile(moved, [(1.0 + coverage) / 2.0, (1.0 - coverage) / 2.0], axis=0)
    bias = answers(fitted) - centre
    return np.stack([centre - bias - high, centre - bias - low], axis=-1)


def _jackknifed(smoother: Smoother, known: Residuals, query: Array, coverage: float) -> Array:
    """Jackknife+ intervals (Q, P, 2)."""
    rows = smoother.rows
    if any(head.neighbours is not None for head in smoother.heads):
        raise ValueError("method='jackknife' needs one bandwidth, and bandwidth='adaptive' has one for every row")
    if rows.have_gaps(query):
        raise ValueError("method='jackknife' needs rows without gaps; use method='conformal'")
    answered, value = ~np.isnan(known.residual).any(axis=1), rows.columns
    weight = None if rows.sample_weight is None else rows.sample_weight[answered]
    counts = row_counts(weight, int(answered.sum()))
    out = np.empty((len(query), value.shape[1], 2))
    tile = max(1, TILE_CELLS // (len(value) * query.shape[1]))
    for start in range(0, len(query), tile):
        some = slice(start, min(start + tile, len(query)))
        for column in range(value.shape[1]):
            answer: Any = 0.0
            for head, at, _ in smoother.each(query[some]):
                answer = answer + head.mix * answers_without_each(smoother, head, at, value[:, column])
            size = np.abs(known.residual[answered, column])
            out[some, column] = jackknife_interval(answer[:, answered], size, counts, coverage)
    return out


def _times(scale: Array, reach: Array) -> Array:
    """Their product, 0·inf being inf: no rank, no bound."""
    with np.errstate(invalid="ignore"):
        return np.where(
            np.isinf(reach), np.broadcast_to(reach, np.broadcast_shapes(scale.shape, reach.shape)), scale * reach
        )
