"""A queue in which clients take turns: one job runs at a time, and clients are served in rotation."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from time import monotonic
from typing import Any

# Waiting jobs of one client, and of all clients together.
MAX_WAITING_PER_CLIENT = 4
MAX_WAITING = 400


class QueueFull(Exception):
    """The queue takes no more jobs."""


class Job:
    """Work for a client. It checks ``over`` between its steps, and ends soon if that is true."""

    def __init__(self, client: Hashable, work: Callable[[Job], Any], seconds: float) -> None:
        self.client, self.seconds = client, seconds
        self._work, self._stopped, self._deadline = work, threading.Event(), float("inf")
        self.halted = False

    @property
    def over(self) -> bool:
        """Whether it was stopped by its client, or has run out of time."""
        return self._stopped.is_set() or monotonic() > self._deadline

    def halt(self) -> bool:
        """Whether to stop a search now. True only once, so that the job can finish what follows the search."""
        now = self.over and not self.halted
        self.halted = self.halted or now
        return now

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        self._deadline = monotonic() + self.seconds
        self._work(self)


class FairQueue:
    """One worker thread, clients in rotation. Jobs must handle their own errors: exceptions are ignored."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: OrderedDict[Hashable, deque[Job]] = OrderedDict()
        self._running: Job | None = None
        self._closed = False
        # A daemon thread, so that a job in a long step does not delay the end of the program.
        self._worker = threading.Thread(target=self._work, name="regard play", daemon=True)
        self._worker.start()

    def submit(self, job: Job) -> int:
        """Add a job and return how many run before it. Raises QueueFull."""
        with self._changed:
            mine = self._waiting.get(job.client, ())
            if self._closed or len(mine) >= MAX_WAITING_PER_CLIENT or self.waiting >= MAX_WAITING:
                raise QueueFull
            before = self._before(job.client, len(mine)) + (self._running is not None)
            self._waiting.setdefault(job.client, deque()).append(job)
            self._changed.notify()
        return before

    def _before(self, client: Hashable, mine: int) -> int:
        """The number of jobs before the next one of a client that has ``mine`` waiting already."""
        clients = list(self._waiting)
        place = clients.index(client) if client in self._waiting else len(clients)
        ahead = sum(min(len(self._waiting[other]), mine + 1) for other in clients[:place])
        behind = sum(min(len(self._waiting[other]), mine) for other in clients[place + 1 :])
        return ahead + behind + mine

    def stop(self, client: Hashable) -> list[Job]:
        """Drop a client's waiting jobs and stop its running one; return those dropped."""
        with self._changed:
            dropped = self._waiting.pop(client, deque())
            for job in dropped:
                job.stop()
            if self._running is not None and self._running.client == client:
                self._running.stop()
        return list(dropped)

    @property
    def waiting(self) -> int:
        """The number of jobs that have not started."""
        return sum(map(len, self._waiting.values()))

    @property
    def busy(self) -> bool:
        return self._running is not None

    def close(self) -> None:
        """Accept no more jobs, and stop the present ones."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            if self._running is not None:
                self._running.stop()
            self._changed.notify()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            with suppress(Exception, KeyboardInterrupt):
                job.run()
            with self._changed:
                self._running = None

    def _next(self) -> Job | None:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            client, jobs = self._waiting.popitem(last=False)
            self._running = jobs.popleft()
            if jobs:
                self._waiting[client] = jobs
            return self._running
