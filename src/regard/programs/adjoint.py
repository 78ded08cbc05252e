"""The adjoint stage: recompute each row of pairs and stream one scalar per pair, the cotangent of its score.

cotangent = weight·(left·x)·(value·v − right·x), x = (1, δ), δ = key − query. ``pull_queries`` sums over keys (for w and
the queries), ``pull_keys`` over queries (for the keys and the values), so that no two threads share a sum.
Radial sums are raw, Σ c·δ with c = cotangent · d log K/d(u²); ``engines.tiled`` applies the chain rule through w.
"""

from __future__ import annotations

import math

import numpy as np

from regard.programs.averages import inner, lower, tilted, total
from regard.programs.compiled import program
from regard.programs.lanes import decay, lesser, widest_lanes
from regard.programs.pairs import (
    BOXCAR,
    COSINE,
    DOT,
    EPANECHNIKOV,
    GAUSSIAN,
    LAPLACE,
    METRIC,
    RADIAL,
    TRIANGULAR,
    TRICUBE,
    TRIWEIGHT,
    fill,
    quarter_sine,
    squared,
    squared_metric,
    tanh,
)


@program()
def pull_queries(pairs, columns, left, value, right, start, stop, tile, peak, mass, grad_w, grad_query):
    """Add the raw sums over keys for the queries start … stop.

    columns (P, K); left, right (Q, 1 or 1 + d); value (Q, P); grad_w (d, d) Σ c·δδᵀ (its diagonal unless METRIC), or
    (1, h) for ADDITIVE; grad_query (Q, d or h).
    """
    like = pairs.keys.dtype.type
    n_key = pairs.keys.shape[1]
    row, spare = np.empty(tile, pairs.keys.dtype), np.empty(tile, pairs.keys.dtype)
    a, b = np.empty(tile, pairs.keys.dtype), np.empty(tile, pairs.keys.dtype)
    for i in range(start, stop):
        if mass[i] <= 0.0:
            continue
        share = like(1.0 / mass[i])
        for j0 in range(0, n_key, tile):
            j1 = min(j0 + tile, n_key)
            n = j1 - j0
            fill(pairs, i, j0, j1, row, spare)
            g = row[:n]
            if not pairs.direct:
                lower(pairs, j0, g, like(peak[i]))
            _affine(left[i], pairs.keys, pairs.queries[i], j0, j1, a)
            _affine(right[i], pairs.keys, pairs.queries[i], j0, j1, b)
            for p in range(columns.shape[0]):
                _subtract(b, columns[p, j0:j1], value[i, p])
            _cotangent(g, a, b, share)
            if pairs.hard:
                continue
            if pairs.form == RADIAL or pairs.form == METRIC:
                _times_slope(pairs, i, j0, j1, g, a, spare)
                for f in range(pairs.keys.shape[0]):
                    lean = a[:n]
                    _lean(g, pairs.keys[f, j0:j1], pairs.queries[i, f], lean)
                    grad_query[i, f] += total(lean)
                    for h in range(f if pairs.form == RADIAL else 0, f + 1):
                        grad_w[f, h] += tilted(lean, pairs.keys[h, j0:j1], pairs.queries[i, h])
            elif pairs.form == DOT:
                for f in range(pairs.keys.shape[0]):
                    grad_query[i, f] += inner(g, pairs.keys[f, j0:j1])
            else:
                _pull_additive(pairs, i, j0, j1, g, grad_query[i], grad_w[0])


@program()
def pull_keys(pairs, own, columns, left, value, right, start, stop, tile, peak, mass, grad_key, grad_value):
    """Add the raw sums over queries for the keys start … stop.

    ``pairs`` has the roles exchanged: its rows are the keys, along the tile lie the queries; never hard. own (K,)
    sample weights or empty; columns (K, P); left, right (1 or 1 + d, Q); value (P, Q); grad_key (K, d or h);
    grad_value (K, P).
    """
    n_query = pairs.keys.shape[1]
    row, spare = np.empty(tile, pairs.keys.dtype), np.empty(tile, pairs.keys.dtype)
    a, b = np.empty(tile, pairs.keys.dtype), np.empty(tile, pairs.keys.dtype)
    ignored = np.zeros(max(pairs.w.shape[0], 1))
    for k in range(start, stop):
        weight = own[k] if own.size else row.dtype.type(1)
        for i0 in range(0, n_query, tile):
            i1 = min(i0 + tile, n_query)
            n = i1 - i0
            fill(pairs, k, i0, i1, row, spare)
            g = row[:n]
            _normalise(pairs, weight, g, peak[i0:i1], mass[i0:i1])
            _affine_across(left, pairs.keys, pairs.queries[k], i0, i1, a)
            _affine_across(right, pairs.keys, pairs.queries[k], i0, i1, b)
            _times(g, a)
            for p in range(columns.shape[1]):
                grad_value[k, p] += inner(g, value[p, i0:i1])
                _subtract(b, value[p, i0:i1], columns[k, p])
            _times_minus(g, b)
            if pairs.form == RADIAL or pairs.form == METRIC:
                _times_slope(pairs, k, i0, i1, g, a, spare)
                for f in range(pairs.keys.shape[0]):
                    grad_key[k, f] -= tilted(g, pairs.keys[f, i0:i1], pairs.queries[k, f])
            elif pairs.form == DOT:
                for f in range(pairs.keys.shape[0]):
                    grad_key[k, f] += inner(g, pairs.keys[f, i0:i1])
            else:
                _pull_additive(pairs, k, i0, i1, g, grad_key[k], ignored)


