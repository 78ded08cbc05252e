"""Seconds that ``import regard`` takes, over the bare interpreter, and what it loads.

    python benchmarks/import_time.py    a few seconds; writes results/import_time.json and import_time.md

The floor is 0.3 s with nothing heavy loaded. Both kinds of process take turns; medians of ten are compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median
from time import perf_counter

from machine import describe, facts, save, table

RUNS = 10
FLOOR_SECONDS = 0.3
HEAVY = (
    *("sklearn", "scipy", "numba", "llvmlite", "torch", "matplotlib", "pandas", "polars", "pyarrow", "dask"),
    *("typer", "rich", "starlette", "uvicorn", "websockets", "finufft", "triton"),
)


def start(code: str) -> float:
    """Seconds a fresh interpreter takes to run the code."""
    started = perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return perf_counter() - started


def loaded(code: str) -> set[str]:
    """Top-level modules in memory after the code ran."""
    listing = f"{code}\nimport json, sys; print(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", listing], stdout=subprocess.PIPE, text=True, check=True)
    return set(json.loads(done.stdout))


def main() -> None:
    machine = facts()
    bare, whole = [], []
    start("import regard")  # bytecode and disk cache
    for _ in range(RUNS):
        bare.append(start("pass"))
        whole.append(start("import regard"))
    seconds = median(whole) - median(bare)
    new = loaded("import regard") - loaded("pass") - {"regard"}
    foreign = sorted(new - sys.stdlib_module_names)
    heavy = sorted(new & set(HEAVY))
    lines = [
        [
            "seconds over the bare interpreter",
            f"{seconds:.3f}",
            f"under {FLOOR_SECONDS}",
            "pass" if seconds < FLOOR_SECONDS else "SHORT",
        ],
        ["heavy modules loaded", ", ".join(heavy) or "none", "none", "SHORT" if heavy else "pass"],
        ["other packages loaded", ", ".join(sorted(set(foreign) - set(heavy))) or "none", "", ""],
    ]
    text = "\n".join(
        [
            "# import regard",
            "",
            describe(machine),
            "",
            f"Medians of {RUNS} processes: bare {median(bare):.3f} s, with regard {median(whole):.3f} s "
            f"(slowest {max(whole):.3f} s).",
            "",
            table(["what", "measured", "asked", "verdict"], lines),
        ]
    )
    print(text)
    record = {"machine": machine, "bare_seconds": bare, "import_seconds": whole, "heavy": heavy, "foreign": foreign}
    save("import_time", record, text)


if __name__ == "__main__":
    main()
