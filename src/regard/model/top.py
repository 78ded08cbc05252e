"""The most attended keys of every query, without ever holding the weights of all queries at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.model.smoother import Smoother, tiles

# Weights one tile may hold. With what choosing among them needs, a tile stays around 64 MB.
TILE_CELLS = 1 << 21


class Attention(NamedTuple):
    """What ``attend(X, top=…)`` returns: the most attended training rows of every query, best first."""

    index: Array  # type: ignore[assignment]  # (Q, top)  numbers of training rows, as given to fit
    weight: Array  # (Q, top)  their weights, normalised over all training rows
    mass: Array  # (Q,)  how much of the whole attention the rows shown hold, at most 1


def checked_top(top: Any, rows: int) -> int:
    """``top`` as an integer between 1 and the number of training rows."""
    if isinstance(top, bool) or not isinstance(top, int | np.integer):
        raise TypeError(f"top must be None or a whole number, got {top!r}")
    if not 1 <= top <= rows:
        raise ValueError(f"top must be between 1 and the {rows} training rows, got {top}")
    return int(top)


def attend_top(smoother: Smoother, query: Array, top: int) -> tuple[Attention, Array]:
    """Top keys of every query, in its dtype, and which queries (Q,) are empty.

    *Empty rows*: as ``empty`` says; where all weights are zero, the first ``top`` keys with weight 0 and mass 0.
    *Cost*: O(Q·K) time beyond the weights, O(Q·top) memory and a tile.
    """
    index, empty = np.empty((len(query), top), np.intp), np.zeros(len(query), bool)
    weight, mass = np.empty((len(query), top)), np.empty(len(query))
    for rows in tiles(len(query), len(smoother.rows.key), TILE_CELLS):
        shown, empty[rows] = smoother.weights(query[rows])
        index[rows] = best(shown, top)
        weight[rows] = np.take_along_axis(shown, index[rows], axis=1)
        mass[rows] = np.minimum(weight[rows].sum(axis=1), 1.0)
    return Attention(index, weight.astype(query.dtype), mass.astype(query.dtype)), empty


def best(weights: Array, top: int) -> Array:
    """Columns of the ``top`` largest entries of each row, largest first, ties by smaller column.

    >>> best(np.array([[0.1, 0.4, 0.1, 0.4]]), 3).tolist()
    [[1, 3, 0]]
    """
    keys = weights.shape[1]
    smallest = np.partition(weights, keys - top, axis=1)[:, keys - top, None]  # the last weight shown
    chosen = weights > smallest
    ties = weights == smallest
    # Partitioning picks among ties as it likes; the first ones must win.
    room = top - chosen.sum(axis=1, dtype=np.int32)
    chosen |= ties & (np.cumsum(ties, axis=1, dtype=np.int32) <= room[:, None])
    columns = np.nonzero(chosen)[1].reshape(-1, top)
    order = np.argsort(-np.take_along_axis(weights, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)
