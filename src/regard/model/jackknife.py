"""Jackknife+ intervals, from the predictions without each training row and its leave-one-out residual.

    [lower quantile of f_{−i}(x) − |residual_i|,  upper quantile of f_{−i}(x) + |residual_i|]

(Barber, Candès, Ramdas and Tibshirani, 2021.) Removing a row from attention is cheap: given its weight α_i, the others'
weights are α/(1 − α_i). For a local line, the formula for removing a row from weighted least squares applies, with the
ridge held fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.core.arrays import Array
from regard.core.problem import build
from regard.core.scores import Gaussian, Nearest, Radial
from regard.model.effects import inverse_covariance
from regard.model.quantiles import conformal_bound
from regard.model.residual_scale import row_counts
from regard.model.residuals import Residuals
from regard.model.smoother import Head, Smoother, tiles
from regard.pooling.functions import pool
from regard.pooling.local_pooling import centre_and_scale, fit_local

# Below this 1 − leverage the quotient is inaccurate, and the prediction without the row is recomputed.
MIN_REMAINDER = 1e-6
# Weights in one tile.
TILE_CELLS = 1 << 19


def jackknife_intervals(smoother: Smoother, residuals: Residuals, query: Array, coverage: float) -> Array:
    """Jackknife+ intervals (Q, P, 2)."""
    rows = smoother.rows
    if any(head.neighbours is not None for head in smoother.heads):
        raise ValueError("method='jackknife' does not support bandwidth='adaptive'; use method='conformal'")
    if rows.have_gaps(query):
        raise ValueError("method='jackknife' does not support missing entries; use method='conformal'")
    known, value = ~np.isnan(residuals.residual).any(axis=1), rows.columns
    weight = None if rows.sample_weight is None else rows.sample_weight[known]
    counts = row_counts(weight, int(known.sum()))
    out = np.empty((len(query), value.shape[1], 2))
    for some in tiles(len(query), len(value) * query.shape[1], TILE_CELLS):
        for column in range(value.shape[1]):
            answer: Any = 0.0
            for head, at, _ in smoother.each(query[some]):
                answer = answer + head.mix * answers_without_each(smoother, head, at, value[:, column])
            size = np.abs(residuals.residual[known, column])
            out[some, column] = jackknife_interval(answer[:, known], size, counts, coverage)
    return out


def answers_without_each(smoother: Smoother, head: Head, query: Array, value: Array) -> Array:
    """f_{−i}(x) (Q, K) of one head at transformed queries, for values (K,): one repetition of the row is removed.

    f_{−i} = f − ℓ_i·r_i/(1 − h_i) with effective weight ℓ_i, residual r_i from the local mean or line, and leverage
    h_i; for a mean ℓ = h = α. *Cost*: O(Q·K·d²) time, memory O(Q·K·d): call it with a tile of queries.
    """
    query = query.astype(np.float64)
    weights, empty = smoother.head_weights(head, query)
    each = weights / smoother.rows.copies
    if head.degree:
        output, effective, leverage, error = _lines(smoother, head, query, each, value, empty)
    else:
        output, effective, leverage = weights @ value, each, each
        error = value - output[:, None]
    rest = 1.0 - leverage
    inaccurate = rest < MIN_REMAINDER
    answer = output[:, None] - effective * error / np.where(inaccurate, 1.0, rest)
    rows, keys = np.nonzero(inaccurate)
    if rows.size:
        answer[rows, keys] = _recomputed(smoother, head, query[rows], keys, value)
    return np.asarray(answer)


def _lines(
    smoother: Smoother, head: Head, query: Array, weights: Array, value: Array, empty: Array
) -> tuple[Array, Array, Array, Array]:
    """Intercepts (Q,) of local lines; effective weights, leverages h = α·(1 + (δ − δ̄)ᵀP(δ − δ̄)), residuals (Q, K).

    P is the inverse of the regularised covariance of δ.
    """
    output, scale, local = smoother.local(head, query, value[:, None])
    fit, w = local.fit, head.w
    output = np.where(empty, weights @ value, output[:, 0])
    slope = np.where(empty[:, None], 0.0, np.asarray(fit.slope)[:, 0] * scale[0])
    if head.ridge > 0.0:
        W = w if w.ndim == 2 else np.diag(np.broadcast_to(w, query.shape[1]))
        W = W if head.sloped is None else W * head.sloped[:, None]
        inverse = inverse_covariance(fit, W, head.ridge)
    else:
        spread = np.asarray(fit.covariance)
        variance = np.diagonal(spread, axis1=1, axis2=2)
        unit = np.where(variance > 0.0, 1.0 / np.sqrt(np.where(variance > 0.0, variance, 1.0)), 0.0)
        turned = np.linalg.pinv(spread * unit[:, :, None] * unit[:, None, :], rcond=1e-8, hermitian=True)
        inverse = turned * unit[:, :, None] * unit[:, None, :]
    inverse = np.where(empty[:, None, None], 0.0, inverse)
    delta = smoother.rows.placed(head.transform).astype(np.float64)[None] - query[:, None]
    delta = delta if head.sloped is None else delta * head.sloped
    mean = np.asarray(fit.mean)
    around = delta - mean[:, None]
    turned = np.einsum("qka,qab->qkb", around, inverse)
    leverage = weights * (1.0 + np.einsum("qkb,qkb->qk", turned, around))
    effective = weights * (1.0 - np.einsum("qkb,qb->qk", turned, mean))
    return output, effective, leverage, value - output[:, None] - np.einsum("qka,qa->qk", delta, slope)


def _recomputed(smoother: Smoother, head: Head, query: Array, keys: Array, value: Array) -> Array:
    """The prediction at transformed query j (J, d) with key ``keys[j]`` (J,) excluded."""
    key, weight = smoother.rows.placed(head.transform).astype(np.float64), smoother.rows.sample_weight
    score = head.score
    options: dict[str, Any] = {"sample_weight": weight, "exclude": (keys, np.arange(len(key)))}
    if not isinstance(score, Radial) or isinstance(score, Nearest):
        return pool(query, key, value, score, **options).output
    centre, scale = centre_and_scale(value[:, None], weight)
    problem = build(query, key, (value[:, None] - centre) / scale, score, **options)
    engine = smoother.run.options["engine"]
    local = fit_local(problem, head.degree, head.ridge if head.degree else 0.0, engine, sloped=head.sloped)
    answer = (centre + scale * local.fit.output)[:, 0]
    empty = local.partial.mass <= 0.0
    if empty.any():
        options["exclude"] = (keys[empty], np.arange(len(key)))
        limit = Nearest(score.w) if np.any(score.w) else Gaussian(0.0)
        answer[empty] = pool(query[empty], key, value, limit, **options).output
    return np.asarray(answer)


def jackknife_interval(answer: Array, size: Array, counts: Array, coverage: float) -> Array:
    """Bounds (Q, 2) from f_{−i} (Q, K), |residual_i| (K,) and counts of rows (K,); infinite if there are too few."""
    low, high = (conformal_bound(ends.T, counts, coverage) for ends in (size - answer, answer + size))
    return np.stack([-low, high], axis=1)
