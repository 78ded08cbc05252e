"""Intervals: does KernelRegressor know how sure it is?

Five UCI sets with their twenty splits and California housing with five, as in accuracy.py. From one fit per split:
coverage and width of 90 % intervals, mean log-likelihood beside that published for MC dropout (Gal and Ghahramani,
2016), and pinball loss of five quantiles beside the better of scikit-learn's two boosted quantile regressors.

    python benchmarks/intervals.py [--sets yacht,energy] [--splits 3] [--peer-splits 3]

Boosting takes longer than everything else and is run on the first splits only; losses are compared on those.
``--sets`` also takes the further sets of accuracy.py.
"""

from __future__ import annotations

import argparse
import warnings
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor

from accuracy import FLOOR, SHARED, SPLITS, Array, Split, split
from machine import describe, facts, save, table
from regard import KernelRegressor

COVERAGE = 0.9
METHODS = ("local", "conformal", "jackknife")
LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
PUBLISHED = {"yacht": -1.25, "energy": -1.21, "concrete": -2.93, "kin8nm": 1.14, "power-plant": -2.80}
# Rows that the jackknife is asked about: it looks at every weight.
ASKED = 200


def pinball(y: Array, quantile: Array) -> float:
    """Mean over rows and levels of the loss whose least is at the quantiles."""
    over = y[:, None] - quantile
    return float(np.mean(np.maximum(LEVELS * over, (LEVELS - 1.0) * over)))


def judged(model: Any, X: Array, y: Array) -> dict[str, float]:
    """What one fitted model says of rows it has not seen."""
    started = perf_counter()
    found: dict[str, float] = {"log_likelihood": model.log_likelihood(X, y)}
    found["seconds"] = perf_counter() - started  # with the residuals, which the first question pays for
    for method in METHODS:
        rows = slice(ASKED) if method == "jackknife" else slice(None)
        low, high = model.predict_interval(X[rows], COVERAGE, method).T
        found[f"covered, {method}"] = float(np.mean((low <= y[rows]) & (y[rows] <= high)))
        found[f"width, {method}"] = float(np.median(high - low))
    found["pinball"] = pinball(y, model.predict_quantiles(X, LEVELS))
    return found


def boosted(given: Split) -> dict[str, float]:
    """Pinball loss of scikit-learn's boosted quantiles, one model per level."""
    X, y, X_test, y_test = given
    by_histogram = [HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=0) for q in LEVELS]
    plain = [GradientBoostingRegressor(loss="quantile", alpha=q, random_state=0) for q in LEVELS]
    return {
        name: pinball(y_test, np.column_stack([model.fit(X, y).predict(X_test) for model in models]))
        for name, models in (("histogram", by_histogram), ("plain", plain))
    }


def measure(sets: list[str], splits: int, peer_splits: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in sets:
        count = min(splits, SPLITS[name])
        found[name] = {"ours": [], "boosting": []}
        for number in range(count):
            given = split(name, number)
            started = perf_counter()
            model = KernelRegressor().fit(*given[:2])
            spent = perf_counter() - started
            found[name]["ours"].append({"fit": spent, **judged(model, *given[2:])})
            if number < peer_splits:
                found[name]["boosting"].append(boosted(given))
            print(name, number, found[name]["ours"][-1], found[name]["boosting"][number:], flush=True)
    return found


def report(found: dict[str, Any]) -> str:
    """Two tables: what is covered, and how probable what happened was."""
    covered, probable = [], []
    for name, one in found.items():

        def mean(key: str, rows: list[dict[str, float]]) -> float:
            return float(np.mean([row[key] for row in rows]))

        ours, peers = one["ours"], one["boosting"]
        cells = [f"{mean(f'covered, {method}', ours):.1%}" for method in METHODS]
        widths = [f"{mean(f'width, {method}', ours):.3g}" for method in METHODS]
        seconds = [f"{np.median([row[key] for row in ours]):.1f}" for key in ("fit", "seconds")]
        covered.append([name, str(len(ours)), *cells, *widths, *seconds])
        cells = [f"{mean('log_likelihood', ours):.3f}", str(PUBLISHED.get(name, "")), str(len(peers))]
        same = ours[: len(peers)]
        if peers:
            cells += [f"{mean('pinball', same):.4f}", *(f"{mean(key, peers):.4f}" for key in ("plain", "histogram"))]
        probable.append([name, *cells, *[""] * (6 - len(cells))])
    ends = [f"{part} {method}" for part in ("covered,", "width,") for method in METHODS]
    return "\n\n".join(
        [
            table(["set", "splits", *ends, "fit, s", "residuals, s"], covered),
            table(
                ["set", "log-likelihood", "MC dropout", "splits", "pinball", "boosting", "boosting by histogram"],
                probable,
            ),
        ]
    )


def result_page(machine: dict[str, Any], found: dict[str, Any]) -> str:
    return "\n\n".join(
        [
            "# Intervals: how sure, and rightly so?",
            describe(machine),
            f"`KernelRegressor()`, means over the splits; {COVERAGE:.0%} intervals, widths the median over rows, the "
            f"jackknife asked about {ASKED} rows. Pinball loss over the levels {', '.join(map(str, LEVELS))}, on the "
            "splits that boosting was run on. The number of folds behind the residuals of up to 2,000 rows was chosen "
            "by the coverage of these very splits (docs/decisions/0016), so yacht, energy and concrete flatter.",
            report(found),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(FLOOR))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--peer-splits", type=int, default=3)
    given = parser.parse_args()
    if not SHARED.exists():
        raise SystemExit(f"the data sets are not beside the project: {SHARED} is missing")
    warnings.filterwarnings("ignore", category=UserWarning)
    machine = facts()
    found = measure(given.sets.split(","), given.splits, given.peer_splits)
    text = result_page(machine, found)
    print(f"\n{text}")
    if given.splits >= 20 and given.sets.split(",") == list(FLOOR):
        save("intervals", {"machine": machine, "sets": found}, text)


if __name__ == "__main__":
    main()
