"""The score stage: scores, or weights outright, of one query against one tile of keys.

Every later stage asks for a row of pairs through ``fill`` and never learns which score it was. Compact kernels need
no peak: ``direct`` says that the row holds K(u) itself; otherwise it holds scores, −inf where nobody may attend.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from regard.programs.compiled import program
from regard.programs.lanes import decay, lesser, widest_lanes

# What ``Pairs.form`` may be.
RADIAL, METRIC, DOT, ADDITIVE = range(4)
# ``Pairs.code`` is the kernel's row number in ``regard.scores``.
GAUSSIAN, LAPLACE, BOXCAR, TRIANGULAR, EPANECHNIKOV, BIWEIGHT, TRIWEIGHT, TRICUBE, COSINE = range(9)


class Pairs(NamedTuple):
    """Queries and keys as a program sees them. Optional arrays are empty where there is nothing to say."""

    form: int
    code: int
    direct: bool  # rows hold K(u), not scores
    hard: bool  # only the nearest keys count; rows hold −u²
    queries: Any  # (Q, d); projected to (Q, h) for ADDITIVE
    keys: Any  # (d, K)
    w: Any  # (d, 1), (d, r) for METRIC, (h, 1) for ADDITIVE, (1, 1) for DOT
    row_scale: Any  # (Q,) power of two that keeps squares of a hard row in range
    weight: Any  # (K,) sample weights, at most 1
    log_weight: Any  # (K,)
    mask: Any  # (Q, K) uint8, nonzero = may attend
    bias: Any  # (Q, K) added to the scores
    query_labels: Any  # (Q,)
    key_labels: Any  # (K,)
    largest: Any  # largest finite number of the working precision
    cap: Any  # score gap from which on a weight is zero
    log2e: Any


@program()
def fill(pairs, i, j0, j1, row, spare):
    """row[: j1 − j0] = scores (or direct weights) of query i and the keys j0 … j1, with everything folded in."""
    n = j1 - j0
    if pairs.form == RADIAL:
        squared(pairs, i, j0, j1, row)
    elif pairs.form == METRIC:
        squared_metric(pairs, i, j0, j1, row, spare)
    elif pairs.form == DOT:
        dot(pairs, i, j0, j1, row)
    else:
        additive(pairs, i, j0, j1, row)
    if pairs.form == RADIAL or pairs.form == METRIC:
        if pairs.hard:
            for j in range(n):
                row[j] = -row[j]
        else:
            kernel(pairs.code, row[:n])
            if pairs.code >= BOXCAR and not pairs.direct:
                for j in range(n):
                    row[j] = math.log(row[j]) if row[j] > 0 else -math.inf
    restrict(pairs, i, j0, j1, row)


@program()
def clear(row, n):
    for j in range(n):
        row[j] = row.dtype.type(0)


@program(fastmath=frozenset())
def squared(pairs, i, j0, j1, row):
    """u² of query i and a tile of keys, at most the largest finite number.

    Not contracted to fused multiply-adds: a² + b² must equal b² + a², so that ties stay ties.
    """
    widest_lanes()
    keys, n = pairs.keys, j1 - j0
    d = keys.shape[0]
    scale = pairs.row_scale[i] if pairs.hard else pairs.w.dtype.type(1)
    f = 0
    clear(row, n)
    while f + 2 <= d:
        x, y = keys[f, j0:j1], keys[f + 1, j0:j1]
        p, q = pairs.queries[i, f], pairs.queries[i, f + 1]
        u, v = pairs.w[f, 0] * scale, pairs.w[f + 1, 0] * scale
        for j in range(n):
            a, b = (p - x[j]) * u, (q - y[j]) * v
            row[j] += a * a + b * b
        f += 2
    if f < d:
        x = keys[f, j0:j1]
        p, u = pairs.queries[i, f], pairs.w[f, 0] * scale
        for j in range(n):
            a = (p - x[j]) * u
            row[j] += a * a
    for j in range(n):
        row[j] = lesser(row[j], pairs.largest)


@program()
def squared_metric(pairs, i, j0, j1, row, spare):
    """u² = ‖(q − k) @ w‖² of query i and a tile of keys, differences first."""
    widest_lanes()
    keys, w, n = pairs.keys, pairs.w, j1 - j0
    scale = pairs.row_scale[i] if pairs.hard else w.dtype.type(1)
    clear(row, n)
    for r in range(w.shape[1]):
        clear(spare, n)
        for f in range(w.shape[0]):
            x, p, u = keys[f, j0:j1], pairs.queries[i, f], w[f, r] * scale
            for j in range(n):
                spare[j] += (p - x[j]) * u
        for j in range(n):
            row[j] += spare[j] * spare[j]
    for j in range(n):
        row[j] = lesser(row[j], pairs.largest)


@program()
def dot(pairs, i, j0, j1, row):
    """w·q·k of query i and a tile of keys (w already holds 1/√d)."""
    widest_lanes()
    n = j1 - j0
    clear(row, n)
    for f in range(pairs.keys.shape[0]):
        x, p = pairs.keys[f, j0:j1], pairs.queries[i, f] * pairs.w[0, 0]
        for j in range(n):
            row[j] += p * x[j]


@program()
def additive(pairs, i, j0, j1, row):
    """Σ_h w_h·tanh(q_h + k_h) of projected query i and a tile of projected keys."""
    widest_lanes()
    n = j1 - j0
    clear(row, n)
    for h in range(pairs.keys.shape[0]):
        x, p, v = pairs.keys[h, j0:j1], pairs.queries[i, h], pairs.w[h, 0]
        for j in range(n):
            row[j] += v * tanh(p + x[j], pairs.cap, pairs.log2e)


@program()
def tanh(x, cap, log2e):
    """(1 − e)/(1 + e) with e = exp(−2|x|), and the sign of x."""
    e = decay(abs(x) + abs(x), cap, log2e)
    one = log2e / log2e
    return math.copysign((one - e) / (one + e), x)


@program()
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


@program()
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


@program()
def restrict(pairs, i, j0, j1, row):
    """Fold in sample weights, additive mask, boolean mask and exclusion by label."""
    widest_lanes()
    n = j1 - j0
    never = row.dtype.type(0) if pairs.direct else row.dtype.type(-math.inf)
    if pairs.weight.size and not pairs.hard:
        s = pairs.weight[j0:j1] if pairs.direct else pairs.log_weight[j0:j1]
        if pairs.direct:
            for j in range(n):
                row[j] *= s[j]
        else:
            for j in range(n):
                row[j] += s[j]
    if pairs.bias.size:
        s = pairs.bias[i, j0:j1]
        for j in range(n):
            row[j] += s[j]
    if pairs.mask.size:
        m = pairs.mask[i, j0:j1]
        for j in range(n):
            row[j] = row[j] if m[j] else never
    if pairs.key_labels.size:
        k, own = pairs.key_labels[j0:j1], pairs.query_labels[i]
        for j in range(n):
            row[j] = never if k[j] == own else row[j]
