"""Scores, or kernel weights, of one tile of pairs.

All other programs obtain a tile through ``fill_scores`` and do not depend on the kind of score. Compact kernels need no
peak: if ``direct``, the tile holds K(u) itself; otherwise scores, −inf where a pair is masked or excluded.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from regard.programs.cpu.compiled import program
from regard.programs.cpu.double_double_scores import scores_above_base
from regard.programs.cpu.lanes import lesser, use_widest_vectors
from regard.programs.cpu.tile_loops import (
    add_by_key,
    additive_scores,
    distances,
    dot_products,
    exclude,
    metric_distances,
    multiply_by_key,
)

# Values of ``PairInputs.form``.
RADIAL, METRIC, DOT, ADDITIVE = range(4)
# Values of ``PairInputs.code``: the kernel codes of ``regard.core.kernels``; a test checks that they agree.
GAUSSIAN, LAPLACE, BOXCAR, TRIANGULAR, EPANECHNIKOV, BIWEIGHT, TRIWEIGHT, TRICUBE, COSINE = range(9)


class PairInputs(NamedTuple):
    """Queries, keys and score as the programs take them; arrays that do not apply are empty."""

    form: int
    code: int
    direct: bool  # tiles hold K(u), not scores
    hard: bool  # hard attention: only the nearest keys count; tiles hold −u²
    rows: int  # number of queries; the last block is padded with copies
    queries: Any  # (blocks, d, lanes); projected to h features for ADDITIVE
    keys: Any  # (K, d)
    w: Any  # (d,), or (h,) for ADDITIVE
    stretch: Any  # final factor of u²: a scalar w goes here, except for its power of two
    metric: Any  # (d, r) for METRIC
    base_score: Any  # (blocks, 2, lanes) see ``double_double_scores``; empty if unused, None in float32
    scale: Any  # (blocks, lanes) powers of two that keep squares in range, for hard attention
    key_bias: Any  # (K,) added to the scores: log sample weights
    key_weight: Any  # (K,) factor of direct and hard weights: sample weights
    mask: Any  # (Q, K) uint8, nonzero = may attend
    bias: Any  # (Q, K) added to the scores
    query_labels: Any  # (blocks, lanes)
    key_labels: Any  # (K,)
    largest: Any  # largest finite number of the working precision
    cutoff: Any  # weights whose score is this far below the peak are zero
    log2e: Any


@program
def fill_scores(pairs, block_index, j0, n, tile):
    """tile[:n] (n, lanes) = scores, or direct weights, of one block of queries and the keys from j0 on."""
    flat = tile.reshape(tile.size)[: n * tile.shape[1]]
    if pairs.form == DOT:
        dot_products(pairs.queries, block_index, pairs.keys, j0, n, pairs.w, tile)
    elif pairs.form == ADDITIVE:
        additive_scores(pairs.queries, block_index, pairs.keys, j0, n, pairs.w, pairs.cutoff, pairs.log2e, tile)
    elif scores_above_base(pairs.base_score, pairs, pairs.code == LAPLACE, block_index, j0, n, tile):
        pass
    elif pairs.form == RADIAL and pairs.code == GAUSSIAN and not pairs.hard:
        distances(1, pairs.queries, block_index, pairs.keys, j0, n, pairs.w, None, pairs.stretch, pairs.largest, tile)
    else:
        squared_distances(pairs, block_index, j0, n, tile)
        if pairs.hard:
            for j in range(flat.size):
                flat[j] = -flat[j]
        else:
            apply_kernel(pairs.code, flat)
            if pairs.code >= BOXCAR and not pairs.direct:
                for j in range(flat.size):
                    flat[j] = math.log(flat[j]) if flat[j] > 0 else -math.inf
    if pairs.key_bias.size:
        add_by_key(tile, n, pairs.key_bias, j0)
    if pairs.direct and pairs.key_weight.size:
        multiply_by_key(tile, n, pairs.key_weight, j0)
    if pairs.bias.size:
        _add_bias(pairs, block_index, j0, n, tile)
    excluded = tile.dtype.type(0) if pairs.direct else tile.dtype.type(-math.inf)
    if pairs.mask.size:
        _apply_mask(pairs, block_index, j0, n, tile, excluded)
    if pairs.key_labels.size:
        exclude(tile, n, pairs.query_labels, block_index, pairs.key_labels, j0, excluded)


@program
def squared_distances(pairs, block_index, j0, n, tile):
    """tile[:n] = u², at most the largest finite number."""
    queries, keys, stretch, largest = pairs.queries, pairs.keys, pairs.stretch, pairs.largest
    if pairs.form == METRIC:
        if pairs.hard:
            metric_distances(queries, block_index, keys, j0, n, pairs.metric, pairs.scale, stretch, largest, tile)
        else:
            metric_distances(queries, block_index, keys, j0, n, pairs.metric, None, stretch, largest, tile)
    elif pairs.hard:
        distances(0, queries, block_index, keys, j0, n, pairs.w, pairs.scale, stretch, largest, tile)
    else:
        distances(0, queries, block_index, keys, j0, n, pairs.w, None, stretch, largest, tile)


@program
def _add_bias(pairs, block_index, j0, n, tile):
    lanes = tile.shape[1]
    for i in range(lanes):
        row = pairs.bias[min(block_index * lanes + i, pairs.rows - 1), j0 : j0 + n]
        for j in range(n):
            tile[j, i] += row[j]


@program
def _apply_mask(pairs, block_index, j0, n, tile, excluded):
    lanes = tile.shape[1]
    for i in range(lanes):
        row = pairs.mask[min(block_index * lanes + i, pairs.rows - 1), j0 : j0 + n]
        for j in range(n):
            tile[j, i] = tile[j, i] if row[j] else excluded


@program
def apply_kernel(code, row):
    """u² → score for the Gaussian and Laplace kernels, u² → K(u) for compact kernels, in place."""
    use_widest_vectors()
    real = row.dtype.type
    zero, one = real(0), real(1)
    if code == GAUSSIAN:
        for j in range(row.size):
            row[j] = real(-0.5) * row[j]
    elif code == LAPLACE:
        for j in range(row.size):
            row[j] = -math.sqrt(row[j])
    elif code == BOXCAR:
        for j in range(row.size):
            row[j] = one if row[j] <= one else zero
    elif code == TRIANGULAR:
        for j in range(row.size):
            row[j] = one - lesser(math.sqrt(row[j]), one)
    elif code == EPANECHNIKOV:
        for j in range(row.size):
            row[j] = one - lesser(row[j], one)
    elif code == BIWEIGHT:
        for j in range(row.size):
            p = one - lesser(row[j], one)
            row[j] = p * p
    elif code == TRIWEIGHT:
        for j in range(row.size):
            p = one - lesser(row[j], one)
            row[j] = p * p * p
    elif code == TRICUBE:
        for j in range(row.size):
            u2 = lesser(row[j], one)
            p = one - u2 * math.sqrt(u2)
            row[j] = p * p * p
    elif code == COSINE:
        for j in range(row.size):
            row[j] = quarter_sine(one - lesser(math.sqrt(row[j]), one), real)


@program
def multiply_log_rate(code, g, u2):
    """g *= d log K/d(u²), in place; zero where K is zero or not differentiable."""
    use_widest_vectors()
    real = g.dtype.type
    zero, one, half = real(0), real(1), real(0.5)
    if code == GAUSSIAN:
        for j in range(g.size):
            g[j] *= -half
    elif code == LAPLACE:
        for j in range(g.size):
            g[j] = -half * g[j] / math.sqrt(u2[j]) if u2[j] > zero else zero
    elif code == BOXCAR:
        for j in range(g.size):
            g[j] = zero
    elif code == TRIANGULAR:
        for j in range(g.size):
            u = math.sqrt(lesser(u2[j], one))
            g[j] = -half * g[j] / (u * (one - u)) if u > zero and u < one else zero
    elif EPANECHNIKOV <= code <= TRIWEIGHT:
        power = real(code - EPANECHNIKOV + 1)
        for j in range(g.size):
            g[j] = -power * g[j] / (one - u2[j]) if u2[j] < one else zero
    elif code == TRICUBE:
        for j in range(g.size):
            u = math.sqrt(lesser(u2[j], one))
            g[j] = real(-4.5) * u * g[j] / (one - u * u * u) if u < one else zero
    elif code == COSINE:
        for j in range(g.size):
            u = math.sqrt(lesser(u2[j], one))
            # tan(πu/2)/u, and its limit at 0
            steep = quarter_sine(u, real) / (u * quarter_sine(one - u, real)) if u > zero else real(0.5 * math.pi)
            g[j] = real(-0.25 * math.pi) * g[j] * steep if u < one else zero


@program
def quarter_sine(x, real):
    """sin(πx/2) for x in [0, 1], interpolated at Chebyshev points: relative error 3e-19 before rounding."""
    y = x * x
    p = real(5.87297574479995e-12)
    p = p * y + real(-6.684416831856085e-10)
    p = p * y + real(5.6921364280986254e-08)
    p = p * y + real(-3.5988430204672576e-06)
    p = p * y + real(0.0001604411847130916)
    p = p * y + real(-0.004681754135304255)
    p = p * y + real(0.07969262624616565)
    p = p * y + real(-0.6459640975062462)
    p = p * y + real(1.5707963267948966)
    return p * x
