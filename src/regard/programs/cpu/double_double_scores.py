"""Scores of queries far from every key, in double-double arithmetic.

A score of −10⁶ has a rounding error of 10⁻¹⁰, which becomes the relative error of its weight, although only
differences between scores matter. Here u² is a double-double (an unevaluated sum of two floats), and what is stored is
the score minus the query's ``base_score``, a double-double close to its largest score: small, so its rounding error is.
"""

from __future__ import annotations

import math

import numpy as np

from regard.programs.cpu.compiled import program
from regard.programs.cpu.lanes import use_widest_vectors


@program
def scores_above_base(base_score, pairs, laplace, block_index, j0, n, tile):
    """tile[:n] = score − base_score of one block of queries and the keys from j0 on: −½u², or −u if ``laplace``.

    Returns whether base scores are given. None has a type of its own, for which the rest is not compiled.
    """
    if base_score is None:
        return False
    if base_score.size == 0:
        return False
    z, square = np.empty((2, tile.shape[1])), np.empty((2, tile.shape[1]))
    directions = pairs.metric.shape[1]
    for j in range(n):
        square[:] = 0.0
        for r in range(directions):
            z[:] = 0.0
            for f in range(pairs.keys.shape[1]):
                _add_difference(pairs.queries[block_index, f], pairs.keys[j0 + j, f], pairs.metric[f, r], z)
            _add_square(z, square)
        for f in range(pairs.keys.shape[1] if directions == 0 else 0):
            z[:] = 0.0
            _add_difference(pairs.queries[block_index, f], pairs.keys[j0 + j, f], pairs.w[f], z)
            _add_square(z, square)
        _above_base(square, pairs.stretch, base_score[block_index, 0], base_score[block_index, 1], laplace, tile[j])
    return True


@program
def _add_difference(queries, key, w, z):
    """z += (q − k)·w; the power of two of w is applied first, so that no difference overflows."""
    use_widest_vectors()
    mantissa, exponent = math.frexp(w)
    power = math.ldexp(1.0, exponent)
    for i in range(queries.size):
        head, rest = two_sum(queries[i], -key)
        head, tail = two_product(head * power, mantissa)
        z[0, i], lost = two_sum(z[0, i], head)
        z[1, i] += lost + (tail + rest * power * mantissa)


@program
def _add_square(z, square):
    """square += z²."""
    use_widest_vectors()
    for i in range(z.shape[1]):
        head, tail = two_product(z[0, i], z[0, i])
        square[0, i], lost = two_sum(square[0, i], head)
        square[1, i] += lost + (tail + 2 * z[0, i] * z[1, i])


@program
def _above_base(square, stretch, base_score, top, laplace, row):
    """row = −½(u² + 2·base) − top, or (base² − u²)/(u − base) − top; −1e300 where u² overflowed."""
    use_widest_vectors()
    for i in range(row.size):
        u2, tail = two_product(square[0, i], stretch)
        tail += square[1, i] * stretch
        if laplace:
            level, rest = two_product(base_score[i], base_score[i])
            above, lost = two_sum(u2, -level)
            score = -(above + (lost + (tail - rest))) / (math.sqrt(u2) - base_score[i])
        else:
            above, lost = two_sum(u2, 2 * base_score[i])
            score = -(above + (lost + tail)) / 2
        row[i] = score - top[i] if u2 < 1e300 else -1e300


@program
def two_sum(x, y):
    """x + y as a rounded sum and its rounding error."""
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


@program
def two_product(x, y):
    """x·y as a rounded product and its rounding error, for |x|, |y| < 1e300."""
    product = x * y
    a, b = _halves(x)
    c, d = _halves(y)
    return product, ((a * c - product) + a * d + b * c) + b * d


@program
def _halves(x):
    """x as a sum of two floats with half as many digits each."""
    large = x * 134217729.0
    high = large - (large - x)
    return high, x - high
