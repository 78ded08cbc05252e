"""Sums over the keys within a kernel's radius of each query, in one dimension, from running sums over blocks of keys.

Keys and queries are sorted. A block is a run of keys narrower than the radius, so at most one end of a query's range of
keys falls inside it: the query needs all of a block, a prefix or a suffix of it, and no running sum is ever subtracted
from another. Within a block positions are t = (x − c)/unit, c its centre. There a kernel is a polynomial,
K = Σ_j coefficient_j(query)·t^j, or two sinusoids for the cosine, and each query combines the running sums Σ s·v·t^j
as they are at its end of the range.

Left and right of the query K(u) may be different polynomials: ``side`` is −1, +1, or 0 for both at once.
"""

from __future__ import annotations

import math

import numpy as np

from regard.programs.cpu.compiled import program
from regard.programs.cpu.double_double_scores import two_product, two_sum
from regard.programs.cpu.pair_scores import BIWEIGHT, BOXCAR, COSINE, EPANECHNIKOV, TRIANGULAR, TRICUBE, TRIWEIGHT

HALF_PI = 0.5 * math.pi
MAX_TERMS = 16


@program
def windows(x, q, radius, begin, stop, lo, first, last, hi):
    """For sorted queries begin … stop: keys lo … hi are within the radius, keys first … last coincide with q."""
    n = len(x)
    b = np.searchsorted(x, q[begin])
    c = d = b
    # Bisection for the first key within the radius of this job's first query.
    a, upper = 0, b
    while a < upper:
        middle = (a + upper) // 2
        if q[begin] - x[middle] > radius:
            a = middle + 1
        else:
            upper = middle
    for j in range(begin, stop):
        while a < n and q[j] - x[a] > radius:
            a += 1
        while b < n and x[b] < q[j]:
            b += 1
        while c < n and x[c] <= q[j]:
            c += 1
        while d < n and x[d] - q[j] <= radius:
            d += 1
        lo[j], first[j], last[j], hi[j] = a, b, c, d


@program
def split_keys(x, width, starts):
    """Fill starts with the first key of each block of at most ``width``, then len(x); return the number of blocks."""
    count = 0
    for i in range(len(x)):
        if count == 0 or x[i] - x[starts[count - 1]] > width:
            starts[count] = i
            count += 1
    starts[count] = len(x)
    return count


@program
def _terms(code, rate):
    """Number of coefficients of K, or of dK/du if ``rate``."""
    if code == COSINE:
        return 2
    degree = 9
    if code <= TRIANGULAR:
        degree = code - BOXCAR
    elif code <= TRIWEIGHT:
        degree = 2 * (code - TRIANGULAR)
    return max(degree, 1) if rate else degree + 1


@program
def _coefficients(code, rate, u, step, a):
    """Coefficients in t of K(u + step·t), or of dK/du, as products of factors so that a small K keeps its digits."""
    e, f = 1.0 - u, 1.0 + u
    if code == BOXCAR:
        a[0] = 0.0 if rate else 1.0
    elif code == TRIANGULAR:
        a[0], a[1] = (-1.0, 0.0) if rate else (e, -step)
    elif code == COSINE:
        sine, cosine = math.sin(HALF_PI * e), math.cos(HALF_PI * e)
        sign = 1.0 if step >= 0.0 else -1.0
        if rate:
            a[0], a[1] = -HALF_PI * cosine, -HALF_PI * sign * sine
        else:
            a[0], a[1] = sine, -sign * cosine
    elif code == TRICUBE:
        # 1 − u³ = c0 + c1·t + c2·t² + c3·t³, its square, and what multiplies that.
        c0, c1, c2, c3 = e * (1.0 + u + u * u), -3.0 * u * u * step, -3.0 * u * step * step, -step * step * step
        s0, s1, s2, s3 = c0 * c0, 2.0 * c0 * c1, c1 * c1 + 2.0 * c0 * c2, 2.0 * (c0 * c3 + c1 * c2)
        s4, s5, s6 = c2 * c2 + 2.0 * c1 * c3, 2.0 * c2 * c3, c3 * c3
        if rate:
            c0, c1, c2, c3 = -9.0 * u * u, -18.0 * u * step, -9.0 * step * step, 0.0
        a[0], a[1], a[2] = c0 * s0, c0 * s1 + c1 * s0, c0 * s2 + c1 * s1 + c2 * s0
        a[3], a[4] = c0 * s3 + c1 * s2 + c2 * s1 + c3 * s0, c0 * s4 + c1 * s3 + c2 * s2 + c3 * s1
        a[5], a[6] = c0 * s5 + c1 * s4 + c2 * s3 + c3 * s2, c0 * s6 + c1 * s5 + c2 * s4 + c3 * s3
        a[7], a[8], a[9] = c1 * s6 + c2 * s5 + c3 * s4, c2 * s6 + c3 * s5, c3 * s6
    else:
        # 1 − u² = c0 + c1·t + c2·t² and its square; then times the line u, or times itself.
        c0, c1, c2 = e * f, -2.0 * u * step, -step * step
        s0, s1, s2, s3, s4 = c0 * c0, 2.0 * c0 * c1, c1 * c1 + 2.0 * c0 * c2, 2.0 * c1 * c2, c2 * c2
        if rate:
            by = -2.0 * (code - TRIANGULAR)
            d0, d1 = by * u, by * step
            if code == EPANECHNIKOV:
                a[0], a[1] = d0, d1
            elif code == BIWEIGHT:
                a[0], a[1], a[2], a[3] = d0 * c0, d0 * c1 + d1 * c0, d0 * c2 + d1 * c1, d1 * c2
            else:
                a[0], a[1], a[2] = d0 * s0, d0 * s1 + d1 * s0, d0 * s2 + d1 * s1
                a[3], a[4], a[5] = d0 * s3 + d1 * s2, d0 * s4 + d1 * s3, d1 * s4
        elif code == EPANECHNIKOV:
            a[0], a[1], a[2] = c0, c1, c2
        elif code == BIWEIGHT:
            a[0], a[1], a[2], a[3], a[4] = s0, s1, s2, s3, s4
        else:
            a[0], a[1], a[2] = c0 * s0, c0 * s1 + c1 * s0, c0 * s2 + c1 * s1 + c2 * s0
            a[3], a[4] = c0 * s3 + c1 * s2 + c2 * s1, c0 * s4 + c1 * s3 + c2 * s2
            a[5], a[6] = c1 * s4 + c2 * s3, c2 * s4


