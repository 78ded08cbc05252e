"""Forked processes: a child has the memory of its parent, but none of its threads.

libgomp, the OpenMP runtime of finufft and torch on Linux, still counts on the threads of its pool after a fork, and the
next parallel region waits for them forever; a region of one thread needs no pool. Executors and the event loops of dask
clients are lost as well. What this module changes in a child is described in docs/decisions/0021.
"""

from __future__ import annotations

import os
import sys
from typing import Any
from weakref import WeakSet

# Flag of a process that was forked and has not called exec since (proc(5), field 9), in include/linux/sched.h.
PF_FORKNOEXEC = 0x40

_inherited_clients: WeakSet[Any] = WeakSet()


def _forked_before_import() -> bool:
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return False
    return bool(int(fields[6]) & PF_FORKNOEXEC)


_forked = _forked_before_import()


def forked() -> bool:
    """Whether this process is a fork of another Python process, and so may enter OpenMP with one thread only."""
    return _forked


def limit_torch() -> None:
    """Keep torch, where it is loaded, to one thread in a forked process; elsewhere nothing changes."""
    torch = sys.modules.get("torch")
    if _forked and torch is not None:
        torch.set_num_threads(1)


def is_inherited(client: Any) -> bool:
    """Whether a ``distributed.Client`` was made before the fork: its event loop runs in the parent only."""
    return client in _inherited_clients


def _after_fork_in_child() -> None:
    global _forked
    _forked = True
    limit_torch()
    threaded: Any = sys.modules.get("dask.threaded")
    client: Any = sys.modules.get("distributed.client")
    if threaded is not None:
        # dask makes new ones when it needs them.
        threaded.default_pool = None
        threaded.pools.clear()
    if client is not None:
        _inherited_clients.update(client.Client._instances)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
