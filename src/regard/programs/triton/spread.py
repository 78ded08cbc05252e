"""Attention moments with products of δ = key − query: the second pass, when the peaks are known.

Each tile's sums are added to rows that only this program touches: δ (DD), columns·δ (P·DD), δδᵀ (upper triangle).
The features that δ is of may be others than those of the score (a matrix w projects them): ``apart``, and rows from
ROW on.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.math import BOXCAR, COSINE, ex2, kernel
from regard.programs.triton.tiles import held, label_range, of_batch, tile_at, tile_of


@triton.jit
def spread(
    pairs,
    who,
    batches,
    apart,
    apart_batch,
    moments,
    moments_split,
    moments_batch,
    splits,
    SCORE: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    DEGREE: tl.constexpr,
    DD: tl.constexpr,
    ROW: tl.constexpr,
    PER: tl.constexpr,
    STATIC: tl.constexpr,
    BIAS: tl.constexpr,
    MASK: tl.constexpr,
    LENS: tl.constexpr,
    EXCLUDE: tl.constexpr,
    BF: tl.constexpr,
    BS: tl.constexpr,
):
    """moments (splits, batch, rows, n): Σ weight·φ relative to each query's peak."""
    block, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    rows = block * BF + tl.arange(0, BF)
    pairs, who = of_batch(pairs, who, batches, batch, True, BIAS, MASK, LENS, EXCLUDE)
    apart += batch * apart_batch
    place = moments + split.to(tl.int64) * moments_split + batch * moments_batch + rows
    kept, coefs = held(pairs, rows, D, PER, STATIC)
    low, high = label_range(who, rows, pairs[6], EXCLUDE)
    for tile in range(split, (pairs[7] + BS - 1) // BS, splits):
        here = tile_at(pairs, tile, BS)
        measured, score = tile_of(
            pairs, who, kept, coefs, here, (), tile, rows, low, high,
            SCORE, D, PER, STATIC, False, True, BIAS, MASK, LENS, EXCLUDE, False, False, BS,
        )  # fmt: skip
        weight = ex2(score)
        if SCORE >= BOXCAR and SCORE <= COSINE:
            weight = kernel(measured, SCORE) * weight
        for a in range(DD):
            first = tl.load(here + (ROW + a) * BS)[:, None] - tl.load(apart + a * pairs[4] + rows)[None, :]
            moved = weight * first
            at = place + a * pairs[4]
            tl.store(at, tl.load(at) + tl.sum(moved, 0))
            for p in range(P):
                column = tl.load(here + (D + 1 + p) * BS)[:, None]
                at = place + (DD + p * DD + a) * pairs[4]
                tl.store(at, tl.load(at) + tl.sum(moved * column, 0))
            if DEGREE == 2:
                triangle = DD + P * DD + a * DD - a * (a - 1) // 2
                for b in range(a, DD):
                    second = tl.load(here + (ROW + b) * BS)[:, None] - tl.load(apart + b * pairs[4] + rows)[None, :]
                    at = place + (triangle + b - a) * pairs[4]
                    tl.store(at, tl.load(at) + tl.sum(moved * second, 0))
