"""Arithmetic along SIMD lanes: vectors of queries, written in LLVM's vector types.

LLVM's own vectoriser pays about 100 ns of set-up per loop, more than the arithmetic of a tile that fits the
first-level cache, and numba's ``exp`` is a call. So the inner loops (``fused``, ``tiles``) are spelled out with what
is here; LLVM still chooses the instructions, and the same text serves AVX-512, AVX2 and NEON.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LOG2E = 1.4426950408889634
# Weights below 2^−100 (2^−960) count as zero. Smaller ones times a value would leave the normal numbers, where
# processors are a hundred times slower.
DEEPEST = {4: 100.0, 8: 960.0}
# Bytes in one vector register of AVX-512; narrower machines use two or four registers for it.
REGISTER = 64
# Vectors of queries handled together: enough independent work to hide the latency of one.
VECTORS = 2
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


class Real(NamedTuple):
    """A scalar type and what its powers of two need."""

    scalar: ir.Type
    whole: ir.Type
    mantissa: int
    coefficients: tuple[float, ...]

    @property
    def lanes(self) -> int:
        return REGISTER * 8 // int(self.whole.width)

    @property
    def vector(self) -> ir.VectorType:
        return ir.VectorType(self.scalar, self.lanes)

    @property
    def wholes(self) -> ir.VectorType:
        return ir.VectorType(self.whole, self.lanes)

    def constant(self, value: float) -> ir.Constant:
        # LLVM takes a float32 constant only if it is one exactly.
        rounded = struct.unpack("f", struct.pack("f", value))[0] if self.mantissa == 23 else value
        return ir.Constant(self.scalar, rounded)

    def splat(self, value: float) -> ir.Constant:
        return ir.Constant(self.vector, [self.constant(value)] * self.lanes)


REAL_32 = Real(ir.FloatType(), ir.IntType(32), 23, EXP2_32)
REAL_64 = Real(ir.DoubleType(), ir.IntType(64), 52, EXP2_64)
WIDE = ir.DoubleType()


def real_of(array: Any) -> Real:
    """The scalar type of a numba array type."""
    return REAL_32 if array.dtype.bitwidth == 32 else REAL_64


def block_lanes(itemsize: int) -> int:
    """Queries in one block."""
    return VECTORS * (REAL_32 if itemsize == 4 else REAL_64).lanes


class Block:
    """Builds code for one block of queries: loads, stores and loops with the block's vectors side by side."""

    def __init__(
        self, context: Any, builder: Any, names: tuple[str, ...], signature: Any, args: Any, real: Real
    ) -> None:
        self.context, self.builder, self.real = context, builder, real
        self.index = context.get_value_type(types.intp)
        self.offsets = [self.index(r * real.lanes) for r in range(VECTORS)]
        self.width = self.index(VECTORS * real.lanes)
        self._given = dict(zip(names, zip(signature.args, args, strict=True), strict=True))
        _full_width(builder)

    def value(self, name: str) -> Any:
        return self._given[name][1]

    def has(self, name: str) -> bool:
        return name in self._given and bool(self._given[name][0] != types.none)

    def data(self, name: str) -> Any:
        """Pointer to the first entry of an array."""
        return self._array(name).data

    def size(self, name: str, axis: int) -> Any:
        return cgutils.unpack_tuple(self.builder, self._array(name).shape)[axis]

    def _array(self, name: str) -> Any:
        kind, value = self._given[name]
        return self.context.make_array(kind)(self.context, self.builder, value)

    def at(self, row: Any, stride: Any, column: Any = None) -> Any:
        place = self.builder.mul(row, stride)
        return place if column is None else self.builder.add(place, column)

    def everywhere(self, scalar: Any) -> Any:
        """A scalar in every lane."""
        vector = ir.VectorType(scalar.type, self.real.lanes)
        undefined = ir.Constant(vector, ir.Undefined)
        one = self.builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), self.real.lanes), [0] * self.real.lanes)
        return self.builder.shuffle_vector(one, undefined, zeros)

    def load_everywhere(self, pointer: Any, place: Any) -> Any:
        return self.everywhere(self.builder.load(self.builder.gep(pointer, [place])))

    def load(self, pointer: Any, place: Any, scalar: Any = None) -> list[Any]:
        """The block's vectors, from ``place`` on."""
        vector = ir.VectorType(scalar or self.real.scalar, self.real.lanes)
        return [self.builder.load(self._address(pointer, place, at, vector), align=4) for at in self.offsets]

    def store(self, values: list[Any], pointer: Any, place: Any) -> None:
        for value, at in zip(values, self.offsets, strict=True):
            self.builder.store(value, self._address(pointer, place, at, value.type), align=4)

    def _address(self, pointer: Any, place: Any, offset: Any, vector: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(pointer, [self.builder.add(place, offset)]), vector.as_pointer())

    def variables(self, value: Any) -> list[Any]:
        """One mutable vector per vector of the block; LLVM keeps them in registers."""
        return [cgutils.alloca_once_value(self.builder, value) for _ in self.offsets]

    def update(self, variables: list[Any], change: Callable[..., Any], *operands: list[Any]) -> None:
        for variable, *rest in zip(variables, *operands, strict=True):
            self.builder.store(change(self.builder.load(variable), *rest), variable)

    def read(self, variables: list[Any]) -> list[Any]:
        return [self.builder.load(variable) for variable in variables]

    def by_number(self, number: Any, most: int, body: Callable[[int], None]) -> None:
        """The code of ``body(n)`` for each n = 1 … most, so that loops of n steps can be unrolled; else ``body(0)``."""
        builder, end = self.builder, self.builder.append_basic_block()
        cases = [builder.append_basic_block() for _ in range(most + 1)]
        switch = builder.switch(number, cases[0])
        for n, case in enumerate(cases):
            if n:
                switch.add_case(self.index(n), case)
            with builder.goto_block(case):
                body(n)
                builder.branch(end)
        builder.position_at_end(end)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """x·y + z, rounded once."""
        kind = f"v{self.real.lanes}{'f32' if self.real is REAL_32 else 'f64'}"
        function = ir.FunctionType(x.type, [x.type] * 3)
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, function, f"llvm.fma.{kind}"), [x, y, z]
        )

    def exp2_product(self, x: Any, c: Any) -> Any:
        """2^(x·c) for x·c between the exponents of the smallest normal number and 0; nonsense beyond.

        Adding 1.5·2^mantissa rounds to a whole number n and leaves n in the low bits; the fraction x·c − n is exact
        by fused multiply-add, its power of two a polynomial, and n is added to the exponent field.
        """
        builder, real = self.builder, self.real
        magic = real.splat(1.5 * 2.0**real.mantissa)
        shifted = self.fma(x, c, magic)
        fraction = self.fma(x, c, builder.fneg(builder.fsub(shifted, magic)))
        *lower, power = (real.splat(coefficient) for coefficient in real.coefficients)
        for coefficient in reversed(lower):
            power = self.fma(power, fraction, coefficient)
        places = ir.Constant(real.wholes, [ir.Constant(real.whole, real.mantissa)] * real.lanes)
        exponent = builder.shl(builder.bitcast(shifted, real.wholes), places)
        return builder.bitcast(builder.add(builder.bitcast(power, real.wholes), exponent), real.vector)

    def decay(self, gap: Any, cap: Any, minus_log2e: Any) -> Any:
        """exp(−gap) for gap ≥ 0, exactly 0 from gap = cap on, so that −inf scores get no weight at all."""
        near = self.builder.fcmp_ordered("<", gap, cap)
        return self.builder.select(near, self.exp2_product(gap, minus_log2e), self.real.splat(0.0))

    def add_sums(self, totals: list[list[Any]], first: Any) -> None:
        """Add variables to the rows from ``first`` on of the array ``sums`` (…, 2, lanes): sums, and what they lose."""
        for p, total in enumerate(totals):
            row = self.builder.mul(self.builder.add(first, self.index(p)), self.index(2))
            head = self.at(row, self.width)
            self._add_wide(self.read(total), self.data("sums"), head, self.builder.add(head, self.width))

    def _add_wide(self, values: list[Any], pointer: Any, head: Any, tail: Any) -> None:
        """Add to float64 sums in memory, and what the rounding loses to the sums at ``tail``."""
        builder = self.builder
        if self.real is REAL_32:
            values = [builder.fpext(value, ir.VectorType(WIDE, self.real.lanes)) for value in values]
        sums, lost = [], []
        for x, y, rest in zip(self.load(pointer, head, WIDE), values, self.load(pointer, tail, WIDE), strict=True):
            total = builder.fadd(x, y)
            back = builder.fsub(total, x)
            error = builder.fadd(builder.fsub(x, builder.fsub(total, back)), builder.fsub(y, back))
            sums.append(total)
            lost.append(builder.fadd(rest, error))
        self.store(sums, pointer, head)
        self.store(lost, pointer, tail)


