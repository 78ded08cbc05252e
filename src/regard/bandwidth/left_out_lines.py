"""Leave-one-out local lines of all rows and their derivatives by the metric, by products of matrices.

In a head's coordinates z = x·W the line of a row comes from the moments, under weights exp(−½‖z_k − z_i‖²), of

    φ(k) = [1, z, z zᵀ, y, z y]

so the moments of a block of rows are one product, weights (rows × keys) times φ (keys × columns). With means v̄, δ̄ and
covariances C, c of δ = z_k − z_i under the weights, A = C + λ(1 + ‖δ̄‖²), β = A⁻¹c and p = A⁻¹δ̄, the answer is
f = v̄ − δ̄·β, and a change of the scores changes it by Σ_k weight_k·h_k·dscore_k with

    h_k = (1 − p·a_k)(b_k − β·a_k) + λ(1 + ‖δ̄‖²) p·β + 2λ(p·β) δ̄·a_k,   a_k = δ_k − δ̄,  b_k = y_k − v̄

a combination of the columns of φ: a second product gives h of all pairs, and a third one Σ weight·h·δδᵀ, the derivative
of every row's answer by E in W(I + E). Nothing here is compiled: a first fit does not wait for a compiler. On a GPU
(``device_lines``) torch takes the same products.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from regard.bandwidth.objective import Objective
from regard.core.arrays import Array
from regard.core.problem import relative_weights
from regard.engines.cpu.worker_threads import run_jobs, split_range
from regard.pooling.runner import available_threads

# Rows and keys of a tile: its weights fit into a core's cache.
BLOCK_ROWS = 128
TILE_KEYS = 2048
# Tiles of weights that are kept between the passes of a block; with more keys they are computed twice.
MAX_TILES_KEPT = 4
# Largest ‖z‖² about the mean for which scores by products are precise enough: in single precision for a search, …
MAX_SQUARE_SINGLE = 1600.0
# … and in double precision for answers; rows beyond are computed one by one from differences.
MAX_SQUARE_DOUBLE = 1e6
# Share of rows beyond single precision up to which it is used for the others.
MAX_SHARE_BEYOND = 0.01
# Mass per row below which its weights are computed again relative to the largest: in single and double precision.
LEAST_MASS_SINGLE = 1e-25
LEAST_MASS_DOUBLE = 1e-200
# Scores below this are set to it: numpy's exp is ten times as slow where it underflows.
LEAST_SCORE = -700.0
# Cells of a block of differences that is computed row by row.
CELLS_OF_DIFFERENCES = 1 << 20


# Memory of each thread for the weights of tiles.
_memory = threading.local()


class LeftOut(NamedTuple):
    """Answers of rows without themselves, and their derivatives."""

    answer: Array  # (Q, P)
    by_metric: Array | None  # (Q, P, r) by log w of each coordinate, or (Q, P, r, r) by E in W(I + E)
    by_log_ridge: Array | None  # (Q, P)


# A function of a block of rows (q,) that gives its weights, which have ``products``, and its moments (q, B).
_MomentsOf = Callable[[Array], tuple[Any, Array]]


class _Coordinates(NamedTuple):
    """All rows in a head's coordinates, and the matrices whose products are taken."""

    z: Array  # (n, r) float64
    left: Array  # (n, r + 2)  left·right = score + log weight
    right: Array  # (r + 2, n)
    basis: Array  # (n, B)  φ
    turned: Array | None  # (B, n)  φᵀ, for derivatives
    squares: Array | None  # (n, S)  what weight·h is summed with: [1, z, z²] or [1, z, z zᵀ]


