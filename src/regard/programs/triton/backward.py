"""The backward pass on the GPU: every tile is computed again, and sums are over the streamed side.

With the queries fixed the sums are for queries and w, with the keys fixed (``mirror``) for keys and values: two passes,
no two programs write to one place, and the same inputs give the same bits. Few features keep their sums in registers;
for many, and for hidden units, each tile's sum is added to memory that only this program touches.

A streamed tile of queries has two things more in its rows: the level, and the coefficients of lines.
"""

# ruff: noqa: RUF005, SIM102
# Triton has no unpacking into tuples, and takes "and" for a product of tensors.

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.program_arguments import FixedColumns, Sums
from regard.programs.triton.tile_scores import (
    delta_feature,
    denominator,
    label_range,
    load_fixed,
    member_tiles,
    stream_end,
    tile_pointers,
    tile_scores,
)
from regard.programs.triton.triton_math import (
    ADDITIVE,
    BOXCAR,
    COSINE,
    DOT,
    LAPLACE,
    added,
    ex2,
    kernel,
    kernel_derivative,
    reciprocal,
    square_root,
    zeros,
)

# Tiles whose sums are added up before they join the total.
TILES_PER_RUN = tl.constexpr(16)
# Columns up to which sums stay in registers.
MAX_REGISTER_COLUMNS = tl.constexpr(8)


@triton.jit
def line(operands, fixed, base, first, rows, V: tl.constexpr):
    """c₀ + c·δ (stream, fixed) with the coefficients c of every query, from row ``first`` of the lines on.

    δ has delta_features features: ``fixed.delta`` on the fixed side, from row delta_row on in the stream. Mirrored, the
    lines are in the stream too, after the features, the shift, the columns and the level.
    """
    BS: tl.constexpr = V.BS
    if V.mirror:
        coefs = base + (V.features + 2 + V.columns + first) * BS
        total = tl.load(coefs)[:, None] + tl.zeros([BS, rows.shape[0]], operands.fixed.dtype.element_ty)
    else:
        coefs = fixed.lines + first * operands.length + rows
        total = tl.load(coefs)[None, :] + tl.zeros([BS, rows.shape[0]], operands.fixed.dtype.element_ty)
    for j in range(V.delta_features):
        difference = delta_feature(operands, fixed.delta, base, j, rows, V)
        if V.mirror:
            total -= tl.load(coefs + (1 + j) * BS)[:, None] * difference
        else:
            total += tl.load(coefs + (1 + j) * operands.length)[None, :] * difference
    return total


