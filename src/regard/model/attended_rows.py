"""The training rows that each query attends to most, and what made them near.

The squared distance of a row in bandwidths is a sum over features: u² = Σ_a u²_a with u²_a = (w_a·δ_a)², or
δ_a·(W(Wᵀδ))_a if w is a matrix (a feature's part may then be negative: it offsets another's). The nearness of a feature
is Σ α·u²_a / Σ α·u², and its part of a row's score log K(u) is log K(u)·u²_a/u², which is −½u²_a for a Gaussian. For
several heads these quantities are averaged with the heads' mixture weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from regard.bandwidth.adaptive import KTH_NEIGHBOUR_BANDWIDTHS
from regard.core.arrays import Array
from regard.core.scores import Nearest, Radial
from regard.model.smoother import Answer, Smoother, tiles

# Weights in one tile. With the temporaries of the selection, a tile stays around 64 MB.
TILE_CELLS = 1 << 21
# Largest distance in bandwidths that is squared without rescaling, and its binary exponent.
MAX_DISTANCE_TO_SQUARE = 1e100
MAX_EXPONENT_TO_SQUARE = 332
# Quantile of the distances between neighbouring training rows that is called usual.
USUAL_QUANTILE = 0.9
# A query is far if it is this many times the usual distance away.
FAR_FACTOR = 2.0


# ---- the most attended rows


class Attention(NamedTuple):
    """Result of ``attend(X, top=…)``: the most attended training rows of every query, in decreasing order of weight."""

    index: Array  # type: ignore[assignment]  # (Q, top)  row numbers in the X given to fit
    weight: Array  # (Q, top)  their weights, normalised over all training rows
    mass: Array  # (Q,)  total weight of the rows shown, at most 1


def checked_top(top: Any, rows: int) -> int:
    """``top`` as an integer between 1 and the number of training rows."""
    if isinstance(top, bool) or not isinstance(top, int | np.integer):
        raise TypeError(f"top must be None or a whole number, got {top!r}")
    if not 1 <= top <= rows:
        raise ValueError(f"top must be between 1 and the number of training rows, {rows}, got {top}")
    return int(top)


def attend_top(smoother: Smoother, query: Array, top: int) -> tuple[Attention, Array]:
    """The ``top`` most attended rows of every query, in its dtype, and which queries (Q,) are empty.

    *Empty rows*: according to ``smoother.empty``; if all weights are zero, the first ``top`` rows with weight 0 and
    mass 0. *Cost*: O(Q·K) time beyond the weights, O(Q·top) memory and a tile.
    """
    index, empty = np.empty((len(query), top), np.intp), np.zeros(len(query), bool)
    weight, mass = np.empty((len(query), top)), np.empty(len(query))
    for rows in tiles(len(query), len(smoother.rows.key), TILE_CELLS):
        weights, empty[rows] = smoother.weights(query[rows])
        index[rows] = largest(weights, top)
        weight[rows] = np.take_along_axis(weights, index[rows], axis=1)
        mass[rows] = np.minimum(weight[rows].sum(axis=1), 1.0)
    return Attention(index, weight.astype(query.dtype), mass.astype(query.dtype)), empty


def largest(weights: Array, top: int) -> Array:
    """Columns of the ``top`` largest entries of each row, in decreasing order; ties go to the smaller column.

    >>> largest(np.array([[0.1, 0.4, 0.1, 0.4]]), 3).tolist()
    [[1, 3, 0]]
    """
    keys = weights.shape[1]
    smallest = np.partition(weights, keys - top, axis=1)[:, keys - top, None]  # the last weight shown
    chosen = weights > smallest
    ties = weights == smallest
    # np.partition picks among ties arbitrarily; the first ones must win.
    room = top - chosen.sum(axis=1, dtype=np.int32)
    chosen |= ties & (np.cumsum(ties, axis=1, dtype=np.int32) <= room[:, None])
    columns = np.nonzero(chosen)[1].reshape(-1, top)
    order = np.argsort(-np.take_along_axis(weights, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)


# ---- what made them near


class HeadAttention(NamedTuple):
    """Attention of one head at some queries."""

    mix: float
    score: Radial | None  # None if the score is not a function of a distance
    w: Array  # (Q,), (Q, d) or (Q, d, r)  of every query
    stretch: Array  # (Q,)  the query's own bandwidth over the head's; 1 unless bandwidths are adaptive
    query: Array  # (Q, d)
    key: Array  # (K, d)
    weight: Array  # (Q, K)

    @property
    def reach(self) -> float:
        """Distance in bandwidths beyond which a row hardly counts: the kernel's support, or where it is below 1 %."""
        if self.score is None or isinstance(self.score, Nearest):
            return np.inf
        return KTH_NEIGHBOUR_BANDWIDTHS.get(self.score.kernel.name, 1.0)


