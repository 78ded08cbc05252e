"""Turns: clients in rotation, one job at a time, whatever they ask for."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.play.job_queue import MAX_WAITING_PER_CLIENT, FairQueue, Job, QueueFull


class Stage:
    """A queue whose first job holds everything up until ``go``, and a record of who ran."""

    def __init__(self) -> None:
        self.queue, self.ran, self.go = FairQueue(), [], threading.Event()
        started = threading.Event()
        self.queue.submit(Job("first", lambda _: (started.set(), self.go.wait(10)), 60.0))
        assert started.wait(10)

    def submit(self, client: str) -> int:
        return self.queue.submit(Job(client, lambda job: self.ran.append(job.client), 60.0))

    def finish(self) -> list[str]:
        done = threading.Event()
        self.queue.submit(Job("last", lambda _: done.set(), 60.0))
        self.go.set()
        assert done.wait(10)
        while self.queue.waiting or self.queue.busy:
            threading.Event().wait(0.001)
        self.queue.close()
        return self.ran


@given(st.lists(st.sampled_from("abcd"), max_size=12))
def test_no_client_runs_twice_while_another_waits(asked):
    stage, taken = Stage(), []
    for client in asked:
        try:
            stage.submit(client)
            taken.append(client)
        except QueueFull:
            assert taken.count(client) == MAX_WAITING_PER_CLIENT
    ran = stage.finish()
    assert sorted(ran) == sorted(taken)
    for place, client in enumerate(ran):
        between = ran[ran.index(client, place + 1) :] if client in ran[place + 1 :] else []
        if between:
            turn = ran[place + 1 : ran.index(client, place + 1)]
            others = set(ran[place + 1 :]) - {client}
            assert len(turn) == len(set(turn))
            assert set(turn) == others


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=8))
def test_the_place_announced_is_the_place_kept(asked):
    """Of a client's first job: it runs after as many as were announced, the running one among them."""
    stage, announced = Stage(), {}
    for client in asked:
        try:
            before = stage.submit(client)
        except QueueFull:
            continue
        announced.setdefault(client, before)
    ran = stage.finish()
    for client, before in announced.items():
        assert ran.index(client) + 1 == before


def test_only_a_stopped_client_loses_what_waits():
    stage = Stage()
    for client in "aabb":
        stage.submit(client)
    dropped = stage.queue.stop("a")
    assert [job.client for job in dropped] == ["a", "a"]
    assert all(job.over for job in dropped)
    assert stage.finish() == ["b", "b"]


def test_a_job_that_fails_does_not_end_the_worker():
    queue, done = FairQueue(), threading.Event()
    for failure in (ValueError, KeyboardInterrupt):
        queue.submit(Job("a", lambda _, failure=failure: (_ for _ in ()).throw(failure), 60.0))
    queue.submit(Job("a", lambda _: done.set(), 60.0))
    assert done.wait(10)
    queue.close()


def test_a_job_out_of_time_is_over_and_a_closed_queue_takes_none():
    queue, seen, done = FairQueue(), [], threading.Event()
    queue.submit(Job("a", lambda job: (seen.append(job.over), done.set()), -1.0))
    assert done.wait(10)
    assert seen == [True]
    queue.close()
    with pytest.raises(QueueFull):
        queue.submit(Job("a", lambda _: None, 1.0))
