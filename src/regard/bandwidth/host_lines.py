"""Weights of rows over all keys on the CPU, tile by tile, the moments under them and the sums of derivatives.

Tiles of weights stay in a core's cache and, as far as memory allows, are kept between the two passes. With many keys
in the order of a kd-tree, tiles that are too far from a block of rows to matter are skipped.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.engines.cpu.worker_threads import split_range

# Rows and keys of a tile.
BLOCK_ROWS = 128
TILE_KEYS = 256
# Weights that a thread keeps between the passes; the others are computed twice.
CELLS_KEPT = 1 << 23
# Mass per row below which its weights are computed again relative to the largest: in single and double precision.
MIN_MASS_SINGLE = 1e-25
MIN_MASS_DOUBLE = 1e-200
# Scores below this are set to it: numpy's exp is ten times as slow where it underflows, and so are products of what
# underflows in part.
MIN_SCORE = -700.0
MIN_SCORE_SINGLE = -80.0
# Cells of a block of differences that is computed row by row.
CELLS_OF_DIFFERENCES = 1 << 20

# Memory of each thread for weights: fresh memory costs as much as a product.
_memory = threading.local()


class HostKeys(NamedTuple):
    """All rows in a head's coordinates, and the matrices whose products are taken."""

    z: Array  # (n, r) float64
    beyond: Array  # (n,)  rows beyond the range of products
    left: Array  # (n, r + 2)  left·right = score + log weight
    right: Array  # (r + 2, n)
    basis: Array  # (B, n)  φ
    squares: Array | None  # (S, n)  what weight·h is summed with for derivatives: [1, z, z²] or [1, z, z zᵀ]
    tiles: KeyBoxes | None  # None: no tile is skipped
    tol: float  # share of its attention mass that a row may lose
    weight: Array | None  # (n,)  mass of every row as a key
    staying: Array | None  # (n,)  mass of the copies of a row that stay when one is left out
    groups: Array | None  # (n,)  rows of a group are left out together


