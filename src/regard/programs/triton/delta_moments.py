"""Attention moments with products of δ = key − query: a second pass, once the peaks are known.

Each tile's sums are added to memory that only this program touches: δ, columns·δ, and the upper triangle of δδᵀ. The
features that δ is a difference of may be others than those of the score (a matrix w projects them): ``delta`` on the
fixed side, and rows from delta_row on in the stream.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.tile_scores import (
    delta_feature,
    label_range,
    load_fixed,
    member_tiles,
    tile_pointers,
    tile_scores,
)
from regard.programs.triton.triton_math import BOXCAR, COSINE, ex2, kernel


@triton.jit
def delta_moments(
    operands, visibility, strides, delta, delta_batch, moments, moments_split, moments_batch, splits, V: tl.constexpr
):  # fmt: skip
    """moments (splits, batch, products, length): Σ weight·φ relative to each query's peak."""
    block, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    rows = block * V.BF + tl.arange(0, V.BF)
    operands, visibility = member_tiles(operands, visibility, strides, batch)
    delta += batch * delta_batch
    out = moments + split.to(tl.int64) * moments_split + batch * moments_batch + rows
    features, coefs = load_fixed(operands, rows, V)
    low, high = label_range(operands, visibility, rows, V)
    BS: tl.constexpr = V.BS
    P: tl.constexpr = V.columns
    N: tl.constexpr = V.delta_features
    for tile in range(split, (operands.stream_count + BS - 1) // BS, splits):
        base = tile_pointers(operands, tile, BS)
        sums, score = tile_scores(operands, visibility, features, coefs, base, (), tile, rows, low, high, False, V)
        weight = ex2(score)
        if V.score >= BOXCAR and V.score <= COSINE:
            weight = kernel(sums, V.score) * weight
        for a in range(N):
            moved = weight * delta_feature(operands, delta, base, a, rows, V)
            place = out + a * operands.length
            tl.store(place, tl.load(place) + tl.sum(moved, 0))
            for p in range(P):
                column = tl.load(base + (V.features + 1 + p) * BS)[:, None]
                place = out + (N + p * N + a) * operands.length
                tl.store(place, tl.load(place) + tl.sum(moved * column, 0))
            if V.degree == 2:
                triangle = N + P * N + a * N - a * (a - 1) // 2
                for b in range(a, N):
                    second = delta_feature(operands, delta, base, b, rows, V)
                    place = out + (triangle + b - a) * operands.length
                    tl.store(place, tl.load(place) + tl.sum(moved * second, 0))
