"""Both passes of additive scores with the hidden units of a pair in registers: each unit is computed once.

Lanes are (units, rows): L = unit_lanes lanes share a pair and have U = features/L units each; a lane has R rows of the
fixed side. The stream goes by one row at a time; a score is summed over L lanes, all else within a lane. Sums over a
run of streamed rows are then added to memory that only this program touches, as in ``backward``.
"""

# ruff: noqa: RUF005
# Triton has no unpacking into tuples.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.backward import member_columns, member_sums
from regard.programs.triton.tile_scores import (
    hide,
    label_range,
    load_bias,
    member_tiles,
    one_plus_exp,
    stream_end,
)
from regard.programs.triton.triton_math import ADDITIVE_WIDE, added, ex2, reciprocal

LANES_PER_WARP = tl.constexpr(32)
# Streamed rows whose sums are added up before they join the total.
ROWS_PER_RUN = tl.constexpr(128)


@triton.jit
def load_four(pointers):
    """Four consecutive numbers from every lane's pointer on, read at once."""
    row = tl.load(pointers[:, :, None] + tl.arange(0, 4)[None, None, :])
    even, odd = tl.split(tl.reshape(row, [pointers.shape[0], pointers.shape[1], 2, 2]))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def load_consecutive(pointers, N: tl.constexpr):
    """The first N numbers from every lane's pointer on, a tuple; rows are padded to multiples of four."""
    out = ()
    for n in tl.static_range(0, N, 4):
        out = out + load_four(pointers + n)
    return out


@triton.jit
def zeros_like(N: tl.constexpr, like):
    out = ()
    for _ in tl.static_range(N):
        out = out + (tl.zeros_like(like),)
    return out


@triton.jit
def lane_rows(block, i, V: tl.constexpr):
    """Row i of every lane, (lanes,)."""
    FL: tl.constexpr = LANES_PER_WARP // V.unit_lanes
    return block * V.BF + i * FL + tl.arange(0, FL)


@triton.jit
def hidden_units(streamed, features, coefs, i: tl.constexpr, U: tl.constexpr, SCORE: tl.constexpr):
    """Row i's r = 1/(1 + exp(2(a + b))), a tuple, and its score Σ c·r (1, rows). Two units share a reciprocal."""
    r = ()
    total = tl.zeros_like(coefs[0])
    for u in tl.static_range(0, U, 2):
        x = one_plus_exp(streamed[u], features[i * U + u], SCORE)
        if u + 1 < U:
            y = one_plus_exp(streamed[u + 1], features[i * U + u + 1], SCORE)
            both = reciprocal(x * y)
            r = r + (y * both, x * both)
            total += coefs[u] * r[u]
            total += coefs[u + 1] * r[u + 1]
        else:
            r = r + (reciprocal(x),)
            total += coefs[u] * r[u]
    return r, tl.sum(total, 0)[None, :]


@triton.jit
def visible_scores(score, operands, visibility, stream_row, tile, rows, low, high, V: tl.constexpr):
    """Scores (1, rows) with what a bias adds, −inf if a pair may not attend."""
    if V.bias:
        score += load_bias(operands, visibility, stream_row, rows, score.dtype)
    return hide(score, operands, visibility, stream_row, tile, rows, low, high, V)


@triton.jit
def load_units(operands, fixed, block, BACKWARD: tl.constexpr, V: tl.constexpr):
    """Coefficients (U), features (R·U) and shifts (R) of a block of the fixed side, and the units' numbers.

    For the backward pass also columns (R·P) and, unless mirrored, levels (R).
    """
    L: tl.constexpr = V.unit_lanes
    FL: tl.constexpr = LANES_PER_WARP // L
    R: tl.constexpr = V.BF // FL
    U: tl.constexpr = V.features // L
    units = (U * tl.arange(0, L))[:, None] + tl.zeros([L, FL], tl.int32)
    P: tl.constexpr = V.columns
    features, shifts, coefs, columns, levels = (), (), (), (), ()
    for u in tl.static_range(U):
        coefs = coefs + (tl.load(operands.coef + u + units),)
    for i in tl.static_range(R):
        rows = lane_rows(block, i, V)
        shift = tl.zeros([1, FL], coefs[0].dtype)
        if V.fixed_shift:
            shift = tl.load(operands.fixed_shift + rows[None, :])
        shifts = shifts + (shift,)
        if BACKWARD:
            if not V.mirror:
                levels = levels + (tl.load(fixed.level + rows[None, :]),)
            for n in tl.static_range(P):
                columns = columns + (tl.load(fixed.columns + n * operands.length + rows[None, :]),)
        for u in tl.static_range(U):
            features = features + (tl.load(operands.fixed + (u + units) * operands.length + rows[None, :]),)
    return coefs, features, shifts, units, columns, levels


