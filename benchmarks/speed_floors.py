"""What was asked of a million rows, beside what is measured: speed, growth, memory and bandwidth selection.

python benchmarks/speed_floors.py D N H    the memory of one case, as JSON; the benchmark calls it in a new process
"""

from __future__ import annotations

import json
import subprocess
import sys
from math import log
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from memory import restart_peak, status
from peers import IN_PLACE, PLAIN
from regard import NadarayaWatsonRegressor, explain_plan, pool
from regard.racing.race import Contestant, RaceProblem, clock, entered, race, span
from regard.scores import Epanechnikov, Gaussian, Laplace, Score
from speed_cases import CLUSTERED, TOL, Case
from speed_peers import PEERS, TILED, pooling

MILLION = 1_000_000
BASE = 50_000  # rows that the time of all who visit all pairs is extended from
FLOORS = {
    1: {PLAIN: 10_000.0, IN_PLACE: 10_000.0, TILED: 1_000.0},
    2: {TILED: 100.0},
    3: {TILED: 10.0},
    CLUSTERED: {TILED: 5.0},
}
SLOPE = 1.15
BYTES = 40  # per row and query, for each feature, value and two more
PASSES = 40.0
SELECTIONS = ((1, MILLION), (2, 200_000))


class Floor(NamedTuple):
    """One line: what was asked, what was measured, and whether that is enough."""

    what: str
    asked: str
    measured: str
    passed: bool
    detail: str

    def cells(self) -> list[str]:
        return [self.what, self.asked, self.measured, "pass" if self.passed else "SHORT", self.detail]


def over_all_pairs(case: Case, ours: Contestant, seconds: float, rounds: int) -> list[Floor]:
    """How much faster regard is than those who see every pair, whose time is extended from ``BASE``² pairs."""
    # The same rows and bandwidth, so that far weights are as far and as often subnormal as in the whole problem.
    part = RaceProblem(*(array[:BASE] for array in case.rows))
    query, key, value = part
    asked = FLOORS[case.d]
    contestants = [entered(TILED, pooling(part, Gaussian(case.w), "tiled"), query, seconds)]
    for peer in PEERS:
        if peer.name in asked:
            run = peer.prepare(key, value, case.w)
            # Of the settings, eight rows and thirty-two are the fastest for so many keys; the better one runs.
            attempts = [entered(peer.name, lambda q, r=r, run=run: run(q, r), query, seconds, 64) for r in (8, 32)]
            race(attempts, 1)
            best = min(attempts, key=lambda one: one.time)
            best.seconds.clear()
            contestants.append(best)
    race(contestants, rounds)
    scale = (case.n / BASE) ** 2
    return [
        Floor(
            f"{case.name}: speed over {one.name}",
            f"≥ {asked[one.name]:,.0f}×",
            f"{one.time * scale / ours.time:,.0f}×",
            one.time * scale / ours.time >= asked[one.name],
            f"{span(ours.time)} against ≈ {span(one.time * scale)}",
        )
        for one in contestants
    ]


def growth(sizes: tuple[int, ...], rounds: int) -> list[Floor]:
    """How the time grows with the rows in one feature: the slope from the first size to the last, on log-log axes."""
    found = []
    for kind in ("Gaussian", "Epanechnikov", "Laplace"):
        times, engines = [], []
        for n in sizes:
            given, score = Case(1, n).rows, scored(kind, Case(1, n).bandwidth)
            one = entered(kind, pooling(given, score), given.query, 0.0)
            race([one], rounds)
            times.append(one.time)
            engines.append(explain_plan(*given, score, tol=TOL).steps[0].engine)
        slope = log(times[-1] / times[0]) / log(sizes[-1] / sizes[0])
        detail = " → ".join(f"{span(time)} ({name})" for time, name in zip(times, engines, strict=True))
        what = f"growth over {', '.join(f'{n:,}' for n in sizes)} rows, d = 1, {kind}"
        found.append(Floor(what, f"slope ≤ {SLOPE}", f"{slope:.2f}", slope <= SLOPE, detail))
    return found


def scored(kind: str, h: float) -> Score:
    """A kernel as wide as the Gaussian of bandwidth h: of the same standard deviation in one feature."""
    if kind == "Epanechnikov":
        return Epanechnikov(1.0 / (5.0**0.5 * h))
    return Laplace(2.0**0.5 / h) if kind == "Laplace" else Gaussian(1.0 / h)


def memory(cases: list[Case]) -> list[Floor]:
    """Peak memory of one call, inputs and answers included, each case in a process of its own."""
    found = []
    for case in cases:
        command = [sys.executable, __file__, str(case.d), str(case.n), str(case.bandwidth)]
        measured = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        limit = BYTES * 2 * case.n * (case.d + 3) / 1e6
        what, detail = f"{case.name}: peak memory", f"inputs {measured['inputs_mb']:.0f} MB; {measured['peak']}"
        found.append(Floor(what, f"≤ {limit:,.0f} MB", f"{measured['mb']:,.0f} MB", measured["mb"] <= limit, detail))
    return found


def measured_memory(case: Case, h: float) -> dict[str, Any]:
    """Megabytes of the inputs and of what one call adds to them, in this process."""
    # The bandwidth is given: learning it here would leave freed memory behind, which the call could take unseen.
    warm = Case(case.d, min(case.n, 100_000))
    pooling(warm.rows, Gaussian(1.0 / h))(warm.rows.query)
    run = pooling(case.rows, Gaussian(1.0 / h))
    query = case.rows.query
    inputs = sum(array.nbytes for array in case.rows) / 1e6
    how, before = restart_peak()
    answer = run(query)
    added = status("VmHWM") - before
    assert answer.shape == (case.n,)
    return {"mb": inputs + added, "inputs_mb": inputs, "peak": how}


def selection(d: int, n: int, rounds: int) -> Floor:
    """Leave-one-out selection of the bandwidth, in passes of prediction over as many rows and queries."""
    _, key, value = Case(d, n).rows
    # Compile on few rows, and on as many as choose the engines of the whole.
    for count in (2_000, min(n, 50_000)):
        NadarayaWatsonRegressor(bandwidth="loo").fit(key[:count], value[:count])
    model = NadarayaWatsonRegressor(bandwidth="loo")
    seconds = clock(lambda: model.fit(key, value))
    score = Gaussian(model.w_)
    one_pass = median(clock(lambda: pool(key, key, value, score, tol=TOL)) for _ in range(rounds))
    passes = seconds / one_pass
    widths = ", ".join(f"{h:.4g}" for h in np.ravel(model.bandwidth_))
    detail = (
        f"{span(seconds)} against {span(one_pass)}; {model.search_.evaluations} evaluations; h = {widths} "
        f"(in the table: {Case(d, n).bandwidth:.4g})"
    )
    what = f"leave-one-out selection, {n:,} rows, d = {d}"
    return Floor(what, f"≤ {PASSES:.0f} passes", f"{passes:.1f}", passes <= PASSES, detail)


if __name__ == "__main__":
    print(json.dumps(measured_memory(Case(*map(int, sys.argv[1:3])), float(sys.argv[3]))))
