"""Gaussian moments of degree 2, near keys in double and far ones in single precision.

Products of the columns and features of a key are formed once, about the centre of a group of keys, instead of once per
pair. Each block of queries lists the keys that it needs, adds up their products under its weights, and shifts the sums
from the centre to its queries, as in ``centred_moments``. Keys are chosen by their distance from the bounding box of
the block: ``grade_distances`` decides from which distance on they are added in single precision, in which twice as many
numbers fit into a register, and from which on they are skipped.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba.core import cgutils

from regard.programs.cpu.centred_moments import move_sums, products_about
from regard.programs.cpu.compiled import program
from regard.programs.cpu.lanes import CUTOFF_EXPONENT, LOG2E, BlockBuilder, block_program

# Queries of a block, in either precision, and keys whose distances from a box are computed together.
LANES = 16
BOX_LANES = 32
# Keys whose products are formed at once, and groups of them with one centre.
CHUNK_KEYS = 512
CHUNKS_PER_CENTRE = 16
# Consecutive keys with one box.
TILE_KEYS = 128
# Listed keys whose weights are in the first-level cache together.
LISTED_KEYS = 128
# The relative error of a weight in single precision is at most 2⁻²⁴·(this + 4u² + 2ur) for coordinates up to r:
# rounding of coordinates, of squares, of products and of sums.
ROUNDINGS_OF_SINGLE = 64.0
# Scores below minus this have no weight in single precision.
CUTOFF_SINGLE = CUTOFF_EXPONENT[4] / LOG2E
# Mass of a query from which on weights in single precision, relative to 1, do not underflow beside it.
MIN_MASS_FOR_SINGLE = 1e-12


class GradedRows(NamedTuple):
    """Rows in the coordinates of the score, and the features that are averaged; None where nothing applies."""

    keys: Any  # (K, r) float64; the score is −½‖q − k‖²
    packed_keys: Any  # (⌈K/32⌉, r, 32) float32, for distances from boxes
    features: Any  # (K, d) float64
    columns: Any  # (K, 1 + P), the first of ones
    bias: Any  # (K,) log weights, ≤ 0
    labels: Any  # (K,) int64
    queries: Any  # (blocks, r, 16)
    query_features: Any  # (blocks, d, 16)
    query_labels: Any  # (blocks, 16) int64
    low: Any  # (tiles, r)  boxes around tiles of keys
    high: Any  # (tiles, r)
    mass: Any  # (tiles,)  sums of their weights
    cutoff: Any  # weights whose score is below minus this are zero
    log2e: Any


@program
def add_graded_sums(rows, start, stop, bounding, skipped, rounded, sums):
    """Add Σ weight·φ to sums (blocks, M, 1, 16) of the blocks start … stop: the mass, then the moments.

    The ``bounding`` tiles of keys nearest to a block bound the mass of its queries from below. At most the fraction
    ``skipped`` of that is lost, and at most the fraction ``rounded`` are rounding errors of single precision.
    """
    (size, d), r, values = rows.features.shape, rows.keys.shape[1], rows.columns.shape[1] - 1
    blocks, count, tiles = stop - start, sums.shape[1], rows.low.shape[0]
    low, high, limits = np.empty((blocks, r)), np.empty((blocks, r)), np.empty((blocks, 2))
    distance2 = np.empty((blocks, tiles))
    radius = _largest_radius(rows)
    tile, listed = np.empty((LISTED_KEYS, LANES)), np.empty(CHUNK_KEYS, np.int64)
    for b in range(blocks):
        _box(rows.queries[start + b], low[b], high[b])
        _tile_distances(rows, low[b], high[b], distance2[b])
        order = np.argsort(distance2[b], kind="mergesort")
        least = _least_mass(rows, start + b, order[:bounding], tile, listed)
        grade_distances(rows.mass, distance2[b], order, least, skipped, rounded, radius, limits[b])
    phi, centre = np.empty((CHUNK_KEYS, count)), np.empty(d)
    phi_single, near = np.empty((CHUNK_KEYS, count), np.float32), np.empty((CHUNK_KEYS, r), np.float32)
    middle, query = np.empty(r), np.empty((blocks, r, LANES), np.float32)
    tile_single, listed_single = np.empty((LISTED_KEYS, LANES), np.float32), np.empty(CHUNK_KEYS, np.int64)
    about, offset = np.empty((blocks, count, 2, LANES)), np.empty((d, LANES))
    box_distance2 = np.empty((CHUNK_KEYS // BOX_LANES, BOX_LANES), np.float32)
    low_single, high_single = low.astype(np.float32), high.astype(np.float32)
    cutoff, log2e = np.float32(CUTOFF_SINGLE), np.float32(rows.log2e)
    for g0 in range(0, size, CHUNKS_PER_CENTRE * CHUNK_KEYS):
        g1 = min(g0 + CHUNKS_PER_CENTRE * CHUNK_KEYS, size)
        for f in range(d):
            centre[f] = rows.features[g0:g1, f].mean()
        for f in range(r):
            middle[f] = rows.keys[g0:g1, f].mean()
        for b in range(blocks):
            for f in range(r):
                for i in range(LANES):
                    query[b, f, i] = rows.queries[start + b, f, i] - middle[f]
        about[:] = 0.0
        for j0 in range(g0, g1, CHUNK_KEYS):
            n = min(CHUNK_KEYS, g1 - j0)
            first, last = j0 // TILE_KEYS, (j0 + n + TILE_KEYS - 1) // TILE_KEYS
            products_about(rows.features, rows.columns, j0, n, centre, phi)
            # Loops: a slice assigned to a slice takes numba a second to compile.
            for j in range(n):
                for p in range(count):
                    phi_single[j, p] = phi[j, p]
                for f in range(r):
                    near[j, f] = rows.keys[j0 + j, f] - middle[f]
            for b in range(blocks):
                in_double = in_single = 0
                for t in range(first, last):
                    if distance2[b, t] >= limits[b, 0]:
                        continue
                    at, m = t * TILE_KEYS - j0, min(TILE_KEYS, size - t * TILE_KEYS)
                    first_row, count_rows = t * TILE_KEYS // BOX_LANES, -(-m // BOX_LANES)
                    _box_distances(low_single, high_single, b, rows.packed_keys, first_row, count_rows, box_distance2)
                    flat = box_distance2.reshape(CHUNK_KEYS)
                    for j in range(m):
                        d2 = flat[j]
                        listed[in_double] = at + j
                        in_double += d2 < limits[b, 1]
                        listed_single[in_single] = at + j
                        in_single += (d2 >= limits[b, 1]) & (d2 < limits[b, 0])
                for i in range(0, in_double, LISTED_KEYS):
                    some = listed[i : min(i + LISTED_KEYS, in_double)]
                    _weights(
                        rows.queries, start + b, rows.keys, some, some.size, j0, rows.bias, rows.query_labels,
                        rows.labels, start + b, j0, rows.cutoff, rows.log2e, tile,
                    )  # fmt: skip
                    _add_products(tile, phi, some, about[b])
                for i in range(0, in_single, LISTED_KEYS):
                    some = listed_single[i : min(i + LISTED_KEYS, in_single)]
                    _weights(
                        query, b, near, some, some.size, 0, rows.bias, rows.query_labels,
                        rows.labels, start + b, j0, cutoff, log2e, tile_single,
                    )  # fmt: skip
                    _add_products(tile_single, phi_single, some, about[b])
        for b in range(blocks):
            for f in range(d):
                for i in range(LANES):
                    offset[f, i] = centre[f] - rows.query_features[start + b, f, i]
            move_sums(offset, values, about[b], sums[start + b])


@program
def grade_distances(mass, distance2, order, least, skipped, rounded, radius, limits):
    """limits (2,) = squared distances from a block from which on keys are skipped, and are added in single precision.

    mass, distance2 and order (tiles,), from the nearest tile to the farthest: a bound on the mass of the keys beyond
    squared distance D is Σ mass·exp(−½max(D, distance2)), which must not exceed ``skipped·least``; in the same sum with
    the relative error of a weight, those that are skipped are left out.
    """
    total = mass.sum()
    limits[:] = np.inf
    if skipped * least > 0.0:
        limits[0] = max(2.0 * math.log(total / (skipped * least)), 0.0)
    near, beyond = total, 0.0
    for i in range(order.size - 1, -1, -1):
        t = order[i]
        near -= mass[t]
        weight = math.exp(-0.5 * distance2[t])
        beyond += mass[t] * weight
        if beyond + near * weight > skipped * least:
            break
        limits[0] = min(distance2[t], limits[0])
    limits[1] = limits[0]
    if least < MIN_MASS_FOR_SINGLE:
        return
    near, beyond = total, 0.0
    for i in range(order.size - 1, -1, -1):
        t = order[i]
        near -= mass[t]
        if distance2[t] < limits[0]:
            error = _error_of_single(distance2[t], radius)
            beyond += mass[t] * error
            if beyond + near * error > rounded * least:
                break
            limits[1] = distance2[t]


@program
def _error_of_single(distance2, radius):
    """A bound on the error of a weight in single precision at this squared distance or beyond."""
    factor = ROUNDINGS_OF_SINGLE + 4.0 * distance2 + 2.0 * radius * math.sqrt(distance2)
    return 2.0**-24 * factor * math.exp(-0.5 * distance2)


@program
def _largest_radius(rows):
    """The largest coordinate of a key about the centre of its group."""
    largest, (size, r) = 0.0, rows.keys.shape
    for g0 in range(0, size, CHUNKS_PER_CENTRE * CHUNK_KEYS):
        group = rows.keys[g0 : min(g0 + CHUNKS_PER_CENTRE * CHUNK_KEYS, size)]
        for f in range(r):
            middle = group[:, f].mean()
            largest = max(largest, group[:, f].max() - middle, middle - group[:, f].min())
    return largest


@program
def _box(queries, low, high):
    for f in range(low.size):
        low[f], high[f] = queries[f].min(), queries[f].max()


@program
def _tile_distances(rows, low, high, distance2):
    """distance2 (tiles,) = squared distances between a box and those of tiles."""
    for t in range(distance2.size):
        total = 0.0
        for f in range(low.size):
            gap = max(rows.low[t, f] - high[f], low[f] - rows.high[t, f], 0.0)
            total += gap * gap
        distance2[t] = total


@program
def _least_mass(rows, b, nearest, tile, listed):
    """The least mass of a query of block b over some tiles, the nearest ones."""
    size, sums = rows.keys.shape[0], np.zeros((1, 2, LANES))
    ones = np.ones((TILE_KEYS, 1))
    for t in nearest:
        j0 = t * TILE_KEYS
        n = min(TILE_KEYS, size - j0)
        for j in range(n):
            listed[j] = j
        some = listed[:n]
        _weights(
            rows.queries, b, rows.keys, some, n, j0, rows.bias, rows.query_labels, rows.labels, b, j0,
            rows.cutoff, rows.log2e, tile,
        )  # fmt: skip
        _add_columns(1, tile, n, ones, some, 0, sums)
    return sums[0, 0].min()


@program
def _add_products(tile, phi, index, sums):
    """sums[p, 0] += Σ_j tile[j]·phi[index[j], p]; sums (P, 2, lanes) in float64."""
    p, n = 0, index.size
    while p + 12 <= phi.shape[1]:
        _add_columns(12, tile, n, phi, index, p, sums)
        p += 12
    while p + 6 <= phi.shape[1]:
        _add_columns(6, tile, n, phi, index, p, sums)
        p += 6
    while p < phi.shape[1]:
        _add_columns(1, tile, n, phi, index, p, sums)
        p += 1


@block_program("low high box keys first count out", of="keys")
def _box_distances(block: BlockBuilder) -> None:
    """out[i] = squared distances of the keys of packed row first + i (…, r, 32) from a box; keys are lanes."""
    builder, r, real = block.builder, block.size("keys", 1), block.real
    sums, zero = block.variables(), real.splat(0.0)
    with cgutils.for_range(builder, block.value("count")) as row:
        block.reset(sums)
        with cgutils.for_range(builder, r) as feature:
            at = block.at(block.value("box"), r, feature.index)
            low, high = block.load_broadcast("low", at), block.load_broadcast("high", at)
            here = builder.add(block.value("first"), row.index)

            def add(total: Any, k: Any, low: Any = low, high: Any = high) -> Any:
                below, above = builder.fsub(low, k), builder.fsub(k, high)
                gap = builder.select(builder.fcmp_ordered(">", below, above), below, above)
                gap = builder.select(builder.fcmp_ordered(">", gap, zero), gap, zero)
                return block.fma(gap, gap, total)

            block.update(sums, add, block.load("keys", block.at(here, r, feature.index)))
        block.store(block.read(sums), "out", row.index)


@block_program(
    "queries block_index keys index n start bias query_labels labels label_block origin cutoff log2e tile",
    of="tile",
    lanes=LANES,
)
def _weights(block: BlockBuilder) -> None:
    """tile[j] = exp(−½‖q − k‖² + bias) for the keys start + index[j]; bias and labels from origin on."""
    builder, real, sums = block.builder, block.real, block.variables()
    r, cutoff, rate = block.size("keys", 1), block.scalar("cutoff"), builder.fneg(block.scalar("log2e"))
    with cgutils.for_range(builder, block.value("n")) as number:
        place = builder.load(builder.gep(block.data("index"), [number.index]))
        row, origin = builder.add(block.value("start"), place), builder.add(block.value("origin"), place)
        block.reset(sums)
        with cgutils.for_range(builder, r) as feature:
            k = block.load_broadcast("keys", block.at(row, r, feature.index))

            def add(total: Any, q: Any, k: Any = k) -> Any:
                delta = builder.fsub(q, k)
                return block.fma(delta, delta, total)

            block.update(sums, add, block.load("queries", block.at(block.value("block_index"), r, feature.index)))
        gaps = [builder.fmul(total, real.splat(0.5)) for total in block.read(sums)]
        if block.has("bias"):
            bias = builder.load(builder.gep(block.data("bias"), [origin]))
            bias = block.broadcast(builder.fptrunc(bias, real.scalar) if bias.type != real.scalar else bias)
            gaps = [builder.fsub(gap, bias) for gap in gaps]
        out = [block.decay(gap, cutoff, rate) for gap in gaps]
        if block.has("labels"):
            other = block.load_broadcast("labels", origin)
            own = block.load("query_labels", block.value("label_block"), other.type.element)
            equal = [builder.icmp_signed("==", label, other) for label in own]
            out = [builder.select(same, real.splat(0.0), weight) for same, weight in zip(equal, out, strict=True)]
        block.store(out, "tile", number.index)


@block_program("tile n phi index first sums", literals="count", of="tile", lanes=LANES)
def _add_columns(block: BlockBuilder, count: int) -> None:
    """sums[first + p, 0] += Σ_j tile[j]·phi[index[j], first + p] for p = 0 … count − 1."""
    builder = block.builder
    totals = [block.variables() for _ in range(count)]
    with cgutils.for_range(builder, block.value("n")) as number:
        place = builder.load(builder.gep(block.data("index"), [number.index]))
        row = builder.add(builder.mul(place, block.size("phi", 1)), block.value("first"))
        tile = block.load("tile", number.index)
        for p, total in enumerate(totals):
            by = block.load_broadcast("phi", builder.add(row, block.index(p)))
            block.update(total, lambda s, x, by=by: block.fma(x, by, s), tile)
    block.add_sums(totals, block.value("first"))
