"""Scores of one tile of pairs by differences of features, and which pairs of it may attend.

A tile is (stream, fixed): the fixed side is distributed over the threads and keeps its sums in registers; the streamed
side is within a thread, so that sums over the stream cross no threads. Scores are in powers of two.

The fixed side is stored feature by feature, (features, length). The stream is stored tile by tile, (tiles, rows, BS),
with everything that a tile needs in its rows: features, then what is added to its scores, then columns. A tile is then
one address plus constants.
"""

# ruff: noqa: RUF005, SIM102
# Triton has no unpacking into tuples, and takes "and" for a product of tensors.

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.program_arguments import TileOperands, VisibilityPointers
from regard.programs.triton.triton_math import (
    ADDITIVE,
    ADDITIVE_PAIRS,
    ADDITIVE_WIDE,
    BOXCAR,
    COSINE,
    DOT,
    LAPLACE,
    ex2,
    reciprocal,
    square_root,
)


@triton.jit
def member_tiles(operands, visibility, strides, batch):
    """Operands and visibility with every pointer moved to one member of the batch."""
    fixed_shift = operands.fixed_shift + batch * strides.fixed_shift
    visibility = member_visibility(visibility, strides, batch)
    operands = TileOperands(
        operands.fixed + batch * strides.fixed, operands.stream + batch * strides.stream, operands.coef, fixed_shift,
        operands.length, operands.tile_rows, operands.fixed_count, operands.stream_count,
    )  # fmt: skip
    return operands, visibility


@triton.jit
def member_visibility(visibility, strides, batch):
    """Visibility with every pointer moved to one member of the batch; the compiler drops those that are not used."""
    return VisibilityPointers(
        visibility.bias + batch * strides.bias, visibility.bias_stream, visibility.bias_fixed,
        visibility.mask + batch * strides.mask, visibility.mask_stream, visibility.mask_fixed,
        visibility.lens + batch * strides.lens, visibility.lens_stride,
        visibility.stream_labels + batch * strides.stream_labels,
        visibility.fixed_labels + batch * strides.fixed_labels,
        visibility.lowest_labels + batch * strides.tile_labels,
        visibility.highest_labels + batch * strides.tile_labels,
    )  # fmt: skip


@triton.jit
def stream_end(operands, visibility, rows, V: tl.constexpr):
    """How many rows of the stream a block of the fixed side has to go through."""
    stop = operands.stream_count
    if V.lens and not V.mirror:
        lengths = tl.load(visibility.lens + rows * visibility.lens_stride, mask=rows < operands.fixed_count, other=0)
        stop = tl.minimum(stop, tl.max(lengths).to(tl.int32))
    return stop


@triton.jit
def load_fixed(operands, rows, V: tl.constexpr):
    """What stays in registers: the fixed side's features and the coefficients; nothing if there are too many."""
    D: tl.constexpr = V.features
    features, coefs = (), ()
    if V.unrolled:
        for j in tl.static_range(D):
            features = features + (tl.load(operands.fixed + j * operands.length + rows),)
    if not V.per_feature:
        coefs = coefs + (tl.load(operands.coef),)
    elif V.unrolled:
        for j in tl.static_range(D):
            coefs = coefs + (tl.load(operands.coef + j),)
    return features, coefs


@triton.jit
def tile_pointers(operands, tile, BS: tl.constexpr):
    """Pointers to the first row of a streamed tile; row j is j·BS further on."""
    return operands.stream + tile * (tl.cast(operands.tile_rows, tl.int64) * BS) + tl.arange(0, BS)


@triton.jit
def load_rows(base, N: tl.constexpr, BS: tl.constexpr):
    """The first N rows of a streamed tile."""
    out = ()
    for n in tl.static_range(N):
        out = out + (tl.load(base + n * BS),)
    return out


@triton.jit
def pair_term(streamed, fixed, SCORE: tl.constexpr):
    if SCORE == DOT:
        return streamed[:, None] * fixed[None, :]
    else:
        difference = streamed[:, None] - fixed[None, :]
        return difference * difference


