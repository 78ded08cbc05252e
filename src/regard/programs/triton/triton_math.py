"""Elementwise functions of the Triton programs: exponentials, kernels and their derivatives, tuples of sums.

Under TRITON_INTERPRET=1 programs run on a CPU, where inline assembly is replaced by the plain operation.
"""

# ruff: noqa: RUF005
# Triton has no unpacking into tuples.

# mypy: ignore-errors

from __future__ import annotations

import os

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")

# Codes of scores: those of ``regard.core.kernels``, against which a test checks them, then the other scores.
LAPLACE = tl.constexpr(1)
BOXCAR = tl.constexpr(2)
TRIANGULAR = tl.constexpr(3)
EPANECHNIKOV = tl.constexpr(4)
BIWEIGHT = tl.constexpr(5)
TRIWEIGHT = tl.constexpr(6)
TRICUBE = tl.constexpr(7)
COSINE = tl.constexpr(8)
DOT = tl.constexpr(9)
ADDITIVE = tl.constexpr(10)
# Additive scores whose exponentials fit into fewer products (two, not four), or into none.
ADDITIVE_PAIRS = tl.constexpr(11)
ADDITIVE_WIDE = tl.constexpr(12)


@triton.jit
def ex2(x):
    """2^x; below 2^−126 it is 0 in float32."""
    if INTERPRETED or x.dtype == tl.float64:
        return tl.exp2(x)
    else:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def reciprocal(x):
    if INTERPRETED or x.dtype == tl.float64:
        return 1.0 / x
    else:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def square_root(x):
    if INTERPRETED or x.dtype == tl.float64:
        return tl.sqrt(x)
    else:
        return tl.inline_asm_elementwise(
            "sqrt.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def sine(x):
    """sin x of x in [0, π/2], by its series."""
    y = -x * x
    total = 1.0 + y * (1.0 / 420.0)
    total = 1.0 + y * total * (1.0 / 342.0)
    total = 1.0 + y * total * (1.0 / 272.0)
    total = 1.0 + y * total * (1.0 / 210.0)
    total = 1.0 + y * total * (1.0 / 156.0)
    total = 1.0 + y * total * (1.0 / 110.0)
    total = 1.0 + y * total * (1.0 / 72.0)
    total = 1.0 + y * total * (1.0 / 42.0)
    total = 1.0 + y * total * (1.0 / 20.0)
    return x + x * y * total * (1.0 / 6.0)


@triton.jit
def zeros(N: tl.constexpr, BF: tl.constexpr, REAL: tl.constexpr):
    """N tiles (BF,) of zeros."""
    out = ()
    for _ in tl.static_range(N):
        out = out + (tl.zeros([BF], REAL),)
    return out


@triton.jit
def added(a, b, N: tl.constexpr):
    out = ()
    for n in tl.static_range(N):
        out = out + (a[n] + b[n],)
    return out


@triton.jit
def scaled(parts, by, N: tl.constexpr):
    out = ()
    for n in tl.static_range(N):
        out = out + (parts[n] * by,)
    return out


@triton.jit
def kernel(u2, SCORE: tl.constexpr):
    """K of a compact kernel from u²."""
    if SCORE == BOXCAR:
        return tl.where(u2 <= 1.0, 1.0, 0.0).to(u2.dtype)
    elif SCORE == TRIANGULAR:
        return tl.maximum(1.0 - square_root(u2), 0.0)
    elif SCORE == TRICUBE:
        inner = tl.minimum(u2, 1.0)
        rest = 1.0 - inner * square_root(inner)
        return rest * rest * rest
    elif SCORE == COSINE:
        # cos(πu/2) = sin(π(1 − u)/2) keeps its relative precision near u = 1.
        return sine(tl.maximum(1.0 - square_root(u2), 0.0) * 1.5707963267948966)
    else:
        rest = tl.maximum(1.0 - u2, 0.0)
        if SCORE == EPANECHNIKOV:
            return rest
        elif SCORE == BIWEIGHT:
            return rest * rest
        else:
            return rest * rest * rest


@triton.jit
def kernel_derivative(u2, SCORE: tl.constexpr):
    """dK/d(u²) of a compact kernel; 0 at distance 0 where K has a kink there, and on the edge of the support."""
    if SCORE == BOXCAR:
        return u2 * 0.0
    elif SCORE == TRIANGULAR:
        return tl.where((u2 > 0.0) & (u2 < 1.0), -0.5 / square_root(tl.where(u2 > 0.0, u2, 1.0)), 0.0)
    elif SCORE == TRICUBE:
        inner = tl.minimum(u2, 1.0)
        u = square_root(inner)
        rest = 1.0 - inner * u
        return -4.5 * u * rest * rest
    elif SCORE == COSINE:
        u = square_root(u2)
        slope = sine(tl.minimum(u, 1.0) * 1.5707963267948966) * -0.7853981633974483 / tl.where(u > 0.0, u, 1.0)
        slope = tl.where(u > 0.0, slope, -1.2337005501361697)
        return tl.where(u2 < 1.0, slope, 0.0)
    else:
        rest = tl.maximum(1.0 - u2, 0.0)
        if SCORE == EPANECHNIKOV:
            return tl.where(u2 < 1.0, -1.0, 0.0).to(u2.dtype)
        elif SCORE == BIWEIGHT:
            return -2.0 * rest
        else:
            return -3.0 * rest * rest
