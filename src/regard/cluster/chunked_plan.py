"""The plan for pooling dask arrays, before anything is pooled: pairs of chunks, bytes moved, time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.cluster.block_states import merge_tree, sketches
from regard.cluster.chunked_pooling import ChunkedProblem, chunked_problem
from regard.core.problem import moment_count
from regard.engines.costs import estimate
from regard.engines.tasks import cores, workers
from regard.pooling.planner import in_words, plan


@dataclass(frozen=True)
class ChunkedPlan:
    """How ``pool`` would compute something on a cluster; ``print(plan)`` describes it."""

    queries: int
    keys: int
    width: int
    score: str
    blocks: tuple[int, int]  # of queries and of keys
    pairs: int  # pairs of blocks that are pooled
    engines: tuple[tuple[str, int], ...]  # engine and number of pairs that it pools
    moved: float  # bytes expected to move between workers
    states: float  # bytes of states among them
    seconds: float  # expected, with all cores busy
    workers: int
    cores: int

    def __str__(self) -> str:
        every = self.blocks[0] * self.blocks[1]
        skipped = every - self.pairs
        engines = ", ".join(f"{count} by {engine}" for engine, count in self.engines) or "none"
        rest = f"; the other {skipped:,} cannot contribute and are never scheduled" if skipped else ""
        where = f"{_count(self.workers, 'worker')} with {_count(self.cores, 'core')}"
        return "\n".join(
            [
                f"{self.queries:,} queries in {_count(self.blocks[0], 'chunk')} × {self.keys:,} keys in "
                f"{_count(self.blocks[1], 'chunk')}, {self.width}-D, {self.score} score, on {where}",
                f"  1. {self.pairs:,} of {every:,} pairs of chunks are pooled, {engines}{rest}",
                "  2. the states of each chunk of queries merge in a tree, always in the same order",
                f"  about {_size(self.moved)} move between workers, {_size(self.states)} of it states; "
                f"about {in_words(self.seconds)} of computing",
            ]
        )


def explain_chunks(*arguments: Any, **options: Any) -> ChunkedPlan:
    """The plan for a pool of dask arrays; takes the arguments of ``pool``.

    Parameters
    ----------
    *arguments : arrays or dask collections, and a Score
        ``query``, ``key``, ``value`` and ``score`` of ``regard.pool``.
    **options : dict
        ``mask``, ``sample_weight``, ``exclude``, ``engine`` and ``tol`` of ``regard.pool``.

    Returns
    -------
    ChunkedPlan
        Pairs of chunks that are pooled, their engines, bytes moved and seconds; ``print`` it.

    *Cost*: one pass over the blocks for their bounding boxes.

    >>> import dask.array as da
    >>> from regard.scores import Gaussian
    >>> x = da.from_array(np.linspace(0.0, 1.0, 8)[:, None], chunks=4)
    >>> plan = explain_chunks(x, x, x[:, 0], Gaussian())
    >>> plan.queries, plan.blocks
    (8, (2, 2))
    """
    problem = chunked_problem(*arguments, **options)
    queries, keys, pooling, near, _ = problem
    seconds, engines = 0.0, Counter[str]()
    for sketch in sketches(queries, keys, pooling, near):
        engines[plan(sketch, pooling.engine).steps[0].engine] += 1
        seconds += estimate(sketch, pooling.engine)
    rows, states = _moved_bytes(problem)
    return ChunkedPlan(
        queries.size,
        keys.size,
        keys.width,
        type(pooling.score).__name__,
        near.shape,
        int(near.sum()),
        tuple(engines.most_common()),
        rows + states,
        states,
        seconds / cores(),
        workers(),
        cores(),
    )


def _moved_bytes(problem: ChunkedProblem) -> tuple[float, float]:
    """Bytes of rows and of states that go to another worker, if chunks stay where they were summarised.

    Chunks in memory stay there; dask places others anew, but much alike. A pair is pooled where its larger chunk is,
    the other is sent there once, and of two states to merge on different workers one is sent.
    """
    queries, keys, _, near, _ = problem
    sent: dict[tuple[str, int, str], int] = {}
    states, state_bytes = 0.0, 8 * (3 + moment_count(keys.columns, keys.width, 0))
    for i, query in enumerate(queries.summaries):
        places = []
        for j in np.flatnonzero(near[i]):
            key = keys.summaries[j]
            stays, goes = (query, ("key", int(j))) if query.nbytes > key.nbytes else (key, ("query", i))
            if query.worker != key.worker:
                sent[(*goes, stays.worker)] = min(query.nbytes, key.nbytes)
            places.append(stays.worker)
        states += _transfers(places) * query.rows * state_bytes
    return float(sum(sent.values())), states


def _transfers(places: Sequence[str]) -> int:
    """How many merges of the tree over states at these places are between two workers.

    >>> _transfers(["a", "a", "b", "b"]), _transfers(["a", "b", "a", "b"])
    (1, 2)
    """
    found: list[bool] = []

    def merge(a: str, b: str) -> str:
        found.append(a != b)
        return a

    if places:
        merge_tree(places, merge)
    return sum(found)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + "s" * (number != 1)


def _size(count: float) -> str:
    """
    >>> [_size(x) for x in (0.0, 2500.0, 4e7)]
    ['0 bytes', '2.5 kB', '40 MB']
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} bytes"
