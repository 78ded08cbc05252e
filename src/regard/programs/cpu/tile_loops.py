"""Vector loops over one tile of pairs: T keys by one block of queries, stored as (T, lanes).

The score loops write squared distances, dot products or additive scores; ``row_maxima`` and ``exponentiate`` turn
scores into weights; ``reduce`` multiplies weights by columns of the keys and sums over keys; ``expand`` is its
transpose. All moments and gradients are composed of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import cgutils

from regard.programs.cpu.compiled import program
from regard.programs.cpu.lanes import VECTORS_PER_BLOCK, BlockBuilder, block_program


def _each_key(block: BlockBuilder) -> Any:
    return cgutils.for_range(block.builder, block.value("n"))


def _of_key(block: BlockBuilder, array: str, j: Any, column: Any) -> Any:
    """array[start + j, column] in every lane, for an array (K, …) over keys."""
    row = block.builder.add(block.value("start"), j)
    return block.load_broadcast(array, block.at(row, block.size(array, 1), column))


def _query(block: BlockBuilder, f: Any) -> list[Any]:
    row = block.builder.add(block.builder.mul(block.value("block_index"), block.size("queries", 1)), f)
    return block.load("queries", row)


def accumulate(block: BlockBuilder, term: Callable[..., Any], finish: Callable[[Any], Any] = lambda x: x) -> None:
    """tile[j] = finish(Σ_f term(running sum, query_f, key_f, w_f·scale)); w and scale may be absent or None."""
    builder, scale, sums = block.builder, _scale(block), block.variables()
    with _each_key(block) as key:
        block.reset(sums)
        with cgutils.for_range(builder, block.size("keys", 1)) as feature:
            k = _of_key(block, "keys", key.index, feature.index)
            w = block.load_broadcast("w", feature.index) if block.has("w") else None
            by = [w] * len(sums) if scale is None else [builder.fmul(w, x) for x in scale]
            block.update(sums, lambda total, q, w: term(total, q, k, w), _query(block, feature.index), by)
        block.store([finish(total) for total in block.read(sums)], "tile", key.index)


def _change(block: BlockBuilder, change: Callable[..., Any], *others: list[Any], out: str = "tile") -> None:
    """out[j] = change(j, tile[j], *others), vector by vector."""
    with _each_key(block) as key:
        vectors = zip(block.load("tile", key.index), *others, strict=True)
        block.store([change(key.index, *operands) for operands in vectors], out, key.index)


_PAIRS = "queries block_index keys start n w"


@block_program(f"{_PAIRS} scale stretch largest tile", literals="gaussian", of="keys")
def distances(block: BlockBuilder, gaussian: int) -> None:
    """tile = u² = ‖w∘(q − k)·scale‖²·stretch, at most ``largest``; or, if ``gaussian``, the score −½u².

    queries (blocks, d, lanes), keys (K, d), w (d,), scale None or (blocks, lanes). Fused multiply-adds are not used:
    a² + b² must equal b² + a² for ties to be exact.
    """
    builder = block.builder

    def term(total: Any, q: Any, k: Any, w: Any) -> Any:
        delta = builder.fmul(builder.fsub(q, k), w)
        return builder.fadd(total, builder.fmul(delta, delta))

    accumulate(block, term, lambda total: _finished(block, total, gaussian))


def _scale(block: BlockBuilder) -> list[Any] | None:
    if not block.has("scale"):
        return None
    return block.load("scale", block.value("block_index"))


def _finished(block: BlockBuilder, total: Any, gaussian: int = 0) -> Any:
    """u², or the Gaussian score, from a sum of squares."""
    builder, largest = block.builder, block.scalar("largest")
    u2 = builder.fmul(total, block.scalar("stretch"))
    u2 = builder.select(builder.fcmp_ordered("<", u2, largest), u2, largest)
    return builder.fmul(u2, block.real.splat(-0.5)) if gaussian else u2


@block_program(f"{_PAIRS} tile", of="keys")
def dot_products(block: BlockBuilder) -> None:
    """tile = Σ_f w_f·q_f·k_f."""
    accumulate(block, lambda total, q, k, w: block.fma(block.builder.fmul(q, w), k, total))


@block_program(f"{_PAIRS} cutoff log2e tile", of="keys")
def additive_scores(block: BlockBuilder) -> None:
    """tile = Σ_h w_h·tanh(q_h + k_h)."""
    accumulate(block, lambda total, q, k, w: block.fma(w, _tanh(block, q, k), total))


def _tanh(block: BlockBuilder, q: Any, k: Any) -> Any:
    """tanh(q + k) = sign·(1 − e)/(1 + e) with e = exp(−2|q + k|)."""
    builder, real = block.builder, block.real
    x = builder.fadd(q, k)
    negative = builder.fcmp_ordered("<", x, real.splat(0.0))
    size = builder.select(negative, builder.fneg(x), x)
    cutoff = block.scalar("cutoff")
    e = block.decay(builder.fadd(size, size), cutoff, builder.fneg(block.scalar("log2e")))
    one = real.splat(1.0)
    t = builder.fdiv(builder.fsub(one, e), builder.fadd(one, e))
    return builder.select(negative, builder.fneg(t), t)


@block_program(f"{_PAIRS} scale stretch largest tile", of="keys")
def metric_distances(block: BlockBuilder) -> None:
    """As ``distances`` for a matrix w (d, r): u² = ‖(q − k)·scale @ w‖²."""
    builder, scale, sums, z = block.builder, _scale(block), block.variables(), block.variables()
    with _each_key(block) as key:
        block.reset(sums)
        with cgutils.for_range(builder, block.size("w", 1)) as direction:
            block.reset(z)
            with cgutils.for_range(builder, block.size("keys", 1)) as feature:
                k = _of_key(block, "keys", key.index, feature.index)
                w = block.load_broadcast("w", block.at(feature.index, block.size("w", 1), direction.index))
                by = [w] * len(z) if scale is None else [builder.fmul(w, x) for x in scale]

                def add(total: Any, q: Any, w: Any, k: Any = k) -> Any:
                    return builder.fadd(total, builder.fmul(builder.fsub(q, k), w))

                block.update(z, add, _query(block, feature.index), by)
            block.update(sums, lambda total, x: builder.fadd(total, builder.fmul(x, x)), block.read(z))
        block.store([_finished(block, total) for total in block.read(sums)], "tile", key.index)


def _by_key(block: BlockBuilder, array: str, j: Any) -> Any:
    """array[start + j] in every lane, for an array (K,) over keys."""
    return block.load_broadcast(array, block.builder.add(block.value("start"), j))


@block_program("tile n by start", of="tile")
def add_by_key(block: BlockBuilder) -> None:
    """tile[j] += by[start + j]."""
    _change(block, lambda j, x: block.builder.fadd(x, _by_key(block, "by", j)))


@block_program("tile n by start", of="tile")
def multiply_by_key(block: BlockBuilder) -> None:
    """tile[j] *= by[start + j]."""
    _change(block, lambda j, x: block.builder.fmul(x, _by_key(block, "by", j)))


@block_program("tile n query_labels block_index key_labels start excluded", of="tile")
def exclude(block: BlockBuilder) -> None:
    """tile = ``excluded`` where the labels of query and key are equal."""
    builder, excluded = block.builder, block.scalar("excluded")

    def change(j: Any, x: Any, label: Any) -> Any:
        return builder.select(builder.icmp_signed("==", label, _by_key(block, "key_labels", j)), excluded, x)

    _change(block, change, block.load("query_labels", block.value("block_index"), block.real.whole))


@block_program("tile n top", of="tile")
def row_maxima(block: BlockBuilder) -> None:
    """top (lanes,) = max(top, largest score of each query in the tile)."""
    builder, zero = block.builder, block.index(0)
    best = block.variables()
    block.assign(best, block.load("top", zero))
    with _each_key(block) as key:
        tile = block.load("tile", key.index)
        block.update(best, lambda top, x: builder.select(builder.fcmp_ordered(">", x, top), x, top), tile)
    block.store(block.read(best), "top", zero)


@block_program("tile n peak cutoff log2e", of="tile")
def exponentiate(block: BlockBuilder) -> None:
    """Scores → exp(score − peak), in place; 0 where peak − score ≥ cutoff or the peak is −inf."""
    cutoff, rate = block.scalar("cutoff"), block.builder.fneg(block.scalar("log2e"))
    peak = block.load("peak", block.index(0))
    _change(block, lambda _, x, p: block.decay(block.builder.fsub(p, x), cutoff, rate), peak)


@block_program("tile n peak", of="tile")
def ties(block: BlockBuilder) -> None:
    """Scores → 1 where a score equals the peak and is finite, else 0, in place."""
    builder, real = block.builder, block.real

    def tie(_: Any, x: Any, p: Any) -> Any:
        finite = builder.fcmp_ordered(">", x, real.splat(float("-inf")))
        return builder.select(builder.and_(builder.fcmp_ordered("==", p, x), finite), real.splat(1.0), real.splat(0.0))

    _change(block, tie, block.load("peak", block.index(0)))


@program
def reduce(tile, n, phi, start, sums):
    """sums[p, 0] += Σ_j tile[j]·phi[start + j, p], rounding errors into sums[p, 1]; sums (P, 2, lanes) in float64."""
    p = 0
    while p + 8 <= phi.shape[1]:
        _reduce(8, tile, n, phi, start, p, sums)
        p += 8
    while p + 2 <= phi.shape[1]:
        _reduce(2, tile, n, phi, start, p, sums)
        p += 2
    if p < phi.shape[1]:
        _reduce(1, tile, n, phi, start, p, sums)


@block_program("tile n phi start first sums", literals="count", of="tile")
def _reduce(block: BlockBuilder, count: int) -> None:
    builder = block.builder
    totals = [block.variables() for _ in range(count)]
    with _each_key(block) as key:
        tile = block.load("tile", key.index)
        for p, total in enumerate(totals):
            column = builder.add(block.value("first"), block.index(p))
            by = _of_key(block, "phi", key.index, column)
            block.update(total, lambda s, x, by=by: block.fma(x, by, s), tile)
    block.add_sums(totals, block.value("first"))


@block_program("coefficients phi start n tile", of="tile")
def expand(block: BlockBuilder) -> None:
    """tile[j] = Σ_p coefficients[p]·phi[start + j, p]; coefficients (P, lanes), phi (K, P)."""
    sums = block.variables()
    with _each_key(block) as key:
        block.reset(sums)
        with cgutils.for_range(block.builder, block.size("phi", 1)) as column:
            by = _of_key(block, "phi", key.index, column.index)
            block.update(sums, lambda s, x, by=by: block.fma(x, by, s), block.load("coefficients", column.index))
        block.store(block.read(sums), "tile", key.index)


@block_program("coefficients queries block_index keys start n tile", of="tile")
def add_affine(block: BlockBuilder) -> None:
    """tile[j] += coefficients[0] + Σ_f coefficients[1 + f]·(key_f − query_f); coefficients (1 or 1 + d, lanes)."""
    constant, count = block.load("coefficients", block.index(0)), block.size("coefficients", 0)
    _add_affine(block, count, lambda _: constant, lambda _, row: block.load("coefficients", row))


@block_program("phi queries block_index keys start n tile", of="tile")
def add_affine_of_keys(block: BlockBuilder) -> None:
    """tile[j] += phi[j, 0] + Σ_f phi[j, 1 + f]·(key_f − query_f); phi (K, 1 or 1 + d)."""

    def load(j: Any, column: Any) -> list[Any]:
        return [_of_key(block, "phi", j, column)] * VECTORS_PER_BLOCK

    _add_affine(block, block.size("phi", 1), lambda j: load(j, block.index(0)), load)


def _add_affine(
    block: BlockBuilder, count: Any, constant: Callable[[Any], list[Any]], slope: Callable[[Any, Any], list[Any]]
) -> None:
    """tile[j] += constant(j) + Σ_f slope(j, 1 + f)·(key_f − query_f) for f = 0 … count − 2."""
    builder, sums = block.builder, block.variables()
    with _each_key(block) as key:
        tile = block.load("tile", key.index)
        block.assign(sums, [builder.fadd(x, c) for x, c in zip(tile, constant(key.index), strict=True)])
        with cgutils.for_range(builder, builder.sub(count, block.index(1))) as feature:
            k = _of_key(block, "keys", key.index, feature.index)
            c, q = slope(key.index, builder.add(feature.index, block.index(1))), _query(block, feature.index)
            block.update(sums, lambda s, c, q, k=k: block.fma(c, builder.fsub(k, q), s), c, q)
        block.store(block.read(sums), "tile", key.index)


@block_program("tile queries block_index keys start n f out", of="tile")
def times_difference(block: BlockBuilder) -> None:
    """out = tile·(key_f − query_f)."""
    builder, f = block.builder, block.value("f")

    def change(j: Any, x: Any, q: Any) -> Any:
        return builder.fmul(x, builder.fsub(_of_key(block, "keys", j, f), q))

    _change(block, change, _query(block, f), out="out")


@program
def reduce_differences(tile, queries, number, keys, start, n, first, last, row, sums):
    """sums[row + i, 0] += Σ_j tile[j]·(key_f − query_f) for the features f = first + i … last, as ``reduce``."""
    f = first
    while f + 4 <= last:
        _reduce_differences(4, 1, tile, queries, number, keys, start, n, f, row + f - first, sums)
        f += 4
    while f < last:
        _reduce_differences(1, 1, tile, queries, number, keys, start, n, f, row + f - first, sums)
        f += 1


@program
def reduce_squares(tile, queries, number, keys, start, n, sums):
    """sums[f, 0] += Σ_j tile[j]·(key_f − query_f)² for every feature f, as ``reduce``."""
    f, last = 0, keys.shape[1]
    while f + 4 <= last:
        _reduce_differences(4, 2, tile, queries, number, keys, start, n, f, f, sums)
        f += 4
    while f < last:
        _reduce_differences(1, 2, tile, queries, number, keys, start, n, f, f, sums)
        f += 1


@block_program("tile queries block_index keys start n f row sums", literals="count power", of="tile")
def _reduce_differences(block: BlockBuilder, count: int, power: int) -> None:
    """Sums of tile·(key − query)^power for ``count`` features from f on."""
    builder = block.builder

    def term(total: Any, x: Any, q: Any, k: Any) -> Any:
        delta = builder.fsub(k, q)
        return block.fma(x if power == 1 else builder.fmul(x, delta), delta, total)

    features = [builder.add(block.value("f"), block.index(i)) for i in range(count)]
    queries = [_query(block, f) for f in features]
    totals = [block.variables() for _ in features]
    with _each_key(block) as key:
        tile = block.load("tile", key.index)
        for f, q, total in zip(features, queries, totals, strict=True):
            k = _of_key(block, "keys", key.index, f)
            block.update(total, lambda s, x, p, k=k: term(s, x, p, k), tile, q)
    block.add_sums(totals, block.value("row"))


@block_program(f"{_PAIRS} h cutoff log2e tile sums", of="keys")
def backward_hidden(block: BlockBuilder) -> None:
    """For one hidden unit, t = tanh(q_h + k_h): sums[0, 0] += Σ_j tile[j]·(1 − t²), sums[1, 0] += Σ_j tile[j]·t."""
    builder, h = block.builder, block.value("h")
    to_row, to_w = block.variables(), block.variables()
    q = _query(block, h)
    with _each_key(block) as key:
        k = _of_key(block, "keys", key.index, h)
        tile = block.load("tile", key.index)
        t = [_tanh(block, x, k) for x in q]
        one = block.real.splat(1.0)
        block.update(to_row, lambda s, g, x: block.fma(g, builder.fsub(one, builder.fmul(x, x)), s), tile, t)
        block.update(to_w, lambda s, g, x: block.fma(g, x, s), tile, t)
    block.add_sums([to_row, to_w], block.index(0))
