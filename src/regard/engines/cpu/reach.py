"""Which tiles a block of queries has to see, and in which order it is found out.

What a query skips is, key by key, below tol/n of the attention it has: together below ``tol``, which is never less than
the rounding of its mass. How much it has is known after the nearest tile, or beforehand in the adjoint pass.
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
from regard.engines.cpu.words import frozen, packed
from regard.programs.cpu.boxes import Boxes, nearest_tiles, tiles_in_reach
from regard.programs.cpu.lanes import block_lanes

Near = Callable[[slice], Array]

# Bits of the mass that nothing skipped may touch: float32 sums are held to float32's own.
BITS = {4: 32, 8: 53}
EVERY_TILE = np.zeros((0, 0), np.uint8)


def every_tile(rows: slice) -> Array:  # noqa: ARG001
    """What an engine without boxes sees."""
    return EVERY_TILE


@dataclass(frozen=True, eq=False)
class Space:
    """Coordinates in which u² is a sum of squares: the features, or their projections by a matrix w."""

    query: Array  # (Q, c), float64
    key: Array  # (K, c)
    w: Array  # (c,)
    slack: Array  # (c,) what rounding may add to a difference
    stretch: float


def space_of(problem: Problem) -> Space | None:
    """The problem's space; None where its coordinates overflow."""
    score, (_, d) = problem.score, problem.key.shape
    assert isinstance(score, Radial)
    query, key = problem.query.astype(np.float64), problem.key.astype(np.float64)
    eps, largest = float(np.finfo(problem.query.dtype).eps), float(np.finfo(problem.query.dtype).max)
    # No u² is rounded down by more than this.
    stretch = 1.0 - (4 * d + 16) * eps
    if score.w.ndim < 2:
        w, by = np.minimum(score.w, largest), 1.0
        if score.w.ndim == 0:
            w, by = power_and_stretch(score.w)
        return Space(query, key, np.array(np.broadcast_to(w, d)), np.zeros(d), by * stretch)
    with np.errstate(over="ignore", invalid="ignore"):
        # Seen from one of the keys offsets are gone, and the rounding of a projection is small.
        query, key = query - problem.key[0], key - problem.key[0]
        span = np.maximum(np.abs(query).max(axis=0), np.abs(key).max(axis=0))
        slack = 8 * (d + 2) * eps * (span @ np.abs(score.w))
        query, key = query @ score.w, key @ score.w
    if not all(np.isfinite(part).all() for part in (query, key, slack)):
        return None
    return Space(query, key, np.ones(score.w.shape[1]), slack, stretch)


@dataclass(frozen=True, eq=False)
class Reach:
    """Boxes of a problem whose keys stand tile by tile, and how far below a query's height a score still counts."""

    boxes: Boxes
    margin: float

    @property
    def compact(self) -> bool:
        return self.boxes.code >= BOXCAR

    def level(self, peak: Array, mass: Array, empty: float) -> Array:
        """Scores below it do not show in the mass; ``empty`` where there is none."""
        attended = mass > 0.0
        if self.compact:
            return np.where(attended, -np.inf, empty)
        with np.errstate(over="ignore"):
            height = peak.astype(np.float64) * (1.0 + 1e-14) + np.log(np.where(attended, mass, 1.0))
        return np.where(attended, height - self.margin, empty)

    def known(self, level: Array) -> Near:
        """Tiles in reach of blocks of queries whose level (Q,) is known."""
        laid = packed(level, self.boxes.queries.shape[2])
        return lambda rows: self.tiles(rows, laid[rows])

    def tiles(self, rows: slice, level: Array) -> Array:
        """Which tiles (blocks, tiles) are in reach, given the level (blocks, lanes)."""
        near = np.empty((rows.stop - rows.start, self.boxes.low.shape[0]), np.uint8)
        tiles_in_reach(self.boxes, rows.start, level, near)
        return near


def visit(
    reach: Reach | None, rows: slice, found: Callable[[], tuple[Array, Array]], add: Callable[[Array], None]
) -> None:
    """Call ``add(near)`` until no tile that counts is left; ``found()``: peak and mass (blocks, lanes) so far.

    Each block begins with the tile nearest to it, and goes on to twice as many while one of its queries has nobody.
    Without a reach every tile counts.
    """
    if reach is None:
        add(EVERY_TILE)
        return
    shape = rows.stop - rows.start, reach.boxes.low.shape[0]
    seen = np.zeros(shape, np.uint8)
    level = np.full((shape[0], reach.boxes.queries.shape[2]), -np.inf)
    count, wanted = 1, np.full(shape[0], not reach.compact)
    while wanted.any():
        near = np.empty(shape, np.uint8)
        nearest_tiles(reach.boxes, rows.start, count, wanted, seen, near)
        add(near)
        seen |= near
        level, count = reach.level(*found(), empty=-np.inf), 2 * count
        wanted = (level == -np.inf).any(axis=1) & ~seen.all(axis=1)
    add(reach.tiles(rows, level) & ~seen & 1)


def boxes_of(space: Space, code: int, dtype: np.dtype[Any], tile: int, top: Array | None = None) -> Boxes:
    """Boxes around the keys, tile by tile, for a kernel in this precision; ``top`` (K,) is added to their scores."""
    starts = np.arange(0, len(space.key), tile)
    return Boxes(
        code=code,
        low=frozen(np.minimum.reduceat(space.key, starts)),
        high=frozen(np.maximum.reduceat(space.key, starts)),
        top=frozen(np.zeros(len(starts)) if top is None else np.maximum.reduceat(top, starts)),
        queries=frozen(packed(space.query, block_lanes(dtype.itemsize))),
        w=frozen(space.w),
        slack=frozen(space.slack),
        stretch=float(space.stretch),
        largest=float(np.finfo(dtype).max),
    )


def reach_of(problem: Problem, step: Step, space: Space, top: Array | None) -> Reach:
    """Which tiles of keys count; ``top`` (K,) is added to their scores."""
    assert isinstance(problem.score, Radial)
    boxes = boxes_of(space, problem.score.kernel.code, problem.query.dtype, step.key_tile, top)
    return Reach(boxes, float(np.log(len(space.key))) - float(np.log(_least_share(problem))))


def _least_share(problem: Problem) -> float:
    """The share of its mass that a query may lose, never less than rounding."""
    return max(problem.tol, 2.0 ** -BITS[problem.query.dtype.itemsize])


def all_within_reach(problem: Problem, space: Space) -> bool:
    """Whether even the farthest of all pairs counts, so that looking for one that does not is in vain.

    No query has more mass than all keys at its own place would give it.
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
    return least - uneven > float(np.log(_least_share(problem))) + 1.0
