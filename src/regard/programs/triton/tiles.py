"""What every Triton program says about one tile of pairs: scores, weights, their rates, and who may attend.

A tile is (stream, fixed): the fixed side lies along the threads and keeps its sums in registers, the streamed side is
walked through and lies inside a thread, so that sums over the stream cross no threads. Forward, queries are fixed and
keys stream; gradients of keys and values have it the other way round. Scores are in powers of two.

The fixed side lies feature by feature, (d, n). The stream lies tile by tile, (tiles, rows, BS), with everything a tile
needs in its rows: features, then what is added to its scores, then columns. A tile is then one address and constants.

Two tuples travel together. ``pairs``: fixed, stream, coefficients (d,) or (1,), what is added to the fixed side's
scores (n,), n, rows of a streamed tile, and how many of the fixed and of the streamed side are real. ``who``: bias
and its strides (stream, fixed), mask and its strides, valid lengths and their stride, labels of both sides, smallest
and largest label of each streamed tile.
"""

# ruff: noqa: RUF005, SIM102
# Triton has no unpacking into tuples, and takes "and" for a product of tensors.

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.math import (
    ADDITIVE,
    ADDITIVE_PAIRS,
    ADDITIVE_WIDE,
    BOXCAR,
    COSINE,
    DOT,
    LAPLACE,
    ex2,
    reciprocal,
    root,
)


@triton.jit
def of_batch(
    pairs,
    who,
    batches,
    batch,
    OWN: tl.constexpr,
    BIAS: tl.constexpr,
    MASK: tl.constexpr,
    LENS: tl.constexpr,
    EXCLUDE: tl.constexpr,
):
    """Both tuples with every pointer moved to one member of the batch."""
    own, bias, mask, lens = pairs[3], who[0], who[3], who[6]
    streamed, fixed, low, high = who[8], who[9], who[10], who[11]
    if OWN:
        own += batch * batches[2]
    if BIAS:
        bias += batch * batches[3]
    if MASK:
        mask += batch * batches[4]
    if LENS:
        lens += batch * batches[5]
    if EXCLUDE:
        streamed += batch * batches[6]
        fixed += batch * batches[7]
        low += batch * batches[8]
        high += batch * batches[8]
    moved = (
        pairs[0] + batch * batches[0], pairs[1] + batch * batches[1], pairs[2], own, pairs[4], pairs[5], pairs[6],
        pairs[7],
    )  # fmt: skip
    return moved, (bias, who[1], who[2], mask, who[4], who[5], lens, who[7], streamed, fixed, low, high)


@triton.jit
def held(pairs, rows, D: tl.constexpr, PER: tl.constexpr, STATIC: tl.constexpr):
    """What stays in registers: the fixed side's features and the coefficients; nothing where there are too many."""
    kept, coefs = (), ()
    if STATIC:
        for j in tl.static_range(D):
            kept = kept + (tl.load(pairs[0] + j * pairs[4] + rows),)
    if not PER:
        coefs = coefs + (tl.load(pairs[2]),)
    elif STATIC:
        for j in tl.static_range(D):
            coefs = coefs + (tl.load(pairs[2] + j),)
    return kept, coefs


@triton.jit
def tile_at(pairs, tile, BS: tl.constexpr):
    """Where the first row of a streamed tile lies; row j is j·BS further on."""
    return pairs[1] + tile * (tl.cast(pairs[5], tl.int64) * BS) + tl.arange(0, BS)


@triton.jit
def rows_of(here, N: tl.constexpr, BS: tl.constexpr):
    """The first N rows of a streamed tile."""
    out = ()
    for n in tl.static_range(N):
        out = out + (tl.load(here + n * BS),)
    return out


@triton.jit
def term_of(key, query, SCORE: tl.constexpr):
    if SCORE == DOT:
        return key[:, None] * query[None, :]
    else:
        difference = key[:, None] - query[None, :]
        return difference * difference


@triton.jit
def measure(
    pairs,
    kept,
    coefs,
    here,
    ahead,
    rows,
    SCORE: tl.constexpr,
    D: tl.constexpr,
    PER: tl.constexpr,
    STATIC: tl.constexpr,
    AHEAD: tl.constexpr,
    BS: tl.constexpr,
):
    """What the score is a function of: Σ(c)δ², Σ(c)ab, or Σ c/(1 + ab), (stream, fixed). With PER, c is in it."""
    if SCORE >= ADDITIVE:
        total = tl.zeros([BS, rows.shape[0]], pairs[0].dtype.element_ty)
        # Several units share a reciprocal: c/x + e/y = (c·y + e·x)/(x·y), and once over for four.
        STEP: tl.constexpr = 2 if SCORE == ADDITIVE_PAIRS else 4
        for h in range(0, D, STEP):
            x, y = denominator(pairs, here, h, rows, SCORE, BS), denominator(pairs, here, h + 1, rows, SCORE, BS)
            first, xy = tl.load(pairs[2] + h) * y + tl.load(pairs[2] + h + 1) * x, x * y
            if STEP == 4:
                z, t = (
                    denominator(pairs, here, h + 2, rows, SCORE, BS),
                    denominator(pairs, here, h + 3, rows, SCORE, BS),
                )
                second, zt = tl.load(pairs[2] + h + 2) * t + tl.load(pairs[2] + h + 3) * z, z * t
                first, xy = first * zt + second * xy, xy * zt
            total += first * reciprocal(xy)
    elif STATIC:
        for j in tl.static_range(D):
            if AHEAD:
                key = ahead[j]
            else:
                key = tl.load(here + j * BS)
            term = term_of(key, kept[j], SCORE)
            if PER:
                term = term * coefs[j]
            if j == 0:
                total = term
            else:
                total = total + term
    else:
        total = tl.zeros([BS, rows.shape[0]], pairs[0].dtype.element_ty)
        for j in range(D):
            term = term_of(tl.load(here + j * BS), tl.load(pairs[0] + j * pairs[4] + rows), SCORE)
            if PER:
                term = term * tl.load(pairs[2] + j)
            total += term
    return total