@triton.jit
def backward_tiles(operands, visibility, fixed, sums, rows, split, splits, stop, V: tl.constexpr):
    """Sums over the stream for one block: features (if unrolled), squares of features, and columns."""
    REAL: tl.constexpr = operands.fixed.dtype.element_ty
    SCORE: tl.constexpr = V.score
    COMPACT: tl.constexpr = SCORE >= BOXCAR and SCORE <= COSINE
    HIDDEN: tl.constexpr = SCORE >= ADDITIVE
    D: tl.constexpr = V.features
    P: tl.constexpr = V.columns
    BP: tl.constexpr = V.product_columns
    BF: tl.constexpr = V.BF
    BS: tl.constexpr = V.BS
    COLUMNS: tl.constexpr = P if P <= MAX_REGISTER_COLUMNS and not BP else 0
    VALUES: tl.constexpr = COLUMNS if V.mirror else 0
    SIDES: tl.constexpr = D if V.want_sides and V.unrolled else 0
    SQUARES: tl.constexpr = 0 if HIDDEN else V.want_w if V.want_w <= 1 else (D if V.unrolled else 0)
    features, coefs = load_fixed(operands, rows, V)
    low, high = label_range(operands, visibility, rows, V)
    sides, squares, values = zeros(SIDES, BF, REAL), zeros(SQUARES, BF, REAL), zeros(VALUES, BF, REAL)
    products = tl.zeros([BP if BP else 1, BF], tl.float32 if BP else REAL)
    p = tl.arange(0, BP if BP else 1)
    column = ()
    for n in tl.static_range(COLUMNS):
        column = column + (tl.load(fixed.columns + n * operands.length + rows),)
    block = tl.zeros([BP if BP else 1, BF], REAL)
    if BP:
        block = tl.load(fixed.columns + p[:, None] * operands.length + rows[None, :], mask=(p < P)[:, None], other=0.0)
    tiles = (stop + BS - 1) // BS
    for run in range(split * TILES_PER_RUN, tiles, splits * TILES_PER_RUN):
        run_sides, run_squares = zeros(SIDES, BF, REAL), zeros(SQUARES, BF, REAL)
        run_values = zeros(VALUES, BF, REAL)
        for tile in range(run, tl.minimum(run + TILES_PER_RUN, tiles)):
            base = tile_pointers(operands, tile, BS)
            measured, score = tile_scores(
                operands, visibility, features, coefs, base, (), tile, rows, low, high, False, V
            )
            weight = ex2(score)
            if COMPACT:
                outside = weight  # what multiplies the kernel: sample weights over the mass
                weight = kernel(measured, SCORE) * outside
            # The derivative of the loss by this pair's score, over its weight.
            if V.line_terms:
                relative = tl.zeros([BS, BF], REAL)
            elif V.mirror:
                relative = tl.zeros([BS, BF], REAL) - tl.load(base + (D + 1 + P) * BS)[:, None]
            else:
                relative = tl.zeros([BS, BF], REAL) - tl.load(fixed.level + rows)[None, :]
            if BP:
                columns = tl.load(base[:, None] + (D + 1 + p)[None, :] * BS, mask=(p < P)[None, :], other=0.0)
                relative += tl.dot(columns, block, input_precision="tf32x3")
            for n in tl.static_range(COLUMNS):
                relative += tl.load(base + (D + 1 + n) * BS)[:, None] * column[n][None, :]
            if COLUMNS == 0 and BP == 0:
                for late in range(P):
                    relative += (
                        tl.load(base + (D + 1 + late) * BS)[:, None]
                        * tl.load(fixed.columns + late * operands.length + rows)[None, :]
                    )
            if V.line_terms:
                left = line(operands, fixed, base, 0, rows, V)
                relative = left * (relative - line(operands, fixed, base, 1 + V.delta_features, rows, V))
                if V.line_terms > 1:
                    relative += line(operands, fixed, base, 2 + 2 * V.delta_features, rows, V)
            if COMPACT:
                slope = relative * kernel_derivative(measured, SCORE) * outside
            else:
                slope = relative * weight
            if SCORE == LAPLACE:
                u2 = measured
                if not V.per_feature:
                    u2 = measured * coefs[0]
                slope = tl.where(u2 > 0.0, slope / square_root(tl.where(u2 > 0.0, u2, 1.0)), 0.0)
            if HIDDEN:
                for h in range(0, D, 2):
                    # Partial sums are read before the arithmetic: they have arrived by the time they are needed.
                    place, place_w = sums.sides + h * operands.length + rows, sums.w + h * operands.length + rows
                    first, second = tl.load(place), tl.load(place + operands.length)
                    first_w, second_w = first, second
                    if V.want_w:
                        first_w, second_w = tl.load(place_w), tl.load(place_w + operands.length)
                    x = denominator(operands, base, h, rows, SCORE, BS)
                    y = denominator(operands, base, h + 1, rows, SCORE, BS)
                    both = reciprocal(x * y)
                    r, t = y * both, x * both
                    tl.store(place, first + tl.sum(slope * (r - r * r), 0))
                    tl.store(place + operands.length, second + tl.sum(slope * (t - t * t), 0))
                    if V.want_w:
                        tl.store(place_w, first_w + tl.sum(slope * r, 0))
                        tl.store(place_w + operands.length, second_w + tl.sum(slope * t, 0))
            elif V.unrolled:
                larger, wider = (), ()
                for j in tl.static_range(D):
                    feature = tl.load(base + j * BS)[:, None]
                    if SCORE == DOT:
                        larger = larger + (run_sides[j] + tl.sum(slope * feature, 0),)
                    else:
                        difference = feature - features[j][None, :]
                        if V.want_sides:
                            larger = larger + (run_sides[j] + tl.sum(slope * difference, 0),)
                        if V.want_w == 2:
                            wider = wider + (run_squares[j] + tl.sum(slope * (difference * difference), 0),)
                if V.want_sides:
                    run_sides = larger
                if V.want_w == 2:
                    run_squares = wider
            else:
                for j in range(D):
                    feature = tl.load(base + j * BS)[:, None]
                    place = sums.sides + j * operands.length + rows
                    if SCORE == DOT:
                        tl.store(place, tl.load(place) + tl.sum(slope * feature, 0))
                    else:
                        difference = feature - tl.load(operands.fixed + j * operands.length + rows)[None, :]
                        if V.want_sides:
                            tl.store(place, tl.load(place) + tl.sum(slope * difference, 0))
                        if V.want_w == 2:
                            square = sums.w + j * operands.length + rows
                            tl.store(square, tl.load(square) + tl.sum(slope * (difference * difference), 0))
            if V.want_w == 1 and not HIDDEN:
                # ``measured`` is Σδ² if all features share one w, but u² for a compact kernel.
                run_squares = (run_squares[0] + tl.sum(slope * measured, 0),)
            if V.mirror:
                if V.line_terms:
                    weight = weight * left
                if BP:
                    columns = tl.load(base[None, :] + (D + 1 + p)[:, None] * BS, mask=(p < P)[:, None], other=0.0)
                    products = tl.dot(columns, weight, products, input_precision="tf32x3")
                larger = ()
                for n in tl.static_range(COLUMNS):
                    larger = larger + (run_values[n] + tl.sum(weight * tl.load(base + (D + 1 + n) * BS)[:, None], 0),)
                run_values = larger
                if COLUMNS == 0 and BP == 0:
                    for late in range(P):
                        place = sums.columns + late * operands.length + rows
                        one = tl.sum(weight * tl.load(base + (D + 1 + late) * BS)[:, None], 0)
                        tl.store(place, tl.load(place) + one)
        sides, squares = added(sides, run_sides, SIDES), added(squares, run_squares, SQUARES)
        values = added(values, run_values, VALUES)
    return sides, squares, values, products


