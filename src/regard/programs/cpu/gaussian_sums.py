"""The most common case as one fused loop: Gaussian mass and one value column, without a running peak.

For each key: squared distances to a block of queries, their powers of two, and two running sums, all in registers.
"""

from __future__ import annotations

from typing import Any

from numba.core import cgutils

from regard.programs.cpu.compiled import program
from regard.programs.cpu.lanes import BlockBuilder, block_program

# Up to this many features the queries stay in registers for all keys.
MAX_FEATURES_IN_REGISTERS = 8


@program
def gaussian_sums(
    queries, query_labels, keys, key_labels, w, columns, c, cutoff, start, stop, tile_keys, selected, sums
):
    """Add the contribution of keys start … stop to sums (blocks, 2, 2, lanes) of every query.

    Σ 2^(c·u²)·columns[0] and Σ 2^(c·u²)·columns[1] over keys, each as a float64 and the rounding error of adding to
    it; u = ‖w∘(q − k)‖. Gaussian weights are at most 1, so no peak is needed. Weights at u² ≥ ``cutoff`` are zero;
    the caller recomputes rows whose mass is tiny with ``tile_moments``.

    queries (blocks, d, lanes); keys (K, d); w None or (d,); columns (2, K); labels None or (blocks, lanes), (K,):
    pairs with equal labels are excluded; selected (blocks, tiles): tiles to include for each block, all if empty.
    """
    for s in range(start, stop, tile_keys):
        e = min(s + tile_keys, stop)
        for i in range(queries.shape[0]):
            if not selected.size or selected[i, (s - start) // tile_keys]:
                _block_sums(queries, query_labels, i, keys, key_labels, w, columns, c, cutoff, s, e, sums)


@block_program("queries query_labels block_index keys key_labels w columns c cutoff start stop sums", of="keys")
def _block_sums(block: BlockBuilder) -> None:
    """``gaussian_sums`` for one block."""
    block.specialise(block.size("keys", 1), MAX_FEATURES_IN_REGISTERS, lambda features: _add_sums(block, features))


def _add_sums(block: BlockBuilder, features: int) -> None:
    """Unrolled for this number of features; 0: a loop over any number."""
    builder, real = block.builder, block.real
    d, n_keys, block_index = block.size("keys", 1), block.size("columns", 1), block.value("block_index")
    own = block.load("query_labels", block_index, real.whole) if block.has("query_labels") else None
    c, cutoff, zero = block.scalar("c"), block.scalar("cutoff"), real.splat(0.0)
    totals, u2 = [block.variables(), block.variables()], block.variables()

    def feature(f: Any) -> tuple[list[Any], Any]:
        row = builder.add(builder.mul(block_index, d), f)
        scale = block.load_broadcast("w", f) if block.has("w") else None
        return block.load("queries", row), scale

    def add_feature(queries: list[Any], key: Any, scale: Any) -> None:
        def add_square(total: Any, query: Any) -> Any:
            delta = builder.fsub(query, key)
            delta = delta if scale is None else builder.fmul(delta, scale)
            return block.fma(delta, delta, total)

        block.update(u2, add_square, queries)

    hoisted = [feature(block.index(f)) for f in range(features)]
    with cgutils.for_range_slice(builder, block.value("start"), block.value("stop"), block.index(1)) as (j, _):
        block.reset(u2)
        for f, (queries, scale) in enumerate(hoisted):
            add_feature(queries, block.load_broadcast("keys", block.at(j, d, block.index(f))), scale)
        if not features:
            with cgutils.for_range(builder, d) as loop:
                queries, scale = feature(loop.index)
                add_feature(queries, block.load_broadcast("keys", block.at(j, d, loop.index)), scale)
        multipliers = [block.load_broadcast("columns", block.at(block.index(p), n_keys, j)) for p in range(2)]
        excluded = None if own is None else block.load_broadcast("key_labels", j)
        for r, variable in enumerate(u2):
            distance = builder.load(variable)
            # Beyond the cutoff the power is undefined and is discarded by the comparison.
            counts = builder.fcmp_ordered("<", distance, cutoff)
            if own is not None:
                counts = builder.and_(counts, builder.icmp_signed("!=", own[r], excluded))
            weight = builder.select(counts, block.exp2_product(distance, c), zero)
            for total, multiplier in zip(totals, multipliers, strict=True):
                builder.store(block.fma(weight, multiplier, builder.load(total[r])), total[r])
    block.add_sums(totals, builder.mul(block_index, block.index(2)))
