"""Passes over rows in kd-tree order, so that each block of queries only visits tiles of keys near it.

For radial scores without a mask, in the precision of the problem. Hard attention uses every pair.
*Cost*: O((Q + K)·log(Q + K)·d) for sorting, then that of ``passes`` for each tile visited.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from regard.core.arrays import Array
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Outcome, Problem
from regard.core.scores import Nearest
from regard.core.state import Partial
from regard.engines.cpu import passes, pruning
from regard.engines.cpu.program_inputs import unsorted
from regard.programs.cpu.kd_tree import kd_sort
from regard.programs.cpu.lanes import block_lanes


def moments(problem: Problem, step: Step) -> Outcome:
    """Attention moments of every query, and the queries so far away that every score overflowed."""
    ordered = kd_ordered(problem, step)
    if ordered is None:
        return passes.moments(problem, step)
    found, uncertified = passes.moments(ordered.problem, ordered.step, ordered.pruner())
    peak, mass, flat = (unsorted(part, ordered.queries) for part in found[:3])
    partial = Partial(peak, mass, flat, found.hard)
    return Outcome(partial, None if uncertified is None else unsorted(uncertified, ordered.queries))


def pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients through the scores; called through ``passes.pullback_in_precision``."""
    ordered = kd_ordered(problem, step)
    if ordered is None:
        return passes.pullback(problem, step, partial, adjoint, want)
    partial, adjoint = partial.take(ordered.queries), adjoint.take(ordered.queries)
    over_keys = ordered.over_keys(partial) if want & {"w", "query"} else pruning.select_every_tile
    over_queries = ordered.over_queries(partial) if want & {"key", "value"} else pruning.select_every_tile
    found = passes.pullback(ordered.problem, ordered.step, partial, adjoint, want, over_keys, over_queries)
    orders = {"query": ordered.queries, "key": ordered.keys, "value": ordered.keys}
    return found._replace(**{name: unsorted(getattr(found, name), orders[name]) for name in want - {"w"}})


@dataclass(frozen=True, eq=False)
class KdProblem:
    """A problem whose rows are sorted into kd-tree order."""

    problem: Problem
    step: Step
    space: pruning.ScoreSpace
    queries: Array  # (Q,) the caller's indices of the sorted queries
    keys: Array  # (K,)

    def pruner(self) -> pruning.TilePruner:
        """Bounds of the tiles of keys, for the queries."""
        return pruning.tile_pruner(self.problem, self.step, self.space, self.problem.log_weight)

    def over_keys(self, partial: Partial) -> pruning.SelectTiles:
        """Selects tiles of keys for blocks of queries whose state is known."""
        pruner = self.pruner()
        return pruner.selection(pruner.threshold(partial.peak, partial.mass, np.inf))

    def over_queries(self, partial: Partial) -> pruning.SelectTiles:
        """Selects tiles of queries for blocks of keys: the same pairs, with the roles exchanged."""
        unbiased = pruning.tile_pruner(self.problem, self.step, self.space, None)
        threshold = unbiased.threshold(partial.peak, partial.mass, np.inf) + unbiased.margin
        mirrored = replace(self.space, query=self.space.key, key=self.space.query)
        max_bias = np.where(threshold < np.inf, 0.0 if unbiased.compact else -threshold, -np.inf)
        pruner = replace(pruning.tile_pruner(self.problem, self.step, mirrored, max_bias), margin=unbiased.margin)
        own = self.problem.log_weight
        base = np.zeros(len(self.keys)) if own is None else -own
        return pruner.selection(pruner.threshold(base, np.ones(len(base)), np.inf))


def kd_ordered(problem: Problem, step: Step) -> KdProblem | None:
    """The problem in kd-tree order; None if every pair counts, or if no bounds can be computed."""
    if (
        not problem.sketch().pairs
        or isinstance(problem.score, Nearest)
        or (space := pruning.score_space(problem)) is None
    ):
        return None
    if pruning.every_pair_counts(problem, space):
        return None
    lanes = block_lanes(problem.query.dtype.itemsize)
    keys = kd_order(space.key, space.w, step.key_tile, lanes)
    same = space.query.shape == space.key.shape and np.array_equal(space.query, space.key)
    queries = keys if same else kd_order(space.query, space.w, step.key_tile, lanes)
    sorted_problem = replace(
        problem.take(queries),
        key=problem.key[keys],
        columns=problem.columns[keys],
        sample_weight=None if problem.sample_weight is None else problem.sample_weight[keys],
        log_weight=None if problem.log_weight is None else problem.log_weight[keys],
        exclude=None if problem.exclude is None else (problem.exclude[0][queries], problem.exclude[1][keys]),
    )
    space = replace(space, query=space.query[queries], key=space.key[keys])
    return KdProblem(sorted_problem, replace(step, key_shard=len(keys)), space, queries, keys)


def kd_order(points: Array, w: Array, tile: int, lanes: int) -> Array:
    """Indices (n,) that put points (n, d) into kd-tree order under w (d,); see ``kd_sort``."""
    order = np.arange(len(points))
    kd_sort(points.copy(), w, tile, lanes, order)
    return order
