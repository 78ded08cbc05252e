"""Accuracy: root mean squared error of regard's regressor beside trees, lines, neighbours, vectors and processes.

Five UCI sets with their twenty splits, California housing with five and six more sets with ten, all read from
../shared/data, none committed. Every contestant sees the same training rows in the same run; only KernelRegressor has
nothing to set.

    python benchmarks/accuracy.py [--sets yacht,energy] [--splits 3] [--only regard,boosting] [--jobs 8]
    python benchmarks/accuracy.py --sets autompg,machine --update

A run of everything writes results/accuracy.*; ``--update`` replaces the sets that were measured and keeps the others.
Seconds are comparable only with one job: several share the cores.
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import contestants as peers
from contestants import MAX_PROCESS_ROWS, Array, Fit
from machine import RESULTS, describe, facts, save, table
from regard import KernelRegressor

Split = tuple[Array, Array, Array, Array]

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
# What was asked of KernelRegressor, and what MC dropout is published with (Gal and Ghahramani, 2016).
FLOOR = {"yacht": 0.66, "energy": 0.46, "concrete": 5.0, "kin8nm": 0.077, "power-plant": 2.85, "california": 0.415}
PUBLISHED = {"yacht": 0.67, "energy": 0.54, "concrete": 4.82, "kin8nm": 0.08, "power-plant": 4.01}
MORE = ("airfoil", "autompg", "concreteslump", "machine", "skillcraft", "elevators")
SPLITS = dict.fromkeys(FLOOR, 20) | {"california": 5} | dict.fromkeys(MORE, 10)
# From the longest to the shortest, so that no long one is left to the end.
LONGEST = (
    *("elevators", "california", "kin8nm", "power-plant", "skillcraft", "airfoil", "concrete", "energy"),
    *("autompg", "yacht", "machine", "concreteslump"),
)
COVERAGE = 0.9

CONTESTANTS: dict[str, Fit] = {
    "regard": peers.regard(),
    "boosting": peers.boosting,
    "forest": peers.forest,
    "extra-trees": peers.extra_trees,
    "ridge": peers.ridge,
    "neighbours": peers.neighbours,
    "vectors": peers.vectors,
    "process": peers.best_process,
}


def uci(name: str) -> Iterator[Split]:
    """The twenty given splits of a UCI set."""
    folder = SHARED / "uci" / name
    data = np.loadtxt(folder / "data.txt")
    features = np.loadtxt(folder / "index_features.txt").astype(int)
    target = int(np.loadtxt(folder / "index_target.txt"))
    X, y = data[:, features], data[:, target]
    for number in range(20):
        train, test = (np.loadtxt(folder / f"index_{part}_{number}.txt").astype(int) for part in ("train", "test"))
        yield X[train], y[train], X[test], y[test]


def uci_more(name: str) -> Iterator[Split]:
    """The ten given splits of a set of the second collection: the last column is the target."""
    folder = SHARED / "uci-more"
    data = np.loadtxt(folder / f"{name}.data.csv.gz", delimiter=",")
    masks = np.loadtxt(folder / f"{name}.test_mask.csv.gz", delimiter=",").astype(bool)
    X, y = data[:, :-1], data[:, -1]
    for test in masks.T:
        yield X[~test], y[~test], X[test], y[test]


def california() -> Iterator[Split]:
    """Five random splits of the eight features that scikit-learn's version has; target in units of 100,000."""
    with (SHARED / "housing" / "california.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    def column(name: str) -> Array:
        return np.array([float(row[name] or "nan") for row in rows])

    rooms, bedrooms, people = (column(name) for name in ("total_rooms", "total_bedrooms", "population"))
    homes = column("households")
    bedrooms = np.where(np.isnan(bedrooms), np.nanmedian(bedrooms / rooms) * rooms, bedrooms)
    income, age, north, east = (
        column(name) for name in ("median_income", "housing_median_age", "latitude", "longitude")
    )
    X = np.column_stack([income, age, rooms / homes, bedrooms / homes, people, people / homes, north, east])
    y = column("median_house_value") / 1e5
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(y))
        test, train = order[:4128], order[4128:]
        yield X[train], y[train], X[test], y[test]


def split(name: str, number: int) -> Split:
    """Training and test rows of one split of one set."""
    source = california() if name == "california" else uci_more(name) if name in MORE else uci(name)
    return next(islice(source, number, None))


