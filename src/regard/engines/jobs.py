"""Jobs: blocks of queries and shards of keys, run on threads, results in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from regard.planner import Step
from regard.problem import Problem

Job = TypeVar("Job")


def blocks(n: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def jobs_of(count: int, problem: Problem, step: Step, lanes: int) -> list[tuple[slice, slice]]:
    """(blocks of queries, keys) of every job; ``count`` blocks of ``lanes`` queries."""
    shards = blocks(problem.key.shape[0], step.key_shard)
    return [(rows, keys) for rows in blocks(count, -(-step.query_tile // lanes)) for keys in shards]


def each(run: Callable[[Job], Any], jobs: Sequence[Job], threads: int) -> list[Any]:
    """Results of all jobs, in their order. Ctrl-C drops the jobs not yet begun."""
    if threads == 1 or len(jobs) < 2:
        return [run(job) for job in jobs]
    pool = ThreadPoolExecutor(min(threads, len(jobs)), thread_name_prefix="regard")
    try:
        return [future.result() for future in [pool.submit(run, job) for job in jobs]]
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
