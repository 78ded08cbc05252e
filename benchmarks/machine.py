"""The machine under the benchmarks: what it is, how long it compiles, how fast it could go, and where results go."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = ("regard", "numpy", "numba", "llvmlite", "finufft", "scikit-learn", "torch", "pykeops", "statsmodels")
# Sums kept apart: as many as latency × ports of today's cores, so that none waits for another.
CHAINS = 10
# The same calls serve float32 and float64: the bits of a lane tell them apart.
LANE_BITS = {"float32": 32, "float64": 64}


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def facts() -> dict[str, Any]:
    """Machine, versions and load, as every result file records them."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": cores(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def describe(machine: dict[str, Any]) -> str:
    """``facts()`` as two lines of text."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    load = machine["load_average"][0]
    busy = ": BUSY, expect noise" if load > 0.25 * machine["cores"] else ""
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['system']}; "
        f"load average {load} at the start{busy} ({machine['when']})\nPython {machine['python']}, {versions}"
    )


def save(name: str, record: dict[str, Any], text: str) -> None:
    """Write results/name.json and results/name.md, and say where."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (RESULTS / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    print(f"\nwritten: benchmarks/results/{name}.json and {name}.md")


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table with padded columns, so that it also reads well on a terminal."""
    wide = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = ["| " + " | ".join(cell.ljust(size) for cell, size in zip(row, wide, strict=True)) + " |" for row in rows]
    top = "| " + " | ".join(cell.ljust(size) for cell, size in zip(head, wide, strict=True)) + " |"
    return "\n".join([top, "|" + "|".join("-" * (size + 2) for size in wide) + "|", *lines])


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def first_calls() -> dict[str, float]:
    """Seconds of the first calls with nothing compiled yet, and again in a second process that finds the cache."""
    code = (
        "import json, numpy as np; from time import perf_counter; start = perf_counter();"
        "from regard import pool; from regard.scores import Gaussian;"
        "[pool(x, x, x[:, 0], Gaussian(), engine='tiled') for x in"
        " (np.linspace(0, 5, 512, dtype=t)[:, None] for t in (np.float32, np.float64))];"
        "wall = perf_counter() - start; from regard.programs.cpu.compiled import notice;"
        "print(json.dumps([wall, notice.seconds]))"
    )
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("new", "cached"):
            command = [sys.executable, "-c", code]
            done = subprocess.run(
                command, env=os.environ | {"NUMBA_CACHE_DIR": folder}, capture_output=True, text=True, check=True
            )
            wall, compiler = json.loads(done.stdout)
            found |= {f"{name}_seconds": wall, f"{name}_compiler_seconds": compiler}
    return found


def register_bits() -> int:
    """Bits in one vector register of this machine."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    return 512 if features.get("avx512f") else 256 if features.get("avx2") else 128


class Ceiling:
    """The fused multiply-add rate of the vector units: the most that any program here could do.

    ``rate(threads)`` gives lanes per second, all threads together, from a loop of ``CHAINS`` independent vector
    sums that touches no memory. *Cost*: about ``seconds`` per call, after one compilation of a second.
    """

    def __init__(self, dtype: str, seconds: float = 0.1) -> None:
        self.lanes = register_bits() // LANE_BITS[dtype]
        self._loop = _compile_chains(LANE_BITS[dtype], self.lanes)
        self._steps = 1 << 12
        # Compile, then find how many steps fill the time.
        self._loop(self._steps)
        while (spent := _seconds(self._loop, self._steps)) < seconds:
            self._steps = int(self._steps * min(8.0, 1.2 * seconds / spent))

    def rate(self, threads: int) -> float:
        started = perf_counter()
        if threads == 1:
            self._loop(self._steps)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(self._loop, [self._steps] * threads))
        return threads * self._steps * CHAINS * self.lanes / (perf_counter() - started)


def _seconds(function: Any, *args: Any) -> float:
    started = perf_counter()
    function(*args)
    return perf_counter() - started


def _compile_chains(bits: int, lanes: int) -> Any:
    """A compiled loop of ``CHAINS`` fused multiply-adds on whole vector registers per step."""
    import numba
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    kind = ir.VectorType(ir.FloatType() if bits == 32 else ir.DoubleType(), lanes)

    def everywhere(value: float) -> Any:
        return ir.Constant(kind, [ir.Constant(kind.element, value)] * lanes)

    @intrinsic  # type: ignore[untyped-decorator]
    def chains(typingctx: Any, steps: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            # LLVM prefers half registers unless asked, and llvmlite does not know the attributes: go past its check.
            for attribute in ("prefer-vector-width", "min-legal-vector-width"):
                set.add(builder.function.attributes, f'"{attribute}"="{bits * lanes}"')
            name = f"llvm.fma.v{lanes}f{bits}"
            fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
            sums = [cgutils.alloca_once_value(builder, everywhere(float(chain))) for chain in range(CHAINS)]
            with cgutils.for_range(builder, args[0]):
                for at in sums:
                    builder.store(builder.call(fma, [builder.load(at), everywhere(0.5), everywhere(1.0)]), at)
            total = builder.load(sums[0])
            for at in sums[1:]:
                total = builder.fadd(total, builder.load(at))
            # The answer is used, so that the loop cannot be dropped.
            first = builder.extract_element(total, ir.Constant(ir.IntType(32), 0))
            return first if bits == 64 else builder.fpext(first, ir.DoubleType())

        return types.float64(steps), codegen

    @numba.njit(nogil=True)  # type: ignore[untyped-decorator]
    def loop(steps: int) -> float:
        return chains(steps)  # type: ignore[no-any-return]

    return loop
