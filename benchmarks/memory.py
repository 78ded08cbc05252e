"""Memory that pooling 200,000 queries over 200,000 keys adds, in megabytes.

    python benchmarks/memory.py    a minute or two; writes results/memory.json and memory.md

Each case runs in a process of its own: import, warm up on a small problem, make the inputs, read the resident memory,
pool, read the peak. The floor is 200 MB; the matrix of weights alone would be 160 GB in float32.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from machine import describe, facts, save, table

SIZE = 200_000
FLOOR_MB = 200.0
CASES = (("float32", 1), ("float32", 3), ("float64", 1), ("float64", 3))


def measure(dtype: str, width: int) -> dict[str, Any]:
    """Run one case in this process: megabytes added, seconds, and how the peak was read."""
    from time import perf_counter

    import numpy as np

    from regard import pool
    from regard.scores import Gaussian

    rng = np.random.default_rng(3)

    def inputs(size: int) -> tuple[Any, Any, Any]:
        query, key = (rng.uniform(0.0, 5.0, (size, width)).astype(dtype) for _ in range(2))
        return query, key, np.sin(key).sum(axis=1)

    pool(*inputs(2_000), Gaussian(4.0), engine="tiled")
    query, key, value = inputs(SIZE)
    how, before = restart_peak()
    started = perf_counter()
    answer = pool(query, key, value, Gaussian(4.0), engine="tiled").output
    seconds = perf_counter() - started
    added = status("VmHWM") - before
    assert answer.shape == (SIZE,)
    return {"dtype": dtype, "d": width, "added_mb": added, "seconds": seconds, "peak": how}


def restart_peak() -> tuple[str, float]:
    """Forget earlier peaks where the system can, and give the resident memory in MB."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return "peak since the inputs were made", status("VmRSS")
    except OSError:
        return "highest peak of the process, imports included: an upper bound", status("VmRSS")


def status(name: str) -> float:
    """A line of /proc/self/status (Linux only) in MB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise OSError(f"/proc/self/status has no {name}")


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
        return
    machine = facts()
    print(describe(machine), flush=True)
    cases = []
    for dtype, width in CASES:
        command = [sys.executable, __file__, dtype, str(width)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        cases.append(json.loads(done.stdout))
        print(f"{dtype} d={width}: {cases[-1]['added_mb']:.1f} MB in {cases[-1]['seconds']:.1f} s", flush=True)
    lines = [
        [
            f"{case['dtype']} d={case['d']}",
            f"{case['added_mb']:.1f}",
            f"{FLOOR_MB:.0f}",
            "pass" if case["added_mb"] < FLOOR_MB else "SHORT",
            f"{case['seconds']:.1f}",
            case["peak"],
        ]
        for case in cases
    ]
    head = ["case", "MB added", "less than", "verdict", "seconds", "peak read as"]
    title = f"# Memory added by pooling {SIZE:,} queries over {SIZE:,} keys"
    text = "\n".join([title, "", describe(machine), "", table(head, lines)])
    print("\n" + text)
    save("memory", {"machine": machine, "cases": cases}, text)


if __name__ == "__main__":
    main()
