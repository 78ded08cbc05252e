"""Gaussian means and lines from products about centres of tiles: near tiles in double, far ones in single precision.

Keys and queries are sorted into kd-tree order under w. The tiles nearest to a block of queries bound the mass of its
queries from below. Of the others, those whose mass is together below tol/2 are skipped, and those whose rounding errors
in single precision are together below tol/2 are added in single precision; the rest in double precision. Moments of
degree 2 are computed whatever the degree, so this engine is for local lines.

Gaussian scores without a mask. Queries of tiny mass, and all if the data spans too many bandwidths for projected
coordinates, are computed as ``pruned`` does; gradients and the weights themselves always are.
*Cost*: O((Q + K)·log(Q + K)·d) for sorting, O(r) per tile and block, and O(r + d·(d + P)) per pair of the tiles that
are not skipped; O(Q·d·(d + P) + K·d) memory.
"""

from __future__ import annotations

import numpy as np

from regard.core.arrays import Array
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Outcome, Problem, moment_count
from regard.core.scores import Gaussian
from regard.core.state import Partial
from regard.engines.costs import require
from regard.engines.cpu import kd_passes, passes
from regard.engines.cpu.kd_passes import kd_order
from regard.engines.cpu.program_inputs import in_float64, lane_labels, least_mass, packed, read_only, unpacked, unsorted
from regard.engines.cpu.worker_threads import run_jobs, split_range
from regard.programs.cpu.graded_sums import BOX_LANES, LANES, TILE_KEYS, GradedRows, add_graded_sums
from regard.programs.cpu.lanes import CUTOFF_EXPONENT, LOG2E

# Span of the data in bandwidths up to which projected coordinates are precise enough.
MAX_SPAN = 1e3
# Largest and smallest range of a feature or column whose squares neither overflow nor underflow.
MAX_RANGE = 1e100
MIN_RANGE = 1e-100
# Fraction of the tiles of keys by which the mass of a block of queries is bounded, and their least number.
BOUNDING_FRACTION = 1 / 64
MIN_BOUNDING_TILES = 4


def moments(problem: Problem, step: Step) -> Outcome:
    """Attention moments of every query, and the queries so far away that every score overflowed."""
    problem = _checked(problem)
    queries, keys = len(problem.query), len(problem.key)
    position = _positions(problem) if queries and keys else None
    if position is None:
        return kd_passes.moments(problem, step)
    partial = _sums(problem, step, *position)
    redo_rows = ~(partial.mass >= least_mass(keys, problem.key.shape[1], problem.query.dtype))
    if not redo_rows.any():
        return Outcome(partial)
    finer, far = passes.moments(problem.take(np.flatnonzero(redo_rows)), step)
    uncertified = np.zeros(queries, bool)
    for whole, rows in zip(partial[:3], finer[:3], strict=True):
        whole[redo_rows] = rows
    if far is not None:
        uncertified[redo_rows] = far
    return Outcome(partial, uncertified if uncertified.any() else None)


def weights(problem: Problem, step: Step) -> tuple[Array, Array | None]:
    """Attention weights (Q, K), zero in empty rows, and a mask of uncertified queries (None if there are none)."""
    return passes.weights(_checked(problem), step)


def pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients through the scores; ``partial`` is what ``moments`` returned for the same problem."""
    return passes.pullback_in_precision(kd_passes.pullback, _checked(problem), step, partial, adjoint, want)


def _checked(problem: Problem) -> Problem:
    require("graded", problem.sketch())
    return in_float64(problem)


def _positions(problem: Problem) -> tuple[Array, Array] | None:
    """Queries (Q, r) and keys (K, r) with score −½‖q − k‖²; None if projected coordinates are not precise enough."""
    assert isinstance(problem.score, Gaussian)
    w, base = problem.score.w, problem.key[0]
    with np.errstate(over="ignore", invalid="ignore"):
        query, key = ((rows - base) @ w if w.ndim == 2 else (rows - base) * w for rows in (problem.query, problem.key))
        wide = max(np.abs(part).max() for part in (query, key))
        ranges = np.append(np.ptp(problem.columns, axis=0), np.abs(problem.query - base).max(axis=0))
        ranges = np.append(ranges, np.abs(problem.key - base).max(axis=0))
    ranges = ranges[ranges != 0.0]
    if not wide < MAX_SPAN or not ((ranges > MIN_RANGE) & (ranges < MAX_RANGE)).all():
        return None
    return query, key


def _sums(problem: Problem, step: Step, at: Array, near: Array) -> Partial:
    """The state relative to a peak of 0, of queries at (Q, r) and keys at (K, r)."""
    unit, base = np.ones(near.shape[1]), problem.key[0]
    keys, queries = kd_order(near, unit, TILE_KEYS, LANES), kd_order(at, unit, LANES, LANES)
    # Powers of two, so that nothing is rounded and single precision holds every product.
    scale = _powers(np.maximum(*(np.abs(part - base).max(axis=0) for part in (problem.key, problem.query))))
    value_scale = _powers(np.abs(problem.columns).max(axis=0))
    near, starts, weight = near[keys], np.arange(0, len(near), TILE_KEYS), problem.sample_weight
    mass = np.ones(len(near)) if weight is None else weight[keys]
    labels = lane_labels(problem)
    rows = GradedRows(
        keys=read_only(near),
        packed_keys=read_only(packed(near.astype(np.float32), BOX_LANES)),
        features=read_only((problem.key[keys] - base) / scale),
        columns=read_only(np.column_stack([np.ones(len(near)), problem.columns[keys] / value_scale])),
        bias=None if problem.log_weight is None else read_only(problem.log_weight[keys]),
        labels=None if labels is None else read_only(labels[1][keys]),
        queries=read_only(packed(at[queries], LANES)),
        query_features=read_only(packed((problem.query[queries] - base) / scale, LANES)),
        query_labels=None if labels is None else read_only(packed(labels[0][queries], LANES)),
        low=np.minimum.reduceat(near, starts),
        high=np.maximum.reduceat(near, starts),
        mass=np.add.reduceat(mass, starts),
        cutoff=CUTOFF_EXPONENT[8] / LOG2E,
        log2e=LOG2E,
    )
    width, values = problem.key.shape[1], problem.columns.shape[1]
    sums = np.zeros((len(rows.queries), 1 + moment_count(values, width, 2), 1, LANES))
    bounding, tol = max(MIN_BOUNDING_TILES, int(BOUNDING_FRACTION * len(starts))), 0.5 * problem.tol

    def run(blocks: slice) -> None:
        add_graded_sums(rows, blocks.start, blocks.stop, bounding, tol, tol, sums)

    run_jobs(run, split_range(len(sums), max(1, step.query_tile // LANES)), step.threads)
    total = unpacked(sums[:, :, 0], len(at))
    a, b = np.triu_indices(width)
    units = (value_scale, scale, np.outer(value_scale, scale).ravel(), scale[a] * scale[b])
    flat = (total[:, 1:] * np.concatenate(units))[:, : moment_count(values, width, problem.degree)]
    return Partial(np.zeros(len(at)), unsorted(total[:, 0], queries), unsorted(flat, queries))


def _powers(size: Array) -> Array:
    """The power of two above each number; 1 for 0."""
    return np.ldexp(1.0, np.frexp(np.where(size > 0.0, size, 1.0))[1])