@program()
def _affine(c, keys, query, j0, j1, out):
    """out = c·(1, key − query)."""
    widest_lanes()
    for j in range(j1 - j0):
        out[j] = c[0]
    for f in range(c.size - 1):
        x, q, s = keys[f, j0:j1], query[f], c[f + 1]
        for j in range(j1 - j0):
            out[j] += s * (x[j] - q)


@program()
def _affine_across(c, queries, key, i0, i1, out):
    """out = c·(1, key − query), c (1 or 1 + d, Q) differing from query to query."""
    widest_lanes()
    x = c[0, i0:i1]
    for i in range(i1 - i0):
        out[i] = x[i]
    for f in range(c.shape[0] - 1):
        x, k, s = queries[f, i0:i1], key[f], c[f + 1, i0:i1]
        for i in range(i1 - i0):
            out[i] += s[i] * (k - x[i])


@program()
def _subtract(out, x, s):
    widest_lanes()
    for j in range(x.size):
        out[j] -= x[j] * s


@program()
def _cotangent(g, a, b, share):
    """weight → cotangent, in place; b holds right·x − value·v."""
    widest_lanes()
    for j in range(g.size):
        g[j] = -(g[j] * share) * a[j] * b[j]


@program()
def _times(g, a):
    widest_lanes()
    for j in range(g.size):
        g[j] *= a[j]


@program()
def _times_minus(g, b):
    widest_lanes()
    for j in range(g.size):
        g[j] *= -b[j]


@program()
def _lean(g, key, query, out):
    widest_lanes()
    for j in range(g.size):
        out[j] = g[j] * (key[j] - query)


@program()
def _normalise(pairs, weight, g, peak, mass):
    """Scores of one key against many queries → its weight in each of their averages, in place."""
    zero, like = g.dtype.type(0), g.dtype.type
    shift = like(math.log(weight))
    for i in range(g.size):
        if mass[i] <= 0.0:
            g[i] = zero
        elif pairs.direct:
            g[i] = like(g[i] * weight / mass[i])
        else:
            g[i] = like(decay(like(peak[i]) - shift - g[i], pairs.cap, pairs.log2e) / mass[i])


@program()
def _times_slope(pairs, i, j0, j1, g, u2, spare):
    """g *= d log K/d(u²), zero where K is zero or has a kink."""
    widest_lanes()
    if pairs.form == RADIAL:
        squared(pairs, i, j0, j1, u2)
    else:
        squared_metric(pairs, i, j0, j1, u2, spare)
    like = g.dtype.type
    zero, one, half = like(0), like(1), like(0.5)
    code = pairs.code
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
            slope = quarter_sine(u, like) / (u * quarter_sine(one - u, like)) if u > zero else like(0.5 * math.pi) / one
            g[j] = like(-0.25 * math.pi) * g[j] * slope if u < one else zero


@program()
def _pull_additive(pairs, i, j0, j1, g, grad_row, grad_v):
    """Through w_h·tanh(q_h + k_h): to the projected row, and to w."""
    widest_lanes()
    one = pairs.log2e / pairs.log2e
    for h in range(pairs.keys.shape[0]):
        x, p, v = pairs.keys[h, j0:j1], pairs.queries[i, h], pairs.w[h, 0]
        to_row, to_v = one - one, one - one
        for j in range(g.size):
            t = tanh(p + x[j], pairs.cap, pairs.log2e)
            to_row += g[j] * (one - t * t)
            to_v += g[j] * t
        grad_row[h] += to_row * v
        grad_v[h] += to_v
