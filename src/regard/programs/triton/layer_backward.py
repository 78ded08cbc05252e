"""The backward pass of ``layer_forward``: gradients of queries or, mirrored, of keys and values; one program each."""

# ruff: noqa: SIM102
# What is known when a program is compiled is tested in an "if" of its own.

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.layer_forward import (
    LN2,
    MAX_PRODUCT_NORM,
    centre_of,
    feature_scale,
    finite_or_zero,
    layer_scores,
    load_block,
    pair_difference,
    product_inputs,
    two_units,
    visible_pairs,
)
from regard.programs.triton.program_arguments import LayerMask, Matrix
from regard.programs.triton.triton_math import ADDITIVE, DOT, ex2


@triton.jit
def layer_backward_tiles(
    fixed, stream, fixed_columns, stream_columns, level, state, w, hidden, rows, stop, UNFACTORED: tl.constexpr,
    V: tl.constexpr,
):  # fmt: skip
    """Sums over the stream for one block, and the largest ½‖x‖² met.

    Gradients of the fixed side (BF, product_features); every feature's part of those of w, likewise; Σ weight·g
    (BF, product_columns). ``slope`` is the cotangent of a score, r = 1/(1 + exp 2(a + b)) a hidden unit.
    """
    BF: tl.constexpr = V.BF
    BP: tl.constexpr = V.product_columns
    PRODUCTS: tl.constexpr = V.score != DOT and V.score != ADDITIVE and not UNFACTORED
    D: tl.constexpr = V.features
    BD: tl.constexpr = V.product_features
    j = tl.arange(0, BD)
    scale, centre = tl.zeros([BD], tl.float32), tl.zeros([BD], tl.float32)
    if PRODUCTS:
        scale = feature_scale(w, V)
        if V.mirror:
            centre = centre_of(fixed, V)
        else:
            centre = centre_of(stream, V)
    x = load_block(fixed, rows, D, BD)
    x, x_norm = product_inputs(x, centre, scale, UNFACTORED, V)
    f = finite_or_zero(load_block(fixed_columns, rows, V.columns, BP))
    if not V.mirror:
        own_level, peak, inverse_mass = query_state(level, state, rows, fixed.count)
    largest = tl.max(tl.where(rows < fixed.count, x_norm, 0.0))
    sums = tl.zeros([BF, BD], tl.float32)
    sums_w = tl.zeros([BF, BD if V.want_w else 1], tl.float32)
    slopes = tl.zeros([BF], tl.float32)
    total = tl.zeros([BF, BP if V.mirror else 1], tl.float32)
    for start in range(0, stop, V.BS):
        stream_rows = start + tl.arange(0, V.BS)
        y = load_block(stream, stream_rows, D, BD)
        y, y_norm = product_inputs(y, centre, scale, UNFACTORED, V)
        s = finite_or_zero(load_block(stream_columns, stream_rows, V.columns, BP))
        largest = tl.maximum(largest, tl.max(tl.where(stream_rows < stream.count, y_norm, 0.0)))
        score = layer_scores(fixed, stream, w, x, y, x_norm, y_norm, rows, stream_rows, UNFACTORED, V)
        allowed = visible_pairs(fixed, stream, hidden, rows, stream_rows, V)
        relative = tl.dot(f, tl.trans(s), input_precision="tf32x3")
        if V.mirror:
            levels, peaks, inverse_masses = query_state(level, state, stream_rows, stream.count)
            weight = tl.where(allowed, ex2(score - peaks[None, :]) * inverse_masses[None, :], 0.0)
            slope = weight * (relative - levels[None, :])
            total += tl.dot(weight, s, input_precision="tf32x3")
        else:
            weight = tl.where(allowed, ex2(score - peak[:, None]) * inverse_mass[:, None], 0.0)
            slope = weight * (relative - own_level[:, None])
        if V.score == ADDITIVE:
            for h in range(0, D, 2):
                r, t = two_units(fixed, stream, h, rows, stream_rows, D, UNFACTORED)
                # What a mask hides may be NaN.
                r, t = tl.where(allowed, r, 0.0), tl.where(allowed & (h + 1 < D), t, 0.0)
                first, second = tl.sum(slope * (r - r * r), 1), tl.sum(slope * (t - t * t), 1)
                sums += two_columns(first, second, h, j)
                if V.want_w:
                    first, second = tl.sum(slope * (1.0 - 2.0 * r), 1), tl.sum(slope * (1.0 - 2.0 * t), 1)
                    sums_w += two_columns(first, second, h, j)
        elif PRODUCTS or V.score == DOT:
            sums += tl.dot(slope, y, input_precision="tf32x3")
            slopes += tl.sum(slope, 1)
            if V.want_w and PRODUCTS:
                sums_w += tl.dot(slope, y * y, input_precision="tf32x3")
        else:
            for column in range(D):
                difference = pair_difference(fixed, stream, column, rows, stream_rows)
                difference = tl.where(allowed, difference, 0.0)
                first = tl.sum(slope * difference, 1)
                sums += tl.where((j == column)[None, :], first[:, None], 0.0)
                if V.want_w:
                    first = tl.sum(slope * difference * difference, 1)
                    sums_w += tl.where((j == column)[None, :], first[:, None], 0.0)
    # The derivative of a score by its features is ``rate`` times what was summed; by w, what sums_w becomes.
    rate = tl.load(w + j * V.per_feature, mask=j < D, other=0.0).to(tl.float32)
    if V.score == ADDITIVE:
        rate = rate * 4.0
    elif V.score == DOT:
        if V.want_w:
            sums_w = sums * x
    elif PRODUCTS:
        if V.want_w:
            by_w = tl.where(rate != 0.0, -LN2 / tl.where(rate != 0.0, rate, 1.0), 0.0)
            sums_w = (sums_w - x * (2.0 * sums - x * slopes[:, None])) * by_w[None, :]
        sums -= x * slopes[:, None]
        rate = scale * LN2
    else:
        if V.want_w:
            sums_w = sums_w * (0.0 - rate)[None, :]
        rate = rate * rate
    return sums * rate[None, :], sums_w, total, largest


