"""Gaussian means and their derivatives by w in one pass: sums of weights, of values, and of both times δ².

Values are taken relative to the query's own, so the ratio of the first two sums is a residual already, and the
derivatives of residuals lose little to cancellation.
"""

from __future__ import annotations

from typing import Any

from numba.core import cgutils

from regard.programs.cpu.compiled import program
from regard.programs.cpu.lanes import BlockBuilder, block_program

# Up to this many features a query, its squared differences and its sums fit into registers or the first-level cache.
MAX_FEATURES = 8


@program
def derivative_sums(
    queries, own, query_labels, keys, values, weights, key_labels, w2, c, cutoff, tile_keys, selected, sums
):
    """Fill sums (blocks, 2 + 2d, 2, lanes) with Σe, Σe·g, then Σe·δ₁², Σe·g·δ₁², Σe·δ₂², … over keys.

    e = weight·2^(c·Σw2·δ²), δ = q − k, g = value − own; each sum is a float64 and the rounding error of adding to it.
    Weights with Σw2·δ² ≥ ``cutoff`` are zero.

    queries (blocks, d, lanes), d ≤ ``MAX_FEATURES``; own (blocks, lanes); keys (K, d); values (K,); weights None or
    (K,); w2 (d,); labels (blocks, lanes) and (K,): pairs with equal labels are excluded; selected (blocks, tiles):
    tiles to include for each block.
    """
    for s in range(0, keys.shape[0], tile_keys):
        e = min(s + tile_keys, keys.shape[0])
        for i in range(queries.shape[0]):
            if selected[i, s // tile_keys]:
                _block_sums(queries, own, query_labels, i, keys, values, weights, key_labels, w2, c, cutoff, s, e, sums)


_ARGUMENTS = "queries own query_labels block_index keys values weights key_labels w2 c cutoff start stop sums"


@block_program(_ARGUMENTS, of="keys")
def _block_sums(block: BlockBuilder) -> None:
    """``derivative_sums`` for one block and the keys start … stop."""
    block.specialise(block.size("keys", 1), MAX_FEATURES, lambda features: _add_sums(block, features))


def _add_sums(block: BlockBuilder, features: int) -> None:
    """Unrolled for this number of features, one vector of queries at a time."""
    builder, real = block.builder, block.real
    block_index, zero = block.value("block_index"), real.splat(0.0)
    c, cutoff = block.scalar("c"), block.scalar("cutoff")
    own, labels = block.load("own", block_index), block.load("query_labels", block_index, real.whole)
    row = builder.mul(block_index, block.index(features))
    queries = [block.load("queries", builder.add(row, block.index(f))) for f in range(features)]
    scales = [block.load_broadcast("w2", block.index(f)) for f in range(features)]
    totals = [block.variables() for _ in range(2 + 2 * features)]

    def add(total: Any, r: int, x: Any, y: Any) -> None:
        builder.store(block.fma(x, y, builder.load(total[r])), total[r])

    # With both vectors in one loop their sums would not fit into the registers.
    for r in range(len(own)):
        with cgutils.for_range_slice(builder, block.value("start"), block.value("stop"), block.index(1)) as (j, _):
            squares, distance = [], zero
            for f in range(features):
                key = block.load_broadcast("keys", block.at(j, block.index(features), block.index(f)))
                delta = builder.fsub(queries[f][r], key)
                squares.append(builder.fmul(delta, delta))
                distance = block.fma(squares[f], scales[f], distance)
            near = builder.fcmp_ordered("<", distance, cutoff)
            other = builder.icmp_signed("!=", labels[r], block.load_broadcast("key_labels", j))
            weight = builder.select(builder.and_(near, other), block.exp2_product(distance, c), zero)
            if block.has("weights"):
                weight = builder.fmul(weight, block.load_broadcast("weights", j))
            gain = builder.fmul(weight, builder.fsub(block.load_broadcast("values", j), own[r]))
            builder.store(builder.fadd(builder.load(totals[0][r]), weight), totals[0][r])
            builder.store(builder.fadd(builder.load(totals[1][r]), gain), totals[1][r])
            for f, square in enumerate(squares):
                add(totals[2 + 2 * f], r, weight, square)
                add(totals[3 + 2 * f], r, gain, square)
    block.add_sums(totals, builder.mul(block_index, block.index(len(totals))))
