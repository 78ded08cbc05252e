"""Passes over rows put in the order of a kd-tree, so that each block of queries sees the tiles of keys near it.

For radial scores without a mask, in the precision the problem already has. Hard attention sees every pair.
*Cost*: O((Q + K)·log(Q + K)·d) for the order, then the usual for each tile that is seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from regard.core.arrays import Array
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Outcome, Problem
from regard.core.scores import Nearest
from regard.core.state import Partial
from regard.engines.cpu import passes
from regard.engines.cpu.reach import Near, Reach, Space, all_within_reach, every_tile, reach_of, space_of
from regard.engines.cpu.words import restored
from regard.programs.cpu.lanes import block_lanes
from regard.programs.cpu.order import kd_order


def moments(problem: Problem, step: Step) -> Outcome:
    """Attention moments of every query, and the queries so far away that every score overflowed."""
    near = arranged(problem, step)
    if near is None:
        return passes.moments(problem, step)
    found, lost = passes.moments(near.problem, near.step, near.reach())
    peak, mass, flat = (restored(part, near.queries) for part in found[:3])
    partial = Partial(peak, mass, flat, found.hard)
    return Outcome(partial, None if lost is None else restored(lost, near.queries))


def pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients through the scores, as ``passes.precisely`` runs it."""
    near = arranged(problem, step)
    if near is None:
        return passes.pullback(problem, step, partial, adjoint, want)
    partial, adjoint = partial.take(near.queries), adjoint.take(near.queries)
    over_keys: Near = every_tile
    over_queries: Near = every_tile
    if want & {"w", "query"}:
        reach = near.reach()
        over_keys = reach.known(reach.level(partial.peak, partial.mass, np.inf))
    if want & {"key", "value"}:
        over_queries = near.from_keys(partial)
    found = passes.pullback(near.problem, near.step, partial, adjoint, want, over_keys, over_queries)
    orders = {"query": near.queries, "key": near.keys, "value": near.keys}
    return found._replace(**{name: restored(getattr(found, name), orders[name]) for name in want - {"w"}})


@dataclass(frozen=True, eq=False)
class Arranged:
    """A problem whose rows stand in the order of a kd-tree."""

    problem: Problem
    step: Step
    space: Space
    queries: Array  # (Q,) numbers of the queries in their new order
    keys: Array  # (K,)

    def reach(self) -> Reach:
        """Tiles of keys, as the queries see them."""
        return reach_of(self.problem, self.step, self.space, self.problem.log_weight)

    def from_keys(self, partial: Partial) -> Near:
        """Tiles of queries in reach of blocks of keys: the same pairs, with the roles exchanged."""
        plain = reach_of(self.problem, self.step, self.space, None)
        level = plain.level(partial.peak, partial.mass, np.inf) + plain.margin
        mirrored = replace(self.space, query=self.space.key, key=self.space.query)
        top = np.where(level < np.inf, 0.0 if plain.compact else -level, -np.inf)
        reach = replace(reach_of(self.problem, self.step, mirrored, top), margin=plain.margin)
        own = self.problem.log_weight
        height = np.zeros(len(self.keys)) if own is None else -own
        return reach.known(reach.level(height, np.ones(len(height)), np.inf))


def arranged(problem: Problem, step: Step) -> Arranged | None:
    """Keys and queries in the order of a kd-tree; None where there is nothing to gain or no way to tell."""
    if not problem.sketch().pairs or isinstance(problem.score, Nearest) or (space := space_of(problem)) is None:
        return None
    if all_within_reach(problem, space):
        return None
    lanes = block_lanes(problem.query.dtype.itemsize)
    keys = space_order(space.key, space.w, step.key_tile, lanes)
    same = space.query.shape == space.key.shape and np.array_equal(space.query, space.key)
    queries = keys if same else space_order(space.query, space.w, step.key_tile, lanes)
    turned = replace(
        problem.take(queries),
        key=problem.key[keys],
        columns=problem.columns[keys],
        sample_weight=None if problem.sample_weight is None else problem.sample_weight[keys],
        log_weight=None if problem.log_weight is None else problem.log_weight[keys],
        exclude=None if problem.exclude is None else (problem.exclude[0][queries], problem.exclude[1][keys]),
    )
    space = replace(space, query=space.query[queries], key=space.key[keys])
    return Arranged(turned, replace(step, key_shard=len(keys)), space, queries, keys)


def space_order(points: Array, w: Array, tile: int, lanes: int) -> Array:
    """Numbers (n,) of points (n, d) in the order of a kd-tree under w (d,); see ``kd_order``."""
    order = np.arange(len(points))
    kd_order(points.copy(), w, tile, lanes, order)
    return order
