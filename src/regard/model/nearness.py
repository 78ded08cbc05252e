"""What made training rows near: each column's part of the distance, each row's part of the attention.

A row's squared distance in bandwidths is a sum over the features: u² = Σ_a u²_a, u²_a = (w_a·δ_a)², or δ_a·(W(Wᵀδ))_a
where w is a matrix (then a feature's part may be negative: it makes up for another's). A feature's share in nearness is
Σ α·u²_a / Σ α·u², its part of a row's score log K(u) is log K(u)·u²_a/u²: for a Gaussian just −½u²_a. A mix of several
attentions has the mean of all these by their shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from regard.bandwidth.adaptive import END
from regard.core.arrays import Array
from regard.core.scores import Nearest, Radial
from regard.model.smoother import Answer, Smoother

# Distances in bandwidths that are not squared as they are, and their power of two.
HUGE, HUGEST = 1e100, 332
# Share of the training rows whose distance to another is usual, and how many times that is far.
USUAL, APART = 0.9, 2.0


class HeadAttention(NamedTuple):
    """Attention of one head of a model at some queries."""

    mix: float
    score: Radial | None  # None where a score is no distance
    w: Array  # (Q,), (Q, d) or (Q, d, r): that of every query
    stretch: Array  # (Q,)  bandwidths in a query's own, where each has its own; 1 otherwise
    query: Array  # (Q, d)
    key: Array  # (K, d)
    weight: Array  # (Q, K)

    @property
    def reach(self) -> float:
        """From how many bandwidths on a row hardly counts: the kernel's end, or where it is down to a hundredth."""
        if self.score is None or isinstance(self.score, Nearest):
            return np.inf
        return END.get(self.score.kernel.name, 1.0)


class Seen(NamedTuple):
    """What some queries attended to; ``top`` rows of each, C columns of X."""

    weight: Array  # (Q, top)
    mass: Array  # (Q,)  attention that these hold
    neighbours: Array  # (Q,)  1/Σα²
    nearness: Array  # (Q, C)  each column's share, adding up to 1, or all 0; NaN where the score is no distance
    square: Array  # (Q, top, C)  each column's part of the squared distance in bandwidths
    score: Array  # (Q, top, C)  each column's part of the score; NaN for rows out of the kernel's reach
    distance: Array  # (Q,)  bandwidths to the nearest row


def attention_of(smoother: Smoother, query: Array) -> tuple[list[HeadAttention], Array]:
    """Attention of every head at queries (Q, d), and which queries are empty."""
    found, empty = [], np.zeros(len(query), bool)
    for number, (head, at, key) in enumerate(smoother.each(query)):
        one = replace(smoother, heads=smoother.heads[number : number + 1])
        weight, alone = one.by_width(at, lambda fixed, some: fixed.head_weights(fixed.heads[0], some))
        is_distance = isinstance(head.score, Radial) and head.transform.by_column
        w = one.by_width(at, _widths).output if is_distance else np.zeros(len(at))
        stretch = np.ones(len(at))
        if head.neighbours is not None:
            stretch = np.linalg.norm(head.w) / np.linalg.norm(w.reshape(len(w), -1), axis=1)
        score = head.score if isinstance(head.score, Radial) and is_distance else None
        found.append(HeadAttention(head.mix, score, w, stretch, at, key.astype(np.float64), weight))
        empty |= alone
    return found, empty


def _widths(smoother: Smoother, query: Array) -> Answer:
    w = smoother.heads[0].w
    return Answer(np.array(np.broadcast_to(w, (len(query), *w.shape))), np.zeros(len(query), bool))


