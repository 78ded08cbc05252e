"""Prepared Gaussian means of a few thousand rows, by compiled programs.

At this size preparing the problem takes longer than its pairs, and derivatives come out of the same pass as the
residuals (``gaussian_derivatives``). Rows are in kd-tree order, and tiles of keys below 2⁻⁵³/n of a query's mass are
skipped: the nearest other key, found once, bounds the mass from below.
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
from regard.engines.cpu.kd_passes import kd_order
from regard.engines.cpu.prepared import MAX_MAGNITUDE, MIN_MAGNITUDE, Prepared, is_plain_mean, shaped_as
from regard.engines.cpu.program_inputs import lane_labels, packed, read_only, unpacked, unsorted
from regard.engines.cpu.pruning import ScoreSpace, bounds_of_tiles, tiles_above
from regard.engines.cpu.worker_threads import query_jobs, run_jobs
from regard.programs.cpu.gaussian_derivatives import MAX_FEATURES, derivative_sums
from regard.programs.cpu.gaussian_sums import gaussian_sums
from regard.programs.cpu.lanes import CUTOFF_EXPONENT, LOG2E, block_lanes
from regard.programs.cpu.tile_bounds import TileBounds


@dataclass(frozen=True, eq=False)
class TiledMeans(Prepared):
    """Means by compiled programs; built by ``tiled_means``."""

    queries: Array  # (blocks, d, lanes)
    own: Array  # (blocks, lanes)
    query_labels: Array  # (blocks, lanes)
    keys: Array  # (K, d)
    values: Array  # (K,)
    weights: Array | None  # (K,)
    columns: Array  # (2, K)  weight, and weight·value
    key_labels: Array  # (K,)
    bounds: TileBounds
    nearest: Array  # (Q, d)  squared differences to a key nearby that is not excluded; inf if none is known
    log_weight: Array  # (Q,)  log weight of that key
    order: Array  # (Q,)  the caller's indices of the queries
    staying: Array | None  # (Q,)  mass at the query's own position, with its own value
    step: Step

    @property
    def least_mass(self) -> float:
        """A mass so far above what the cutoff removes that the loss is below rounding.

        Scores are then at least −630 and the rounding error of a weight at most 1e-12: accurate enough for a search.
        """
        return float(len(self.keys) * 2.0 ** (60.0 - CUTOFF_EXPONENT[8]))

    def moments(self, w: Array, *, slopes: bool = False) -> Outcome:
        """With slopes, Σ exp(score)·δ² and Σ exp(score)·(value − own)·δ² follow alternately, feature by feature."""
        w = read_only(np.broadcast_to(np.abs(w), self.keys.shape[1]).astype(np.float64))
        c, lanes = -0.5 * LOG2E, self.queries.shape[2]
        cutoff, tile = CUTOFF_EXPONENT[8] / -c, self.step.key_tile
        sums = np.zeros((len(self.queries), 2 + 2 * len(w) * slopes, 2, lanes))
        bounds, threshold = self.bounds._replace(w=w), self._threshold(w)

        def run(rows: slice) -> None:
            selected, out = tiles_above(bounds, rows, threshold[rows]), sums[rows]
            queries, labels = self.queries[rows], self.query_labels[rows]
            if slopes:
                of_keys = self.keys, self.values, self.weights, self.key_labels
                derivative_sums(queries, self.own[rows], labels, *of_keys, w**2, c, cutoff, tile, selected, out)
            else:
                where = 0, len(self.keys), tile, selected
                gaussian_sums(queries, labels, self.keys, self.key_labels, w, self.columns, c, cutoff, *where, out)

        run_jobs(run, query_jobs(self.queries, self.step), self.step.threads)
        found = unsorted(unpacked(sums.sum(axis=2), len(self.order)), self.order)
        if not slopes:
            found[:, 1] -= unsorted(unpacked(self.own, len(self.order)), self.order) * found[:, 0]
        mass = found[:, 0] if self.staying is None else found[:, 0] + self.staying
        return Outcome(Partial(np.zeros(len(mass)), mass, found[:, 1:]), mass < self.least_mass)

    def pullback(self, w: Array, partial: Partial, adjoint: Adjoint) -> Array:
        error, squares, gains = partial.moments[:, :1], partial.moments[:, 1::2], partial.moments[:, 2::2]
        moved = error / partial.mass[:, None] * squares - gains
        return shaped_as(w, (adjoint.value[:, 0] / partial.mass) @ moved)

    def _threshold(self, w: Array) -> Array:
        """Scores below it are negligible in a query's mass, (blocks, lanes)."""
        with np.errstate(invalid="ignore"):
            peak = -0.5 * np.where(w > 0.0, w**2 * self.nearest, 0.0).sum(axis=1)
        floor = peak + self.log_weight - np.log(len(self.keys)) - 53.0 * np.log(2.0)
        return packed(floor, self.queries.shape[2])


