"""The forward pass for problems of a layer's size, in one program: tensors are read in the layout they come in.

Gaussian scores of many features come from products of features centred by the mean of the first keys,
−½‖x‖² + x·y − ½‖y‖². Their rounding grows with ‖x‖²: a program that met a row beyond ``MAX_PRODUCT_NORM`` does its work
again by differences. Hidden units take exp 2(a + b) as a product; where that could overflow, the work is done again
from the sums.

Here a tile is (fixed, stream).
"""

# ruff: noqa: SIM102
# What is known when a program is compiled is tested in an "if" of its own.

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.program_arguments import LayerMask, Matrix
from regard.programs.triton.triton_math import ADDITIVE, DOT, ex2, reciprocal

# ½‖x‖² in powers of two up to which products round scores by less than 5e-6.
MAX_PRODUCT_NORM = tl.constexpr(32.0)
LOG2E = tl.constexpr(1.4426950408889634)
# √log₂e: features multiplied by it and by w have −½‖x − y‖² as their score in powers of two.
SQRT_LOG2E = tl.constexpr(1.2011224087864498)
LN2 = tl.constexpr(0.6931471805599453)
# Hidden units are multiplied by this: beyond MAX_PRODUCT_NORM, products of their exponentials could overflow.
UNIT_TO_NORM = tl.constexpr(1.4426950408889634 * 2.0 * 32.0 / 30.0)
# Keys whose mean the features are centred by.
CENTRE_KEYS = tl.constexpr(64)


