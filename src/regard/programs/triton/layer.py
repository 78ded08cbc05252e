"""Problems of a layer's size in one program: tensors are read where they lie, nothing is laid out before.

Gaussian scores of many features come from products about the middle of the first keys, −½‖x‖² + x·y − ½‖y‖². Their
rounding grows with ‖x‖²: a program that met a row beyond ``REACH`` does its work again by differences. Hidden units
take exp 2(a + b) as a product; where that could overflow, the work is done again from the sums.

Here a tile is (fixed, stream). ``sides``, of which one is fixed: pointers to queries and keys; their strides from one
member of the batch, one row and one feature to the next; how many rows there are. ``who``: lens and mask; the strides
of lengths from query to query, of a mask from query to query and from key to key.
"""

# ruff: noqa: SIM102
# What is known when a program is compiled is asked alone.

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.math import ADDITIVE, DOT, ex2, reciprocal

# ½‖x‖² in powers of two up to which products round scores by less than 5e-6.
REACH = tl.constexpr(32.0)
LOG2E = tl.constexpr(1.4426950408889634)
# √log₂e: features multiplied by it and by w have −½‖x − y‖² as their score in powers of two.
UNIT = tl.constexpr(1.2011224087864498)
LN2 = tl.constexpr(0.6931471805599453)
# Numbers of hidden units are multiplied by this: beyond REACH, products of their exponentials could overflow.
FARTHEST = tl.constexpr(1.4426950408889634 * 2.0 * 32.0 / 30.0)
# Keys whose middle the features are seen from.
FIRST = tl.constexpr(64)


@triton.jit
def block_of(base, rows, count, row, feature, WIDTH: tl.constexpr, WIDE: tl.constexpr):
    """(rows, WIDE) in float32, zeros beyond."""
    j = tl.arange(0, WIDE)
    inside = (rows < count)[:, None] & (j < WIDTH)[None, :]
    return tl.load(base + rows[:, None].to(tl.int64) * row + j[None, :] * feature, mask=inside, other=0.0).to(
        tl.float32
    )


@triton.jit
def clean(x):
    """Zeros in place of what is not finite: a weight of 0 does not delete it."""
    return tl.where(x - x == 0.0, x, 0.0)


@triton.jit
def bad_rows(x):
    """Which rows are not finite."""
    return tl.max(tl.where(x - x == 0.0, 0, 1), 1) > 0


@triton.jit
def units_of(w, PER: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr):
    """What features are multiplied by, (WIDE,)."""
    j = tl.arange(0, WIDE)
    return tl.load(w + j * PER, mask=j < WIDTH, other=0.0).to(tl.float32) * UNIT


@triton.jit
def middle_of(base, count, row, feature, WIDTH: tl.constexpr, WIDE: tl.constexpr):
    """The middle of the first keys, (WIDE,)."""
    rows = tl.arange(0, FIRST)
    x = block_of(base, rows, count, row, feature, WIDTH, WIDE)
    return tl.sum(clean(x), 0) / tl.minimum(count, FIRST)


@triton.jit
def features_of(x, middle, units, SCORE: tl.constexpr, APART: tl.constexpr):
    """Features as products take them, and how far a row reaches: ½‖x‖², which its scores begin with."""
    x = clean(x)
    if SCORE == DOT or APART:
        return x, tl.zeros_like(tl.sum(x, 1))
    elif SCORE == ADDITIVE:
        return x, tl.max(tl.abs(x), 1) * FARTHEST
    else:
        x = (x - middle[None, :]) * units[None, :]
        return x, 0.5 * tl.sum(x * x, 1)


@triton.jit
def column_of(base, rows, count, row, feature):
    return tl.load(base + rows.to(tl.int64) * row + feature, mask=rows < count, other=0.0).to(tl.float32)


@triton.jit
def denominator_of(one, other, h, rows, at, counts, strides, APART: tl.constexpr):
    """1 + exp 2(a + b) of hidden unit h for every pair; of units that do not reach far, exp 2a · exp 2b."""
    a = column_of(one, rows, counts[0], strides[1], h * strides[2])
    b = column_of(other, at, counts[1], strides[4], h * strides[5])
    if APART:
        return 1.0 + ex2((a[:, None] + b[None, :]) * (2.0 * LOG2E))
    else:
        return 1.0 + ex2(a * (2.0 * LOG2E))[:, None] * ex2(b * (2.0 * LOG2E))[None, :]


