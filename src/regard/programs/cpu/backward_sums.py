"""The backward pass: recomputes each tile and streams one scalar per pair, the cotangent of its score.

cotangent = weight·((left·x)·(value·v − right·x) + plain·x), x = (1, δ), δ = key − query. ``backward_over_keys`` sums
over keys (gradients of w and the queries). ``backward_over_queries`` sums over queries (gradients of keys and values)
with the roles exchanged: keys along the lanes, queries along the tile, so no two threads write to the same sum. For
radial scores the sums are Σ c·δ and Σ c·δδᵀ with c = cotangent·d log K/d(u²); engines apply the chain rule through w.
"""

from __future__ import annotations

import numpy as np

from regard.programs.cpu.compiled import program
from regard.programs.cpu.lanes import use_widest_vectors
from regard.programs.cpu.pair_scores import ADDITIVE, DOT, GAUSSIAN, multiply_log_rate, squared_distances
from regard.programs.cpu.tile_loops import (
    add_affine,
    add_affine_of_keys,
    backward_hidden,
    expand,
    multiply_by_key,
    reduce,
    reduce_differences,
    reduce_squares,
    times_difference,
)
from regard.programs.cpu.tile_moments import tile_weights


@program
def backward_over_keys(pairs, columns, adjoint, start, stop, tile_keys, selected, peak, grad_w, grad_query):
    """Add the sums over keys for the blocks start … stop.

    columns (K, P); adjoint = (left, value, right, plain): left, right, plain (blocks, 1 or 1 + d, lanes), left and
    plain divided by the mass, right negated, plain with no rows if absent, value (blocks, P, lanes); grad_w (d, d)
    Σ c·δδᵀ (only its diagonal unless w is a matrix), or (1, h) for ADDITIVE; grad_query (blocks, d or h, 2, lanes), or
    (blocks, 0, 2, lanes) if a radial score's is not needed; selected (stop − start, tiles): tiles to include for each
    block, all if empty.
    """
    left, value, right, plain = adjoint
    buffers = np.empty((3, tile_keys, peak.shape[1]), pairs.keys.dtype)
    tile, a, b = buffers[0], buffers[1], buffers[2]
    for j0 in range(0, pairs.keys.shape[0], tile_keys):
        n = min(tile_keys, pairs.keys.shape[0] - j0)
        for block in range(start, stop):
            if selected.size and not selected[block - start, j0 // tile_keys]:
                continue
            tile_weights(pairs, block, j0, n, peak[block], tile)
            a[:n] = 0.0
            add_affine(left[block], pairs.queries, block, pairs.keys, j0, n, a)
            expand(value[block], columns, j0, n, b)
            add_affine(right[block], pairs.queries, block, pairs.keys, j0, n, b)
            _times(a, b, n)
            if plain.shape[1]:
                add_affine(plain[block], pairs.queries, block, pairs.keys, j0, n, a)
            _times(tile, a, n)
            _backward_scores(pairs, block, j0, n, tile, a, grad_w, grad_query[block])


@program
def backward_over_queries(
    pairs, inverse_mass, columns, adjoint, start, stop, tile_keys, selected, peak, grad_key, grad_value
):
    """Add the sums over queries for the blocks start … stop of keys.

    The roles are exchanged in ``pairs``. inverse_mass (Q,); columns (blocks, P, lanes); adjoint = (left, value, right,
    plain): left, right, plain (Q, 1 or 1 + d) for −δ, right negated, plain with no columns if absent, value (Q, P);
    grad_key (blocks, d or h, 2, lanes) for −δ; grad_value (blocks, P, 2, lanes).
    """
    left, value, right, plain = adjoint
    buffers = np.empty((3, tile_keys, peak.shape[1]), pairs.keys.dtype)
    tile, a, b = buffers[0], buffers[1], buffers[2]
    unwanted = np.empty((0, 0))
    for i0 in range(0, pairs.keys.shape[0], tile_keys):
        n = min(tile_keys, pairs.keys.shape[0] - i0)
        for block in range(start, stop):
            if selected.size and not selected[block - start, i0 // tile_keys]:
                continue
            tile_weights(pairs, block, i0, n, peak[block], tile)
            multiply_by_key(tile, n, inverse_mass, i0)
            a[:n] = 0.0
            add_affine_of_keys(left, pairs.queries, block, pairs.keys, i0, n, a)
            expand(columns[block], value, i0, n, b)
            add_affine_of_keys(right, pairs.queries, block, pairs.keys, i0, n, b)
            _times(b, a, n)
            if plain.shape[1]:
                add_affine_of_keys(plain, pairs.queries, block, pairs.keys, i0, n, b)
            _times(a, tile, n)
            reduce(a, n, value, i0, grad_value[block])
            _times(tile, b, n)
            _backward_scores(pairs, block, i0, n, tile, a, unwanted, grad_key[block])


@program
def _backward_scores(pairs, block, j0, n, tile, spare, grad_w, grad_row):
    """Add the contribution of a tile of score cotangents to the gradients of one block."""
    d, lanes = pairs.queries.shape[1], tile.shape[1]
    if pairs.hard:
        return
    if pairs.form == DOT:
        reduce(tile, n, pairs.keys, j0, grad_row)
        return
    if pairs.form == ADDITIVE:
        sums = np.empty((2, 2, lanes))
        for h in range(d):
            sums[:] = 0.0
            backward_hidden(pairs.queries, block, pairs.keys, j0, n, pairs.w, h, pairs.cutoff, pairs.log2e, tile, sums)
            for i in range(lanes):
                grad_row[h, 0, i] += pairs.w[h] * (sums[0, 0, i] + sums[0, 1, i])
                if grad_w.size:
                    grad_w[0, h] += sums[1, 0, i] + sums[1, 1, i]
        return
    size = n * lanes
    if pairs.code != GAUSSIAN:
        squared_distances(pairs, block, j0, n, spare)
    multiply_log_rate(pairs.code, tile.reshape(tile.size)[:size], spare.reshape(spare.size)[:size])
    top = np.int64(0)  # a literal 0 has a type of its own, for which numba would compile the callee again
    if grad_row.size:
        reduce_differences(tile, pairs.queries, block, pairs.keys, j0, n, top, d, top, grad_row)
    if not grad_w.size:
        return
    sums = np.zeros((d, 2, lanes))
    if not pairs.metric.size:
        reduce_squares(tile, pairs.queries, block, pairs.keys, j0, n, sums)
        for f in range(d):
            grad_w[f, f] += sums[f].sum()
        return
    for f in range(d):
        times_difference(tile, pairs.queries, block, pairs.keys, j0, n, f, spare)
        sums[:] = 0.0
        reduce_differences(spare, pairs.queries, block, pairs.keys, j0, n, f, d, top, sums)
        for g in range(f, d):
            grad_w[f, g] += sums[g - f].sum()


@program
def _times(tile, a, n):
    use_widest_vectors()
    x, y = tile.reshape(tile.size), a.reshape(a.size)
    for j in range(n * tile.shape[1]):
        x[j] *= y[j]
