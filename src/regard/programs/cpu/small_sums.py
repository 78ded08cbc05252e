"""Packing, checking and dividing for small Gaussian means: one pass over the inputs, one over the sums."""

from __future__ import annotations

import math

import numpy as np

from regard.programs.cpu.compiled import program


@program
def pack_rows(query, key, value, queries, columns):
    """Fill queries (blocks, d, lanes), padded with copies of the last row, and columns (2, K): ones and the values.

    query (Q, d), key (K, d), value (K, 1). Returns the largest absolute coordinate, the smallest and the largest value;
    all three are NaN if any number is not finite.
    """
    lanes, last = queries.shape[2], query.shape[0] - 1
    size, rest = 0.0, 0.0
    for i in range(queries.shape[0] * lanes):
        row = min(i, last)
        for f in range(query.shape[1]):
            x = query[row, f]
            queries[i // lanes, f, i % lanes] = x
            size = max(size, np.float64(abs(x)))
            # Stays 0 while all numbers are finite, NaN from the first one that is not.
            rest += x - x
    for j in range(key.shape[0]):
        for f in range(key.shape[1]):
            x = key[j, f]
            size = max(size, np.float64(abs(x)))
            rest += x - x
    low = high = np.float64(value[0, 0])
    for j in range(value.shape[0]):
        x = value[j, 0]
        columns[0, j] = 1.0
        columns[1, j] = x
        low, high = min(low, np.float64(x)), max(high, np.float64(x))
        rest += x - x
    return size + rest, low + rest, high + rest


@program
def finish_means(sums, low, high, output, mass):
    """Fill output (Q, 1), clipped to [low, high], and mass (Q,) from sums (blocks, 2, 2, lanes); returns min(mass)."""
    lanes, least = sums.shape[3], math.inf
    for i in range(mass.shape[0]):
        b, lane = i // lanes, i % lanes
        mass[i] = sums[b, 0, 0, lane] + sums[b, 0, 1, lane]
        moment = sums[b, 1, 0, lane] + sums[b, 1, 1, lane]
        output[i, 0] = min(max(moment / mass[i], low), high)
        least = min(least, mass[i])
    return least
