"""The adjoint pass of ``triton_layer``: gradients of queries or, mirrored, of keys and values, in one program each."""

# ruff: noqa: SIM102
# What is known when a program is compiled is asked alone.

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.layer import (
    LN2,
    REACH,
    allowed_of,
    block_of,
    clean,
    difference_of,
    features_of,
    middle_of,
    scores_of,
    shares_of,
    units_of,
)
from regard.programs.triton.math import ADDITIVE, DOT, ex2


@triton.jit
def pull_tiles(
    sides,
    columns,
    level,
    state,
    w,
    who,
    counts,
    strides,
    column_strides,
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
    MIRROR: tl.constexpr,
    WANT_W: tl.constexpr,
    APART: tl.constexpr,
    PRECISION: tl.constexpr,
    BF: tl.constexpr,
    BS: tl.constexpr,
):
    """Sums over the stream for one block, and the farthest ½‖x‖² met.

    Gradients of the fixed side (BF, BD); every feature's part of those of w (BF, BD); Σ weight·g (BF, BP). ``slope`` is
    the cotangent of a score, r = 1/(1 + exp 2(a + b)) a hidden unit.
    """
    NEAR: tl.constexpr = SCORE != DOT and SCORE != ADDITIVE and not APART
    j = tl.arange(0, BD)
    units, middle = tl.zeros([BD], tl.float32), tl.zeros([BD], tl.float32)
    if NEAR:
        units = units_of(w, PER, D, BD)
        if MIRROR:
            middle = middle_of(sides[0], counts[0], strides[1], strides[2], D, BD)
        else:
            middle = middle_of(sides[1], counts[1], strides[4], strides[5], D, BD)
    x = block_of(sides[0], rows, counts[0], strides[1], strides[2], D, BD)
    x, x_level = features_of(x, middle, units, SCORE, APART)
    f = clean(block_of(columns[0], rows, counts[0], column_strides[0], column_strides[1], P, BP))
    if not MIRROR:
        height, peak, share = query_facts(level, state, rows, counts[0])
    far = tl.max(tl.where(rows < counts[0], x_level, 0.0))
    sums = tl.zeros([BF, BD], tl.float32)
    sums_w = tl.zeros([BF, BD if WANT_W else 1], tl.float32)
    slopes = tl.zeros([BF], tl.float32)
    total = tl.zeros([BF, BP if MIRROR else 1], tl.float32)
    for start in range(0, stop, BS):
        at = start + tl.arange(0, BS)
        y = block_of(sides[1], at, counts[1], strides[4], strides[5], D, BD)
        y, y_level = features_of(y, middle, units, SCORE, APART)
        s = clean(block_of(columns[1], at, counts[1], column_strides[2], column_strides[3], P, BP))
        far = tl.maximum(far, tl.max(tl.where(at < counts[1], y_level, 0.0)))
        score = scores_of(
            sides[0], sides[1], w, x, y, x_level, y_level, rows, at, counts, strides,
            SCORE, PER, D, APART, PRECISION, BF, BS,
        )  # fmt: skip
        allowed = allowed_of(rows, at, counts, who, who_strides, LENS, MASK, MIRROR)
        turn = tl.dot(f, tl.trans(s), input_precision=PRECISION)
        if MIRROR:
            heights, peaks, shares = query_facts(level, state, at, counts[1])
            weight = tl.where(allowed, ex2(score - peaks[None, :]) * shares[None, :], 0.0)
            slope = weight * (turn - heights[None, :])
            total += tl.dot(weight, s, input_precision=PRECISION)
        else:
            weight = tl.where(allowed, ex2(score - peak[:, None]) * share[:, None], 0.0)
            slope = weight * (turn - height[:, None])
        if SCORE == ADDITIVE:
            for h in range(0, D, 2):
                r, t = shares_of(sides[0], sides[1], h, rows, at, counts, strides, D, APART)
                # What a mask hides may be NaN.
                r, t = tl.where(allowed, r, 0.0), tl.where(allowed & (h + 1 < D), t, 0.0)
                here, there = tl.sum(slope * (r - r * r), 1), tl.sum(slope * (t - t * t), 1)
                sums += inserted(here, there, h, j)
                if WANT_W:
                    here, there = tl.sum(slope * (1.0 - 2.0 * r), 1), tl.sum(slope * (1.0 - 2.0 * t), 1)
                    sums_w += inserted(here, there, h, j)
        elif NEAR or SCORE == DOT:
            sums += tl.dot(slope, y, input_precision=PRECISION)
            slopes += tl.sum(slope, 1)
            if WANT_W and NEAR:
                sums_w += tl.dot(slope, y * y, input_precision=PRECISION)
        else:
            for column in range(D):
                difference = difference_of(sides[0], sides[1], column, rows, at, counts, strides)
                difference = tl.where(allowed, difference, 0.0)
                here = tl.sum(slope * difference, 1)
                sums += tl.where((j == column)[None, :], here[:, None], 0.0)
                if WANT_W:
                    here = tl.sum(slope * difference * difference, 1)
                    sums_w += tl.where((j == column)[None, :], here[:, None], 0.0)
    # What a score moves by with its features, and with w.
    rate = tl.load(w + j * PER, mask=j < D, other=0.0).to(tl.float32)
    if SCORE == ADDITIVE:
        rate = rate * 4.0
    elif SCORE == DOT:
        if WANT_W:
            sums_w = sums * x
    elif NEAR:
        if WANT_W:
            turned = tl.where(rate != 0.0, -LN2 / tl.where(rate != 0.0, rate, 1.0), 0.0)
            sums_w = (sums_w - x * (2.0 * sums - x * slopes[:, None])) * turned[None, :]
        sums -= x * slopes[:, None]
        rate = units * LN2
    else:
        if WANT_W:
            sums_w = sums_w * (0.0 - rate)[None, :]
        rate = rate * rate
    return sums * rate[None, :], sums_w, total, far