class AttendedRows(NamedTuple):
    """What some queries attend to: ``top`` rows of each, C columns of X."""

    weight: Array  # (Q, top)
    mass: Array  # (Q,)  total weight of these rows
    neighbours: Array  # (Q,)  effective number, 1/Σα²
    nearness: Array  # (Q, C)  part of each column, summing to 1 or all 0; NaN if the score is not a distance
    square: Array  # (Q, top, C)  part of each column in the squared distance in bandwidths
    score: Array  # (Q, top, C)  part of each column in the score; NaN for rows outside the kernel's support
    distance: Array  # (Q,)  bandwidths to the nearest row


def attention_of(smoother: Smoother, query: Array) -> tuple[list[HeadAttention], Array]:
    """Attention of every head at queries (Q, d), and which queries are empty."""
    found, empty = [], np.zeros(len(query), bool)
    for number, (head, at, key) in enumerate(smoother.each(query)):
        one = replace(smoother, heads=smoother.heads[number : number + 1])
        weight, alone = one.by_width(at, lambda fixed, some: fixed.head_weights(fixed.heads[0], some))
        is_distance = isinstance(head.score, Radial) and head.transform.by_column
        w = one.by_width(at, _w_of_queries).output if is_distance else np.zeros(len(at))
        stretch = np.ones(len(at))
        if head.neighbours is not None:
            stretch = np.linalg.norm(head.w) / np.linalg.norm(w.reshape(len(w), -1), axis=1)
        score = head.score if isinstance(head.score, Radial) and is_distance else None
        found.append(HeadAttention(head.mix, score, w, stretch, at, key.astype(np.float64), weight))
        empty |= alone
    return found, empty


def _w_of_queries(smoother: Smoother, query: Array) -> Answer:
    w = smoother.heads[0].w
    return Answer(np.array(np.broadcast_to(w, (len(query), *w.shape))), np.zeros(len(query), bool))


def attended_rows(
    heads: Sequence[HeadAttention], index: Array, copies: Array, counted: Array, fold: Array
) -> AttendedRows:
    """What a mixture of heads attends to; ``index`` (Q, top) are the rows to describe.

    ``copies`` (K,) are the repetitions of a row, ``counted`` (K,) marks rows of positive weight; ``fold`` (d, C) adds
    features up to columns. *Cost*: O(Q·K·d) time and memory: call it with a tile of queries.
    """
    weights = np.asarray(sum(head.mix * head.weight for head in heads))
    shape = (len(index), index.shape[1], fold.shape[1])
    nearness, square, score = np.zeros(shape[::2]), np.zeros(shape), np.zeros(shape)
    distance: Any = 0.0
    are_distances = all(head.score is not None for head in heads)
    for head in heads if are_distances else ():
        parts, unit = _squares(head)
        parts = parts @ fold
        nearness += head.mix * _normalised(np.einsum("qk,qkc->qc", head.weight, parts))
        size = (unit if (unit <= MAX_DISTANCE_TO_SQUARE).all() else np.minimum(unit, MAX_DISTANCE_TO_SQUARE)) ** 2
        shown = np.take_along_axis(parts, index[:, :, None], 1) * size[:, None, None]
        square += head.mix * shown
        score += head.mix * _score_parts(head, shown)
        distance = distance + head.mix * _least(parts.sum(axis=2), counted, unit) * head.stretch
    if not are_distances:
        for part in (nearness, square, score):
            part.fill(np.nan)
        distance = np.full(len(index), np.nan)
    top = np.take_along_axis(weights, index, 1)
    with np.errstate(divide="ignore"):
        neighbours = 1.0 / (weights**2 / copies).sum(axis=1)
    return AttendedRows(
        top,
        np.minimum(top.sum(axis=1), 1.0),
        np.where(np.isinf(neighbours), 0.0, neighbours),
        nearness,
        square,
        score,
        np.asarray(distance),
    )


