"""How sure is the mean itself: standard errors of the prediction, by its effective weights and by R np's convention.

A prediction is Σ ℓ_i·y_i. If rows err independently, its variance is Σ ℓ_i²·var(y_i); left-out residuals stand for the
unknown errors, which is on the safe side. None of this sees the bias: a kernel average is steady around its own
expectation, the smoothed mean, and that is what these errors are errors of.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad

from regard.core.arrays import Array
from regard.core.scores import Radial
from regard.pooling.functions import pool

# Effective weights held at once.
TILE_CELLS = 1 << 20


def standard_errors(effective: Callable[[Array], Array], query: Array, residual: Array, copies: Array) -> Array:
    """√Σ_i ℓ_i(x)²·residual_i²/copies_i for every query (Q, P); ``effective(queries)`` gives ℓ (tile, K).

    ``residual`` is (K, P), ``copies`` (K,) how many rows a row stands for. *Cost*: O(Q·K·d) time, a tile of memory.
    """
    out = np.empty((len(query), residual.shape[1]))
    tile = max(1, TILE_CELLS // len(residual))
    squares = residual**2 / copies[:, None]
    for start in range(0, len(query), tile):
        rows = slice(start, start + tile)
        out[rows] = np.sqrt(effective(query[rows]).astype(np.float64) ** 2 @ squares)
    return out


def np_merr(
    query: Array,
    key: Array,
    value: Array,
    score: Radial,
    *,
    sample_weight: ArrayLike | None = None,
    engine: str = "auto",
    tol: float | None = None,
) -> Array:
    """``merr`` of R's np, (Q, P): √(σ²(x)·R(K)^d / Σ_i K((x − x_i)/h)), the same for means and for lines.

    σ²(x) = Σ α·y² − (Σ α·y)² is the variance of y in the window, not around the prediction; R(K) = ∫K². Kernels other
    than the Gaussian are for one feature: with several, np multiplies and this library's are radial.

    *Empty rows*: NaN. *Cost*: one ``pool``.
    """
    features = query.shape[1]
    if score.w.ndim == 2 or not np.all(score.w):
        raise ValueError("np's standard errors need a bandwidth for every feature: w must be numbers that are not 0")
    if features > 1 and score.kernel.name != "gaussian":
        raise ValueError(f"np's kernels of several features are products, which kernel={score.kernel.name!r} is not")
    whole = (
        2.0
        * quad(lambda u: float(score.kernel.value(np.asarray(u * u))), 0.0, 1.0 if score.kernel.compact else 60.0)[0]
    )
    centre = value.mean(axis=0)
    columns = np.concatenate([value - centre, (value - centre) ** 2], axis=1)
    output, logsumexp = pool(query, key, columns, score, sample_weight=sample_weight, engine=engine, tol=tol)
    mean, square = np.split(output, 2, axis=1)
    variance = np.maximum(square - mean**2, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        out = np.sqrt(variance * (score.kernel.roughness * whole) ** features / np.exp(logsumexp)[:, None])
    out[np.isneginf(logsumexp)] = np.nan
    return np.asarray(out)


def wild_draws(
    answers: Callable[[Array], Array], residual: Array, copies: Array, draws: int, random: np.random.RandomState
) -> Array:
    """Deviations (draws, Q, P) of predictions whose rows' residuals (K, P) flipped their signs at random.

    ``answers(values)`` pools values (K, m) into (Q, m). A row that stands for k rows flips k signs, which add up.
    *Cost*: that of ``answers`` with ``draws`` columns for each output, 64 at a time.
    """
    parts = []
    for start in range(0, draws, 64):
        count = min(64, draws - start)
        sums = 2.0 * random.binomial(copies[:, None].astype(np.int64), 0.5, (len(copies), count)) - copies[:, None]
        flips = sums / copies[:, None]
        parts.append(np.stack([answers(flips * column[:, None]) for column in residual.T], axis=-1))  # (Q, m, P)
    return np.concatenate(parts, axis=1).transpose(1, 0, 2)
