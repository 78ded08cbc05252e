"""Scores from matrix products: Gaussian scores of many features, and dot products, on tensor cores.

A float32 number is the sum of two half-precision ones to 22 bits; of the four products of two such pairs three count.
Wide features (SPLIT) lie as (high, low, extra) in rows of 2·BE + 16, and three products are added up. Few lie side by
side so that one product of length BE is all: (extra, low, high, high) of a query, (extra, high, low, high) of a key.
The extra columns of a Gaussian score are −½‖q‖² and −½‖k‖², in three parts each, against ones. Large terms come last:
tensor cores cut off, and do not round, what they add to a sum.

Here a tile is (fixed, stream), and sums over the stream cross threads; tuples ``who`` as in ``triton_tiles``.
"""

# ruff: noqa: RUF005
# Triton has no unpacking into tuples.

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.math import PLAIN, ex2, plus, scaled, zeros
from regard.programs.triton.tiles import hide, label_range, of_batch


@triton.jit
def halves(x):
    """Two half-precision tiles whose sum is x to 22 bits."""
    high = x.to(tl.float16)
    return high, (x - high.to(tl.float32)).to(tl.float16)


@triton.jit
def joined(total, part):
    """total + part, rounded: the compiler would make it a sum of tensor cores, which only cut off."""
    if PLAIN:
        return total + part
    else:
        return tl.inline_asm_elementwise(
            "add.f32 $0, $1, $2;", "=f,f,f", [total, part], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def product(high, low, other_high, other_low):
    total = tl.dot(low, other_high)
    total = tl.dot(high, other_low, total)
    return tl.dot(high, other_high, total)


@triton.jit
def row_tiles(base, at, width, EXACT: tl.constexpr, SPLIT: tl.constexpr, EXTRA: tl.constexpr, BE: tl.constexpr):
    """Rows of either side: (high, low, extra), or one tile in place of all."""
    where = base + at[:, None].to(tl.int64) * width + tl.arange(0, BE)[None, :]
    high = tl.load(where)
    low, extra = high, high
    if SPLIT and EXACT:
        low = tl.load(where + BE)
    if SPLIT and EXTRA:
        extra = tl.load(base + at[:, None].to(tl.int64) * width + (2 * BE + tl.arange(0, 16))[None, :])
    return high, low, extra


@triton.jit
def scores_of(
    pairs,
    who,
    fixed,
    stream,
    factor,
    tile,
    rows,
    low,
    high,
    EXACT: tl.constexpr,
    SPLIT: tl.constexpr,
    GAUSSIAN: tl.constexpr,
    BIAS: tl.constexpr,
    MASK: tl.constexpr,
    LENS: tl.constexpr,
    EXCLUDE: tl.constexpr,
    MIRROR: tl.constexpr,
    BS: tl.constexpr,
):
    """Scores (fixed, stream) in powers of two, −inf where a pair may not attend."""
    at = tile * BS + tl.arange(0, BS)
    if SPLIT and EXACT:
        if GAUSSIAN:
            score = tl.dot(fixed[2], tl.trans(stream[2]))
            score = tl.dot(fixed[1], tl.trans(stream[0]), score)
        else:
            score = tl.dot(fixed[1], tl.trans(stream[0]))
        score = tl.dot(fixed[0], tl.trans(stream[1]), score)
        score = tl.dot(fixed[0], tl.trans(stream[0]), score)
    else:
        score = tl.dot(fixed[0], tl.trans(stream[0]))
    if not GAUSSIAN:
        # Gaussian scores have their weights, and their end, in their rows.
        score = score * factor + tl.load(pairs[5] + at)[None, :]
    if BIAS:
        inside = (rows < pairs[6])[:, None] & (at < pairs[7])[None, :]
        where = rows[:, None].to(tl.int64) * who[2] + at[None, :].to(tl.int64) * who[1]
        score += tl.load(who[0] + where, mask=inside, other=0.0).to(tl.float32) * 1.4426950408889634
    if MASK or LENS or EXCLUDE:
        score = tl.trans(hide(tl.trans(score), pairs, who, at, tile, rows, low, high, MASK, LENS, EXCLUDE, MIRROR))
    return score


@triton.jit
def sweep_product(
    pairs,
    who,
    columns,
    fixed,
    rows,
    split,
    splits,
    stop,
    P: tl.constexpr,
    BP: tl.constexpr,
    BE: tl.constexpr,
    GAUSSIAN: tl.constexpr,
    DIRECT: tl.constexpr,
    EXACT: tl.constexpr,
    SPLIT: tl.constexpr,
    OWN: tl.constexpr,
    BIAS: tl.constexpr,
    MASK: tl.constexpr,
    LENS: tl.constexpr,
    EXCLUDE: tl.constexpr,
    BF: tl.constexpr,
    BS: tl.constexpr,
):
    """Peak, mass and columns of one block of queries: a tuple of (BF,), or (BF, BP) from products if BP."""
    length = pairs[8]
    SUMS: tl.constexpr = 0 if BP else P
    low, high = label_range(who, rows, pairs[6], EXCLUDE)
    factor = 1.0
    if not GAUSSIAN:
        factor = tl.load(pairs[2])
    peak = tl.full([BF], float("-inf"), tl.float32)
    mass = tl.zeros([BF], tl.float32)
    total = zeros(SUMS, BF, tl.float32)
    many = tl.zeros([BF, BP if BP else 1], tl.float32)
    p = tl.arange(0, BP if BP else 1)
    for tile in range(split, (stop + BS - 1) // BS, splits):
        at = tile * BS + tl.arange(0, BS)
        stream = row_tiles(pairs[1], at, pairs[9], EXACT, SPLIT, GAUSSIAN, BE)
        score = scores_of(
            pairs, who, fixed, stream, factor, tile, rows, low, high,
            EXACT, SPLIT, GAUSSIAN, BIAS, MASK, LENS, EXCLUDE, False, BS,
        )  # fmt: skip
        if OWN:
            score += tl.load(pairs[3] + rows)[:, None]
        if DIRECT:
            weight = ex2(score)
        else:
            top = tl.maximum(peak, tl.max(score, 1))
            level = tl.where(top == float("-inf"), 0.0, top)
            weight = ex2(score - level[:, None])
            shrink = ex2(peak - level)
            peak, mass = top, mass * shrink
            total = scaled(total, shrink, SUMS)
            if BP:
                many = many * shrink[:, None]
        mass += tl.sum(weight, 1)
        larger = ()
        for n in tl.static_range(SUMS):
            larger = larger + (tl.sum(weight * tl.load(columns + n * length + at)[None, :], 1),)
        total = plus(total, larger, SUMS)
        if BP:
            where = p[None, :] * length + at[:, None]
            value = tl.load(columns + where, mask=(p < P)[None, :], other=0.0)
            if EXACT:
                rest = tl.load(columns + P * length + where, mask=(p < P)[None, :], other=0.0)
                first, second = halves(weight)
                many = joined(many, product(first, second, value, rest))
            else:
                many = joined(many, tl.dot(weight.to(value.dtype), value))
    return peak, mass, total, many


@triton.jit
def attend_product(
    pairs,
    who,
    batches,
    columns,
    columns_batch,
    shift_batch,
    state,
    state_split,
    state_batch,
    splits,
    least,
    P: tl.constexpr,
    BP: tl.constexpr,
    BE: tl.constexpr,
    GAUSSIAN: tl.constexpr,
    DIRECT: tl.constexpr,
    EXACT: tl.constexpr,
    SPLIT: tl.constexpr,
    OWN: tl.constexpr,
    BIAS: tl.constexpr,
    MASK: tl.constexpr,
    LENS: tl.constexpr,
    EXCLUDE: tl.constexpr,
    BF: tl.constexpr,
    BS: tl.constexpr,
):
    """state (splits, batch, 2 + P, n): peak, mass and columns of every query, over every share of the keys.

    ``pairs``: fixed, stream, factor (1,), own (n,), n, shift (m,), how many are real, m, and the length of a row. A few
    columns (P, m) are summed in float32; more go through matrix products, high and low parts (2P, m) if EXACT.
    DIRECT: scores are at most 0 and need no peak, but for blocks with a query of tiny mass.
    """
    block, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    rows = block * BF + tl.arange(0, BF)
    pairs, who = product_of_batch(pairs, who, batches, shift_batch, batch, OWN, BIAS, MASK, LENS, EXCLUDE)
    columns += batch * columns_batch
    fixed = row_tiles(pairs[0], rows, pairs[9], EXACT, SPLIT, GAUSSIAN, BE)
    stop = pairs[7]
    if LENS:
        lengths = tl.load(who[6] + rows * who[7], mask=rows < pairs[6], other=0)
        stop = tl.minimum(stop, tl.max(lengths).to(tl.int32))
    peak, mass, total, many = sweep_product(
        pairs, who, columns, fixed, rows, split, splits, stop,
        P, BP, BE, GAUSSIAN, DIRECT, EXACT, SPLIT, OWN, BIAS, MASK, LENS, EXCLUDE, BF, BS,
    )  # fmt: skip
    if DIRECT:
        peak = tl.zeros_like(peak)
        if tl.min(tl.where((rows < pairs[6]) & (mass == mass), mass, 1.0)) < least:
            peak, mass, total, many = sweep_product(
                pairs, who, columns, fixed, rows, split, splits, stop,
                P, BP, BE, GAUSSIAN, False, EXACT, SPLIT, OWN, BIAS, MASK, LENS, EXCLUDE, BF, BS,
            )  # fmt: skip
    out = state + split.to(tl.int64) * state_split + batch * state_batch + rows
    tl.store(out, peak)
    tl.store(out + pairs[4], mass)
    p = tl.arange(0, BP if BP else 1)
    if BP:
        tl.store(out[:, None] + (2 + p)[None, :] * pairs[4], many, mask=(p < P)[None, :])
    else:
        for n in tl.static_range(P):
            tl.store(out + (2 + n) * pairs[4], total[n])


@triton.jit
def product_of_batch(
    pairs,
    who,
    batches,
    shift_batch,
    batch,
    OWN: tl.constexpr,
    BIAS: tl.constexpr,
    MASK: tl.constexpr,
    LENS: tl.constexpr,
    EXCLUDE: tl.constexpr,
):
    moved, who = of_batch(pairs, who, batches, batch, OWN, BIAS, MASK, LENS, EXCLUDE)
    shift = pairs[5] + batch * shift_batch
    return (moved[0], moved[1], moved[2], moved[3], moved[4], shift, moved[6], moved[7], pairs[8], pairs[9]), who
