"""Prepared Gaussian means of a few thousand rows, by compiled programs.

There arranging the problem takes longer than its pairs; and the slopes come out of the same pass as the errors
(``programs/slopes``). Rows stand in the order of a kd-tree, and a tile of keys that cannot reach 2⁻⁵³/n of a query's
attention is skipped: the nearest other key, found once, bounds the attention from below.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from regard.core.arrays import Array
from regard.core.kernels import GAUSSIAN
from regard.core.plan import Step
from regard.core.problem import Adjoint, Outcome, Problem
from regard.core.state import Partial
from regard.engines.cpu.arranged import space_order
from regard.engines.cpu.jobs import each, query_jobs
from regard.engines.cpu.prepared import LARGEST, SMALLEST, Prepared, is_plain_mean, shaped_as
from regard.engines.cpu.reach import Space, boxes_of
from regard.engines.cpu.words import frozen, lane_labels, packed, restored, unpacked
from regard.programs.cpu.boxes import Boxes, tiles_in_reach
from regard.programs.cpu.fused import gaussian_sums
from regard.programs.cpu.lanes import DEEPEST, LOG2E, block_lanes
from regard.programs.cpu.slopes import WIDEST, gaussian_slopes


@dataclass(frozen=True, eq=False)
class TiledMeans(Prepared):
    """A ``Prepared`` problem of degree 0; make it by ``tiled_means``."""

    queries: Array  # (blocks, d, lanes)
    own: Array  # (blocks, lanes)
    query_labels: Array  # (blocks, lanes)
    keys: Array  # (K, d)
    values: Array  # (K,)
    weights: Array | None  # (K,)
    columns: Array  # (2, K)  weight, and weight·value
    key_labels: Array  # (K,)
    boxes: Boxes
    nearest: Array  # (Q, d)  squared differences to a key nearby that counts; inf where none is known
    light: Array  # (Q,)  the logarithm of its weight
    order: Array  # (Q,)  the caller's numbers of the queries
    staying: Array | None  # (Q,)  mass at the query's own place, of its own value
    step: Step

    @property
    def least_mass(self) -> float:
        """A mass so far above what the cut-off takes that the loss is below rounding.

        Scores are at least −630 then, and their rounding 1e-12 of a weight at most: enough to search by.
        """
        return float(len(self.keys) * 2.0 ** (60.0 - DEEPEST[8]))

    def moments(self, w: Array, *, slopes: bool = False) -> Outcome:
        """With slopes, Σ exp(score)·δ² and Σ exp(score)·(value − own)·δ² follow in turn, feature by feature."""
        w = frozen(np.broadcast_to(np.abs(w), self.keys.shape[1]).astype(np.float64))
        c, lanes = -0.5 * LOG2E, self.queries.shape[2]
        cap, tile = DEEPEST[8] / -c, self.step.key_tile
        sums = np.zeros((len(self.queries), 2 + 2 * len(w) * slopes, 2, lanes))
        boxes, level = self.boxes._replace(w=w), self._level(w)

        def run(rows: slice) -> None:
            near = np.empty((rows.stop - rows.start, len(boxes.low)), np.uint8)
            tiles_in_reach(boxes, rows.start, level[rows], near)
            queries, labels = self.queries[rows], self.query_labels[rows]
            if slopes:
                theirs = self.keys, self.values, self.weights, self.key_labels
                gaussian_slopes(queries, self.own[rows], labels, *theirs, w**2, c, cap, tile, near, sums[rows])
            else:
                where = 0, len(self.keys), tile, near
                gaussian_sums(queries, labels, self.keys, self.key_labels, w, self.columns, c, cap, *where, sums[rows])

        each(run, query_jobs(self.queries, self.step), self.step.threads)
        found = restored(unpacked(sums.sum(axis=2), len(self.order)), self.order)
        if not slopes:
            found[:, 1] -= restored(unpacked(self.own, len(self.order)), self.order) * found[:, 0]
        mass = found[:, 0] if self.staying is None else found[:, 0] + self.staying
        return Outcome(Partial(np.zeros(len(mass)), mass, found[:, 1:]), mass < self.least_mass)

    def pullback(self, w: Array, partial: Partial, adjoint: Adjoint) -> Array:
        error, squares, gains = partial.moments[:, :1], partial.moments[:, 1::2], partial.moments[:, 2::2]
        moved = error / partial.mass[:, None] * squares - gains
        return shaped_as(w, (adjoint.value[:, 0] / partial.mass) @ moved)

    def _level(self, w: Array) -> Array:
        """Scores below it do not show in a query's mass, (blocks, lanes)."""
        with np.errstate(invalid="ignore"):
            peak = -0.5 * np.where(w > 0.0, w**2 * self.nearest, 0.0).sum(axis=1)
        floor = peak + self.light - np.log(len(self.keys)) - 53.0 * np.log(2.0)
        return packed(floor, self.queries.shape[2])


def tiled_means(problem: Problem, own: Array, staying: Array | None, step: Step) -> TiledMeans | None:
    """Lay out a problem whose queries have values ``own`` (Q,), and copies of that mass; None if no program fits it."""
    if not is_plain_mean(problem):
        return None
    both, width = np.concatenate([problem.query, problem.key]), problem.key.shape[1]
    span = np.ptp(both, axis=0)
    safe = bool(((span == 0.0) | ((span > SMALLEST) & (span < LARGEST))).all())
    if not (safe and 0 < width <= WIDEST):
        return None
    unit, lanes = 1.0 / np.where(span > 0.0, span, 1.0), block_lanes(8)
    at, to = (space_order(rows, unit, step.key_tile, lanes) for rows in (problem.query, problem.key))
    query, key, value = problem.query[at], frozen(problem.key[to]), problem.columns[to, 0]
    weight = None if problem.sample_weight is None else problem.sample_weight[to].astype(np.float64)
    labels = lane_labels(problem)
    assert labels is not None
    query_labels, key_labels = labels[0][at], labels[1][to]
    space = Space(query, key, unit, np.zeros(width), 1.0 - 1e-14)
    nearest, light = _nearest(query, key, query_labels, key_labels, unit, weight)
    ones = np.ones(len(value)) if weight is None else weight
    return TiledMeans(
        queries=frozen(packed(query, lanes)),
        own=frozen(packed(own[at], lanes)),
        query_labels=frozen(packed(query_labels, lanes)),
        keys=key,
        values=frozen(value),
        weights=None if weight is None else frozen(weight),
        columns=frozen(np.stack([ones, ones * value])),
        key_labels=frozen(key_labels),
        boxes=boxes_of(space, GAUSSIAN, query.dtype, step.key_tile),
        nearest=nearest,
        light=light,
        order=at,
        staying=staying,
        step=step,
    )


def _nearest(
    query: Array, key: Array, query_labels: Array, key_labels: Array, unit: Array, weight: Array | None
) -> tuple[Array, Array]:
    """Squared differences (Q, d) to the nearest of two keys that counts, inf where neither does; its log weight."""
    near = cKDTree(key * unit).query(query * unit, k=2)[1]
    found, light = np.full(query.shape, np.inf), np.zeros(len(query))
    for j in (1, 0):
        at = near[:, j] % len(key)  # a single key leaves the second place empty
        counts = key_labels[at] != query_labels
        found[counts] = (key[at] - query)[counts] ** 2
        if weight is not None:
            light[counts] = np.log(weight[at][counts])
    return found, light
