"""The exact workhorse: compiled programs over tiles of pairs, threaded, float32 and float64, every score.

A Gaussian score with one value column takes the fused program (no peak, sums in registers); rows whose mass comes
out tiny, and every other problem, take the split path: scores of a row of pairs, then the reduction.

Each job is a block of queries against a shard of keys. Jobs are cut by size alone and merged in order, so neither
threads nor their timing change a bit of the answer. *Cost*: O(Q·K·d) time; O(Q + K) memory and a tile per thread.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.engines.tiled.gradients import chain_rule, sums_over_keys, sums_over_queries
from regard.engines.tiled.jobs import blocks, each, jobs_of
from regard.engines.tiled.words import frozen, in_score_units, overflowed, pairs_of, weight_shift, working
from regard.partial import Partial, merge_all
from regard.planner import Step
from regard.problem import Adjoint, Gradients, Outcome, Problem, moment_count
from regard.programs.averages import average_rows, weight_rows
from regard.programs.fused import block_lanes, gaussian_sums
from regard.programs.lanes import DEEPEST, LOG2E
from regard.programs.pairs import Pairs
from regard.scores import Additive, Gaussian

Array = NDArray[Any]

# Fewer queries than this do not fill the lanes of the fused program.
FEWEST_FUSED = 32


def moments(problem: Problem, step: Step) -> Outcome:
    """Attention moments of every query, and the queries so far away that every score overflowed."""
    problem = working(problem)
    pairs = pairs_of(problem)
    if _can_fuse(problem):
        partial = _fused(problem, step)
        # Too little mass to tell from what was cut off: these rows are done again with a peak of their own.
        weak = np.flatnonzero(partial.mass < _least_mass(problem))
        if weak.size:
            part = problem.take(weak)
            for whole, rows in zip(partial[:3], _split(part, pairs_of(part), step)[:3], strict=True):
                whole[weak] = rows
    else:
        partial = _split(problem, pairs, step)
    return Outcome(in_score_units(partial, problem, pairs), overflowed(pairs, partial.peak))


def weights(problem: Problem, step: Step) -> tuple[Array, Array | None]:
    """Attention weights (Q, K), zero rows where nobody may attend, and the queries not vouched for."""
    problem = working(problem)
    pairs = pairs_of(problem)
    partial = _split(replace(problem, columns=problem.columns[:, :0], degree=0), pairs, step)
    out = np.empty((problem.query.shape[0], problem.key.shape[0]), problem.query.dtype)

    def run(rows: slice) -> None:
        weight_rows(pairs, rows.start, rows.stop, step.key_tile, partial.peak, partial.mass, out)

    each(run, blocks(problem.query.shape[0], step.query_tile), step.threads)
    return out, overflowed(pairs, partial.peak)


def pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients through the scores; ``partial`` is what ``moments`` returned for the same problem."""
    problem = working(problem)
    pairs = pairs_of(problem)
    shift = weight_shift(problem)
    if pairs.hard:
        # Ties are told by equality, so the peak must come from the very same arithmetic.
        partial = _split(replace(problem, columns=problem.columns[:, :0], degree=0), pairs, step)
    elif pairs.direct:
        # Direct weights are relative to a peak of 0.
        partial = partial._replace(mass=partial.mass * np.exp(np.where(partial.mass > 0, partial.peak - shift, 0.0)))
    else:
        partial = partial._replace(peak=partial.peak - shift)
    cotangent = Adjoint(*(frozen(np.ascontiguousarray(part, problem.query.dtype)) for part in adjoint))
    raw: dict[str, Any] = {}
    if want & {"w", "query"}:
        raw["w"], raw["query"] = sums_over_keys(problem, pairs, step, partial, cotangent)
    if want & {"key", "value"} or (isinstance(problem.score, Additive) and "w" in want):
        raw["key"], raw["value"] = (
            (np.zeros(problem.key.shape), _hard_values(problem, step, cotangent))
            if pairs.hard
            else sums_over_queries(problem, pairs, step, partial, cotangent)
        )
    return Gradients(**{name: grad for name, grad in chain_rule(problem, raw).items() if name in want})


def _can_fuse(problem: Problem) -> bool:
    if not (isinstance(problem.score, Gaussian) and problem.score.w.ndim < 2 and problem.mask is None):
        return False
    if problem.degree or problem.columns.shape[1] != 1 or problem.query.shape[0] < FEWEST_FUSED:
        return False
    reach = np.abs(problem.query).max(axis=0) + np.abs(problem.key).max(axis=0)
    farthest = float(np.sum((reach.astype(np.float64) * problem.score.w) ** 2))
    return farthest < 0.25 * float(np.finfo(problem.query.dtype).max)


