"""Learning a bandwidth: seconds and criterion beside statsmodels, and a whole fit beside boosting.

    python benchmarks/bandwidth.py [--rounds 5]

statsmodels takes minutes for its four-dimensional case; it runs once, regard several times in turn with it.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from statsmodels.nonparametric.kernel_regression import KernelReg

from accuracy import SHARED, california
from machine import describe, facts, save, table
from regard import KernelRegressor, NadarayaWatsonRegressor
from regard.bandwidth import loo_objective
from regard.scores import Gaussian

# rows, features, how many times faster it should be
CASES = ((2000, 1, 200.0), (1000, 4, 500.0))


def seconds(run: Callable[[], Any], rounds: int) -> tuple[list[float], Any]:
    spent, result = [], None
    for _ in range(rounds):
        started = perf_counter()
        result = run()
        spent.append(perf_counter() - started)
    return spent, result


def against_statsmodels(n: int, d: int, floor: float, rounds: int) -> dict[str, Any]:
    rng = np.random.default_rng(n + d)
    X = rng.uniform(0.0, 5.0, (n, d))
    y = (2.0 * np.sin(X) + X**0.8).sum(axis=1) + rng.normal(0.0, 0.5, n)
    NadarayaWatsonRegressor().fit(X, y)  # warm
    ours, model = seconds(lambda: NadarayaWatsonRegressor().fit(X, y), rounds)
    theirs, peer = seconds(lambda: KernelReg(y, X, "c" * d, reg_type="lc", bw="cv_ls"), 1)
    value = loo_objective(X, y, Gaussian(model.w_))
    peer_value = loo_objective(X, y, Gaussian(1.0 / np.abs(peer.bw)))
    return {
        "case": f"loo, n = {n:,}, d = {d}",
        "peer": "statsmodels cv_ls",
        "ours": ours,
        "theirs": theirs,
        "floor": floor,
        "ratio": theirs[0] / statistics.median(ours),
        "note": f"criterion {value:.9f}, theirs {peer_value:.9f}: {value / peer_value - 1.0:+.1e}",
        "evaluations": model.search_.evaluations,
    }


def against_boosting(rounds: int) -> dict[str, Any]:
    X, y, X_test, y_test = next(california())
    theirs, peer = seconds(lambda: HistGradientBoostingRegressor(random_state=0).fit(X, y), 5)
    KernelRegressor().fit(X[:300], y[:300])  # warm
    ours, model = seconds(lambda: KernelRegressor().fit(X, y), rounds)
    ratio = statistics.median(theirs) / statistics.median(ours)
    errors = [float(np.sqrt(np.mean((m.predict(X_test) - y_test) ** 2))) for m in (model, peer)]
    return {
        "case": "whole fit, California, n = 16,512, d = 8",
        "peer": "HistGradientBoosting",
        "ours": ours,
        "theirs": theirs,
        "floor": 1 / 200.0,
        "ratio": ratio,
        "note": f"error {errors[0]:.4f}, theirs {errors[1]:.4f}; {1 / ratio:.0f}× their time",
        "evaluations": model.search_.evaluations,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    machine = facts()
    found = [against_statsmodels(n, d, floor, rounds) for n, d, floor in CASES]
    if SHARED.exists():
        found.append(against_boosting(max(1, rounds // 2)))
    rows = [
        [
            one["case"],
            one["peer"],
            f"{statistics.median(one['ours']):.3f}",
            f"{statistics.median(one['theirs']):.2f}",
            f"{one['ratio']:.3g}×",
            f"≥ {one['floor']:.3g}×",
            "pass" if one["ratio"] >= one["floor"] else "SHORT",
            str(one["evaluations"]),
            one["note"],
        ]
        for one in found
    ]
    head = [
        "case",
        "peer",
        "regard, s",
        "peer, s",
        "peer's time over ours",
        "asked",
        "verdict",
        "evaluations",
        "quality",
    ]
    text = "\n\n".join(["# Learning a bandwidth", describe(machine), "Medians, warm.", table(head, rows)])
    print(text)
    save("bandwidth", {"machine": machine, "cases": found}, text)


if __name__ == "__main__":
    main()
