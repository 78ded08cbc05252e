"""The adjoint pass on the GPU: every tile again, one scalar per pair, sums over the streamed side.

With the queries fixed the sums are for queries and w, with the keys fixed (``MIRROR``) for keys and values: two passes,
no two programs write to one place, and the same inputs give the same bits. Few features keep their sums in registers;
many, and hidden units, add each tile's sum to a row that only this program touches.

A streamed tile of queries has two things more in its rows: the level, and the coefficients of lines.
"""

# ruff: noqa: RUF005, SIM102
# Triton has no unpacking into tuples, and takes "and" for a product of tensors.

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.math import (
    ADDITIVE,
    BOXCAR,
    COSINE,
    DOT,
    LAPLACE,
    ex2,
    kernel,
    plus,
    rate,
    reciprocal,
    root,
    zeros,
)
from regard.programs.triton.tiles import denominator, held, label_range, of_batch, tile_at, tile_of

RUN = tl.constexpr(16)
# Columns up to which sums stay in registers.
FEW = tl.constexpr(8)


@triton.jit
def line(
    pairs,
    lines,
    apart,
    here,
    first,
    rows,
    DD: tl.constexpr,
    ROW: tl.constexpr,
    LINES: tl.constexpr,
    MIRROR: tl.constexpr,
    BS: tl.constexpr,
):
    """c₀ + c·δ (stream, fixed) with the coefficients c of every query from row ``first`` of lines on.

    δ is of DD features: ``apart`` on the fixed side, from row ROW on in the stream; mirrored, lines are in the stream
    too, from row LINES on.
    """
    if MIRROR:
        base = here + (LINES + first) * BS
        total = tl.load(base)[:, None] + tl.zeros([BS, rows.shape[0]], pairs[0].dtype.element_ty)
    else:
        base = lines + first * pairs[4] + rows
        total = tl.load(base)[None, :] + tl.zeros([BS, rows.shape[0]], pairs[0].dtype.element_ty)
    for j in range(DD):
        difference = tl.load(here + (ROW + j) * BS)[:, None] - tl.load(apart + j * pairs[4] + rows)[None, :]
        if MIRROR:
            total -= tl.load(base + (1 + j) * BS)[:, None] * difference
        else:
            total += tl.load(base + (1 + j) * pairs[4])[None, :] * difference
    return total


