"""Arithmetic that vectorises: exp, minimum, maximum and sine as straight-line code for every SIMD lane.

numba's ``exp``, ``min`` and ``max`` are calls or branches that keep LLVM from using vector registers. The power of
two is built once and serves scalars (``exp2_product`` in ordinary loops) and explicit vectors (``fused``) alike.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from regard.programs.compiled import program

LOG2E = 1.4426950408889634
# Weights below 2^−100 (2^−960) count as zero. Smaller ones times a value would leave the normal numbers, where
# processors are a hundred times slower.
DEEPEST = {4: 100.0, 8: 960.0}
# 2^t on [−½, ½] by interpolation at Chebyshev points: relative error 1e-7 and 4e-18.
EXP2_32 = (
    1.0000000754548972,
    0.6931471880262288,
    0.2402210748530834,
    0.05550357114219078,
    0.009676031918322054,
    0.0013390863364671234,
)
EXP2_64 = (
    1.0,
    0.6931471805599453,
    0.24022650695910158,
    0.055504108664821625,
    0.009618129107587256,
    0.001333355814640647,
    0.00015403530463724353,
    1.5252733841556773e-05,
    1.3215432535912375e-06,
    1.0178057087733941e-07,
    7.074194297288521e-09,
    4.4558179083360645e-10,
)
# Bytes in one vector register of AVX-512; narrower machines use two or four registers for it.
REGISTER = 64


class Real(NamedTuple):
    """A scalar type and what its powers of two need."""

    scalar: ir.Type
    whole: ir.Type
    mantissa: int
    coefficients: tuple[float, ...]

    @property
    def lanes(self) -> int:
        return REGISTER * 8 // int(self.whole.width)

    def vector(self) -> ir.VectorType:
        return ir.VectorType(self.scalar, self.lanes)

    def constant(self, value: float) -> ir.Constant:
        # LLVM takes a float32 constant only if it is one exactly.
        rounded = struct.unpack("f", struct.pack("f", value))[0] if self.mantissa == 23 else value
        return ir.Constant(self.scalar, rounded)

    def splat(self, value: float) -> ir.Constant:
        return ir.Constant(self.vector(), [self.constant(value)] * self.lanes)


REAL_32 = Real(ir.FloatType(), ir.IntType(32), 23, EXP2_32)
REAL_64 = Real(ir.DoubleType(), ir.IntType(64), 52, EXP2_64)


def fma(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """x·y + z, rounded once."""
    kind = x.type
    name = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [kind] * 3), f"llvm.fma.{_suffix(kind)}"
    )
    return builder.call(name, [x, y, z])


def _suffix(kind: Any) -> str:
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_suffix(kind.element)}"
    return "f32" if isinstance(kind, ir.FloatType) else "f64"


def build_exp2_product(builder: Any, real: Real, constant: Callable[[float], Any], x: Any, c: Any) -> Any:
    """2^(x·c) for x·c in [−126, 0] (float32) or [−1022, 0] (float64), scalar or vector.

    Adding 1.5·2^mantissa rounds to a whole number n and leaves n in the low bits; the fraction x·c − n is exact
    by fused multiply-add, its power of two a polynomial, and n is added to the exponent field.
    """
    magic = constant(1.5 * 2.0**real.mantissa)
    shifted = fma(builder, x, c, magic)
    fraction = fma(builder, x, c, builder.fneg(builder.fsub(shifted, magic)))
    *lower, power = (constant(coefficient) for coefficient in real.coefficients)
    for coefficient in reversed(lower):
        power = fma(builder, power, fraction, coefficient)
    whole: ir.Type = real.whole
    shift = ir.Constant(whole, real.mantissa)
    if isinstance(x.type, ir.VectorType):
        whole = ir.VectorType(whole, real.lanes)
        shift = ir.Constant(whole, [shift] * real.lanes)
    exponent = builder.shl(builder.bitcast(shifted, whole), shift)
    return builder.bitcast(builder.add(builder.bitcast(power, whole), exponent), x.type)


def full_width(builder: Any) -> None:
    """Ask LLVM for 512-bit registers in the function being built (on most chips that have them it prefers 256)."""
    # llvmlite checks attribute names against a list that lacks these, so go past its own ``add``.
    set.add(builder.function.attributes, '"prefer-vector-width"="512"')
    set.add(builder.function.attributes, '"min-legal-vector-width"="512"')


@intrinsic  # type: ignore[untyped-decorator]
def widest_lanes(typingctx: Any) -> Any:  # noqa: ARG001
    """``full_width`` for the calling program."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        full_width(builder)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic  # type: ignore[untyped-decorator]
def exp2_product(typingctx: Any, x: Any, c: Any) -> Any:  # noqa: ARG001
    """2^(x·c) for x·c in [−126, 0] (float32) or [−1022, 0] (float64)."""
    real = REAL_32 if x.bitwidth == 32 else REAL_64

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return build_exp2_product(builder, real, real.constant, *args)

    return x(x, x), codegen


@intrinsic  # type: ignore[untyped-decorator]
def lesser(typingctx: Any, x: Any, y: Any) -> Any:  # noqa: ARG001
    """x if x < y else y, as one instruction; y where x is NaN."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[0], args[1])

    return x(x, x), codegen


@intrinsic  # type: ignore[untyped-decorator]
def greater(typingctx: Any, x: Any, y: Any) -> Any:  # noqa: ARG001
    """The larger of two numbers, in the form LLVM recognises as a reduction."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        kind = args[0].type
        function = ir.FunctionType(kind, [kind] * 2)
        maximum = cgutils.get_or_insert_function(builder.module, function, f"llvm.maxnum.{_suffix(kind)}")
        return builder.call(maximum, args)

    return x(x, x), codegen


@program()
def decay(gap, cap, log2e):
    """exp(−gap) for gap ≥ 0, exactly 0 from gap = cap on, so that −inf scores get no weight at all."""
    power = exp2_product(lesser(gap, cap), -log2e)
    return power if gap < cap else power - power
