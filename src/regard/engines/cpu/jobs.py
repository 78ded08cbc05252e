"""Jobs: blocks of queries and shards of keys, run on threads, results in a fixed order."""

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

# Threads are kept: starting some costs as much as a small problem. A child process starts its own.
_helpers: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.clear)


def blocks(n: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def query_jobs(packed: Array, step: Step) -> list[slice]:
    """Blocks of queries of every job; packed (blocks, …, lanes)."""
    return blocks(len(packed), -(-step.query_tile // packed.shape[-1]))


def each(run: Callable[[Job], Any], jobs: Sequence[Job], threads: int) -> list[Any]:
    """Results of all jobs, in their order; the calling thread works too. Ctrl-C drops the jobs not yet begun."""
    told = progress_callback()
    if threads == 1 or len(jobs) < 2:
        results: list[Any] = []
        for job in jobs:
            results.append(run(job))
            if told is not None:
                told(len(results), len(jobs))
        return results
    results, done = [None] * len(jobs), count(1)
    # Drawing a number is one step of the interpreter, so no two threads get the same.
    numbers, stopped = count(), False

    def work(told: ProgressCallback | None = None) -> None:
        for number in numbers:
            if stopped or number >= len(jobs):
                return
            results[number], so_far = run(jobs[number]), next(done)
            if told is not None:
                told(so_far, len(jobs))

    helpers = min(threads, len(jobs)) - 1
    if helpers not in _helpers:
        _helpers[helpers] = ThreadPoolExecutor(helpers, thread_name_prefix="regard")
    futures = [_helpers[helpers].submit(work) for _ in range(helpers)]
    try:
        work(told)
    finally:
        stopped = True
        failed = [error for future in futures if not future.cancel() and (error := future.exception())]
    if failed:
        raise failed[0]
    if told is not None:
        told(len(jobs), len(jobs))
    return results
