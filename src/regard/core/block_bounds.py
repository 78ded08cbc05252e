"""Bounding boxes of blocks of keys that lie in a file or on other machines.

Bounds on the score between a query and every key of a block follow from the block's bounding box, without reading the
keys. A query needs only the blocks in reach: the others together hold less than ``share`` of its attention mass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.core.bounds import Bounds
from regard.core.scores import Nearest, Radial, Score

# Share of its attention mass that a query may lose whatever its tolerance: half the rounding error of a float64.
NEGLIGIBLE_MASS = 2.0**-54
# The same for local lines. Their slopes use any variance above 1e-14 of the mean square (``local_fits``), so rows with
# a share s of the attention move a line by up to √(1e14·s) of the range of y: here by less than 1e-13.
NEGLIGIBLE_MASS_OF_LINES = 2.0**-133


class BlockBounds(NamedTuple):
    """Number of keys, bounding box and bounds of the sample weights of every block.

    Boxes in single precision say that scores are computed in single precision too.
    """

    keys: Array  # (S,) number of keys with a sample weight above zero
    low: Array  # (S, d)
    high: Array  # (S, d)
    lightest: Array  # (S,) log of the smallest sample weight; 0 without weights
    heaviest: Array  # (S,) log of the largest


class DistanceBounds(NamedTuple):
    """Bounds of u² between queries, or boxes of queries, and blocks of keys, (Q, S) each."""

    least: Array
    most: Array


def blocks_in_reach(
    query: Bounds,
    blocks: BlockBounds,
    score: Score,
    *,
    share: float = NEGLIGIBLE_MASS,
    excluded: int | None = 0,
    nearest: bool = False,
    known: Array | None = None,
) -> Array:
    """Which blocks (Q, S), boolean, each query or each box of queries has to read.

    Parameters
    ----------
    query : low (Q, d) and high (Q, d); for single queries the same array twice.
    share : share of its attention mass that a query may lose.
    excluded : largest number of keys that labels exclude from a query; None if there is no limit.
    nearest : an empty row is answered by its nearest key, which must be in one of the blocks.
    known : (Q,) u² of one key that each query may attend to, if known. Boxes alone bound the distance to the nearest
        key only to within a box, which is loose in many dimensions.

    *Cost*: O(Q·S·d) time, O(Q·S) memory.
    """
    any_keys = np.broadcast_to(blocks.keys > 0, (len(query.low), len(blocks.keys))).copy()
    if not isinstance(score, Radial) or not any_keys.any():
        return any_keys
    least, most = distance_bounds(query, blocks, score.w)
    slack = _slack(blocks)
    certain = np.zeros(len(blocks.keys), bool) if excluded is None else blocks.keys > excluded
    closest = most[:, certain].min(axis=1, initial=np.inf)
    if known is not None:
        with np.errstate(over="ignore"):
            known = known * (1.0 + slack)
        closest = np.minimum(closest, known)
    candidates = least <= closest[:, None]
    if isinstance(score, Nearest):
        return np.asarray(any_keys & candidates)
    if score.kernel.compact:
        return np.asarray(any_keys & ((least <= 1.0 + 1e3 * slack) | (candidates & nearest)))
    name = score.kernel.name
    with np.errstate(divide="ignore"):
        lowest = (
            _log(name, most[:, certain])
            + np.log(blocks.keys[certain] - float(excluded or 0))
            + blocks.lightest[certain]
        )
        highest = _log(name, least) + np.log(blocks.keys) + blocks.heaviest
    height = lowest.max(axis=1, initial=-np.inf)
    if known is not None:
        height = np.maximum(height, _log(name, known) + blocks.lightest[blocks.keys > 0].min())
    # The rounding error of a score is relative to the score.
    height = height - 1e-13 * np.abs(np.where(np.isfinite(height), height, 0.0))
    level = height + np.log(share) - np.log(len(blocks.keys))
    return np.asarray(any_keys & (candidates | (highest > level[:, None])))


def nearest_block(query: Array, blocks: BlockBounds, w: Array) -> Array:
    """The block (Q,) whose box is nearest to each query (Q, d); of several, the smallest box."""
    least, most = distance_bounds(Bounds(query, query), blocks, w)
    empty = blocks.keys <= 0
    least[:, empty], most[:, empty] = np.inf, np.inf
    return np.asarray(np.where(least <= least.min(axis=1, keepdims=True), most, np.inf).argmin(axis=1))


def distance_bounds(query: Bounds, blocks: BlockBounds, w: Array) -> DistanceBounds:
    """Bounds of u² = ‖w∘(q − k)‖², widened by what rounding may change."""
    sides = [
        (low.astype(np.float64, copy=False), high.astype(np.float64, copy=False))
        for low, high in ((query.low, query.high), (blocks.low, blocks.high))
    ]
    if w.ndim == 2:
        sides = [_projected(low, high, w) for low, high in sides]
        w = np.ones(w.shape[1])
    (q_low, q_high), (k_low, k_high) = sides
    w = np.broadcast_to(w, q_low.shape[1])
    least = np.zeros((len(q_low), len(k_low)))
    most = np.zeros_like(least)
    with np.errstate(over="ignore", invalid="ignore"):
        for f in np.flatnonzero(w):
            right, left = k_low[:, f] - q_high[:, f, None], q_low[:, f, None] - k_high[:, f]
            least += (w[f] * np.maximum(np.maximum(right, left), 0.0)) ** 2
            most += (w[f] * np.maximum(k_high[:, f] - q_low[:, f, None], q_high[:, f, None] - k_low[:, f])) ** 2
    slack = _slack(blocks)
    return DistanceBounds(
        np.nan_to_num(least * (1.0 - slack)), np.nan_to_num(most * (1.0 + slack), nan=np.inf, posinf=np.inf)
    )


def _slack(blocks: BlockBounds) -> float:
    """Relative rounding error of u², a sum over thousands of features in the precision of the keys."""
    return 1e-5 if blocks.low.dtype == np.float32 else 1e-12


def _projected(low: Array, high: Array, w: Array) -> tuple[Array, Array]:
    """The bounding box of a box projected by a matrix w."""
    with np.errstate(over="ignore", invalid="ignore"):
        centre, half = (0.5 * low + 0.5 * high) @ w, (0.5 * high - 0.5 * low) @ np.abs(w)
        # Rounding error of the projection.
        half = half + 1e-13 * (np.maximum(np.abs(low), np.abs(high)) @ np.abs(w))
    return centre - half, centre + half


def _log(kernel: str, u2: Array) -> Array:
    """log K of a kernel that is not compact."""
    return np.asarray(-0.5 * u2 if kernel == "gaussian" else -np.sqrt(u2))