@triton.jit
def member_columns(fixed, strides, batch):
    """Columns of the fixed side with every pointer moved to one member of the batch."""
    return FixedColumns(
        fixed.columns + batch * strides.columns, fixed.level + batch * strides.level,
        fixed.lines + batch * strides.lines, fixed.delta + batch * strides.delta,
    )  # fmt: skip


@triton.jit
def member_sums(sums, splits, batches, split, batch):
    """Where one split of one member of the batch writes its sums."""
    split = split.to(tl.int64)
    return Sums(
        sums.sides + (split * splits.sides + batch * batches.sides),
        sums.w + (split * splits.w + batch * batches.w),
        sums.columns + (split * splits.columns + batch * batches.columns),
    )


@triton.jit
def backward(
    operands, visibility, strides, fixed, fixed_strides, sums, split_strides, batch_strides, splits, wide,
    V: tl.constexpr,
):  # fmt: skip
    """Raw sums of every row of the fixed side over every split of the stream.

    ``slope`` is the cotangent of a score. Sums, each (splits, batch, …, length): Σ slope·δ, or Σ slope·streamed for dot
    products; Σ slope·δ² (one or per feature); Σ weight·g (columns).
    """
    if V.score >= ADDITIVE:
        # Three programs are launched for hidden units; ``wide``, on the device, selects the one that runs.
        if tl.load(wide) != V.score - ADDITIVE:
            return
    block, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    rows = block * V.BF + tl.arange(0, V.BF)
    operands, visibility = member_tiles(operands, visibility, strides, batch)
    fixed = member_columns(fixed, fixed_strides, batch)
    stop = stream_end(operands, visibility, rows, V)
    sums = member_sums(sums, split_strides, batch_strides, split, batch)
    sides, squares, values, products = backward_tiles(operands, visibility, fixed, sums, rows, split, splits, stop, V)
    D: tl.constexpr = V.features
    P: tl.constexpr = V.columns
    if V.unrolled and V.want_sides:
        for j in tl.static_range(D):
            tl.store(sums.sides + j * operands.length + rows, sides[j])
    if V.want_w == 1 and V.score < ADDITIVE:
        tl.store(sums.w + rows, squares[0])
    if V.want_w == 2 and V.unrolled:
        for j in tl.static_range(D):
            tl.store(sums.w + j * operands.length + rows, squares[j])
    if V.mirror:
        if V.product_columns:
            p = tl.arange(0, V.product_columns)
            tl.store(sums.columns + rows[None, :] + p[:, None] * operands.length, products, mask=(p < P)[:, None])
        elif P <= MAX_REGISTER_COLUMNS:
            for n in tl.static_range(P):
                tl.store(sums.columns + n * operands.length + rows, values[n])
