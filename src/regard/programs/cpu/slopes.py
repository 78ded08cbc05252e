"""Gaussian means and how they move with w, in one pass: sums of weights, of values, and of both times squares.

Values are taken relative to the query's own, so that the second sum over the first is an error already, and in the
slopes of errors little cancels that is not small in itself.
"""

from __future__ import annotations

from typing import Any

from numba.core import cgutils

from regard.programs.cpu.compiled import program
from regard.programs.cpu.lanes import Block, block_program

# Features up to which a query, its squares and its sums stay in, or near, the registers.
WIDEST = 8


@program
def gaussian_slopes(queries, own, query_labels, keys, values, weights, key_labels, w2, c, cap, tile_keys, near, sums):
    """Fill sums (blocks, 2 + 2d, 2, lanes) with Σe, Σe·g, then Σe·δ₁², Σe·g·δ₁², Σe·δ₂², … over keys.

    e = weight·2^(c·Σw2·δ²), δ = q − k, g = value − own; each sum is a float64 and the rounding error of adding to it.
    From Σw2·δ² = ``cap`` on a weight is zero.

    queries (blocks, d, lanes), d ≤ ``WIDEST``; own (blocks, lanes); keys (K, d); values (K,); weights None or (K,); w2
    (d,); labels (blocks, lanes) and (K,): a pair with equal labels does not count; near (blocks,
    tiles): the tiles each block sees.
    """
    for s in range(0, keys.shape[0], tile_keys):
        e = min(s + tile_keys, keys.shape[0])
        for i in range(queries.shape[0]):
            if near[i, s // tile_keys]:
                _slopes(queries, own, query_labels, i, keys, values, weights, key_labels, w2, c, cap, s, e, sums)


@block_program(
    "queries",
    "own",
    "query_labels",
    "number",
    "keys",
    "values",
    "weights",
    "key_labels",
    "w2",
    "c",
    "cap",
    "start",
    "stop",
    "sums",
    of="keys",
)
def _slopes(block: Block) -> None:
    """``gaussian_slopes`` for one block and the keys start … stop."""
    block.by_number(block.size("keys", 1), WIDEST, lambda features: _add_slopes(block, features))


def _add_slopes(block: Block, features: int) -> None:
    """For a number of features, one vector of queries at a time."""
    builder, real = block.builder, block.real
    number, zero = block.value("number"), real.splat(0.0)
    c, cap = block.everywhere(block.value("c")), block.everywhere(block.value("cap"))
    place = block.at(number, block.width)
    own, labels = block.load(block.data("own"), place), block.load(block.data("query_labels"), place, real.whole)
    row = builder.mul(number, block.index(features))
    queries = [
        block.load(block.data("queries"), block.at(builder.add(row, block.index(f)), block.width))
        for f in range(features)
    ]
    scales = [block.load_everywhere(block.data("w2"), block.index(f)) for f in range(features)]
    totals = [block.variables(zero) for _ in range(2 + 2 * features)]

    def add(total: Any, r: int, x: Any, y: Any) -> None:
        builder.store(block.fma(x, y, builder.load(total[r])), total[r])

    # Both vectors in one loop would not leave room for their sums in the registers.
    for r in range(len(own)):
        with cgutils.for_range_slice(builder, block.value("start"), block.value("stop"), block.index(1)) as (j, _):
            squares, distance = [], zero
            for f in range(features):
                key = block.load_everywhere(block.data("keys"), block.at(j, block.index(features), block.index(f)))
                delta = builder.fsub(queries[f][r], key)
                squares.append(builder.fmul(delta, delta))
                distance = block.fma(squares[f], scales[f], distance)
            near = builder.fcmp_ordered("<", distance, cap)
            other = builder.icmp_signed("!=", labels[r], block.load_everywhere(block.data("key_labels"), j))
            weight = builder.select(builder.and_(near, other), block.exp2_product(distance, c), zero)
            if block.has("weights"):
                weight = builder.fmul(weight, block.load_everywhere(block.data("weights"), j))
            gain = builder.fmul(weight, builder.fsub(block.load_everywhere(block.data("values"), j), own[r]))
            builder.store(builder.fadd(builder.load(totals[0][r]), weight), totals[0][r])
            builder.store(builder.fadd(builder.load(totals[1][r]), gain), totals[1][r])
            for f, square in enumerate(squares):
                add(totals[2 + 2 * f], r, weight, square)
                add(totals[3 + 2 * f], r, gain, square)
    block.add_sums(totals, builder.mul(number, block.index(len(totals))))
