"""The backward pass of scores from matrix products: as ``backward``, with sums over the stream from products too."""

# ruff: noqa: RUF005
# Triton has no unpacking into tuples.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.product_forward import (
    halves,
    load_product_rows,
    member_rows,
    product,
    product_scores,
    rounded_sum,
)
from regard.programs.triton.tile_scores import label_range, stream_end
from regard.programs.triton.triton_math import added, ex2, zeros


@triton.jit
def product_backward(
    operands, visibility, strides, shift_batch, features, features_batch, columns, columns_batch, level, level_batch,
    scale, sums, split_strides, batch_strides, splits, V: tl.constexpr,
):  # fmt: skip
    """Raw sums of the fixed side: Σ slope·streamed (features), Σ slope (1), Σ weight·g (columns).

    ``slope`` is the cotangent of a score. Features of the stream are in its rows if split, else (stream_length,
    2·features) high and low. ``columns``, of the fixed side and of the stream, are (P, ·) float32 if few, else (2P, ·)
    high and low parts whose products count times ``scale`` (1,). Peaks are in the rows of a Gaussian score; otherwise
    they are in the shifts.
    """
    BF: tl.constexpr = V.BF
    BS: tl.constexpr = V.BS
    BD: tl.constexpr = V.product_features
    block, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    rows = block * BF + tl.arange(0, BF)
    operands, visibility = member_rows(operands, visibility, strides, shift_batch, batch)
    features += batch * features_batch
    fixed_columns = columns[0] + batch * columns_batch[0]
    stream_columns = columns[1] + batch * columns_batch[1]
    level += batch * level_batch
    length = operands.stream_length
    D: tl.constexpr = V.features
    P: tl.constexpr = V.columns
    BP: tl.constexpr = V.product_columns
    COLUMNS: tl.constexpr = 0 if BP else P
    fixed = load_product_rows(operands.fixed, rows, operands.row_length, V)
    low, high = label_range(operands, visibility, rows, V)
    factor, fixed_shift, to_slopes = 1.0, 0.0, 1.0
    if not V.gaussian:
        factor, fixed_shift = tl.load(operands.coef), tl.load(operands.fixed_shift + rows)
    p, j = tl.arange(0, BP if BP else 1), tl.arange(0, BD)
    sides = tl.zeros([BF, BD], tl.float32)
    slopes = tl.zeros([BF], tl.float32)
    values = zeros(COLUMNS if V.mirror else 0, BF, tl.float32)
    products = tl.zeros([BF, BP if BP else 1], tl.float32)
    column = ()
    for n in tl.static_range(COLUMNS):
        column = column + (tl.load(fixed_columns + n * operands.length + rows),)
    if BP:
        to_slopes = tl.load(scale)
        fixed_where = rows[:, None] + p[None, :] * operands.length
        one = tl.load(fixed_columns + fixed_where, mask=(p < P)[None, :], other=0.0)
        one_low = one
        if V.exact:
            one_low = tl.load(fixed_columns + P * operands.length + fixed_where, mask=(p < P)[None, :], other=0.0)
    stop = stream_end(operands, visibility, rows, V)
    for tile in range(split, (stop + BS - 1) // BS, splits):
        stream_rows = tile * BS + tl.arange(0, BS)
        stream = load_product_rows(operands.stream, stream_rows, operands.row_length, V)
        score = product_scores(operands, visibility, fixed, stream, factor, tile, rows, low, high, V)
        if not V.gaussian:
            score += fixed_shift[:, None]
        weight = ex2(score)
        # The derivative of the loss by this pair's score, over its weight.
        if V.mirror:
            relative = tl.zeros([BF, BS], tl.float32) - tl.load(level + stream_rows)[None, :]
        else:
            relative = tl.zeros([BF, BS], tl.float32) - tl.load(level + rows)[:, None]
        for n in tl.static_range(COLUMNS):
            relative += column[n][:, None] * tl.load(stream_columns + n * length + stream_rows)[None, :]
        if BP:
            where = p[:, None] * length + stream_rows[None, :]
            other = tl.load(stream_columns + where, mask=(p < P)[:, None], other=0.0)
            if V.exact:
                other_low = tl.load(stream_columns + P * length + where, mask=(p < P)[:, None], other=0.0)
                relative += product(one, one_low, other, other_low) * to_slopes
            else:
                relative += tl.dot(one, other) * to_slopes
        slope = weight * relative
        slopes += tl.sum(slope, 1)
        if V.split:
            feature, rest = stream[0], stream[1]
        else:
            pointers = features + stream_rows[:, None].to(tl.int64) * (2 * D) + j[None, :]
            feature = tl.load(pointers, mask=(j < D)[None, :], other=0.0)
            rest = tl.load(pointers + D, mask=(j < D)[None, :], other=0.0)
        if V.exact:
            first, second = halves(slope)
            sides = rounded_sum(sides, product(first, second, feature, rest))
        else:
            sides = rounded_sum(sides, tl.dot(slope.to(feature.dtype), feature))
        if V.mirror:
            larger = ()
            for n in tl.static_range(COLUMNS):
                larger = larger + (tl.sum(weight * tl.load(stream_columns + n * length + stream_rows)[None, :], 1),)
            values = added(values, larger, COLUMNS)
            if BP:
                if V.exact:
                    first, second = halves(weight)
                    products = rounded_sum(products, product(first, second, tl.trans(other), tl.trans(other_low)))
                else:
                    products = rounded_sum(products, tl.dot(weight.to(other.dtype), tl.trans(other)))
    split = split.to(tl.int64)
    out = sums.sides + split * split_strides.sides + batch * batch_strides.sides
    tl.store(out + rows[:, None] + j[None, :] * operands.length, sides, mask=(j < D)[None, :])
    tl.store(sums.w + split * split_strides.w + batch * batch_strides.w + rows, slopes)
    if V.mirror:
        out = sums.columns + split * split_strides.columns + batch * batch_strides.columns + rows
        if BP:
            tl.store(out[:, None] + p[None, :] * operands.length, products, mask=(p < P)[None, :])
        else:
            for n in tl.static_range(COLUMNS):
                tl.store(out + n * operands.length, values[n])
