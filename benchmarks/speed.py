"""Time of pooling against the number of rows, regard and its peers in one run, and what was asked of a million rows.

    python benchmarks/speed.py            half an hour; writes results/speed.json, speed.md and speed.png
    python benchmarks/speed.py --quick    a minute or two; fewer and smaller cases; prints only

Contestants take turns, round after round; medians are compared. Compilation, tuning and what a peer does once with
the keys are not in the times; regard's times are those of the whole public call.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from math import isfinite
from time import perf_counter
from typing import Any

from machine import RESULTS, describe, facts, save, table
from peers import private_keops, use_all_cores
from regard import explain_plan
from regard.racing.race import Contestant, judge, race, span
from regard.scores import Gaussian
from speed_cases import CLUSTERED, CLUSTERS, LEARN, SPREAD, TOL, Case
from speed_floors import FLOORS, MILLION, SELECTIONS, Floor, growth, memory, over_all_pairs, selection
from speed_peers import LONGEST, NEIGHBOURS, RANKED, Field

SIZES = (100, 300, 1_000, 3_000, 10_000, 100_000, MILLION)
CASES = (
    *(Case(1, n) for n in (*SIZES, 10_000_000)),
    *(Case(d, n) for d in (2, 3) for n in SIZES),
    *(Case(CLUSTERED, n) for n in (10_000, MILLION)),
)
QUICK = tuple(Case(d, n) for d in (1, 2) for n in (100, 1_000, 10_000))
RANKED_FROM = 1_000  # rows from which regard is to be ahead of all peers
BEHIND = 2.0  # how much slower than the best it may be below that
TRUTH_PAIRS = 1 << 27
HEAD = ["d", "rows", "contestant", "time", "slowest–fastest", "regard is", "error", "queries"]


def run(case: Case, field: Field, rounds: int) -> list[Contestant]:
    """All times and errors for one case, regard first."""
    contestants = field.contestants(case)
    # A call of many seconds needs no more than three.
    race(contestants, rounds if contestants[0].calls > 1 else 3)
    judge(contestants, case.rows, case.w, TRUTH_PAIRS)
    return contestants


def lines(case: Case, contestants: list[Contestant]) -> Iterator[list[str]]:
    """The lines of the table for one case."""
    ours = contestants[0]
    for one in contestants:
        scale = one.of / one.queries
        error = f"{one.error:.0e}" + (" > tol" if one.error > TOL else "")
        yield [
            str(case.d),
            f"{case.n:,}",
            one.name + (f" ({chosen(case)})" if one is ours else ""),
            ("≈ " if one.part else "") + span(one.time),
            f"{span(max(one.seconds) * scale)} – {span(min(one.seconds) * scale)}",
            "" if one is ours else f"{one.time / ours.time:,.3g}×" + ("" if ranked(one) else ", unranked"),
            error,
            f"{one.queries:,}",
        ]


def chosen(case: Case) -> str:
    return explain_plan(*case.rows, Gaussian(case.w), tol=TOL).steps[0].engine


def ranked(one: Contestant) -> bool:
    """Whether it does the same work, and well enough."""
    return one.name in RANKED and one.error <= TOL


def rank(case: Case, contestants: list[Contestant]) -> Floor:
    """Regard beside the best of the ranked peers."""
    ours = contestants[0]
    best = min((one for one in contestants if ranked(one)), key=lambda one: one.time)
    ratio = best.time / ours.time
    asked = 1.0 if case.n >= RANKED_FROM else 1.0 / BEHIND
    return Floor(
        f"{case.name}: speed over the best peer",
        f"≥ {asked:g}×" if case.n < RANKED_FROM else "> 1×",
        f"{ratio:,.3g}×",
        (ratio > 1.0 if case.n >= RANKED_FROM else ratio >= asked) and ours.error <= TOL,
        f"{best.name}: {'≈ ' if best.part else ''}{span(best.time)} against {span(ours.time)}",
    )


def record(case: Case, contestants: list[Contestant]) -> dict[str, Any]:
    return {
        "d": case.d,
        "n": case.n,
        "bandwidth": case.bandwidth,
        "engine": chosen(case),
        "contestants": [
            {"name": one.name, "time": one.time, "extended": one.part, "queries": one.queries}
            | {
                "seconds_of_a_call": one.seconds,
                "error_over_range": one.error if isfinite(one.error) else None,
                "ranked": ranked(one),
            }
            for one in contestants
        ],
    }


def text_of(machine: dict[str, Any], rounds: int, rows: list[list[str]], floors: list[Floor], field: Field) -> str:
    """The whole result as Markdown."""
    absent = "".join(f" Absent: {name} ({why})." for name, why in field.absent.items())
    verdicts = [floor.cells() for floor in floors]
    return "\n".join(
        [
            "# Speed: time against rows",
            "",
            describe(machine),
            "",
            f"n queries over n keys, Gaussian, float64, tol {TOL:g}; keys and queries uniform on [0, 5)^d, for d = "
            f"{CLUSTERED} in {CLUSTERS} clusters {SPREAD} wide; values Σ(2 sin x + x^0.8) + N(0, 0.5²)."
            f" The bandwidth is the leave-one-out one, learned from up to {LEARN:,} rows (d = 1: a million) and "
            f"for more shrunk by n^(−1/(d + 4)). Medians of {rounds} rounds in turn (3 for long calls). ≈: extended "
            f"in proportion from fewer queries, always over all keys; who would take {LONGEST:.0f} s for its smallest "
            "call is left out. Error: largest of the first answers, against direct differences in float64, in units of "
            f"the range of the values; those above tol are not ranked. KNeighbors averages the {NEIGHBOURS} nearest "
            "keys and RadiusNeighbors those within √(2 ln(n/tol)) bandwidths: shown beside the others, not ranked. "
            f"Load average at the end {os.getloadavg()[0]:.2f}.{absent}",
            "",
            table(HEAD, rows),
            "",
            "## What was asked",
            "",
            table(["what", "asked", "measured", "verdict", "detail"], verdicts),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of pooling against rows, regard and its peers in one run.")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller cases; prints, writes nothing")
    quick = parser.parse_args().quick
    rounds, seconds = (3, 0.05) if quick else (5, 0.4)
    started = perf_counter()
    machine = facts()
    print(describe(machine), flush=True)
    use_all_cores()
    private_keops()
    field = Field(seconds)
    rows: list[list[str]] = []
    ranks: list[Floor] = []
    floors: list[Floor] = []
    cases = []
    for case in QUICK if quick else CASES:
        contestants = run(case, field, rounds)
        rows += lines(case, contestants)
        ranks.append(rank(case, contestants))
        cases.append(record(case, contestants))
        if case.n == MILLION:
            floors += over_all_pairs(case, contestants[0], seconds, 3)
        print(f"{case.name}: done after {perf_counter() - started:.0f} s", flush=True)
    if quick:
        floors += growth((10_000, 100_000), 3) + memory([Case(1, 100_000)]) + [selection(1, 10_000, 3)]
    else:
        floors += growth((100_000, MILLION, 10_000_000), 3)
        floors += memory([Case(1, MILLION), Case(1, 10_000_000), *(Case(d, MILLION) for d in FLOORS if d > 1)])
        floors += [selection(d, n, 3) for d, n in SELECTIONS]
    text = text_of(machine, rounds, rows, [*floors, *ranks], field)
    print("\n" + text)
    if quick:
        print("\nquick run, on smaller problems than were asked about: nothing written")
        return
    from speed_plot import draw

    asked = [floor._asdict() for floor in (*floors, *ranks)]
    save("speed", {"machine": machine, "cases": cases, "asked": asked, "absent": field.absent}, text)
    draw(cases, RESULTS / "speed.png")


if __name__ == "__main__":
    main()
