"""Pairs per second of pooling, regard and its peers side by side in one warm run.

    python benchmarks/pooling.py            about five minutes; writes results/pooling.json and pooling.md
    python benchmarks/pooling.py --quick    about two minutes; prints only

Contestants take turns, round after round, so that a busy moment of the machine hits all of them; medians are
compared. Compilation and tuning happen before the first round and are printed.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

from machine import Ceiling, cores, describe, facts, first_calls, save, table
from peers import (
    CASES,
    DIRECT,
    IN_PLACE,
    PEERS,
    PLAIN,
    SAMPLE,
    SDPA,
    SIZE,
    Case,
    Peer,
    data,
    private_keops,
    truth,
    use_all_cores,
)
from regard import pool
from regard.scores import Gaussian

Array = NDArray[Any]

STEP = 512  # slow peers take a multiple of this many queries
REST = 0.1  # seconds between contestants: threads of BLAS and OpenMP spin a while after their work
# The wide cases are there for the floors: a look at them without subnormal numbers.
FOR_WIDE = (PLAIN, IN_PLACE, DIRECT, SDPA)
THREADS_FLOOR, ERROR_FLOOR = 1.8, 2.0
POLYNOMIAL_DEGREE = {"float32": 5, "float64": 11}  # of regard's power of two


@dataclass
class Contestant:
    """Someone who computes the answers of the first ``queries`` queries, and how long it took in each round."""

    name: str
    threads: str
    run: Callable[[], Array]
    queries: int
    setting: str = ""
    compile_seconds: float = 0.0
    error: float = float("nan")
    seconds: list[float] = field(default_factory=list)
    absent: str = ""

    @property
    def speed(self) -> float:
        """Pairs per second, median of the rounds."""
        return self.queries * SIZE / median(self.seconds) if self.seconds else float("nan")

    @property
    def fastest(self) -> float:
        """Pairs per second of the best round: the least disturbed one."""
        return self.queries * SIZE / min(self.seconds)

    def record(self) -> dict[str, Any]:
        """What the JSON keeps; JSON has no NaN."""
        whole = {k: v for k, v in asdict(self).items() if k != "run"} | {"pairs_per_second": self.speed}
        return {k: None if v != v else v for k, v in whole.items()}


def operations(case: Case) -> int:
    """Vector operations regard's fused loop needs per vector of pairs, with one w for all features.

    Features: difference and square each. Cut-off: one comparison. Power of two: round (fused, subtract), fraction
    (fused), polynomial (one fused each), exponent (shift, add). Sums: two fused.
    """
    return 2 * case.width + 1 + 3 + POLYNOMIAL_DEGREE[case.dtype] + 2 + 2


@contextmanager
def regard_threads(count: int) -> Iterator[None]:
    """Let regard use so many threads; it reads this variable at every call."""
    before = os.environ.get("NUMBA_NUM_THREADS")
    os.environ["NUMBA_NUM_THREADS"] = str(count)
    try:
        yield
    finally:
        os.environ.pop("NUMBA_NUM_THREADS")
        if before is not None:
            os.environ["NUMBA_NUM_THREADS"] = before


def enter(case: Case, seconds: float) -> list[Contestant]:
    """All contestants of a case, compiled, tuned and given a number of queries that takes about ``seconds``."""
    query, key, value, w = data(case)
    reference = truth(case, query, key, value, w)
    contestants = []
    for count in thread_counts():

        def run(count: int = count) -> Array:
            with regard_threads(count):
                return np.asarray(pool(query, key, value, Gaussian(w), engine="tiled").output)

        contestants.append(Contestant(f"regard, {count} thread{'s' * (count > 1)}", str(count), run, SIZE))
    invited = [peer for peer in PEERS if peer.only in ("", case.dtype) and (not case.h or peer.name in FOR_WIDE)]
    contestants += [_tuned(peer, query, key, value, w, seconds) for peer in invited]
    for contestant in contestants:
        if not contestant.absent:
            answer = contestant.run()
            if reference is not None:
                difference = answer[:SAMPLE].astype(reference.dtype) - reference[: len(answer)]
                contestant.error = float(np.abs(difference).max())
    return contestants


def _tuned(peer: Peer, query: Array, key: Array, value: Array, w: float, seconds: float) -> Contestant:
    """A peer at its fastest setting, or the reason why it is absent."""
    few = query[: peer.most or peer.tune_on]
    entry = Contestant(peer.name, peer.threads, lambda: query, peer.most or STEP)
    try:
        run = peer.prepare(key, value, w)
        first = _clock(partial(run, few, peer.settings[0]))
        times = dict.fromkeys(peer.settings, float("inf"))
        for setting in peer.settings * 3:
            times[setting] = min(times[setting], _clock(partial(run, few, setting)))
    except Exception as error:  # a peer that does not install or compile must not end the others' run
        entry.absent = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        return entry
    best = min(times, key=lambda setting: times[setting])
    if not peer.most:
        entry.queries = min(SIZE, max(1, round(seconds / times[best] * len(few) / STEP)) * STEP)
    if peer.compiles:
        entry.compile_seconds = first - times[best]
    part = query[: entry.queries]
    entry.run = lambda: run(part, best)
    entry.setting = f"{peer.setting} {best}" if len(times) > 1 else ""
    return entry


def _clock(run: Callable[[], Any]) -> float:
    sleep(REST)
    started = perf_counter()
    run()
    return perf_counter() - started


def race(case: Case, contestants: list[Contestant], rounds: int) -> dict[int, list[float]]:
    """Time all contestants in turn, each round from another starting point; give the ceilings by threads.

    A ceiling is the lanes per second of a loop of fused multiply-adds, once per round.
    """
    ceiling = Ceiling(case.dtype)
    rates: dict[int, list[float]] = {threads: [] for threads in thread_counts()}
    present = [contestant for contestant in contestants if not contestant.absent]
    gc.disable()
    for turn in range(rounds):
        sleep(REST)
        for threads, found in rates.items():
            found.append(ceiling.rate(threads))
        for contestant in present[turn % len(present) :] + present[: turn % len(present)]:
            contestant.seconds.append(_clock(contestant.run))
    gc.enable()
    return rates


def thread_counts() -> list[int]:
    """One, two where there are two, and all."""
    return sorted({1, min(2, cores()), cores()})


def rows(case: Case, contestants: list[Contestant], ceilings: dict[int, list[float]]) -> list[list[str]]:
    """The lines of the table for one case."""
    ours = _fastest(contestants)
    direct = next(c for c in contestants if c.name == DIRECT).error
    lines = []
    for c in contestants:
        if c.absent:
            lines.append([case.name, c.name, c.threads, "", "absent", c.absent, "", "", "", ""])
            continue
        regard = c.name.startswith("regard")
        low, high = (c.queries * SIZE / t / 1e9 for t in (max(c.seconds), min(c.seconds)))
        # The fastest round is the ceiling; a slower one only says that others were at work.
        share = c.speed * operations(case) / max(ceilings[int(c.threads)]) if regard else None
        lines.append(
            [
                case.name,
                c.name,
                c.threads + (f" ({c.setting})" if c.setting else ""),
                f"{c.queries:,}",
                f"{c.speed / 1e9:.3f}",
                f"{low:.3f}–{high:.3f}",
                "" if regard else f"{ours.speed / c.speed:.1f}×",
                f"{c.error:.1e}" if c.error == c.error else "not judged",
                f"{c.error / direct:.2f}" if c.error == c.error else "",
                f"{share:.0%}" if share else "",
            ]
        )
    return lines


HEAD = [
    "case",
    "contestant",
    "cores used (setting)",
    "queries",
    "Gpairs/s",
    "slowest–fastest",
    "regard is",
    "max error",
    "÷ numpy direct",
    "share of ceiling",
]


def floors(case: Case, contestants: list[Contestant], ceilings: dict[int, list[float]]) -> list[list[str]]:
    """Asked-for ratios beside the measured ones; the verdict goes by medians.

    The multiply-add loop shares nothing between its threads, so what it gains from two of them is what the machine
    had to give: less than 2 means that others were at work, and the verdicts say so.
    """
    by_name = {c.name: c for c in contestants if not c.absent}
    of_machine = [of(ceilings[2]) / of(ceilings[1]) for of in (median, max)] if 2 in ceilings else []
    noise = ", machine busy" if of_machine and of_machine[0] < THREADS_FLOOR else ""

    def verdict(what: str, a: Contestant, b: Contestant, floor: float) -> list[str]:
        ratio, fastest = a.speed / b.speed, a.fastest / b.fastest
        passed = ("pass" if ratio >= floor else "SHORT") + noise
        return [case.name, what, f"≥ {floor:g}×", f"{ratio:.2f}×", f"{fastest:.2f}×", passed]

    ours = _fastest(contestants)
    lines = [
        verdict(f"speed over {name}", ours, by_name[name], floor)
        if name in by_name
        else [case.name, f"speed over {name}", f"≥ {floor:g}×", "", "", "not judged: absent"]
        for name, floor in case.floors.items()
    ]
    one, two = by_name["regard, 1 thread"], by_name.get("regard, 2 threads")
    if two:
        lines.append(verdict("speed of two threads over one", two, one, THREADS_FLOOR))
        lines.append([case.name, "(the machine's own two over one)", "", *(f"{r:.2f}×" for r in of_machine), ""])
    ratio = max(c.error for c in contestants if c.name.startswith("regard")) / by_name[DIRECT].error
    if ratio == ratio:
        passed = "pass" if ratio <= ERROR_FLOOR else "SHORT"
        lines.append([case.name, "error over numpy, direct", f"≤ {ERROR_FLOOR:g}×", f"{ratio:.2f}×", "", passed])
    return lines


def _fastest(contestants: list[Contestant]) -> Contestant:
    return max((c for c in contestants if c.name.startswith("regard")), key=lambda c: c.speed)


def main() -> None:
    parser = argparse.ArgumentParser(description="Pairs per second of pooling, regard and its peers side by side.")
    parser.add_argument("--quick", action="store_true", help="fewer cases and rounds; prints, writes nothing")
    quick = parser.parse_args().quick
    rounds, seconds = (3, 0.3) if quick else (5, 0.4)
    started = perf_counter()
    machine = facts()
    print(describe(machine), flush=True)
    use_all_cores()
    lines, judged, cases = [], [], []
    compile_seconds: dict[str, float] = {}
    private_keops()
    compiling = first_calls()
    for case in CASES:
        if quick and not case.quick:
            continue
        contestants = enter(case, seconds)
        ceilings = race(case, contestants, rounds)
        lines += rows(case, contestants, ceilings)
        judged += floors(case, contestants, ceilings)
        for c in contestants:
            compile_seconds[c.name] = compile_seconds.get(c.name, 0.0) + c.compile_seconds
        cases.append(
            {"case": case.name, "bandwidth": case.bandwidth, "operations_per_vector": operations(case)}
            | {"ceiling_lanes_per_second": ceilings, "contestants": [c.record() for c in contestants]}
        )
        print(f"{case.name}: done after {perf_counter() - started:.0f} s", flush=True)
    slow = ", ".join(f"{name} {spent:.1f} s" for name, spent in compile_seconds.items() if spent > 1.0)
    text = "\n".join(
        [
            "# Pooling: pairs per second",
            "",
            describe(machine),
            "",
            f"{SIZE:,} keys; medians of {rounds} rounds in turn; peers use all {machine['cores']} cores where the "
            "table says so; errors: largest of the first "
            f"{SAMPLE} answers, against a wider dtype. Load average at the end {os.getloadavg()[0]:.2f}.",
            f"Compilation, not in the speeds: regard's first calls in float32 and float64 take "
            f"{compiling['new_seconds']:.1f} s, of which {compiling['new_compiler_seconds']:.1f} s in the compiler; "
            f"in later processes {compiling['cached_seconds']:.1f} s." + (f" Peers: {slow}." if slow else ""),
            "",
            table(HEAD, lines),
            "",
            "## Floors",
            "",
            table(["case", "what", "asked", "medians", "fastest rounds", "verdict by medians"], judged),
        ]
    )
    print("\n" + text)
    if quick:
        print("\nquick run: nothing written")
        return
    save("pooling", {"machine": machine, "compilation": compiling, "cases": cases, "floors": judged}, text)


if __name__ == "__main__":
    main()
