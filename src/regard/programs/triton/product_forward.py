"""Scores from matrix products: Gaussian scores of many features, and dot products, on tensor cores.

A float32 number is the sum of two half-precision ones to 22 bits; of the four products of two such pairs three count.
Many features (``split``) are stored as (high, low, extra) in rows of 2·piece + 16, and three products are added up. Few
are stored side by side so that one product of length ``piece`` is enough: (extra, low, high, high) of a query,
(extra, high, low, high) of a key. The extra columns of a Gaussian score are −½‖q‖² and −½‖k‖², in three parts each,
against ones. Large terms come last: tensor cores truncate, and do not round, what they add to a sum.

Here a tile is (fixed, stream), and sums over the stream cross threads.
"""

# ruff: noqa: RUF005
# Triton has no unpacking into tuples.

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.program_arguments import ProductOperands
from regard.programs.triton.tile_scores import hide, label_range, member_visibility, stream_end
from regard.programs.triton.triton_math import INTERPRETED, added, ex2, scaled, zeros


@triton.jit
def halves(x):
    """Two half-precision tiles whose sum is x to 22 bits."""
    high = x.to(tl.float16)
    return high, (x - high.to(tl.float32)).to(tl.float16)


@triton.jit
def rounded_sum(total, part):
    """total + part, rounded: the compiler would make it a sum of tensor cores, which truncate."""
    if INTERPRETED:
        return total + part
    else:
        return tl.inline_asm_elementwise(
            "add.f32 $0, $1, $2;", "=f,f,f", [total, part], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def product(high, low, other_high, other_low):
    """The product of two sums of halves, without low·low."""
    total = tl.dot(low, other_high)
    total = tl.dot(high, other_low, total)
    return tl.dot(high, other_high, total)


@triton.jit
def load_product_rows(base, rows, length, V: tl.constexpr):
    """Rows of either side: (high, low, extra), or one tile in place of all."""
    pointers = base + rows[:, None].to(tl.int64) * length + tl.arange(0, V.piece)[None, :]
    high = tl.load(pointers)
    low, extra = high, high
    if V.split and V.exact:
        low = tl.load(pointers + V.piece)
    if V.split and V.gaussian:
        extra = tl.load(base + rows[:, None].to(tl.int64) * length + (2 * V.piece + tl.arange(0, 16))[None, :])
    return high, low, extra


@triton.jit
def product_scores(operands, visibility, fixed, stream, factor, tile, rows, low, high, V: tl.constexpr):
    """Scores (fixed, stream) in powers of two, −inf if a pair may not attend."""
    stream_rows = tile * V.BS + tl.arange(0, V.BS)
    if V.split and V.exact:
        if V.gaussian:
            score = tl.dot(fixed[2], tl.trans(stream[2]))
            score = tl.dot(fixed[1], tl.trans(stream[0]), score)
        else:
            score = tl.dot(fixed[1], tl.trans(stream[0]))
        score = tl.dot(fixed[0], tl.trans(stream[1]), score)
        score = tl.dot(fixed[0], tl.trans(stream[0]), score)
    else:
        score = tl.dot(fixed[0], tl.trans(stream[0]))
    if not V.gaussian:
        # Gaussian scores have their sample weights, and −inf for padding, in their rows.
        score = score * factor + tl.load(operands.stream_shift + stream_rows)[None, :]
    if V.bias:
        inside = (rows < operands.fixed_count)[:, None] & (stream_rows < operands.stream_count)[None, :]
        where = (
            rows[:, None].to(tl.int64) * visibility.bias_fixed
            + stream_rows[None, :].to(tl.int64) * visibility.bias_stream
        )
        score += tl.load(visibility.bias + where, mask=inside, other=0.0).to(tl.float32) * 1.4426950408889634
    if V.mask or V.lens or V.exclude:
        score = tl.trans(hide(tl.trans(score), operands, visibility, stream_rows, tile, rows, low, high, V))
    return score


@triton.jit
def product_forward_tiles(
    operands, visibility, columns, fixed, rows, split, splits, stop, BOUNDED: tl.constexpr, V: tl.constexpr
):  # fmt: skip
    """Peak, mass and columns of one block of queries: a tuple of (BF,), or (BF, product_columns) by products."""
    BF: tl.constexpr = V.BF
    P: tl.constexpr = V.columns
    BP: tl.constexpr = V.product_columns
    SUMS: tl.constexpr = 0 if BP else P
    length = operands.stream_length
    low, high = label_range(operands, visibility, rows, V)
    factor = 1.0
    if not V.gaussian:
        factor = tl.load(operands.coef)
    peak = tl.full([BF], float("-inf"), tl.float32)
    mass = tl.zeros([BF], tl.float32)
    total = zeros(SUMS, BF, tl.float32)
    products = tl.zeros([BF, BP if BP else 1], tl.float32)
    p = tl.arange(0, BP if BP else 1)
    for tile in range(split, (stop + V.BS - 1) // V.BS, splits):
        stream_rows = tile * V.BS + tl.arange(0, V.BS)
        stream = load_product_rows(operands.stream, stream_rows, operands.row_length, V)
        score = product_scores(operands, visibility, fixed, stream, factor, tile, rows, low, high, V)
        if V.fixed_shift:
            score += tl.load(operands.fixed_shift + rows)[:, None]
        if BOUNDED:
            weight = ex2(score)
        else:
            top = tl.maximum(peak, tl.max(score, 1))
            level = tl.where(top == float("-inf"), 0.0, top)
            weight = ex2(score - level[:, None])
            shrink = ex2(peak - level)
            peak, mass = top, mass * shrink
            total = scaled(total, shrink, SUMS)
            if BP:
                products = products * shrink[:, None]
        mass += tl.sum(weight, 1)
        larger = ()
        for n in tl.static_range(SUMS):
            larger = larger + (tl.sum(weight * tl.load(columns + n * length + stream_rows)[None, :], 1),)
        total = added(total, larger, SUMS)
        if BP:
            where = p[None, :] * length + stream_rows[:, None]
            value = tl.load(columns + where, mask=(p < P)[None, :], other=0.0)
            if V.exact:
                rest = tl.load(columns + P * length + where, mask=(p < P)[None, :], other=0.0)
                first, second = halves(weight)
                products = rounded_sum(products, product(first, second, value, rest))
            else:
                products = rounded_sum(products, tl.dot(weight.to(value.dtype), value))
    return peak, mass, total, products


@triton.jit
def product_forward(
    operands, visibility, strides, columns, columns_batch, shift_batch, state, state_split, state_batch, splits, least,
    V: tl.constexpr,
):  # fmt: skip
    """state (splits, batch, 2 + columns, length): peak, mass and columns of every query over each split of the keys.

    A few columns (P, stream_length) are summed in float32; more go through matrix products, high and low parts
    (2P, stream_length) if exact. Bounded: scores are at most 0 and need no peak, except in blocks with a query of tiny
    mass.
    """
    block, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    rows = block * V.BF + tl.arange(0, V.BF)
    operands, visibility = member_rows(operands, visibility, strides, shift_batch, batch)
    columns += batch * columns_batch
    fixed = load_product_rows(operands.fixed, rows, operands.row_length, V)
    stop = stream_end(operands, visibility, rows, V)
    peak, mass, total, products = product_forward_tiles(
        operands, visibility, columns, fixed, rows, split, splits, stop, V.bounded, V
    )
    if V.bounded:
        peak = tl.zeros_like(peak)
        if tl.min(tl.where((rows < operands.fixed_count) & (mass == mass), mass, 1.0)) < least:
            peak, mass, total, products = product_forward_tiles(
                operands, visibility, columns, fixed, rows, split, splits, stop, False, V
            )
    out = state + split.to(tl.int64) * state_split + batch * state_batch + rows
    tl.store(out, peak)
    tl.store(out + operands.length, mass)
    P: tl.constexpr = V.columns
    if V.product_columns:
        p = tl.arange(0, V.product_columns)
        tl.store(out[:, None] + (2 + p)[None, :] * operands.length, products, mask=(p < P)[None, :])
    else:
        for n in tl.static_range(P):
            tl.store(out + (2 + n) * operands.length, total[n])


@triton.jit
def member_rows(operands, visibility, strides, shift_batch, batch):
    """Operands and visibility with every pointer moved to one member of the batch."""
    fixed_shift = operands.fixed_shift + batch * strides.fixed_shift
    visibility = member_visibility(visibility, strides, batch)
    operands = ProductOperands(
        operands.fixed + batch * strides.fixed, operands.stream + batch * strides.stream, operands.coef, fixed_shift,
        operands.length, operands.stream_shift + batch * shift_batch, operands.fixed_count, operands.stream_count,
        operands.stream_length, operands.row_length,
    )  # fmt: skip
    return operands, visibility
