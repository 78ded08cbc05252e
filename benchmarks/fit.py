"""Seconds of a fit, seconds of predicting 10,000 rows, error and peak memory against rows and features.

KernelRegressor with its defaults beside boosting, a forest, a Gaussian process and tuned support vectors, on the CPU,
and with ``device="cuda"`` where torch finds a GPU. Every measurement has a process of its own.

    python benchmarks/fit.py --limit 120                               everything; writes results/fit.*
    python benchmarks/fit.py --sizes 1000,4000 --features 8            some of it; prints only
    python benchmarks/fit.py --sizes 1000000 --features 8 --update     puts what it measured into results/fit.*
    python benchmarks/fit.py --housing                                 California: regard's time over boosting's

Where there is a GPU the results are fit_cuda.*. The function is Friedman's first, with noise of standard deviation 1:
10 sin(π x₁x₂) + 20 (x₃ − ½)² + 10 x₄ + 5 x₅, the other features irrelevant; with d = 2, 10 sin(π x₁x₂) + 20 (x₂ − ½)².
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from machine import RESULTS, describe, facts, save, table

# Nothing large is imported here: on Linux the peak memory of a process counts that of the one that started it.

SIZES = (100, 300, 1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000)
FEATURES = (2, 8, 32)
CONTESTANTS = ("regard", "regard-cuda", "boosting", "forest", "process", "vectors")
MAX_ROWS = {"process": 1_500, "vectors": 5_000}
TEST_ROWS = 10_000
WARM_UP_ROWS = 300
# Fits of a case are repeated until they took this long together, and predictions likewise.
SECONDS_TO_REPEAT = 30.0
# A fit that compiled for more than this share of its time is measured once more.
MAX_COMPILING_SHARE = 0.05
# Beyond the limit of a fit: imports, inputs, the warm-up, repetitions and predictions.
SECONDS_BEYOND_LIMIT = 180.0
FIRST_FIT = (1_000, 8)


@dataclass(frozen=True)
class Case:
    """One measurement: a contestant on n × d rows of the synthetic function, or on a split of California."""

    contestant: str
    n: int
    d: int
    repeats: int
    california_split: int | None = None
    warm: bool = True


@dataclass(frozen=True)
class Floor:
    """What was asked of one figure: ``part`` of a case of regard, at most ``floor``, better ``aim``."""

    what: str
    contestant: str
    n: int
    d: int
    part: str
    floor: float
    aim: float


FLOORS = (
    Floor("fit 1,000 × 8, s", "regard", 1_000, 8, "fit_seconds", 1.5, 0.7),
    Floor("fit 256,000 × 8, s", "regard", 256_000, 8, "fit_seconds", 90.0, 30.0),
    Floor("fit 1,000,000 × 8, s", "regard", 1_000_000, 8, "fit_seconds", 600.0, 120.0),
    Floor("fit 1,000,000 × 8, peak MB", "regard", 1_000_000, 8, "peak_mb", 8_000.0, 8_000.0),
    Floor("GPU: fit 1,000 × 8, s", "regard-cuda", 1_000, 8, "fit_seconds", 1.5, 0.5),
    Floor("GPU: fit 16,000 × 8, s", "regard-cuda", 16_000, 8, "fit_seconds", 2.0, 1.0),
    Floor("GPU: fit 256,000 × 8, s", "regard-cuda", 256_000, 8, "fit_seconds", 8.0, 4.0),
)
FIRST_FIT_FLOOR, FIRST_FIT_AIM = 5.0, 2.0
HOUSING_FLOOR, HOUSING_AIM = 25.0, 10.0


# In the process of one case


def truth(X: Any) -> Any:
    """The noiseless function, (n,)."""
    import numpy as np

    interaction = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1])
    if X.shape[1] < 5:
        return interaction + 20.0 * (X[:, 1] - 0.5) ** 2
    return interaction + 20.0 * (X[:, 2] - 0.5) ** 2 + 10.0 * X[:, 3] + 5.0 * X[:, 4]


def inputs(case: Case) -> tuple[Any, Any, Any, Any, float]:
    """Training rows, test rows, and the noise variance that the test targets do not contain."""
    import numpy as np

    if case.california_split is not None:
        from accuracy import split

        return *split("california", case.california_split), 0.0
    rng = np.random.default_rng((case.n, case.d))
    X, X_test = (rng.uniform(size=(rows, case.d)) for rows in (case.n, TEST_ROWS))
    return X, truth(X) + rng.standard_normal(case.n), X_test, truth(X_test), 1.0


def fit_function(contestant: str) -> Any:
    import contestants as peers

    return {
        "regard": peers.regard(),
        "regard-cuda": peers.regard("cuda"),
        "boosting": peers.boosting,
        "forest": peers.forest,
        "process": peers.squared_exponential_process,
        "vectors": peers.vectors,
    }[contestant]


def peak_mb() -> float:
    """The most resident memory of this process so far."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def run_case(case: Case) -> None:
    """Measure one case in this process; prints what is known after the fits, and again after the predictions."""
    import warnings

    _be_killed_first()
    started = perf_counter()
    fit = fit_function(case.contestant)
    if case.contestant.startswith("regard"):
        import regard  # noqa: F401
    found: dict[str, Any] = {"import_seconds": perf_counter() - started}
    warnings.filterwarnings("ignore", category=UserWarning)
    X, y, X_test, y_test, noise = inputs(case)
    if case.warm:
        rows = min(len(X), WARM_UP_ROWS)
        fit(X[:rows], y[:rows]).predict(X_test[:rows])
    found["before_mb"] = peak_mb()

    fits: list[float] = []
    while len(fits) < case.repeats and sum(fits) < SECONDS_TO_REPEAT:
        seconds, compiling, model = _timed(fit, X, y)
        if case.warm and compiling > MAX_COMPILING_SHARE * seconds:
            found["compiling_fit_seconds"] = seconds
            seconds, _, model = _timed(fit, X, y)
        fits.append(seconds)
    found |= {"fits": fits, "fit_seconds": median(fits), "peak_mb": peak_mb()}
    print(json.dumps(found), flush=True)

    predictions: list[float] = []
    while len(predictions) < case.repeats and sum(predictions) < SECONDS_TO_REPEAT:
        seconds, _, output = _timed(model.predict, X_test)
        predictions.append(seconds)
    distance = float(((output - y_test) ** 2).mean() ** 0.5)
    found |= {
        "predictions": predictions,
        "predict_seconds": median(predictions),
        "distance": distance,
        "error": (distance**2 + noise) ** 0.5,
        "peak_with_predictions_mb": peak_mb(),
    }
    if case.contestant == "regard-cuda":
        import torch

        found["peak_gpu_mb"] = torch.cuda.max_memory_allocated() / 1e6
    print(json.dumps(found), flush=True)


