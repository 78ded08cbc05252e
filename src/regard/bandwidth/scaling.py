"""Scalings of columns: monotone maps between the standard score and the normal score of the rank.

The standard score keeps distances as they are, so a heavy tail decides what is near. The normal score of the rank gives
every column the same distribution, so meaningful gaps are lost. Between them lies z = t·standard + (1 − t)·rank, a
piecewise linear map with at most 1,000 knots, extended linearly beyond the data.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from regard.core.arrays import Array

KNOTS = 1000
# Smallest range of a feature for which the slopes of its map are finite.
MIN_RANGE = 1e-300


class Scaling(NamedTuple):
    """One map per column: increasing ``knots`` in the units of X, and their images for t = 1 and t = 0."""

    knots: tuple[Array, ...]  # d arrays of at most KNOTS numbers
    standard: tuple[Array, ...]
    ranks: tuple[Array, ...]

    @classmethod
    def of(cls, X: Array, counts: Array) -> Scaling:
        """Maps of the columns of X (n, d), whose rows count (n,) times each; O(n·log n·d).

        >>> Scaling.of(np.array([[0.0], [1.0], [10.0]]), np.ones(3))(np.array([[10.0]]), np.zeros(1)).round(3).tolist()
        [[1.225]]
        """
        columns = [_column(X[:, j], counts) for j in range(X.shape[1])]
        knots, standard, ranks = zip(*columns, strict=True)
        return cls(knots, standard, ranks)

    def __call__(self, X: Array, t: Array) -> Array:
        """X (n, d) → z (n, d), with one t in [0, 1] per column (d,)."""
        out = np.empty(X.shape)
        for j, (x, z) in enumerate(zip(self.knots, self._images(t), strict=True)):
            column = X[:, j].astype(np.float64)
            beyond = np.minimum(column - x[0], 0.0) + np.maximum(column - x[-1], 0.0)
            out[:, j] = np.interp(column, x, z) + beyond * self._overall(j, z)
        return out

    def slope(self, X: Array, t: Array) -> Array:
        """dz/dx (n, d) at X; the right derivative at a knot."""
        out = np.empty(X.shape)
        for j, (x, z) in enumerate(zip(self.knots, self._images(t), strict=True)):
            overall = self._overall(j, z)
            steps = np.r_[overall, np.diff(z) / np.diff(x), overall]
            out[:, j] = steps[np.searchsorted(x, X[:, j].astype(np.float64), side="right")]
        return out

    def _images(self, t: Array) -> list[Array]:
        return [share * a + (1.0 - share) * b for share, a, b in zip(t, self.standard, self.ranks, strict=True)]

    def _overall(self, j: int, z: Array) -> float:
        """Slope of a map between its first and last knot, used beyond the data."""
        x = self.knots[j]
        return float((z[-1] - z[0]) / (x[-1] - x[0])) if len(x) > 1 else 0.0


def _column(x: Array, counts: Array) -> tuple[Array, Array, Array]:
    knots, place = np.unique(x.astype(np.float64), return_inverse=True)
    weight = np.bincount(place, counts)
    share = weight / weight.sum()
    if len(knots) == 1:
        return knots, np.zeros(1), np.zeros(1)
    ranks = ndtri(np.cumsum(share) - 0.5 * share)
    span = knots[-1] - knots[0]
    if span < MIN_RANGE:
        raise ValueError(f"a feature of X has a range of {span:g}, too small for its scaling to be finite; rescale X")
    standard = (knots - knots[0]) / span
    standard, ranks = (_standardised(z, share) for z in (standard, ranks))
    if len(knots) > KNOTS:
        inner = np.searchsorted(np.cumsum(share), np.linspace(0.0, 1.0, KNOTS - 1)[1:-1])
        chosen = np.unique(np.r_[0, inner, len(knots) - 1])
        knots, standard, ranks = knots[chosen], standard[chosen], ranks[chosen]
    return knots, standard, ranks


def _standardised(z: Array, share: Array) -> Array:
    centred = z - share @ z
    return np.asarray(centred / np.sqrt(share @ centred**2))
