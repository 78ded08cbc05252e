"""Attention moments on the GPU: peak, mass and columns of every query, for any score and mask.

Weights bounded by 1 (radial scores) are summed without a peak; a block with a query of tiny mass is done again with a
running peak. Sums are made in two stages, so that their rounding hardly grows with the number of keys.
"""

# ruff: noqa: RUF005, SIM102
# Triton has no unpacking into tuples, and takes "and" for a product of tensors.

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.tile_scores import (
    label_range,
    load_fixed,
    load_rows,
    member_tiles,
    stream_end,
    tile_pointers,
    tile_scores,
)
from regard.programs.triton.triton_math import ADDITIVE, BOXCAR, COSINE, added, ex2, kernel, scaled, zeros

# Tiles whose sums are added up before they join the total.
TILES_PER_RUN = tl.constexpr(16)


@triton.jit
def forward_tiles(operands, visibility, rows, split, splits, stop, BOUNDED: tl.constexpr, V: tl.constexpr):
    """Peak, mass and columns of one block of queries: a tuple of (BF,), or (product_columns, BF) by products."""
    REAL: tl.constexpr = operands.fixed.dtype.element_ty
    COMPACT: tl.constexpr = V.score >= BOXCAR and V.score <= COSINE
    D: tl.constexpr = V.features
    BP: tl.constexpr = V.product_columns
    SUMS: tl.constexpr = 0 if BP else V.columns
    BF: tl.constexpr = V.BF
    BS: tl.constexpr = V.BS
    features, coefs = load_fixed(operands, rows, V)
    low, high = label_range(operands, visibility, rows, V)
    peak = tl.full([BF], float("-inf"), REAL)
    mass = tl.zeros([BF], REAL)
    products = tl.zeros([BP if BP else 1, BF], tl.float32 if BP else REAL)
    total = zeros(SUMS, BF, REAL)
    tiles = (stop + BS - 1) // BS
    for run in range(split * TILES_PER_RUN, tiles, splits * TILES_PER_RUN):
        run_mass = tl.zeros([BF], REAL)
        run_total = zeros(SUMS, BF, REAL)
        following = ()
        if V.prefetch:
            following = load_rows(tile_pointers(operands, run, BS), D + 1 + SUMS, BS)
        for tile in range(run, tl.minimum(run + TILES_PER_RUN, tiles)):
            base = tile_pointers(operands, tile, BS)
            current = following
            if V.prefetch:
                following = load_rows(tile_pointers(operands, tl.minimum(tile + 1, tiles - 1), BS), D + 1 + SUMS, BS)
            sums, score = tile_scores(
                operands, visibility, features, coefs, base, current, tile, rows, low, high, not BOUNDED, V
            )
            if BOUNDED:
                weight = ex2(score)
                if COMPACT:
                    weight = kernel(sums, V.score) * weight
            else:
                if COMPACT:
                    score = tl.log2(kernel(sums, V.score)) + score
                top = tl.maximum(peak, tl.max(score, 0))
                level = tl.where(top == float("-inf"), 0.0, top)
                weight = ex2(score - level[None, :])
                shrink = ex2(peak - level)
                peak, mass, run_mass = top, mass * shrink, run_mass * shrink
                if BP:
                    products = products * shrink[None, :]
                total, run_total = scaled(total, shrink, SUMS), scaled(run_total, shrink, SUMS)
            run_mass += tl.sum(weight, 0)
            if BP:
                p = tl.arange(0, BP)
                value = tl.load(base[None, :] + (D + 1 + p)[:, None] * BS, mask=(p < V.columns)[:, None], other=0.0)
                products = tl.dot(value, weight, products, input_precision="tf32x3")
            larger = ()
            for n in tl.static_range(SUMS):
                if V.prefetch:
                    value = current[D + 1 + n]
                else:
                    value = tl.load(base + (D + 1 + n) * BS)
                larger = larger + (run_total[n] + tl.sum(weight * value[:, None], 0),)
            run_total = larger
        mass += run_mass
        total = added(total, run_total, SUMS)
    return peak, mass, total, products


