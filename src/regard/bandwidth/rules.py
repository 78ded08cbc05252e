"""Rules of thumb: a bandwidth per feature from X alone, without y.

With n rows, d features that vary, and σ_j the standard deviation of feature j,

    scott      h_j = c · σ_j · n^(−1/(d+4))
    silverman  h_j = c · (4/(d+2))^(1/(d+4)) · min(σ_j, IQR_j/1.349) · n^(−1/(d+4))

where c = canonical(kernel)/canonical(gaussian) makes all kernels smooth equally. A feature that does not vary has
h = inf: it is ignored and does not count in d, so adding it changes nothing.

Weights of integer (or boolean) dtype are repetitions: k is k copies, n = Σk. Weights of floating dtype are
importances: they count in σ and IQR relative to each other, and n is the number of rows with a weight above zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from regard.core.arrays import Array
from regard.core.bounds import checked_range
from regard.core.problem import checked_weight, matrix
from regard.core.scores import KERNELS


def scott(X: ArrayLike, *, kernel: str = "gaussian", sample_weight: ArrayLike | None = None) -> Array:
    """Scott's bandwidth (d,), inf for a feature that does not vary.

    h_j = c · σ_j · n^(−1/(d+4)); σ_j with n − 1 in the denominator. See the module for weights, d and c.

    Parameters
    ----------
    X : array (n, d)
        Rows.
    kernel : str, default="gaussian"
        Name in ``regard.scores.KERNELS``; c makes all kernels smooth equally.
    sample_weight : array (n,), default=None
        Integers are repetitions, floats importances.

    Returns
    -------
    array (d,)
        In the units of X.

    *Cost*: O(n·d).

    >>> scott([[0.0, 7.0], [1.0, 7.0]]).round(3).tolist()
    [0.616, inf]
    """
    rows, counts, n, _ = counted_rows(X, sample_weight)
    return _rule(rows, n, kernel, lambda z, _: _deviation(z, counts, n))


def silverman(X: ArrayLike, *, kernel: str = "gaussian", sample_weight: ArrayLike | None = None) -> Array:
    """Silverman's bandwidth (d,), inf for a feature that does not vary; outliers stretch it less than ``scott``.

    h_j = c · (4/(d+2))^(1/(d+4)) · min(σ_j, IQR_j/1.349) · n^(−1/(d+4)), and σ_j alone where IQR_j = 0.

    Parameters
    ----------
    X : array (n, d)
        Rows.
    kernel : str, default="gaussian"
        Name in ``regard.scores.KERNELS``; c makes all kernels smooth equally.
    sample_weight : array (n,), default=None
        Integers are repetitions, floats importances.

    Returns
    -------
    array (d,)
        In the units of X.

    *Cost*: O(n·log n·d).

    >>> silverman([[0.0, 7.0], [1.0, 7.0]]).round(3).tolist()
    [0.342, inf]
    """
    rows, counts, n, _ = counted_rows(X, sample_weight)
    repeated = sample_weight is None or counts_repetitions(np.asarray(sample_weight))

    def spread(z: Array, d: int) -> float:
        deviation = _deviation(z, counts, n)
        robust = _quartile_range(z, counts, repeated) / 1.349
        factor = float((4.0 / (d + 2)) ** (1.0 / (d + 4)))
        return factor * (min(deviation, robust) if robust > 0.0 else deviation)

    return _rule(rows, n, kernel, spread)


RULES: dict[str, Callable[..., Array]] = {"scott": scott, "silverman": silverman}


def checked_kernel(kernel: Any) -> str:
    """The kernel's name, or a ValueError that lists the names."""
    if not (isinstance(kernel, str) and kernel in KERNELS):
        raise ValueError(f"kernel must be one of {', '.join(map(repr, KERNELS))}, got {kernel!r}")
    return kernel


def checked_groups(groups: Any, rows: int) -> Array:
    """Labels of groups (rows,), or a ValueError."""
    names = np.asarray(groups)
    if names.shape != (rows,):
        raise ValueError(f"groups must have one entry per row of X, shape ({rows},), got shape {names.shape}")
    return names


def counts_repetitions(weight: Array) -> bool:
    """Whether weights are repetitions: their dtype says so."""
    return weight.dtype.kind in "iub"


def counts_of(weight: Array) -> Array:
    """How often each row counts (n,) in a mean: repetitions as they are, importances relative to their mean."""
    if counts_repetitions(weight):
        return weight.astype(np.float64)
    relative = weight / weight.max()  # weights of 1e290 must not overflow in their sum
    return np.asarray(relative / relative.mean())


def counted_rows(X: ArrayLike, sample_weight: ArrayLike | None) -> tuple[Array, Array, float, Array]:
    """Rows with a weight (m, d) in float64, their counts (m,), n, and their indices (m,) in X."""
    rows = matrix("X", X).astype(np.float64)
    if not rows.size or not np.isfinite(rows).all():
        raise ValueError("X must have at least one row and one feature, and be finite")
    checked_range("X", rows)
    weight = checked_weight(sample_weight, len(rows))
    if weight is None:
        return rows, np.ones(len(rows)), float(len(rows)), np.arange(len(rows))
    used = np.flatnonzero(weight > 0)
    if counts_repetitions(weight):
        counts = counts_of(weight[used])
        return rows[used], counts, float(counts.sum()), used
    return rows[used], counts_of(weight[used].astype(np.float64)), float(len(used)), used


def _rule(rows: Array, n: float, kernel: str, spread: Callable[[Array, int], float]) -> Array:
    """c · spread · n^(−1/(d+4)) per feature; ``spread`` takes the feature mapped to [0, 1], and d."""
    facts = KERNELS[checked_kernel(kernel)]
    low, span = rows.min(axis=0), np.ptp(rows, axis=0)
    # σ of equal numbers may be a rounding error: the range decides whether a feature varies.
    varying = span > 0.0
    d = int(varying.sum())
    shrink = facts.canonical / KERNELS["gaussian"].canonical * n ** (-1.0 / (d + 4))
    h = np.full(rows.shape[1], np.inf)
    for j in np.flatnonzero(varying):
        h[j] = shrink * span[j] * spread((rows[:, j] - low[j]) / span[j], d)
    # 1/h must be finite also if the range is below the smallest normal number.
    return np.asarray(np.maximum(h, np.finfo(np.float64).tiny))


def _deviation(z: Array, counts: Array, n: float) -> float:
    mean = counts @ z / n
    return float(np.sqrt(counts @ (z - mean) ** 2 / (n - 1.0)))


def _quartile_range(z: Array, counts: Array, repeated: bool) -> float:
    """Distance between the quartiles, interpolated as ``numpy.quantile`` does on the repeated rows.

    With importances each row is at the middle of its share of the total, which is the same if all are equal.
    """
    order = np.argsort(z, kind="stable")
    z, cumulated = z[order], np.cumsum(counts[order])
    if repeated:
        place = np.array([0.25, 0.75]) * (cumulated[-1] - 1.0)
        below, part = np.floor(place), place % 1.0
        at = [
            z[np.searchsorted(cumulated, spot, side="right")]
            for spot in (below, np.minimum(below + 1, cumulated[-1] - 1))
        ]
        first, third = at[0] + part * (at[1] - at[0])
    else:
        middle = cumulated - 0.5 * counts[order]
        first, third = np.interp([0.25, 0.75], (middle - middle[0]) / (middle[-1] - middle[0]), z)
    return float(third - first)