@dataclass(frozen=True, eq=False)
class LeftOutLines:
    """Local lines of every row of an objective from the other rows; built by ``LeftOutLines.of``."""

    position: Array  # (n, d) float64, centred
    columns: Array  # (n, P)
    weight: Array | None  # (n,)  mass of every row as a key, at most 1
    staying: Array | None  # (n,)  mass of the copies of a row that stay when one is left out
    groups: Array | None  # (n,)  rows of a group are left out together; None: every row alone
    tol: float = 0.0  # share of its attention mass that a row may lose
    gpu: bool = False  # products on a GPU, in float64 and over all keys

    @classmethod
    def of(cls, objective: Objective, position: Array, tol: float = 0.0) -> LeftOutLines:
        """The rows of an objective, at a position (n, d) each."""
        weight = None if objective.weight is None else relative_weights(objective.weight.astype(np.float64))[0]
        repeated, staying = objective.repeated, None
        if repeated is not None and repeated.any():
            assert weight is not None
            staying = repeated * weight / (repeated + 1.0)
        alone = len(np.unique(objective.labels)) == len(objective.labels)
        groups = None if alone else objective.labels
        centred, gpu = position - position.mean(axis=0), objective.engine == "fused"
        return cls(centred, objective.loss.columns, weight, staying, groups, tol, gpu)

    def among(self, rows: Array) -> LeftOutLines:
        """Some of the rows, as if there were no others."""

        def take(part: Array | None) -> Any:
            return None if part is None else part[rows]

        parts = (take(self.weight), take(self.staying), take(self.groups))
        return LeftOutLines(self.position[rows], self.columns[rows], *parts, self.tol, self.gpu)

    @cached_property
    def _order(self) -> Array:
        """Indices (n,) that put near rows near each other, so that far tiles can be skipped."""
        return kd_order(self.position, TILE_KEYS)

    @cached_property
    def _sorted(self) -> tuple[LeftOutLines, Array]:
        """The rows in that order, and the place of each row in it."""
        place = np.empty(len(self._order), np.intp)
        place[self._order] = np.arange(len(place))
        return self.among(self._order), place

    def __call__(
        self, W: Array, ridge: float, rows: Array | None = None, *, metric: str | None = None, single: bool = False
    ) -> LeftOut:
        """Answers of ``rows`` (all if None) with z = x·W, W (d, r), and λ; derivatives if ``metric`` is given.

        ``metric`` "feature" gives derivatives by the logarithm of the scale of each coordinate, "full" those by E.
        ``single`` computes products in single precision where coordinates are small enough.

        *Cost*: O(Q·n·r·(r + P)) time, three products of matrices with derivatives and one without; memory O(n·r²).
        """
        rows = np.arange(len(self.position)) if rows is None else rows
        if self._skips_tiles:
            inside, place = self._sorted
            at = place[rows]
            order = np.argsort(at)
            found = inside._at(W, ridge, at[order], metric, single)
            back = np.empty_like(order)
            back[order] = np.arange(len(order))
            parts = (None if part is None else part[back] for part in found)
            return LeftOut(*parts)  # type: ignore[arg-type]
        return self._at(W, ridge, rows, metric, single)

    @property
    def _skips_tiles(self) -> bool:
        """Whether rows are ordered, and tiles of keys far from a block of rows skipped."""
        return not self.gpu and len(self.position) > MAX_TILES_KEPT * TILE_KEYS

    def _at(self, W: Array, ridge: float, rows: Array, metric: str | None, single: bool) -> LeftOut:
        """The same, with rows in order."""
        z = self.position @ W
        square = (z**2).sum(axis=1)
        single = single and not self.gpu and float((square > MAX_SQUARE_SINGLE).mean()) <= MAX_SHARE_BEYOND
        beyond = ~(square <= (MAX_SQUARE_SINGLE if single else MAX_SQUARE_DOUBLE))
        moments_of = self._on_gpu(z, metric, beyond) if self.gpu else self._on_cpu(z, metric, beyond, single)
        count, width = self.columns.shape[1], z.shape[1]
        answer = np.empty((len(rows), count))
        shape = (width, width) if metric == "full" else (width,)
        slopes = None if metric is None else np.empty((len(rows), count, *shape))
        by_ridge = None if metric is None else np.empty((len(rows), count))

        def run(block: slice) -> None:
            at = rows[block]
            weights, moments = moments_of(at)
            line = _lines(moments, z[at], ridge, count)
            answer[block] = line.answer
            if slopes is None or by_ridge is None:
                return
            by_ridge[block] = line.by_log_ridge
            for p in range(count):
                sums = weights.products(line.coefficients(p))
                slopes[block, p] = line.slopes(p, sums / moments[:, :1], metric)

        blocks = split_range(len(rows), self._block_rows)
        run_jobs(run, blocks, 1 if self.gpu else available_threads())
        return LeftOut(answer, slopes, by_ridge)

    @property
    def _block_rows(self) -> int:
        if not self.gpu:
            return BLOCK_ROWS
        # It comes with torch, which the CPU does without.
        from regard.bandwidth.device_lines import block_rows

        return block_rows(len(self.position))

    def _on_cpu(self, z: Array, metric: str | None, beyond: Array, single: bool) -> _MomentsOf:
        """A function of a block of rows: its weights, and the moments Σ weight·φ (q, B) in float64."""
        dtype = np.dtype(np.float32 if single else np.float64)
        left, right = (matrix.astype(dtype) for matrix in _score_factors(np, z, self._log_weight))
        basis, squares = _bases(np, z.astype(dtype), self.columns.astype(dtype), metric)
        turned = None if metric is None else np.ascontiguousarray(basis.T)
        space = _Coordinates(z, left, np.ascontiguousarray(right.T), basis, turned, squares)
        tiles = _TileBounds.of(z, self.weight) if self._skips_tiles else None
        return lambda at: self._moments(space, at, beyond[at], tiles)

    def _on_gpu(self, z: Array, metric: str | None, beyond: Array) -> _MomentsOf:
        """The same on a GPU."""
        import torch

        from regard.bandwidth.device_lines import DeviceBlock, DeviceKeys, on_device

        near, log_weight = on_device(z), on_device(self._log_weight)
        factors = _score_factors(torch, near, log_weight)
        bases = _bases(torch, near, on_device(self.columns), metric)
        keys = DeviceKeys(near, *factors, *bases, log_weight, on_device(self.staying), on_device(self.groups))

        def moments_of(at: Array) -> tuple[DeviceBlock, Array]:
            block = DeviceBlock(keys, at, beyond[at], LEAST_SCORE, LEAST_MASS_DOUBLE)
            return block, block.moments

        return moments_of

    @property
    def _log_weight(self) -> Array | None:
        return None if self.weight is None else np.log(self.weight)

    def _moments(
        self, space: _Coordinates, at: Array, beyond: Array, tiles: _TileBounds | None
    ) -> tuple[_BlockWeights, Array]:
        """Weights and the moments Σ weight·φ (q, B) of a block of rows, in float64.

        Rows ``beyond`` (q,) the range of products, and rows of tiny mass, are computed from differences.
        """
        weights = _BlockWeights(self, space, at)
        moments = np.zeros((len(at), space.basis.shape[1]))
        if tiles is None:
            for tile in split_range(len(space.z), TILE_KEYS):
                moments += weights.add(tile)
        else:
            order, rest = tiles.nearest_first(space.z[at])
            for number, left in zip(order, rest, strict=True):
                if left <= max(self.tol, 2.0**-53) * moments[:, 0].min():
                    break
                moments += weights.add(tiles.tile(number))
        least = LEAST_MASS_SINGLE if space.basis.dtype == np.float32 else LEAST_MASS_DOUBLE
        weights.poor = np.flatnonzero(beyond | ~(moments[:, 0] >= least))
        for rows in weights.poor_chunks():
            moments[rows] = weights.exactly(rows)
        return weights, moments


