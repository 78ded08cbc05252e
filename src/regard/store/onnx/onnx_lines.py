"""Local lines as ONNX nodes: what ``regard.core.local_fits`` computes from moments, here from weights.

Moments are central, from differences to the nearest key, so that offsets and distances are not rounded.
"""

from __future__ import annotations

import numpy as np

from regard.core.arrays import Array
from regard.core.local_fits import ZERO_EIGENVALUE, ZERO_VARIANCE, ZERO_VARIANCE_WITH_RIDGE
from regard.store.onnx.onnx_eigen import eigen
from regard.store.onnx.onnx_graph import Value, concatenate
from regard.store.onnx.onnx_weights import OnnxWeights, box_of


def lines(query: Value, key: Array, columns: Array, found: OnnxWeights, w: Array, ridge: float) -> tuple[Value, Value]:
    """Heights of the lines at queries (n, d) through columns (K, P), and weighted means, (n, P) both.

    Columns are centred and about 1 in size. *Cost*: O(n·K·d·(d + P)) time, O(n·K) memory.
    """
    d = key.shape[1]
    mean, delta, covariance, cross = _central_moments(query, key, columns, found)
    variance = (covariance * np.eye(d)).sum(2)  # (n, d, 1)
    square = variance + delta * delta
    varies = variance > square * (ZERO_VARIANCE_WITH_RIDGE if ridge > 0.0 else ZERO_VARIANCE)
    some = varies.cast(np.float64)
    covariance, cross = covariance * some * _transposed(some), cross * some
    if ridge > 0.0:
        W = np.diag(np.broadcast_to(w, d)) if np.ndim(w) < 2 else w
        centre = W.T @ delta  # (n, r, 1)
        guard = ((centre * centre).sum(1) + 1.0).minimum(1e300) * ridge
        system = W.T @ covariance @ W
        size = (system * np.eye(W.shape[1])).sum(2).sum(1).maximum(1e-300)
        value, vector = eigen(system / size, W.shape[1])
        inverse = 1.0 / (value.maximum(0.0) * size + guard)
        slope = W @ _solved(vector, inverse, W.T @ cross)
    else:
        safe = varies.where(variance, 1.0)
        unit = some / safe.sqrt()
        value, vector = eigen(covariance * unit * _transposed(unit), d)
        rounded = varies.where(square / safe, 1.0).max(1).maximum(1.0)
        used = value > rounded * ZERO_EIGENVALUE
        inverse = used.cast(np.float64) / used.where(value, 1.0)
        slope = unit * _solved(vector, inverse, unit * cross)
    return mean - (slope * delta).sum(1).without_axis(1), mean


def _central_moments(query: Value, key: Array, columns: Array, found: OnnxWeights) -> tuple[Value, ...]:
    """Means of columns (n, P) and of key − query (n, d, 1), covariances (n, d, d), and those with columns (n, d, P)."""
    d, graph = key.shape[1], query.graph
    keys, alpha = graph.constant(key), found.weights
    # The weighted sum of a column less its mean is 0, so the other factor may have any offset.
    table = concatenate([keys - box_of(key)[2], graph.constant(columns)], 1)  # (K, d + P)
    means = alpha @ table
    rows = []
    for f in range(d):
        column = keys.take([f], 1).without_axis(1)  # (K,)
        reference = column.take(found.nearest, 0)  # (n, 1)
        away = column - reference
        mean = (alpha * away).sum(1)
        around = alpha * (away - mean)
        # All results of a feature in one row, so that runtimes finish one feature before they begin the next.
        wanted = [around @ table - around.sum(1) * means, mean + (reference - query.take([f], 1))]
        rows.append(concatenate(wanted, 1).with_axis(1))
    all_rows, P = concatenate(rows, 1), columns.shape[1]  # (n, d, d + P + 1)
    covariance, cross, delta = (all_rows.take(np.arange(*ends), 2) for ends in ((0, d), (d, d + P), (d + P, d + P + 1)))
    return means.take(np.arange(d, d + P), 1), delta, (covariance + _transposed(covariance)) * 0.5, cross


def _solved(vector: Value, inverse: Value, right: Value) -> Value:
    return vector @ (inverse * (_transposed(vector) @ right))


def _transposed(matrices: Value) -> Value:
    return matrices.of("Transpose", perm=[0, 2, 1])
