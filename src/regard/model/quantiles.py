"""Weighted quantiles of residuals: conformal bounds and interpolated quantiles.

A residual with count k is treated as k equal residuals. ``conformal_bound`` is the order statistic that bounds one more
exchangeable residual; ``quantiles`` are interpolated so that one more residual is below with the probability of the
level.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.core.arrays import Array

# Ranks are rounded up, except that an excess below this is attributed to floating-point rounding.
RANK_TOLERANCE = 1e-9


def checked_coverage(coverage: Any) -> float:
    """A coverage strictly between 0 and 1."""
    if isinstance(coverage, bool | str) or not np.isscalar(coverage) or not np.isreal(coverage):
        raise TypeError(f"coverage must be a number between 0 and 1 such as 0.9, got {coverage!r}")
    if not 0.0 < float(coverage) < 1.0:  # type: ignore[arg-type]
        raise ValueError(f"coverage must lie strictly between 0 and 1, such as 0.9, got {coverage!r}")
    return float(coverage)  # type: ignore[arg-type]


def checked_levels(q: Any) -> Array:
    """Quantile levels strictly between 0 and 1, () or (m,)."""
    levels = np.asarray(q)
    if levels.dtype.kind not in "fiu" or levels.ndim > 1 or not levels.size:
        raise TypeError(f"q must be a number between 0 and 1 or a list of such, got {q!r}")
    levels = levels.astype(np.float64)
    if not ((levels > 0.0) & (levels < 1.0)).all():
        raise ValueError(f"q must lie strictly between 0 and 1, got {q!r}")
    return levels


def conformal_bound(score: Array, counts: Array, coverage: float) -> Array:
    """The ⌈coverage·(n + 1)⌉-th smallest of n scores, for every column (n, P) → (P,); inf if n is too small.

    If n + 1 scores are exchangeable, the last is at most this with probability at least ``coverage``.

    >>> conformal_bound(np.arange(9.0)[:, None], np.ones(9), 0.8).tolist()
    [7.0]
    """
    total = float(counts.sum())
    rank = np.ceil(coverage * (total + 1.0) - RANK_TOLERANCE)
    if rank > total + RANK_TOLERANCE:
        return np.full(score.shape[1], np.inf)
    order = np.argsort(score, axis=0, kind="stable")
    reached = np.cumsum(counts[order], axis=0) >= rank - RANK_TOLERANCE
    first = reached.argmax(axis=0)
    return np.asarray(np.take_along_axis(score, np.take_along_axis(order, first[None], axis=0), axis=0)[0])


def quantiles(residual: Array, counts: Array, levels: Array) -> Array:
    """Quantiles (m, P) of residuals (n, P) with counts (n,), interpolated linearly between order statistics.

    The k-th of n is the quantile of level k/(n + 1), below which one more exchangeable residual lies with that
    probability: between those of 5 % and 95 % it lies with 90 %. Below the first and above the last they are constant.

    >>> quantiles(np.array([[0.0], [3.0]]), np.array([2.0, 1.0]), np.array([0.5, 0.625])).tolist()
    [[0.0], [1.5]]
    """
    total = counts.sum()
    place = np.clip(levels * (total + 1.0) - 1.0, 0.0, max(total - 1.0, 0.0))
    below = np.floor(place + RANK_TOLERANCE)
    out = np.empty((len(levels), residual.shape[1]))
    for column in range(residual.shape[1]):
        order = np.argsort(residual[:, column], kind="stable")
        ends, ranked = np.cumsum(counts[order]) - RANK_TOLERANCE, residual[order, column]
        low, high = (
            ranked[np.searchsorted(ends, at, side="right").clip(max=len(order) - 1)] for at in (below, below + 1)
        )
        out[:, column] = low + np.clip(place - below, 0.0, 1.0) * (high - low)
    return out