@triton.jit
def pair_sums(operands, features, coefs, base, prefetched, rows, V: tl.constexpr):
    """What a score is a function of, (stream, fixed): Σ(c)δ², Σ(c)ab, or Σ c/(1 + ab).

    Coefficients c are included if every feature has its own.
    """
    D: tl.constexpr = V.features
    BS: tl.constexpr = V.BS
    SCORE: tl.constexpr = V.score
    if SCORE >= ADDITIVE:
        total = tl.zeros([BS, rows.shape[0]], operands.fixed.dtype.element_ty)
        # Several units share a reciprocal: c/x + e/y = (c·y + e·x)/(x·y), and likewise for four.
        STEP: tl.constexpr = 2 if SCORE == ADDITIVE_PAIRS else 4
        for h in range(0, D, STEP):
            x, y = denominator(operands, base, h, rows, SCORE, BS), denominator(operands, base, h + 1, rows, SCORE, BS)
            first, xy = tl.load(operands.coef + h) * y + tl.load(operands.coef + h + 1) * x, x * y
            if STEP == 4:
                z, t = (
                    denominator(operands, base, h + 2, rows, SCORE, BS),
                    denominator(operands, base, h + 3, rows, SCORE, BS),
                )
                second, zt = tl.load(operands.coef + h + 2) * t + tl.load(operands.coef + h + 3) * z, z * t
                first, xy = first * zt + second * xy, xy * zt
            total += first * reciprocal(xy)
    elif V.unrolled:
        for j in tl.static_range(D):
            if V.prefetch:
                streamed = prefetched[j]
            else:
                streamed = tl.load(base + j * BS)
            term = pair_term(streamed, features[j], SCORE)
            if V.per_feature:
                term = term * coefs[j]
            if j == 0:
                total = term
            else:
                total = total + term
    else:
        total = tl.zeros([BS, rows.shape[0]], operands.fixed.dtype.element_ty)
        for j in range(D):
            term = pair_term(tl.load(base + j * BS), tl.load(operands.fixed + j * operands.length + rows), SCORE)
            if V.per_feature:
                term = term * tl.load(operands.coef + j)
            total += term
    return total


@triton.jit
def denominator(operands, base, h, rows, SCORE: tl.constexpr, BS: tl.constexpr):
    """1 + exp(2(a + b)) of hidden unit h."""
    # Addresses in two axes: what is read already has the layout of the tile.
    a, b = tl.load(base + h * BS)[:, None], tl.load((operands.fixed + h * operands.length + rows)[None, :])
    return one_plus_exp(a, b, SCORE)


@triton.jit
def one_plus_exp(a, b, SCORE: tl.constexpr):
    """1 + exp(2(a + b)), from the exponentials of the two or, where those could overflow, from the sum itself."""
    if SCORE != ADDITIVE_WIDE:
        return a * b + 1.0
    else:
        # From 2^30 on 1/(1 + x) is negligible beside 1, and products of four such numbers do not overflow.
        LARGEST: tl.constexpr = 240.0 if a.dtype == tl.float64 else 30.0
        return ex2(tl.minimum((a + b) * 2.885390081777927, LARGEST)) + 1.0


@triton.jit
def tile_scores(
    operands, visibility, features, coefs, base, prefetched, tile, rows, low, high, CLIP: tl.constexpr, V: tl.constexpr
):  # fmt: skip
    """Two tiles: Σδ² (or u², for a compact kernel), and the score in powers of two, −inf if a pair may not attend.

    The score of a compact kernel is without log K: masks and sample weights only.
    """
    D: tl.constexpr = V.features
    SCORE: tl.constexpr = V.score
    COMPACT: tl.constexpr = SCORE >= BOXCAR and SCORE <= COSINE
    stream_rows = tile * V.BS + tl.arange(0, V.BS)
    sums = pair_sums(operands, features, coefs, base, prefetched, rows, V)
    if V.prefetch:
        score = prefetched[D][:, None]
    else:
        score = tl.load(base + D * V.BS)[:, None]
    if V.fixed_shift:
        score = score + tl.load(operands.fixed_shift + rows)[None, :]
    if V.bias:
        score = score + load_bias(operands, visibility, stream_rows, rows, sums.dtype)
    scaled = sums
    if not V.per_feature:
        scaled = sums * coefs[0]
    if CLIP and SCORE <= LAPLACE:
        # Beyond the largest number distances cannot be distinguished, but a query may still attend.
        LARGEST: tl.constexpr = 1.7e308 if scaled.dtype == tl.float64 else 3.0e38
        scaled = tl.minimum(scaled, LARGEST, propagate_nan=tl.PropagateNan.ALL)
    if COMPACT:
        sums = scaled
        if V.mask or V.lens or V.exclude:
            score = score + tl.zeros_like(scaled)
    elif SCORE == DOT or SCORE >= ADDITIVE:
        score = score + scaled
    elif SCORE == LAPLACE:
        score = score - square_root(scaled)
    else:
        score = score - scaled
    score = hide(score, operands, visibility, stream_rows, tile, rows, low, high, V)
    return sums, score


