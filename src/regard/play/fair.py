"""Jobs of all pages take turns: one runs at a time, and whoever has waited longest since its last turn is next."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from time import monotonic
from typing import Any

# Jobs one client may have waiting, and all of them together.
MOST_WAITING, MOST_IN_ALL = 4, 400


class Full(Exception):
    """There is no room for another job."""


class Job:
    """Something to be done for a client. It looks at ``over`` between its steps, and ends soon where that is true."""

    def __init__(self, client: Hashable, work: Callable[[Job], Any], seconds: float) -> None:
        self.client, self.seconds = client, seconds
        self._work, self._stopped, self._deadline = work, threading.Event(), float("inf")
        self.halted = False

    @property
    def over(self) -> bool:
        """Stopped by its client, or out of time."""
        return self._stopped.is_set() or monotonic() > self._deadline

    def halt(self) -> bool:
        """Whether to stop a search now: true once, for what it has left to do after that it may finish."""
        now = self.over and not self.halted
        self.halted = self.halted or now
        return now

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        self._deadline = monotonic() + self.seconds
        self._work(self)


class FairQueue:
    """One worker thread, clients in rotation. A job must answer for its own failures: what it raises is dropped."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: OrderedDict[Hashable, deque[Job]] = OrderedDict()
        self._running: Job | None = None
        self._closed = False
        # A daemon, so that a job in the middle of a long step does not hold up the end of the program.
        self._worker = threading.Thread(target=self._work, name="regard play", daemon=True)
        self._worker.start()

    def submit(self, job: Job) -> int:
        """Let a job wait for its turn; how many are before it. Raises Full."""
        with self._changed:
            mine = self._waiting.get(job.client, ())
            if self._closed or len(mine) >= MOST_WAITING or self.waiting >= MOST_IN_ALL:
                raise Full
            before = self._before(job.client, len(mine)) + (self._running is not None)
            self._waiting.setdefault(job.client, deque()).append(job)
            self._changed.notify()
        return before

    def _before(self, client: Hashable, mine: int) -> int:
        """Jobs that come before the next one of a client that has ``mine`` waiting already."""
        clients = list(self._waiting)
        place = clients.index(client) if client in self._waiting else len(clients)
        ahead = sum(min(len(self._waiting[other]), mine + 1) for other in clients[:place])
        behind = sum(min(len(self._waiting[other]), mine) for other in clients[place + 1 :])
        return ahead + behind + mine

    def stop(self, client: Hashable) -> list[Job]:
        """Forget a client's waiting jobs, stop its running one; the jobs that never began."""
        with self._changed:
            dropped = self._waiting.pop(client, deque())
            for job in dropped:
                job.stop()
            if self._running is not None and self._running.client == client:
                self._running.stop()
        return list(dropped)

    @property
    def waiting(self) -> int:
        """Jobs that have not begun."""
        return sum(map(len, self._waiting.values()))

    @property
    def busy(self) -> bool:
        return self._running is not None

    def close(self) -> None:
        """Take no more jobs, and stop those there are."""
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
