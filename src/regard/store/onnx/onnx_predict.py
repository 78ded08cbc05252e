"""Predictions and weights of a fitted smoother as ONNX nodes."""

from __future__ import annotations

import numpy as np

from regard.bandwidth.scaling import Scaling
from regard.core.arrays import Array
from regard.core.scores import Radial
from regard.model.smoother import MAX_STANDARD_SCORE, Embedded, Head, ScaledColumns, Smoother, TrainingRows, Transform
from regard.pooling.local_pooling import centre_and_scale
from regard.store.onnx.onnx_graph import Value, concatenate
from regard.store.onnx.onnx_lines import lines
from regard.store.onnx.onnx_weights import add_all, onnx_weights


def predict(smoother: Smoother, query: Value) -> tuple[Value, Value]:
    """Answers (n, P) at queries (n, d) in float64, and the weights (n, K) of all training rows.

    The result of a query that is not finite is NaN.
    """
    finite = (query - query).equals(0.0)  # (n, d)
    known = finite.cast(np.float64).min(1) > 0.5  # (n, 1)
    query = finite.where(query, 0.0)
    # Complete queries are compared with complete training rows.
    rows = len(smoother.rows.key)
    counted = np.flatnonzero(smoother.rows.counted & ~np.isnan(smoother.rows.key).any(axis=1))
    training = smoother.rows.take(counted)
    each = [_of_head(head, _transformed(query, head.transform), training, smoother.empty) for head in smoother.heads]
    output = add_all([output for output, _ in each])
    weights = add_all([weights for _, weights in each])
    if len(counted) < rows:
        # Rows of weight zero, and those with missing entries, take a column of zeros behind the others.
        place = np.full(rows, len(counted))
        place[counted] = np.arange(len(counted))
        weights = concatenate([weights, weights.take([0], 1) * 0.0], 1).take(place, 1)
    return known.where(output, np.nan), known.where(weights, np.nan)


def _of_head(head: Head, query: Value, rows: TrainingRows, empty: str) -> tuple[Value, Value]:
    """Answers (n, P) and weights (n, K) of one head, times its mix, at transformed queries and rows that are used."""
    score, key, value = head.score, np.asarray(rows.placed(head.transform)), rows.columns * head.mix
    weight = None if rows.sample_weight is None else rows.sample_weight.astype(np.float64)
    found = onnx_weights(query, key, score, weight, empty)
    if isinstance(score, Radial) and head.degree:
        centre, scale = centre_and_scale(value, weight)
        line, mean = lines(query, key, (value - centre) / scale, found, head.w, head.ridge)
        # No line can be fitted in an empty row.
        height = line if found.empty is None else found.empty.where(mean, line)
        output = height * scale + centre
    else:
        output = found.weights @ value
    if found.empty is not None and empty == "nan":
        output = found.empty.where(np.nan, output)
    return output, found.weights if head.mix == 1.0 else found.weights * head.mix


def _transformed(query: Value, transform: Transform) -> Value:
    """Queries in a head's coordinates."""
    if isinstance(transform, ScaledColumns):
        return _scaled(query, transform.scaling, transform.share)
    return _embedded(query, transform) if isinstance(transform, Embedded) else query


def _scaled(query: Value, scaling: Scaling, share: Array) -> Value:
    """Columns interpolated between knots, and linear beyond them, as ``Scaling`` does."""
    columns = []
    for j, (x, standard, ranks) in enumerate(zip(*scaling, strict=True)):
        column, z = query.take([j], 1), share[j] * standard + (1.0 - share[j]) * ranks
        beyond = (z[-1] - z[0]) / (x[-1] - x[0]) if len(x) > 1 else 0.0
        # Segment s begins at knot s − 1; those before the first and behind the last knot have a common slope.
        slope = np.r_[beyond, np.diff(z) / np.diff(x), beyond]
        number = (column >= x).cast(np.int64).sum(1)
        segments = (np.r_[x[0], x], np.r_[z[0], z], slope)
        start, height, steep = (query.graph.constant(each).take(number, 0) for each in segments)
        columns.append((column - start) * steep + height)
    return concatenate(columns, 1)


def _embedded(query: Value, transform: Embedded) -> Value:
    """Standardised rows, or their embedding by a network."""
    varies = np.isfinite(transform.scale)
    place = (query - transform.mean) / np.where(varies, transform.scale, 1.0) * varies.astype(np.float64)
    place = place.maximum(-MAX_STANDARD_SCORE).minimum(MAX_STANDARD_SCORE)
    if transform.embed is not None:
        layer = place
        for number in (0, 2, 4):
            W, b = (transform.parameters[f"net.{number}.{part}"].astype(np.float64) for part in ("weight", "bias"))
            layer = layer @ W.T + b
            layer = layer * layer.of("Sigmoid") if number < 4 else layer
        place = concatenate([place, layer], 1)
    return place if transform.turn is None else place @ transform.turn.astype(np.float64)
