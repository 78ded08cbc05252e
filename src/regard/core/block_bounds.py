"""Shelves: keys that stand apart, in a file or on other machines, and what is known of them without reading them.

Each shelf has a box around its keys. From boxes alone follow bounds on every score, so that a query knows beforehand
which shelves cannot show in its answer: together they hold less than ``share`` of the attention that it has for sure.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.core.bounds import Bounds
from regard.core.scores import Nearest, Radial, Score

# What is lost never shows in the mass, whatever tolerance is asked for: half the rounding of a float64.
SHARE = 2.0**-54
# A line leans on whatever spread its rows have, from 1e-14 of their mean square on (``lines``). Rows with a share s
# of the attention then move it by up to √(1e14·s) of what their y differs: here by less than 1e-13.
LINES = 2.0**-133


class Shelves(NamedTuple):
    """Keys, shelf by shelf: how many, between which corners, and how light and heavy.

    Corners in single precision say that scores are computed in it too.
    """

    keys: Array  # (S,) how many count at all
    low: Array  # (S, d)
    high: Array  # (S, d)
    lightest: Array  # (S,) log of the least sample weight; 0 without weights
    heaviest: Array  # (S,)


class Span(NamedTuple):
    """Bounds of u² between queries or boxes of them and shelves, (Q, S) each."""

    least: Array
    most: Array


def in_reach(
    query: Bounds,
    shelves: Shelves,
    score: Score,
    *,
    share: float = SHARE,
    rows_out: int | None = 0,
    nearest: bool = False,
    known: Array | None = None,
) -> Array:
    """Which shelves (Q, S) each query, or each box of queries, has to see.

    Parameters
    ----------
    query : low (Q, d) and high (Q, d); for single queries the same array twice.
    share : how much of its attention a query may lose.
    rows_out : how many keys at most a query may be excluded from; None: any number, so that nothing is sure.
    nearest : whoever has nobody in reach is answered by the nearest key, which must be on a shelf that is seen.
    known : (Q,) u² of a key that each query surely has, where one was looked up: boxes alone know a nearest key only
        to within a box, which says little in many dimensions.

    *Cost*: O(Q·S·d) time, O(Q·S) memory.
    """
    everything = np.broadcast_to(shelves.keys > 0, (len(query.low), len(shelves.keys))).copy()
    if not isinstance(score, Radial) or not everything.any():
        return everything
    least, most = span_of(query, shelves, score.w)
    slack = _slack(shelves)
    sure = np.zeros(len(shelves.keys), bool) if rows_out is None else shelves.keys > rows_out
    closest = most[:, sure].min(axis=1, initial=np.inf)
    if known is not None:
        with np.errstate(over="ignore"):
            known = known * (1.0 + slack)
        closest = np.minimum(closest, known)
    candidates = least <= closest[:, None]
    if isinstance(score, Nearest):
        return np.asarray(everything & candidates)
    if score.kernel.compact:
        return np.asarray(everything & ((least <= 1.0 + 1e3 * slack) | (candidates & nearest)))
    name = score.kernel.name
    with np.errstate(divide="ignore"):
        lowest = _log(name, most[:, sure]) + np.log(shelves.keys[sure] - float(rows_out or 0)) + shelves.lightest[sure]
        highest = _log(name, least) + np.log(shelves.keys) + shelves.heaviest
    height = lowest.max(axis=1, initial=-np.inf)
    if known is not None:
        height = np.maximum(height, _log(name, known) + shelves.lightest[shelves.keys > 0].min())
    # Scores are rounded relative to themselves.
    height = height - 1e-13 * np.abs(np.where(np.isfinite(height), height, 0.0))
    level = height + np.log(share) - np.log(len(shelves.keys))
    return np.asarray(everything & (candidates | (highest > level[:, None])))


def nearest_shelf(query: Array, shelves: Shelves, w: Array) -> Array:
    """The shelf (Q,) on which to look for a near key of each query (Q, d): the nearest box, the smallest of several."""
    least, most = span_of(Bounds(query, query), shelves, w)
    nobody = shelves.keys <= 0
    least[:, nobody], most[:, nobody] = np.inf, np.inf
    return np.asarray(np.where(least <= least.min(axis=1, keepdims=True), most, np.inf).argmin(axis=1))


def span_of(query: Bounds, shelves: Shelves, w: Array) -> Span:
    """Bounds of u² = ‖w∘(q − k)‖², a little wider than true so that rounding cannot matter."""
    sides = [
        (low.astype(np.float64, copy=False), high.astype(np.float64, copy=False))
        for low, high in ((query.low, query.high), (shelves.low, shelves.high))
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
    slack = _slack(shelves)
    return Span(np.nan_to_num(least * (1.0 - slack)), np.nan_to_num(most * (1.0 + slack), nan=np.inf, posinf=np.inf))


def _slack(shelves: Shelves) -> float:
    """How far u² may be rounded, relative to itself: a sum over thousands of features, in the precision of the keys."""
    return 1e-5 if shelves.low.dtype == np.float32 else 1e-12


def _projected(low: Array, high: Array, w: Array) -> tuple[Array, Array]:
    """A box around what a box becomes under a matrix w."""
    with np.errstate(over="ignore", invalid="ignore"):
        centre, half = (0.5 * low + 0.5 * high) @ w, (0.5 * high - 0.5 * low) @ np.abs(w)
        # What rounding of the projection may add.
        half = half + 1e-13 * (np.maximum(np.abs(low), np.abs(high)) @ np.abs(w))
    return centre - half, centre + half


def _log(kernel: str, u2: Array) -> Array:
    """log K of a kernel that ends nowhere."""
    return np.asarray(-0.5 * u2 if kernel == "gaussian" else -np.sqrt(u2))
