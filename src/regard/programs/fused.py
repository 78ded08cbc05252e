"""The fused inner loop written in vector instructions: queries along the lanes, sums in registers.

LLVM's loop vectoriser spends more time on set-up than on arithmetic in loops this short, so this one loop is
spelled out: for each key, squared distances to two vectors of queries, their powers of two, and two running sums.
LLVM still chooses the instructions, so the same text serves AVX-512, AVX2 and NEON.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from regard.programs.compiled import program
from regard.programs.lanes import REAL_32, REAL_64, build_exp2_product, fma, full_width

# Vectors of queries handled together: enough independent work to hide the latency of one.
VECTORS = 2
# Keys whose weights are summed in the working precision before they are added to float64.
FLUSH = 128


def block_lanes(bits: int) -> int:
    """Queries in one block."""
    return VECTORS * (REAL_32 if bits == 32 else REAL_64).lanes


@program(fastmath=frozenset())
def gaussian_sums(queries, query_labels, keys, key_labels, w, columns, c, cap, start, stop, sums):
    """Add to sums (4, blocks · lanes) what the keys start … stop give to every query.

    Σ 2^(c·u²)·columns[0] and Σ 2^(c·u²)·columns[1] over keys, each as a float64 and the rounding error of adding to
    it; u = ‖w∘(q − k)‖. Gaussian weights are at most 1, so there is no peak. From u² = ``cap`` on a weight is zero;
    rows whose mass comes out tiny are for ``averages`` to redo.

    queries (blocks, d, lanes); keys (K, d); w None or (d,); columns (2, K); labels None
    or (blocks · lanes,), (K,): a pair with equal labels does not count.
    """
    lanes = queries.shape[2]
    d = keys.shape[1]
    for s in range(start, stop, FLUSH):
        e = min(s + FLUSH, stop)
        for i in range(queries.shape[0]):
            q = queries[i]
            if d == 1:
                gaussian_vectors(1, q, query_labels, keys, key_labels, w, columns, c, cap, s, e, sums, i * lanes)
            elif d == 2:
                gaussian_vectors(2, q, query_labels, keys, key_labels, w, columns, c, cap, s, e, sums, i * lanes)
            elif d == 3:
                gaussian_vectors(3, q, query_labels, keys, key_labels, w, columns, c, cap, s, e, sums, i * lanes)
            elif d == 4:
                gaussian_vectors(4, q, query_labels, keys, key_labels, w, columns, c, cap, s, e, sums, i * lanes)
            else:
                gaussian_vectors(0, q, query_labels, keys, key_labels, w, columns, c, cap, s, e, sums, i * lanes)


def _broadcast(builder: Any, vector: ir.VectorType, scalar: Any) -> Any:
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    lanes = ir.VectorType(ir.IntType(32), vector.count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), ir.Constant(lanes, [0] * vector.count))


def _load(builder: Any, pointer: Any, index: Any) -> Any:
    return builder.load(builder.gep(pointer, [index]))


def _load_vector(builder: Any, vector: ir.VectorType, pointer: Any, index: Any) -> Any:
    address = builder.bitcast(builder.gep(pointer, [index]), vector.as_pointer())
    return builder.load(address, align=_bytes(vector.element))


def _store_vector(builder: Any, value: Any, pointer: Any, index: Any) -> None:
    address = builder.bitcast(builder.gep(pointer, [index]), value.type.as_pointer())
    builder.store(value, address, align=_bytes(value.type.element))


def _bytes(scalar: ir.Type) -> int:
    return scalar.width // 8 if isinstance(scalar, ir.IntType) else 4 if isinstance(scalar, ir.FloatType) else 8


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def gaussian_vectors(
    typingctx: Any,  # noqa: ARG001
    features: Any,
    queries: Any,
    query_labels: Any,
    keys: Any,
    key_labels: Any,
    w: Any,
    columns: Any,
    c: Any,
    cap: Any,
    start: Any,
    stop: Any,
    sums: Any,
    first: Any,
) -> Any:
    """Add to sums[:, first …] what the keys start … stop give to the queries of one block.

    features: a literal d where the loop over features shall be unrolled, a literal 0 where not; queries (d, lanes);
    keys (K, d); w None or (d,); columns (2, K): what the weights multiply; labels None or (n,), (K,), equal
    labels do not count; sums (4, n) in float64: mass, its rounding error, moment, its rounding error.
    """
    unrolled = features.literal_value
    real = REAL_32 if keys.dtype.bitwidth == 32 else REAL_64
    signature = types.void(
        features, queries, query_labels, keys, key_labels, w, columns, c, cap, start, stop, sums, first
    )

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        full_width(builder)
        index = context.get_value_type(types.intp)
        vector, wide = real.vector(), ir.VectorType(ir.DoubleType(), real.lanes)
        whole = ir.VectorType(real.whole, real.lanes)
        offsets = [index(r * real.lanes) for r in range(VECTORS)]
        given = dict(zip(_NAMES, zip(signature.args, args, strict=True), strict=True))

        def array(name: str) -> Any:
            kind, value = given[name]
            return None if kind == types.none else context.make_array(kind)(context, builder, value)

        def vectors(data: Any, kind: ir.VectorType, base: Any) -> list[Any]:
            return [_load_vector(builder, kind, data, builder.add(base, at)) for at in offsets]

        def everywhere(data: Any, at: Any, kind: ir.VectorType = vector) -> Any:
            return _broadcast(builder, kind, _load(builder, data, at))

        key, query, scale, column = array("keys"), array("queries"), array("w"), array("columns")
        width = cgutils.unpack_tuple(builder, key.shape)[1]
        n_keys = cgutils.unpack_tuple(builder, column.shape)[1]
        c_all, cap_all = (_broadcast(builder, vector, given[name][1]) for name in ("c", "cap"))
        zero = real.splat(0.0)
        totals = [[cgutils.alloca_once_value(builder, zero) for _ in offsets] for _ in range(2)]
        u2 = [cgutils.alloca_once(builder, vector) for _ in offsets]
        own = array("query_labels") and vectors(array("query_labels").data, whole, given["first"][1])

        def add_feature(q: list[Any], k: Any, s: Any) -> None:
            for r, at in enumerate(u2):
                delta = builder.fsub(q[r], k)
                delta = delta if s is None else builder.fmul(delta, s)
                builder.store(fma(builder, delta, delta, builder.load(at)), at)

        def feature(f: Any) -> tuple[list[Any], Any]:
            q = vectors(query.data, vector, builder.mul(f, index(VECTORS * real.lanes)))
            return q, scale and everywhere(scale.data, f)

        hoisted = [feature(index(f)) for f in range(unrolled)]
        with cgutils.for_range_slice(builder, args[9], args[10], index(1)) as (j, _):
            row = builder.mul(j, width)
            for at in u2:
                builder.store(zero, at)
            for f, (q, s) in enumerate(hoisted):
                add_feature(q, everywhere(key.data, builder.add(row, index(f))), s)
            if not unrolled:
                with cgutils.for_range(builder, width) as loop:
                    q, s = feature(loop.index)
                    add_feature(q, everywhere(key.data, builder.add(row, loop.index)), s)
            multipliers = [everywhere(column.data, builder.add(j, builder.mul(index(p), n_keys))) for p in range(2)]
            excluded = own and everywhere(array("key_labels").data, j, whole)
            for r, at in enumerate(u2):
                distance = builder.load(at)
                weight = build_exp2_product(builder, real, real.splat, distance, c_all)
                # Beyond the cap the power is nonsense, and the comparison discards it.
                counts = builder.fcmp_ordered("<", distance, cap_all)
                if own:
                    counts = builder.and_(counts, builder.icmp_signed("!=", own[r], excluded))
                weight = builder.select(counts, weight, zero)
                for total, multiplier in zip(totals, multipliers, strict=True):
                    builder.store(fma(builder, weight, multiplier, builder.load(total[r])), total[r])

        data = array("sums")
        stride = cgutils.unpack_tuple(builder, data.shape)[1]
        for p, total in enumerate(totals):
            for r, at in enumerate(offsets):
                head_at = builder.add(builder.mul(index(2 * p), stride), builder.add(given["first"][1], at))
                tail_at = builder.add(head_at, stride)
                value = builder.load(total[r])
                value = builder.fpext(value, wide) if real is REAL_32 else value
                head, tail = (_load_vector(builder, wide, data.data, at) for at in (head_at, tail_at))
                head, error = _two_sum(builder, head, value)
                _store_vector(builder, head, data.data, head_at)
                _store_vector(builder, builder.fadd(tail, error), data.data, tail_at)
        return context.get_dummy_value()

    return signature, codegen


_NAMES = tuple("features queries query_labels keys key_labels w columns c cap start stop sums first".split())  # noqa: SIM905


def _two_sum(builder: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """x + y rounded, and what the rounding lost."""
    total = builder.fadd(x, y)
    back = builder.fsub(total, x)
    lost = builder.fadd(builder.fsub(x, builder.fsub(total, back)), builder.fsub(y, back))
    return total, lost