def seen(heads: Sequence[HeadAttention], index: Array, counts: Array, counted: Array, fold: Array) -> Seen:
    """What a mix of heads amounts to; ``index`` (Q, top) are the rows to tell of.

    ``counts`` (K,) are repetitions of a row, ``counted`` (K,) those with a weight; ``fold`` (d, C) adds features up to
    columns. *Cost*: O(Q·K·d) time and memory: call it with a tile of queries.
    """
    weights = np.asarray(sum(head.mix * head.weight for head in heads))
    shape = (len(index), index.shape[1], fold.shape[1])
    nearness, square, score = np.zeros(shape[::2]), np.zeros(shape), np.zeros(shape)
    distance: Any = 0.0
    told = all(head.score is not None for head in heads)
    for head in heads if told else ():
        parts, unit = _squares(head)
        parts = parts @ fold
        total = parts.sum(axis=2)
        nearness += head.mix * _shares(np.einsum("qk,qkc->qc", head.weight, parts))
        size = unit**2 if (unit <= HUGE).all() else np.minimum(unit, HUGE) ** 2
        shown = np.take_along_axis(parts, index[:, :, None], 1) * size[:, None, None]
        square += head.mix * shown
        score += head.mix * _score_parts(head, shown)
        distance = distance + head.mix * _least(total, counted, unit) * head.stretch
    if not told:
        for part in (nearness, square, score):
            part.fill(np.nan)
        distance = np.full(len(index), np.nan)
    top = np.take_along_axis(weights, index, 1)
    with np.errstate(divide="ignore"):
        neighbours = 1.0 / (weights**2 / counts).sum(axis=1)
    return Seen(
        top,
        np.minimum(top.sum(axis=1), 1.0),
        np.where(np.isinf(neighbours), 0.0, neighbours),
        nearness,
        square,
        score,
        np.asarray(distance),
    )


def usual_distance(heads: Sequence[HeadAttention], rows: Array, counted: Array) -> float:
    """Bandwidths within which nine of ten training rows have another; the queries are the training rows ``rows``."""
    total: Any = 0.0
    for head in heads:
        parts, unit = _squares(head)
        others = np.broadcast_to(counted, parts.shape[:2]).copy()
        others[np.arange(len(rows)), rows] = False
        total = total + head.mix * _least(parts.sum(axis=2), others, unit) * head.stretch
    finite = total[np.isfinite(total)]
    return float(np.quantile(finite, USUAL)) if finite.size else 0.0


def is_far(heads: Sequence[HeadAttention], distance: Array, usual: float) -> Array:
    """Queries with every row beyond the kernel's reach, and much farther than training rows are from each other.

    The second condition is for learned bandwidths, which may be so narrow that every row is alone in its reach.
    """
    reach = max(sum(head.mix * head.reach for head in heads), APART * usual)
    return np.asarray(distance > reach)


def _squares(head: HeadAttention) -> tuple[Array, Array]:
    """Parts of u²/unit² (Q, K, d), and a unit for every query (Q,) that keeps squares from overflowing."""
    delta, w = head.key[None] - head.query[:, None], head.w
    # A missing entry is at no distance.
    delta = np.nan_to_num(delta, nan=0.0)
    sharp = np.frexp(np.abs(w).reshape(len(w), -1).max(axis=1, initial=0.0))[1]
    size = np.frexp(np.abs(delta).max(axis=(1, 2), initial=0.0))[1]
    huge = sharp + size > HUGEST
    sharp, size = np.where(huge, sharp, 0), np.where(huge, size, 0)
    # Both by powers of two: their product, which is the unit, may be beyond every number.
    w, delta = np.ldexp(w, -sharp.reshape(-1, *[1] * (w.ndim - 1))), np.ldexp(delta, -size[:, None, None])
    with np.errstate(over="ignore"):
        unit = np.ldexp(1.0, sharp + size)
    if w.ndim < 3:
        return (delta * (w[:, None, None] if w.ndim == 1 else w[:, None, :])) ** 2, unit
    return delta * ((delta @ w) @ w.mT), unit


def _least(square: Array, counted: Array, unit: Array) -> Array:
    """The least root of squares (Q, K) of rows that count, times units (Q,); inf where that is beyond every number."""
    root = np.sqrt(np.where(counted, np.maximum(square, 0.0), np.inf).min(axis=1))
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(root > 0.0, root * unit, 0.0)


def _shares(parts: Array) -> Array:
    """Rows (Q, C) that add up to 1, or 0 where there is nothing to share."""
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
