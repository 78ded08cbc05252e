"""A model of 1,000,000 rows from a cold file: mapped, against loaded into memory.

    python benchmarks/mapped.py    some five minutes; writes results/mapped.json and mapped.md

Every line is a process of its own that finds nothing of the file in memory: import, warm up on a small model, load,
predict once, ask the system which pages of the file it has read. Queries are near random training rows. The floor: a
mapped model is there in less than a second, and where attention is narrow a prediction reads a part of the file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from machine import describe, facts, save, table

ROWS = 1_000_000
QUERIES = (1, 100, 10_000)
FLOOR_SECONDS = 1.0


class Case(NamedTuple):
    """What is modelled, with which estimator and bandwidth."""

    name: str
    width: int
    clumps: int  # 0: uniform in the unit cube
    kind: str
    bandwidth: float


CASES = (
    Case("d=1 uniform", 1, 0, "NadarayaWatsonRegressor", 1e-4),
    Case("d=2 uniform", 2, 0, "NadarayaWatsonRegressor", 3e-3),
    Case("d=2 uniform, lines", 2, 0, "LocalLinearRegressor", 3e-3),
    Case("d=8 uniform", 8, 0, "NadarayaWatsonRegressor", 3e-2),
    Case("d=8 in 1,000 clumps", 8, 1000, "NadarayaWatsonRegressor", 1e-2),
    Case("d=8 in 1,000 clumps, nearest", 8, 1000, "NearestKeyRegressor", 0.0),
)


def rows_of(case: Case) -> Any:
    """Training rows, and queries near some of them."""
    import numpy as np

    rng = np.random.default_rng(0)
    if case.clumps:
        X = rng.random((case.clumps, case.width))[rng.integers(case.clumps, size=ROWS)]
        X += 0.01 * rng.normal(size=X.shape)
    else:
        X = rng.random((ROWS, case.width))
    Q = X[rng.integers(ROWS, size=max(QUERIES))]
    return X, Q + 1e-4 * rng.normal(size=Q.shape)


def write(case: Case, folder: Path) -> float:
    """The model's file and its queries; megabytes of the file."""
    import numpy as np

    import regard

    X, Q = rows_of(case)
    options = {"bandwidth": case.bandwidth} if case.bandwidth else {}
    model = getattr(regard, case.kind)(**options).fit(X, np.sin(5.0 * X).sum(axis=1))
    regard.save(model, folder / "model.regard", force=True)
    np.save(folder / "queries.npy", Q)
    return (folder / "model.regard").stat().st_size / 1e6


def measure(folder: Path, queries: int, mapped: bool) -> dict[str, Any]:
    """Load and predict in this process: seconds of each, megabytes of the file that were read."""
    from time import perf_counter

    import numpy as np

    import regard

    path, Q = folder / "model.regard", np.load(folder / "queries.npy")[:queries]
    small = np.random.default_rng(0).random((20_000, Q.shape[1]))
    regard.NadarayaWatsonRegressor(bandwidth=0.1).fit(small, small[:, 0]).predict(small[:64])
    forget(path)
    started = perf_counter()
    model = regard.load(path, mapped=mapped)
    loaded = perf_counter()
    answer = model.predict(Q)
    predicted = perf_counter()
    np.save(folder / f"answer_{mapped}.npy", answer)
    return {
        "queries": queries,
        "mapped": mapped,
        "load_seconds": loaded - started,
        "predict_seconds": predicted - loaded,
        "read_mb": read_mb(path),
    }


def forget(path: Path) -> None:
    """Have the system drop a file from memory; an error where it does not."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if read_mb(path) > 1.0:
        raise OSError(f"{path}: this file system keeps its files in memory; set TMPDIR to a disk")


def read_mb(path: Path) -> float:
    """Megabytes of a file that the system has in memory (Linux)."""
    import ctypes
    import mmap

    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        mapping = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE)
    start, pages = ctypes.c_char.from_buffer(mapping), (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    if ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), pages):
        raise OSError("mincore failed")
    return sum(page & 1 for page in pages) * mmap.PAGESIZE / 1e6


def run(*arguments: str) -> Any:
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    if len(sys.argv) > 1:
        what, folder, *rest = sys.argv[1:]
        if what == "write":
            print(write(CASES[int(rest[0])], Path(folder)))
        else:
            print(json.dumps(measure(Path(folder), int(rest[0]), rest[1] == "mapped")))
        return
    import numpy as np

    machine = facts()
    print(describe(machine), flush=True)
    cases, lines = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(CASES):
            size = run("write", folder, str(number))
            for queries in QUERIES:
                there, here = (run("measure", folder, str(queries), how) for how in ("mapped", "memory"))
                mapped, plain = (np.load(Path(folder) / f"answer_{how}.npy") for how in (True, False))
                apart = float(np.abs(mapped - plain).max() / np.ptp(plain)) if queries > 1 else 0.0
                cases.append({**case._asdict(), "file_mb": size, "mapped": there, "memory": here, "apart": apart})
                lines.append(
                    [
                        case.name,
                        f"{queries:,}",
                        f"{1e3 * there['load_seconds']:.0f}",
                        f"{1e3 * there['predict_seconds']:.0f}",
                        f"{there['read_mb']:.1f}",
                        f"{100.0 * there['read_mb'] / size:.1f}",
                        f"{1e3 * here['load_seconds']:.0f}",
                        f"{1e3 * here['predict_seconds']:.0f}",
                        f"{size:.0f}",
                        f"{apart:.0e}" if queries > 1 else "",
                        "pass" if there["load_seconds"] < FLOOR_SECONDS else "SHORT",
                    ]
                )
                print(" ".join(lines[-1]), flush=True)
    head = ["model", "queries", "load ms", "predict ms", "MB read", "% of file"]
    head += ["load ms, memory", "predict ms, memory", "MB of file", "apart / range", "loads in 1 s"]
    title = f"# A model of {ROWS:,} rows from a cold file: mapped, and loaded into memory"
    text = "\n".join([title, "", describe(machine), "", table(head, lines)])
    print("\n" + text)
    save("mapped", {"machine": machine, "cases": cases}, text)


if __name__ == "__main__":
    main()
