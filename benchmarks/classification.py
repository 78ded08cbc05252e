"""Classification: log-loss, accuracy and calibration of regard's classifier beside trees, logits and support vectors.

Sets that come with scikit-learn, or are made by it: nothing is read from a network. Five stratified folds; every
contestant sees the same training rows in the same run, and only KernelClassifier has nothing to set. The support
vectors choose theirs by cross-validation.

    python benchmarks/classification.py [--sets iris,digits] [--only regard,logistic]

A run of everything writes results/classification.*.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import warnings
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

import contestants as peers
from contestants import Array, Fit
from machine import describe, facts, save, table

FOLDS = 5
# Bins of equal width for the expected calibration error of the most probable class.
BINS = 10

CONTESTANTS: dict[str, Fit] = {
    "regard": peers.regard_classes,
    "boosting": peers.boosting_classes,
    "forest": peers.forest_classes,
    "logistic": peers.logistic,
    "vectors": peers.vectors_classes,
}


def made(seed: int, **given: Any) -> tuple[Array, Array]:
    """A thousand rows of ten features, five of them informative, with a tenth of the labels drawn at random."""
    common = {"n_samples": 1000, "n_features": 10, "n_informative": 5, "n_redundant": 2, "flip_y": 0.1}
    X, y = datasets.make_classification(**common | given, random_state=seed)
    return X, y


def many_classes() -> tuple[Array, Array]:
    """Fifty overlapping groups of forty rows in eight features."""
    X, y = datasets.make_blobs(2000, 8, centers=50, cluster_std=3.0, random_state=0)
    return X, y


def imbalanced() -> tuple[Array, Array]:
    """20,000 rows, of which one in a thousand is in the second class."""
    options = {"n_samples": 20_000, "n_features": 6, "n_informative": 4, "weights": [0.999], "flip_y": 0.0}
    X, y = datasets.make_classification(**options, class_sep=1.5, random_state=0)
    return X, y


SETS: dict[str, Callable[[], tuple[Array, Array]]] = {
    "iris": partial(datasets.load_iris, return_X_y=True),
    "wine": partial(datasets.load_wine, return_X_y=True),
    "cancer": partial(datasets.load_breast_cancer, return_X_y=True),
    "digits": partial(datasets.load_digits, return_X_y=True),
    "moons": partial(datasets.make_moons, 1000, noise=0.3, random_state=0),
    "moons-200": partial(datasets.make_moons, 200, noise=0.3, random_state=0),
    "made-0": partial(made, 0),
    "made-1": partial(made, 1),
    "made-2": partial(made, 2, n_classes=3),
    "made-noisy": partial(made, 3, flip_y=0.3),
    "50-classes": many_classes,
    "1:1000": imbalanced,
}


def calibration_error(probability: Array, right: Array) -> float:
    """Expected calibration error: mean |accuracy − confidence| over bins of the largest probability."""
    confidence = probability.max(axis=1)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gap = np.bincount(bins, right, BINS) - np.bincount(bins, confidence, BINS)
    return float(np.abs(gap).sum() / len(right))


def one_set(name: str, contestants: list[str]) -> dict[str, dict[str, float]]:
    """Log-loss, accuracy, calibration error and median seconds of each contestant; regard's left-out log-loss too."""
    X, y = SETS[name]()
    classes = np.unique(y)
    found: dict[str, dict[str, float]] = {}
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y))
    for who in contestants:
        probability, seconds, left_out = np.zeros((len(y), len(classes))), [], []
        for train, test in folds:
            started = perf_counter()
            model = CONTESTANTS[who](X[train], y[train])
            seconds.append(perf_counter() - started)
            probability[test] = model.predict_proba(X[test])
            if who == "regard":
                left_out.append(-model.loo_score_)
        right = classes[probability.argmax(axis=1)] == y
        found[who] = {
            "log_loss": float(log_loss(y, probability)),
            "accuracy": float(right.mean()),
            "calibration_error": calibration_error(probability, right),
            "seconds": float(np.median(seconds)),
        }
        if left_out:
            found[who]["left_out"] = float(np.mean(left_out))
        print(f"{name} {who}: {', '.join(f'{part} {value:.4f}' for part, value in found[who].items())}", flush=True)
    found["rows"] = {"rows": len(y), "features": X.shape[1], "classes": len(classes)}
    return found


def figures_table(found: dict[str, Any], part: str, best: Callable[..., float], digits: str) -> str:
    """One figure of all contestants, the best in bold; for log-losses also regard's over the best of the others."""
    names = [who for who in CONTESTANTS if any(who in one for one in found.values())]
    rows = []
    for name, one in found.items():
        values = {who: one[who][part] for who in names if who in one}
        top = best(values.values())
        cells = [f"**{value:{digits}}**" if value == top else f"{value:{digits}}" for value in values.values()]
        others = [value for who, value in values.items() if who != "regard"]
        if part == "log_loss" and "regard" in values:
            mine = one["regard"]
            cells += [f"{mine[part] / min(others):.2f}" if others else "", f"{mine['left_out']:{digits}}"]
        rows.append([name, *(f"{count:,}" for count in one["rows"].values()), *cells])
    more = ["regard over best", "regard's left-out"] if part == "log_loss" and "regard" in names else []
    return table(["set", "rows", "features", "classes", *names, *more], rows)


def report(machine: dict[str, Any], command: str, first_fit: float, found: dict[str, Any]) -> str:
    """The whole page."""
    parts = [
        "# Classification: class probabilities of rows held out",
        describe(machine),
        f"`{command}`; first fit of a fresh process, 300 × 2: {first_fit:.1f} s",
        f"Log-loss over {FOLDS} folds; *regard over best*: regard's over that of the best other one; *left-out*: "
        "what regard itself reports of its training rows, −`loo_score_`.",
        figures_table(found, "log_loss", min, ".4f"),
        "Accuracy:",
        figures_table(found, "accuracy", max, ".1%"),
        f"Expected calibration error of the most probable class, {BINS} bins:",
        figures_table(found, "calibration_error", min, ".3f"),
        "Median seconds of a fit, the tuning of support vectors included:",
        figures_table(found, "seconds", min, ".2f"),
    ]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--only", default=",".join(CONTESTANTS), help="contestants, separated by commas")
    given = parser.parse_args()
    sets, contestants = given.sets.split(","), given.only.split(",")
    warnings.filterwarnings("ignore", category=UserWarning)
    warnings.filterwarnings("ignore", category=FutureWarning)
    machine = facts()
    X, y = datasets.make_moons(300, noise=0.3, random_state=1)
    started = perf_counter()
    CONTESTANTS["regard"](X, y)
    first_fit = perf_counter() - started
    found = {name: one_set(name, contestants) for name in sets}
    command = shlex.join(["python", "benchmarks/classification.py", *sys.argv[1:]])
    text = report(machine, command, first_fit, found)
    print(f"\n{text}")
    if set(sets) == set(SETS) and set(contestants) == set(CONTESTANTS):
        save(
            "classification",
            {"machine": machine, "command": command, "first_fit_seconds": first_fit, "sets": found},
            text,
        )


if __name__ == "__main__":
    main()