def usual_distance(heads: Sequence[HeadAttention], rows: Array, counted: Array) -> float:
    """Distance in bandwidths within which 90 % of training rows have another; the queries are the rows ``rows``."""
    total: Any = 0.0
    for head in heads:
        parts, unit = _squares(head)
        others = np.broadcast_to(counted, parts.shape[:2]).copy()
        others[np.arange(len(rows)), rows] = False
        total = total + head.mix * _least(parts.sum(axis=2), others, unit) * head.stretch
    finite = total[np.isfinite(total)]
    return float(np.quantile(finite, USUAL_QUANTILE)) if finite.size else 0.0


def is_far(heads: Sequence[HeadAttention], distance: Array, usual: float) -> Array:
    """Queries farther from every row than the kernel reaches, and than training rows usually are from each other.

    The second condition is for learned bandwidths, which may be so narrow that every training row is alone.
    """
    reach = max(sum(head.mix * head.reach for head in heads), FAR_FACTOR * usual)
    return np.asarray(distance > reach)


def _squares(head: HeadAttention) -> tuple[Array, Array]:
    """Parts of u²/unit² (Q, K, d), and for every query a unit (Q,) that prevents squares from overflowing."""
    delta, w = head.key[None] - head.query[:, None], head.w
    # A missing entry contributes no distance.
    delta = np.nan_to_num(delta, nan=0.0)
    w_power = np.frexp(np.abs(w).reshape(len(w), -1).max(axis=1, initial=0.0))[1]
    power = np.frexp(np.abs(delta).max(axis=(1, 2), initial=0.0))[1]
    huge = w_power + power > MAX_EXPONENT_TO_SQUARE
    w_power, power = np.where(huge, w_power, 0), np.where(huge, power, 0)
    # Both by powers of two: their product, which is the unit, may overflow.
    w, delta = np.ldexp(w, -w_power.reshape(-1, *[1] * (w.ndim - 1))), np.ldexp(delta, -power[:, None, None])
    with np.errstate(over="ignore"):
        unit = np.ldexp(1.0, w_power + power)
    if w.ndim < 3:
        return (delta * (w[:, None, None] if w.ndim == 1 else w[:, None, :])) ** 2, unit
    return delta * ((delta @ w) @ w.mT), unit


def _least(square: Array, counted: Array, unit: Array) -> Array:
    """The least root of squares (Q, K) over rows that count, times units (Q,); inf if that overflows."""
    root = np.sqrt(np.where(counted, np.maximum(square, 0.0), np.inf).min(axis=1))
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(root > 0.0, root * unit, 0.0)


def _normalised(parts: Array) -> Array:
    """Rows (Q, C) divided by their sums; 0 where a sum is not positive."""
    total = parts.sum(axis=1, keepdims=True)
    return np.where(total > 0.0, parts / np.where(total > 0.0, total, 1.0), 0.0)


def _score_parts(head: HeadAttention, square: Array) -> Array:
    """log K(u) (Q, top) as a sum over columns (Q, top, C)."""
    assert head.score is not None
    if isinstance(head.score, Nearest):
        return np.full(square.shape, np.nan)
    u2 = np.maximum(square.sum(axis=2), 0.0)
    name = head.score.kernel.name
    if name == "gaussian":
        return -0.5 * square
    if name == "laplace":
        height = -np.sqrt(u2)
    else:
        inside = head.score.kernel.value(u2)
        height = np.where(inside > 0.0, np.log(np.where(inside > 0.0, inside, 1.0)), np.nan)
    return np.asarray(np.where(u2 > 0.0, height / np.where(u2 > 0.0, u2, 1.0), 0.0)[:, :, None] * square)
