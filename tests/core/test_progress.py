"""Long work reports its progress to a callback, which may stop it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import regard
from regard.bandwidth import loo_objective
from regard.core.progress import progress_callback
from regard.scores import DotProduct, Gaussian, Tricube

X = np.random.default_rng(0).uniform(size=(5000, 3))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("score", "engine"), [(DotProduct(), "tiled"), (Gaussian(9.0), "tiled"), (Tricube(9.0), "pruned")]
)
def test_jobs_are_counted_to_the_end(monkeypatch, threads, score, engine):
    monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(threads)), raising=False)
    seen, who = [], set()

    def callback(done: int, total: int) -> None:
        seen.append((done, total))
        who.add(threading.current_thread())

    plain = regard.pool(X, X, X[:, 0], score, engine=engine)
    with regard.watching(callback):
        watched = regard.pool(X, X, X[:, 0], score, engine=engine)
    assert (watched.output == plain.output).all()
    done, total = zip(*seen, strict=True)
    assert len(set(total)) == 1
    assert total[0] > 1
    assert list(done) == sorted(done)
    assert done[-1] == total[-1]
    assert who == {threading.current_thread()}


def test_a_callback_may_stop_the_work():
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), regard.watching(stop):
        regard.pool(X, X, X[:, 0], DotProduct())
    # The callback is gone, and the threads are there for the next.
    assert progress_callback() is None
    assert np.isfinite(regard.pool(X, X, X[:, 0], DotProduct()).output).all()


def test_watching_reaches_whatever_runs_inside_and_ends_with_its_block():
    counts = {"outer": 0, "inner": 0}

    def counting(name: str):
        def callback(done: int, total: int) -> None:
            counts[name] += 1

        return callback

    with regard.watching(counting("outer")):
        loo_objective(X, X[:, 0], Gaussian(9.0))
        before = counts["outer"]
        with regard.watching(counting("inner")):
            loo_objective(X, X[:, 0], Gaussian(9.0))
        assert counts["outer"] == before
    assert before > 0
    assert counts["inner"] > 0
    loo_objective(X, X[:, 0], Gaussian(9.0))
    assert counts["outer"] == before