@triton.jit
def additive_forward(operands, visibility, strides, state, state_split, state_batch, splits, wide, V: tl.constexpr):
    """state (splits, batch, 2 + columns, length): peak, mass and columns of every query over each split of the keys."""
    if (tl.load(wide) == 2) != (V.score == ADDITIVE_WIDE):
        # Two programs are launched; ``wide``, on the device, selects the one that runs.
        return
    L: tl.constexpr = V.unit_lanes
    FL: tl.constexpr = LANES_PER_WARP // L
    R: tl.constexpr = V.BF // FL
    U: tl.constexpr = V.features // L
    P: tl.constexpr = V.columns
    GROUP: tl.constexpr = V.group
    block, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    operands, visibility = member_tiles(operands, visibility, strides, batch)
    block_rows = block * V.BF + tl.arange(0, V.BF)
    stop = stream_end(operands, visibility, block_rows, V)
    low, high = label_range(operands, visibility, block_rows, V)
    lanes = tl.zeros([L, FL], tl.int32)
    coefs, features, shifts, units, _, _ = load_units(operands, (), block, False, V)
    peak, mass, total = (), zeros_like(R, features[0]), zeros_like(R * P, features[0])
    for _ in tl.static_range(R):
        peak = peak + (tl.full([L, FL], float("-inf"), coefs[0].dtype),)
    for run in range(split * ROWS_PER_RUN, stop, splits * ROWS_PER_RUN):
        run_mass, run_total = zeros_like(R, features[0]), zeros_like(R * P, features[0])
        for k in range(run, tl.minimum(run + ROWS_PER_RUN, stop), GROUP):
            base = operands.stream + k * tl.cast(operands.tile_rows, tl.int64) + lanes
            scores, columns = (), ()
            for g in tl.static_range(GROUP):
                streamed = load_consecutive(base + g * operands.tile_rows + units, U)
                rest = load_consecutive(base + g * operands.tile_rows + V.features, 1 + P)
                for p in tl.static_range(P):
                    columns = columns + (rest[1 + p],)
                for i in tl.static_range(R):
                    rows = lane_rows(block, i, V)
                    score = hidden_units(streamed, features, coefs, i, U, V.score)[1] + (shifts[i] + rest[0])
                    stream_row = k + g + tl.arange(0, 1)
                    score = visible_scores(score, operands, visibility, stream_row, k + g, rows, low, high, V)
                    scores = scores + (score,)
            tops, shrunk, shrunk_total, heavier, larger = (), (), (), (), ()
            for i in tl.static_range(R):
                top = peak[i]
                for g in tl.static_range(GROUP):
                    top = tl.maximum(top, scores[g * R + i])
                level = tl.where(top == float("-inf"), 0.0, top)
                shrink = ex2(peak[i] - level)
                tops = tops + (top,)
                shrunk = shrunk + (mass[i] * shrink,)
                sums = (run_mass[i] * shrink,)
                for p in tl.static_range(P):
                    shrunk_total = shrunk_total + (total[i * P + p] * shrink,)
                    sums = sums + (run_total[i * P + p] * shrink,)
                for g in tl.static_range(GROUP):
                    weight = ex2(scores[g * R + i] - level)
                    more = (sums[0] + weight,)
                    for p in tl.static_range(P):
                        more = more + (sums[1 + p] + weight * columns[g * P + p],)
                    sums = more
                heavier = heavier + (sums[0],)
                for p in tl.static_range(P):
                    larger = larger + (sums[1 + p],)
            peak, mass, total, run_mass, run_total = tops, shrunk, shrunk_total, heavier, larger
        mass, total = added(mass, run_mass, R), added(total, run_total, R * P)
    for i in tl.static_range(R):
        rows = lane_rows(block, i, V)
        out = state + split.to(tl.int64) * state_split + batch * state_batch + rows[None, :] + lanes
        tl.store(out, peak[i])
        tl.store(out + operands.length, mass[i])
        for p in tl.static_range(P):
            tl.store(out + (2 + p) * operands.length, total[i * P + p])


