"""Which tiles of keys can matter to a block of queries: upper bounds on scores from the tiles' bounding boxes.

No key of a tile scores higher than the point of its bounding box nearest to the query, plus the tile's ``max_bias``.
A tile is skipped for a query if that bound does not exceed the query's ``threshold``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from regard.programs.cpu.compiled import program
from regard.programs.cpu.pair_scores import GAUSSIAN, LAPLACE

# Consecutive tiles that are tested together first: in kd-tree order they are neighbours.
TILES_PER_GROUP = 8


class TileBounds(NamedTuple):
    """Bounding boxes of tiles of keys, and blocks of queries, in float64; both projected if w is a matrix."""

    code: int  # kernel code, as in ``PairInputs``
    low: Any  # (tiles, d)
    high: Any  # (tiles, d)
    max_bias: Any  # (tiles,) the largest bias (log weight) of a key in the tile
    queries: Any  # (blocks, d, lanes)
    w: Any  # (d,)
    slack: Any  # (d,) bound on the rounding error of a difference
    stretch: float  # factor of u², slightly below the one of the score itself
    largest: float  # upper limit of u²


@program
def select_tiles(bounds, start, threshold, selected):
    """selected[b, t] = 1 if tile t exceeds the threshold of some query of block start + b, else 0.

    threshold (blocks, lanes): −inf selects every tile, +inf none. Groups of consecutive tiles are decided together if
    all of them are below every threshold, or if even the farthest corner of the group exceeds the lowest one.
    """
    d, lanes, tiles = bounds.low.shape[1], threshold.shape[1], selected.shape[1]
    low, high = np.empty(d), np.empty(d)
    first, last, least, most = _group_bounds(bounds)
    for b in range(selected.shape[0]):
        lowest, queries = threshold[b].min(), bounds.queries[start + b].T.copy()  # (lanes, d)
        for f in range(d):
            low[f], high[f] = queries[:, f].min(), queries[:, f].max()
        for g in range(first.shape[0]):
            begin, end = g * TILES_PER_GROUP, min((g + 1) * TILES_PER_GROUP, tiles)
            if _max_score(bounds, _box_distance2(bounds, first[g], last[g], low, high)) + most[g] <= lowest:
                selected[b, begin:end] = 0
                continue
            farthest = 0.0
            for f in range(d):
                farthest += (max(last[g, f] - low[f], high[f] - first[g, f]) * bounds.w[f]) ** 2
            if _max_score(bounds, farthest * bounds.stretch) + least[g] > lowest:
                selected[b, begin:end] = 1
                continue
            for t in range(begin, end):
                selected[b, t] = 0
                # The bounding box of the block decides most tiles.
                if _tile_score(bounds, t, low, high) > lowest:
                    for i in range(lanes):
                        if _tile_score(bounds, t, queries[i], queries[i]) > threshold[b, i]:
                            selected[b, t] = 1
                            break


@program
def nearest_tiles(bounds, start, count, unfinished, visited, selected):
    """selected[b, t] = 1 for the ``count`` unvisited tiles nearest to block start + b if unfinished[b]; else 0."""
    d, tiles = bounds.low.shape[1], selected.shape[1]
    centre = np.empty(d)
    first, last, _, _ = _group_bounds(bounds)
    for b in range(selected.shape[0]):
        selected[b] = 0
        if not unfinished[b]:
            continue
        for f in range(d):
            queries = bounds.queries[start + b, f]
            centre[f] = 0.5 * queries.min() + 0.5 * queries.max()
        for _ in range(count):
            best, shortest = -1, math.inf
            for g in range(first.shape[0]):
                if _box_distance2(bounds, first[g], last[g], centre, centre) >= shortest:
                    continue
                for t in range(g * TILES_PER_GROUP, min((g + 1) * TILES_PER_GROUP, tiles)):
                    if not visited[b, t] and not selected[b, t]:
                        distance = _box_distance2(bounds, bounds.low[t], bounds.high[t], centre, centre)
                        if distance < shortest:
                            best, shortest = t, distance
            if best >= 0:
                selected[b, best] = 1


@program
def _group_bounds(bounds):
    """Bounding boxes of ``TILES_PER_GROUP`` tiles each, low and high (groups, d), and the range of their max_bias."""
    tiles, d = bounds.low.shape
    groups = (tiles + TILES_PER_GROUP - 1) // TILES_PER_GROUP
    first, last, least, most = np.empty((groups, d)), np.empty((groups, d)), np.empty(groups), np.empty(groups)
    for g in range(groups):
        these = slice(g * TILES_PER_GROUP, min((g + 1) * TILES_PER_GROUP, tiles))
        for f in range(d):
            first[g, f], last[g, f] = bounds.low[these, f].min(), bounds.high[these, f].max()
        least[g], most[g] = bounds.max_bias[these].min(), bounds.max_bias[these].max()
    return first, last, least, most


@program
def _box_distance2(bounds, first, last, low, high):
    """u² between two boxes, at most the largest finite number."""
    total = 0.0
    for f in range(low.size):
        gap = max(first[f] - high[f], low[f] - last[f]) - bounds.slack[f]
        if gap > 0.0:
            gap *= bounds.w[f]
            total += gap * gap
    return min(total * bounds.stretch, bounds.largest)


@program
def _tile_score(bounds, t, low, high):
    """Upper bound on the scores between tile t and the queries in a box."""
    return _max_score(bounds, _box_distance2(bounds, bounds.low[t], bounds.high[t], low, high)) + bounds.max_bias[t]


@program
def _max_score(bounds, u2):
    """The largest score possible at u²; for compact kernels 0 inside the support and −inf outside."""
    if bounds.code == GAUSSIAN:
        return -0.5 * u2
    if bounds.code == LAPLACE:
        return -math.sqrt(u2)
    return 0.0 if u2 <= 1.0 else -math.inf
