"""Runs jobs (blocks of queries, shards of keys) on threads and returns their results in a fixed order."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, TypeVar

from regard.core.arrays import Array
from regard.core.plan import Step
from regard.core.progress import ProgressCallback, progress_callback

Job = TypeVar("Job")

# Pools are reused: starting threads takes as long as a small problem. A forked child starts its own.
_pools: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)


def split_range(n: int, size: int) -> list[slice]:
    """Slices of at most ``size`` that cover 0 … n."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def query_jobs(packed: Array, step: Step) -> list[slice]:
    """The blocks of queries of each job; packed (blocks, …, lanes)."""
    return split_range(len(packed), -(-step.query_tile // packed.shape[-1]))


def run_jobs(run: Callable[[Job], Any], jobs: Sequence[Job], threads: int) -> list[Any]:
    """Results of all jobs, in their order; the calling thread works too. Ctrl-C cancels the jobs not yet started."""
    report = progress_callback()
    if threads == 1 or len(jobs) < 2:
        results: list[Any] = []
        for job in jobs:
            results.append(run(job))
            if report is not None:
                report(len(results), len(jobs))
        return results
    results, done = [None] * len(jobs), count(1)
    # next() on a count is atomic, so no two threads get the same number.
    numbers, stopped = count(), False

    def work(report: ProgressCallback | None = None) -> None:
        for number in numbers:
            if stopped or number >= len(jobs):
                return
            results[number], so_far = run(jobs[number]), next(done)
            if report is not None:
                report(so_far, len(jobs))

    n_helpers = min(threads, len(jobs)) - 1
    if n_helpers not in _pools:
        _pools[n_helpers] = ThreadPoolExecutor(n_helpers, thread_name_prefix="regard")
    futures = [_pools[n_helpers].submit(work) for _ in range(n_helpers)]
    try:
        work(report)
    finally:
        stopped = True
        failed = [error for future in futures if not future.cancel() and (error := future.exception())]
    if failed:
        raise failed[0]
    if report is not None:
        report(len(jobs), len(jobs))
    return results