@triton.jit
def walk(
    pairs,
    who,
    columns,
    level,
    lines,
    apart,
    grad,
    grad_w,
    grad_columns,
    rows,
    split,
    splits,
    stop,
    SCORE: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    BP: tl.constexpr,
    PER: tl.constexpr,
    STATIC: tl.constexpr,
    AFFINE: tl.constexpr,
    DD: tl.constexpr,
    ROW: tl.constexpr,
    MIRROR: tl.constexpr,
    WANT: tl.constexpr,
    WANT_W: tl.constexpr,
    OWN: tl.constexpr,
    BIAS: tl.constexpr,
    MASK: tl.constexpr,
    LENS: tl.constexpr,
    EXCLUDE: tl.constexpr,
    PRECISION: tl.constexpr,
    BF: tl.constexpr,
    BS: tl.constexpr,
):
    """Sums over the stream for one block: features (D of them, if STATIC), squares of features, and columns."""
    REAL: tl.constexpr = pairs[0].dtype.element_ty
    COMPACT: tl.constexpr = SCORE >= BOXCAR and SCORE <= COSINE
    HIDDEN: tl.constexpr = SCORE >= ADDITIVE
    SUMS: tl.constexpr = P if P <= FEW and not BP else 0
    VALUES: tl.constexpr = SUMS if MIRROR else 0
    SIDES: tl.constexpr = D if WANT and STATIC else 0
    SQUARES: tl.constexpr = 0 if HIDDEN else WANT_W if WANT_W <= 1 else (D if STATIC else 0)
    kept, coefs = held(pairs, rows, D, PER, STATIC)
    low, high = label_range(who, rows, pairs[6], EXCLUDE)
    sides, squares, values = zeros(SIDES, BF, REAL), zeros(SQUARES, BF, REAL), zeros(VALUES, BF, REAL)
    many = tl.zeros([BP if BP else 1, BF], tl.float32 if BP else REAL)
    p = tl.arange(0, BP if BP else 1)
    column = ()
    for n in tl.static_range(SUMS):
        column = column + (tl.load(columns + n * pairs[4] + rows),)
    block = tl.zeros([BP if BP else 1, BF], REAL)
    if BP:
        block = tl.load(columns + p[:, None] * pairs[4] + rows[None, :], mask=(p < P)[:, None], other=0.0)
    tiles = (stop + BS - 1) // BS
    for run in range(split * RUN, tiles, splits * RUN):
        run_sides, run_squares = zeros(SIDES, BF, REAL), zeros(SQUARES, BF, REAL)
        run_values = zeros(VALUES, BF, REAL)
        for tile in range(run, tl.minimum(run + RUN, tiles)):
            here = tile_at(pairs, tile, BS)
            measured, score = tile_of(
                pairs, who, kept, coefs, here, (), tile, rows, low, high,
                SCORE, D, PER, STATIC, False, OWN, BIAS, MASK, LENS, EXCLUDE, MIRROR, False, BS,
            )  # fmt: skip
            weight = ex2(score)
            if COMPACT:
                lift = weight
                weight = kernel(measured, SCORE) * lift
            # How the answer moves with this pair's score, but for its weight.
            if AFFINE:
                turn = tl.zeros([BS, BF], REAL)
            elif MIRROR:
                turn = tl.zeros([BS, BF], REAL) - tl.load(here + (D + 1 + P) * BS)[:, None]
            else:
                turn = tl.zeros([BS, BF], REAL) - tl.load(level + rows)[None, :]
            if BP:
                streamed = tl.load(here[:, None] + (D + 1 + p)[None, :] * BS, mask=(p < P)[None, :], other=0.0)
                turn += tl.dot(streamed, block, input_precision=PRECISION)
            for n in tl.static_range(SUMS):
                turn += tl.load(here + (D + 1 + n) * BS)[:, None] * column[n][None, :]
            if SUMS == 0 and BP == 0:
                for late in range(P):
                    turn += (
                        tl.load(here + (D + 1 + late) * BS)[:, None]
                        * tl.load(columns + late * pairs[4] + rows)[None, :]
                    )
            if AFFINE:
                left = line(pairs, lines, apart, here, 0, rows, DD, ROW, D + 2 + P, MIRROR, BS)
                turn = left * (turn - line(pairs, lines, apart, here, 1 + DD, rows, DD, ROW, D + 2 + P, MIRROR, BS))
                if AFFINE > 1:
                    turn += line(pairs, lines, apart, here, 2 + 2 * DD, rows, DD, ROW, D + 2 + P, MIRROR, BS)
            if COMPACT:
                slope = turn * rate(measured, SCORE) * lift
            else:
                slope = turn * weight
            if SCORE == LAPLACE:
                u2 = measured
                if not PER:
                    u2 = measured * coefs[0]
                slope = tl.where(u2 > 0.0, slope / root(tl.where(u2 > 0.0, u2, 1.0)), 0.0)
            if HIDDEN:
                for h in range(0, D, 2):
                    # What is added to is read first: by the time it is needed, it has come.
                    place, place_w = grad + h * pairs[4] + rows, grad_w + h * pairs[4] + rows
                    first, second = tl.load(place), tl.load(place + pairs[4])
                    first_w, second_w = first, second
                    if WANT_W:
                        first_w, second_w = tl.load(place_w), tl.load(place_w + pairs[4])
                    x = denominator(pairs, here, h, rows, SCORE, BS)
                    y = denominator(pairs, here, h + 1, rows, SCORE, BS)
                    both = reciprocal(x * y)
                    r, t = y * both, x * both
                    tl.store(place, first + tl.sum(slope * (r - r * r), 0))
                    tl.store(place + pairs[4], second + tl.sum(slope * (t - t * t), 0))
                    if WANT_W:
                        tl.store(place_w, first_w + tl.sum(slope * r, 0))
                        tl.store(place_w + pairs[4], second_w + tl.sum(slope * t, 0))
            elif STATIC:
                larger, wider = (), ()
                for j in tl.static_range(D):
                    key = tl.load(here + j * BS)[:, None]
                    if SCORE == DOT:
                        larger = larger + (run_sides[j] + tl.sum(slope * key, 0),)
                    else:
                        difference = key - kept[j][None, :]
                        if WANT:
                            larger = larger + (run_sides[j] + tl.sum(slope * difference, 0),)
                        if WANT_W == 2:
                            wider = wider + (run_squares[j] + tl.sum(slope * (difference * difference), 0),)
                if WANT:
                    run_sides = larger
                if WANT_W == 2:
                    run_squares = wider
            else:
                for j in range(D):
                    key = tl.load(here + j * BS)[:, None]
                    place = grad + j * pairs[4] + rows
                    if SCORE == DOT:
                        tl.store(place, tl.load(place) + tl.sum(slope * key, 0))
                    else:
                        difference = key - tl.load(pairs[0] + j * pairs[4] + rows)[None, :]
                        if WANT:
                            tl.store(place, tl.load(place) + tl.sum(slope * difference, 0))
                        if WANT_W == 2:
                            square = grad_w + j * pairs[4] + rows
                            tl.store(square, tl.load(square) + tl.sum(slope * (difference * difference), 0))
            if WANT_W == 1 and not HIDDEN:
                # ``measured`` is Σδ² for one w for all, but u² for a compact kernel.
                run_squares = (run_squares[0] + tl.sum(slope * measured, 0),)
            if MIRROR:
                if AFFINE:
                    weight = weight * left
                if BP:
                    streamed = tl.load(here[None, :] + (D + 1 + p)[:, None] * BS, mask=(p < P)[:, None], other=0.0)
                    many = tl.dot(streamed, weight, many, input_precision=PRECISION)
                larger = ()
                for n in tl.static_range(SUMS):
                    larger = larger + (run_values[n] + tl.sum(weight * tl.load(here + (D + 1 + n) * BS)[:, None], 0),)
                run_values = larger
                if SUMS == 0 and BP == 0:
                    for late in range(P):
                        place = grad_columns + late * pairs[4] + rows
                        one = tl.sum(weight * tl.load(here + (D + 1 + late) * BS)[:, None], 0)
                        tl.store(place, tl.load(place) + one)
        sides, squares = plus(sides, run_sides, SIDES), plus(squares, run_squares, SQUARES)
        values = plus(values, run_values, VALUES)
    return sides, squares, values, many


