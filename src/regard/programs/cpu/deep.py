"""Scores of queries far from every key, in twice the working precision.

A score of −10⁶ is rounded to 10⁻¹⁰, and that is the error of every weight made from it, although only the differences
between keys count. Here u² is the unevaluated sum of two numbers, and what is stored is the score above the query's
``height``, a sum of two numbers near its largest score: small, and rounded relative to itself.
"""

from __future__ import annotations

import math

import numpy as np

from regard.programs.cpu.compiled import program
from regard.programs.cpu.lanes import widest_lanes


@program
def rises(height, pairs, laplace, number, j0, n, tile):
    """tile[:n] = score − height of one block of queries and the keys from j0 on: −½u², or −u if ``laplace``.

    Returns whether there is a height. None is a type of its own, for which the rest is not even compiled.
    """
    if height is None:
        return False
    if height.size == 0:
        return False
    z, square = np.empty((2, tile.shape[1])), np.empty((2, tile.shape[1]))
    directions = pairs.metric.shape[1]
    for j in range(n):
        square[:] = 0.0
        for r in range(directions):
            z[:] = 0.0
            for f in range(pairs.keys.shape[1]):
                _add_difference(pairs.queries[number, f], pairs.keys[j0 + j, f], pairs.metric[f, r], z)
            _add_square(z, square)
        for f in range(pairs.keys.shape[1] if directions == 0 else 0):
            z[:] = 0.0
            _add_difference(pairs.queries[number, f], pairs.keys[j0 + j, f], pairs.w[f], z)
            _add_square(z, square)
        _rise(square, pairs.stretch, height[number, 0], height[number, 1], laplace, tile[j])
    return True


@program
def _add_difference(queries, key, w, z):
    """z += (q − k)·w; the power of two in w goes first, so that differences of any size are safe."""
    widest_lanes()
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
    widest_lanes()
    for i in range(z.shape[1]):
        head, tail = two_product(z[0, i], z[0, i])
        square[0, i], lost = two_sum(square[0, i], head)
        square[1, i] += lost + (tail + 2 * z[0, i] * z[1, i])


@program
def _rise(square, stretch, height, top, laplace, row):
    """row = −½(u² + 2·height) − top, or (height² − u²)/(u − height) − top; where a square overflowed, far below all."""
    widest_lanes()
    for i in range(row.size):
        u2, tail = two_product(square[0, i], stretch)
        tail += square[1, i] * stretch
        if laplace:
            level, rest = two_product(height[i], height[i])
            above, lost = two_sum(u2, -level)
            rise = -(above + (lost + (tail - rest))) / (math.sqrt(u2) - height[i])
        else:
            above, lost = two_sum(u2, 2 * height[i])
            rise = -(above + (lost + tail)) / 2
        row[i] = rise - top[i] if u2 < 1e300 else -1e300


@program
def two_sum(x, y):
    """x + y as a rounded sum and what was rounded away."""
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


@program
def two_product(x, y):
    """x·y as a rounded product and what was rounded away, for |x|, |y| < 1e300."""
    product = x * y
    a, b = _halves(x)
    c, d = _halves(y)
    return product, ((a * c - product) + a * d + b * c) + b * d


@program
def _halves(x):
    """x as two numbers of half its digits."""
    large = x * 134217729.0
    high = large - (large - x)
    return high, x - high
