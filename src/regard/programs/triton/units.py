"""The adjoint pass of additive scores with the hidden units of a pair in registers: each is computed once.

Lanes are (units, rows): UL lanes share a pair and have U = D/UL units each, a lane has R rows of the fixed side. The
stream goes by one at a time; a score is summed over UL lanes, all else within a lane. Sums over RUN of the stream are
then added to rows that only this program touches, as in ``triton_pull``.
"""

# ruff: noqa: RUF005
# Triton has no unpacking into tuples.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from regard.programs.triton.math import ADDITIVE_WIDE, ex2, plus, reciprocal
from regard.programs.triton.tiles import hide, label_range, of_batch

LANES = tl.constexpr(32)
RUN = tl.constexpr(128)


@triton.jit
def one_more(a, b, SCORE: tl.constexpr):
    """1 + exp(2(a + b)), from the exponentials of the two or, where those could overflow, from the sum itself."""
    if SCORE == ADDITIVE_WIDE:
        # From 2^30 on 1/(1 + x) is nothing beside 1, and products of two such numbers still fit.
        LARGEST: tl.constexpr = 240.0 if a.dtype == tl.float64 else 30.0
        return ex2(tl.minimum((a + b) * 2.885390081777927, LARGEST)) + 1.0
    else:
        return a * b + 1.0


@triton.jit
def four(place):
    """Four numbers in a row from every lane's place, read at once."""
    row = tl.load(place[:, :, None] + tl.arange(0, 4)[None, None, :])
    even, odd = tl.split(tl.reshape(row, [place.shape[0], place.shape[1], 2, 2]))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def row_of(place, N: tl.constexpr):
    """The first N numbers from every lane's place on, a tuple; rows are filled up to multiples of four."""
    out = ()
    for n in tl.static_range(0, N, 4):
        out = out + four(place + n)
    return out


@triton.jit
def same(N: tl.constexpr, like):
    out = ()
    for _ in tl.static_range(N):
        out = out + (tl.zeros_like(like),)
    return out


@triton.jit
def units_of(streamed, kept, coefs, i: tl.constexpr, U: tl.constexpr, SCORE: tl.constexpr):
    """Row i's r = 1/(1 + exp(2(a + b))), a tuple, and its score Σ c·r (1, rows). Two units share a reciprocal."""
    r = ()
    total = tl.zeros_like(coefs[0])
    for u in tl.static_range(0, U, 2):
        x = one_more(streamed[u], kept[i * U + u], SCORE)
        if u + 1 < U:
            y = one_more(streamed[u + 1], kept[i * U + u + 1], SCORE)
            both = reciprocal(x * y)
            r = r + (y * both, x * both)
            total += coefs[u] * r[u]
            total += coefs[u + 1] * r[u + 1]
        else:
            r = r + (reciprocal(x),)
            total += coefs[u] * r[u]
    return r, tl.sum(total, 0)[None, :]


@triton.jit
def visible(
    score, pairs, who, at, tile, rows, low, high,
    BIAS: tl.constexpr, MASK: tl.constexpr, LENS: tl.constexpr, EXCLUDE: tl.constexpr, MIRROR: tl.constexpr,
):  # fmt: skip
    """Scores (1, rows) with what a bias adds, −inf where a pair may not attend."""
    if BIAS:
        inside = (at < pairs[7])[:, None] & (rows < pairs[6])[None, :]
        where = at[:, None].to(tl.int64) * who[1] + rows[None, :].to(tl.int64) * who[2]
        score += tl.load(who[0] + where, mask=inside, other=0.0).to(score.dtype) * 1.4426950408889634
    return hide(score, pairs, who, at, tile, rows, low, high, MASK, LENS, EXCLUDE, MIRROR)