@triton.jit
def denominator(pairs, here, h, rows, SCORE: tl.constexpr, BS: tl.constexpr):
    """1 + exp(2(a + b)), from the exponentials of the two or, where those could overflow, from the sum itself."""
    # Addresses in two axes: what is read already lies as the tile does.
    a, b = tl.load(here + h * BS)[:, None], tl.load((pairs[0] + h * pairs[4] + rows)[None, :])
    if SCORE != ADDITIVE_WIDE:
        return a * b + 1.0
    else:
        # From 2^30 on 1/(1 + x) is nothing beside 1, and products of four such numbers still fit.
        LARGEST: tl.constexpr = 240.0 if a.dtype == tl.float64 else 30.0
        return ex2(tl.minimum((a + b) * 2.885390081777927, LARGEST)) + 1.0


@triton.jit
def tile_of(
    pairs,
    who,
    kept,
    coefs,
    here,
    ahead,
    tile,
    rows,
    low,
    high,
    SCORE: tl.constexpr,
    D: tl.constexpr,
    PER: tl.constexpr,
    STATIC: tl.constexpr,
    AHEAD: tl.constexpr,
    OWN: tl.constexpr,
    BIAS: tl.constexpr,
    MASK: tl.constexpr,
    LENS: tl.constexpr,
    EXCLUDE: tl.constexpr,
    MIRROR: tl.constexpr,
    CLIP: tl.constexpr,
    BS: tl.constexpr,
):
    """Two tiles: Σδ² (or u², for a compact kernel), and the score in powers of two, −inf where it may not attend.

    The score of a compact kernel is without log K: masks and sample weights only.
    """
    COMPACT: tl.constexpr = SCORE >= BOXCAR and SCORE <= COSINE
    at = tile * BS + tl.arange(0, BS)
    measured = measure(pairs, kept, coefs, here, ahead, rows, SCORE, D, PER, STATIC, AHEAD, BS)
    if AHEAD:
        score = ahead[D][:, None]
    else:
        score = tl.load(here + D * BS)[:, None]
    if OWN:
        score = score + tl.load(pairs[3] + rows)[None, :]
    if BIAS:
        inside = (at < pairs[7])[:, None] & (rows < pairs[6])[None, :]
        where = at[:, None].to(tl.int64) * who[1] + rows[None, :].to(tl.int64) * who[2]
        score = score + tl.load(who[0] + where, mask=inside, other=0.0).to(measured.dtype) * 1.4426950408889634
    scaled = measured
    if not PER:
        scaled = measured * coefs[0]
    if CLIP and SCORE <= LAPLACE:
        # Beyond the largest number distances cannot be told apart, but somebody may still attend.
        LARGEST: tl.constexpr = 1.7e308 if scaled.dtype == tl.float64 else 3.0e38
        scaled = tl.minimum(scaled, LARGEST, propagate_nan=tl.PropagateNan.ALL)
    if COMPACT:
        measured = scaled
        if MASK or LENS or EXCLUDE:
            score = score + tl.zeros_like(scaled)
    elif SCORE == DOT or SCORE >= ADDITIVE:
        score = score + scaled
    elif SCORE == LAPLACE:
        score = score - root(scaled)
    else:
        score = score - scaled
    score = hide(score, pairs, who, at, tile, rows, low, high, MASK, LENS, EXCLUDE, MIRROR)
    return measured, score


@triton.jit
def label_range(who, rows, count, EXCLUDE: tl.constexpr):
    """Smallest and largest label of the fixed side."""
    if EXCLUDE:
        real = rows < count
        some = tl.load(who[9] + rows, mask=real, other=0).to(tl.int64)
        edge = tl.full(rows.shape, 9223372036854775807, tl.int64)
        return tl.min(tl.where(real, some, edge)), tl.max(tl.where(real, some, -edge))
    else:
        return 0, 0


@triton.jit
def hide(
    score,
    pairs,
    who,
    at,
    tile,
    rows,
    low,
    high,
    MASK: tl.constexpr,
    LENS: tl.constexpr,
    EXCLUDE: tl.constexpr,
    MIRROR: tl.constexpr,
):
    """Scores with −inf wherever a pair may not attend, whatever stood there."""
    if MASK:
        inside = (at < pairs[7])[:, None] & (rows < pairs[6])[None, :]
        where = at[:, None].to(tl.int64) * who[4] + rows[None, :].to(tl.int64) * who[5]
        score = tl.where(tl.load(who[3] + where, mask=inside, other=0) != 0, score, float("-inf"))
    if LENS:
        if MIRROR:
            lengths = tl.load(who[6] + at * who[7], mask=at < pairs[7], other=0)
            score = tl.where(rows[None, :] < lengths[:, None], score, float("-inf"))
        else:
            lengths = tl.load(who[6] + rows * who[7], mask=rows < pairs[6], other=0)
            score = tl.where(at[:, None] < lengths[None, :], score, float("-inf"))
    if EXCLUDE:
        # Labels mostly come in order: few tiles can hold an equal pair, and only those look.
        if (tl.load(who[10] + tile) <= high) & (tl.load(who[11] + tile) >= low):
            streamed = tl.load(who[8] + at, mask=at < pairs[7], other=0)
            fixed = tl.load(who[9] + rows, mask=rows < pairs[6], other=0)
            score = tl.where(streamed[:, None] == fixed[None, :], float("-inf"), score)
    return score
