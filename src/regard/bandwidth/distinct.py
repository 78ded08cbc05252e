"""Distinct rows: repeated rows become one row that counts several times, in an order independent of the given one.

So a weight of k and k copies are the same numbers in the same order, and a search takes the same steps on both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.bandwidth.rules import checked_groups, counts_repetitions
from regard.core.arrays import Array


class Distinct(NamedTuple):
    """Rows without repetitions."""

    key: Array  # (m, d)
    value: Array  # (m,) or (m, P)
    weight: Array | None  # (m,)
    groups: Array | None  # (m,)
    place: Array  # (n,)  index among the m of each given row; −1 for rows of weight zero


def distinct(key: Array, value: Array, weight: Array | None, groups: Any = None) -> Distinct:
    """Distinct rows (key, value) with a weight above zero, sorted.

    With importances (weights of floating dtype) or groups rows are not merged: only those of weight zero are dropped.

    *Cost*: O(n·log n·d).

    >>> distinct(np.array([[2.0], [1.0], [2.0]]), np.array([5.0, 6.0, 5.0]), None).weight.tolist()
    [1, 2]
    """
    if groups is not None or (weight is not None and not counts_repetitions(weight)):
        labels = None if groups is None else checked_groups(groups, len(key))
        used = np.ones(len(key), bool) if weight is None else weight > 0
        place = np.where(used, np.cumsum(used) - 1, -1)
        left = [None if part is None else part[used] for part in (weight, labels)]
        return Distinct(key[used], value[used], left[0], left[1], place)
    counts = np.ones(len(key), np.int64) if weight is None else weight.astype(np.int64)
    used = np.flatnonzero(counts)
    columns = value[:, None] if value.ndim == 1 else value
    rows = np.concatenate([key, columns], axis=1, dtype=np.float64)[used]
    order = np.lexsort(rows.T[::-1])
    starts = np.r_[True, (rows[order[1:]] != rows[order[:-1]]).any(axis=1)]
    number = np.cumsum(starts) - 1
    first = used[order[starts]]
    times = np.bincount(number, counts[used][order]).astype(np.int64)
    place = np.full(len(key), -1)
    place[used[order]] = number
    return Distinct(key[first], value[first], None if (times == 1).all() else times, None, place)


def expand_rows(answer: Array, place: Array) -> Array:
    """Answers of the distinct rows (m, P) for the given rows (n, P); NaN for rows of weight zero."""
    out = np.full((len(place), answer.shape[1]), np.nan)
    out[place >= 0] = answer[place[place >= 0]]
    return out