@triton.jit
def pull(
    pairs,
    who,
    batches,
    sides_fixed,
    sides_batch,
    grads,
    grads_split,
    grads_batch,
    splits,
    wide,
    SCORE: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    BP: tl.constexpr,
    PER: tl.constexpr,
    STATIC: tl.constexpr,
    AFFINE: tl.constexpr,
    DD: tl.constexpr,
    ROW: tl.constexpr,
    MIRROR: tl.constexpr,
    WANT: tl.constexpr,
    WANT_W: tl.constexpr,
    OWN: tl.constexpr,
    BIAS: tl.constexpr,
    MASK: tl.constexpr,
    LENS: tl.constexpr,
    EXCLUDE: tl.constexpr,
    PRECISION: tl.constexpr,
    BF: tl.constexpr,
    BS: tl.constexpr,
):
    """Raw sums of every member of the fixed side over every share of the stream.

    ``sides_fixed``: columns (P, n), level (n,) and lines (rows, n) unless mirrored, and the features (DD, n) that δ is
    of in lines. ``grads``, each (splits, batch, …, n): Σ slope·δ (D); Σ slope·δ² (1 or D); Σ weight·g (P).
    """
    if SCORE >= ADDITIVE:
        # Three programs are launched for hidden units, and the device knows which of them is meant.
        if tl.load(wide) != SCORE - ADDITIVE:
            return
    block, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    rows = block * BF + tl.arange(0, BF)
    pairs, who = of_batch(pairs, who, batches, batch, OWN, BIAS, MASK, LENS, EXCLUDE)
    columns, level = sides_fixed[0] + batch * sides_batch[0], sides_fixed[1]
    lines, apart = sides_fixed[2], sides_fixed[3]
    if AFFINE:
        apart += batch * sides_batch[3]
    if not MIRROR:
        level += batch * sides_batch[1]
        if AFFINE:
            lines += batch * sides_batch[2]
    stop = pairs[7]
    if LENS and not MIRROR:
        lengths = tl.load(who[6] + rows * who[7], mask=rows < pairs[6], other=0)
        stop = tl.minimum(stop, tl.max(lengths).to(tl.int32))
    share = split.to(tl.int64)
    grad, grad_w, grad_columns = grads[0], grads[1], grads[2]
    if WANT:
        grad += share * grads_split[0] + batch * grads_batch[0]
    if WANT_W:
        grad_w += share * grads_split[1] + batch * grads_batch[1]
    if MIRROR:
        grad_columns += share * grads_split[2] + batch * grads_batch[2]
    sides, squares, values, many = walk(
        pairs, who, columns, level, lines, apart, grad, grad_w, grad_columns, rows, split, splits, stop,
        SCORE, D, P, BP, PER, STATIC, AFFINE, DD, ROW, MIRROR, WANT, WANT_W,
        OWN, BIAS, MASK, LENS, EXCLUDE, PRECISION, BF, BS,
    )  # fmt: skip
    if STATIC and WANT:
        for j in tl.static_range(D):
            tl.store(grad + j * pairs[4] + rows, sides[j])
    if WANT_W == 1 and SCORE < ADDITIVE:
        tl.store(grad_w + rows, squares[0])
    if WANT_W == 2 and STATIC:
        for j in tl.static_range(D):
            tl.store(grad_w + j * pairs[4] + rows, squares[j])
    if MIRROR:
        if BP:
            p = tl.arange(0, BP)
            tl.store(grad_columns + rows[None, :] + p[:, None] * pairs[4], many, mask=(p < P)[:, None])
        elif P <= FEW:
            for n in tl.static_range(P):
                tl.store(grad_columns + n * pairs[4] + rows, values[n])
