"""Accuracy: root mean squared error of regard's regressor beside trees, neighbours and support vectors.

Five UCI sets with their twenty splits and California housing with five, all read from ../shared/data, none committed.
Every contestant sees the same training rows in the same run; only KernelRegressor has nothing to set.

    python benchmarks/accuracy.py [--sets yacht,energy] [--splits 3] [--only regard] [--jobs 8]

Seconds are comparable only with one job: several share the cores.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from machine import describe, facts, save, table
from regard import KernelRegressor

Array = NDArray[Any]
Split = tuple[Array, Array, Array, Array]

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
# What was asked of KernelRegressor, and what MC dropout is published with (Gal and Ghahramani, 2016).
FLOOR = {"yacht": 0.66, "energy": 0.46, "concrete": 5.0, "kin8nm": 0.077, "power-plant": 2.85, "california": 0.415}
PUBLISHED = {"yacht": 0.67, "energy": 0.54, "concrete": 4.82, "kin8nm": 0.08, "power-plant": 4.01}
LONGEST = ("california", "kin8nm", "power-plant", "concrete", "energy", "yacht")
# Rows on which neighbours and support vectors choose their settings.
TUNING = 1000


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


def tuned(model: Any, grid: dict[str, list[Any]]) -> Callable[[Array, Array], Any]:
    """Settings by five-fold cross-validation on at most TUNING rows, then a fit on all."""

    def fit(X: Array, y: Array) -> Any:
        rows = np.random.default_rng(0).permutation(len(y))[:TUNING]
        search = GridSearchCV(make_pipeline(StandardScaler(), model), grid, scoring="neg_mean_squared_error", n_jobs=-1)
        return search.fit(X[rows], y[rows]).best_estimator_.fit(X, y)

    return fit


NEIGHBOURS = {
    "kneighborsregressor__n_neighbors": [1, 2, 3, 5, 8, 12, 20],
    "kneighborsregressor__weights": ["uniform", "distance"],
}
VECTORS = {
    "transformedtargetregressor__regressor__C": [1.0, 10.0, 100.0],
    "transformedtargetregressor__regressor__gamma": [0.03, 0.1, 0.3, 1.0],
}

CONTESTANTS: dict[str, Callable[[Array, Array], Any]] = {
    "regard": lambda X, y: KernelRegressor().fit(X, y),
    "boosting": lambda X, y: HistGradientBoostingRegressor(random_state=0).fit(X, y),
    "forest": lambda X, y: RandomForestRegressor(random_state=0, n_jobs=-1).fit(X, y),
    "neighbours": tuned(KNeighborsRegressor(), NEIGHBOURS),
    "vectors": tuned(TransformedTargetRegressor(SVR(epsilon=0.03), transformer=StandardScaler()), VECTORS),
}


def one_split(name: str, number: int, contestants: list[str]) -> dict[str, tuple[float, float]]:
    """Error and seconds of every contestant on one split of one set."""
    source = california() if name == "california" else uci(name)
    X, y, X_test, y_test = next(islice(source, number, None))
    found = {}
    for who in contestants:
        started = perf_counter()
        model = CONTESTANTS[who](X, y)
        spent = perf_counter() - started
        found[who] = (float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))), spent)
    told = ", ".join(f"{who} {error:.4f} ({spent:.1f} s)" for who, (error, spent) in found.items())
    print(f"{name} {number}: {told}", flush=True)
    return found


def measure(sets: list[str], splits: int, contestants: list[str], jobs: int) -> dict[str, Any]:
    """Errors and seconds of every contestant on the first splits of every set."""
    work = [(name, number) for name in sets for number in range(min(splits, 5 if name == "california" else 20))]
    if jobs == 1:
        done = [one_split(name, number, contestants) for name, number in work]
    else:
        # The longest first, so that none is left to the end.
        order = sorted(range(len(work)), key=lambda i: LONGEST.index(work[i][0]))
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            futures = {i: pool.submit(one_split, *work[i], contestants) for i in order}
            done = [futures[i].result() for i in range(len(work))]
    return {
        name: {
            part: {
                who: [one[who][at] for (of, _), one in zip(work, done, strict=True) if of == name]
                for who in contestants
            }
            for at, part in enumerate(("errors", "seconds"))
        }
        for name in sets
    }


def report(found: dict[str, Any], contestants: list[str]) -> str:
    head = ["set", "splits", *contestants, "MC dropout (published)", "asked", "regard's fit, s", "boosting's fit, s"]
    rows = []
    for name, one in found.items():
        count = len(next(iter(one["errors"].values())))
        cells = [f"{np.mean(one['errors'][who]):.4f}" for who in contestants]
        medians = [
            f"{np.median(one['seconds'][who]):.2f}" if who in contestants else "" for who in ("regard", "boosting")
        ]
        rows.append([name, str(count), *cells, str(PUBLISHED.get(name, "")), f"≤ {FLOOR[name]}", *medians])
    return table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(FLOOR))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--only", default=",".join(CONTESTANTS))
    parser.add_argument("--jobs", type=int, default=1, help="splits measured at once")
    given = parser.parse_args()
    if not SHARED.exists():
        raise SystemExit(f"the data sets are not beside the project: {SHARED} is missing")
    warnings.filterwarnings("ignore", category=UserWarning)
    contestants = given.only.split(",")
    machine = facts()
    x = np.linspace(0.0, 1.0, 300)[:, None]
    started = perf_counter()
    KernelRegressor().fit(np.hstack([x, x**2]), x[:, 0])  # compile first
    warm = perf_counter() - started
    found = measure(given.sets.split(","), given.splits, contestants, given.jobs)
    text = "\n\n".join(
        [
            "# Accuracy: root mean squared error on rows held out",
            describe(machine),
            f"Means over the splits; every contestant in the same run, {given.jobs} splits at once. "
            f"First fit with compilation: {warm:.1f} s.",
            report(found, contestants),
        ]
    )
    print(f"\n{text}")
    whole = given.splits >= 20 and given.sets.split(",") == list(FLOOR) and contestants == list(CONTESTANTS)
    if whole:
        save("accuracy", {"machine": machine, "warm_up_seconds": warm, "sets": found}, text)


if __name__ == "__main__":
    main()