@triton.jit
def attend_units(
    pairs,
    who,
    batches,
    state,
    state_split,
    state_batch,
    splits,
    wide,
    SCORE: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    OWN: tl.constexpr,
    BIAS: tl.constexpr,
    MASK: tl.constexpr,
    LENS: tl.constexpr,
    EXCLUDE: tl.constexpr,
    GROUP: tl.constexpr,
    UL: tl.constexpr,
    BF: tl.constexpr,
):
    """state (splits, batch, 2 + P, n): peak, mass and columns of every query, over every share of the keys."""
    if (tl.load(wide) == 2) != (SCORE == ADDITIVE_WIDE):
        return
    FL: tl.constexpr = LANES // UL
    R: tl.constexpr = BF // FL
    U: tl.constexpr = D // UL
    block, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    pairs, who = of_batch(pairs, who, batches, batch, OWN, BIAS, MASK, LENS, EXCLUDE)
    whole = block * BF + tl.arange(0, BF)
    stop = pairs[7]
    if LENS:
        lengths = tl.load(who[6] + whole * who[7], mask=whole < pairs[6], other=0)
        stop = tl.minimum(stop, tl.max(lengths).to(tl.int32))
    low, high = label_range(who, whole, pairs[6], EXCLUDE)
    lanes = tl.zeros([UL, FL], tl.int32)
    units = (U * tl.arange(0, UL))[:, None] + lanes
    kept, own, coefs = (), (), ()
    for u in tl.static_range(U):
        coefs = coefs + (tl.load(pairs[2] + u + units),)
    for i in tl.static_range(R):
        rows = block * BF + i * FL + tl.arange(0, FL)
        one = tl.zeros([1, FL], coefs[0].dtype)
        if OWN:
            one = tl.load(pairs[3] + rows[None, :])
        own = own + (one,)
        for u in tl.static_range(U):
            kept = kept + (tl.load(pairs[0] + (u + units) * pairs[4] + rows[None, :]),)
    peak, mass, total = (), same(R, kept[0]), same(R * P, kept[0])
    for _ in tl.static_range(R):
        peak = peak + (tl.full([UL, FL], float("-inf"), coefs[0].dtype),)
    for run in range(split * RUN, stop, splits * RUN):
        run_mass, run_total = same(R, kept[0]), same(R * P, kept[0])
        for k in range(run, tl.minimum(run + RUN, stop), GROUP):
            here = pairs[1] + k * tl.cast(pairs[5], tl.int64) + lanes
            scores, columns = (), ()
            for g in tl.static_range(GROUP):
                streamed = row_of(here + g * pairs[5] + units, U)
                rest = row_of(here + g * pairs[5] + D, 1 + P)
                for p in tl.static_range(P):
                    columns = columns + (rest[1 + p],)
                for i in tl.static_range(R):
                    rows = block * BF + i * FL + tl.arange(0, FL)
                    score = units_of(streamed, kept, coefs, i, U, SCORE)[1] + (own[i] + rest[0])
                    at = k + g + tl.arange(0, 1)
                    score = visible(score, pairs, who, at, k + g, rows, low, high, BIAS, MASK, LENS, EXCLUDE, False)
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
        mass, total = plus(mass, run_mass, R), plus(total, run_total, R * P)
    for i in tl.static_range(R):
        rows = block * BF + i * FL + tl.arange(0, FL)
        out = state + split.to(tl.int64) * state_split + batch * state_batch + rows[None, :] + lanes
        tl.store(out, peak[i])
        tl.store(out + pairs[4], mass[i])
        for p in tl.static_range(P):
            tl.store(out + (2 + p) * pairs[4], total[i * P + p])


