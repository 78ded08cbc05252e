"""Bounds of columns of numbers, and checks that sums and differences of them do not overflow."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array

# Number of columns up to which each is reduced by itself.
MAX_COLUMNS_ONE_BY_ONE = 16
# Largest number accepted: differences of two such numbers, summed over features, still fit into a float64.
LARGEST = 1e307


class Bounds(NamedTuple):
    """Smallest and largest number of every column (d,), float64; NaN if the column has one, 0 if it has no rows."""

    low: Array
    high: Array

    @property
    def size(self) -> Array:
        """Largest absolute value of every column."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


def bounds_of(array: Array) -> Bounds:
    """Bounds of every column of (n, d)."""
    if not array.shape[0]:
        return Bounds(np.zeros(array.shape[1]), np.zeros(array.shape[1]))
    if array.shape[1] > MAX_COLUMNS_ONE_BY_ONE:
        return Bounds(array.min(axis=0).astype(np.float64), array.max(axis=0).astype(np.float64))
    # With few columns, reducing each by itself is ten times faster in numpy.
    columns = array.T
    return Bounds(*(np.array([end(c) for c in columns], np.float64) for end in (np.min, np.max)))


def excess(largest: Array, keys: int, dtype: np.dtype[Any]) -> Array:
    """Exponents of the powers of two by which each column must be divided so that sums over ``keys`` do not overflow.

    >>> excess(np.array([1.0, 1e308]), 100, np.dtype(np.float64)).tolist()
    [0, 8]
    """
    most = room(keys, dtype)
    if (largest <= most).all():
        return np.zeros(len(largest), int)
    return np.ceil(np.log2(np.maximum(largest / most, 1.0))).astype(int)


def room(keys: int, dtype: np.dtype[Any]) -> float:
    """Largest absolute value for which sums over ``keys`` values do not overflow."""
    return float(np.finfo(dtype).max) / (4.0 * max(keys, 1))


def checked_range(name: str, array: Array) -> None:
    """Raise ValueError if differences of two entries could overflow."""
    if array.dtype.kind == "f" and array.itemsize >= 8 and (np.isfinite(array) & (np.abs(array) > LARGEST)).any():
        raise ValueError(f"{name} holds numbers beyond ±{LARGEST:g}; rescale it")


def require_finite(name: str, array: Array, bounds: Bounds) -> None:
    """Raise ValueError if an entry is not finite, or too large."""
    size = bounds.size
    if not np.isfinite(size).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise ValueError(
            f"{name} row {row} is not finite: NaN and infinity are accepted only in keys masked for every query"
        )
    if array.dtype == np.float64 and (size > LARGEST).any():
        checked_range(name, array)
