"""The common case in one loop: Gaussian mass and one value column, with no peak.

For each key, squared distances to a block of queries, their powers of two, and two running sums, all in registers.
"""

from __future__ import annotations

from typing import Any

from numba.core import cgutils

from regard.programs.cpu.compiled import program
from regard.programs.cpu.lanes import Block, block_program

# Features up to which the queries stay in registers for all keys.
IN_REGISTERS = 8


@program
def gaussian_sums(queries, query_labels, keys, key_labels, w, columns, c, cap, start, stop, tile_keys, near, sums):
    """Add to sums (blocks, 2, 2, lanes) what the keys start … stop give to every query.

    Σ 2^(c·u²)·columns[0] and Σ 2^(c·u²)·columns[1] over keys, each as a float64 and the rounding error of adding to
    it; u = ‖w∘(q − k)‖. Gaussian weights are at most 1, so there is no peak. From u² = ``cap`` on a weight is zero;
    rows whose mass comes out tiny are for ``averages`` to redo.

    queries (blocks, d, lanes); keys (K, d); w None or (d,); columns (2, K); labels None or (blocks, lanes), (K,):
    a pair with equal labels does not count; near (blocks, tiles) says which tiles each block sees, all if empty.
    """
    for s in range(start, stop, tile_keys):
        e = min(s + tile_keys, stop)
        for i in range(queries.shape[0]):
            if not near.size or near[i, (s - start) // tile_keys]:
                _gaussian(queries, query_labels, i, keys, key_labels, w, columns, c, cap, s, e, sums)


@block_program(
    "queries",
    "query_labels",
    "number",
    "keys",
    "key_labels",
    "w",
    "columns",
    "c",
    "cap",
    "start",
    "stop",
    "sums",
    of="keys",
)
def _gaussian(block: Block) -> None:
    """``gaussian_sums`` for one block."""
    block.by_number(block.size("keys", 1), IN_REGISTERS, lambda features: _add_sums(block, features))


def _add_sums(block: Block, features: int) -> None:
    """For a number of features whose loop is unrolled; 0: for any number."""
    builder, real = block.builder, block.real
    keys, columns, n_keys = block.data("keys"), block.data("columns"), block.size("columns", 1)
    d, number = block.size("keys", 1), block.value("number")
    own = (
        block.load(block.data("query_labels"), block.at(number, block.width), real.whole)
        if block.has("query_labels")
        else None
    )
    c, cap, zero = block.everywhere(block.value("c")), block.everywhere(block.value("cap")), real.splat(0.0)
    totals = [block.variables(zero), block.variables(zero)]
    u2 = block.variables(zero)

    def feature(f: Any) -> tuple[list[Any], Any]:
        row = builder.add(builder.mul(number, d), f)
        scale = block.load_everywhere(block.data("w"), f) if block.has("w") else None
        return block.load(block.data("queries"), block.at(row, block.width)), scale

    def add_feature(queries: list[Any], key: Any, scale: Any) -> None:
        for variable, query in zip(u2, queries, strict=True):
            delta = builder.fsub(query, key)
            delta = delta if scale is None else builder.fmul(delta, scale)
            builder.store(block.fma(delta, delta, builder.load(variable)), variable)

    hoisted = [feature(block.index(f)) for f in range(features)]
    with cgutils.for_range_slice(builder, block.value("start"), block.value("stop"), block.index(1)) as (j, _):
        for variable in u2:
            builder.store(zero, variable)
        for f, (queries, scale) in enumerate(hoisted):
            add_feature(queries, block.load_everywhere(keys, block.at(j, d, block.index(f))), scale)
        if not features:
            with cgutils.for_range(builder, d) as loop:
                queries, scale = feature(loop.index)
                add_feature(queries, block.load_everywhere(keys, block.at(j, d, loop.index)), scale)
        multipliers = [block.load_everywhere(columns, block.at(block.index(p), n_keys, j)) for p in range(2)]
        excluded = None if own is None else block.load_everywhere(block.data("key_labels"), j)
        for r, variable in enumerate(u2):
            distance = builder.load(variable)
            # Beyond the cap the power is nonsense, and the comparison discards it.
            counts = builder.fcmp_ordered("<", distance, cap)
            if own is not None:
                counts = builder.and_(counts, builder.icmp_signed("!=", own[r], excluded))
            weight = builder.select(counts, block.exp2_product(distance, c), zero)
            for total, multiplier in zip(totals, multipliers, strict=True):
                builder.store(block.fma(weight, multiplier, builder.load(total[r])), total[r])
    block.add_sums(totals, builder.mul(number, block.index(2)))
