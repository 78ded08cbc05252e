"""What a fitted estimator answers, as ONNX nodes: prediction and weights of every kind of estimator."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.bandwidth.scaling import Scaling
from regard.estimators.heads import HeadPooling
from regard.estimators.kernel_pooling import KernelPooling
from regard.estimators.learned_score import FAR, LearnedScore
from regard.local import centre_and_scale
from regard.onnx.graph import Value, joined
from regard.onnx.lines import lines
from regard.onnx.looks import Looks, added, radial_looks, score_looks
from regard.scores import Gaussian, Nearest, Radial

Array = NDArray[Any]


class Answer(NamedTuple):
    """What is answered to n queries by all K training rows."""

    output: Value  # (n, P)
    weights: Value  # (n, K)


class Rows(NamedTuple):
    """Training rows that count."""

    key: Array  # (K, d)
    value: Array  # (K, P)
    weight: Array | None  # (K,)


def answer(model: Any, query: Value, value: Array) -> Answer:
    """Averages of value (K, P), or heights of lines through it, at queries (n, d) in float64.

    A query that is not finite gets NaN, and what it is compared with is nobody's business: 0 stands in for it.
    """
    finite = (query - query).equals(0.0)  # (n, d)
    known = finite.cast(np.float64).min(1) > 0.5  # (n, 1)
    found = _by_all(model, finite.where(query, 0.0), value)
    return Answer(known.where(found.output, np.nan), known.where(found.weights, np.nan))


def _by_all(model: Any, query: Value, value: Array) -> Answer:
    """The same of finite queries; weights of all training rows, deleted ones too."""
    weight = model.sample_weight_
    kept = np.arange(len(model.key_)) if weight is None else np.flatnonzero(weight > 0)
    rows = Rows(np.asarray(model.key_)[kept], value[kept], None if weight is None else weight[kept].astype(np.float64))
    found = _of_kind(model, query, rows, kept)
    if len(kept) == len(model.key_):
        return found
    # Deleted rows take what stands behind the others: nothing.
    place = np.full(len(model.key_), len(kept))
    place[kept] = np.arange(len(kept))
    nothing = found.weights.take([0], 1) * 0.0
    return found._replace(weights=joined([found.weights, nothing], 1).take(place, 1))


def _of_kind(model: Any, query: Value, rows: Rows, kept: Array) -> Answer:
    if isinstance(model, LearnedScore):
        return _learned(model, query, rows, kept)
    if isinstance(model, HeadPooling):
        return _mixed(model, query, rows)
    if isinstance(model, KernelPooling):
        return _pooled(query, rows, model.attention_score_, model._DEGREE, model._ridge, model.empty)
    return _pooled(query, rows, model.attention_score_)


def _pooled(query: Value, rows: Rows, score: Radial, degree: int = 0, ridge: float = 0.0, empty: str = "nan") -> Answer:
    looks = radial_looks(query, rows.key, score, rows.weight, empty, hard=isinstance(score, Nearest))
    if not degree:
        return Answer(_or_nan(looks.weights @ rows.value, looks, empty), looks.weights)
    centre, scale = centre_and_scale(rows.value, rows.weight)
    line, mean = lines(query, rows.key, (rows.value - centre) / scale, looks, np.asarray(score.w), ridge)
    # Where nobody is in reach, there is nothing to draw a line through.
    height = line if looks.nobody is None else looks.nobody.where(mean, line)
    return Answer(_or_nan(height * scale + centre, looks, empty), looks.weights)


def _or_nan(output: Value, looks: Looks, empty: str) -> Value:
    return output if looks.nobody is None or empty != "nan" else looks.nobody.where(np.nan, output)


def _mixed(model: HeadPooling, query: Value, rows: Rows) -> Answer:
    """Heads, each over columns scaled its own way."""
    outputs, weights = [], []
    for head in model.heads_:
        scaled = Rows(model.scaling_(rows.key, head.share), rows.value * head.weight, rows.weight)
        z = _scaled(query, model.scaling_, head.share)
        found = _pooled(z, scaled, Gaussian(head.w), model._DEGREE, head.ridge)
        outputs.append(found.output)
        weights.append(found.weights * head.weight)
    return Answer(added(outputs), added(weights))


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


def _learned(model: LearnedScore, query: Value, rows: Rows, kept: Array) -> Answer:
    """A learned score between standardised rows, or between what a network makes of them."""
    varies = np.isfinite(model.scale_)
    place = (query - model.mean_) / np.where(varies, model.scale_, 1.0) * varies.astype(np.float64)
    place = place.most(-FAR).least(FAR)
    if model.embed is not None:
        layer = place
        for number in (0, 2, 4):
            W, b = (model.parameters_[f"embed.net.{number}.{part}"].astype(np.float64) for part in ("weight", "bias"))
            layer = layer @ W.T + b
            layer = layer * layer.of("Sigmoid") if number < 4 else layer
        place = joined([place, layer], 1)
    score, key = model.attention_score_, np.asarray(model.embedding_)[kept]
    if isinstance(score, Radial):
        looks = radial_looks(place, key, score, rows.weight, "nan")
    else:
        turn = model.parameters_.get("score.W")
        looks = score_looks(place if turn is None else place @ turn.astype(np.float64), key, score, rows.weight)
    return Answer(looks.weights @ rows.value, looks.weights)
