"""Distinct rows: repeated rows are one row that counts several times, in an order that does not depend on theirs.

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
    place: Array  # (n,)  which of the m each row given is; −1 for rows of weight zero


def distinct(key: Array, value: Array, weight: Array | None, groups: Any = None) -> Distinct:
    """Rows (key, value) that have a weight and differ, sorted.

    With importances (weights of floating dtype) or groups rows are what they are: only those without weight leave.

    *Cost*: O(n·log n·d).

    >>> distinct(np.array([[2.0], [1.0], [2.0]]), np.array([5.0, 6.0, 5.0]), None).weight.tolist()
    [1, 2]
    """
    if groups is not None or (weight is not None and not counts_repetitions(weight)):
        labels = None if groups is None else checked_groups(groups, len(key))
        seen = np.ones(len(key), bool) if weight is None else weight > 0
        place = np.where(seen, np.cumsum(seen) - 1, -1)
        left = [None if part is None else part[seen] for part in (weight, labels)]
        return Distinct(key[seen], value[seen], left[0], left[1], place)
    counts = np.ones(len(key), np.int64) if weight is None else weight.astype(np.int64)
    kept = np.flatnonzero(counts)
    columns = value[:, None] if value.ndim == 1 else value
    rows = np.concatenate([key, columns], axis=1, dtype=np.float64)[kept]
    order = np.lexsort(rows.T[::-1])
    starts = np.r_[True, (rows[order[1:]] != rows[order[:-1]]).any(axis=1)]
    number = np.cumsum(starts) - 1
    first = kept[order[starts]]
    times = np.bincount(number, counts[kept][order]).astype(np.int64)
    place = np.full(len(key), -1)
    place[kept[order]] = number
    return Distinct(key[first], value[first], None if (times == 1).all() else times, None, place)


def spread_out(answer: Array, place: Array) -> Array:
    """Answers (m, P) for the rows given (n, P); NaN where a row has no weight."""
    out = np.full((len(place), answer.shape[1]), np.nan)
    out[place >= 0] = answer[place[place >= 0]]
    return out