@triton.jit
def shares_of(one, other, h, rows, at, counts, strides, D: tl.constexpr, APART: tl.constexpr):
    """1/(1 + exp 2(a + b)) of hidden units h and h + 1 for every pair: two that share a reciprocal if they may."""
    x = denominator_of(one, other, h, rows, at, counts, strides, APART)
    # Of an odd number the last stands twice; whoever sums leaves it out.
    y = denominator_of(one, other, tl.minimum(h + 1, D - 1), rows, at, counts, strides, APART)
    if APART:
        return reciprocal(x), reciprocal(y)
    else:
        both = reciprocal(x * y)
        return y * both, x * both


@triton.jit
def difference_of(one, other, j, rows, at, counts, strides):
    """Feature j of the stream less that of the fixed side, for every pair."""
    a = column_of(one, rows, counts[0], strides[1], j * strides[2])
    b = column_of(other, at, counts[1], strides[4], j * strides[5])
    return b[None, :] - a[:, None]


@triton.jit
def scores_of(
    one,
    other,
    w,
    x,
    y,
    x_level,
    y_level,
    rows,
    at,
    counts,
    strides,
    SCORE: tl.constexpr,
    PER: tl.constexpr,
    D: tl.constexpr,
    APART: tl.constexpr,
    PRECISION: tl.constexpr,
    BF: tl.constexpr,
    BS: tl.constexpr,
):
    """Scores (fixed, stream) in powers of two."""
    if SCORE == ADDITIVE:
        score = tl.zeros([BF, BS], tl.float32)
        for h in range(0, D, 2):
            r, t = shares_of(one, other, h, rows, at, counts, strides, D, APART)
            first = tl.load(w + h).to(tl.float32) * LOG2E
            second = tl.load(w + h + 1, mask=h + 1 < D, other=0.0).to(tl.float32) * LOG2E
            score += (first + second) - (r * (2.0 * first) + t * (2.0 * second))
        return score
    elif SCORE == DOT:
        return tl.dot(x, tl.trans(y), input_precision=PRECISION) * (tl.load(w).to(tl.float32) * LOG2E)
    elif APART:
        score = tl.zeros([BF, BS], tl.float32)
        for j in range(D):
            u = difference_of(one, other, j, rows, at, counts, strides) * tl.load(w + j * PER).to(tl.float32)
            score += u * u
        return score * (-0.5 * LOG2E)
    else:
        score = tl.dot(x, tl.trans(y), input_precision=PRECISION)
        return tl.minimum(score - x_level[:, None] - y_level[None, :], 0.0)


@triton.jit
def allowed_of(rows, at, counts, who, who_strides, LENS: tl.constexpr, MASK: tl.constexpr, MIRROR: tl.constexpr):
    """Which pairs (fixed, stream) may attend."""
    allowed = (rows < counts[0])[:, None] & (at < counts[1])[None, :]
    if LENS:
        if MIRROR:
            lens = tl.load(who[0] + at * who_strides[0], mask=at < counts[1], other=0).to(tl.int32)
            allowed = allowed & (rows[:, None] < lens[None, :])
        else:
            lens = tl.load(who[0] + rows * who_strides[0], mask=rows < counts[0], other=0).to(tl.int32)
            allowed = allowed & (at[None, :] < lens[:, None])
    if MASK:
        row, key = (who_strides[2], who_strides[1]) if MIRROR else (who_strides[1], who_strides[2])
        where = who[1] + rows[:, None].to(tl.int64) * row + at[None, :].to(tl.int64) * key
        allowed = allowed & (tl.load(where, mask=allowed, other=0) != 0)
    return allowed


