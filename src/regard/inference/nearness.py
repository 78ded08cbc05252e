"""What made training rows near: each column's part of the distance, each row's part of the attention.

A row's squared distance in bandwidths is a sum over the features: u² = Σ_a u²_a, u²_a = (w_a·δ_a)², or δ_a·(W(Wᵀδ))_a
where w is a matrix (then a feature's part may be negative: it makes up for another's). A feature's share in nearness is
Σ α·u²_a / Σ α·u², its part of a row's score log K(u) is log K(u)·u²_a/u²: for a Gaussian just −½u²_a. A mix of several
attentions has the mean of all these by their shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.bandwidth.adaptive import END
from regard.scores import Nearest, Radial

Array = NDArray[Any]

# Distances in bandwidths that are not squared as they are, and their power of two.
HUGE, HUGEST = 1e100, 332
# Share of the training rows whose distance to another is usual, and how many times that is far.
USUAL, APART = 0.9, 2.0


class Sight(NamedTuple):
    """One attention of a model, as some queries see the training rows."""

    share: float
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
    """What some queries saw; ``top`` rows of each, C columns of X."""

    weight: Array  # (Q, top)
    mass: Array  # (Q,)  attention that these hold
    neighbours: Array  # (Q,)  1/Σα²
    nearness: Array  # (Q, C)  each column's share, adding up to 1, or all 0; NaN where the score is no distance
    square: Array  # (Q, top, C)  each column's part of the squared distance in bandwidths
    score: Array  # (Q, top, C)  each column's part of the score; NaN for rows out of the kernel's reach
    distance: Array  # (Q,)  bandwidths to the nearest row


def seen(sights: Sequence[Sight], index: Array, counts: Array, counted: Array, fold: Array) -> Seen:
    """What a mix of sights amounts to; ``index`` (Q, top) are the rows to tell of.

    ``counts`` (K,) are repetitions of a row, ``counted`` (K,) those with a weight; ``fold`` (d, C) adds features up to
    columns. *Cost*: O(Q·K·d) time and memory: call it with a tile of queries.
    """
    weights = np.asarray(sum(sight.share * sight.weight for sight in sights))
    shape = (len(index), index.shape[1], fold.shape[1])
    nearness, square, score = np.zeros(shape[::2]), np.zeros(shape), np.zeros(shape)
    distance: Any = 0.0
    told = all(sight.score is not None for sight in sights)
    for sight in sights if told else ():
        parts, unit = _squares(sight)
        parts = parts @ fold
        total = parts.sum(axis=2)
        nearness += sight.share * _shares(np.einsum("qk,qkc->qc", sight.weight, parts))
        size = unit**2 if (unit <= HUGE).all() else np.minimum(unit, HUGE) ** 2
        shown = np.take_along_axis(parts, index[:, :, None], 1) * size[:, None, None]
        square += sight.share * shown
        score += sight.share * _score_parts(sight, shown)
        distance = distance + sight.share * _least(total, counted, unit) * sight.stretch
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


def usual_distance(sights: Sequence[Sight], rows: Array, counted: Array) -> float:
    """Bandwidths within which nine of ten training rows have another; the queries are the training rows ``rows``."""
    total: Any = 0.0
    for sight in sights:
        parts, unit = _squares(sight)
        others = np.broadcast_to(counted, parts.shape[:2]).copy()
        others[np.arange(len(rows)), rows] = False
        total = total + sight.share * _least(parts.sum(axis=2), others, unit) * sight.stretch
    finite = total[np.isfinite(total)]
    return float(np.quantile(finite, USUAL)) if finite.size else 0.0


def is_far(sights: Sequence[Sight], distance: Array, usual: float) -> Array:
    """Queries with every row beyond the kernel's reach, and much farther than training rows are from each other.

    The second condition is for learned bandwidths, which may be so narrow that every row is alone in its reach.
    """
    reach = max(sum(sight.share * sight.reach for sight in sights), APART * usual)
    return np.asarray(distance > reach)


def _squares(sight: Sight) -> tuple[Array, Array]:
    """Parts of u²/unit² (Q, K, d), and a unit for every query (Q,) that keeps squares from overflowing."""
    delta, w = sight.key[None] - sight.query[:, None], sight.w
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


def _score_parts(sight: Sight, square: Array) -> Array:
    """log K(u) (Q, top) as a sum over columns (Q, top, C)."""
    assert sight.score is not None
    if isinstance(sight.score, Nearest):
        return np.full(square.shape, np.nan)
    u2 = np.maximum(square.sum(axis=2), 0.0)
    name = sight.score.kernel.name
    if name == "gaussian":
        return -0.5 * square
    if name == "laplace":
        height = -np.sqrt(u2)
    else:
        inside = sight.score.kernel.value(u2)
        height = np.where(inside > 0.0, np.log(np.where(inside > 0.0, inside, 1.0)), np.nan)
    return np.asarray(np.where(u2 > 0.0, height / np.where(u2 > 0.0, u2, 1.0), 0.0)[:, :, None] * square)