def _timed(function: Any, *args: Any) -> tuple[float, float, Any]:
    """Seconds of a call, how many of them numba compiled, and the result."""
    compiling: list[float] = []
    timer: Any = nullcontext()
    if "numba" in sys.modules:
        from numba.core.event import install_timer

        timer = install_timer("numba:compile", compiling.append)
    with timer:
        started = perf_counter()
        result = function(*args)
        if "torch" in sys.modules and (torch := sys.modules["torch"]).cuda.is_available():
            torch.cuda.synchronize()
        seconds = perf_counter() - started
    return seconds, sum(compiling), result


def _be_killed_first() -> None:
    """If memory runs out, Linux ends this process before any other."""
    if (path := Path("/proc/self/oom_score_adj")).exists():
        path.write_text("1000")


# In the process that starts them


def measured(case: Case, seconds: float, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a case in a new process for at most ``seconds``: what it found, and how it ended."""
    command = [sys.executable, __file__, "--case", json.dumps(asdict(case))]
    load = os.getloadavg()[0]
    started = perf_counter()
    # A session of its own, so that stopping it also stops the processes of a parallel search.
    process = subprocess.Popen(
        command, env=os.environ | (env or {}), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=seconds)
        ended = {} if process.returncode == 0 else {"stopped": f"ended with status {process.returncode}"}
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        ended = {"stopped": f"stopped after {perf_counter() - started:.0f} s"}
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    lines = [line for line in output.splitlines() if line.startswith("{")]
    return {"load_average": round(load, 2), **(json.loads(lines[-1]) if lines else {}), **ended}


def gpu_name() -> str | None:
    """Name of the GPU that torch finds, asked in another process; None if there is none."""
    code = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def race(sizes: list[int], features: list[int], names: list[str], repeats: int, limit: float) -> list[dict[str, Any]]:
    """All cases, contestants taking turns at each size; sizes not measured keep an entry with the reason."""
    found = []
    for d in features:
        over: dict[str, str] = {}  # contestant → why larger sizes are skipped
        for n in sizes:
            for who in names:
                if n > MAX_ROWS.get(who, n):
                    continue
                one: dict[str, Any] = {"contestant": who, "n": n, "d": d}
                if who in over:
                    one["skipped"] = over[who]
                else:
                    one |= measured(Case(who, n, d, repeats), limit + SECONDS_BEYOND_LIMIT)
                    if "stopped" in one:
                        over[who] = f"{n:,} rows: {one['stopped']}"
                    elif one["fit_seconds"] > limit:
                        over[who] = f"{n:,} rows took {one['fit_seconds']:.0f} s"
                print(f"{n:>9,} × {d:<2} {who:12} {sentence(one)}", flush=True)
                found.append(one)
    return found


def sentence(one: dict[str, Any]) -> str:
    """One case in words."""
    if "skipped" in one:
        return f"skipped ({one['skipped']})"
    parts = [one["stopped"]] if "stopped" in one else []
    if "fit_seconds" in one:
        parts.append(f"fit {seconds_text(one['fit_seconds'])} s, peak {one['peak_mb']:.0f} MB")
    if "error" in one:
        parts.append(f"predict {seconds_text(one['predict_seconds'])} s, error {one['error']:.4f}")
    return ", ".join(parts)


def seconds_text(seconds: float) -> str:
    """Three digits, or whole seconds."""
    return f"{seconds:.0f}" if seconds >= 100.0 else f"{seconds:.3g}"


def first_fits(names: list[str], limit: float) -> list[dict[str, Any]]:
    """The first and second fit of a fresh process with empty caches of programs, then again with those caches."""
    found = []
    for who in names:
        with tempfile.TemporaryDirectory() as folder:
            env = {"NUMBA_CACHE_DIR": f"{folder}/numba", "TRITON_CACHE_DIR": f"{folder}/triton"}
            case = Case(who, *FIRST_FIT, repeats=2, warm=False)
            empty, filled = (measured(case, limit + SECONDS_BEYOND_LIMIT, env) for _ in range(2))
        found.append({"contestant": who, "empty": empty, "filled": filled})
        texts = [" and ".join(map(seconds_text, one.get("fits", []))) for one in (empty, filled)]
        print(f"first and second fit, {who}: {texts[0]} s; with caches filled {texts[1]} s", flush=True)
    return found


# Tables


def case_table(cases: list[dict[str, Any]], part: str, text: Any) -> str:
    """One part of every case: rows of d and n, a column for each contestant; "skipped" and "stopped" say so."""
    names = [who for who in CONTESTANTS if any(one["contestant"] == who for one in cases)]
    by_key = {(one["d"], one["n"], one["contestant"]): one for one in cases}
    rows = []
    for d, n in sorted({(one["d"], one["n"]) for one in cases}):
        ones = [by_key.get((d, n, who)) for who in names]
        cells = [
            ""
            if one is None
            else text(one[part])
            if part in one
            else next(how for how in ("skipped", "stopped") if how in one)
            for one in ones
        ]
        rows.append([str(d), f"{n:,}", *cells])
    return table(["d", "n", *names], rows)


def floor_table(cases: list[dict[str, Any]], first: list[dict[str, Any]]) -> str:
    """What was asked, beside what was measured here; empty if none of it was."""
    by_key = {(one["contestant"], one["n"], one["d"]): one for one in cases}
    found = [
        (floor.what, one[floor.part], floor.floor, floor.aim)
        for floor in FLOORS
        if floor.part in (one := by_key.get((floor.contestant, floor.n, floor.d), {}))
    ]
    found += [
        ("first fit 1,000 × 8, empty cache, s", one["empty"]["fits"][0], FIRST_FIT_FLOOR, FIRST_FIT_AIM)
        for one in first
        if one["contestant"] == "regard" and "fits" in one["empty"]
    ]
    rows = [
        [what, f"{value:,.4g}", f"≤ {floor:,g}", f"≤ {aim:,g}", "pass" if value <= floor else "SHORT"]
        for what, value, floor, aim in found
    ]
    return table(["what", "measured", "floor", "aim", "verdict"], rows) if rows else ""


def first_fit_table(first: list[dict[str, Any]]) -> str:
    def cells(one: dict[str, Any]) -> list[str]:
        if "fits" not in one:
            return ["", one["stopped"], ""]
        second = [seconds_text(one["fits"][1])] if len(one["fits"]) > 1 else [""]
        return [seconds_text(one["import_seconds"]), seconds_text(one["fits"][0]), *second]

    rows = [[one["contestant"], *cells(one["empty"]), *cells(one["filled"])[1:2]] for one in first]
    return table(["contestant", "import, s", "first fit, s", "second fit, s", "first fit, caches filled, s"], rows)


def report(record: dict[str, Any]) -> str:
    """The whole page."""
    cases, runs, first = record["cases"], record["runs"], record["first_fits"]
    origins = []
    for when, run in runs.items():
        count = sum(one["run"] == when for one in cases)
        where = f"GPU: {run['machine']['gpu']}\n" if run["machine"].get("gpu") else ""
        origins.append(
            f"{describe(run['machine'])}\n{where}`{run['command']}`: {count} cases, limit {run['limit']:g} s"
        )
    reasons = sorted(
        {
            (
                one["d"],
                one["contestant"],
                one["skipped"] if "skipped" in one else f"{one['n']:,} rows: {one['stopped']}",
            )
            for one in cases
            if "skipped" in one or "stopped" in one
        }
    )
    left_out = [f"- d = {d}, {who}: {reason}" for d, who, reason in reasons]
    parts = [
        "# Fitting: seconds, error and memory against rows",
        *origins,
        floor_table(cases, first),
        f"![Seconds of a fit and error against rows.]({record['name']}.png)",
        "Seconds of a fit, median of the repetitions, programs compiled:",
        case_table(cases, "fit_seconds", seconds_text),
        f"Seconds of predicting {TEST_ROWS:,} rows:",
        case_table(cases, "predict_seconds", seconds_text),
        "Expected root mean squared error on new rows; the noise alone gives 1:",
        case_table(cases, "error", "{:.4f}".format),
        "Peak resident memory of the process during the fit, imports and inputs included, in MB:",
        case_table(cases, "peak_mb", "{:,.0f}".format),
        "Larger sizes of a contestant are skipped once a fit took longer than the limit:\n\n" + "\n".join(left_out)
        if left_out
        else "",
        f"Empty cells: not asked ({', '.join(f'{who} takes up to {rows:,} rows' for who, rows in MAX_ROWS.items())}).",
    ]
    if first:
        n, d = FIRST_FIT
        parts += [f"The first fit of {n:,} × {d} in a fresh process, with empty caches of compiled programs:"]
        parts += [first_fit_table(first)]
    return "\n\n".join(part for part in parts if part)


def merged(new: dict[str, Any]) -> dict[str, Any]:
    """The record in results/ with the cases of ``new`` in place of its own."""
    path = RESULTS / f"{new['name']}.json"
    if not path.exists():
        return new
    old = json.loads(path.read_text(encoding="utf-8"))
    cases = {(one["d"], one["n"], one["contestant"]): one for one in (*old["cases"], *new["cases"])}
    first = {one["contestant"]: one for one in (*old["first_fits"], *new["first_fits"])}
    used = {one["run"] for one in (*cases.values(), *first.values())}
    runs = {when: run for when, run in (old["runs"] | new["runs"]).items() if when in used}
    ordered = sorted(cases.values(), key=lambda one: (one["d"], one["n"], CONTESTANTS.index(one["contestant"])))
    return {"name": new["name"], "runs": runs, "cases": ordered, "first_fits": list(first.values())}


def housing(repeats: int, limit: float) -> None:
    """Print seconds and errors of regard and boosting on the first splits of California, and the ratio of medians."""
    print(describe(facts()), flush=True)
    seconds: dict[str, list[float]] = {"regard": [], "boosting": []}
    for number in range(min(repeats, 5)):
        for who, list_of in seconds.items():
            one = measured(Case(who, 16_512, 8, 1, california_split=number), limit + SECONDS_BEYOND_LIMIT)
            print(f"California, split {number}, {who}: {sentence(one)}", flush=True)
            if "fit_seconds" not in one:
                raise SystemExit(f"{who} did not finish")
            list_of.append(one["fit_seconds"])
    print(f"\nfit of California, regard over boosting (floor {HOUSING_FLOOR:g}, aim {HOUSING_AIM:g}):")
    for name, of in (("medians", median), ("fastest", min)):
        ours, theirs = (of(values) for values in seconds.values())
        print(f"{name}: {ours:.2f} s over {theirs:.2f} s, {ours / theirs:.1f} times as long")


def numbers(text: str) -> list[int]:
    return sorted(int(part) for part in text.split(","))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=numbers, default=list(SIZES), help="training rows, separated by commas")
    parser.add_argument("--features", type=numbers, default=list(FEATURES))
    parser.add_argument("--only", default=",".join(CONTESTANTS), help="contestants, separated by commas")
    parser.add_argument("--repeats", type=int, default=3, help="fits of a case, as long as they are short")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of a fit beyond which larger n are skipped")
    parser.add_argument("--no-first", action="store_true", help="leave out the first fits with empty caches")
    parser.add_argument("--update", action="store_true", help="put the cases measured into results/fit.*")
    parser.add_argument("--housing", action="store_true", help="only regard over boosting on California")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case is not None:
        run_case(Case(**json.loads(given.case)))
        return
    if given.housing:
        housing(given.repeats, given.limit)
        return
    names = given.only.split(",")
    if strangers := [name for name in names if name not in CONTESTANTS]:
        raise SystemExit(f"unknown: {', '.join(strangers)}; there are {', '.join(CONTESTANTS)}")
    whole = set(names) == set(CONTESTANTS) and given.sizes == list(SIZES) and given.features == list(FEATURES)
    machine = facts()
    gpu = gpu_name()
    if gpu is None and "regard-cuda" in names:
        print("regard-cuda is left out: torch finds no GPU")
        names.remove("regard-cuda")
    if gpu is not None:
        machine["gpu"] = gpu
    print(describe(machine), flush=True)
    when = machine["when"]
    first = [] if given.no_first else first_fits([who for who in names if who not in MAX_ROWS], given.limit)
    cases = race(given.sizes, given.features, names, given.repeats, given.limit)
    command = shlex.join(["python", "benchmarks/fit.py", *sys.argv[1:]])
    record: dict[str, Any] = {
        "name": "fit" if gpu is None else "fit_cuda",
        "runs": {when: {"machine": machine, "command": command, "limit": given.limit, "repeats": given.repeats}},
        "cases": [{"run": when, **one} for one in cases],
        "first_fits": [{"run": when, **one} for one in first],
    }
    print(f"\n{report(record)}")
    if given.update:
        record = merged(record)
    if given.update or (whole and not given.no_first):
        from fit_plot import draw

        save(record["name"], record, report(record))
        draw(record["cases"], RESULTS / f"{record['name']}.png")


if __name__ == "__main__":
    main()
