"""Attention moments on the GPU: peak, mass and columns of every query, for any score and mask.

Weights bounded by 1 (radial scores) run without a peak; a block with a query of tiny mass is done again with a running
peak. Sums are made in two stages, so that their rounding hardly grows with the keys.
"""

# ruff: noqa: RUF005, SIM102
# Triton has no unpacking into tuples, and takes "and" for a product of tensors.

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.math import ADDITIVE, BOXCAR, COSINE, ex2, kernel, plus, scaled, zeros
from regard.programs.triton.tiles import held, label_range, of_batch, rows_of, tile_at, tile_of

# Tiles whose sums are added up before they join the total.
RUN = tl.constexpr(16)


@triton.jit
def sweep(
    pairs,
    who,
    rows,
    split,
    splits,
    stop,
    SCORE: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    BP: tl.constexpr,
    PER: tl.constexpr,
    STATIC: tl.constexpr,
    AHEAD: tl.constexpr,
    DIRECT: tl.constexpr,
    OWN: tl.constexpr,
    BIAS: tl.constexpr,
    MASK: tl.constexpr,
    LENS: tl.constexpr,
    EXCLUDE: tl.constexpr,
    PRECISION: tl.constexpr,
    BF: tl.constexpr,
    BS: tl.constexpr,
):
    """Peak, mass and columns of one block of queries: a tuple of (BF,), or (BP, BF) from products if BP."""
    REAL: tl.constexpr = pairs[0].dtype.element_ty
    COMPACT: tl.constexpr = SCORE >= BOXCAR and SCORE <= COSINE
    SUMS: tl.constexpr = 0 if BP else P
    kept, coefs = held(pairs, rows, D, PER, STATIC)
    low, high = label_range(who, rows, pairs[6], EXCLUDE)
    peak = tl.full([BF], float("-inf"), REAL)
    mass = tl.zeros([BF], REAL)
    many = tl.zeros([BP if BP else 1, BF], tl.float32 if BP else REAL)
    total = zeros(SUMS, BF, REAL)
    tiles = (stop + BS - 1) // BS
    for run in range(split * RUN, tiles, splits * RUN):
        run_mass = tl.zeros([BF], REAL)
        run_total = zeros(SUMS, BF, REAL)
        ahead = ()
        if AHEAD:
            ahead = rows_of(tile_at(pairs, run, BS), D + 1 + SUMS, BS)
        for tile in range(run, tl.minimum(run + RUN, tiles)):
            here = tile_at(pairs, tile, BS)
            now = ahead
            if AHEAD:
                ahead = rows_of(tile_at(pairs, tl.minimum(tile + 1, tiles - 1), BS), D + 1 + SUMS, BS)
            measured, score = tile_of(
                pairs, who, kept, coefs, here, now, tile, rows, low, high,
                SCORE, D, PER, STATIC, AHEAD, OWN, BIAS, MASK, LENS, EXCLUDE, False, not DIRECT, BS,
            )  # fmt: skip
            if DIRECT:
                weight = ex2(score)
                if COMPACT:
                    weight = kernel(measured, SCORE) * weight
            else:
                if COMPACT:
                    score = tl.log2(kernel(measured, SCORE)) + score
                top = tl.maximum(peak, tl.max(score, 0))
                level = tl.where(top == float("-inf"), 0.0, top)
                weight = ex2(score - level[None, :])
                shrink = ex2(peak - level)
                peak, mass, run_mass = top, mass * shrink, run_mass * shrink
                if BP:
                    many = many * shrink[None, :]
                total, run_total = scaled(total, shrink, SUMS), scaled(run_total, shrink, SUMS)
            run_mass += tl.sum(weight, 0)
            if BP:
                p = tl.arange(0, BP)
                value = tl.load(here[None, :] + (D + 1 + p)[:, None] * BS, mask=(p < P)[:, None], other=0.0)
                many = tl.dot(value, weight, many, input_precision=PRECISION)
            larger = ()
            for n in tl.static_range(SUMS):
                if AHEAD:
                    value = now[D + 1 + n]
                else:
                    value = tl.load(here + (D + 1 + n) * BS)
                larger = larger + (run_total[n] + tl.sum(weight * value[:, None], 0),)
            run_total = larger
        mass += run_mass
        total = plus(total, run_total, SUMS)
    return peak, mass, total, many


