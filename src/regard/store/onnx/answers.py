"""What a fitted estimator answers, as ONNX nodes: prediction and weights of every kind of estimator."""

from __future__ import annotations

import numpy as np

from regard.bandwidth.scaling import Scaling
from regard.core.arrays import Array
from regard.core.scores import Nearest, Radial
from regard.model.smoother import FARTHEST, Embedded, Head, ScaledColumns, Smoother, TrainingRows, Transform
from regard.pooling.local_pooling import centre_and_scale
from regard.store.onnx.graph import Value, joined
from regard.store.onnx.lines import lines
from regard.store.onnx.looks import Looks, added, radial_looks, score_looks


def answer(smoother: Smoother, query: Value) -> tuple[Value, Value]:
    """Answers (n, P) at queries (n, d) in float64, and the weights (n, K) of all training rows.

    A query that is not finite gets NaN; 0 stands in for it until then.
    """
    finite = (query - query).equals(0.0)  # (n, d)
    known = finite.cast(np.float64).min(1) > 0.5  # (n, 1)
    output, weights = _by_all(smoother, finite.where(query, 0.0))
    return known.where(output, np.nan), known.where(weights, np.nan)


def _by_all(smoother: Smoother, query: Value) -> tuple[Value, Value]:
    """The same of finite queries; deleted rows have weights too."""
    rows, kept = len(smoother.rows.key), np.flatnonzero(smoother.rows.counted)
    counted = smoother.rows.take(kept)
    outputs, weights = [], []
    for head in smoother.heads:
        output, attention = _of_head(head, _placed(query, head.transform), counted, smoother.empty)
        outputs.append(output)
        weights.append(attention * head.mix if len(smoother.heads) > 1 else attention)
    output, attention = added(outputs), added(weights)
    if len(kept) < rows:
        # Deleted rows take what stands behind the others: nothing.
        place = np.full(rows, len(kept))
        place[kept] = np.arange(len(kept))
        attention = joined([attention, attention.take([0], 1) * 0.0], 1).take(place, 1)
    return output, attention


def _of_head(head: Head, query: Value, rows: TrainingRows, empty: str) -> tuple[Value, Value]:
    """The same of one head at placed queries, and of rows that count; answers are times its share in the mix."""
    score, key, value = head.score, np.asarray(rows.placed(head.transform)), rows.columns * head.mix
    weight = None if rows.sample_weight is None else rows.sample_weight.astype(np.float64)
    if not isinstance(score, Radial):
        looks = score_looks(query, key, score, weight)
        return looks.weights @ value, looks.weights
    looks = radial_looks(query, key, score, weight, empty, hard=isinstance(score, Nearest))
    if not head.degree:
        return _or_nan(looks.weights @ value, looks, empty), looks.weights
    centre, scale = centre_and_scale(value, weight)
    line, mean = lines(query, key, (value - centre) / scale, looks, head.w, head.ridge)
    # In an empty row there is nothing to draw a line through.
    height = line if looks.nobody is None else looks.nobody.where(mean, line)
    return _or_nan(height * scale + centre, looks, empty), looks.weights


def _or_nan(output: Value, looks: Looks, empty: str) -> Value:
    return output if looks.nobody is None or empty != "nan" else looks.nobody.where(np.nan, output)


def _placed(query: Value, transform: Transform) -> Value:
    """Queries in a head's coordinates."""
    if isinstance(transform, ScaledColumns):
        return _scaled(query, transform.scaling, transform.share)
    return _embedded(query, transform) if isinstance(transform, Embedded) else query


def _scaled(query: Value, scaling: Scaling, share: Array) -> Value:
    """Columns between knots, and straight beyond them, as ``Scaling`` has them."""
    columns = []
    for j, (x, standard, ranks) in enumerate(zip(*scaling, strict=True)):
        column, z = query.take([j], 1), share[j] * standard + (1.0 - share[j]) * ranks
        beyond = (z[-1] - z[0]) / (x[-1] - x[0]) if len(x) > 1 else 0.0
        # Number s is the way from knot s − 1 on; those before the first and behind the last have one slope.
        slope = np.r_[beyond, np.diff(z) / np.diff(x), beyond]
        number = (column >= x).cast(np.int64).sum(1)
        ways = (np.r_[x[0], x], np.r_[z[0], z], slope)
        start, height, steep = (query.graph.constant(way).take(number, 0) for way in ways)
        columns.append((column - start) * steep + height)
    return joined(columns, 1)


def _embedded(query: Value, transform: Embedded) -> Value:
    """Standardised rows, or what a network makes of them."""
    varies = np.isfinite(transform.scale)
    place = (query - transform.mean) / np.where(varies, transform.scale, 1.0) * varies.astype(np.float64)
    place = place.most(-FARTHEST).least(FARTHEST)
    if transform.embed is not None:
        layer = place
        for number in (0, 2, 4):
            W, b = (transform.parameters[f"net.{number}.{part}"].astype(np.float64) for part in ("weight", "bias"))
            layer = layer @ W.T + b
            layer = layer * layer.of("Sigmoid") if number < 4 else layer
        place = joined([place, layer], 1)
    return place if transform.turn is None else place @ transform.turn.astype(np.float64)