def covered(model: Any, X: Array, y: Array) -> float:
    """Share of test rows inside their prediction intervals, as they come by default."""
    low, high = model.predict_interval(X, COVERAGE).T
    return float(np.mean((low <= y) & (y <= high)))


def one_split(name: str, number: int, contestants: list[str], intervals: bool) -> dict[str, dict[str, float]]:
    """Errors, seconds and coverage on one split of one set; a contestant that takes no more rows is left out."""
    warnings.filterwarnings("ignore", category=UserWarning)
    X, y, X_test, y_test = split(name, number)
    found: dict[str, dict[str, float]] = {"errors": {}, "seconds": {}, "coverage": {}}
    for who in contestants:
        if who == "process" and len(y) > MAX_PROCESS_ROWS:
            continue
        started = perf_counter()
        model = CONTESTANTS[who](X, y)
        found["seconds"][who] = perf_counter() - started
        found["errors"][who] = float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)))
        if intervals and who == "regard":
            found["coverage"][who] = covered(model, X_test, y_test)
    texts = [f"{who} {error:.4f} ({found['seconds'][who]:.1f} s)" for who, error in found["errors"].items()]
    texts += [f"{share:.1%} covered" for share in found["coverage"].values()]
    print(f"{name} {number}: {', '.join(texts)}", flush=True)
    return found


def measure(sets: list[str], splits: int, contestants: list[str], jobs: int, intervals: bool) -> dict[str, Any]:
    """Errors, seconds and coverage of every contestant, a list over the first splits of every set."""
    work = [(name, number) for name in sets for number in range(min(splits, SPLITS[name]))]
    if jobs == 1:
        done = [one_split(*one, contestants, intervals) for one in work]
    else:
        order = sorted(range(len(work)), key=lambda i: LONGEST.index(work[i][0]))
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            futures = {i: pool.submit(one_split, *work[i], contestants, intervals) for i in order}
            done = [futures[i].result() for i in range(len(work))]
    found: dict[str, Any] = {}
    for name in sets:
        mine = [one for (of, _), one in zip(work, done, strict=True) if of == name]
        found[name] = {
            part: {who: [one[part][who] for one in mine] for who in contestants if who in mine[0][part]}
            for part in ("errors", "seconds", "coverage")
        }
    return found


def contestants_of(found: dict[str, Any]) -> list[str]:
    """Those that were measured on some set, in the usual order."""
    return [who for who in CONTESTANTS if any(who in one["errors"] for one in found.values())]


def error_table(found: dict[str, Any]) -> str:
    """Mean errors with the best in bold, regard's over the best of the others, and coverage."""
    contestants = contestants_of(found)
    head = ["set", "splits", *contestants, "regard over best", f"{COVERAGE:.0%} intervals cover"]
    rows = []
    for name, one in found.items():
        count = len(next(iter(one["errors"].values())))
        means = {who: float(np.mean(errors)) for who, errors in one["errors"].items()}
        best = min(means.values())
        cells = [
            "" if who not in means else f"**{means[who]:.4f}**" if means[who] == best else f"{means[who]:.4f}"
            for who in contestants
        ]
        others = [mean for who, mean in means.items() if who != "regard"]
        ratio = f"{means['regard'] / min(others):.3f}" if "regard" in means and others else ""
        coverage = one["coverage"].get("regard")
        share = f"{np.mean(coverage):.1%}" if coverage else ""
        rows.append([name, str(count), *cells, ratio, share])
    return table(head, rows)


def asked_table(found: dict[str, Any]) -> str:
    """regard beside what was asked of it and what is published for networks; empty if no set here has either."""
    rows = [
        [name, f"{np.mean(one['errors']['regard']):.4f}", f"≤ {FLOOR[name]}", str(PUBLISHED.get(name, ""))]
        for name, one in found.items()
        if name in FLOOR and "regard" in one["errors"]
    ]
    return table(["set", "regard", "asked", "MC dropout (published)"], rows) if rows else ""


def seconds_table(found: dict[str, Any]) -> str:
    """Median seconds of a fit."""
    contestants = contestants_of(found)
    rows = [
        [name, *(f"{np.median(one['seconds'][who]):.2f}" if who in one["seconds"] else "" for who in contestants)]
        for name, one in found.items()
    ]
    return table(["set", *contestants], rows)


