"""Attention weights of a score as ONNX nodes, (n, K), never holding more than a few such matrices at once.

Features are taken one after the other, as differences. Scores are measured from the nearest key r, so that a query a
million bandwidths away still tells near keys apart:

    u_k² − u_r² = Σ_f w_f² (r_f − k_f)(2(q_f − r_f) + (r_f − k_f))

Lengths are in a unit of the query's own, a power of two that goes with its distance from the box of all keys: nothing
overflows, and nothing is rounded by it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.core.scores import Additive, DotProduct, Radial, Score, power_and_stretch
from regard.store.onnx.graph import Value

# Units go by 2^STEP, from 2^−LAST to 2^LAST; no box of keys is wider than 2^WIDE units.
STEP, LAST, WIDE = 16, 1008, 330


class Looks(NamedTuple):
    """Who is looked at."""

    weights: Value  # (n, K)
    nearest: Value  # (n, 1) number of the nearest key, or of the first where none is nearer
    nobody: Value | None = None  # (n, 1) boolean: no key in reach; None: that cannot be


class _Metric(NamedTuple):
    """u = ‖w∘(q − k)‖·power·√stretch, over the features that count; power is a power of two."""

    query: Value  # (n, f)
    key: Value  # (K, f)
    low: Array  # (f,) the box of the keys
    high: Array
    w: Array | None  # (f,), at most 1; None: all 1
    power: float
    stretch: float


def radial_looks(
    query: Value, key: Array, score: Radial, weight: Array | None, empty: str, *, hard: bool = False
) -> Looks:
    """Weights of a radial score between queries (n, d) and keys (K, d); weight (K,) above zero.

    Empty rows: as ``empty`` says, "nearest", "prior" or "nan" (weights 0); ``hard`` looks at the nearest keys only.
    """
    share = np.ones(len(key)) if weight is None else weight / weight.max()
    metric = _metric(query, key, score)
    if metric is None:
        return _uniform(query, share)
    unit, length = _unit(metric, hard)
    u2, nearest = _squares(metric, unit)
    kernel = score.kernel
    if hard:
        return Looks(_hard(u2, share), nearest)
    if not kernel.compact:
        rise = _rises(metric, unit, nearest) * length
        if kernel.name == "laplace":
            # u_k − u_r = (u_k² − u_r²) / (u_k + u_r); where both are 0, so is the numerator.
            rise = rise / (u2.sqrt() + u2.min(1).sqrt()).most(2.0**-1000) * -np.sqrt(metric.stretch)
        else:
            rise = rise * length * (-0.5 * metric.stretch)
        # Rounding may have hidden which of many keys at one distance is nearest; a rise above r must stay finite.
        return Looks(_softmax(rise.least(1e300), share), nearest)
    height = _kernel(kernel.name, u2 * length * length * metric.stretch).of("Log")
    height = height + np.log(share) if weight is not None else height
    peak = height.max(1)  # (n, 1)
    nobody = peak.equals(-np.inf)
    raised = (height - nobody.where(0.0, peak)).of("Exp")
    weights = raised / nobody.where(1.0, raised.sum(1))
    if empty != "nan":
        instead = _hard(u2, share) if empty == "nearest" else u2.graph.constant(share / share.sum())
        weights = nobody.where(instead, weights)
    return Looks(weights, nearest, nobody)


def score_looks(query: Value, key: Array, score: Score, weight: Array | None) -> Looks:
    """The same of a score that is not radial; there are no empty rows."""
    share = np.ones(len(key)) if weight is None else weight / weight.max()
    nearest = _first(query)
    if isinstance(score, DotProduct):
        height = query @ (key.T * (float(score.w) / np.sqrt(max(key.shape[1], 1))))
        return Looks(_softmax(height, share), nearest)
    assert isinstance(score, Additive)
    asked, told = query @ score.W_q.T, key @ score.W_k.T  # (n, h), (K, h)
    parts = [
        (asked.take([h], 1) + np.ascontiguousarray(told[:, h])).of("Tanh") * float(score.w_v[h])
        for h in range(len(score.w_v))
    ]
    return Looks(_softmax(added(parts), share), nearest)


def added(values: list[Value]) -> Value:
    """Their sum, from first to last."""
    total, *others = values
    for value in others:
        total = total + value
    return total


def _metric(query: Value, key: Array, score: Radial) -> _Metric | None:
    """None where every w is 0."""
    w, graph = np.asarray(score.w), query.graph
    largest = float(np.abs(w).max(initial=0.0))
    if largest == 0.0 or not key.shape[1]:
        return None
    power, stretch = power_and_stretch(largest)
    if w.ndim == 0:
        return _Metric(query, graph.constant(key), *_box(key), None, power, stretch)
    w = w / power
    if w.ndim == 2:
        # Around their middle, so that an offset of the keys is not rounded.
        centre = _middle(key)
        turned = (key.astype(np.float64) - centre) @ w
        return _Metric((query - centre) @ w, graph.constant(turned), *_box(turned), None, power, 1.0)
    used = np.flatnonzero(w)
    low, high = _box(key)
    return _Metric(query.take(used, 1), graph.constant(key).take(used, 1), low[used], high[used], w[used], power, 1.0)


def _middle(key: Array) -> Array:
    low, high = _box(key)
    return 0.5 * low + 0.5 * high


def _box(key: Array) -> tuple[Array, Array]:
    return key.min(axis=0).astype(np.float64), key.max(axis=0).astype(np.float64)


def _unit(metric: _Metric, hard: bool) -> tuple[Value, Value]:
    """What lengths under w are divided by (n, 1), and how long it is under power·w, at most 2^1000."""
    w = 1.0 if metric.w is None else metric.w
    beyond = ((metric.low - metric.query).most(metric.query - metric.high) * w).max(1)
    widest = float(((metric.high - metric.low) * w).max()) * 2.0**-WIDE
    # Hard attention has no bandwidth that could be a unit.
    least = max(widest, 2.0**-LAST, 0.0 if hard else min(1.0 / metric.power, 2.0**LAST))
    number = (beyond.most(least).of("Log") / (STEP * np.log(2.0))).of("Floor") + LAST // STEP
    units = metric.query.graph.constant(np.ldexp(1.0, np.arange(-LAST, LAST + 1, STEP)))
    unit = units.take(number.most(0.0).least(2.0 * (LAST // STEP)).cast(np.int64), 0)
    return unit, (unit * metric.power).least(2.0**1000)


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


def _squares(metric: _Metric, unit: Value) -> tuple[Value, Value]:
    """Squared lengths (n, K) under w in units, and the number of the least (n, 1)."""
    squares = []
    for query, key, factor in _features(metric, unit):
        length = (query - key) * factor
        squares.append(length * length)
    u2 = added(squares)
    return u2, u2.of("ArgMin", axis=1, keepdims=1)


def _rises(metric: _Metric, unit: Value, nearest: Value) -> Value:
    """How much larger these are than the least, (n, K)."""
    rises = []
    for query, key, factor in _features(metric, unit):
        there = key.take(nearest, 0)
        away = there - key
        rises.append(away * factor * ((away + (query - there) * 2.0) * factor))
    return added(rises)


def _hard(u2: Value, share: Array) -> Value:
    """Weights of the nearest keys."""
    distance = u2.sqrt()
    near = distance.equals(distance.min(1)).cast(np.float64) * share
    return near / near.sum(1)


def _softmax(height: Value, share: Array) -> Value:
    weighted = height if (share == 1.0).all() else height + np.log(share)
    return weighted.of("Softmax", axis=1)


def _uniform(query: Value, share: Array) -> Looks:
    """The same weights for every query."""
    graph = query.graph
    size = graph.node("Concat", query.of("Shape", end=1), graph.constant(np.array([len(share)])), axis=0)
    return Looks(graph.node("Expand", share / share.sum(), size), _first(query))


def _first(query: Value) -> Value:
    """Number 0 for every query, (n, 1)."""
    graph = query.graph
    size = graph.node("Concat", query.of("Shape", end=1), graph.constant(np.array([1])), axis=0)
    return graph.node("Expand", graph.constant(np.array([0])), size)


def _kernel(name: str, u2: Value) -> Value:
    """K of ``regard.core.kernels`` for a kernel that ends at u = 1."""
    if name == "boxcar":
        return (u2 > 1.0).where(0.0, 1.0)
    if name == "tricube":
        u2 = u2.least(1.0)
        inside = 1.0 - u2 * u2.sqrt()
        return inside * inside * inside
    if name in ("triangular", "cosine"):
        inside = (1.0 - u2.sqrt()).most(0.0)
        return inside if name == "triangular" else (inside * (0.5 * np.pi)).of("Sin")
    inside = (1.0 - u2).most(0.0)
    return {"epanechnikov": inside, "biweight": inside * inside, "triweight": inside * inside * inside}[name]
