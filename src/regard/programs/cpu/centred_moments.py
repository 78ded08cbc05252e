"""Moments of degree 2 accumulated about tile centres, in single precision: for bandwidth searches.

Products of differences are formed once per tile of keys, k' = key − centre, instead of once per pair; each query then
shifts the sums of a tile from the centre to itself, in float64: Σe·δδᵀ = Σe·k'k'ᵀ + c·Σe·k'ᵀ + Σe·k'·cᵀ + c·cᵀ·Σe with
c = centre − query. The cancellation is mild if tiles are small, as they are in kd-tree order.

The score is −½‖q − k‖²: callers project by w first. Labels and log weights are supported, masks are not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import cgutils

from regard.programs.cpu.compiled import program
from regard.programs.cpu.lanes import BlockBuilder, block_program
from regard.programs.cpu.tile_loops import accumulate, add_by_key, exclude, exponentiate, reduce
from regard.programs.cpu.tile_moments import raise_peak


@program
def add_centred_moments(pairs, columns, start, stop, first, last, tile_keys, selected, peak, sums):
    """As ``add_moments`` at degree 2."""
    lanes, d, values = peak.shape[1], pairs.keys.shape[1], columns.shape[1] - 1
    tile = np.empty((tile_keys, lanes), pairs.keys.dtype)
    phi, centre = np.empty((tile_keys, sums.shape[1]), pairs.keys.dtype), np.empty(d)
    about, offset = np.empty((sums.shape[1], 2, lanes)), np.empty((d, lanes))
    for j0 in range(first, last, tile_keys):
        n = min(tile_keys, last - j0)
        filled = False
        for b in range(start, stop):
            if selected.size and not selected[b - start, (j0 - first) // tile_keys]:
                continue
            if not filled:
                products_about_centre(pairs.keys, columns, j0, n, centre, phi)
                filled = True
            _scores(pairs, b, j0, n, tile)
            raise_peak(pairs, tile, n, peak[b - start], sums[b - start])
            exponentiate(tile, n, peak[b - start], pairs.cutoff, pairs.log2e)
            about[:] = 0.0
            reduce(tile, n, phi, np.int64(0), about)
            _offsets(pairs.queries[b], centre, offset)
            move_sums(offset, values, about, sums[b - start])


@program
def backward_centred(pairs, columns, adjoint, start, stop, tile_keys, selected, peak, grad_w):
    """As ``backward_over_keys`` for w only: adds the upper triangle of Σ c·δδᵀ to grad_w (d, d)."""
    left, value, right, plain = adjoint
    lanes, d, values = peak.shape[1], pairs.keys.shape[1], columns.shape[1]
    tile = np.empty((tile_keys, lanes), pairs.keys.dtype)
    count = 1 + d + d * (d + 1) // 2
    ones = np.ones((pairs.keys.shape[0], 1), pairs.keys.dtype)
    phi, centre = np.empty((tile_keys, count), pairs.keys.dtype), np.empty(d)
    about, offset, sums = np.empty((count, 2, lanes)), np.empty((d, lanes)), np.zeros((count, 2, lanes))
    lines = np.zeros((3, 1 + d, lanes), pairs.keys.dtype)
    for j0 in range(0, pairs.keys.shape[0], tile_keys):
        n = min(tile_keys, pairs.keys.shape[0] - j0)
        filled = False
        for b in range(start, stop):
            if selected.size and not selected[b - start, j0 // tile_keys]:
                continue
            if not filled:
                products_about_centre(pairs.keys, ones, j0, n, centre, phi)
                filled = True
            _scores(pairs, b, j0, n, tile)
            exponentiate(tile, n, peak[b], pairs.cutoff, pairs.log2e)
            _offsets(pairs.queries[b], centre, offset)
            _affine_about_centre(left[b], offset, lines[0])
            _affine_about_centre(right[b], offset, lines[1])
            if plain.shape[1]:
                _affine_about_centre(plain[b], offset, lines[2])
            _cotangents(lines, value[b], phi, columns, j0, n, values, tile)
            about[:] = 0.0
            reduce(tile, n, phi, np.int64(0), about)
            move_sums(offset, 0, about, sums)
    row = 1 + d
    for f in range(d):
        for g in range(f, d):
            # d score / d(u²) = −½.
            grad_w[f, g] -= 0.5 * sums[row, 0].sum()
            row += 1


@program
def _scores(pairs, b, j0, n, tile):
    _scores_by_squares(pairs.queries, b, pairs.keys, j0, n, tile)
    if pairs.key_bias.size:
        add_by_key(tile, n, pairs.key_bias, j0)
    if pairs.key_labels.size:
        exclude(tile, n, pairs.query_labels, b, pairs.key_labels, j0, tile.dtype.type(-np.inf))


@block_program("queries block_index keys start n tile", of="keys")
def _scores_by_squares(block: BlockBuilder) -> None:
    """tile = −½‖q − k‖²."""
    builder = block.builder

    def term(total: Any, q: Any, k: Any, _: None) -> Any:
        delta = builder.fsub(q, k)
        return block.fma(delta, delta, total)

    accumulate(block, term, lambda total: builder.fmul(total, block.real.splat(-0.5)))


@block_program("lines value phi columns start n values tile", of="tile")
def _cotangents(block: BlockBuilder) -> None:
    """tile *= a·(value·v + b) + c, where a, b, c are affine functions of k', with coefficients ``lines``."""
    builder, count = block.builder, block.size("lines", 1)
    sums = [block.variables() for _ in range(3)]
    constants = [block.load("lines", builder.mul(block.index(i), count)) for i in range(3)]
    with cgutils.for_range(builder, block.value("n")) as key:
        for variables, constant in zip(sums, constants, strict=True):
            block.assign(variables, constant)
        with cgutils.for_range(builder, block.value("values")) as column:
            row = builder.mul(builder.add(block.value("start"), key.index), block.value("values"))
            v = block.load_broadcast("columns", builder.add(row, column.index))
            block.update(sums[1], lambda s, x, v=v: block.fma(x, v, s), block.load("value", column.index))
        row = builder.mul(key.index, block.size("phi", 1))
        with cgutils.for_range(builder, builder.sub(count, block.index(1))) as feature:
            column = builder.add(feature.index, block.index(1))
            k = block.load_broadcast("phi", builder.add(row, column))
            for i, variables in enumerate(sums):
                by = block.load("lines", block.at(block.index(i), count, column))
                block.update(variables, lambda s, x, k=k: block.fma(x, k, s), by)
        tile = block.load("tile", key.index)
        a, b, c = (block.read(variables) for variables in sums)
        out = [builder.fmul(e, block.fma(x, y, z)) for e, x, y, z in zip(tile, a, b, c, strict=True)]
        block.store(out, "tile", key.index)