@triton.jit
def inserted(here, there, h, j):
    """(rows, features) with two columns, h and the next, and zeros elsewhere."""
    return tl.where((j == h)[None, :], here[:, None], tl.where((j == h + 1)[None, :], there[:, None], 0.0))


@triton.jit
def query_facts(level, state, rows, queries):
    """Level, peak, and one over the mass, of queries.

    Whoever attended to NaN or infinity has a mass of NaN, and whoever has them for a cotangent such a level: one over
    the mass is NaN then, and so are the weights of all that were attended to, and of nobody else.
    """
    inside = rows < queries
    mass = tl.load(state + queries + rows, mask=inside, other=0.0)
    height = tl.load(level + rows, mask=inside, other=0.0)
    known = height - height == 0.0
    share = tl.where(known, 1.0 / tl.where(mass == 0.0, 1.0, mass), float("nan"))
    return tl.where(known, height, 0.0), tl.load(state + rows, mask=inside, other=0.0), share


@triton.jit
def layer_pull(
    fixed,
    stream,
    fixed_columns,
    stream_columns,
    level,
    state,
    w,
    lens,
    mask,
    grad,
    grad_w,
    grad_columns,
    N,
    M,
    fixed_batch,
    fixed_row,
    fixed_feature,
    stream_batch,
    stream_row,
    stream_feature,
    fixed_columns_batch,
    fixed_columns_row,
    fixed_column,
    stream_columns_batch,
    stream_columns_row,
    stream_column,
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
    MIRROR: tl.constexpr,
    WANT_W: tl.constexpr,
    APART: tl.constexpr,
    PRECISION: tl.constexpr,
    BF: tl.constexpr,
    BS: tl.constexpr,
):
    """grad (B, N, D) of the fixed side; mirrored also grad_columns (B, N, P); grad_w (blocks, B, D), to be summed up.

    Columns are the cotangents of the output for queries and the values for keys; ``level`` (B, Q) is Σ cotangent·output
    less the cotangent of the logsumexp.
    """
    block, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    rows = block * BF + tl.arange(0, BF)
    queries = M if MIRROR else N
    strides = (fixed_batch, fixed_row, fixed_feature, stream_batch, stream_row, stream_feature)
    column_strides = (fixed_columns_row, fixed_column, stream_columns_row, stream_column)
    who_strides = (lens_row, mask_row, mask_key)
    sides = (fixed + batch * fixed_batch, stream + batch * stream_batch)
    columns = (fixed_columns + batch * fixed_columns_batch, stream_columns + batch * stream_columns_batch)
    level += batch * queries
    state += batch * 2 * queries
    who = (lens + batch * lens_batch, mask + batch * mask_batch)
    counts = (N, M)
    stop = M
    if LENS:
        if not MIRROR:
            longest = tl.load(who[0] + rows * lens_row, mask=rows < N, other=0).to(tl.int32)
            stop = tl.minimum(stop, tl.max(longest))
        elif LENS == 1:
            # One length for all queries: keys beyond it have nothing to sum.
            stop = tl.where(block * BF < tl.load(who[0]).to(tl.int32), stop, 0)
    sums, sums_w, total, far = pull_tiles(
        sides, columns, level, state, w, who, counts, strides, column_strides, who_strides, rows, stop,
        SCORE, PER, D, BD, P, BP, LENS, MASK, MIRROR, WANT_W, APART, PRECISION, BF, BS,
    )  # fmt: skip
    if SCORE != DOT and not APART:
        if far > REACH:
            sums, sums_w, total, far = pull_tiles(
                sides, columns, level, state, w, who, counts, strides, column_strides, who_strides,
                rows, stop, SCORE, PER, D, BD, P, BP, LENS, MASK, MIRROR, WANT_W, True, PRECISION, BF, BS,
            )  # fmt: skip
    inside = (rows < N)[:, None]
    j, p = tl.arange(0, BD), tl.arange(0, BP)
    tl.store(grad + (batch * N + rows)[:, None] * D + j[None, :], sums, mask=inside & (j < D)[None, :])
    if WANT_W:
        place = grad_w + (block * tl.num_programs(1) + batch) * D + j
        tl.store(place, tl.sum(tl.where(inside, sums_w, 0.0), 0), mask=j < D)
    if MIRROR:
        where = grad_columns + (batch * N + rows)[:, None] * P + p[None, :]
        tl.store(where, total, mask=inside & (p < P)[None, :])
