"""Passes of the compiled programs over the pairs of a problem: all of them, or those that a ``Reach`` says count.

A Gaussian score with one value column takes the fused program (no peak, sums in registers); rows whose mass comes
out tiny, and every other problem, take the split path: scores of a row of pairs, then the reduction.

Each job is a block of queries against a shard of keys. Jobs are cut by size alone and merged in order, so neither
threads nor their timing change a bit of the answer.
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
from regard.engines.cpu.jobs import blocks, each, query_jobs
from regard.engines.cpu.reach import Near, Reach, every_tile, visit
from regard.engines.cpu.words import (
    FEWEST_FUSED,
    doubled,
    frozen,
    gaussian_words,
    in_score_units,
    lane_labels,
    least_mass,
    overflowed,
    packed,
    pairs_of,
    squares_fit,
    unpacked,
)
from regard.programs.cpu.averages import average_blocks, weight_blocks
from regard.programs.cpu.centred import centred_blocks
from regard.programs.cpu.fused import gaussian_sums
from regard.programs.cpu.lanes import block_lanes
from regard.programs.cpu.pairs import Pairs

# Scores above which sample weights, as logarithms beside them, lose more than a sum over keys does.
ROUGH = 1e3


def moments(problem: Problem, step: Step, reach: Reach | None = None) -> Outcome:
    """Attention moments of every query, and the queries so far away that every score overflowed."""
    if not problem.sketch().pairs:
        return Outcome(empty_state(problem))
    if not _can_fuse(problem):
        return _moments(problem, step, reach)
    partial = _fused(problem, step, reach)
    # Too little mass to tell from what was cut off: these rows are done again with a peak of their own.
    keys, width = problem.key.shape
    again = partial.mass < least_mass(keys, width, problem.query.dtype)
    return _redone(Outcome(partial), again, lambda: _moments(doubled(problem.take(np.flatnonzero(again))), step))


def _moments(problem: Problem, step: Step, reach: Reach | None = None) -> Outcome:
    """By the split path; queries that it cannot tell enough about go on to the next finer arithmetic."""
    pairs = pairs_of(problem)
    partial = _split(problem, pairs, step, reach)
    again = _too_deep(problem, partial.peak)
    outcome = Outcome(in_score_units(partial, pairs), overflowed(pairs, partial.peak))
    return _redone(outcome, again, lambda: _finer(problem, again, partial.peak, step))


def _finer(problem: Problem, again: Array, peak: Array, step: Step) -> Outcome:
    """float32 → float64; float64 → scores relative to the peak that float64 found."""
    part = problem.take(np.flatnonzero(again))
    if problem.query.dtype == np.float32:
        return _moments(doubled(part), step)
    found, top = _deep(part, peak[again], lambda pairs: ((out := _split(part, pairs, step)), out.peak))
    return Outcome(found._replace(peak=top))


def _deep(problem: Problem, peak: Array, run: Callable[[Pairs], tuple[Any, Array]]) -> tuple[Any, Array]:
    """What ``run`` makes of scores relative to peaks (Q,) that float64 found, and peaks; it gives those that it saw."""
    height = np.column_stack([peak, np.zeros(len(peak))])
    out, top = run(pairs_of(problem, height))
    # Beside a large rise a sample weight would not show, and ties share by it.
    if problem.log_weight is not None and np.abs(top).max(initial=0.0) > ROUGH:
        height[:, 1] = top
        out, top = run(pairs_of(problem, height))
    return out, height.sum(axis=1) + top


def _redone(outcome: Outcome, again: Array, redo: Callable[[], Outcome]) -> Outcome:
    """The outcome with the rows ``again`` replaced."""
    if not again.any():
        return outcome
    finer, lost = redo(), outcome.uncertified
    for whole, rows in zip(outcome.partial[:3], finer.partial[:3], strict=True):
        whole[again] = rows
    if finer.uncertified is not None:
        lost = np.zeros(len(again), bool) if lost is None else lost
        lost[again] = finer.uncertified
    return Outcome(outcome.partial, lost)


def weights(problem: Problem, step: Step) -> tuple[Array, Array | None]:
    """Attention weights (Q, K), zero rows where nobody may attend, and the queries not vouched for."""
    problem = replace(problem, columns=problem.columns[:, :0], degree=0)
    if not problem.sketch().pairs:
        return np.zeros((len(problem.query), len(problem.key)), problem.query.dtype), None
    pairs = pairs_of(problem)
    out, peak = _weights(problem, pairs, step)
    again, lost = _too_deep(problem, peak), overflowed(pairs, peak)
    if again.any():
        part = problem.take(np.flatnonzero(again))
        if problem.query.dtype == np.float64:
            out[again], _ = _deep(part, peak[again], lambda pairs: _weights(part, pairs, step))
        else:
            out[again], found = weights(doubled(part), step)
            if lost is not None and found is not None:
                lost[again] = found
    return out, lost


def _weights(problem: Problem, pairs: Pairs, step: Step) -> tuple[Array, Array]:
    """Weights (Q, K) and peaks (Q,)."""
    partial = _split(problem, pairs, step)
    lanes = pairs.queries.shape[2]
    peak, mass = packed(partial.peak.astype(problem.query.dtype), lanes), packed(partial.mass, lanes)
    out = np.empty((problem.query.shape[0], problem.key.shape[0]), problem.query.dtype)

    def run(rows: slice) -> None:
        weight_blocks(pairs, rows.start, rows.stop, step.key_tile, peak, mass, out)

    each(run, query_jobs(pairs.queries, step), step.threads)
    return out, partial.peak


def _too_deep(problem: Problem, peak: Array) -> Array:
    """Queries so far from every key that this precision cannot tell the keys' scores apart."""
    score = problem.score
    if not isinstance(score, Radial) or isinstance(score, Nearest) or score.kernel.compact:
        return np.zeros(peak.shape, bool)
    far = score.is_far(peak, *problem.key.shape)
    return np.asarray(far | ((peak > -np.inf) & (peak < -64.0)) if problem.query.dtype == np.float32 else far)


