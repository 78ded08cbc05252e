"""Which tiles of keys each block of queries has to visit.

Every key that a query skips has less than tol/n of the query's mass; together they have less than ``tol``, which is
never below the rounding error of the mass. The mass is bounded from below after the nearest tile has been visited; in
the backward pass it is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.core.arrays import Array
from regard.core.bounds import bounds_of
from regard.core.kernels import BOXCAR
from regard.core.plan import Step
from regard.core.problem import Problem
from regard.core.scores import Gaussian, Radial, power_and_stretch
from regard.engines.cpu.program_inputs import packed, read_only
from regard.programs.cpu.lanes import block_lanes
from regard.programs.cpu.tile_bounds import TileBounds, nearest_tiles, select_tiles

SelectTiles = Callable[[slice], Array]

# Bits of the mass that skipped keys must not change, by size of the float.
MASS_BITS = {4: 32, 8: 53}
EVERY_TILE = np.zeros((0, 0), np.uint8)


def select_every_tile(rows: slice) -> Array:  # noqa: ARG001
    """The selection of engines that do not prune."""
    return EVERY_TILE


@dataclass(frozen=True, eq=False)
class ScoreSpace:
    """Coordinates in which u² is a sum of squares: the features, or their projections by a matrix w."""

    query: Array  # (Q, c), float64
    key: Array  # (K, c)
    w: Array  # (c,)
    slack: Array  # (c,) bound on the rounding error of a difference
    stretch: float


def score_space(problem: Problem) -> ScoreSpace | None:
    """The score space of a problem; None if its coordinates overflow."""
    score, (_, d) = problem.score, problem.key.shape
    assert isinstance(score, Radial)
    query, key = problem.query.astype(np.float64), problem.key.astype(np.float64)
    eps, largest = float(np.finfo(problem.query.dtype).eps), float(np.finfo(problem.query.dtype).max)
    # A bound on how much u² is rounded down.
    stretch = 1.0 - (4 * d + 16) * eps
    if score.w.ndim < 2:
        w, by = np.minimum(score.w, largest), 1.0
        if score.w.ndim == 0:
            w, by = power_and_stretch(score.w)
        return ScoreSpace(query, key, np.array(np.broadcast_to(w, d)), np.zeros(d), by * stretch)
    with np.errstate(over="ignore", invalid="ignore"):
        # Relative to one of the keys offsets vanish, and the rounding error of a projection is small.
        query, key = query - problem.key[0], key - problem.key[0]
        span = np.maximum(np.abs(query).max(axis=0), np.abs(key).max(axis=0))
        slack = 8 * (d + 2) * eps * (span @ np.abs(score.w))
        query, key = query @ score.w, key @ score.w
    if not all(np.isfinite(part).all() for part in (query, key, slack)):
        return None
    return ScoreSpace(query, key, np.ones(score.w.shape[1]), slack, stretch)


@dataclass(frozen=True, eq=False)
class TilePruner:
    """Bounds of tiles of keys, and how far below a query's log mass a score still counts."""

    bounds: TileBounds
    margin: float

    @property
    def compact(self) -> bool:
        return self.bounds.code >= BOXCAR

    def threshold(self, peak: Array, mass: Array, empty: float) -> Array:
        """Scores below it are negligible; (Q,) or (blocks, lanes), ``empty`` where the mass is 0."""
        attended = mass > 0.0
        if self.compact:
            return np.where(attended, -np.inf, empty)
        with np.errstate(over="ignore"):
            log_mass = peak.astype(np.float64) * (1.0 + 1e-14) + np.log(np.where(attended, mass, 1.0))
        return np.where(attended, log_mass - self.margin, empty)

    def selection(self, threshold: Array) -> SelectTiles:
        """Selects tiles for blocks of queries with known thresholds (Q,)."""
        packed_threshold = packed(threshold, self.bounds.queries.shape[2])
        return lambda rows: tiles_above(self.bounds, rows, packed_threshold[rows])


