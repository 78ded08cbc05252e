"""A cluster of processes on this machine: what spreading the work costs, what moves, and what a large one would take.

    python benchmarks/cluster.py [--rows 200000] [--keys 10000000] [--queries 100000]

1. The same brute force (tiled engine, every pair) by threads of one process and by 1, 2 and 4 workers of dask. Workers
   are processes with one thread each; with more workers than cores they share them.
2. Bytes that workers sent each other, states and rows, beside what ``explain_plan`` expected.
3. Many keys, d = 2: time and memory of all processes together.
4. ``fit`` in memory and on two workers: the same bandwidth, and how long it takes; one look of leave-one-out.
5. What a hundred machines would need for 10⁹ keys, by the constants measured here.
"""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter, sleep
from typing import Any

import dask.array as da
import numpy as np
import psutil
from distributed import Client, LocalCluster

import regard
from machine import cores, describe, facts, save, table
from regard.bandwidth.binary_scaling import powers_of_two
from regard.bandwidth.objective import Objective
from regard.cluster.blocked_rows import blocked_rows, with_summaries
from regard.cluster.cluster_objective import cluster_objective, divide_keys, learnable
from regard.scores import Gaussian

RUNS = 3
W = 50.0
# Of the imagined cluster.
MACHINES, CORES_EACH, ROWS, ASKED, NETWORK = 100, 32, 10**9, 10**6, 1.25e9


@contextmanager
def workers(count: int) -> Iterator[Client]:
    options: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with LocalCluster(n_workers=count, threads_per_worker=1, **options) as cluster, Client(cluster) as client:
        client.run(_warm)
        yield client


def _warm() -> None:
    """Programs loaded from the cache, as in a worker that has been there for a while."""
    x = np.linspace(0.0, 1.0, 3000)[:, None]
    for engine in ("tiled", "pruned", "auto"):
        regard.pool(x, x, x[:, 0], Gaussian(W), engine=engine)


def timed(call: Callable[[], Any], runs: int = RUNS) -> float:
    found = []
    for _ in range(runs):
        start = perf_counter()
        call()
        found.append(perf_counter() - start)
    return median(found)


def moved(client: Client) -> dict[str, float]:
    """Bytes of states and of anything else that workers have got from each other since the last call."""
    found = {"states": 0.0, "rows": 0.0}
    for log in client.run(_received).values():
        for name, size in log:
            found["states" if name.startswith(("regard-state", "regard-merge")) else "rows"] += size
    return found


def _received(dask_worker: Any) -> list[tuple[str, int]]:
    log = dask_worker.transfer_incoming_log
    found = [(str(key), size) for entry in log for key, size in entry["keys"].items()]
    log.clear()
    return found


def spent() -> float:
    """Seconds of computing by this process and its workers so far."""
    here, total = psutil.Process(), 0.0
    for one in [here, *here.children(recursive=True)]:
        times = one.cpu_times()
        total += times.user + times.system
    return total


class Memory:
    """The most memory that this process and its workers held together."""

    def __init__(self) -> None:
        self.most, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        here = psutil.Process()
        while not self._stop.is_set():
            total = 0
            for one in [here, *here.children(recursive=True)]:
                try:
                    total += one.memory_full_info().pss
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
            self.most = max(self.most, total)
            sleep(0.1)


