"""Local lines as ONNX nodes: what ``regard.core.local_fits`` computes from moments, here from weights.

Moments are taken around the mean of what is looked at, seen from the nearest key; no offset or distance is rounded.
"""

from __future__ import annotations

import numpy as np

from regard.core.arrays import Array
from regard.core.local_fits import ZERO_EIGENVALUE, ZERO_VARIANCE, ZERO_VARIANCE_WITH_RIDGE
from regard.store.onnx.eigen import eigen
from regard.store.onnx.graph import Value, joined
from regard.store.onnx.looks import Looks


def lines(query: Value, key: Array, columns: Array, looks: Looks, w: Array, ridge: float) -> tuple[Value, Value]:
    """Heights of the lines at queries (n, d) through columns (K, P), and weighted means, (n, P) both.

    Columns are centred, of size 1 or so. *Cost*: O(n·K·d·(d + P)) time, O(n·K) memory.
    """
    d, graph = key.shape[1], query.graph
    mean, delta, spread, cross = _moments(query, key, columns, looks)
    diagonal = (spread * np.eye(d)).sum(2)  # (n, d, 1)
    square = diagonal + delta * delta
    varies = diagonal > square * (ZERO_VARIANCE_WITH_RIDGE if ridge > 0.0 else ZERO_VARIANCE)
    some = varies.cast(np.float64)
    spread, cross = spread * some * _turned(some), cross * some
    if ridge > 0.0:
        W = np.diag(np.broadcast_to(w, d)) if np.ndim(w) < 2 else w
        centre = graph.constant(W.T) @ delta  # (n, r, 1)
        guard = ((centre * centre).sum(1) + 1.0).least(1e300) * ridge
        system = graph.constant(W.T) @ spread @ W
        size = (system * np.eye(W.shape[1])).sum(2).sum(1).most(1e-300)
        value, vector = eigen(system / size, W.shape[1])
        inverse = 1.0 / (value.most(0.0) * size + guard)
        slope = graph.constant(W) @ _solved(vector, inverse, graph.constant(W.T) @ cross)
    else:
        safe = varies.where(diagonal, 1.0)
        unit = some / safe.sqrt()
        value, vector = eigen(spread * unit * _turned(unit), d)
        rounded = varies.where(square / safe, 1.0).max(1).most(1.0)
        kept = value > rounded * ZERO_EIGENVALUE
        inverse = kept.cast(np.float64) / kept.where(value, 1.0)
        slope = unit * _solved(vector, inverse, unit * cross)
    return mean - (slope * delta).sum(1).without_axis(1), mean


def _moments(query: Value, key: Array, columns: Array, looks: Looks) -> tuple[Value, Value, Value, Value]:
    """Means of columns (n, P) and of key − query (n, d, 1), covariances (n, d, d), and those with columns (n, d, P)."""
    d, graph = key.shape[1], query.graph
    keys, alpha = graph.constant(key), looks.weights
    low, high = (end.astype(np.float64) for end in (key.min(axis=0), key.max(axis=0)))
    # A column less its mean adds up to nothing under the weights, so that the other factor may stand where it likes.
    table = joined([keys - (0.5 * low + 0.5 * high), graph.constant(columns)], 1)  # (K, d + P)
    means = alpha @ table
    rows = []
    for f in range(d):
        column = keys.take([f], 1).without_axis(1)  # (K,)
        there = column.take(looks.nearest, 0)  # (n, 1)
        away = column - there
        mean = (alpha * away).sum(1)
        around = alpha * (away - mean)
        # One row of all that is wanted of a feature: then no runtime begins another before this one is done with.
        wanted = [around @ table - around.sum(1) * means, mean + (there - query.take([f], 1))]
        rows.append(joined(wanted, 1).with_axis(1))
    all_rows, P = joined(rows, 1), columns.shape[1]  # (n, d, d + P + 1)
    spread, cross, delta = (all_rows.take(np.arange(*ends), 2) for ends in ((0, d), (d, d + P), (d + P, d + P + 1)))
    return means.take(np.arange(d, d + P), 1), delta, (spread + _turned(spread)) * 0.5, cross


def _solved(vector: Value, inverse: Value, right: Value) -> Value:
    return vector @ (inverse * (_turned(vector) @ right))


def _turned(matrices: Value) -> Value:
    return matrices.of("Transpose", perm=[0, 2, 1])
