"""The reduce stage: attention moments of any degree, from rows of pairs. Also the weights themselves.

One pass over the keys with a running peak: when a tile raises it, what was summed so far shrinks by exp(old − new).
Within a tile sums are in the working precision, across tiles in float64.
"""

from __future__ import annotations

import math

import numpy as np

from regard.programs.compiled import program
from regard.programs.lanes import decay, greater, widest_lanes
from regard.programs.pairs import fill


@program()
def average_rows(pairs, columns, degree, start, stop, first, last, tile, peak, mass, moments):
    """Add to peak (Q,), mass (Q,), moments (Q, M) what the keys first … last give to the queries start … stop.

    columns (P, K); the moment axis is laid out as in ``regard.problem``.
    """
    like = pairs.keys.dtype.type
    e, spare = np.empty(tile, pairs.keys.dtype), np.empty(tile, pairs.keys.dtype)
    for j0 in range(first, last, tile):
        j1 = min(j0 + tile, last)
        for i in range(start, stop):
            fill(pairs, i, j0, j1, e, spare)
            row = e[: j1 - j0]
            if pairs.direct:
                peak[i] = 0.0
            else:
                top = highest(row)
                if top > peak[i]:
                    shrink = 0.0 if pairs.hard else math.exp(peak[i] - top)
                    mass[i] *= shrink
                    for p in range(moments.shape[1]):
                        moments[i, p] *= shrink
                    peak[i] = top
                if peak[i] == -math.inf:
                    continue
                lower(pairs, j0, row, like(peak[i]))
            mass[i] += total(row)
            for p in range(columns.shape[0]):
                moments[i, p] += inner(row, columns[p, j0:j1])
            if degree > 0:
                _products(pairs, columns, degree, i, j0, j1, row, spare, moments[i])


@program()
def weight_rows(pairs, start, stop, tile, peak, mass, out):
    """out (Q, K) = attention weights of the queries start … stop, given their peak and mass."""
    like = pairs.keys.dtype.type
    e, spare = np.empty(tile, pairs.keys.dtype), np.empty(tile, pairs.keys.dtype)
    n_key = pairs.keys.shape[1]
    for i in range(start, stop):
        for j0 in range(0, n_key, tile):
            j1 = min(j0 + tile, n_key)
            fill(pairs, i, j0, j1, e, spare)
            row = e[: j1 - j0]
            if not pairs.direct:
                lower(pairs, j0, row, like(peak[i]))
            for j in range(row.size):
                out[i, j0 + j] = row[j] / mass[i] if mass[i] > 0.0 else 0.0


@program()
def highest(row):
    """The largest score of a row."""
    widest_lanes()
    top = row.dtype.type(-math.inf)
    for j in range(row.size):
        top = greater(top, row[j])
    return top


@program()
def lower(pairs, j0, row, peak):
    """Scores → weights relative to the peak, in place: exp(score − peak), or [score = peak] if hard."""
    widest_lanes()
    zero, one = row.dtype.type(0), row.dtype.type(1)
    if pairs.hard:
        for j in range(row.size):
            row[j] = one if row[j] == peak else zero
        if pairs.weight.size:
            for j in range(row.size):
                row[j] *= pairs.weight[j0 + j]
    else:
        for j in range(row.size):
            row[j] = decay(peak - row[j], pairs.cap, pairs.log2e)


@program()
def total(row):
    widest_lanes()
    s = row.dtype.type(0)
    for j in range(row.size):
        s += row[j]
    return s


@program()
def inner(x, y):
    """Σ x·y."""
    widest_lanes()
    s = x.dtype.type(0)
    for j in range(x.size):
        s += x[j] * y[j]
    return s


@program()
def _products(pairs, columns, degree, i, j0, j1, row, spare, moments):
    """Moments with δ = key − query: Σ e·δ_a, Σ e·v_p·δ_a and, at degree 2, Σ e·δ_a·δ_b for a ≤ b."""
    d, n_columns = pairs.keys.shape[0], columns.shape[0]
    lean = spare[: j1 - j0]
    at_values, at_squares = n_columns + d, n_columns + d + n_columns * d
    for a in range(d):
        tilt(row, pairs.keys[a, j0:j1], pairs.queries[i, a], lean)  # e·δ_a
        moments[n_columns + a] += total(lean)
        for p in range(n_columns):
            moments[at_values + p * d + a] += inner(lean, columns[p, j0:j1])
        if degree > 1:
            for b in range(a, d):
                moments[at_squares] += tilted(lean, pairs.keys[b, j0:j1], pairs.queries[i, b])
                at_squares += 1


@program()
def tilt(row, key, query, out):
    """out = row·(key − query)."""
    widest_lanes()
    for j in range(row.size):
        out[j] = row[j] * (key[j] - query)


@program()
def tilted(row, key, query):
    """Σ row·(key − query)."""
    widest_lanes()
    s = row.dtype.type(0)
    for j in range(row.size):
        s += row[j] * (key[j] - query)
    return s