def precisely(
    run: Callable[[Problem, Step, Partial, Adjoint, frozenset[str]], Gradients],
    problem: Problem,
    step: Step,
    partial: Partial,
    adjoint: Adjoint,
    want: frozenset[str],
) -> Gradients:
    """An adjoint pass in a precision that holds every weight: all of it, or of a rough one what needs it."""
    # A mass too small for float32 goes into the peak, where ``_too_deep`` sees it.
    light = (partial.mass > 0.0) & (partial.mass < 2.0**-60)
    height = np.log(np.where(light, partial.mass, 1.0))
    partial = partial._replace(peak=partial.peak + height, mass=np.where(light, 1.0, partial.mass))
    deep = np.zeros(len(partial.peak), bool)
    if problem.query.dtype == np.float32:
        deep = _too_deep(problem, partial.peak)
    if not deep.any() or not problem.rough:
        return run(doubled(problem) if deep.any() else problem, step, partial, adjoint, want)
    total: Any = 0.0
    for part, rows in ((problem, np.flatnonzero(~deep)), (doubled(problem), np.flatnonzero(deep))):
        if rows.size:
            total = total + run(part.take(rows), step, partial.take(rows), adjoint.take(rows), want).w
    return Gradients(w=total)


def pullback(
    problem: Problem,
    step: Step,
    partial: Partial,
    adjoint: Adjoint,
    want: frozenset[str],
    over_keys: Near = every_tile,
    over_queries: Near = every_tile,
) -> Gradients:
    """Gradients through the scores, as ``precisely`` runs it; two Nears say which tiles the sums run over."""
    if not problem.sketch().pairs:
        return no_gradients(problem, want)
    pairs = pairs_of(problem)
    if pairs.hard:
        # Ties are told by equality, so the peak must come from the very same arithmetic.
        partial = _split(replace(problem, columns=problem.columns[:, :0], degree=0), pairs, step)
    elif pairs.direct:
        # Direct weights are relative to a peak of 0.
        partial = partial._replace(mass=partial.mass * np.exp(np.where(partial.mass > 0, partial.peak, 0.0)))
    cotangent = adjoint.astype(problem.query.dtype)
    raw: dict[str, Any] = {}
    if want & {"w", "query"}:
        # Other gradients of w are made of those of the queries.
        only_w = "query" not in want and isinstance(problem.score, Radial)
        raw["w"], raw["query"] = sums_over_keys(problem, pairs, step, partial, cotangent, over_keys, only_w)
        if only_w:
            del raw["query"]
    if want & {"key", "value"} or (isinstance(problem.score, Additive) and "w" in want):
        raw["key"], raw["value"] = (
            (np.zeros(problem.key.shape), _hard_values(problem, step, cotangent))
            if pairs.hard
            else sums_over_queries(problem, pairs, step, partial, cotangent, over_queries)
        )
    return Gradients(**{name: grad for name, grad in chain_rule(problem, raw).items() if name in want})


def empty_state(problem: Problem) -> Partial:
    """The state of every query before any key."""
    count = moment_count(problem.columns.shape[1], problem.key.shape[1], problem.degree)
    return empty(len(problem.query), count, hard=isinstance(problem.score, Nearest))


