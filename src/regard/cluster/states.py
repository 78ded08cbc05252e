"""States of blocks of queries over blocks of keys, as tasks: one for each pair that matters, merged in a tree.

Which pairs matter is decided here, from the boxes around the blocks; the others are never scheduled. The tree is fixed
by the order of the blocks, so that results repeat to the last bit whoever computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from regard.cluster.rows import Block, Rows
from regard.core.arrays import Array
from regard.core.block_bounds import LINES, SHARE, in_reach
from regard.core.bounds import Bounds
from regard.core.lines import LocalFit, local_fit
from regard.core.problem import Problem, Sketch, build, matrix, moment_count
from regard.core.scores import Nearest, Radial, Score
from regard.core.state import Partial
from regard.engines.tasks import engine_here, tasks_of
from regard.pooling.folds import Fold, fold, nothing


@dataclass(frozen=True, eq=False)
class Look:
    """One attention over rows in blocks."""

    score: Score
    engine: str = "auto"
    tol: float | None = None
    degree: int = 0  # of the moments: 2 for lines
    nearest: bool = False  # queries with nobody in reach are answered by the nearest key
    classes: int = 0  # values are numbers of so many classes; 0: they are numbers
    centre: Array | None = None  # (P,)  taken from the values
    scale: Array | None = None  # (P,)  what is left is divided by
    rescale: Callable[[Array], Array] | None = None  # of keys and queries, monotone in every column

    def points(self, key: Array) -> Array:
        """Keys or queries as the score sees them; lines need double precision."""
        key = key if self.rescale is None else self.rescale(key)
        return key.astype(np.float64) if self.degree else key

    def columns(self, value: Array, dtype: Any) -> Array:
        """What is averaged, (n, P); classes as columns of this dtype."""
        if self.classes:
            return np.eye(self.classes, dtype=dtype)[value]
        table = matrix("value", value)
        if self.centre is None or self.scale is None:
            return table
        return np.asarray((table.astype(np.float64) - self.centre) / self.scale)


def problem_of(look: Look, query: Block, key: Block, mask: Array | None = None) -> tuple[Problem, str]:
    """The problem of a block of queries over a block of keys, and the engine for it on this worker."""
    if not len(query.key) or not len(key.key):
        mask = None
    assert key.value is not None
    pair = None if query.labels is None else (query.labels, key.labels)
    keys = look.points(matrix("key", key.key))
    problem = build(
        look.points(matrix("query", query.key)),
        keys,
        look.columns(key.value, keys.dtype if keys.dtype.kind == "f" else np.float64),
        look.score,
        mask=mask,
        sample_weight=key.weight,
        exclude=pair,  # type: ignore[arg-type]
        tol=look.tol,
    )
    return replace(problem, degree=look.degree), engine_here(look.engine, len(problem.query) * len(problem.key))


def state(look: Look, query: Block, key: Block, mask: Array | None = None) -> Fold:
    """The state of a block of queries over a block of keys, on the worker that computes it."""
    return fold(*problem_of(look, query, key, mask), nearest=look.nearest)


class Fitted(NamedTuple):
    """Local means or lines of a block of queries, from its state over all keys."""

    partial: Partial
    fit: LocalFit
    output: Array  # (Q, P)  what ``look`` averages; of the nearest key for queries with nobody in reach
    settled: Array  # (Q,)  queries whose answer does not move with w: nobody in reach, or a limit
    empty: Array  # (Q,)  queries with nobody in reach


def fitted(look: Look, fold: Fold, ridge: float, width: int, own: Partial | None = None) -> Fitted:
    """Fits from a state over keys of so many features; ``own`` is what a query adds to its keys."""
    score, columns = look.score, len(fold.power)
    assert isinstance(score, Radial)
    partial, limit = fold.moments(own)
    settled = limit | (partial.mass <= 0.0)
    # A kernel that ends nowhere reaches somebody, however far.
    empty = settled & out_of_reach(look, fold)
    fit = local_fit(partial, columns, width, look.degree // 2, score.w, ridge)
    nearest = partial.moments[:, :columns] / np.where(partial.mass > 0.0, partial.mass, 1.0)[:, None]
    return Fitted(partial, fit, np.where((limit & empty)[:, None], nearest, fit.output), settled, empty)


def out_of_reach(look: Look, fold: Fold) -> Array:
    """Queries (Q,) beyond the end of a compact kernel around every key."""
    compact = look.score.kernel.compact and not fold.hard  # type: ignore[attr-defined]
    return fold.soft.mass <= 0.0 if compact else np.zeros(len(fold.tail), bool)


def pairs_in_reach(queries: Rows, keys: Rows, look: Look, *, masked: bool = False) -> Array:
    """Which pairs of blocks (query blocks, key blocks) have to be looked at."""
    rows_out = None if masked else sum(fact.alike for fact in keys.facts) if keys.labelled else 0
    boxes = queries.bounds
    shelves = keys.shelves
    if look.rescale is not None:
        # Monotone: a corner stays a corner.
        boxes = Bounds(look.rescale(boxes.low), look.rescale(boxes.high))
        shelves = shelves._replace(low=look.rescale(shelves.low), high=look.rescale(shelves.high))
    near = in_reach(
        boxes, shelves, look.score, share=LINES if look.degree else SHARE, rows_out=rows_out, nearest=look.nearest
    )
    return near & (np.array(queries.lengths) > 0)[:, None]


def states(
    queries: Rows, keys: Rows, look: Look, near: Array, masks: Callable[[int, int], Any] | None = None
) -> list[Any]:
    """One delayed Fold for each block of queries, over all blocks of keys that are near."""
    one, none, merge = tasks_of("look", state), tasks_of("nobody", nothing), tasks_of("merge", joined)
    hard, columns = isinstance(look.score, Nearest), look.classes or keys.columns
    found = []
    for i, query in enumerate(queries.blocks):
        tasks = []
        for j in np.flatnonzero(near[i]):
            mask = None if masks is None else masks(i, int(j))
            tasks.append(one((i, int(j)), look, query, keys.blocks[j], mask))
        if not tasks:
            tasks = [none((i,), queries.lengths[i], columns, keys.width, degree=look.degree, hard=hard)]
        found.append(tree(tasks, merge, i))
    return found


def joined(a: Fold, b: Fold) -> Fold:
    """Both states together."""
    return a.joined(b)


def tree(tasks: Sequence[Any], merge: Callable[..., Any], place: int) -> Any:
    """Neighbours merged with neighbours until one is left; ``merge`` makes tasks, at ``place`` in their names."""
    tasks, level = list(tasks), 0
    while len(tasks) > 1:
        merged = [
            merge((place, level, at), a, b) for at, (a, b) in enumerate(zip(tasks[::2], tasks[1::2], strict=False))
        ]
        tasks, level = merged + tasks[len(merged) * 2 :], level + 1
    return tasks[0]


def state_bytes(keys: Rows, look: Look) -> int:
    """Size of the state of one query."""
    return 8 * (3 + moment_count(look.classes or keys.columns, keys.width, look.degree))


def sketches(queries: Rows, keys: Rows, look: Look, near: Array) -> Iterator[Sketch]:
    """What a planner would be told of every pair of blocks that is near, as far as it is known beforehand."""
    score, columns, tol = look.score, look.classes or keys.columns, 1e-9 if look.tol is None else look.tol
    for i, j in zip(*np.nonzero(near), strict=True):
        query, key = queries.facts[i], keys.facts[j]
        span: tuple[float, ...] = ()
        if isinstance(score, Radial) and score.w.ndim < 2 and query.counted and key.counted:
            width = np.maximum(query.key.high, key.key.high) - np.minimum(query.key.low, key.key.low)
            span = tuple((width * score.w).tolist())
        shape = query.rows, key.counted, len(key.key.low), columns
        yield Sketch(*shape, np.dtype(np.float64), score, look.degree, tol=tol, span=span)