def report(runs: dict[str, Any], found: dict[str, Any]) -> str:
    """The whole page: every run with the sets it measured, then the tables."""
    origins = []
    for when, run in runs.items():
        sets = ", ".join(name for name, one in found.items() if one["run"] == when)
        warm = f"first fit of 300 × 2, compiling if need be: {run['warm_up_seconds']:.1f} s"
        origins.append(f"{describe(run['machine'])}\n`{run['command']}`: {sets}; {warm}")
    parts = [
        "# Accuracy: root mean squared error on rows held out",
        *origins,
        "Means over the splits, the best in bold; all contestants of a set in the same run. *regard over best*: its "
        "mean error over that of the best other contestant; below 1, regard is the best. The Gaussian process is "
        f"fitted where a split has at most {MAX_PROCESS_ROWS:,} training rows.",
        error_table(found),
        asked_table(found),
        "Median seconds of a fit, the tuning of neighbours and support vectors included; with several jobs, those of a "
        "busy machine:",
        seconds_table(found),
    ]
    return "\n\n".join(part for part in parts if part)


def merged(new: dict[str, Any]) -> dict[str, Any]:
    """The record in results/ with the sets of ``new`` in place of its own."""
    path = RESULTS / "accuracy.json"
    if not path.exists():
        return new
    old = json.loads(path.read_text(encoding="utf-8"))
    if "runs" not in old:
        raise SystemExit(f"{path.name} has the layout of an earlier version: remove it, or measure all sets at once")
    sets = old["sets"] | new["sets"]
    ordered = {name: sets[name] for name in SPLITS if name in sets}
    used = {one["run"] for one in ordered.values()}
    runs = {when: run for when, run in (old["runs"] | new["runs"]).items() if when in used}
    return {"runs": runs, "sets": ordered}


def chosen(text: str, known: dict[str, Any]) -> list[str]:
    """Names of a comma-separated option, all of them known."""
    names = text.split(",")
    if strangers := [name for name in names if name not in known]:
        raise SystemExit(f"unknown: {', '.join(strangers)}; there are {', '.join(known)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SPLITS))
    parser.add_argument("--splits", type=int, default=max(SPLITS.values()))
    parser.add_argument("--only", default=",".join(CONTESTANTS), help="contestants, separated by commas")
    parser.add_argument("--jobs", type=int, default=1, help="splits measured at once")
    parser.add_argument("--no-intervals", action="store_true", help="leave out the coverage of intervals")
    parser.add_argument("--update", action="store_true", help="put the sets measured into results/accuracy.*")
    given = parser.parse_args()
    if not SHARED.exists():
        raise SystemExit(f"the data sets are not beside the project: {SHARED} is missing")
    sets, contestants = chosen(given.sets, SPLITS), chosen(given.only, CONTESTANTS)
    all_of_each = (
        set(contestants) == set(CONTESTANTS)
        and all(given.splits >= SPLITS[name] for name in sets)
        and not given.no_intervals
    )
    if given.update and not all_of_each:
        raise SystemExit("--update needs every contestant, every split and the intervals of the sets it replaces")
    if given.update:
        merged({"runs": {}, "sets": {}})  # refuses a file it cannot update before anything is measured
    warnings.filterwarnings("ignore", category=UserWarning)
    machine = facts()
    x = np.linspace(0.0, 1.0, 300)[:, None]
    started = perf_counter()
    KernelRegressor().fit(np.hstack([x, x**2]), x[:, 0])  # compile first
    warm = perf_counter() - started
    found = measure(sets, given.splits, contestants, given.jobs, not given.no_intervals)
    run = {
        "machine": machine,
        "command": shlex.join(["python", "benchmarks/accuracy.py", *sys.argv[1:]]),
        "jobs": given.jobs,
        "warm_up_seconds": warm,
    }
    when = machine["when"]
    record = {"runs": {when: run}, "sets": {name: {"run": when, **one} for name, one in found.items()}}
    print(f"\n{report(record['runs'], record['sets'])}")
    if given.update:
        record = merged(record)
    if given.update or (all_of_each and set(sets) == set(SPLITS)):
        save("accuracy", record, report(record["runs"], record["sets"]))


if __name__ == "__main__":
    main()