def _least_mass(problem: Problem) -> float:
    """A mass so far above what the cut-off can take that the loss is below rounding."""
    size = problem.query.dtype.itemsize
    return float(problem.key.shape[0] * 2.0 ** ((30 if size == 4 else 60) - DEEPEST[size]))


def _fused(problem: Problem, step: Step) -> Partial:
    """Mass and one moment by the fused program, relative to a peak of 0."""
    dtype, score = problem.query.dtype, problem.score
    assert isinstance(score, Gaussian)
    n, d = problem.query.shape
    lanes = block_lanes(dtype.itemsize * 8)
    # One moderate w for all features goes into the exponent; otherwise differences are scaled one by one.
    single = score.w.ndim == 0 and 1e-6 < score.w < 1e6
    w = None if single else frozen(np.ascontiguousarray(np.broadcast_to(score.w, d), dtype))
    c = dtype.type(-0.5 * LOG2E * (score.w**2 if single else 1.0))
    cap = dtype.type(DEEPEST[dtype.itemsize] / -float(c))
    weight = np.ones(problem.key.shape[0], dtype)
    if problem.sample_weight is not None:
        weight = (problem.sample_weight * np.exp(-weight_shift(problem))).astype(dtype)
    columns = frozen(np.stack([weight, weight * problem.columns[:, 0]]))
    key = frozen(problem.key)
    query_labels = key_labels = None
    if problem.exclude is not None:
        # Lane-sized codes: only equality counts.
        whole = np.int32 if dtype.itemsize == 4 else np.int64
        codes = np.unique(np.concatenate(problem.exclude), return_inverse=True)[1].astype(whole)
        query_labels, key_labels = codes[:n], frozen(codes[n:])

    def run(rows: slice, keys: slice) -> tuple[slice, Array]:
        # The last block is filled up with copies of its first query.
        take = np.minimum(np.arange(rows.start, rows.start + -(-(rows.stop - rows.start) // lanes) * lanes), n - 1)
        packed = np.ascontiguousarray(problem.query[take].reshape(-1, lanes, d).transpose(0, 2, 1))
        labels = None if query_labels is None else query_labels[take]
        sums = np.zeros((4, take.size))
        gaussian_sums(packed, labels, key, key_labels, w, columns, c, cap, keys.start, keys.stop, sums)
        return rows, sums[:, : rows.stop - rows.start]

    jobs = jobs_of(problem, step)
    mass, moment = np.zeros(n), np.zeros((n, 1))
    for rows, sums in each(lambda job: run(*job), jobs, step.threads):
        mass[rows] += sums[0] + sums[1]
        moment[rows, 0] += sums[2] + sums[3]
    return Partial(np.zeros(n), mass, moment)


def _split(problem: Problem, pairs: Pairs, step: Step) -> Partial:
    """Moments of any kind, with a running peak unless the weights are direct."""
    n = problem.query.shape[0]
    columns = frozen(np.ascontiguousarray(problem.columns.T))
    count = moment_count(columns.shape[0], problem.key.shape[1], problem.degree)
    jobs = jobs_of(problem, step)
    shards = {keys.start: (np.full(n, -np.inf), np.zeros(n), np.zeros((n, count))) for _, keys in jobs}

    def run(job: tuple[slice, slice]) -> None:
        rows, keys = job
        average_rows(
            pairs,
            columns,
            problem.degree,
            rows.start,
            rows.stop,
            keys.start,
            keys.stop,
            step.key_tile,
            *shards[keys.start],
        )

    each(run, jobs, step.threads)
    partial = merge_all(Partial(*shards[start], pairs.hard) for start in sorted(shards))
    if pairs.direct:
        partial.peak[partial.mass == 0.0] = -np.inf
    return partial


def _hard_values(problem: Problem, step: Step, adjoint: Adjoint) -> Array:
    """Gradient of the values under hard attention, where almost every weight is zero."""
    grad = np.zeros(problem.columns.shape)
    alpha, _ = weights(problem, step)
    query, key = np.nonzero(alpha)
    left = adjoint.left[query, 0]
    if adjoint.left.shape[1] > 1:
        left = left + ((problem.key[key] - problem.query[query]) * adjoint.left[query, 1:]).sum(axis=1)
    np.add.at(grad, key, (alpha[query, key] * left)[:, None] * adjoint.value[query])
    return grad