@triton.jit
def delta_feature(operands, fixed, base, j, rows, V: tl.constexpr):
    """Feature j of δ, streamed − fixed, (stream, fixed); ``fixed`` points at the fixed side's features of δ."""
    return tl.load(base + (V.delta_row + j) * V.BS)[:, None] - tl.load(fixed + j * operands.length + rows)[None, :]


@triton.jit
def load_bias(operands, visibility, stream_rows, rows, REAL: tl.constexpr):
    """What a bias adds to scores (stream, fixed), in powers of two."""
    inside = (stream_rows < operands.stream_count)[:, None] & (rows < operands.fixed_count)[None, :]
    where = (
        stream_rows[:, None].to(tl.int64) * visibility.bias_stream + rows[None, :].to(tl.int64) * visibility.bias_fixed
    )
    return tl.load(visibility.bias + where, mask=inside, other=0.0).to(REAL) * 1.4426950408889634


@triton.jit
def label_range(operands, visibility, rows, V: tl.constexpr):
    """Smallest and largest label of a block of the fixed side."""
    if V.exclude:
        real = rows < operands.fixed_count
        labels = tl.load(visibility.fixed_labels + rows, mask=real, other=0).to(tl.int64)
        edge = tl.full(rows.shape, 9223372036854775807, tl.int64)
        return tl.min(tl.where(real, labels, edge)), tl.max(tl.where(real, labels, -edge))
    else:
        return 0, 0


@triton.jit
def hide(score, operands, visibility, stream_rows, tile, rows, low, high, V: tl.constexpr):
    """Scores (stream, fixed) with −inf wherever a pair may not attend, NaN included."""
    if V.mask:
        inside = (stream_rows < operands.stream_count)[:, None] & (rows < operands.fixed_count)[None, :]
        where = (
            stream_rows[:, None].to(tl.int64) * visibility.mask_stream
            + rows[None, :].to(tl.int64) * visibility.mask_fixed
        )
        score = tl.where(tl.load(visibility.mask + where, mask=inside, other=0) != 0, score, float("-inf"))
    if V.lens:
        if V.mirror:
            inside = stream_rows < operands.stream_count
            lengths = tl.load(visibility.lens + stream_rows * visibility.lens_stride, mask=inside, other=0)
            score = tl.where(rows[None, :] < lengths[:, None], score, float("-inf"))
        else:
            lengths = tl.load(
                visibility.lens + rows * visibility.lens_stride, mask=rows < operands.fixed_count, other=0
            )
            score = tl.where(stream_rows[:, None] < lengths[None, :], score, float("-inf"))
    if V.exclude:
        # Labels mostly come in order: few tiles can hold an equal pair, and only those compare labels.
        if (tl.load(visibility.lowest_labels + tile) <= high) & (tl.load(visibility.highest_labels + tile) >= low):
            streamed = tl.load(
                visibility.stream_labels + stream_rows, mask=stream_rows < operands.stream_count, other=0
            )
            fixed = tl.load(visibility.fixed_labels + rows, mask=rows < operands.fixed_count, other=0)
            score = tl.where(streamed[:, None] == fixed[None, :], float("-inf"), score)
    return score