@triton.jit
def two_columns(first, second, h, j):
    """(rows, features) with two columns, h and the next, and zeros elsewhere."""
    return tl.where((j == h)[None, :], first[:, None], tl.where((j == h + 1)[None, :], second[:, None], 0.0))


@triton.jit
def query_state(level, state, rows, queries):
    """Level, peak, and one over the mass, of queries.

    A query that attended to NaN or infinity has a mass of NaN, and one with such a cotangent has such a level: one over
    the mass is NaN then, and so are the weights of all keys it attended to, and of no others.
    """
    inside = rows < queries
    mass = tl.load(state + queries + rows, mask=inside, other=0.0)
    height = tl.load(level + rows, mask=inside, other=0.0)
    known = height - height == 0.0
    inverse_mass = tl.where(known, 1.0 / tl.where(mass == 0.0, 1.0, mass), float("nan"))
    return tl.where(known, height, 0.0), tl.load(state + rows, mask=inside, other=0.0), inverse_mass


@triton.jit
def layer_backward(
    fixed, stream, fixed_columns, stream_columns, level, state, w, lens, mask, grad, grad_w, grad_columns, N, M,
    fixed_strides, stream_strides, fixed_columns_strides, stream_columns_strides, lens_batch, lens_row, mask_strides,
    V: tl.constexpr,
):  # fmt: skip
    """grad (B, N, D) of the fixed side; mirrored also grad_columns (B, N, P); grad_w (blocks, B, D), to be summed up.

    Columns are the cotangents of the output for queries and the values for keys; ``level`` (B, Q) is Σ cotangent·output
    less the cotangent of the logsumexp.
    """
    block, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    rows = block * V.BF + tl.arange(0, V.BF)
    queries = M if V.mirror else N
    fixed = Matrix(fixed + batch * fixed_strides.batch, N, fixed_strides)
    stream = Matrix(stream + batch * stream_strides.batch, M, stream_strides)
    fixed_columns = Matrix(fixed_columns + batch * fixed_columns_strides.batch, N, fixed_columns_strides)
    stream_columns = Matrix(stream_columns + batch * stream_columns_strides.batch, M, stream_columns_strides)
    level += batch * queries
    state += batch * 2 * queries
    hidden = LayerMask(lens + batch * lens_batch, mask + batch * mask_strides.batch, lens_row, mask_strides)
    stop = M
    if V.lens:
        if not V.mirror:
            longest = tl.load(hidden.lens + rows * lens_row, mask=rows < N, other=0).to(tl.int32)
            stop = tl.minimum(stop, tl.max(longest))
        elif V.lens == 1:
            # One length for all queries: keys beyond it have nothing to sum.
            stop = tl.where(block * V.BF < tl.load(hidden.lens).to(tl.int32), stop, 0)
    sums, sums_w, total, largest = layer_backward_tiles(
        fixed, stream, fixed_columns, stream_columns, level, state, w, hidden, rows, stop, V.unfactored, V
    )
    if V.score != DOT and not V.unfactored:
        if largest > MAX_PRODUCT_NORM:
            sums, sums_w, total, largest = layer_backward_tiles(
                fixed, stream, fixed_columns, stream_columns, level, state, w, hidden, rows, stop, True, V
            )
    D: tl.constexpr = V.features
    inside = (rows < N)[:, None]
    j, p = tl.arange(0, V.product_features), tl.arange(0, V.product_columns)
    tl.store(grad + (batch * N + rows)[:, None] * D + j[None, :], sums, mask=inside & (j < D)[None, :])
    if V.want_w:
        pointers_w = grad_w + (block * tl.num_programs(1) + batch) * D + j
        tl.store(pointers_w, tl.sum(tl.where(inside, sums_w, 0.0), 0), mask=j < D)
    if V.mirror:
        pointers = grad_columns + (batch * N + rows)[:, None] * V.columns + p[None, :]
        tl.store(pointers, total, mask=inside & (p < V.columns)[None, :])