def brute_force(rows: int, counts: list[int]) -> list[dict[str, Any]]:
    """Every pair of so many rows, by one process and by clusters, all in turns."""
    rng = np.random.default_rng(0)
    x = rng.random((rows, 2))
    y = np.sin(9.0 * x[:, 0])
    _warm()
    key, value = da.from_array(x, chunks=(rows // 8, 2)), da.from_array(y, chunks=rows // 8)
    found: list[dict[str, Any]] = [{"who": f"one process, {cores()} threads", "seconds": []}]
    with ExitStack() as stack:
        clusters = [(count, stack.enter_context(workers(count))) for count in counts]
        kept = [client.persist([key, value]) for _, client in clusters]
        found += [{"who": f"{count} worker" + "s" * (count > 1), "moved": []} for count in counts]
        for row, (_, client), (keys, values) in zip(found[1:], clusters, kept, strict=True):
            with client.as_current():
                row["plan"] = _planned(regard.explain_plan(keys, keys, values, Gaussian(W), engine="tiled"))
            row["seconds"] = []
        # Making a cluster of processes leaves this one with a single thread.
        os.environ.pop("OMP_NUM_THREADS", None)
        for _ in range(RUNS):
            start, cpu = perf_counter(), spent()
            truth = regard.pool(x, x, y, Gaussian(W), engine="tiled").output
            found[0]["seconds"].append(perf_counter() - start)
            found[0].setdefault("cpu", []).append(spent() - cpu)
            for row, (_, client), (keys, values) in zip(found[1:], clusters, kept, strict=True):
                moved(client)
                with client.as_current():
                    start, cpu = perf_counter(), spent()
                    answer = regard.pool(keys, keys, values, Gaussian(W), engine="tiled").output.compute()
                row["seconds"].append(perf_counter() - start)
                row.setdefault("cpu", []).append(spent() - cpu)
                row["moved"].append(moved(client))
                row["error"] = float(np.abs(answer - truth).max())
                print(row, flush=True)
    for row in found:
        row["ratio"], row["cpu_ratio"] = (median(row[k]) / median(found[0][k]) for k in ("seconds", "cpu"))
    return found


def many_keys(keys: int, queries: int) -> list[dict[str, Any]]:
    """So many keys and queries in the plane, the engine of each pair as the planner chooses; several runs."""
    found = []
    for _ in range(RUNS):
        with workers(2) as client, Memory() as memory:
            rng = da.random.default_rng(1)
            key = rng.random((keys, 2), chunks=(keys // 20, 2))
            value = da.sin(9.0 * key[:, 0])
            query = rng.random((queries, 2), chunks=(queries // 2, 2))
            key, value, query = client.persist([key, value, query])
            start = perf_counter()
            plan = regard.explain_plan(query, key, value, Gaussian(W))
            moved(client)
            answer = regard.pool(query, key, value, Gaussian(W)).output.compute()
            seconds, bytes_ = perf_counter() - start, moved(client)
        assert np.isfinite(answer).all()
        one = {"seconds": seconds, "memory": memory.most, "moved": bytes_, "plan": _planned(plan)}
        found.append({**one, "pairs": plan.pairs, "engines": dict(plan.engines)})
        print(found[-1], flush=True)
    return found


def _planned(plan: Any) -> dict[str, float]:
    return {"states": plan.states, "rows": plan.moved - plan.states}


def fits(sizes: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """``fit`` of so many rows and features, in memory and on two workers."""
    found = []
    with workers(2) as client:
        os.environ.pop("OMP_NUM_THREADS", None)
        for rows, width in sizes:
            rng = np.random.default_rng(2)
            x = rng.random((rows, width))
            y = np.sin(9.0 * x[:, 0]) + 0.3 * rng.normal(size=rows)
            start = perf_counter()
            here = regard.NadarayaWatsonRegressor().fit(x, y)
            alone = perf_counter() - start
            key, value = client.persist(
                [da.from_array(x, chunks=(rows // 4, width)), da.from_array(y, chunks=rows // 4)]
            )
            start = perf_counter()
            there = regard.NadarayaWatsonRegressor().fit(key, value)
            both = perf_counter() - start
            w, other = 1.0 / here.bandwidth_, 1.0 / there.bandwidth_
            found.append(
                {
                    "rows": rows,
                    "width": width,
                    "alone": alone,
                    "cluster": both,
                    "objective": abs(there.search_.value / here.search_.value - 1.0),
                    "w": float(np.abs(w - other).max() / w.max()),
                }
            )
            print(found[-1], flush=True)
    return found


def leave_one_out(rows: int) -> dict[str, Any]:
    """The criterion of so many rows and its gradient, by map and reduce and by one process that reads it twice too."""
    rng = np.random.default_rng(2)
    x = rng.random((rows, 3))
    y = np.sin(9.0 * x[:, 0]) + 0.1 * rng.normal(size=rows)
    w = np.array([20.0, 20.0, 20.0])
    here = replace(Objective.of(x, y, engine="tiled"), tol=1e-15)
    whole = here(w, gradient=True)
    alone = timed(lambda: here(w, gradient=True))
    with workers(2):
        chunks = rows // 4
        parts = da.from_array(x, chunks=(chunks, 3)), da.from_array(y, chunks=chunks)
        (table_,) = with_summaries(blocked_rows("X", *parts))
        power = powers_of_two(table_.overall_bounds("key"), common=False)
        place = partial(divide_keys, power=power)
        there = cluster_objective(learnable(table_), place, kernel="gaussian", degree=0, engine="tiled")
        scaled = np.ldexp(w, power)
        found = there(scaled, gradient=True)
        seconds = timed(lambda: there(scaled, gradient=True))
    return {"alone": alone, "cluster": seconds, "difference": abs(found.value - whole.value) / whole.value}


def constants() -> dict[str, float]:
    """What one task, one byte and one merged state cost."""
    from regard.core.problem import build
    from regard.pooling.mergeable_state import state_of

    with workers(2) as client:
        client.gather(client.map(_nothing, range(2000), pure=False))
        task = timed(lambda: client.gather(client.map(_nothing, range(2000), pure=False))) / 2000
        names = list(client.scheduler_info()["workers"])
        big = client.submit(np.ones, 2**25, workers=[names[0]], pure=False)
        big.result()
        start = perf_counter()
        client.submit(len, big, workers=[names[1]], pure=False).result()
        byte = (perf_counter() - start) / 2**28
    rng = np.random.default_rng(3)
    q = rng.random((100_000, 2))
    state = state_of(build(q, q[:100], q[:100, :1], Gaussian(W)))
    merged = timed(lambda: state.joined(state)) / len(q)
    return {"task": task, "byte": byte, "merge": merged}


def _nothing(number: int) -> int:
    return number


def imagined(found: dict[str, Any]) -> list[list[str]]:
    """Seconds of each part on a hundred machines, by what was measured here."""
    rate = found["pairs_per_second_and_core"]
    cost, rows = found["constants"], []
    machines_cores = MACHINES * CORES_EACH
    chunk = 10**6
    for name, near in (("every pair", 1.0), ("one chunk in fifty is near", 0.02)):
        blocks, asked = ROWS // chunk, max(1, ASKED // 10**5)
        pairs = near * blocks * asked
        computing = near * ROWS * ASKED / rate / machines_cores
        states = pairs * (ASKED / asked) * 32.0
        moving = states / (MACHINES * NETWORK)
        merging = pairs * (ASKED / asked) * cost["merge"] / machines_cores
        scheduling = 2.0 * pairs * cost["task"]
        cells = [
            f"{pairs:,.0f}",
            *(f"{x:,.1f}" for x in (computing, moving, merging, scheduling)),
            f"{states / 1e9:,.0f}",
        ]
        rows.append([name, *cells])
    return rows


def _sizes(moves: list[dict[str, float]], what: str) -> str:
    """In MB, from the least to the most."""
    sizes = sorted(move[what] / 1e6 for move in moves)
    return f"{sizes[0]:.1f}" if len(sizes) == 1 else f"{sizes[0]:.1f}-{sizes[-1]:.1f}"


def result_page(machine: dict[str, Any], found: dict[str, Any]) -> str:
    brute = [
        [
            row["who"],
            f"{median(row['seconds']):.1f}",
            f"{row['ratio']:.2f}",
            f"{median(row['cpu']):.1f}",
            f"{row['cpu_ratio']:.2f}",
            _sizes(row["moved"], "states") if "moved" in row else "",
            _sizes([row["plan"]], "states") if "plan" in row else "",
            _sizes(row["moved"], "rows") if "moved" in row else "",
            f"{row['error']:.0e}" if "error" in row else "",
        ]
        for row in found["brute_force"]
    ]
    runs, left_out, cost = found["many_keys"], found["leave_one_out"], found["constants"]
    many = runs[0]
    learned = [
        [f"{one['rows']:,}", str(one["width"])]
        + [
            f"{one[name]:{form}}"
            for name, form in (("alone", ".1f"), ("cluster", ".1f"), ("objective", ".0e"), ("w", ".0e"))
        ]
        for one in found["fits"]
    ]
    return "\n\n".join(
        [
            "# A cluster of processes on one machine",
            describe(machine),
            f"Every pair of {found['rows']:,} rows (d = 2, Gaussian, tiled engine, chunks of {found['rows'] // 8:,}), "
            f"medians of {RUNS}. The machine has {cores()} cores: with more workers than that they share them. "
            "Core seconds are those of all processes together, and suffer less from whatever else the machine does.",
            table(
                [
                    "who",
                    "seconds",
                    "beside one process",
                    "core seconds",
                    "beside one process",
                    "MB of states moved",
                    "as planned",
                    "MB of rows",
                    "largest difference",
                ],
                brute,
            ),
            f"{found['keys']:,} keys × {found['queries']:,} queries (d = 2, engines as planned: {many['engines']}), 2 "
            f"workers, {len(runs)} runs: {median(run['seconds'] for run in runs):.1f} s, "
            f"{max(run['memory'] for run in runs) / 1e9:.2f} GB in all processes together, "
            f"{many['pairs']} pairs of chunks. Moved: {_sizes([run['moved'] for run in runs], 'states')} MB of states "
            f"(planned from where the chunks lay: {_sizes([run['plan'] for run in runs], 'states')}; all of them are "
            f"{found['queries'] * 20 * 32 / 1e6:.0f}), {_sizes([run['moved'] for run in runs], 'rows')} MB of rows, "
            "which dask moves where a worker has nothing to do.",
            "NadarayaWatsonRegressor().fit, up to a million rows one task on one worker with one thread:",
            table(["rows", "d", "one process, s", "2 workers, s", "objectives differ by", "w differs by"], learned),
            f"Leave-one-out with gradient of {found['loo_rows']:,} rows (d = 3, every pair, a look and a pull): one "
            f"process {left_out['alone']:.1f} s, 2 workers by map and reduce {left_out['cluster']:.1f} s, criteria "
            f"differ by {left_out['difference']:.0e}.",
            f"Constants: {1e3 * cost['task']:.2f} ms a task, {1e9 * cost['byte']:.2f} ns a byte between workers "
            f"(loopback), {1e9 * cost['merge']:.0f} ns a merged state of one query, "
            f"{found['pairs_per_second_and_core'] / 1e9:.2f}·10⁹ pairs a second and core.",
            f"By these constants, {ROWS:,} keys in chunks of a million and {ASKED:,} queries in chunks of 100,000 on "
            f"{MACHINES} machines of {CORES_EACH} cores, {NETWORK / 1e9:.2f} GB/s each; seconds of every part:",
            table(
                ["", "pairs of chunks", "computing", "moving", "merging", "scheduling", "GB of states"], imagined(found)
            ),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--loo-rows", type=int, default=40_000)
    parser.add_argument("--workers", default="1,2,4")
    given = parser.parse_args()
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    machine = facts()
    found: dict[str, Any] = {
        "rows": given.rows,
        "keys": given.keys,
        "queries": given.queries,
        "loo_rows": given.loo_rows,
    }
    found["brute_force"] = brute_force(given.rows, [int(count) for count in given.workers.split(",")])
    found["pairs_per_second_and_core"] = given.rows**2 / median(found["brute_force"][0]["cpu"])
    found["many_keys"] = many_keys(given.keys, given.queries)
    found["fits"] = fits([(40_000, 3), (40_000, 6), (400_000, 1), (2_000_000, 1)])
    found["leave_one_out"] = leave_one_out(given.loo_rows)
    found["constants"] = constants()
    text = result_page(machine, found)
    print(text)
    save("cluster", {"machine": machine, **found}, text)


if __name__ == "__main__":
    main()