def tiles_above(bounds: TileBounds, rows: slice, threshold: Array) -> Array:
    """Mask (blocks, tiles) of the tiles that can exceed the thresholds (blocks, lanes) of the blocks ``rows``."""
    selected = np.empty((len(threshold), len(bounds.low)), np.uint8)
    select_tiles(bounds, rows.start, threshold, selected)
    return selected


def visit_tiles(
    pruner: TilePruner | None, rows: slice, found: Callable[[], tuple[Array, Array]], add: Callable[[Array], None]
) -> None:
    """Call ``add(selected)`` until no tile that counts is left; ``found()``: peak and mass (blocks, lanes) so far.

    Each block starts with the tile nearest to it, and doubles the number of tiles while one of its queries has no mass.
    Without a pruner every tile is added.
    """
    if pruner is None:
        add(EVERY_TILE)
        return
    shape = rows.stop - rows.start, pruner.bounds.low.shape[0]
    visited = np.zeros(shape, np.uint8)
    threshold = np.full((shape[0], pruner.bounds.queries.shape[2]), -np.inf)
    count, unfinished = 1, np.full(shape[0], not pruner.compact)
    while unfinished.any():
        selected = np.empty(shape, np.uint8)
        nearest_tiles(pruner.bounds, rows.start, count, unfinished, visited, selected)
        add(selected)
        visited |= selected
        threshold, count = pruner.threshold(*found(), empty=-np.inf), 2 * count
        unfinished = (threshold == -np.inf).any(axis=1) & ~visited.all(axis=1)
    add(tiles_above(pruner.bounds, rows, threshold) & ~visited & 1)


def bounds_of_tiles(
    space: ScoreSpace, code: int, dtype: np.dtype[Any], tile: int, max_bias: Array | None = None
) -> TileBounds:
    """Bounding boxes of consecutive tiles of keys; ``max_bias`` (K,) is added to the scores."""
    starts = np.arange(0, len(space.key), tile)
    return TileBounds(
        code=code,
        low=read_only(np.minimum.reduceat(space.key, starts)),
        high=read_only(np.maximum.reduceat(space.key, starts)),
        max_bias=read_only(np.zeros(len(starts)) if max_bias is None else np.maximum.reduceat(max_bias, starts)),
        queries=read_only(packed(space.query, block_lanes(dtype.itemsize))),
        w=read_only(space.w),
        slack=read_only(space.slack),
        stretch=float(space.stretch),
        largest=float(np.finfo(dtype).max),
    )


def tile_pruner(problem: Problem, step: Step, space: ScoreSpace, max_bias: Array | None) -> TilePruner:
    """The pruner of a problem whose rows are sorted; ``max_bias`` (K,) is added to the scores."""
    assert isinstance(problem.score, Radial)
    bounds = bounds_of_tiles(space, problem.score.kernel.code, problem.query.dtype, step.key_tile, max_bias)
    return TilePruner(bounds, float(np.log(len(space.key))) - float(np.log(_tolerated_loss(problem))))


def _tolerated_loss(problem: Problem) -> float:
    """The fraction of its mass that a query may lose, never below the rounding error."""
    return max(problem.tol, 2.0 ** -MASS_BITS[problem.query.dtype.itemsize])


def every_pair_counts(problem: Problem, space: ScoreSpace) -> bool:
    """Whether even the farthest pair counts, so that no tile could be skipped.

    No query has more mass than if all keys were at its own position.
    """
    query, key, score = bounds_of(space.query), bounds_of(space.key), problem.score
    assert isinstance(score, Radial)
    with np.errstate(over="ignore"):
        farthest = np.maximum(query.high - key.low, key.high - query.low) * space.w
        u2 = float(np.sum(farthest**2)) * space.stretch
    if not np.isfinite(u2):
        return False
    if score.kernel.compact:
        return u2 < 0.99
    least = -0.5 * u2 if isinstance(score, Gaussian) else -float(np.sqrt(u2))
    uneven = 0.0 if problem.log_weight is None else float(np.ptp(problem.log_weight))
    return least - uneven > float(np.log(_tolerated_loss(problem))) + 1.0
