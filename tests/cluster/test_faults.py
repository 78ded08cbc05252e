"""A cluster that breaks: killed workers change nothing but time, and what cannot succeed says so, soon."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time

import dask.array as da
import numpy as np
import pytest
from dask import delayed
from distributed import CancelledError, KilledWorker
from distributed.comm.core import CommClosedError

import regard
from regard.engines import tasks as running
from regard.engines.tasks import ClusterError
from regard.scores import Gaussian
from support.cuts import cut
from support.soak import FULL

pytestmark = [pytest.mark.xdist_group("cluster")]
KILLS = 50 if FULL else 5
# No run may take longer: a hang is a failure.
LONGEST = 120.0

RNG = np.random.default_rng(4)
X = RNG.normal(size=(3000, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.normal(size=3000)


def slowly(block, seconds=0.05):
    """A block that takes its time, so that a kill finds a worker at work."""
    time.sleep(seconds)
    return block


def slow(array, chunks):
    lazy = da.from_array(array, chunks=(chunks, *array.shape[1:]), name=False)
    return lazy.map_blocks(slowly, dtype=array.dtype)


def kill_one(client, after):
    """SIGKILL a random worker after some seconds."""

    def strike():
        time.sleep(after)
        os.kill(random.choice(pids), signal.SIGKILL)

    pids = list(client.run(os.getpid).values())
    thread = threading.Thread(target=strike)
    thread.start()
    return thread


@pytest.mark.parametrize("run", range(KILLS))
def test_96_killed_workers_change_nothing_but_time(run, fresh):
    """A random worker dies at a random moment of a fit or a predict; the answer is right all the same."""
    start = time.monotonic()
    strike = kill_one(fresh, random.Random(run).uniform(0.0, 0.8))
    if run % 2:
        rows = 600
        model = regard.NadarayaWatsonRegressor(metric="scalar")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("regard.cluster.cluster_fit.MAX_ROWS_ON_ONE_WORKER", 0)
            model.fit(slow(X[:rows], 300), slow(Y[:rows], 300))
        here = regard.NadarayaWatsonRegressor(metric="scalar").fit(X[:rows], Y[:rows])
        assert np.allclose(model.bandwidth_, here.bandwidth_, rtol=1e-5)
    else:
        model = regard.NadarayaWatsonRegressor(bandwidth=0.2).fit(slow(X, 500), slow(Y, 500))
        got = model.predict(slow(X[:500], 100)).compute()
        truth = regard.NadarayaWatsonRegressor(bandwidth=0.2).fit(X, Y).predict(X[:500])
        assert np.allclose(got, truth, rtol=1e-9)
    strike.join()
    assert time.monotonic() - start < LONGEST


def die(block):
    os._exit(1)


GIVEN_UP = r". workers died while running the same task, most likely for lack of memory"


def next_call_is_right():
    """An unrelated call on the current cluster gives what one machine gives."""
    got = regard.pool(X[:10], da.from_array(X, chunks=(1000, 2), name=False), Y, Gaussian())
    assert np.allclose(got.output, regard.pool(X[:10], X, Y, Gaussian()).output, rtol=1e-12)


def test_97_a_task_that_kills_every_worker_is_given_up(fresh):
    """Its siblings, which would kill workers for as long as there are some, are cancelled."""
    key = da.from_array(X, chunks=(100, 2), name=False).map_blocks(die, dtype=float, meta=X[:0])
    with pytest.raises(ClusterError, match=GIVEN_UP):
        regard.pool(X[:10], key, da.from_array(Y, chunks=100), Gaussian())
    next_call_is_right()


def die_if(block, flag):
    return die(block) if os.path.exists(flag) else block


def test_97_tasks_that_kill_workers_while_learning_are_cancelled(fresh, tmp_path, monkeypatch):
    """What ``fit`` keeps on the cluster while it learns goes when it fails."""
    flag, persisted = tmp_path / "die", running.persisted

    def from_now_on(tasks):
        flag.touch()
        return persisted(tasks)

    monkeypatch.setattr("regard.cluster.cluster_objective.persisted", from_now_on)
    monkeypatch.setattr("regard.cluster.cluster_fit.MAX_ROWS_ON_ONE_WORKER", 0)
    key = da.from_array(X, chunks=(100, 2), name=False).map_blocks(die_if, str(flag), dtype=float, meta=X[:0])
    with pytest.raises(ClusterError, match=GIVEN_UP):
        regard.NadarayaWatsonRegressor().fit(key, da.from_array(Y, chunks=100))
    next_call_is_right()


def broken(error):
    def gather(futures):
        raise error

    return gather


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (KilledWorker("task", None, 3), ClusterError),
        (CommClosedError("the connection is gone"), ClusterError),
        (CancelledError("task"), ClusterError),
        (ZeroDivisionError("of a task"), ZeroDivisionError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, BaseException) else "",
)
def test_whatever_goes_wrong_nothing_goes_on(error, raised, on_cluster, monkeypatch):
    sent, send = [], on_cluster.compute
    monkeypatch.setattr(on_cluster, "compute", lambda tasks: sent.extend(send(tasks)) or sent)
    monkeypatch.setattr(on_cluster, "gather", broken(error))
    with pytest.raises(raised):
        running.compute([delayed(abs)(-1), delayed(abs)(-2)])
    assert [future.cancelled() for future in sent] == [True, True]


def test_results_are_released_where_they_were_computed(on_cluster, monkeypatch):
    """Whatever is still wanted is computed again when a worker dies, and may kill the next one."""
    monkeypatch.setattr(running, "POLL_SECONDS", 0.01)
    gc.disable()
    try:
        assert running.compute([delayed(slowly, pure=False)(at) for at in (1, 2)]) == [1, 2]
        on_cluster.sync(asyncio.sleep, 0)  # the event loop does things in their order
        assert not [key for key in on_cluster.futures if "slowly" in str(key)]
    finally:
        gc.enable()


def of_this_cluster():
    return regard.pool(X[:10], X, Y, Gaussian(), engine="dask")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_client_from_before_a_fork_is_an_error(on_cluster):
    """Its event loop runs in the parent: whatever waits for it in the child would wait forever."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        future = pool.apply_async(of_this_cluster)
        with pytest.raises(ClusterError, match=r"created before this process was forked.*create a distributed.Client"):
            future.get(timeout=60.0)


