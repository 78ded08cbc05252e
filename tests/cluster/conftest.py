"""A small cluster of processes on this machine, listening on loopback only."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager

import pytest


@contextmanager
def small_cluster():
    import dask
    from distributed import Client, LocalCluster

    # Without an address of its own dask's web server listens on all addresses.
    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    # On a busy machine a killed worker may take longer to start again than dask waits before it gives up on it.
    patient = dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"})
    with patient, LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture(scope="session")
def client():
    with small_cluster() as client:
        yield client


@pytest.fixture(scope="module")
def breakable():
    """A cluster for tests that kill workers, which it starts again."""
    with small_cluster() as client:
        yield client


@pytest.fixture
def fresh(breakable):
    """That cluster as the current one, with two workers that are alive."""
    deadline = time.monotonic() + 60.0
    while True:
        # A worker that was killed a moment ago is still listed, and does not answer.
        found = breakable.run(os.getpid, on_error="return")
        if len(found) == 2 and all(isinstance(pid, int) for pid in found.values()):
            break
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    with breakable.as_current():
        yield breakable


@pytest.fixture
def on_cluster(client):
    """What a test computes is computed by the cluster."""
    with client.as_current():
        yield client


@pytest.fixture(autouse=True)
def in_this_process(request):
    """Tasks of tests outside the group ``cluster`` run one after another, right here."""
    if request.node.get_closest_marker("xdist_group") is not None:
        yield
        return
    import dask

    with dask.config.set(scheduler="synchronous"):
        yield