@program
def _rounding_scale(code, u, half):
    """A bound on Σ|coefficient|·half^j plus |dK/du|: the magnitude that rounding errors are relative to."""
    e, f, far = abs(1.0 - u) + half, abs(1.0 + u) + half, abs(u) + half
    if code == BOXCAR:
        return 1.0
    if code == TRIANGULAR:
        return e + 1.0
    if code == COSINE:
        return HALF_PI * e + HALF_PI
    if code == TRICUBE:
        whole = e * (1.0 + far + far * far)
        return whole * whole * (whole + 9.0 * far * far)
    whole = e * f
    if code == EPANECHNIKOV:
        return whole + 2.0 * far
    if code == BIWEIGHT:
        return whole * (whole + 4.0 * far)
    return whole * whole * (whole + 6.0 * far)


@program
def _fill_basis(base, t, code, turn, terms):
    """1, t, t², …; for the cosine both sinusoids, each times 1, t, t²."""
    base[0] = 1.0
    start = 1
    if code == COSINE:
        base[0], base[1] = math.cos(turn * t), math.sin(turn * t)
        start = 2
    for k in range(start, terms):
        base[k] = base[k - start] * t


@program
def _medians(columns, i0, i1, middle):
    """The median of three values of a block: sums of differences from it lose no digits to an offset."""
    for p in range(columns.shape[1]):
        u, v, z = columns[i0, p], columns[(i0 + i1) // 2, p], columns[i1 - 1, p]
        middle[p] = max(min(u, v), min(max(u, v), z))


@program
def side_sums(x, s, columns, starts, blocks, q, a, b, code, rate, side, scale, unit, orders, begin, stop, out, bound):
    """Add Σ s·K·δ^r and Σ s·v·K·δ^r over keys a … b to out, for queries begin … stop; δ in the units of x.

    x (K,), s (K,), columns (K, P), q (Q,) sorted; a, b (Q,) increasing; scale = w·unit; orders = (r of s, r of s·v).
    out (Q, (1 + orders[0]) + P·(1 + orders[1])). bound (Q, 2): magnitude that rounding errors of Σ s·K and Σ s·K·δ² are
    relative to.
    """
    g0, g1 = orders
    stride, count = (2 if code == COSINE else 1), _terms(code, rate)
    terms, fewer = count + stride * g0, count + stride * g1
    middle, parts = np.empty(columns.shape[1]), columns.shape[1] + 1
    head, tail = np.zeros((parts, terms)), np.zeros((parts, terms))
    base, coefficients, raw, mass = np.empty(terms), np.empty(MAX_TERMS), np.empty(g0 + 1), np.empty(g0 + 1)
    top = begin
    for number in range(max(0, np.searchsorted(starts[:blocks], a[begin], side="right") - 1), blocks):
        i0, i1 = starts[number], starts[number + 1]
        while top < stop and b[top] <= i0:
            top += 1
        if top == stop:
            break
        if a[top] >= i1:
            continue
        # Queries top … turn need a prefix of the block or all of it, turn … end a suffix.
        turn = top
        while turn < stop and a[turn] <= i0:
            turn += 1
        end = turn
        while end < stop and a[end] < i1:
            end += 1
        c = x[i0] + 0.5 * (x[i1 - 1] - x[i0])
        half = max(x[i1 - 1] - c, c - x[i0]) / unit
        _medians(columns, i0, i1, middle)
        for forward in (True, False):
            j, limit, by = (top, turn, 1) if forward else (end - 1, turn - 1, -1)
            i, last = (i0, i1 - 1) if forward else (i1 - 1, i0 + 1)
            head[:] = 0.0
            tail[:] = 0.0
            # Written inline: passing so many arrays to a function would cost more than the work.
            while j != limit:
                _fill_basis(base, (x[i] - c) / unit, code, HALF_PI * scale, terms)
                for p in range(parts):
                    weight = s[i] if p == 0 else s[i] * (columns[i, p - 1] - middle[p - 1])
                    for k in range(terms if p == 0 else fewer):
                        head[p, k], lost = two_sum(head[p, k], weight * base[k])
                        tail[p, k] += lost
                while j != limit and ((i == last or b[j] <= i + 1) if forward else a[j] >= i):
                    if a[j] < b[j]:
                        tau = (q[j] - c) / unit
                        sign = float(side) if side != 0 else (-1.0 if tau > 0.0 else 1.0)
                        u = -sign * scale * tau
                        _coefficients(code, rate, u, sign * scale, coefficients)
                        place = 0
                        for p in range(parts):
                            g = g0 if p == 0 else g1
                            for r in range(g + 1):
                                total = 0.0
                                for k in range(count):
                                    at = r * stride + k
                                    total += coefficients[k] * (head[p, at] + tail[p, at])
                                raw[r] = total
                            # From powers of t to powers of t − tau.
                            for r in range(g):
                                for k in range(g, r, -1):
                                    raw[k] -= tau * raw[k - 1]
                            power = 1.0
                            for r in range(g + 1):
                                total = raw[r] * power
                                power *= unit
                                if p == 0:
                                    mass[r] = total
                                else:
                                    total += middle[p - 1] * mass[r]
                                out[j, place] += total
                                place += 1
                        size = _rounding_scale(code, u, scale * half) * abs(head[0, 0])
                        far = (half + abs(tau)) * unit
                        bound[j, 0] += size
                        bound[j, 1] += size * far * far
                    j += by
                i += by


@program
def distance_of(q, x, w, power, stretch):
    """u = w·|q − x| and 1 − u to full precision at the edge; 1 − u ≥ 0 where the score's own u² is ≤ 1."""
    difference, lost = two_sum(q, -x)
    lost = lost if difference >= 0.0 else -lost
    difference = abs(difference)
    u, rest = two_product(w, difference)
    e = (1.0 - u) - (rest + w * lost)
    # Beyond 1e300 two_product overflows; nothing there is near the edge of a kernel.
    if not e > 0.0:
        scaled = difference * power
        e = 1.0 - math.sqrt(scaled * scaled * stretch)
    return u, max(e, 0.0)


@program
def kernel_at(code, u, e):
    """K and dK/du from u and e = 1 − u."""
    rest = e * (1.0 + u)
    if code == BOXCAR:
        return 1.0, 0.0
    if code == TRIANGULAR:
        return e, -1.0
    if code == EPANECHNIKOV:
        return rest, -2.0 * u
    if code == BIWEIGHT:
        return rest * rest, -4.0 * u * rest
    if code == TRIWEIGHT:
        return rest * rest * rest, -6.0 * u * rest * rest
    if code == TRICUBE:
        rest = e * (1.0 + u + u * u)
        return rest * rest * rest, -9.0 * u * u * rest * rest
    return math.sin(HALF_PI * e), -HALF_PI * math.sin(HALF_PI * u)


@program
def pair_sums(rows, x, s, columns, q, lo, hi, own, kernel, orders, out):
    """The same sums pair by pair, for the queries ``rows`` only; own (Q,): excluded keys, −1 for none."""
    width, (g0, g1), (code, w, power, stretch) = columns.shape[1], orders, kernel
    head, tail = np.empty(out.shape[1]), np.empty(out.shape[1])
    for j in rows:
        head[:] = 0.0
        tail[:] = 0.0
        for i in range(lo[j], hi[j]):
            if i == own[j]:
                continue
            u, e = distance_of(q[j], x[i], w, power, stretch)
            weight = s[i] * kernel_at(code, u, e)[0]
            delta = x[i] - q[j]
            place = 0
            for p in range(width + 1):
                new = weight if p == 0 else weight * columns[i, p - 1]
                for _ in range((g0 if p == 0 else g1) + 1):
                    head[place], lost = two_sum(head[place], new)
                    tail[place] += lost
                    new *= delta
                    place += 1
        for place in range(len(head)):
            out[j, place] = head[place] + tail[place]