@triton.jit
def forward(operands, visibility, strides, state, state_split, state_batch, splits, least, wide, V: tl.constexpr):
    """state (splits, batch, 2 + columns, length): peak, mass and columns of every query over each split of the keys."""
    if V.score >= ADDITIVE:
        # Three programs are launched for hidden units; ``wide``, on the device, selects the one that runs.
        if tl.load(wide) != V.score - ADDITIVE:
            return
    block, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    rows = block * V.BF + tl.arange(0, V.BF)
    operands, visibility = member_tiles(operands, visibility, strides, batch)
    stop = stream_end(operands, visibility, rows, V)
    peak, mass, total, products = forward_tiles(operands, visibility, rows, split, splits, stop, V.bounded, V)
    if V.bounded:
        peak = tl.zeros_like(peak)
        if V.redo:
            # A float argument arrives as a float32, whatever it was.
            HIGHER: tl.constexpr = 1.0 if operands.fixed.dtype.element_ty == tl.float32 else 2.0**864
            if tl.min(tl.where((rows < operands.fixed_count) & (mass == mass), mass, 1.0)) * HIGHER < least:
                peak, mass, total, products = forward_tiles(operands, visibility, rows, split, splits, stop, False, V)
    out = state + split.to(tl.int64) * state_split + batch * state_batch + rows
    tl.store(out, peak)
    tl.store(out + operands.length, mass)
    P: tl.constexpr = V.columns
    if V.product_columns:
        p = tl.arange(0, V.product_columns)
        tl.store(out[None, :] + (2 + p)[:, None] * operands.length, products, mask=(p < P)[:, None])
    else:
        for p in tl.static_range(P):
            tl.store(out + (2 + p) * operands.length, total[p])


@triton.jit
def merge_splits(
    state, state_split, state_batch, merged, output, logsumexp, count, length,
    SPLITS: tl.constexpr, P: tl.constexpr, BF: tl.constexpr,
):  # fmt: skip
    """Merge the splits: merged (batch, 2, n) peak and mass, output (batch, count, P), logsumexp (batch, count).

    *Empty rows*: output 0, logsumexp −inf, peak 0 and mass 0.
    """
    block, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    rows = block * BF + tl.arange(0, BF)
    first = state + batch * state_batch + rows
    peak = tl.full([BF], float("-inf"), state.dtype.element_ty)
    for split in range(SPLITS):
        peak = tl.maximum(peak, split_peak(first + split * state_split, length))
    level = tl.where(peak == float("-inf"), 0.0, peak)
    mass = tl.zeros([BF], state.dtype.element_ty)
    for split in range(SPLITS):
        here = first + split * state_split
        mass += tl.load(here + length) * tl.exp2(split_peak(here, length) - level)
    empty = mass == 0.0
    safe = tl.where(empty, 1.0, mass)
    tl.store(merged + batch * 2 * length + rows, level)
    tl.store(merged + batch * 2 * length + length + rows, mass)
    real = rows < count
    tl.store(
        logsumexp + batch * count + rows,
        tl.where(empty, float("-inf"), (level + tl.log2(safe)) * 0.6931471805599453),
        mask=real,
    )
    for p in range(P):
        total = tl.zeros([BF], state.dtype.element_ty)
        for split in range(SPLITS):
            here = first + split * state_split
            total += tl.load(here + (2 + p) * length) * tl.exp2(split_peak(here, length) - level)
        total = tl.where(empty, 0.0, total / safe)
        tl.store(output + (batch * count + rows) * P + p, total.to(output.dtype.element_ty), mask=real)


@triton.jit
def split_peak(state, length):
    """The peak of one split, −inf if it has no mass."""
    return tl.where(tl.load(state + length) == 0.0, float("-inf"), tl.load(state))