def _can_fuse(problem: Problem) -> bool:
    if not (isinstance(problem.score, Gaussian) and problem.score.w.ndim < 2 and problem.mask is None):
        return False
    if problem.degree or problem.columns.shape[1] != 1 or problem.query.shape[0] < FEWEST_FUSED:
        return False
    return squares_fit(
        float(problem.score.w.max(initial=0.0)), problem.largest, problem.key.shape[1], problem.query.dtype
    )


def _fused(problem: Problem, step: Step, reach: Reach | None) -> Partial:
    """Mass and one moment by the fused program, relative to a peak of 0."""
    dtype, score = problem.query.dtype, problem.score
    assert isinstance(score, Gaussian)
    lanes = block_lanes(dtype.itemsize)
    w, c, cap = gaussian_words(score, problem.key.shape[1], dtype)
    weight = np.ones(problem.key.shape[0], dtype)
    if problem.sample_weight is not None:
        weight = problem.sample_weight.astype(dtype)
    columns = frozen(np.stack([weight, weight * problem.columns[:, 0]]))
    key, queries = frozen(problem.key), frozen(packed(problem.query, lanes))
    labels = lane_labels(problem)
    query_labels = None if labels is None else frozen(packed(labels[0], lanes))
    key_labels = None if labels is None else frozen(labels[1])

    def run(job: tuple[slice, slice]) -> tuple[slice, Array]:
        rows, keys = job
        sums = np.zeros((rows.stop - rows.start, 2, 2, lanes))
        own = None if query_labels is None else query_labels[rows]

        def add(near: Array) -> None:
            where = keys.start, keys.stop, step.key_tile, near
            gaussian_sums(queries[rows], own, key, key_labels, w, columns, c, cap, *where, sums)

        visit(reach, rows, lambda: (np.zeros((len(sums), lanes)), sums[:, 0].sum(axis=1)), add)
        return rows, sums.sum(axis=2)

    totals = np.zeros((len(queries), 2, lanes))
    for rows, sums in each(run, _pair_jobs(queries, problem, step), step.threads):
        totals[rows] += sums
    mass, moment = unpacked(totals, len(problem.query)).T
    return Partial(np.zeros(len(mass)), mass.copy(), moment[:, None].copy())


def _split(problem: Problem, pairs: Pairs, step: Step, reach: Reach | None = None) -> Partial:
    """Moments of any kind, with a running peak unless the weights are direct."""
    dtype = problem.query.dtype
    lanes = pairs.queries.shape[2]
    columns = frozen(np.hstack([np.ones((len(problem.key), 1), dtype), problem.columns]))
    size = 1 + moment_count(problem.columns.shape[1], problem.key.shape[1], problem.degree)

    def run(job: tuple[slice, slice]) -> tuple[slice, int, Partial]:
        rows, keys = job
        peak = np.full((rows.stop - rows.start, lanes), 0.0 if pairs.direct else -np.inf, dtype)
        sums = np.zeros((rows.stop - rows.start, size, 2, lanes))

        def add(near: Array) -> None:
            where = rows.start, rows.stop, keys.start, keys.stop, step.key_tile, near
            if problem.rough and problem.degree == 2:
                centred_blocks(pairs, columns, *where, peak, sums)
            else:
                average_blocks(pairs, columns, problem.degree, *where, peak, sums)

        visit(reach, rows, lambda: (peak, sums[:, 0].sum(axis=1)), add)
        flat = sums.sum(axis=2).transpose(0, 2, 1).reshape(-1, size)
        return rows, keys.start, Partial(peak.astype(np.float64).ravel(), flat[:, 0], flat[:, 1:], pairs.hard)

    shards: dict[int, list[Partial]] = {}
    for _, start, part in each(run, _pair_jobs(pairs.queries, problem, step), step.threads):
        shards.setdefault(start, []).append(part)
    partial = merge_all(_joined(parts, pairs) for _, parts in sorted(shards.items()))
    if pairs.direct:
        partial.peak[partial.mass == 0.0] = -np.inf
    return partial


def _pair_jobs(queries: Array, problem: Problem, step: Step) -> list[tuple[slice, slice]]:
    """(blocks of queries, keys) of every job; queries (blocks, d, lanes)."""
    shards = blocks(len(problem.key), step.key_shard)
    return [(rows, keys) for rows in query_jobs(queries, step) for keys in shards]


def _joined(parts: list[Partial], pairs: Pairs) -> Partial:
    """Blocks of queries one after another, without the copies that filled up the last."""
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