@triton.jit
def pull_units(
    pairs,
    who,
    batches,
    sides_fixed,
    sides_batch,
    grads,
    grads_split,
    grads_batch,
    splits,
    wide,
    SCORE: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    MIRROR: tl.constexpr,
    WANT_W: tl.constexpr,
    BIAS: tl.constexpr,
    MASK: tl.constexpr,
    LENS: tl.constexpr,
    EXCLUDE: tl.constexpr,
    UL: tl.constexpr,
    BF: tl.constexpr,
):
    """Raw sums, each (splits, batch, …, n): Σ slope·r(1 − r) (D), Σ weight·g (P); Σ slope·r (D, n/R) over R rows each.

    r = 1/(1 + exp(2(a + b))).
    """
    if (tl.load(wide) == 2) != (SCORE == ADDITIVE_WIDE):
        # Two programs are launched, and the device knows which of them is meant.
        return
    REAL: tl.constexpr = pairs[0].dtype.element_ty
    FL: tl.constexpr = LANES // UL
    R: tl.constexpr = BF // FL
    U: tl.constexpr = D // UL
    block, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    pairs, who = of_batch(pairs, who, batches, batch, True, BIAS, MASK, LENS, EXCLUDE)
    columns, level = sides_fixed[0] + batch * sides_batch[0], sides_fixed[1]
    if not MIRROR:
        level += batch * sides_batch[1]
    share = split.to(tl.int64)
    grad = grads[0] + share * grads_split[0] + batch * grads_batch[0]
    grad_w, grad_columns = grads[1], grads[2]
    if WANT_W:
        grad_w += share * grads_split[1] + batch * grads_batch[1]
    if MIRROR:
        grad_columns += share * grads_split[2] + batch * grads_batch[2]
    whole = block * BF + tl.arange(0, BF)
    stop = pairs[7]
    if LENS and not MIRROR:
        lengths = tl.load(who[6] + whole * who[7], mask=whole < pairs[6], other=0)
        stop = tl.minimum(stop, tl.max(lengths).to(tl.int32))
    low, high = label_range(who, whole, pairs[6], EXCLUDE)
    lanes = tl.zeros([UL, FL], tl.int32)
    units = (U * tl.arange(0, UL))[:, None] + lanes
    kept, own, coefs, column, heights = (), (), (), (), ()
    for u in tl.static_range(U):
        coefs = coefs + (tl.load(pairs[2] + u + units),)
    for i in tl.static_range(R):
        rows = block * BF + i * FL + tl.arange(0, FL)
        own = own + (tl.load(pairs[3] + rows[None, :]),)
        if not MIRROR:
            heights = heights + (tl.load(level + rows[None, :]),)
        for n in tl.static_range(P):
            column = column + (tl.load(columns + n * pairs[4] + rows[None, :]),)
        for u in tl.static_range(U):
            kept = kept + (tl.load(pairs[0] + (u + units) * pairs[4] + rows[None, :]),)
    for run in range(split * RUN, stop, splits * RUN):
        sums, sums_w = same(R * U, kept[0]), same(U if WANT_W else 0, kept[0])
        values = same(R * P if MIRROR else 0, kept[0])
        for k in range(run, tl.minimum(run + RUN, stop)):
            here = pairs[1] + k * tl.cast(pairs[5], tl.int64) + lanes
            streamed = row_of(here + units, U)
            rest = row_of(here + D, 2 + P if MIRROR else 1 + P)
            at = k + tl.arange(0, 1)
            larger, larger_w, more = (), sums_w, ()
            for i in tl.static_range(R):
                rows = block * BF + i * FL + tl.arange(0, FL)
                r, score = units_of(streamed, kept, coefs, i, U, SCORE)
                score = score + (own[i] + rest[0])
                score = visible(score, pairs, who, at, k, rows, low, high, BIAS, MASK, LENS, EXCLUDE, MIRROR)
                weight = ex2(score)
                if MIRROR:
                    turn = -rest[1 + P]
                else:
                    turn = tl.zeros([UL, FL], REAL) - heights[i]
                for n in tl.static_range(P):
                    part = rest[1 + n]
                    turn += part * column[i * P + n]
                    if MIRROR:
                        more = more + (values[i * P + n] + weight * part,)
                slope = weight * turn
                wider = ()
                for u in tl.static_range(U):
                    larger = larger + (sums[i * U + u] + slope * (r[u] - r[u] * r[u]),)
                    if WANT_W:
                        wider = wider + (larger_w[u] + slope * r[u],)
                if WANT_W:
                    larger_w = wider
            sums, sums_w = larger, larger_w
            if MIRROR:
                values = more
        for i in tl.static_range(R):
            rows = block * BF + i * FL + tl.arange(0, FL)
            for u in tl.static_range(U):
                place = grad + (u + units) * pairs[4] + rows[None, :]
                tl.store(place, tl.load(place) + sums[i * U + u])
            if MIRROR:
                for n in tl.static_range(P):
                    place = grad_columns + n * pairs[4] + rows[None, :] + lanes
                    tl.store(place, tl.load(place) + values[i * P + n])
        if WANT_W:
            rows = block * FL + tl.arange(0, FL)
            for u in tl.static_range(U):
                place = grad_w + (u + units) * (pairs[4] // R) + rows[None, :]
                tl.store(place, tl.load(place) + sums_w[u])
