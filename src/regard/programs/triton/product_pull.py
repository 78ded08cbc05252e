"""The adjoint pass of scores from matrix products: as ``triton_pull``, with sums over the stream from products too."""

# ruff: noqa: RUF005
# Triton has no unpacking into tuples.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.math import ex2, plus, zeros
from regard.programs.triton.product import halves, joined, product, product_of_batch, row_tiles, scores_of
from regard.programs.triton.tiles import label_range


@triton.jit
def pull_product(
    pairs,
    who,
    batches,
    shift_batch,
    features,
    features_batch,
    columns,
    columns_batch,
    level,
    level_batch,
    scale,
    grads,
    grads_split,
    grads_batch,
    splits,
    D: tl.constexpr,
    BD: tl.constexpr,
    P: tl.constexpr,
    BP: tl.constexpr,
    BE: tl.constexpr,
    GAUSSIAN: tl.constexpr,
    EXACT: tl.constexpr,
    SPLIT: tl.constexpr,
    MIRROR: tl.constexpr,
    BIAS: tl.constexpr,
    MASK: tl.constexpr,
    LENS: tl.constexpr,
    EXCLUDE: tl.constexpr,
    BF: tl.constexpr,
    BS: tl.constexpr,
):
    """Raw sums of the fixed side, as ``triton_pull``: grads are Σ slope·streamed (D), Σ slope (1), Σ weight·g (P).

    Features of the stream are in its rows if SPLIT, else (m, 2·D) high and low. Columns, of the fixed side and of the
    stream, are (P, ·) float32 if few, else (2P, ·) high and low parts whose products times ``scale`` (1,) count. Peaks
    are in the rows of a Gaussian score; elsewhere they are in ``own`` or ``shift``.
    """
    block, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    rows = block * BF + tl.arange(0, BF)
    pairs, who = product_of_batch(pairs, who, batches, shift_batch, batch, not GAUSSIAN, BIAS, MASK, LENS, EXCLUDE)
    features += batch * features_batch
    fixed_columns = columns[0] + batch * columns_batch[0]
    stream_columns = columns[1] + batch * columns_batch[1]
    level += batch * level_batch
    length = pairs[8]
    SUMS: tl.constexpr = 0 if BP else P
    fixed = row_tiles(pairs[0], rows, pairs[9], EXACT, SPLIT, GAUSSIAN, BE)
    low, high = label_range(who, rows, pairs[6], EXCLUDE)
    factor, own, to_slopes = 1.0, 0.0, 1.0
    if not GAUSSIAN:
        factor, own = tl.load(pairs[2]), tl.load(pairs[3] + rows)
    p, j = tl.arange(0, BP if BP else 1), tl.arange(0, BD)
    sides = tl.zeros([BF, BD], tl.float32)
    sums = tl.zeros([BF], tl.float32)
    values = zeros(SUMS if MIRROR else 0, BF, tl.float32)
    many = tl.zeros([BF, BP if BP else 1], tl.float32)
    held = ()
    for n in tl.static_range(SUMS):
        held = held + (tl.load(fixed_columns + n * pairs[4] + rows),)
    if BP:
        to_slopes = tl.load(scale)
        here = rows[:, None] + p[None, :] * pairs[4]
        one = tl.load(fixed_columns + here, mask=(p < P)[None, :], other=0.0)
        one_low = one
        if EXACT:
            one_low = tl.load(fixed_columns + P * pairs[4] + here, mask=(p < P)[None, :], other=0.0)
    stop = pairs[7]
    if LENS and not MIRROR:
        lengths = tl.load(who[6] + rows * who[7], mask=rows < pairs[6], other=0)
        stop = tl.minimum(stop, tl.max(lengths).to(tl.int32))
    for tile in range(split, (stop + BS - 1) // BS, splits):
        at = tile * BS + tl.arange(0, BS)
        stream = row_tiles(pairs[1], at, pairs[9], EXACT, SPLIT, GAUSSIAN, BE)
        score = scores_of(
            pairs, who, fixed, stream, factor, tile, rows, low, high,
            EXACT, SPLIT, GAUSSIAN, BIAS, MASK, LENS, EXCLUDE, MIRROR, BS,
        )  # fmt: skip
        if not GAUSSIAN:
            score += own[:, None]
        weight = ex2(score)
        if MIRROR:
            turn = tl.zeros([BF, BS], tl.float32) - tl.load(level + at)[None, :]
        else:
            turn = tl.zeros([BF, BS], tl.float32) - tl.load(level + rows)[:, None]
        for n in tl.static_range(SUMS):
            turn += held[n][:, None] * tl.load(stream_columns + n * length + at)[None, :]
        if BP:
            there = p[:, None] * length + at[None, :]
            other = tl.load(stream_columns + there, mask=(p < P)[:, None], other=0.0)
            if EXACT:
                other_low = tl.load(stream_columns + P * length + there, mask=(p < P)[:, None], other=0.0)
                turn += product(one, one_low, other, other_low) * to_slopes
            else:
                turn += tl.dot(one, other) * to_slopes
        slope = weight * turn
        sums += tl.sum(slope, 1)
        if SPLIT:
            feature, rest = stream[0], stream[1]
        else:
            where = features + at[:, None].to(tl.int64) * (2 * D) + j[None, :]
            feature = tl.load(where, mask=(j < D)[None, :], other=0.0)
            rest = tl.load(where + D, mask=(j < D)[None, :], other=0.0)
        if EXACT:
            first, second = halves(slope)
            sides = joined(sides, product(first, second, feature, rest))
        else:
            sides = joined(sides, tl.dot(slope.to(feature.dtype), feature))
        if MIRROR:
            larger = ()
            for n in tl.static_range(SUMS):
                larger = larger + (tl.sum(weight * tl.load(stream_columns + n * length + at)[None, :], 1),)
            values = plus(values, larger, SUMS)
            if BP:
                if EXACT:
                    first, second = halves(weight)
                    many = joined(many, product(first, second, tl.trans(other), tl.trans(other_low)))
                else:
                    many = joined(many, tl.dot(weight.to(other.dtype), tl.trans(other)))
    share = split.to(tl.int64)
    out = grads[0] + share * grads_split[0] + batch * grads_batch[0]
    tl.store(out + rows[:, None] + j[None, :] * pairs[4], sides, mask=(j < D)[None, :])
    tl.store(grads[1] + share * grads_split[1] + batch * grads_batch[1] + rows, sums)
    if MIRROR:
        out = grads[2] + share * grads_split[2] + batch * grads_batch[2] + rows
        if BP:
            tl.store(out[:, None] + p[None, :] * pairs[4], many, mask=(p < P)[None, :])
        else:
            for n in tl.static_range(SUMS):
                tl.store(out + n * pairs[4], values[n])
