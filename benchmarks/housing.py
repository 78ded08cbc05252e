"""California housing on a device: root mean squared error and seconds of heads, of a deep kernel and of a plain one.

``KernelRegressor()`` must take at most 3 s on an H200, and ``AttentionRegressor(score="gaussian", embed="mlp")`` be at
or below ``NadarayaWatsonRegressor()``. The data stand beside the project, in ../shared/data; where that is not at hand,
as on a machine with a GPU, carry a file:

    python benchmarks/housing.py --write california.npz
    python benchmarks/housing.py --data california.npz --device cuda [--splits 0,1]
"""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from machine import describe, facts, save, table
from regard import AttentionRegressor, KernelRegressor, NadarayaWatsonRegressor

PARTS = ("X", "y", "X_test", "y_test")


def split(number: int, data: Path | None) -> tuple[Any, ...]:
    """Training and test rows of one split, from a file or from the data beside the project."""
    if data is not None:
        with np.load(data) as found:
            return tuple(found[f"{part}_{number}"] for part in PARTS)
    from accuracy import california

    return next(islice(california(), number, None))


def measured(model: Any, rows: tuple[Any, ...]) -> tuple[float, float]:
    """Error on the test rows, and seconds of the fit."""
    X, y, X_test, y_test = rows
    started = perf_counter()
    model.fit(X, y)
    seconds = perf_counter() - started
    return float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))), seconds


def judged(number: int, rows: tuple[Any, ...], device: str) -> dict[str, Any]:
    """Each model on one split."""
    models = {
        "KernelRegressor()": KernelRegressor(device=device),
        'AttentionRegressor(embed="mlp")': AttentionRegressor(embed="mlp", random_state=0, device=device),
        "NadarayaWatsonRegressor()": NadarayaWatsonRegressor(device=device),
    }
    found = {}
    for who, model in models.items():
        error, seconds = measured(model, rows)
        found[who] = {"error": error, "seconds": seconds}
        print(f"split {number}, {who}: {error:.4f} ({seconds:.1f} s)", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path, help="a file that --write made")
    parser.add_argument("--write", type=Path, help="write the splits to a file, and no more")
    parser.add_argument("--splits", default="0,1,2,3,4")
    given = parser.parse_args()
    splits = {number: split(number, given.data) for number in map(int, given.splits.split(","))}
    if given.write is not None:
        arrays = {f"{part}_{n}": rows[i] for n, rows in splits.items() for i, part in enumerate(PARTS)}
        np.savez_compressed(given.write, **arrays)
        print(f"wrote {given.write}")
        return
    machine = facts()
    first = next(iter(splits.values()))
    cold = judged(-1, first, given.device)  # pays for compiling, and is not counted
    found = {number: judged(number, rows, given.device) for number, rows in splits.items()}
    cells = [
        [
            who,
            " ".join(f"{models[who]['error']:.4f}" for models in found.values()),
            f"{np.mean([models[who]['error'] for models in found.values()]):.4f}",
            f"{np.median([models[who]['seconds'] for models in found.values()]):.2f}",
            f"{cold[who]['seconds']:.1f}",
        ]
        for who in cold
    ]
    if given.device == "cuda":
        import torch

        machine["gpu"] = torch.cuda.get_device_name()
    where = machine.get("gpu", "CPU")
    text = "\n\n".join(
        [
            f"# California housing on one device: {where}",
            describe(machine),
            f"{len(first[0]):,} training rows and {len(first[2]):,} test rows, {first[0].shape[1]} features.",
            table(["model", "error on each split", "mean error", "median fit, s", "first fit, compiling, s"], cells),
        ]
    )
    print(f"\n{text}")
    save(f"housing_{given.device}", {"machine": machine, "device": given.device, "splits": found}, text)


if __name__ == "__main__":
    main()
