"""SIMD arithmetic over vectors of queries, written in LLVM's vector types.

LLVM's loop vectoriser adds about 100 ns of set-up per loop, more than the arithmetic of a tile that fits the
first-level cache, and numba's ``exp`` is a function call. The inner loops (``gaussian_sums``, ``tile_loops``) are
therefore built explicitly; LLVM still selects the instructions, so the same code serves AVX-512, AVX2 and NEON.
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
# Weights below 2^−100 in float32 and 2^−960 in float64 are set to zero: their products with values could be subnormal,
# which processors handle a hundred times more slowly.
CUTOFF_EXPONENT = {4: 100.0, 8: 960.0}
# Bytes of one AVX-512 register; on narrower machines a vector takes two or four registers.
REGISTER_BYTES = 64
# Vectors of queries per block: enough independent work to hide instruction latency.
VECTORS_PER_BLOCK = 2
# Coefficients of 2^t on [−½, ½], interpolated at Chebyshev points: relative error 1e-7 and 4e-18.
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


class LaneType(NamedTuple):
    """A scalar type, the integer type of its size, and what computing 2^x in it needs."""

    scalar: ir.Type
    whole: ir.Type
    mantissa: int
    coefficients: tuple[float, ...]

    @property
    def lanes(self) -> int:
        return REGISTER_BYTES * 8 // int(self.whole.width)

    @property
    def vector(self) -> ir.VectorType:
        return ir.VectorType(self.scalar, self.lanes)

    @property
    def wholes(self) -> ir.VectorType:
        return ir.VectorType(self.whole, self.lanes)

    def constant(self, value: float) -> ir.Constant:
        # LLVM accepts a float32 constant only if it is representable exactly.
        rounded = struct.unpack("f", struct.pack("f", value))[0] if self.mantissa == 23 else value
        return ir.Constant(self.scalar, rounded)

    def splat(self, value: float) -> ir.Constant:
        return ir.Constant(self.vector, [self.constant(value)] * self.lanes)


REAL_32 = LaneType(ir.FloatType(), ir.IntType(32), 23, EXP2_32)
REAL_64 = LaneType(ir.DoubleType(), ir.IntType(64), 52, EXP2_64)
DOUBLE = ir.DoubleType()


def lane_type(array: Any) -> LaneType:
    """The scalar type of a numba array type."""
    return REAL_32 if array.dtype.bitwidth == 32 else REAL_64


def block_lanes(itemsize: int) -> int:
    """Number of queries in one block, for a float of this many bytes."""
    return VECTORS_PER_BLOCK * (REAL_32 if itemsize == 4 else REAL_64).lanes


class BlockBuilder:
    """Builds LLVM code for one block of queries, held as one or several vectors."""

    def __init__(
        self, context: Any, builder: Any, names: tuple[str, ...], signature: Any, args: Any, real: LaneType, lanes: int
    ) -> None:
        self.context, self.builder, self.real = context, builder, real
        self.index = context.get_value_type(types.intp)
        self.offsets = [self.index(r * real.lanes) for r in range(lanes // real.lanes)]
        self.width = self.index(lanes)
        self._arguments = dict(zip(names, zip(signature.args, args, strict=True), strict=True))
        _prefer_widest_vectors(builder)

    def value(self, name: str) -> Any:
        return self._arguments[name][1]

    def has(self, name: str) -> bool:
        return name in self._arguments and bool(self._arguments[name][0] != types.none)

    def size(self, name: str, axis: int) -> Any:
        return cgutils.unpack_tuple(self.builder, self._array(name).shape)[axis]

    def data(self, name: str) -> Any:
        """Pointer to the first element of an array argument."""
        return self._array(name).data

    def _array(self, name: str) -> Any:
        kind, value = self._arguments[name]
        return self.context.make_array(kind)(self.context, self.builder, value)

    def at(self, row: Any, stride: Any, column: Any = None) -> Any:
        place = self.builder.mul(row, stride)
        return place if column is None else self.builder.add(place, column)

    def broadcast(self, scalar: Any) -> Any:
        """A vector with this scalar in every lane."""
        vector = ir.VectorType(scalar.type, self.real.lanes)
        undefined = ir.Constant(vector, ir.Undefined)
        one = self.builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), self.real.lanes), [0] * self.real.lanes)
        return self.builder.shuffle_vector(one, undefined, zeros)

    def scalar(self, name: str) -> Any:
        """A scalar argument in every lane."""
        return self.broadcast(self.value(name))

    def load_broadcast(self, name: str, place: Any) -> Any:
        """Element ``place`` of an array argument in every lane."""
        return self.broadcast(self.builder.load(self.builder.gep(self._array(name).data, [place])))

    def load(self, name: str, row: Any, scalar: Any = None) -> list[Any]:
        """Row ``row`` of an array argument (…, lanes), as the block's vectors."""
        vector = ir.VectorType(scalar or self.real.scalar, self.real.lanes)
        return [self.builder.load(address, align=4) for address in self._addresses(name, row, vector)]

    def store(self, values: list[Any], name: str, row: Any) -> None:
        """Store the block's vectors in row ``row`` of an array argument (…, lanes)."""
        for value, address in zip(values, self._addresses(name, row, values[0].type), strict=True):
            self.builder.store(value, address, align=4)

    def _addresses(self, name: str, row: Any, vector: Any) -> list[Any]:
        data, place = self._array(name).data, self.builder.mul(row, self.width)
        places = [self.builder.add(place, offset) for offset in self.offsets]
        return [self.builder.bitcast(self.builder.gep(data, [at]), vector.as_pointer()) for at in places]

    def variables(self) -> list[Any]:
        """A variable for each vector of the block, initially 0; LLVM promotes them to registers."""
        return [cgutils.alloca_once_value(self.builder, self.real.splat(0.0)) for _ in self.offsets]

    def assign(self, variables: list[Any], values: list[Any]) -> None:
        for variable, value in zip(variables, values, strict=True):
            self.builder.store(value, variable)

    def reset(self, variables: list[Any]) -> None:
        self.assign(variables, [self.real.splat(0.0)] * len(variables))

    def update(self, variables: list[Any], change: Callable[..., Any], *operands: list[Any]) -> None:
        for variable, *rest in zip(variables, *operands, strict=True):
            self.builder.store(change(self.builder.load(variable), *rest), variable)

    def read(self, variables: list[Any]) -> list[Any]:
        return [self.builder.load(variable) for variable in variables]

    def specialise(self, number: Any, most: int, body: Callable[[int], None]) -> None:
        """Switch on ``number``: ``body(n)`` with n known for n = 1 … most, so that it can unroll; else ``body(0)``."""
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
        """Fused multiply-add: x·y + z with one rounding."""
        kind = f"v{self.real.lanes}{'f32' if self.real is REAL_32 else 'f64'}"
        function = ir.FunctionType(x.type, [x.type] * 3)
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, function, f"llvm.fma.{kind}"), [x, y, z]
        )

    def exp2_product(self, x: Any, c: Any) -> Any:
        """2^(x·c), valid for x·c from the exponent of the smallest normal number to 0; undefined outside.

        Adding 1.5·2^mantissa rounds x·c to an integer n, left in the low bits; the fraction x·c − n is exact by fused
        multiply-add, its power of two is a polynomial, and n is added to the exponent field.
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

    def decay(self, gap: Any, cutoff: Any, minus_log2e: Any) -> Any:
        """exp(−gap) for gap ≥ 0; exactly 0 for gap ≥ cutoff, so that scores of −inf get weight 0."""
        near = self.builder.fcmp_ordered("<", gap, cutoff)
        return self.builder.select(near, self.exp2_product(gap, minus_log2e), self.real.splat(0.0))

    def add_sums(self, totals: list[list[Any]], first: Any) -> None:
        """Add variables to rows ``first``, first + 1, … of ``sums`` (…, 2, lanes): totals and their rounding errors."""
        builder = self.builder
        for p, total in enumerate(totals):
            head = builder.mul(builder.add(first, self.index(p)), self.index(2))
            tail = builder.add(head, self.index(1))
            values = self.read(total)
            if self.real is REAL_32:
                values = [builder.fpext(value, ir.VectorType(DOUBLE, self.real.lanes)) for value in values]
            sums, errors = [], []
            for x, y, rest in zip(
                self.load("sums", head, DOUBLE), values, self.load("sums", tail, DOUBLE), strict=True
            ):
                rounded = builder.fadd(x, y)
                back = builder.fsub(rounded, x)
                error = builder.fadd(builder.fsub(x, builder.fsub(rounded, back)), builder.fsub(y, back))
                sums.append(rounded)
                errors.append(builder.fadd(rest, error))
            self.store(sums, "sums", head)
            self.store(errors, "sums", tail)


def block_program(
    names: str, *, literals: str = "", of: str, lanes: int | None = None
) -> Callable[[Callable[..., None]], Any]:
    """Turn ``body(block, **literals)`` into an intrinsic that programs call with the arguments ``names``.

    Parameters
    ----------
    names : names of the arguments, separated by blanks, as ``body`` looks them up in its ``BlockBuilder``.
    literals : names of the leading arguments that must be integer literals in the calling program.
    of : name of the array whose dtype sets the precision.
    lanes : queries of a block; by default ``block_lanes``.
    """

    def decorate(body: Callable[..., None]) -> Any:
        order = (*literals.split(), *names.split())

        def typed(typingctx: Any, *kinds_given: Any) -> Any:  # noqa: ARG001
            kinds = dict(zip(order, kinds_given, strict=True))
            real = lane_type(kinds[of])
            chosen = {name: kinds[name].literal_value for name in literals.split()}

            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                width = block_lanes(real.whole.width // 8) if lanes is None else lanes
                body(BlockBuilder(context, builder, order, signature, args, real, width), **chosen)
                return context.get_dummy_value()

            return types.void(*kinds_given), codegen

        # numba reads the arguments off the signature.
        parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("typingctx", *order)]
        typed.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        typed.__name__, typed.__doc__ = body.__name__, body.__doc__
        return intrinsic(prefer_literal=True)(typed)

    return decorate


@intrinsic  # type: ignore[untyped-decorator]
def use_widest_vectors(typingctx: Any) -> Any:  # noqa: ARG001
    """Let LLVM's loop vectoriser use the widest registers in the calling program."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        _prefer_widest_vectors(builder)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic  # type: ignore[untyped-decorator]
def lesser(typingctx: Any, x: Any, y: Any) -> Any:  # noqa: ARG001
    """x if x < y else y, as one instruction; y if x is NaN."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[0], args[1])

    return x(x, x), codegen


def _prefer_widest_vectors(builder: Any) -> None:
    """Ask for 512-bit vectors: on most processors that have them LLVM prefers 256 bits."""
    # llvmlite checks attribute names against a list without these two, so its own ``add`` is bypassed.
    set.add(builder.function.attributes, '"prefer-vector-width"="512"')
    set.add(builder.function.attributes, '"min-legal-vector-width"="512"')