@triton.jit
def attend(
    pairs,
    who,
    batches,
    state,
    state_split,
    state_batch,
    splits,
    least,
    wide,
    SCORE: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    BP: tl.constexpr,
    PER: tl.constexpr,
    STATIC: tl.constexpr,
    AHEAD: tl.constexpr,
    DIRECT: tl.constexpr,
    REDO: tl.constexpr,
    OWN: tl.constexpr,
    BIAS: tl.constexpr,
    MASK: tl.constexpr,
    LENS: tl.constexpr,
    EXCLUDE: tl.constexpr,
    PRECISION: tl.constexpr,
    BF: tl.constexpr,
    BS: tl.constexpr,
):
    """state (splits, batch, 2 + P, n): peak, mass and columns of every query, over every share of the keys."""
    if SCORE >= ADDITIVE:
        # Three programs are launched for hidden units, and the device knows which of them is meant.
        if tl.load(wide) != SCORE - ADDITIVE:
            return
    block, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    rows = block * BF + tl.arange(0, BF)
    pairs, who = of_batch(pairs, who, batches, batch, OWN, BIAS, MASK, LENS, EXCLUDE)
    stop = pairs[7]
    if LENS:
        lengths = tl.load(who[6] + rows * who[7], mask=rows < pairs[6], other=0)
        stop = tl.minimum(stop, tl.max(lengths).to(tl.int32))
    peak, mass, total, many = sweep(
        pairs, who, rows, split, splits, stop,
        SCORE, D, P, BP, PER, STATIC, AHEAD, DIRECT, OWN, BIAS, MASK, LENS, EXCLUDE, PRECISION, BF, BS,
    )  # fmt: skip
    if DIRECT:
        peak = tl.zeros_like(peak)
        if REDO:
            # A number that is passed comes as a float32, whatever it was.
            HIGHER: tl.constexpr = 1.0 if pairs[0].dtype.element_ty == tl.float32 else 2.0**864
            if tl.min(tl.where((rows < pairs[6]) & (mass == mass), mass, 1.0)) * HIGHER < least:
                peak, mass, total, many = sweep(
                    pairs, who, rows, split, splits, stop,
                    SCORE, D, P, BP, PER, STATIC, AHEAD, False, OWN, BIAS, MASK, LENS, EXCLUDE, PRECISION, BF, BS,
                )  # fmt: skip
    out = state + split.to(tl.int64) * state_split + batch * state_batch + rows
    tl.store(out, peak)
    tl.store(out + pairs[4], mass)
    if BP:
        p = tl.arange(0, BP)
        tl.store(out[None, :] + (2 + p)[:, None] * pairs[4], many, mask=(p < P)[:, None])
    else:
        for p in tl.static_range(P):
            tl.store(out + (2 + p) * pairs[4], total[p])


@triton.jit
def finish(
    state, state_split, state_batch, merged, output, logsumexp, count, length,
    SPLITS: tl.constexpr, P: tl.constexpr, BF: tl.constexpr,
):  # fmt: skip
    """Merge the shares: merged (batch, 2, n) peak and mass, output (batch, count, P), logsumexp (batch, count).

    *Empty rows*: output 0, logsumexp −inf, peak 0 and mass 0.
    """
    block, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    rows = block * BF + tl.arange(0, BF)
    at = state + batch * state_batch + rows
    peak = tl.full([BF], float("-inf"), state.dtype.element_ty)
    for split in range(SPLITS):
        peak = tl.maximum(peak, share(at + split * state_split, length))
    level = tl.where(peak == float("-inf"), 0.0, peak)
    mass = tl.zeros([BF], state.dtype.element_ty)
    for split in range(SPLITS):
        mass += tl.load(at + split * state_split + length) * tl.exp2(share(at + split * state_split, length) - level)
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
            here = at + split * state_split
            total += tl.load(here + (2 + p) * length) * tl.exp2(share(here, length) - level)
        total = tl.where(empty, 0.0, total / safe)
        tl.store(output + (batch * count + rows) * P + p, total.to(output.dtype.element_ty), mask=real)


@triton.jit
def share(at, length):
    """The peak of one share, −inf where it has no mass."""
    return tl.where(tl.load(at + length) == 0.0, float("-inf"), tl.load(at))
