"""Everything that needs CUDA, against float64 in plain torch: ``make gpu-test``, after changes to programs or tensors.

    PYTHONPATH=src:tests python3 -m gpu.run [--seconds 300] [--workers N] [--only TEXT] [--commit HASH]

Needs numpy, torch with CUDA, and Triton; nothing else, not even pytest (the suite's own tests interpret the programs
and need no device). Writes benchmarks/results/gpu-tests.txt. Triton's compiler takes most of the time, so processes
share the device; what the time does not reach is counted as cut. Exit code 0: all that ran holds; 1: something does
not; 2: there is no CUDA here.

``--interpret`` runs small cases on a CPU, with Triton's interpreter in place of a device, and writes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "benchmarks" / "results" / "gpu-tests.txt"
SECONDS = 300.0
# Times that a worker is started again after an error that leaves the device's context broken.
RESTARTS = 3
# Pairs times features up to which a case is small enough to be interpreted.
INTERPRETED = 4000


def items(only: str = "") -> list[tuple[str, Any]]:
    """Names and cases or functions, in the order in which they are tried; names hold ``only``."""
    from gpu.cases import cases
    from gpu.others import checks

    found: list[tuple[str, Any]] = [*checks(), *((str(case), case) for case in cases())]
    return [(name, it) for name, it in found if only in name]


def tried(name: str, it: Any, device: str) -> dict[str, Any]:
    """What came of one item."""
    from gpu.cases import Case
    from gpu.paths import Declined, check

    started = time.perf_counter()
    record: dict[str, Any] = {"name": name, "ran": name.partition(":")[0], "ratios": {}, "error": ""}
    try:
        if isinstance(it, Case):
            record["ratios"], record["ran"] = check(it, device)
        else:
            record["ratios"] = it(device)
        if device == "cuda":
            torch.cuda.synchronize()
    except Declined:
        record["ran"] = "declined"
    except Exception as reason:
        record["error"] = f"{type(reason).__name__}: {str(reason).strip()[:300]}"
        record["trace"] = traceback.format_exc()[-1500:]
    record["seconds"] = time.perf_counter() - started
    return record


def work(shard: int, workers: int, skip: int, until: float, only: str) -> int:
    """Every ``workers``-th item from ``skip`` on, one line of JSON for each; 3: the context is broken."""
    torch.backends.cuda.matmul.allow_tf32 = False
    mine = items(only)[shard::workers]
    for number in range(skip, len(mine)):
        if time.time() > until:
            break
        print(json.dumps({"starts": number}), flush=True)
        record = tried(*mine[number], "cuda")
        print(json.dumps(record), flush=True)
        if "CUDA error" in record["error"] or "illegal memory" in record["error"]:
            return 3
        torch.cuda.empty_cache()
    return 0


def run_workers(workers: int, seconds: float, only: str) -> list[dict[str, Any]]:
    """Records of all items that the time reached."""
    until, found = time.time() + seconds, []
    with tempfile.TemporaryDirectory() as folder:
        running = {shard: (_start(shard, workers, 0, until, only, folder), 0) for shard in range(workers)}
        while running:
            time.sleep(0.2)
            for shard, (process, restarts) in list(running.items()):
                late = time.time() > until + 60.0
                if process.poll() is None and not late:
                    continue
                if late:
                    process.kill()
                process.wait()
                text = (Path(folder) / f"{shard}-{restarts}.out").read_text()
                lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
                records = [line for line in lines if "name" in line]
                found += records
                started = max((line["starts"] for line in lines if "starts" in line), default=-1)
                broken = process.returncode != 0
                del running[shard]
                if not broken:
                    continue
                if started >= 0 and "name" not in lines[-1]:
                    # It died in the middle of an item.
                    name = items(only)[shard::workers][started][0]
                    why = (
                        "no end within a minute after the time" if late else f"process ended with {process.returncode}"
                    )
                    found.append({"name": name, "ran": "died", "ratios": {}, "error": why, "seconds": 0.0})
                if started < 0 or restarts >= RESTARTS:
                    error = (Path(folder) / f"{shard}-{restarts}.err").read_text()[-2000:]
                    found.append(
                        {"name": f"worker {shard}", "ran": "died", "ratios": {}, "error": error, "seconds": 0.0}
                    )
                elif time.time() < until:
                    again = _start(shard, workers, started + 1, until, only, folder, restarts + 1)
                    running[shard] = again, restarts + 1
    return found


def _start(shard: int, workers: int, skip: int, until: float, only: str, folder: str, restarts: int = 0) -> Any:
    command = [sys.executable, "-m", "gpu.run", "--shard", f"{shard},{workers},{skip},{until}", "--only", only]
    out, err = (open(Path(folder) / f"{shard}-{restarts}.{end}", "w") for end in ("out", "err"))  # noqa: SIM115
    with out, err:
        return subprocess.Popen(command, stdout=out, stderr=err, env=os.environ | {"OMP_NUM_THREADS": "1"})


def report(
    found: list[dict[str, Any]], planned: list[tuple[str, Any]], head: list[str], seconds: float
) -> tuple[str, bool]:
    """The text, and whether all that ran holds."""
    failed = [one for one in found if one["error"] or any(not ratio <= 1.0 for ratio in one["ratios"].values())]
    declined = [one for one in found if one["ran"] == "declined"]
    ran = [one for one in found if one["ran"] != "declined"]
    names = {one["name"] for one in found}
    cut = [name for name, _ in planned if name not in names]
    paths = Counter(name.partition(":")[0] for name, _ in planned)
    empty = [path for path in paths if not any(one["name"].startswith(f"{path}:") for one in ran)]
    counts = f"{len(failed)} failed, {len(declined)} declined by their path, {len(cut)} cut"
    lines = [
        "Everything that needs CUDA, against float64 (make gpu-test)", "", *head,
        f"{len(ran)} ran in {seconds:.0f} s, {counts}",
        "", "Ran by path, the program it went to, score and option; worst error as a share of its budget:",
    ]  # fmt: skip
    groups: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in ran:
        worst = max(one["ratios"].values(), default=0.0)
        path, _, rest = one["name"].partition(":")
        groups["path"][path].append(worst)
        for program in set(one["ran"].split("+")):
            groups["program"][program].append(worst)
        parts = [part.strip() for part in rest.split(",")]
        for group, value in zip(("score", "option"), parts, strict=False) if len(parts) > 4 else ():
            groups[group][value].append(worst)
        for quantity, ratio in one["ratios"].items():
            groups["quantity"][quantity].append(ratio)
        for word in rest.split():
            for group, start in (("features", "d="), ("columns", "P=")):
                if word.startswith(start):
                    groups[group][word].append(worst)
            if word.rstrip(",") in ("float16", "bfloat16", "float32", "float64"):
                groups["dtype"][word.rstrip(",")].append(worst)
            if word.count("×") == 2:
                for side, size in zip(("queries", "keys"), word.split("×")[1:], strict=True):
                    groups[side][size].append(worst)
    for group, values in groups.items():
        lines += ["", f"{group:<28}{'ran':>6}{'worst':>10}"]
        lines += [
            f"  {name:<26}{len(worst):>6}{max(worst):>10.3f}" for name, worst in sorted(values.items(), key=_in_order)
        ]
    lines += ["", "Slowest:"]
    lines += [f"  {one['seconds']:6.1f} s  {one['name']}" for one in sorted(ran, key=lambda one: -one["seconds"])[:5]]
    if empty:
        lines += ["", f"FAILED: nothing ran on {', '.join(empty)}"]
    for one in failed:
        over = {name: ratio for name, ratio in one["ratios"].items() if not ratio <= 1.0}
        lines += ["", f"FAILED: {one['name']} [{one['ran']}]", f"  {one['error'] or over}"]
        lines += [f"  {line}" for line in one.get("trace", "").splitlines()[-6:]]
    if cut:
        lines += ["", f"Cut by the time, {len(cut)}:", *(f"  {name}" for name in cut[:40])]
    return "\n".join(lines) + "\n", not failed and not empty


def _in_order(pair: tuple[str, Any]) -> tuple[float, str]:
    digits = "".join(c for c in pair[0] if c.isdigit())
    return (float(digits) if digits and pair[0][-1].isdigit() and " " not in pair[0] else 0.0), pair[0]


def heading(commit: str) -> list[str]:
    import numpy
    import triton

    if not commit:
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
        asked = subprocess.run(command, capture_output=True, text=True)
        commit = asked.stdout.strip() or "unknown (no git here)"
    sources = hashlib.sha256()
    for path in sorted((ROOT / "src" / "regard").rglob("*.py")):
        sources.update(path.read_bytes())
    device = torch.cuda.get_device_properties(0) if torch.cuda.is_available() else None
    return [
        f"commit {commit}; sources {sources.hexdigest()[:12]}; {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC",
        f"{device.name if device else 'no device'}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}, triton {triton.__version__}, numpy {numpy.__version__}",
    ]


@contextmanager
def interpreter() -> Iterator[None]:
    """Tensors on a CPU go to the Triton programs, as in tests/tensors/conftest.py."""
    import regard.engines.gpu.fused
    import regard.engines.gpu.placement
    from regard.tensors import tensor_planner as planner

    planner.MAX_DENSE["cpu"] = -1
    planner.on_programs = lambda query: True
    for module in (regard.engines.gpu.fused, regard.engines.gpu.placement):
        module.device = lambda: torch.device("cpu")
    import numpy

    with numpy.errstate(all="ignore"):
        yield


def is_tiny(it: Any) -> bool:
    """Whether the interpreter can do it; it has neither bfloat16 nor torch's own attention."""
    from gpu.cases import Case

    known = isinstance(it, Case) and it.dtype != "bfloat16" and it.path != "flash"
    return known and it.B * it.Q * it.K * max(it.d, it.P) <= INTERPRETED


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of all tests together")
    parser.add_argument("--workers", type=int, default=max(1, min(14, (os.cpu_count() or 1) - 2)))
    parser.add_argument("--only", default="", help="items whose names hold this text")
    parser.add_argument("--commit", default="", help="what was tested, where there is no git to ask")
    parser.add_argument("--interpret", type=int, default=0, metavar="N", help="so many tiny cases on a CPU")
    parser.add_argument("--shard", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.interpret:
        os.environ["TRITON_INTERPRET"] = "1"
        some = [one for one in items(options.only) if is_tiny(one[1])][: options.interpret]
        with interpreter():
            found = [tried(name, it, "cpu") for name, it in some]
        text, holds = report(found, some, heading(options.commit), sum(one["seconds"] for one in found))
        print(text)
        return 0 if holds else 1
    if not torch.cuda.is_available():
        print("needs CUDA; none here")
        return 2
    if options.shard:
        shard, workers, skip, until = options.shard.split(",")
        return work(int(shard), int(workers), int(skip), float(until), options.only)
    started = time.perf_counter()
    found = run_workers(options.workers, options.seconds, options.only)
    text, holds = report(found, items(options.only), heading(options.commit), time.perf_counter() - started)
    print(text)
    places = [RESULT] if not options.only else []
    for place in (*places, *([Path(os.environ["OUT"]) / RESULT.name] if "OUT" in os.environ else [])):
        place.write_text(text, encoding="utf-8")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