@triton.jit
def attend_tiles(
    sides,
    value,
    w,
    who,
    counts,
    strides,
    value_strides,
    who_strides,
    rows,
    stop,
    SCORE: tl.constexpr,
    PER: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    P: tl.constexpr,
    BP: tl.constexpr,
    LENS: tl.constexpr,
    MASK: tl.constexpr,
    APART: tl.constexpr,
    PRECISION: tl.constexpr,
    BF: tl.constexpr,
    BS: tl.constexpr,
):
    """Peak, mass and sums of values of one block of queries, and the farthest ½‖x‖² met."""
    units, middle = tl.zeros([BD], tl.float32), tl.zeros([BD], tl.float32)
    if SCORE != DOT and SCORE != ADDITIVE and not APART:
        units = units_of(w, PER, D, BD)
        middle = middle_of(sides[1], counts[1], strides[4], strides[5], D, BD)
    x = block_of(sides[0], rows, counts[0], strides[1], strides[2], D, BD)
    bad = bad_rows(x)
    x, x_level = features_of(x, middle, units, SCORE, APART)
    far = tl.max(tl.where(rows < counts[0], x_level, 0.0))
    peak = tl.full([BF], float("-inf"), tl.float32)
    mass = tl.zeros([BF], tl.float32)
    total = tl.zeros([BF, BP], tl.float32)
    for start in range(0, stop, BS):
        at = start + tl.arange(0, BS)
        y = block_of(sides[1], at, counts[1], strides[4], strides[5], D, BD)
        v = block_of(value, at, counts[1], value_strides[1], value_strides[2], P, BP)
        worse = bad_rows(y) | bad_rows(v)
        y, y_level = features_of(y, middle, units, SCORE, APART)
        far = tl.maximum(far, tl.max(tl.where(at < counts[1], y_level, 0.0)))
        score = scores_of(
            sides[0], sides[1], w, x, y, x_level, y_level, rows, at, counts, strides,
            SCORE, PER, D, APART, PRECISION, BF, BS,
        )  # fmt: skip
        score = tl.where(bad[:, None] | worse[None, :], float("nan"), score)
        allowed = allowed_of(rows, at, counts, who, who_strides, LENS, MASK, False)
        score = tl.where(allowed, score, float("-inf"))
        top = tl.maximum(peak, tl.max(score, 1))
        level = tl.where(top == float("-inf"), 0.0, top)
        weight = ex2(score - level[:, None])
        shrink = ex2(peak - level)
        mass = mass * shrink + tl.sum(weight, 1)
        total = total * shrink[:, None] + tl.dot(weight, clean(v), input_precision=PRECISION)
        peak = top
    return peak, mass, total, far


@triton.jit
def layer_attend(
    query,
    key,
    value,
    w,
    lens,
    mask,
    output,
    logsumexp,
    state,
    Q,
    K,
    query_batch,
    query_row,
    query_feature,
    key_batch,
    key_row,
    key_feature,
    value_batch,
    value_row,
    value_column,
    lens_batch,
    lens_row,
    mask_batch,
    mask_row,
    mask_key,
    SCORE: tl.constexpr,
    PER: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    P: tl.constexpr,
    BP: tl.constexpr,
    LENS: tl.constexpr,
    MASK: tl.constexpr,
    APART: tl.constexpr,
    PRECISION: tl.constexpr,
    BF: tl.constexpr,
    BS: tl.constexpr,
):
    """output (B, Q, P), logsumexp (B, Q) and state (B, 2, Q): peak in powers of two, and mass."""
    batch = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BF + tl.arange(0, BF)
    strides = (query_batch, query_row, query_feature, key_batch, key_row, key_feature)
    value_strides, who_strides = (value_batch, value_row, value_column), (lens_row, mask_row, mask_key)
    sides = (query + batch * query_batch, key + batch * key_batch)
    value += batch * value_batch
    who = (lens + batch * lens_batch, mask + batch * mask_batch)
    counts = (Q, K)
    stop = K
    if LENS:
        longest = tl.load(who[0] + rows * lens_row, mask=rows < Q, other=0).to(tl.int32)
        stop = tl.minimum(stop, tl.max(longest))
    peak, mass, total, far = attend_tiles(
        sides, value, w, who, counts, strides, value_strides, who_strides, rows, stop,
        SCORE, PER, D, BD, P, BP, LENS, MASK, APART, PRECISION, BF, BS,
    )  # fmt: skip
    if SCORE != DOT and not APART:
        if far > REACH:
            peak, mass, total, far = attend_tiles(
                sides, value, w, who, counts, strides, value_strides, who_strides, rows, stop,
                SCORE, PER, D, BD, P, BP, LENS, MASK, True, PRECISION, BF, BS,
            )  # fmt: skip
    some = mass != 0.0
    safe = tl.where(some, mass, 1.0)
    p = tl.arange(0, BP)
    inside = rows < Q
    where = output + (batch * Q + rows)[:, None] * P + p[None, :]
    tl.store(where, total / safe[:, None], mask=inside[:, None] & (p < P)[None, :])
    log = (peak + tl.log2(safe)) * LN2
    # A maximum passes NaN by; the mass does not.
    log = tl.where(mass == mass, log, float("nan"))
    tl.store(logsumexp + batch * Q + rows, tl.where(some, log, float("-inf")), mask=inside)
    tl.store(state + batch * 2 * Q + rows, tl.where(some, peak, 0.0), mask=inside)
    tl.store(state + batch * 2 * Q + Q + rows, mass, mask=inside)
