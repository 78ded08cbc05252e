"""Attention weights of a score as ONNX nodes, (n, K), never holding more than a few such matrices at once.

Features are processed one after the other, as differences. Scores are relative to that of the nearest key r, so that
keys near each other are distinguished even by a query a million bandwidths away:

    u_k² − u_r² = Σ_f w_f² (r_f − k_f)(2(q_f − r_f) + (r_f − k_f))

Lengths are in units of a power of two per query, which grows with its distance from the bounding box of the keys:
nothing overflows, and the division by it is exact.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.core.scores import Additive, DotProduct, Nearest, Radial, Score, power_and_stretch
from regard.store.onnx.onnx_graph import Value

# Units are 2^(k·UNIT_STEP), between 2^−MAX_UNIT and 2^MAX_UNIT; the box of the keys is at most 2^MAX_BOX units wide.
UNIT_STEP = 16
MAX_UNIT = 1008
MAX_BOX = 330


class OnnxWeights(NamedTuple):
    """Attention weights of queries, and their reference keys."""

    weights: Value  # (n, K)
    nearest: Any = (0,)  # (n, 1) number of the nearest key; the first key for all queries if none is nearer
    empty: Value | None = None  # (n, 1) boolean: no key in reach; None if that is impossible


class _Metric(NamedTuple):
    """u = ‖w∘(q − k)‖·power·√stretch over the features with w ≠ 0; power is a power of two."""

    query: Value  # (n, f)
    key: Value  # (K, f)
    low: Array  # (f,) bounding box of the keys
    high: Array
    w: Array | None  # (f,), at most 1; None: all 1
    power: float
    stretch: float


def onnx_weights(query: Value, key: Array, score: Score, weight: Array | None, empty: str) -> OnnxWeights:
    """Weights of a score between queries (n, d) and keys (K, d); weight (K,) is positive.

    *Empty rows*: as ``empty`` says, "nearest", "prior" or "nan" (weights 0).
    """
    share = np.ones(len(key)) if weight is None else weight / weight.max()
    if isinstance(score, DotProduct):
        return OnnxWeights(_softmax(query @ (key.T * (float(score.w) / np.sqrt(max(key.shape[1], 1)))), share))
    if isinstance(score, Additive):
        projected, keys = query @ score.W_q.T, key @ score.W_k.T  # (n, h), (K, h)
        parts = [
            (projected.take([h], 1) + np.ascontiguousarray(keys[:, h])).of("Tanh") * float(score.w_v[h])
            for h in range(len(score.w_v))
        ]
        return OnnxWeights(_softmax(add_all(parts), share))
    assert isinstance(score, Radial)
    metric = _metric(query, key, score)
    if metric is None:
        return OnnxWeights(query.take([0], 1) * 0.0 + share / share.sum())
    hard = isinstance(score, Nearest)
    unit, length = _unit(metric, hard)
    u2 = _squared_lengths(metric, unit)
    nearest = u2.of("ArgMin", axis=1, keepdims=1)
    if hard:
        return OnnxWeights(_nearest_weights(u2, share), nearest)
    kernel = score.kernel
    if not kernel.compact:
        rise = _rises(metric, unit, nearest) * length
        if kernel.name == "laplace":
            # u_k − u_r = (u_k² − u_r²) / (u_k + u_r); where both are 0, so is the numerator.
            rise = rise / (u2.sqrt() + u2.min(1).sqrt()).maximum(2.0**-1000) * -np.sqrt(metric.stretch)
        else:
            rise = rise * length * (-0.5 * metric.stretch)
        # Rounding may hide which of many keys at one distance is nearest; a rise above r must stay finite.
        return OnnxWeights(_softmax(rise.minimum(1e300), share), nearest)
    height = _kernel(kernel.name, u2 * length * length * metric.stretch).of("Log")
    height = height + np.log(share) if weight is not None else height
    peak = height.max(1)  # (n, 1)
    no_key = peak.equals(-np.inf)
    raised = (height - no_key.where(0.0, peak)).of("Exp")
    weights = raised / no_key.where(1.0, raised.sum(1))
    if empty != "nan":
        instead = _nearest_weights(u2, share) if empty == "nearest" else u2.graph.constant(share / share.sum())
        weights = no_key.where(instead, weights)
    return OnnxWeights(weights, nearest, no_key)


def add_all(values: list[Value]) -> Value:
    """Their sum, from first to last."""
    return reduce(add, values)


def box_of(key: Array) -> tuple[Array, Array, Array]:
    """Low and high corner of the bounding box of the keys (K, d), and its middle, (d,) float64 each."""
    low, high = key.min(axis=0).astype(np.float64), key.max(axis=0).astype(np.float64)
    return low, high, 0.5 * low + 0.5 * high


def _metric(query: Value, key: Array, score: Radial) -> _Metric | None:
    """Returns None if every w is 0."""
    w, graph = np.asarray(score.w), query.graph
    largest = float(np.abs(w).max(initial=0.0))
    if largest == 0.0 or not key.shape[1]:
        return None
    power, stretch = power_and_stretch(largest)
    low, high, middle = box_of(key)
    if w.ndim == 0:
        return _Metric(query, graph.constant(key), low, high, None, power, stretch)
    w = w / power
    if w.ndim == 2:
        # About their middle, so that an offset of the keys is not rounded.
        projected = (key.astype(np.float64) - middle) @ w
        return _Metric((query - middle) @ w, graph.constant(projected), *box_of(projected)[:2], None, power, 1.0)
    used = np.flatnonzero(w)
    return _Metric(query.take(used, 1), graph.constant(key).take(used, 1), low[used], high[used], w[used], power, 1.0)


def _unit(metric: _Metric, hard: bool) -> tuple[Value, Value]:
    """The unit of lengths under w of each query (n, 1), and its length under power·w, at most 2^1000."""
    w = 1.0 if metric.w is None else metric.w
    beyond = ((metric.low - metric.query).maximum(metric.query - metric.high) * w).max(1)
    widest = float(((metric.high - metric.low) * w).max()) * 2.0**-MAX_BOX
    # Hard attention has no bandwidth that could be a unit.
    least = max(widest, 2.0**-MAX_UNIT, 0.0 if hard else min(1.0 / metric.power, 2.0**MAX_UNIT))
    steps = MAX_UNIT // UNIT_STEP
    number = (beyond.maximum(least).of("Log") / (UNIT_STEP * np.log(2.0))).of("Floor") + steps
    units = metric.query.graph.constant(np.ldexp(1.0, np.arange(-MAX_UNIT, MAX_UNIT + 1, UNIT_STEP)))
    unit = units.take(number.maximum(0.0).minimum(2.0 * steps).cast(np.int64), 0)
    return unit, (unit * metric.power).minimum(2.0**1000)


def _features(metric: _Metric, unit: Value) -> list[tuple[Value, Value, Value]]:
    """Query (n, 1), key (K,) and factor (n, 1) of every feature."""
    inverse, count = 1.0 / unit, len(metric.low)
    return [
        (
            metric.query.take([f], 1),
            metric.key.take([f], 1).without_axis(1),
            inverse if metric.w is None else inverse * float(metric.w[f]),
        )
        for f in range(count)
    ]


def _squared_lengths(metric: _Metric, unit: Value) -> Value:
    """Squared lengths (n, K) under w, in units."""
    squares = []
    for query, key, factor in _features(metric, unit):
        length = (query - key) * factor
        squares.append(length * length)
    return add_all(squares)


def _rises(metric: _Metric, unit: Value, nearest: Value) -> Value:
    """Squared lengths less that of the nearest key, (n, K)."""
    rises = []
    for query, key, factor in _features(metric, unit):
        reference = key.take(nearest, 0)
        away = reference - key
        rises.append(away * factor * ((away + (query - reference) * 2.0) * factor))
    return add_all(rises)


def _nearest_weights(u2: Value, share: Array) -> Value:
    """Weights of hard attention."""
    distance = u2.sqrt()
    near = distance.equals(distance.min(1)).cast(np.float64) * share
    return near / near.sum(1)


def _softmax(height: Value, share: Array) -> Value:
    weighted = height if (share == 1.0).all() else height + np.log(share)
    return weighted.of("Softmax", axis=1)


def _kernel(name: str, u2: Value) -> Value:
    """K(u) of ``regard.core.kernels``, for a compact kernel."""
    if name == "boxcar":
        return (u2 > 1.0).where(0.0, 1.0)
    if name == "tricube":
        u2 = u2.minimum(1.0)
        inside = 1.0 - u2 * u2.sqrt()
        return inside * inside * inside
    if name in ("triangular", "cosine"):
        inside = (1.0 - u2.sqrt()).maximum(0.0)
        return inside if name == "triangular" else (inside * (0.5 * np.pi)).of("Sin")
    inside = (1.0 - u2).maximum(0.0)
    return {"epanechnikov": inside, "biweight": inside * inside, "triweight": inside * inside * inside}[name]
