"""What a pool of dask arrays will take, before any of it is computed: pairs, bytes, time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.cluster.pooling import Chunked, prepared
from regard.cluster.states import sketches, state_bytes, tree
from regard.engines.costs import estimate
from regard.engines.tasks import cores, workers
from regard.pooling.planner import in_words, plan


@dataclass(frozen=True)
class ChunkedPlan:
    """How ``pool`` would compute something on a cluster; ``print(plan)`` says it in words."""

    queries: int
    keys: int
    width: int
    score: str
    blocks: tuple[int, int]  # of queries and of keys
    pairs: int  # pairs of blocks that are looked at
    engines: tuple[tuple[str, int], ...]  # which engine how many of them
    moved: float  # bytes that go from one worker to another, as expected
    states: float  # of them, states
    seconds: float  # expected, with all cores busy
    workers: int
    cores: int

    def __str__(self) -> str:
        every = self.blocks[0] * self.blocks[1]
        skipped = every - self.pairs
        told = ", ".join(f"{count} by {engine}" for engine, count in self.engines) or "none"
        rest = f"; the other {skipped:,} cannot matter and are never scheduled" if skipped else ""
        where = f"{_count(self.workers, 'worker')} with {_count(self.cores, 'core')}"
        return "\n".join(
            [
                f"{self.queries:,} queries in {_count(self.blocks[0], 'chunk')} × {self.keys:,} keys in "
                f"{_count(self.blocks[1], 'chunk')}, {self.width}-D, {self.score} score, on {where}",
                f"  1. {self.pairs:,} of {every:,} pairs of chunks are looked at, {told}{rest}",
                "  2. their states merge in a tree for each chunk of queries, always in the same order",
                f"  about {_size(self.moved)} move between workers, {_size(self.states)} of it states; "
                f"about {in_words(self.seconds)} of computing",
            ]
        )


def explain_chunks(*arguments: Any, **options: Any) -> ChunkedPlan:
    """The plan for a pool of dask arrays; takes ``pool``'s arguments.

    *Cost*: one pass over the blocks for their boxes.
    """
    chunked = prepared(*arguments, **options)
    queries, keys, look, near, _, _ = chunked
    seconds, found = 0.0, Counter[str]()
    for sketch in sketches(queries, keys, look, near):
        found[plan(sketch, look.engine).steps[0].engine] += 1
        seconds += estimate(sketch, look.engine)
    moved, states = _moved(chunked)
    return ChunkedPlan(
        queries.size,
        keys.size,
        keys.width,
        type(look.score).__name__,
        near.shape,
        int(near.sum()),
        tuple(found.most_common()),
        moved + states,
        states,
        seconds / cores(),
        workers(),
        cores(),
    )


def _moved(chunked: Chunked) -> tuple[float, float]:
    """Bytes of rows and of states that go to another worker, where chunks lie as they did when they were examined.

    Chunks in memory stay there; others dask will place anew, but much alike. A pair is looked at where its larger chunk
    lies, the other is sent there once, and of two states to merge that lie apart one is sent.
    """
    queries, keys, look, near, _, _ = chunked
    sent: dict[tuple[str, int, str], int] = {}
    states = 0.0
    for i, query in enumerate(queries.facts):
        places = []
        for j in np.flatnonzero(near[i]):
            key = keys.facts[j]
            stays, goes = (query, ("key", int(j))) if query.nbytes > key.nbytes else (key, ("query", i))
            if query.place != key.place:
                sent[(*goes, stays.place)] = min(query.nbytes, key.nbytes)
            places.append(stays.place)
        apart = _crossings(places)
        states += apart * query.rows * state_bytes(keys, look)
    return float(sum(sent.values())), states


def _crossings(places: Sequence[str]) -> int:
    """How many merges of a tree over states at these places bring two workers together.

    >>> _crossings(["a", "a", "b", "b"]), _crossings(["a", "b", "a", "b"])
    (1, 2)
    """
    found: list[int] = []

    def merge(_: tuple[int, ...], a: str, b: str) -> str:
        found.append(int(a != b))
        return a

    if places:
        tree(places, merge, 0)
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
