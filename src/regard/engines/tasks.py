"""Running dask tasks, with clear errors if the cluster fails.

With a ``distributed.Client`` in this process its cluster runs them, otherwise dask's own threads. Tasks are pure and
everything they need is in their graph: what a dead worker held is computed again.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib.util import find_spec
from itertools import count, starmap
from typing import Any
from uuid import uuid4

from regard.core.forks import is_inherited

# Seconds between checks of the cluster, and how long the scheduler, or all workers, may be unreachable.
POLL_SECONDS = 1.0
SCHEDULER_TIMEOUT = 15.0
WORKERS_TIMEOUT = 60.0
# With fewer pairs of rows, copying to a GPU takes longer than computing on the CPU.
MIN_PAIRS_FOR_GPU = 1 << 24


# Tasks persisted in the current ``cancelling`` block, each list with its client.
_persisted: ContextVar[list[tuple[Any, list[Any]]]] = ContextVar("regard_persisted")


class ClusterError(OSError):
    """The cluster failed: its scheduler is unreachable, workers died during a task, or data was lost.

    >>> issubclass(ClusterError, OSError)
    True
    """


def require_dask() -> Any:
    """The module ``dask``; raises ModuleNotFoundError with installation advice."""
    try:
        import dask
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "this needs dask, which is not installed; run pip install 'regard[dask]'", name="dask"
        ) from missing
    return dask


def tasks_of(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes delayed calls of a pure function; dashboards show them as ``regard-name-…``."""
    require_dask()
    from dask.delayed import delayed

    made: Any = delayed(function, pure=False)
    token, number = uuid4().hex, count()

    def task(*arguments: Any, **options: Any) -> Any:
        return made(*arguments, **options, dask_key_name=f"regard-{name}-{token}-{next(number)}")

    return task


def task_for_each(name: str, function: Callable[..., Any], arguments: Iterable[Sequence[Any]]) -> list[Any]:
    """Delayed calls of a pure function, one for each tuple of arguments."""
    return list(starmap(tasks_of(name, function), arguments))


def worker_engine(engine: str, pairs: int) -> str:
    """The engine for a pair of blocks on this worker: "auto" is "fused" if there is a GPU and enough pairs."""
    return "fused" if engine == "auto" and pairs >= MIN_PAIRS_FOR_GPU and _has_gpu() else engine


@lru_cache
def _has_gpu() -> bool:
    # Importing torch takes seconds, so it is avoided on machines without a GPU.
    if not os.path.exists("/dev/nvidia0") or find_spec("torch") is None or find_spec("triton") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def compute(tasks: Sequence[Any]) -> list[Any]:
    """The results of delayed tasks, in their order.

    Raises the exception of a task, or ClusterError. On any exception, including Ctrl-C, pending tasks are cancelled.
    """
    dask, client = require_dask(), _client(tasks)
    with _large_graphs():
        return list(dask.compute(*tasks)) if client is None else _computed(client, list(tasks))


@contextmanager
def _large_graphs() -> Iterator[None]:
    """No warning about large graphs: arrays are sent with the graph so that lost blocks can be made again."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        yield


def persisted(tasks: Sequence[Any]) -> list[Any]:
    """The same tasks with their results held in the workers' memory; lost ones are computed again."""
    dask, client = require_dask(), _client(tasks)
    with _large_graphs():
        made = list(dask.persist(*tasks))
    if client is not None:
        _persisted.get([]).append((client, made))
    return made


@contextmanager
def cancelling() -> Iterator[None]:
    """Tasks persisted in this block are cancelled if it raises."""
    token = _persisted.set([])
    try:
        yield
    except BaseException:
        for client, made in _persisted.get():
            _cancel(client, made)
        raise
    finally:
        _persisted.reset(token)


def workers() -> int:
    """The number of workers."""
    client = _client(())
    return 1 if client is None else max(1, len(client.ncores()))


def current_worker() -> str:
    """Address of the worker that runs this task; "" for dask's own threads."""
    # Every distributed worker has imported this module.
    worker = sys.modules.get("distributed.worker")
    try:
        return "" if worker is None else str(worker.get_worker().address)
    except ValueError:
        return ""


def cores() -> int:
    """The number of tasks that can run at once."""
    client = _client(())
    if client is None:
        from dask.system import CPU_COUNT

        return int(CPU_COUNT)
    return max(1, int(sum(client.ncores().values())))


def _client(tasks: Sequence[Any]) -> Any:
    """The client that dask would use; None for dask's threads or another scheduler that the user configured."""
    from dask.base import get_scheduler

    owner: Any = getattr(get_scheduler(collections=list(tasks)), "__self__", None)
    if is_inherited(owner):
        raise ClusterError(
            f"the dask client of {owner.scheduler.address} was created before this process was forked and cannot be "
            "used in it; create a distributed.Client in this process"
        )
    return owner if hasattr(owner, "scheduler_info") else None


def _computed(client: Any, tasks: list[Any]) -> list[Any]:
    from distributed import CancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    futures = client.compute(tasks)
    try:
        _watch(client, futures)
        found = list(client.gather(futures))
        # Otherwise dask would compute them again if their worker dies.
        for future in futures:
            future.release()
        return found
    except BaseException as reason:
        _cancel(client, futures)
        if isinstance(reason, KilledWorker):
            raise ClusterError(
                f"{reason.allowed_failures + 1} workers died while running the same task, most likely for lack of "
                "memory; use smaller chunks, or workers with more memory"
            ) from reason
        if isinstance(reason, (CancelledError, CommClosedError)):
            raise ClusterError(f"the cluster lost or cancelled the tasks: {reason}") from reason
        raise


def _cancel(client: Any, tasks: list[Any]) -> None:
    """Cancel futures or persisted tasks; a scheduler that lost its client has done so already."""
    if client.status == "running":
        client.cancel(tasks)


def _watch(client: Any, futures: list[Any]) -> None:
    """Wait until all are done or one has failed; raise ClusterError if the scheduler or all workers are gone."""
    from distributed import wait

    pending, scheduler_time, worker_time = list(futures), time.monotonic(), time.monotonic()
    while pending:
        try:
            done, rest = wait(pending, timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
            pending = list(rest)
            if any(future.status != "finished" for future in done):
                return
        except TimeoutError:
            pass
        now = time.monotonic()
        scheduler_time = now if client.status == "running" else scheduler_time
        if now - scheduler_time > SCHEDULER_TIMEOUT:
            where = client.scheduler.address
            raise ClusterError(f"the scheduler at {where} has been unreachable for {SCHEDULER_TIMEOUT:g} seconds")
        if now - worker_time > POLL_SECONDS and client.status == "running":
            worker_time = now if client.ncores() else worker_time
            if now - worker_time > WORKERS_TIMEOUT:
                raise ClusterError(f"the cluster has had no worker for {WORKERS_TIMEOUT:g} seconds")