def block_program(*names: str, literals: tuple[str, ...] = (), of: str) -> Callable[[Callable[..., None]], Any]:
    """Turn ``body(block, literal values…)`` into a function that programs can call with the arguments ``names``.

    ``literals`` are whole numbers written in the calling program; ``of`` names the array that sets the precision.
    """

    def decorate(body: Callable[..., None]) -> Any:
        order = (*literals, *names)

        def typed(typingctx: Any, *given: Any) -> Any:  # noqa: ARG001
            kinds = dict(zip(order, given, strict=True))
            real = real_of(kinds[of])
            chosen = {name: kinds[name].literal_value for name in literals}

            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                body(Block(context, builder, order, signature, args, real), **chosen)
                return context.get_dummy_value()

            return types.void(*given), codegen

        # numba reads the arguments off the signature.
        parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("typingctx", *order)]
        typed.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        typed.__name__, typed.__doc__ = body.__name__, body.__doc__
        return intrinsic(prefer_literal=True)(typed)

    return decorate


@intrinsic  # type: ignore[untyped-decorator]
def widest_lanes(typingctx: Any) -> Any:  # noqa: ARG001
    """Let LLVM's own vectoriser use full registers in the calling program."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        _full_width(builder)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic  # type: ignore[untyped-decorator]
def lesser(typingctx: Any, x: Any, y: Any) -> Any:  # noqa: ARG001
    """x if x < y else y, as one instruction; y where x is NaN."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[0], args[1])

    return x(x, x), codegen


def _full_width(builder: Any) -> None:
    """On most chips that have 512-bit registers LLVM prefers half of them."""
    # llvmlite checks attribute names against a list that lacks these, so go past its own ``add``.
    set.add(builder.function.attributes, '"prefer-vector-width"="512"')
    set.add(builder.function.attributes, '"min-legal-vector-width"="512"')