def tiled_means(problem: Problem, own: Array, staying: Array | None, step: Step) -> TiledMeans | None:
    """Prepare a problem whose queries have values ``own`` (Q,), and mass ``staying`` (Q,) of copies of themselves.

    Returns None if it is not a plain mean of at most ``MAX_FEATURES`` features, or if squares overflow.
    """
    if not is_plain_mean(problem):
        return None
    both, width = np.concatenate([problem.query, problem.key]), problem.key.shape[1]
    span = np.ptp(both, axis=0)
    safe = bool(((span == 0.0) | ((span > MIN_MAGNITUDE) & (span < MAX_MAGNITUDE))).all())
    if not (safe and 0 < width <= MAX_FEATURES):
        return None
    unit, lanes = 1.0 / np.where(span > 0.0, span, 1.0), block_lanes(8)
    query_order, key_order = (kd_order(rows, unit, step.key_tile, lanes) for rows in (problem.query, problem.key))
    query, key, value = problem.query[query_order], read_only(problem.key[key_order]), problem.columns[key_order, 0]
    weight = None if problem.sample_weight is None else problem.sample_weight[key_order].astype(np.float64)
    labels = lane_labels(problem)
    assert labels is not None
    query_labels, key_labels = labels[0][query_order], labels[1][key_order]
    space = ScoreSpace(query, key, unit, np.zeros(width), 1.0 - 1e-14)
    nearest, log_weight = _nearest(query, key, query_labels, key_labels, unit, weight)
    ones = np.ones(len(value)) if weight is None else weight
    return TiledMeans(
        queries=read_only(packed(query, lanes)),
        own=read_only(packed(own[query_order], lanes)),
        query_labels=read_only(packed(query_labels, lanes)),
        keys=key,
        values=read_only(value),
        weights=None if weight is None else read_only(weight),
        columns=read_only(np.stack([ones, ones * value])),
        key_labels=read_only(key_labels),
        bounds=bounds_of_tiles(space, GAUSSIAN, query.dtype, step.key_tile),
        nearest=nearest,
        log_weight=log_weight,
        order=query_order,
        staying=staying,
        step=step,
    )


def _nearest(
    query: Array, key: Array, query_labels: Array, key_labels: Array, unit: Array, weight: Array | None
) -> tuple[Array, Array]:
    """Squared differences (Q, d) to the nearest of two keys that is not excluded, inf if both are; its log weight."""
    neighbours = cKDTree(key * unit).query(query * unit, k=2)[1]
    found, log_weight = np.full(query.shape, np.inf), np.zeros(len(query))
    for j in (1, 0):
        nearest_key = neighbours[:, j] % len(key)  # with a single key the second neighbour is missing
        counts = key_labels[nearest_key] != query_labels
        found[counts] = (key[nearest_key] - query)[counts] ** 2
        if weight is not None:
            log_weight[counts] = np.log(weight[nearest_key][counts])
    return found, log_weight
