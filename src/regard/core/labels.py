"""Excluded pairs: the labels of queries looked up among the labels of keys."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array

# An index of rows, or a slice that takes all of them without a copy.
Rows = Any


class Matched(NamedTuple):
    """Queries whose label occurs among the keys, and where."""

    queries: Rows  # (m,) increasing
    keys: Rows  # (m,) the first key with that label
    several: Array | None  # (Q,) boolean: queries whose label several keys have; None if there is no such query


def matched(labels: Array, key_labels: Array) -> Matched:
    """Labels (Q,) among labels (K,). *Cost*: O(Q + K) if both are the same increasing numbers, else a sort.

    >>> matched(np.array([7, 5]), np.array([5, 6, 5])).keys.tolist()
    [0]
    """
    rising = bool((key_labels[1:] > key_labels[:-1]).all())
    if rising and np.array_equal(labels, key_labels):
        return Matched(slice(None), slice(None), None)
    order = np.arange(len(key_labels)) if rising else np.argsort(key_labels, kind="stable")
    ordered = key_labels[order]
    first, last = (np.searchsorted(ordered, labels, side) for side in ("left", "right"))
    found = np.flatnonzero(last > first)
    several = last - first > 1
    return Matched(found, order[first[found]], several if several.any() else None)


def own_rows(query: Array, key: Array, exclude: tuple[Array, Array]) -> Array | str:
    """The key (Q,) that each query excludes, −1 for none, if that is its own row only; else why not, in words."""
    queries, keys, several = matched(*exclude)
    if several is not None:
        return "labels that differ from key to key, got some twice"
    own = np.full(len(query), -1)
    own[queries] = np.arange(len(key))[keys]
    if not isinstance(keys, slice) and len(np.unique(keys)) < len(keys):
        return "labels that differ from query to query, got some twice"
    if not np.array_equal(query[queries], key[keys]):
        return "labels that name the query's own row, got one of a key elsewhere"
    return own
