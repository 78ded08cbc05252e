"""The files in ``benchmarks/results``, read for the pages that are made from them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
OURS = "regard"


def text_of(name: str) -> str:
    return (RESULTS / f"{name}.md").read_text(encoding="utf-8")


def data_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def speed_cases() -> Iterator[tuple[dict[str, Any], float, dict[str, Any]]]:
    for case in data_of("speed")["cases"]:
        ours = next(one["time"] for one in case["contestants"] if one["name"] == OURS)
        peers = [one for one in case["contestants"] if one["ranked"]]
        if peers:
            yield case, ours, min(peers, key=lambda one: float(one["time"]))


def seconds(time: float) -> str:
    """
    >>> seconds(5.6e-05), seconds(0.26), seconds(39.6), seconds(2820), seconds(1e6)
    ('56 µs', '0.26 s', '40 s', '47 min', '11.6 days')
    """
    for unit, name in ((86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if time >= (2 * unit if unit > 1.0 else 0.1):
            return f"{time / unit:.3g} {name}" if unit == 86400.0 else f"{time / unit:.2g} {name}"
    return f"{time * 1e3:.2g} ms" if time >= 1e-3 else f"{time * 1e6:.2g} µs"


def ratio(number: float) -> str:
    """
    >>> ratio(0.92), ratio(3.44), ratio(4699.2)
    ('0.92×', '3.4×', '4,700×')
    """
    return f"{float(f'{number:.2g}'):,.0f}×" if number >= 10 else f"{number:.2g}×"


def mean(values: list[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")


def errors() -> dict[str, dict[str, float]]:
    """Mean error of every contestant on every set of accuracy.json."""
    return {
        name: {who: mean(found) for who, found in one["errors"].items()}
        for name, one in data_of("accuracy")["sets"].items()
    }


def log_losses() -> dict[str, dict[str, float]]:
    """Log-loss of every contestant on every set of classification.json."""
    return {
        name: {who: found["log_loss"] for who, found in one.items() if "log_loss" in found}
        for name, one in data_of("classification")["sets"].items()
    }