def _score_factors(xp: Any, z: Any, log_weight: Any) -> tuple[Any, Any]:
    """Matrices (n, r + 2) of numpy or torch whose product over keys is score + log weight."""
    one, half = xp.ones_like(z[:, :1]), 0.5 * (z**2).sum(axis=1)[:, None]
    bias = -half if log_weight is None else log_weight[:, None] - half
    return xp.concatenate([z, -half, one], axis=1), xp.concatenate([z, one, bias], axis=1)


def _bases(xp: Any, z: Any, value: Any, metric: str | None) -> tuple[Any, Any]:
    """φ (n, B) of all keys, and what weight·h is summed with (n, S) for derivatives by the metric."""
    a, b = np.triu_indices(z.shape[1])
    one, both = xp.ones_like(z[:, :1]), z[:, a] * z[:, b]
    across = (z[:, None, :] * value[:, :, None]).reshape(len(z), -1)
    basis = xp.concatenate([one, z, both, value, across], axis=1)
    if metric is None:
        return basis, None
    return basis, xp.concatenate([one, z, both if metric == "full" else z**2], axis=1)


class _BlockWeights:
    """Weights of a block of rows over tiles of keys."""

    def __init__(self, lines: LeftOutLines, space: _Coordinates, at: Array) -> None:
        self.lines, self.space, self.at = lines, space, at
        self.tiles: list[slice] = []
        self.kept: list[Array] = []
        self.poor: Array = np.zeros(0, np.intp)

    def add(self, tile: slice) -> Array:
        """Σ weight·φ over one more tile of keys."""
        weight = self._weights(tile, len(self.tiles))
        self.tiles.append(tile)
        if len(self.kept) < MAX_TILES_KEPT:
            self.kept.append(weight)
        return np.asarray(weight @ self.space.basis[tile], np.float64)

    def _weights(self, tile: slice, number: int) -> Array:
        """Weights (q, keys of the tile); the tiles that are kept have memory of their own."""
        left, right = self.space.left[self.at], self.space.right[:, tile]
        weight = np.matmul(left, right, out=self._memory(tile, min(number, MAX_TILES_KEPT)))
        if weight.dtype == np.float64:
            np.maximum(weight, LEAST_SCORE, out=weight)
        np.exp(weight, out=weight)
        self._leave_out(weight, np.arange(len(self.at)), tile)
        return np.asarray(weight)

    def _memory(self, tile: slice, number: int) -> Array:
        """Memory (q, keys of the tile) that this thread reuses: fresh memory costs as much as a product."""
        shape, dtype = (len(self.at), tile.stop - tile.start), self.space.basis.dtype
        pieces = _memory.__dict__.setdefault(dtype.str, {})
        piece = pieces.get(number)
        if piece is None or piece.size < shape[0] * shape[1]:
            piece = pieces[number] = np.empty(BLOCK_ROWS * TILE_KEYS, dtype)
        return np.asarray(piece[: shape[0] * shape[1]].reshape(shape))

    def _leave_out(self, weight: Array, rows: Array, tile: slice, form: Any = np.asarray) -> None:
        """Replace weights of keys that are left out of some rows of the block by ``form`` of what stays of them."""
        lines, at = self.lines, self.at[rows]
        if lines.groups is not None:
            weight[lines.groups[at][:, None] == lines.groups[None, tile]] = form(0.0)
            return
        here = (at >= tile.start) & (at < tile.stop)
        stays = np.zeros(len(at)) if lines.staying is None else lines.staying[at]
        weight[here, at[here] - tile.start] = form(stays[here])

    def poor_chunks(self) -> list[Array]:
        """Rows of the block with too little mass, a few at a time."""
        if not len(self.poor):
            return []
        size = max(1, CELLS_OF_DIFFERENCES // self.space.z.size)
        return [self.poor[start : start + size] for start in range(0, len(self.poor), size)]

    def exactly(self, rows: Array) -> Array:
        """Moments of some rows of the block, relative to their largest weight, from differences."""
        return np.asarray(self._exact_weights(rows) @ self.space.basis.astype(np.float64))

    def _exact_weights(self, rows: Array) -> Array:
        z, lines = self.space.z, self.lines
        score = -0.5 * ((z[self.at[rows]][:, None] - z[None]) ** 2).sum(axis=2)
        if lines.weight is not None:
            score += np.log(lines.weight)
        with np.errstate(divide="ignore"):
            self._leave_out(score, rows, slice(0, len(z)), np.log)
        return np.asarray(np.exp(score - score.max(axis=1, keepdims=True)))

    def products(self, coefficients: Array) -> Array:
        """Σ weight·h·[1, z, z²] for h = coefficients (q, B)·φ, in float64."""
        space = self.space
        assert space.squares is not None
        assert space.turned is not None
        narrow = coefficients.astype(space.basis.dtype)
        total = np.zeros((len(self.at), space.squares.shape[1]))
        for number, tile in enumerate(self.tiles):
            weight = self.kept[number] if number < len(self.kept) else self._weights(tile, number)
            h = np.matmul(narrow, space.turned[:, tile], out=self._memory(tile, MAX_TILES_KEPT + 1))
            h *= weight
            total += h @ space.squares[tile]
        for rows in self.poor_chunks():
            h = (coefficients[rows] @ space.turned.astype(np.float64)) * self._exact_weights(rows)
            total[rows] = h @ space.squares.astype(np.float64)
        return total


class _Lines(NamedTuple):
    """Lines of a block of rows and what their derivatives need; all about the origin of z."""

    answer: Array  # (q, P)
    by_log_ridge: Array  # (q, P)
    at: Array  # (q, r)  z of the rows
    mean: Array  # (q, r)  mean of the keys
    offset: Array  # (q, r)  δ̄
    value: Array  # (q, P)  v̄
    beta: Array  # (q, P, r)
    pull: Array  # (q, r)  p
    ridge: float
    guarded: Array  # (q,)  λ(1 + ‖δ̄‖²)

    def coefficients(self, p: int) -> Array:
        """Coefficients (q, B) of h in the columns of φ."""
        (rows, width), count = self.mean.shape, self.beta.shape[1]
        a, b = np.triu_indices(width)
        beta, pull, mean = self.beta[:, p], self.pull, self.mean
        height, level = 1.0 + (pull * mean).sum(axis=1), self.value[:, p] - (beta * mean).sum(axis=1)
        bend = 2.0 * self.ridge * (pull * beta).sum(axis=1)
        both = pull[:, a] * beta[:, b] + pull[:, b] * beta[:, a]
        both[:, a == b] *= 0.5
        out = np.zeros((rows, 1 + width + len(a) + count * (1 + width)))
        out[:, 0] = self.by_log_ridge[:, p] - height * level - bend * (self.offset * mean).sum(axis=1)
        out[:, 1 : 1 + width] = level[:, None] * pull - height[:, None] * beta + bend[:, None] * self.offset
        out[:, 1 + width : 1 + width + len(a)] = both
        values = 1 + width + len(a)
        out[:, values + p] = height
        across = values + count + p * width
        out[:, across : across + width] = -pull
        return out

    def slopes(self, p: int, sums: Array, metric: str | None) -> Array:
        """Derivatives (q, r) or (q, r, r) by the metric, from the means of h·[1, z, z²]."""
        width = self.mean.shape[1]
        total, first, second = sums[:, 0], sums[:, 1 : 1 + width], sums[:, 1 + width :]
        at, beta = self.at, self.beta[:, p]
        bend = 2.0 * self.ridge * (self.pull * beta).sum(axis=1)
        if metric == "feature":
            through = 2.0 * at * first - second - total[:, None] * at**2
            direct = bend[:, None] * self.offset**2 - 2.0 * self.guarded[:, None] * self.pull * beta
            return np.asarray(through + direct)
        a, b = np.triu_indices(width)
        square = np.empty((len(sums), width, width))
        square[:, a, b] = square[:, b, a] = second
        cross, pulled = at[:, :, None] * first[:, None], self.pull[:, :, None] * beta[:, None]
        through = cross + cross.mT - square - total[:, None, None] * at[:, :, None] * at[:, None]
        direct = bend[:, None, None] * self.offset[:, :, None] * self.offset[:, None]
        return np.asarray(through + direct - self.guarded[:, None, None] * (pulled + pulled.mT))


def _lines(moments: Array, at: Array, ridge: float, count: int) -> _Lines:
    """The lines of rows at z (q, r) from their moments (q, B)."""
    rows, width = at.shape
    a, b = np.triu_indices(width)
    means = moments[:, 1:] / moments[:, :1]
    mean, values = means[:, :width], width + len(a)
    covariance = np.empty((rows, width, width))
    covariance[:, a, b] = covariance[:, b, a] = means[:, width:values]
    covariance -= mean[:, :, None] * mean[:, None]
    value = means[:, values : values + count]
    cross = means[:, values + count :].reshape(rows, count, width) - value[:, :, None] * mean[:, None]
    offset = mean - at
    guarded = ridge * (1.0 + (offset**2).sum(axis=1))
    covariance[:, np.arange(width), np.arange(width)] += guarded[:, None]
    solved = solve_positive(covariance, np.concatenate([cross, offset[:, None]], axis=1))
    beta, pull = solved[:, :-1], solved[:, -1]
    answer = value - (beta * offset[:, None]).sum(axis=2)
    by_ridge = guarded[:, None] * (beta * pull[:, None]).sum(axis=2)
    return _Lines(answer, by_ridge, at, mean, offset, value, beta, pull, ridge, guarded)


def solve_positive(matrix: Array, right: Array) -> Array:
    """x (Q, R, d) with matrix (Q, d, d) positive definite and right (Q, R, d): elimination, all systems at once.

    LAPACK solves one small system at a time, which takes longer than everything else on a few hundred rows.

    >>> solve_positive(np.array([[[2.0, 0.0], [0.0, 4.0]]]), np.array([[[2.0, 2.0]]])).tolist()
    [[[1.0, 0.5]]]
    """
    width = matrix.shape[1]
    system = np.ascontiguousarray(np.concatenate([matrix, right.mT], axis=2).transpose(1, 2, 0))  # (d, d + R, Q)
    for j in range(width):
        pivot = system[j, j + 1 :] / system[j, j]
        system[:, j + 1 :] -= system[:, j, None] * pivot
        system[j, j + 1 :] = pivot
    return np.asarray(system[:, width:].transpose(2, 1, 0))


class _TileBounds(NamedTuple):
    """Boxes around tiles of keys in order, and the mass of each."""

    low: Array  # (T, r)
    high: Array  # (T, r)
    mass: Array  # (T,)
    keys: int

    @classmethod
    def of(cls, z: Array, weight: Array | None) -> _TileBounds:
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


def kd_order(points: Array, size: int) -> Array:
    """Indices (n,) of points (n, d) such that runs of ``size`` are the leaves of a kd-tree."""
    order = np.arange(len(points))
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