@triton.jit
def load_block(matrix, rows, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """(rows, PADDED) in float32, zeros beyond."""
    j = tl.arange(0, PADDED)
    inside = (rows < matrix.count)[:, None] & (j < WIDTH)[None, :]
    pointers = matrix.base + rows[:, None].to(tl.int64) * matrix.strides.row + j[None, :] * matrix.strides.column
    return tl.load(pointers, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def load_column(matrix, rows, j):
    pointers = matrix.base + rows.to(tl.int64) * matrix.strides.row + j * matrix.strides.column
    return tl.load(pointers, mask=rows < matrix.count, other=0.0).to(tl.float32)


@triton.jit
def finite_or_zero(x):
    """Zeros in place of what is not finite: multiplying by a weight of 0 would not delete it."""
    return tl.where(x - x == 0.0, x, 0.0)


@triton.jit
def non_finite_rows(x):
    """Which rows are not finite."""
    return tl.max(tl.where(x - x == 0.0, 0, 1), 1) > 0


@triton.jit
def feature_scale(w, V: tl.constexpr):
    """What features are multiplied by, (product_features,)."""
    j = tl.arange(0, V.product_features)
    return tl.load(w + j * V.per_feature, mask=j < V.features, other=0.0).to(tl.float32) * SQRT_LOG2E


@triton.jit
def centre_of(keys, V: tl.constexpr):
    """The mean of the first keys, (product_features,)."""
    x = load_block(keys, tl.arange(0, CENTRE_KEYS), V.features, V.product_features)
    return tl.sum(finite_or_zero(x), 0) / tl.minimum(keys.count, CENTRE_KEYS)


@triton.jit
def product_inputs(x, centre, scale, UNFACTORED: tl.constexpr, V: tl.constexpr):
    """Features as products take them, and ½‖x‖² of every row, which its scores begin with."""
    x = finite_or_zero(x)
    if V.score == DOT or UNFACTORED:
        return x, tl.zeros_like(tl.sum(x, 1))
    elif V.score == ADDITIVE:
        return x, tl.max(tl.abs(x), 1) * UNIT_TO_NORM
    else:
        x = (x - centre[None, :]) * scale[None, :]
        return x, 0.5 * tl.sum(x * x, 1)


@triton.jit
def unit_denominator(fixed, stream, h, rows, stream_rows, UNFACTORED: tl.constexpr):
    """1 + exp 2(a + b) of hidden unit h for every pair; of units that cannot overflow, exp 2a · exp 2b."""
    a = load_column(fixed, rows, h)
    b = load_column(stream, stream_rows, h)
    if UNFACTORED:
        return 1.0 + ex2((a[:, None] + b[None, :]) * (2.0 * LOG2E))
    else:
        return 1.0 + ex2(a * (2.0 * LOG2E))[:, None] * ex2(b * (2.0 * LOG2E))[None, :]


@triton.jit
def two_units(fixed, stream, h, rows, stream_rows, D: tl.constexpr, UNFACTORED: tl.constexpr):
    """1/(1 + exp 2(a + b)) of hidden units h and h + 1 for every pair; they share a reciprocal unless UNFACTORED."""
    x = unit_denominator(fixed, stream, h, rows, stream_rows, UNFACTORED)
    # If the number of units is odd, the last is loaded twice; callers leave the second out of their sums.
    y = unit_denominator(fixed, stream, tl.minimum(h + 1, D - 1), rows, stream_rows, UNFACTORED)
    if UNFACTORED:
        return reciprocal(x), reciprocal(y)
    else:
        both = reciprocal(x * y)
        return y * both, x * both


@triton.jit
def pair_difference(fixed, stream, j, rows, stream_rows):
    """Feature j of the stream less that of the fixed side, for every pair."""
    a = load_column(fixed, rows, j)
    b = load_column(stream, stream_rows, j)
    return b[None, :] - a[:, None]


@triton.jit
def layer_scores(
    fixed, stream, w, x, y, x_norm, y_norm, rows, stream_rows, UNFACTORED: tl.constexpr, V: tl.constexpr
):  # fmt: skip
    """Scores (fixed, stream) in powers of two."""
    BF: tl.constexpr = V.BF
    BS: tl.constexpr = V.BS
    if V.score == ADDITIVE:
        score = tl.zeros([BF, BS], tl.float32)
        for h in range(0, V.features, 2):
            r, t = two_units(fixed, stream, h, rows, stream_rows, V.features, UNFACTORED)
            first = tl.load(w + h).to(tl.float32) * LOG2E
            second = tl.load(w + h + 1, mask=h + 1 < V.features, other=0.0).to(tl.float32) * LOG2E
            score += (first + second) - (r * (2.0 * first) + t * (2.0 * second))
        return score
    elif V.score == DOT:
        return tl.dot(x, tl.trans(y), input_precision="tf32x3") * (tl.load(w).to(tl.float32) * LOG2E)
    elif UNFACTORED:
        score = tl.zeros([BF, BS], tl.float32)
        for j in range(V.features):
            difference = pair_difference(fixed, stream, j, rows, stream_rows)
            u = difference * tl.load(w + j * V.per_feature).to(tl.float32)
            score += u * u
        return score * (-0.5 * LOG2E)
    else:
        score = tl.dot(x, tl.trans(y), input_precision="tf32x3")
        return tl.minimum(score - x_norm[:, None] - y_norm[None, :], 0.0)


@triton.jit
def visible_pairs(fixed, stream, hidden, rows, stream_rows, V: tl.constexpr):
    """Which pairs (fixed, stream) may attend."""
    allowed = (rows < fixed.count)[:, None] & (stream_rows < stream.count)[None, :]
    if V.lens:
        if V.mirror:
            inside = stream_rows < stream.count
            lens = tl.load(hidden.lens + stream_rows * hidden.lens_row, mask=inside, other=0).to(tl.int32)
            allowed = allowed & (rows[:, None] < lens[None, :])
        else:
            lens = tl.load(hidden.lens + rows * hidden.lens_row, mask=rows < fixed.count, other=0).to(tl.int32)
            allowed = allowed & (stream_rows[None, :] < lens[:, None])
    if V.mask:
        of_query, of_key = hidden.mask_strides.row, hidden.mask_strides.column
        of_fixed, of_stream = (of_key, of_query) if V.mirror else (of_query, of_key)
        pointers = hidden.mask + rows[:, None].to(tl.int64) * of_fixed + stream_rows[None, :].to(tl.int64) * of_stream
        allowed = allowed & (tl.load(pointers, mask=allowed, other=0) != 0)
    return allowed


@triton.jit
def layer_forward_tiles(query, key, value, w, hidden, rows, stop, UNFACTORED: tl.constexpr, V: tl.constexpr):
    """Peak, mass and sums of values of one block of queries, and the largest ½‖x‖² met."""
    BF: tl.constexpr = V.BF
    BD: tl.constexpr = V.product_features
    BP: tl.constexpr = V.product_columns
    scale, centre = tl.zeros([BD], tl.float32), tl.zeros([BD], tl.float32)
    if V.score != DOT and V.score != ADDITIVE and not UNFACTORED:
        scale = feature_scale(w, V)
        centre = centre_of(key, V)
    x = load_block(query, rows, V.features, BD)
    bad_queries = non_finite_rows(x)
    x, x_norm = product_inputs(x, centre, scale, UNFACTORED, V)
    largest = tl.max(tl.where(rows < query.count, x_norm, 0.0))
    peak = tl.full([BF], float("-inf"), tl.float32)
    mass = tl.zeros([BF], tl.float32)
    total = tl.zeros([BF, BP], tl.float32)
    for start in range(0, stop, V.BS):
        stream_rows = start + tl.arange(0, V.BS)
        y = load_block(key, stream_rows, V.features, BD)
        v = load_block(value, stream_rows, V.columns, BP)
        bad_keys = non_finite_rows(y) | non_finite_rows(v)
        y, y_norm = product_inputs(y, centre, scale, UNFACTORED, V)
        largest = tl.maximum(largest, tl.max(tl.where(stream_rows < key.count, y_norm, 0.0)))
        score = layer_scores(query, key, w, x, y, x_norm, y_norm, rows, stream_rows, UNFACTORED, V)
        score = tl.where(bad_queries[:, None] | bad_keys[None, :], float("nan"), score)
        allowed = visible_pairs(query, key, hidden, rows, stream_rows, V)
        score = tl.where(allowed, score, float("-inf"))
        top = tl.maximum(peak, tl.max(score, 1))
        level = tl.where(top == float("-inf"), 0.0, top)
        weight = ex2(score - level[:, None])
        shrink = ex2(peak - level)
        mass = mass * shrink + tl.sum(weight, 1)
        total = total * shrink[:, None] + tl.dot(weight, finite_or_zero(v), input_precision="tf32x3")
        peak = top
    return peak, mass, total, largest


@triton.jit
def layer_forward(
    query, key, value, w, lens, mask, output, logsumexp, state, queries, keys, query_strides, key_strides,
    value_strides, lens_batch, lens_row, mask_strides, V: tl.constexpr,
):  # fmt: skip
    """output (B, Q, P), logsumexp (B, Q) and state (B, 2, Q): peak in powers of two, and mass."""
    batch = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * V.BF + tl.arange(0, V.BF)
    query = Matrix(query + batch * query_strides.batch, queries, query_strides)
    key = Matrix(key + batch * key_strides.batch, keys, key_strides)
    value = Matrix(value + batch * value_strides.batch, keys, value_strides)
    hidden = LayerMask(lens + batch * lens_batch, mask + batch * mask_strides.batch, lens_row, mask_strides)
    stop = keys
    if V.lens:
        longest = tl.load(hidden.lens + rows * lens_row, mask=rows < queries, other=0).to(tl.int32)
        stop = tl.minimum(stop, tl.max(longest))
    peak, mass, total, largest = layer_forward_tiles(query, key, value, w, hidden, rows, stop, V.unfactored, V)
    if V.score != DOT and not V.unfactored:
        if largest > MAX_PRODUCT_NORM:
            peak, mass, total, largest = layer_forward_tiles(query, key, value, w, hidden, rows, stop, True, V)
    attended = mass != 0.0
    safe = tl.where(attended, mass, 1.0)
    p = tl.arange(0, V.product_columns)
    inside = rows < queries
    pointers = output + (batch * queries + rows)[:, None] * V.columns + p[None, :]
    tl.store(pointers, total / safe[:, None], mask=inside[:, None] & (p < V.columns)[None, :])
    log = (peak + tl.log2(safe)) * LN2
    # A maximum ignores NaN; the mass does not.
    log = tl.where(mass == mass, log, float("nan"))
    tl.store(logsumexp + batch * queries + rows, tl.where(attended, log, float("-inf")), mask=inside)
    tl.store(state + batch * 2 * queries + rows, tl.where(attended, peak, 0.0), mask=inside)
    tl.store(state + batch * 2 * queries + queries + rows, mass, mask=inside)