class HostWeights:
    """Weights of some rows over all keys; ``moments`` (q, B) are Σ weight·φ in float64."""

    def __init__(self, keys: HostKeys, at: Array) -> None:
        kept = 0 if keys.squares is None else min(CELLS_KEPT // len(at), len(keys.z))
        memory = _piece("kept", len(at) * kept, keys.basis.dtype)
        self.z = keys.z[at]
        self.blocks = [
            _Block(keys, at[rows], memory[rows.start * kept : rows.stop * kept])
            for rows in split_range(len(at), BLOCK_ROWS)
        ]
        self.moments = np.concatenate([block.moments() for block in self.blocks])

    def products(self, coefficients: Array) -> Array:
        """Σ weight·h·[1, z, z²] for h = coefficients (q, B)·φ, in float64."""
        parts = split_range(len(coefficients), BLOCK_ROWS)
        return np.concatenate(
            [block.products(coefficients[rows]) for block, rows in zip(self.blocks, parts, strict=True)]
        )


@dataclass(eq=False)
class _Block:
    """Weights of a block of rows over tiles of keys."""

    keys: HostKeys
    at: Array
    memory: Array  # for the weights of tiles that are kept
    tiles: list[slice] = field(default_factory=list)
    kept: list[Array] = field(default_factory=list)
    poor: Array = field(default_factory=lambda: np.zeros(0, np.intp))  # rows computed from differences
    used: int = 0  # cells of the memory

    def __post_init__(self) -> None:
        self.left = self.keys.left[self.at]
        self.span = int(self.at.min()), int(self.at.max())

    def moments(self) -> Array:
        """Moments (q, B); rows beyond the range of products, and rows of tiny mass, are computed from differences."""
        keys = self.keys
        total = np.zeros((len(self.at), len(keys.basis)))
        if keys.tiles is None:
            for tile in split_range(len(keys.z), TILE_KEYS):
                total += self._add(tile)
        else:
            order, rest = keys.tiles.nearest_first(keys.z[self.at])
            for number, left in zip(order, rest, strict=True):
                if left <= max(keys.tol, 2.0**-53) * total[:, 0].min():
                    break
                total += self._add(keys.tiles.tile(number))
        least = MIN_MASS_SINGLE if keys.basis.dtype == np.float32 else MIN_MASS_DOUBLE
        self.poor = np.flatnonzero(keys.beyond[self.at] | ~(total[:, 0] >= least))
        for rows in self._poor_chunks():
            total[rows] = self._exact_weights(rows) @ keys.basis.T.astype(np.float64)
        return total

    def products(self, coefficients: Array) -> Array:
        """Σ weight·h·[1, z, z²] (q, S)."""
        keys = self.keys
        assert keys.squares is not None
        narrow = coefficients.astype(keys.basis.dtype)
        total = np.zeros((len(self.at), len(keys.squares)))
        for number, tile in enumerate(self.tiles):
            weight = self.kept[number] if number < len(self.kept) else self._weights(tile, self._spare("weight", tile))
            h = np.matmul(narrow, keys.basis[:, tile], out=self._spare("h", tile))
            h *= weight
            total += h @ keys.squares[:, tile].T
        for rows in self._poor_chunks():
            h = (coefficients[rows] @ keys.basis.astype(np.float64)) * self._exact_weights(rows)
            total[rows] = h @ keys.squares.T.astype(np.float64)
        return total

    def _add(self, tile: slice) -> Array:
        """Σ weight·φ over one more tile of keys."""
        shape = len(self.at), tile.stop - tile.start
        end = self.used + shape[0] * shape[1]
        # Kept tiles are the first ones: their numbers are places in the list.
        keep = end <= len(self.memory) and len(self.kept) == len(self.tiles)
        out = self.memory[self.used : end].reshape(shape) if keep else self._spare("weight", tile)
        weight = self._weights(tile, out)
        self.tiles.append(tile)
        if keep:
            self.kept.append(weight)
            self.used = end
        return weight @ self.keys.basis[:, tile].T

    def _weights(self, tile: slice, out: Array) -> Array:
        """Weights (q, keys of the tile)."""
        weight = np.matmul(self.left, self.keys.right[:, tile], out=out)
        least = MIN_SCORE if weight.dtype == np.float64 else MIN_SCORE_SINGLE
        # With two bounds numpy does several at once, as np.maximum with one number does not; -least has no effect.
        np.clip(weight, least, -least, out=weight)
        np.exp(weight, out=weight)
        # Few tiles hold rows of the block themselves.
        if self.keys.groups is not None or (self.span[0] < tile.stop and self.span[1] >= tile.start):
            self._leave_out(weight, self.at, tile)
        return np.asarray(weight)

    def _spare(self, name: str, tile: slice) -> Array:
        """Memory (q, keys of the tile) that is written again for every tile."""
        shape = len(self.at), tile.stop - tile.start
        return _piece(name, shape[0] * shape[1], self.keys.basis.dtype).reshape(shape)

    def _leave_out(self, weight: Array, at: Array, tile: slice, form: Any = np.asarray) -> None:
        """Replace weights of keys that are left out of the rows ``at`` by ``form`` of what stays of them."""
        keys = self.keys
        if keys.groups is not None:
            weight[keys.groups[at][:, None] == keys.groups[None, tile]] = form(0.0)
            return
        here = (at >= tile.start) & (at < tile.stop)
        stays = np.zeros(len(at)) if keys.staying is None else keys.staying[at]
        weight[here, at[here] - tile.start] = form(stays[here])

    def _poor_chunks(self) -> list[Array]:
        """The rows that are computed from differences, a few at a time."""
        if not len(self.poor):
            return []
        size = max(1, CELLS_OF_DIFFERENCES // self.keys.z.size)
        return [self.poor[rows] for rows in split_range(len(self.poor), size)]

    def _exact_weights(self, rows: Array) -> Array:
        """Weights (rows, n) relative to the largest of each row, from differences."""
        z, mass = self.keys.z, self.keys.weight
        score = -0.5 * ((z[self.at[rows]][:, None] - z[None]) ** 2).sum(axis=2)
        if mass is not None:
            score += np.log(mass)
        with np.errstate(divide="ignore"):
            self._leave_out(score, self.at[rows], slice(0, len(z)), np.log)
        return np.asarray(np.exp(score - score.max(axis=1, keepdims=True)))


def _piece(name: str, size: int, dtype: Any) -> Array:
    """Memory (size,) of this thread."""
    pieces: dict[Any, Array] = _memory.__dict__  # type: ignore[assignment]
    key = name, np.dtype(dtype).str
    if key not in pieces or len(pieces[key]) < size:
        pieces[key] = np.empty(size, dtype)
    return np.asarray(pieces[key][:size])


class KeyBoxes(NamedTuple):
    """Boxes around tiles of keys in order, and the mass of each."""

    low: Array  # (T, r)
    high: Array  # (T, r)
    mass: Array  # (T,)
    keys: int

    @classmethod
    def of(cls, z: Array, weight: Array | None) -> KeyBoxes:
        starts = np.arange(0, len(z), TILE_KEYS)
        mass = np.add.reduceat(np.ones(len(z)) if weight is None else weight, starts)
        return cls(np.minimum.reduceat(z, starts), np.maximum.reduceat(z, starts), mass, len(z))

    def tile(self, number: int) -> slice:
        return slice(number * TILE_KEYS, min((number + 1) * TILE_KEYS, self.keys))

    def nearest_first(self, at: Array) -> tuple[Array, Array]:
        """Tiles by distance from a block of rows (q, r), and a bound on the mass in each of them and all later ones."""
        gap = np.maximum(np.maximum(self.low - at.max(axis=0), at.min(axis=0) - self.high), 0.0)
        distance2 = (gap**2).sum(axis=1)
        order = np.argsort(distance2, kind="stable")
        bound = (self.mass * np.exp(-0.5 * distance2))[order]
        return order, np.cumsum(bound[::-1])[::-1]


def leaf_order(points: Array) -> Array:
    """Indices (n,) of points (n, d) such that tiles of keys are the leaves of a kd-tree."""
    order, size = np.arange(len(points)), TILE_KEYS
    stack = [(0, len(points))]
    while stack:
        start, stop = stack.pop()
        if stop - start <= size:
            continue
        part = order[start:stop]
        axis = int(np.argmax(np.ptp(points[part], axis=0)))
        # The left half is a whole number of leaves.
        middle = -(-(stop - start) // (2 * size)) * size
        order[start:stop] = part[np.argpartition(points[part, axis], middle - 1)]
        stack += [(start, start + middle), (start + middle, stop)]
    return order