@program
def _affine_about_centre(line, offset, out):
    """Coefficients over (1, δ), (1 + d, lanes), converted to coefficients over (1, k')."""
    for i in range(line.shape[1]):
        height = np.float64(line[0, i])
        for a in range(offset.shape[0]):
            height += np.float64(line[1 + a, i]) * offset[a, i]
            out[1 + a, i] = line[1 + a, i]
        out[0, i] = height


@program
def products_about_centre(keys, columns, j0, n, centre, phi):
    """Centre of a tile, and ``products_about`` it."""
    for a in range(keys.shape[1]):
        centre[a] = 0.0
        for j in range(n):
            centre[a] += np.float64(keys[j0 + j, a]) / n
    products_about(keys, columns, j0, n, centre, phi)


@program
def products_about(keys, columns, j0, n, centre, phi):
    """phi[:n]: 1, v_p, k'_a, v_p·k'_a and k'_a·k'_b for a ≤ b, with k' = key − centre; columns (K, 1 + P)."""
    d, values = keys.shape[1], columns.shape[1] - 1
    for j in range(n):
        row = phi[j]
        for p in range(1 + values):
            row[p] = columns[j0 + j, p]
        first = 1 + values
        for a in range(d):
            row[first + a] = np.float64(keys[j0 + j, a]) - centre[a]
        at = first + d
        for p in range(values):
            for a in range(d):
                row[at] = row[1 + p] * row[first + a]
                at += 1
        for a in range(d):
            for b in range(a, d):
                row[at] = row[first + a] * row[first + b]
                at += 1


@program
def _offsets(queries, centre, offset):
    """offset (d, lanes) = centre − query."""
    for a in range(offset.shape[0]):
        for i in range(offset.shape[1]):
            offset[a, i] = centre[a] - np.float64(queries[a, i])


@program
def move_sums(offset, values, about, sums):
    """Shift the sums about a tile's centre to each query, and add them to its sums."""
    d, lanes = offset.shape
    first = 1 + values
    for m in range(about.shape[0]):
        for i in range(lanes):
            about[m, 0, i] += about[m, 1, i]
    for p in range(first):
        for i in range(lanes):
            sums[p, 0, i] += about[p, 0, i]
    for a in range(d):
        for i in range(lanes):
            sums[first + a, 0, i] += about[first + a, 0, i] + offset[a, i] * about[0, 0, i]
    at = first + d
    for p in range(values):
        for a in range(d):
            for i in range(lanes):
                sums[at, 0, i] += about[at, 0, i] + offset[a, i] * about[1 + p, 0, i]
            at += 1
    for a in range(d):
        for b in range(a, d):
            for i in range(lanes):
                sums[at, 0, i] += (
                    about[at, 0, i]
                    + offset[a, i] * about[first + b, 0, i]
                    + offset[b, i] * (about[first + a, 0, i] + offset[a, i] * about[0, 0, i])
                )
            at += 1
