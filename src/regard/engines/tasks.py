"""Running tasks where dask runs them, and saying plainly what went wrong there.

With a ``distributed.Client`` in this process its cluster does the work, otherwise dask's own threads. Tasks are pure
and everything they need is in their graph: a worker that dies is made up for by computing its part again.
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
from typing import Any
from uuid import uuid4

from regard.core.forks import is_inherited

# Seconds between looks at the scheduler, and how long it, or every worker, may be away.
POLL, PATIENCE, NOBODY = 1.0, 15.0, 60.0
# Pairs of rows from which on a GPU is faster than the way there.
WORTH_A_GPU = 1 << 24


# What the current ``cancelling`` block has persisted, with the client that did it.
_persisted: ContextVar[list[tuple[Any, list[Any]]]] = ContextVar("regard_persisted")


class ClusterError(OSError):
    """The cluster could not do the work: its scheduler is gone, a task killed its workers, data was lost."""


def require_dask() -> Any:
    """The module ``dask``, or an error that says how to get it."""
    try:
        import dask
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "this needs dask, which is not installed; pip install 'regard[dask]' brings it", name="dask"
        ) from missing
    return dask


def tasks_of(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes delayed calls of a pure function, by names that a dashboard can show: ``regard-name-…``.

    The first argument of each is its place, one or more numbers that no other call has.
    """
    require_dask()
    from dask.delayed import delayed

    made: Any = delayed(function, pure=False)
    token = uuid4().hex

    def task(place: tuple[int, ...], *arguments: Any, **options: Any) -> Any:
        key = "-".join([f"regard-{name}-{token}", *map(str, place)])
        return made(*arguments, **options, dask_key_name=key)

    return task


def task_for_each(name: str, function: Callable[..., Any], arguments: Iterable[Sequence[Any]]) -> list[Any]:
    """Delayed calls of a pure function, one for each tuple of arguments."""
    task = tasks_of(name, function)
    return [task((number,), *each) for number, each in enumerate(arguments)]


def worker_engine(engine: str, pairs: int) -> str:
    """The engine of a pair of blocks on this worker: "auto" is the fused programs where a GPU has enough to do."""
    return "fused" if engine == "auto" and pairs >= WORTH_A_GPU and _has_gpu() else engine


@lru_cache
def _has_gpu() -> bool:
    # Torch takes seconds to import, and most workers have no use for it.
    if not os.path.exists("/dev/nvidia0") or find_spec("torch") is None or find_spec("triton") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def compute(tasks: Sequence[Any]) -> list[Any]:
    """The results of delayed tasks, in their order.

    Raises what a task raises, or ClusterError. Whatever is raised, Ctrl-C included, tasks not yet begun are cancelled.
    """
    dask, client = require_dask(), _client(tasks)
    with _large_graphs():
        return list(dask.compute(*tasks)) if client is None else _computed(client, list(tasks))


@contextmanager
def _large_graphs() -> Iterator[None]:
    """Arrays given by value are meant to travel with the graph: so they can always be made again."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        yield


def persisted(tasks: Sequence[Any]) -> list[Any]:
    """The same tasks with their results kept where they are computed; lost ones are computed again."""
    dask, client = require_dask(), _client(tasks)
    with _large_graphs():
        made = list(dask.persist(*tasks))
    if client is not None:
        _persisted.get([]).append((client, made))
    return made


@contextmanager
def cancelling() -> Iterator[None]:
    """What is persisted in this block is cancelled if the block raises."""
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
    """How many machines, or processes, hold the data."""
    client = _client(())
    return 1 if client is None else max(1, len(client.ncores()))


def current_worker() -> str:
    """The worker that runs this task; "" for dask's own threads."""
    # Whoever runs on a worker of a cluster has imported this.
    worker = sys.modules.get("distributed.worker")
    try:
        return "" if worker is None else str(worker.get_worker().address)
    except ValueError:
        return ""


def cores() -> int:
    """How many tasks can run at once."""
    client = _client(())
    if client is None:
        from dask.system import CPU_COUNT

        return int(CPU_COUNT)
    return max(1, int(sum(client.ncores().values())))


def _client(tasks: Sequence[Any]) -> Any:
    """The client that dask would use; None: dask's own threads, or whatever else the user configured."""
    from dask.base import get_scheduler

    owner: Any = getattr(get_scheduler(collections=list(tasks)), "__self__", None)
    if is_inherited(owner):
        raise ClusterError(
            f"the dask client of {owner.scheduler.address} was made before this process was forked, and cannot be used "
            "in it; make a distributed.Client in this process"
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
        # Results that are still wanted would be computed again when their worker dies.
        for future in futures:
            future.release()
        return found
    except BaseException as reason:
        _cancel(client, futures)
        if isinstance(reason, KilledWorker):
            raise ClusterError(
                f"a task was given up after {reason.allowed_failures + 1} workers died of it, "
                "most likely for lack of memory: use smaller chunks, or workers with more memory"
            ) from reason
        if isinstance(reason, (CancelledError, CommClosedError)):
            raise ClusterError(f"the cluster lost what it was asked for: {reason}") from reason
        raise


def _cancel(client: Any, tasks: list[Any]) -> None:
    """Stop computing futures or persisted tasks; a scheduler that lost its client has cancelled them already."""
    if client.status == "running":
        client.cancel(tasks)


def _watch(client: Any, futures: list[Any]) -> None:
    """Wait until all are done or one has failed; raise where nobody is left who could do it."""
    from distributed import wait

    pending, heard, seen = list(futures), time.monotonic(), time.monotonic()
    while pending:
        try:
            done, rest = wait(pending, timeout=POLL, return_when="FIRST_COMPLETED")
            pending = list(rest)
            if any(future.status != "finished" for future in done):
                return
        except TimeoutError:
            pass
        now = time.monotonic()
        heard = now if client.status == "running" else heard
        if now - heard > PATIENCE:
            raise ClusterError(f"the scheduler at {client.scheduler.address} has been gone for {PATIENCE:g} seconds")
        if now - seen > POLL and client.status == "running":
            seen = now if client.ncores() else seen
            if now - seen > NOBODY:
                raise ClusterError(f"the cluster has had no worker for {NOBODY:g} seconds")
