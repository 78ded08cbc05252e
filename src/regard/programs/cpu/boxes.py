"""Which tiles can matter to a block of queries: bounds on scores from the boxes that tiles of keys lie in.

No key of a tile scores higher than the point of the tile's box next to the query, plus the tile's ``top``. A tile is
out of reach of a query when that is below the query's ``level``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from regard.programs.cpu.compiled import program
from regard.programs.cpu.pairs import GAUSSIAN, LAPLACE

# Tiles one after another that are looked at together first: in the order of a kd-tree they lie side by side.
TOGETHER = 8


class Boxes(NamedTuple):
    """Tiles of keys as boxes, and blocks of queries, all in float64. For a matrix w both are projected."""

    code: int  # the kernel's, as in ``Pairs``
    low: Any  # (tiles, d)
    high: Any  # (tiles, d)
    top: Any  # (tiles,) largest that is added to a score in the tile: its log weights
    queries: Any  # (blocks, d, lanes)
    w: Any  # (d,)
    slack: Any  # (d,) what rounding may add to a difference
    stretch: float  # u² is multiplied by it at last, a little less than by the score itself
    largest: float  # where u² saturates


@program
def tiles_in_reach(boxes, start, level, near):
    """near[b, t] = 1 where tile t is in reach of some query of block start + b, else 0; level, near as long as wanted.

    level (blocks, lanes): −inf wants everything, +inf nothing. Tiles that stand together are settled together if they
    can: where all are out of reach, or where even the farthest corner counts for the query that has least.
    """
    d, lanes, tiles = boxes.low.shape[1], level.shape[1], near.shape[1]
    low, high = np.empty(d), np.empty(d)
    first, last, least, most = _together(boxes)
    for b in range(near.shape[0]):
        lowest, queries = level[b].min(), boxes.queries[start + b].T.copy()  # (lanes, d)
        for f in range(d):
            low[f], high[f] = queries[:, f].min(), queries[:, f].max()
        for g in range(first.shape[0]):
            begin, end = g * TOGETHER, min((g + 1) * TOGETHER, tiles)
            if _best(boxes, _apart(boxes, first[g], last[g], low, high)) + most[g] <= lowest:
                near[b, begin:end] = 0
                continue
            farthest = 0.0
            for f in range(d):
                farthest += (max(last[g, f] - low[f], high[f] - first[g, f]) * boxes.w[f]) ** 2
            if _best(boxes, farthest * boxes.stretch) + least[g] > lowest:
                near[b, begin:end] = 1
                continue
            for t in range(begin, end):
                near[b, t] = 0
                # The box around all queries first: it settles most tiles.
                if _best(boxes, _apart(boxes, boxes.low[t], boxes.high[t], low, high)) + boxes.top[t] > lowest:
                    for i in range(lanes):
                        here = queries[i]
                        if (
                            _best(boxes, _apart(boxes, boxes.low[t], boxes.high[t], here, here)) + boxes.top[t]
                            > level[b, i]
                        ):
                            near[b, t] = 1
                            break


@program
def nearest_tiles(boxes, start, count, wanted, seen, near):
    """near[b, t] = 1 for the ``count`` tiles nearest to block start + b that were not seen, where wanted[b]; else 0."""
    d, tiles = boxes.low.shape[1], near.shape[1]
    centre = np.empty(d)
    first, last, _, _ = _together(boxes)
    for b in range(near.shape[0]):
        near[b] = 0
        if not wanted[b]:
            continue
        for f in range(d):
            queries = boxes.queries[start + b, f]
            centre[f] = 0.5 * queries.min() + 0.5 * queries.max()
        for _ in range(count):
            best, shortest = -1, math.inf
            for g in range(first.shape[0]):
                if _apart(boxes, first[g], last[g], centre, centre) >= shortest:
                    continue
                for t in range(g * TOGETHER, min((g + 1) * TOGETHER, tiles)):
                    if not seen[b, t] and not near[b, t]:
                        distance = _apart(boxes, boxes.low[t], boxes.high[t], centre, centre)
                        if distance < shortest:
                            best, shortest = t, distance
            if best >= 0:
                near[b, best] = 1


@program
def _together(boxes):
    """Boxes around ``TOGETHER`` tiles each, low and high (groups, d), and the least and the largest of their tops."""
    tiles, d = boxes.low.shape
    groups = (tiles + TOGETHER - 1) // TOGETHER
    first, last, least, most = np.empty((groups, d)), np.empty((groups, d)), np.empty(groups), np.empty(groups)
    for g in range(groups):
        these = slice(g * TOGETHER, min((g + 1) * TOGETHER, tiles))
        for f in range(d):
            first[g, f], last[g, f] = boxes.low[these, f].min(), boxes.high[these, f].max()
        least[g], most[g] = boxes.top[these].min(), boxes.top[these].max()
    return first, last, least, most


@program
def _apart(boxes, first, last, low, high):
    """u² between two boxes, at most the largest number."""
    total = 0.0
    for f in range(low.size):
        gap = max(first[f] - high[f], low[f] - last[f]) - boxes.slack[f]
        if gap > 0.0:
            gap *= boxes.w[f]
            total += gap * gap
    return min(total * boxes.stretch, boxes.largest)


@program
def _best(boxes, u2):
    """The highest score at u²; compact kernels are at most 1 inside and 0 outside."""
    if boxes.code == GAUSSIAN:
        return -0.5 * u2
    if boxes.code == LAPLACE:
        return -math.sqrt(u2)
    return 0.0 if u2 <= 1.0 else -math.inf
