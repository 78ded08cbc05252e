"""Attention moments of any degree, and the weights themselves, tile by tile.

One pass over the keys with a running peak: when a tile raises it, the sums so far are multiplied by exp(old − new).
Sums within a tile are in the working precision, sums across tiles in float64 together with their rounding errors.
"""

from __future__ import annotations

import math

import numpy as np

from regard.programs.cpu.compiled import program
from regard.programs.cpu.pair_scores import fill_scores
from regard.programs.cpu.tile_loops import (
    exponentiate,
    multiply_by_key,
    reduce,
    reduce_differences,
    row_maxima,
    ties,
    times_difference,
)


@program
def add_moments(pairs, columns, degree, start, stop, first, last, tile_keys, selected, peak, sums):
    """Add the contribution of keys first … last to peak and sums of the blocks start … stop.

    peak (stop − start, lanes); sums (stop − start, M, 2, lanes), M: the mass, then the moments in the order of
    ``regard.core.problem``; columns (K, 1 + P), the first of ones; selected (stop − start, tiles): tiles to include for
    each block, all if empty.
    """
    tile = np.empty((tile_keys, peak.shape[1]), pairs.keys.dtype)
    spare = np.empty((tile_keys if degree > 0 else 0, peak.shape[1]), pairs.keys.dtype)
    for j0 in range(first, last, tile_keys):
        n = min(tile_keys, last - j0)
        for b in range(start, stop):
            if selected.size and not selected[b - start, (j0 - first) // tile_keys]:
                continue
            fill_scores(pairs, b, j0, n, tile)
            if not pairs.direct:
                raise_peak(pairs, tile, n, peak[b - start], sums[b - start])
                scores_to_weights(pairs, tile, j0, n, peak[b - start])
            reduce(tile, n, columns, j0, sums[b - start])
            if degree > 0:
                _products(pairs, columns, degree, b, j0, n, tile, spare, sums[b - start])


@program
def fill_weights(pairs, start, stop, tile_keys, peak, mass, out):
    """out (Q, K) = attention weights of the blocks start … stop, given their peak and mass (blocks, lanes)."""
    tile = np.empty((tile_keys, peak.shape[1]), pairs.keys.dtype)
    lanes, keys = peak.shape[1], pairs.keys.shape[0]
    for b in range(start, stop):
        for j0 in range(0, keys, tile_keys):
            n = min(tile_keys, keys - j0)
            tile_weights(pairs, b, j0, n, peak[b], tile)
            for i in range(min(lanes, pairs.rows - b * lanes)):
                inverse_mass = 1.0 / mass[b, i] if mass[b, i] > 0.0 else 0.0
                for j in range(n):
                    out[b * lanes + i, j0 + j] = tile[j, i] * inverse_mass


@program
def tile_weights(pairs, b, j0, n, peak, tile):
    """tile[:n] = weights, relative to a peak, of one block of queries and the keys from j0 on."""
    fill_scores(pairs, b, j0, n, tile)
    if not pairs.direct:
        scores_to_weights(pairs, tile, j0, n, peak)


@program
def raise_peak(pairs, tile, n, peak, sums):
    """Raise the peak to the largest scores of the tile, and rescale the sums accordingly."""
    top = peak.copy()
    row_maxima(tile, n, top)
    for i in range(peak.size):
        if top[i] > peak[i]:
            shrink = 0.0 if pairs.hard else math.exp(np.float64(peak[i]) - np.float64(top[i]))
            for m in range(sums.shape[0]):
                sums[m, 0, i] *= shrink
                sums[m, 1, i] *= shrink
            peak[i] = top[i]


@program
def scores_to_weights(pairs, tile, j0, n, peak):
    """Scores → weights relative to the peak, in place."""
    if pairs.hard:
        ties(tile, n, peak)
        if pairs.key_weight.size:
            multiply_by_key(tile, n, pairs.key_weight, j0)
    else:
        exponentiate(tile, n, peak, pairs.cutoff, pairs.log2e)


@program
def _products(pairs, columns, degree, b, j0, n, tile, spare, sums):
    """Moments with δ = key − query: Σ e·δ_a, Σ e·v_p·δ_a and, at degree 2, Σ e·δ_a·δ_b for a ≤ b."""
    d, values = pairs.keys.shape[1], columns.shape[1] - 1
    lanes = tile.shape[1]
    at_values, at_squares = 1 + values + d, 1 + values + d + values * d
    partial = np.empty((1 + values, 2, lanes))
    for a in range(d):
        times_difference(tile, pairs.queries, b, pairs.keys, j0, n, a, spare)  # e·δ_a
        partial[:] = 0.0
        reduce(spare, n, columns, j0, partial)
        for i in range(lanes):
            sums[1 + values + a, 0, i] += partial[0, 0, i] + partial[0, 1, i]
        for p in range(values):
            for i in range(lanes):
                sums[at_values + p * d + a, 0, i] += partial[1 + p, 0, i] + partial[1 + p, 1, i]
        if degree > 1:
            reduce_differences(spare, pairs.queries, b, pairs.keys, j0, n, a, d, at_squares, sums)
            at_squares += d - a
