"""Sums with exponential decay in one dimension, and gradients of compact kernels pair by pair."""

from __future__ import annotations

import math

import numpy as np

from regard.programs.cpu.compiled import program
from regard.programs.cpu.double_double_scores import two_sum
from regard.programs.cpu.sorted_sums import distance_of, kernel_at


@program
def decaying_sums(at, x, s, columns, to, q, ends, w, orders, back, out):
    """Σ s·exp(−w·|to − at|)·δ^r and the same times v over sources before ``ends``, with δ = x − q, for every target.

    With ``back``: over sources from ``ends`` on. Sources: at (n,) increasing, x (n,), s (n,), columns (n, P). Targets:
    to (m,) increasing and beyond every ``at`` that is summed, q (m,), ends (m,) increasing.
    out (m, (1 + orders[0]) + P·(1 + orders[1])) is filled.

    Sums are relative to an anchor that follows at a distance of at most 1/w: each weight is one exponential and as many
    roundings as there were anchors, not one for every row passed.
    """
    width, (g0, g1), n, m = columns.shape[1], orders, len(x), len(q)
    sums, raw = np.zeros((width + 1, g0 + 1)), np.empty(g0 + 1)
    anchor = anchor_x = 0.0
    done = 0
    for number in range(m):
        j = m - 1 - number if back else number
        while done < (n - ends[j] if back else ends[j]):
            i = n - 1 - done if back else done
            passed = abs(at[i] - anchor)
            if done == 0 or w * passed > 1.0:
                fade = math.exp(-w * passed) if done > 0 else 0.0
                for p in range(width + 1):
                    _shift(sums[p], g0 if p == 0 else g1, x[i] - anchor_x)
                    for r in range(g0 + 1):
                        # Powers of a large distance may have overflowed.
                        sums[p, r] = sums[p, r] * fade if fade > 0.0 else 0.0
                anchor, anchor_x, passed = at[i], x[i], 0.0
            weight, step = s[i] * math.exp(w * passed), x[i] - anchor_x
            for p in range(width + 1):
                new = weight if p == 0 else weight * columns[i, p - 1]
                for r in range((g0 if p == 0 else g1) + 1):
                    sums[p, r] += new
                    new *= step
            done += 1
        fade = math.exp(-w * abs(to[j] - anchor)) if done > 0 else 0.0
        place = 0
        for p in range(width + 1):
            g = g0 if p == 0 else g1
            for r in range(g + 1):  # a slice assigned to a slice takes numba a second to compile
                raw[r] = sums[p, r]
            _shift(raw, g, q[j] - anchor_x)
            for r in range(g + 1):
                out[j, place] = raw[r] * fade if fade > 0.0 else 0.0
                place += 1


@program
def nearest_weights(x, q, left, right, before, after, w, by_left, by_right, peak):
    """Peak score of the nearest key that is not excluded, and exp(score − peak) of keys before − 1 and after.

    Keys before ``left`` and from ``right`` on determine the peak; ``before`` and ``after`` also exclude keys at
    distance 0. Only the difference of the two gaps to a query matters: it is computed exactly, then scaled.
    """
    n = len(x)
    for j in range(len(q)):
        low = -w * (q[j] - x[left[j] - 1]) if left[j] > 0 else -math.inf
        high = -w * (x[right[j]] - q[j]) if right[j] < n else -math.inf
        peak[j] = max(low, high)
        by_left[j] = by_right[j] = 0.0
        if peak[j] == 0.0:
            if before[j] > 0:
                by_left[j] = math.exp(-w * (q[j] - x[before[j] - 1]))
            if after[j] < n:
                by_right[j] = math.exp(-w * (x[after[j]] - q[j]))
        elif before[j] > 0 and after[j] < n:
            total, lost = two_sum(x[after[j]], x[before[j] - 1])
            middle, rest = two_sum(total, -2.0 * q[j])
            gap = w * (middle + (lost + rest))
            by_left[j], by_right[j] = (1.0, math.exp(-gap)) if gap >= 0.0 else (math.exp(gap), 1.0)
        elif before[j] > 0:
            by_left[j] = 1.0
        elif after[j] < n:
            by_right[j] = 1.0


@program
def _shift(sums, g, by):
    """Sums of powers about a point → about the point ``by`` further on."""
    for r in range(g):
        for i in range(g, r, -1):
            sums[i] -= by * sums[i - 1]


@program
def backward_pairs(rows, x, s, columns, q, lo, hi, own, kernel, inverse_mass, adjoint, grads):
    """Add the gradients of the pairs of the queries ``rows`` to grads = (query, key, value); returns that of w.

    kernel = (code, |w|, power, stretch); adjoint = (left, right, plain (Q, 2), zeros for a missing δ, value (Q, P));
    inverse_mass (Q,).
    """
    total = 0.0
    code, w, power, stretch = kernel
    left, right, plain, value = adjoint
    grad_q, grad_k, grad_v = grads
    for j in rows:
        for i in range(lo[j], hi[j]):
            if i == own[j]:
                continue
            u, e = distance_of(q[j], x[i], w, power, stretch)
            height, slope = kernel_at(code, u, e)
            delta = x[i] - q[j]
            affine = left[j, 0] + left[j, 1] * delta
            residual = -right[j, 0] - right[j, 1] * delta
            by = s[i] * inverse_mass[j]
            for p in range(columns.shape[1]):
                residual += value[j, p] * columns[i, p]
                grad_v[i, p] += by * height * affine * value[j, p]
            if height <= 0.0 or delta == 0.0:
                continue
            cotangent = by * slope * (affine * residual + plain[j, 0] + plain[j, 1] * delta)
            total += cotangent * abs(delta)
            gradient = cotangent * w if delta > 0.0 else -cotangent * w
            grad_q[j] -= gradient
            grad_k[i] += gradient
    return total
