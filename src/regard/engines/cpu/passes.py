"""Forward and backward passes of the compiled programs over all pairs, or over the tiles a ``TilePruner`` selects.

A Gaussian score with one value column takes the fused program (no peak, sums in registers); rows whose mass is tiny,
and every other problem, take the split path: scores of a tile of pairs, then the reduction.

Each job is a block of queries against a shard of keys. Jobs depend on sizes alone and are merged in order, so neither
the number of threads nor their timing changes the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from regard.core.arrays import Array
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Outcome, Problem, moment_count
from regard.core.scores import Additive, Gaussian, Nearest, Radial
from regard.core.state import Partial, empty, merge_all
from regard.engines.cpu.gradients import chain_rule, no_gradients, sums_over_keys, sums_over_queries
from regard.engines.cpu.program_inputs import (
    MIN_QUERIES_TO_FUSE,
    gaussian_inputs,
    hard_peaks_as_distances,
    in_float64,
    lane_labels,
    least_mass,
    overflowed,
    packed,
    pair_inputs,
    read_only,
    squares_fit,
    unpacked,
)
from regard.engines.cpu.pruning import SelectTiles, TilePruner, select_every_tile, visit_tiles
from regard.engines.cpu.worker_threads import query_jobs, run_jobs, split_range
from regard.programs.cpu.centred_moments import add_centred_moments
from regard.programs.cpu.gaussian_sums import gaussian_sums
from regard.programs.cpu.lanes import block_lanes
from regard.programs.cpu.pair_scores import PairInputs
from regard.programs.cpu.tile_moments import add_moments, fill_weights

# Beside larger scores the rounding of log sample weights exceeds that of a sum over keys.
MAX_SCORE_BESIDE_LOG_WEIGHTS = 1e3


def moments(problem: Problem, step: Step, pruner: TilePruner | None = None) -> Outcome:
    """Attention moments of every query, and the queries so far away that every score overflowed."""
    if not problem.sketch().pairs:
        return Outcome(empty_state(problem))
    if not _can_fuse(problem):
        return _moments(problem, step, pruner)
    partial = _fused(problem, step, pruner)
    # Where the mass is comparable to what the cutoff removed, rows are recomputed relative to their own peak.
    keys, width = problem.key.shape
    redo_rows = partial.mass < least_mass(keys, width, problem.query.dtype)
    return _with_rows_replaced(
        Outcome(partial), redo_rows, lambda: _moments(in_float64(problem.take(np.flatnonzero(redo_rows))), step)
    )


def _moments(problem: Problem, step: Step, pruner: TilePruner | None = None) -> Outcome:
    """By the split path; queries that are too far away for this precision are recomputed in a finer one."""
    pairs = pair_inputs(problem)
    partial = _split(problem, pairs, step, pruner)
    redo_rows = _needs_finer(problem, partial.peak)
    outcome = Outcome(hard_peaks_as_distances(partial, pairs), overflowed(pairs, partial.peak))
    return _with_rows_replaced(outcome, redo_rows, lambda: _finer(problem, redo_rows, partial.peak, step))


def _finer(problem: Problem, redo_rows: Array, peak: Array, step: Step) -> Outcome:
    """float32 → float64; float64 → scores relative to the peak found in float64."""
    part = problem.take(np.flatnonzero(redo_rows))
    if problem.query.dtype == np.float32:
        return _moments(in_float64(part), step)
    found, top = _above_peak(part, peak[redo_rows], lambda pairs: ((out := _split(part, pairs, step)), out.peak))
    return Outcome(found._replace(peak=top))


def _above_peak(problem: Problem, peak: Array, run: Callable[[PairInputs], tuple[Any, Array]]) -> tuple[Any, Array]:
    """Output of ``run`` on scores relative to ``peak`` (Q,) in double-double arithmetic, and the exact peaks (Q,).

    ``run`` returns its output and the peaks of the relative scores.
    """
    base_score = np.column_stack([peak, np.zeros(len(peak))])
    out, top = run(pair_inputs(problem, base_score))
    # Beside a large relative score a log sample weight would be rounded away, and ties are divided by it.
    if problem.log_weight is not None and np.abs(top).max(initial=0.0) > MAX_SCORE_BESIDE_LOG_WEIGHTS:
        base_score[:, 1] = top
        out, top = run(pair_inputs(problem, base_score))
    return out, base_score.sum(axis=1) + top


def _with_rows_replaced(outcome: Outcome, redo_rows: Array, recompute: Callable[[], Outcome]) -> Outcome:
    """The outcome with the rows in the mask ``redo_rows`` (Q,) recomputed."""
    if not redo_rows.any():
        return outcome
    finer, uncertified = recompute(), outcome.uncertified
    for whole, rows in zip(outcome.partial[:3], finer.partial[:3], strict=True):
        whole[redo_rows] = rows
    if finer.uncertified is not None:
        uncertified = np.zeros(len(redo_rows), bool) if uncertified is None else uncertified
        uncertified[redo_rows] = finer.uncertified
    return Outcome(outcome.partial, uncertified)


def weights(problem: Problem, step: Step) -> tuple[Array, Array | None]:
    """Attention weights (Q, K), zero in empty rows, and a mask of uncertified queries (None if there are none)."""
    problem = replace(problem, columns=problem.columns[:, :0], degree=0)
    if not problem.sketch().pairs:
        return np.zeros((len(problem.query), len(problem.key)), problem.query.dtype), None
    pairs = pair_inputs(problem)
    out, peak = _weights(problem, pairs, step)
    redo_rows, uncertified = _needs_finer(problem, peak), overflowed(pairs, peak)
    if redo_rows.any():
        part = problem.take(np.flatnonzero(redo_rows))
        if problem.query.dtype == np.float64:
            out[redo_rows], _ = _above_peak(part, peak[redo_rows], lambda pairs: _weights(part, pairs, step))
        else:
            out[redo_rows], found = weights(in_float64(part), step)
            if uncertified is not None and found is not None:
                uncertified[redo_rows] = found
    return out, uncertified


def _weights(problem: Problem, pairs: PairInputs, step: Step) -> tuple[Array, Array]:
    """Weights (Q, K) and peaks (Q,)."""
    partial = _split(problem, pairs, step)
    lanes = pairs.queries.shape[2]
    peak, mass = packed(partial.peak.astype(problem.query.dtype), lanes), packed(partial.mass, lanes)
    out = np.empty((problem.query.shape[0], problem.key.shape[0]), problem.query.dtype)

    def run(rows: slice) -> None:
        fill_weights(pairs, rows.start, rows.stop, step.key_tile, peak, mass, out)

    run_jobs(run, query_jobs(pairs.queries, step), step.threads)
    return out, partial.peak


def _needs_finer(problem: Problem, peak: Array) -> Array:
    """Queries so far from every key that rounding in this precision hides the differences between scores."""
    score = problem.score
    if not isinstance(score, Radial) or isinstance(score, Nearest) or score.kernel.compact:
        return np.zeros(peak.shape, bool)
    far = score.is_far(peak, *problem.key.shape)
    return np.asarray(far | ((peak > -np.inf) & (peak < -64.0)) if problem.query.dtype == np.float32 else far)


def pullback_in_precision(
    run: Callable[[Problem, Step, Partial, Adjoint, frozenset[str]], Gradients],
    problem: Problem,
    step: Step,
    partial: Partial,
    adjoint: Adjoint,
    want: frozenset[str],
) -> Gradients:
    """A backward pass in a precision that can represent every weight.

    In float64 if some query needs it; if the problem is ``rough``, only these queries are.
    """
    # A mass too small for float32 is moved into the peak, which ``_needs_finer`` tests.
    light = (partial.mass > 0.0) & (partial.mass < 2.0**-60)
    log_mass = np.log(np.where(light, partial.mass, 1.0))
    partial = partial._replace(peak=partial.peak + log_mass, mass=np.where(light, 1.0, partial.mass))
    far = np.zeros(len(partial.peak), bool)
    if problem.query.dtype == np.float32:
        far = _needs_finer(problem, partial.peak)
    if not far.any() or not problem.rough:
        return run(in_float64(problem) if far.any() else problem, step, partial, adjoint, want)
    total: Any = 0.0
    for part, rows in ((problem, np.flatnonzero(~far)), (in_float64(problem), np.flatnonzero(far))):
        if rows.size:
            total = total + run(part.take(rows), step, partial.take(rows), adjoint.take(rows), want).w
    return Gradients(w=total)


def pullback(
    problem: Problem,
    step: Step,
    partial: Partial,
    adjoint: Adjoint,
    want: frozenset[str],
    over_keys: SelectTiles = select_every_tile,
    over_queries: SelectTiles = select_every_tile,
) -> Gradients:
    """Gradients through the scores; called through ``pullback_in_precision``.

    ``over_keys`` and ``over_queries`` select the tiles that the sums over keys and over queries include.
    """
    if not problem.sketch().pairs:
        return no_gradients(problem, want)
    pairs = pair_inputs(problem)
    if pairs.hard:
        # Ties are detected by equality, so the peak must come from identical arithmetic.
        partial = _split(replace(problem, columns=problem.columns[:, :0], degree=0), pairs, step)
    elif pairs.direct:
        # Direct weights are relative to a peak of 0.
        partial = partial._replace(mass=partial.mass * np.exp(np.where(partial.mass > 0, partial.peak, 0.0)))
    cotangent = adjoint.astype(problem.query.dtype)
    raw: dict[str, Any] = {}
    if want & {"w", "query"}:
        # For other scores the gradient of w is computed from that of the queries.
        only_w = "query" not in want and isinstance(problem.score, Radial)
        raw["w"], raw["query"] = sums_over_keys(problem, pairs, step, partial, cotangent, over_keys, only_w)
        if only_w:
            del raw["query"]
    if want & {"key", "value"} or (isinstance(problem.score, Additive) and "w" in want):
        if pairs.hard:
            raw["key"], raw["value"] = np.zeros(problem.key.shape), _hard_values(problem, step, cotangent)
        else:
            raw["key"], raw["value"] = sums_over_queries(problem, pairs, step, partial, cotangent, over_queries)
    return Gradients(**{name: grad for name, grad in chain_rule(problem, raw).items() if name in want})


def empty_state(problem: Problem) -> Partial:
    """The state of every query before any key is added."""
    count = moment_count(problem.columns.shape[1], problem.key.shape[1], problem.degree)
    return empty(len(problem.query), count, hard=isinstance(problem.score, Nearest))


def _can_fuse(problem: Problem) -> bool:
    """Whether the fused program computes the problem: a Gaussian mean of one column without overflow."""
    if not (isinstance(problem.score, Gaussian) and problem.score.w.ndim < 2 and problem.mask is None):
        return False
    if problem.degree or problem.columns.shape[1] != 1 or problem.query.shape[0] < MIN_QUERIES_TO_FUSE:
        return False
    largest_w = float(problem.score.w.max(initial=0.0))
    return squares_fit(largest_w, problem.largest, problem.key.shape[1], problem.query.dtype)


def _fused(problem: Problem, step: Step, pruner: TilePruner | None) -> Partial:
    """Mass and one moment by the fused program, relative to a peak of 0."""
    dtype, score = problem.query.dtype, problem.score
    assert isinstance(score, Gaussian)
    lanes = block_lanes(dtype.itemsize)
    w, c, cutoff = gaussian_inputs(score, problem.key.shape[1], dtype)
    weight = np.ones(problem.key.shape[0], dtype)
    if problem.sample_weight is not None:
        weight = problem.sample_weight.astype(dtype)
    columns = read_only(np.stack([weight, weight * problem.columns[:, 0]]))
    key, queries = read_only(problem.key), read_only(packed(problem.query, lanes))
    labels = lane_labels(problem)
    query_labels = None if labels is None else read_only(packed(labels[0], lanes))
    key_labels = None if labels is None else read_only(labels[1])

    def run(job: tuple[slice, slice]) -> tuple[slice, Array]:
        rows, keys = job
        sums = np.zeros((rows.stop - rows.start, 2, 2, lanes))
        own = None if query_labels is None else query_labels[rows]

        def add(selected: Array) -> None:
            where = keys.start, keys.stop, step.key_tile, selected
            gaussian_sums(queries[rows], own, key, key_labels, w, columns, c, cutoff, *where, sums)

        visit_tiles(pruner, rows, lambda: (np.zeros((len(sums), lanes)), sums[:, 0].sum(axis=1)), add)
        return rows, sums.sum(axis=2)

    totals = np.zeros((len(queries), 2, lanes))
    for rows, sums in run_jobs(run, _pair_jobs(queries, problem, step), step.threads):
        totals[rows] += sums
    mass, moment = unpacked(totals, len(problem.query)).T
    return Partial(np.zeros(len(mass)), mass.copy(), moment[:, None].copy())


def _split(problem: Problem, pairs: PairInputs, step: Step, pruner: TilePruner | None = None) -> Partial:
    """Moments of any degree, with a running peak unless the weights are direct."""
    dtype = problem.query.dtype
    lanes = pairs.queries.shape[2]
    columns = read_only(np.hstack([np.ones((len(problem.key), 1), dtype), problem.columns]))
    size = 1 + moment_count(problem.columns.shape[1], problem.key.shape[1], problem.degree)

    def run(job: tuple[slice, slice]) -> tuple[slice, int, Partial]:
        rows, keys = job
        peak = np.full((rows.stop - rows.start, lanes), 0.0 if pairs.direct else -np.inf, dtype)
        sums = np.zeros((rows.stop - rows.start, size, 2, lanes))

        def add(selected: Array) -> None:
            where = rows.start, rows.stop, keys.start, keys.stop, step.key_tile, selected
            if problem.rough and problem.degree == 2:
                add_centred_moments(pairs, columns, *where, peak, sums)
            else:
                add_moments(pairs, columns, problem.degree, *where, peak, sums)

        visit_tiles(pruner, rows, lambda: (peak, sums[:, 0].sum(axis=1)), add)
        flat = sums.sum(axis=2).transpose(0, 2, 1).reshape(-1, size)
        return rows, keys.start, Partial(peak.astype(np.float64).ravel(), flat[:, 0], flat[:, 1:], pairs.hard)

    shards: dict[int, list[Partial]] = {}
    for _, start, part in run_jobs(run, _pair_jobs(pairs.queries, problem, step), step.threads):
        shards.setdefault(start, []).append(part)
    partial = merge_all(_concatenated(parts, pairs) for _, parts in sorted(shards.items()))
    if pairs.direct:
        partial.peak[partial.mass == 0.0] = -np.inf
    return partial


def _pair_jobs(queries: Array, problem: Problem, step: Step) -> list[tuple[slice, slice]]:
    """(blocks of queries, keys) of every job; queries (blocks, d, lanes)."""
    shards = split_range(len(problem.key), step.key_shard)
    return [(rows, keys) for rows in query_jobs(queries, step) for keys in shards]


def _concatenated(parts: list[Partial], pairs: PairInputs) -> Partial:
    """Blocks of queries one after another, without the padding of the last."""
    peak, mass, moment = (np.concatenate([part[field] for part in parts])[: pairs.rows] for field in range(3))
    return Partial(peak, mass, moment, pairs.hard)


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