@triton.jit
def additive_backward(
    operands, visibility, strides, fixed, fixed_strides, sums, split_strides, batch_strides, splits, wide,
    V: tl.constexpr,
):  # fmt: skip
    """Raw sums, each (splits, batch, …, length): Σ slope·r(1 − r) (features), Σ weight·g (columns), and Σ slope·r
    (features, length/R) over R rows each.

    r = 1/(1 + exp(2(a + b))); ``slope`` is the cotangent of a score.
    """
    if (tl.load(wide) == 2) != (V.score == ADDITIVE_WIDE):
        # Two programs are launched; ``wide``, on the device, selects the one that runs.
        return
    REAL: tl.constexpr = operands.fixed.dtype.element_ty
    L: tl.constexpr = V.unit_lanes
    FL: tl.constexpr = LANES_PER_WARP // L
    R: tl.constexpr = V.BF // FL
    U: tl.constexpr = V.features // L
    P: tl.constexpr = V.columns
    block, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    operands, visibility = member_tiles(operands, visibility, strides, batch)
    fixed = member_columns(fixed, fixed_strides, batch)
    sums = member_sums(sums, split_strides, batch_strides, split, batch)
    block_rows = block * V.BF + tl.arange(0, V.BF)
    stop = stream_end(operands, visibility, block_rows, V)
    low, high = label_range(operands, visibility, block_rows, V)
    lanes = tl.zeros([L, FL], tl.int32)
    coefs, features, shifts, units, columns, levels = load_units(operands, fixed, block, True, V)
    for run in range(split * ROWS_PER_RUN, stop, splits * ROWS_PER_RUN):
        sides, sums_w = zeros_like(R * U, features[0]), zeros_like(U if V.want_w else 0, features[0])
        values = zeros_like(R * P if V.mirror else 0, features[0])
        for k in range(run, tl.minimum(run + ROWS_PER_RUN, stop)):
            base = operands.stream + k * tl.cast(operands.tile_rows, tl.int64) + lanes
            streamed = load_consecutive(base + units, U)
            rest = load_consecutive(base + V.features, 2 + P if V.mirror else 1 + P)
            stream_row = k + tl.arange(0, 1)
            larger, larger_w, more = (), sums_w, ()
            for i in tl.static_range(R):
                rows = lane_rows(block, i, V)
                r, score = hidden_units(streamed, features, coefs, i, U, V.score)
                score = score + (shifts[i] + rest[0])
                weight = ex2(visible_scores(score, operands, visibility, stream_row, k, rows, low, high, V))
                # The derivative of the loss by this pair's score, over its weight.
                if V.mirror:
                    relative = -rest[1 + P]
                else:
                    relative = tl.zeros([L, FL], REAL) - levels[i]
                for n in tl.static_range(P):
                    part = rest[1 + n]
                    relative += part * columns[i * P + n]
                    if V.mirror:
                        more = more + (values[i * P + n] + weight * part,)
                slope = weight * relative
                wider = ()
                for u in tl.static_range(U):
                    larger = larger + (sides[i * U + u] + slope * (r[u] - r[u] * r[u]),)
                    if V.want_w:
                        wider = wider + (larger_w[u] + slope * r[u],)
                if V.want_w:
                    larger_w = wider
            sides, sums_w = larger, larger_w
            if V.mirror:
                values = more
        for i in tl.static_range(R):
            rows = lane_rows(block, i, V)
            for u in tl.static_range(U):
                place = sums.sides + (u + units) * operands.length + rows[None, :]
                tl.store(place, tl.load(place) + sides[i * U + u])
            if V.mirror:
                for n in tl.static_range(P):
                    place = sums.columns + n * operands.length + rows[None, :] + lanes
                    tl.store(place, tl.load(place) + values[i * P + n])
        if V.want_w:
            rows = block * FL + tl.arange(0, FL)
            for u in tl.static_range(U):
                place = sums.w + (u + units) * (operands.length // R) + rows[None, :]
                tl.store(place, tl.load(place) + sums_w[u])