def fail(block):
    raise ZeroDivisionError("the disk of this block is broken")


def test_a_task_that_cannot_succeed_fails_with_its_cause(on_cluster):
    key = da.from_array(X, chunks=(1000, 2), name=False).map_blocks(fail, dtype=float, meta=X[:0])
    with pytest.raises(ZeroDivisionError, match="the disk of this block is broken"):
        regard.pool(X[:10], key, da.from_array(Y, chunks=1000), Gaussian())


def test_98_scattered_data_that_is_lost_is_an_error(fresh):
    """What was only ever sent to one worker cannot be made again."""
    (worker, *_) = fresh.scheduler_info()["workers"]
    future = fresh.scatter(X, workers=[worker], broadcast=False)
    key = da.from_delayed(delayed(np.asarray)(future), X.shape, dtype=float)
    pids = fresh.run(os.getpid)
    os.kill(pids[worker], signal.SIGKILL)
    time.sleep(0.5)
    start = time.monotonic()
    with pytest.raises(ClusterError, match="lost"):
        regard.pool(X[:10], key, Y, Gaussian())
    assert time.monotonic() - start < LONGEST


SCHEDULER = """
import asyncio, sys
from distributed import Scheduler
async def main():
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0") as scheduler:
        print(scheduler.address, flush=True)
        await scheduler.finished()
asyncio.run(main())
"""
WORKER = """
import asyncio, sys
from distributed import Worker
async def main():
    async with Worker(sys.argv[1], host="127.0.0.1", nthreads=1, dashboard=False) as worker:
        print("ready", flush=True)
        await worker.finished()
asyncio.run(main())
"""


def test_103_the_death_of_the_scheduler_is_a_prompt_error(monkeypatch):
    from distributed import Client

    monkeypatch.setattr(running, "SCHEDULER_TIMEOUT", 2.0)
    # The scheduler reads the graph, and so needs what this file imports.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "env": env}
    with subprocess.Popen([sys.executable, "-c", SCHEDULER], **run) as scheduler:
        address = scheduler.stdout.readline().strip()
        with subprocess.Popen([sys.executable, "-c", WORKER, address], **run) as worker:
            worker.stdout.readline()
            client = Client(address)
            threading.Timer(0.7, scheduler.kill).start()
            start = time.monotonic()
            key = da.from_array(X, chunks=(100, 2), name=False).map_blocks(slowly, seconds=0.3, dtype=float)
            gone = pytest.raises(ClusterError, match=r"the scheduler at .* has been unreachable|lost")
            with client.as_current(), gone:
                regard.pool(X[:10], key, cut(Y, "one").rechunk(100), Gaussian())
            assert time.monotonic() - start < 60.0
            client.close(timeout=1)
            worker.kill()


def test_listening_on_loopback_only(client):
    """Every socket that the tests' cluster listens on, its web servers included."""
    import psutil

    pids = [os.getpid(), *client.run(os.getpid).values()]
    ports = [one for pid in pids for one in psutil.Process(pid).net_connections("tcp") if one.status == "LISTEN"]
    assert ports
    assert {one.laddr.ip for one in ports} == {"127.0.0.1"}


def test_memory_is_that_of_chunks(fresh):
    """Keys of 32 MB pass through workers that never hold more than some chunks."""
    key = da.random.default_rng(0).normal(size=(2_000_000, 2), chunks=(100_000, 2))
    got = regard.pool(np.zeros((100, 2)), key, key[:, 0], Gaussian(3.0))
    assert np.isfinite(got.output).all()
    import psutil

    most = [psutil.Process(pid).memory_info().rss for pid in fresh.run(os.getpid).values()]
    assert max(most) < 6e8
