"""The score stage: scores, or weights outright, of one tile of pairs.

Every later stage asks for a tile through ``fill`` and never learns which score it was. Compact kernels need no peak:
``direct`` says that the tile holds K(u) itself; otherwise it holds scores, −inf where nobody may attend.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from regard.programs.cpu.compiled import program
from regard.programs.cpu.deep import rises
from regard.programs.cpu.lanes import lesser, widest_lanes
from regard.programs.cpu.tiles import distances, dots, exclude, hidden, metric_distances, multiply, shift

# What ``Pairs.form`` may be.
RADIAL, METRIC, DOT, ADDITIVE = range(4)
# What ``Pairs.code`` may be: the codes of ``regard.core.kernels``, against which a test checks them.
GAUSSIAN, LAPLACE, BOXCAR, TRIANGULAR, EPANECHNIKOV, BIWEIGHT, TRIWEIGHT, TRICUBE, COSINE = range(9)


class Pairs(NamedTuple):
    """Queries and keys as a program sees them. Optional arrays are empty where there is nothing to say."""

    form: int
    code: int
    direct: bool  # tiles hold K(u), not scores
    hard: bool  # only the nearest keys count; tiles hold −u²
    rows: int  # queries; the last block is filled up with copies
    queries: Any  # (blocks, d, lanes); projected to h features for ADDITIVE
    keys: Any  # (K, d)
    w: Any  # (d,), or (h,) for ADDITIVE
    stretch: Any  # what u² is multiplied by at last: one w for all features goes here, but for its power of two
    metric: Any  # (d, r) for METRIC
    height: Any  # (blocks, 2, lanes) sums of two near the largest score of far queries, see ``deep``; None in float32
    scale: Any  # (blocks, lanes) powers of two that keep the squares of hard rows in range
    key_shift: Any  # (K,) added to scores: log sample weights
    key_scale: Any  # (K,) multiplies direct and hard weights: sample weights
    mask: Any  # (Q, K) uint8, nonzero = may attend
    bias: Any  # (Q, K) added to the scores
    query_labels: Any  # (blocks, lanes)
    key_labels: Any  # (K,)
    largest: Any  # largest finite number of the working precision
    cap: Any  # score gap from which on a weight is zero
    log2e: Any


@program
def fill(pairs, number, j0, n, tile):
    """tile[:n] (n, lanes) = scores, or direct weights, of one block of queries and the keys from j0 on."""
    flat = tile.reshape(tile.size)[: n * tile.shape[1]]
    if pairs.form == DOT:
        dots(pairs.queries, number, pairs.keys, j0, n, pairs.w, tile)
    elif pairs.form == ADDITIVE:
        hidden(pairs.queries, number, pairs.keys, j0, n, pairs.w, pairs.cap, pairs.log2e, tile)
    elif rises(pairs.height, pairs, pairs.code == LAPLACE, number, j0, n, tile):
        pass
    elif pairs.form == RADIAL and pairs.code == GAUSSIAN and not pairs.hard:
        distances(1, pairs.queries, number, pairs.keys, j0, n, pairs.w, None, pairs.stretch, pairs.largest, tile)
    else:
        squares(pairs, number, j0, n, tile)
        if pairs.hard:
            for j in range(flat.size):
                flat[j] = -flat[j]
        else:
            kernel(pairs.code, flat)
            if pairs.code >= BOXCAR and not pairs.direct:
                for j in range(flat.size):
                    flat[j] = math.log(flat[j]) if flat[j] > 0 else -math.inf
    if pairs.key_shift.size:
        shift(tile, n, pairs.key_shift, j0)
    if pairs.direct and pairs.key_scale.size:
        multiply(tile, n, pairs.key_scale, j0)
    if pairs.bias.size:
        _bias(pairs, number, j0, n, tile)
    never = tile.dtype.type(0) if pairs.direct else tile.dtype.type(-math.inf)
    if pairs.mask.size:
        _mask(pairs, number, j0, n, tile, never)
    if pairs.key_labels.size:
        exclude(tile, n, pairs.query_labels, number, pairs.key_labels, j0, never)


@program
def squares(pairs, number, j0, n, tile):
    """tile[:n] = u², at most the largest finite number."""
    queries, keys, stretch, largest = pairs.queries, pairs.keys, pairs.stretch, pairs.largest
    if pairs.form == METRIC:
        if pairs.hard:
            metric_distances(queries, number, keys, j0, n, pairs.metric, pairs.scale, stretch, largest, tile)
        else:
            metric_distances(queries, number, keys, j0, n, pairs.metric, None, stretch, largest, tile)
    elif pairs.hard:
        distances(0, queries, number, keys, j0, n, pairs.w, pairs.scale, stretch, largest, tile)
    else:
        distances(0, queries, number, keys, j0, n, pairs.w, None, stretch, largest, tile)


@program
def _bias(pairs, number, j0, n, tile):
    lanes = tile.shape[1]
    for i in range(lanes):
        row = pairs.bias[min(number * lanes + i, pairs.rows - 1), j0 : j0 + n]
        for j in range(n):
            tile[j, i] += row[j]


@program
def _mask(pairs, number, j0, n, tile, never):
    lanes = tile.shape[1]
    for i in range(lanes):
        row = pairs.mask[min(number * lanes + i, pairs.rows - 1), j0 : j0 + n]
        for j in range(n):
            tile[j, i] = tile[j, i] if row[j] else never


@program
def kernel(code, row):
    """u² → score for the Gaussian and Laplace kernels, u² → K(u) for compact ones, in place."""
    widest_lanes()
    like = row.dtype.type
    zero, one = like(0), like(1)
    if code == GAUSSIAN:
        for j in range(row.size):
            row[j] = like(-0.5) * row[j]
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
            row[j] = quarter_sine(one - lesser(math.sqrt(row[j]), one), like)


@program
def slope(code, g, u2):
    """g *= d log K/d(u²), in place; zero where K is zero or has a kink."""
    widest_lanes()
    like = g.dtype.type
    zero, one, half = like(0), like(1), like(0.5)
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
        power = like(code - EPANECHNIKOV + 1)
        for j in range(g.size):
            g[j] = -power * g[j] / (one - u2[j]) if u2[j] < one else zero
    elif code == TRICUBE:
        for j in range(g.size):
            u = math.sqrt(lesser(u2[j], one))
            g[j] = like(-4.5) * u * g[j] / (one - u * u * u) if u < one else zero
    elif code == COSINE:
        for j in range(g.size):
            u = math.sqrt(lesser(u2[j], one))
            # tan(πu/2)/u, and its limit at 0
            steep = quarter_sine(u, like) / (u * quarter_sine(one - u, like)) if u > zero else like(0.5 * math.pi)
            g[j] = like(-0.25 * math.pi) * g[j] * steep if u < one else zero


@program
def quarter_sine(x, like):
    """sin(πx/2) for x in [0, 1] by interpolation at Chebyshev points: relative error 3e-19 before rounding."""
    y = x * x
    p = like(5.87297574479995e-12)
    p = p * y + like(-6.684416831856085e-10)
    p = p * y + like(5.6921364280986254e-08)
    p = p * y + like(-3.5988430204672576e-06)
    p = p * y + like(0.0001604411847130916)
    p = p * y + like(-0.004681754135304255)
    p = p * y + like(0.07969262624616565)
    p = p * y + like(-0.6459640975062462)
    p = p * y + like(1.5707963267948966)
    return p * x
