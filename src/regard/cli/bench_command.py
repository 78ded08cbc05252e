"""``regard bench``: times the engines on this machine, beside numpy and other libraries that are installed."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard import __version__
from regard.cli.console import say, spinner

if TYPE_CHECKING:
    from regard.racing.peers import Run
    from regard.racing.race import Contestant, RaceProblem

TOL = 1e-9
SIZES = (1_000, 10_000, 100_000)
# By the number of features: the bandwidth that leave-one-out finds for 20,000 rows; other counts scale it by the usual
# power.
WIDTHS = {1: 0.042, 3: 0.165}
ROUNDS = 3
SECONDS = 0.03
REST = 0.02
TRUTH_PAIRS = 1 << 22
# Engines to time, and the fewest queries for each; None for all, if time is not proportional to their number.
ENGINES = {"auto": None, "tiled": 256, "pruned": None, "spectral": None}


@dataclass(frozen=True)
class Bench:
    """Time regard on this machine, beside numpy and other libraries that are installed.

    Pools values at points in [0, 5) with one and with three features, at suitable bandwidths. Each line gives the time
    for all queries, its ratio to that of regard's own choice of engine, and the largest error relative to direct
    summation. Compilation is not counted. Takes less than a minute.
    """

    out: Annotated[str | None, typer.Option(help="Also write the results to this file, as JSON.")] = None
    force: Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")] = False

    def run(self) -> None:
        from regard.data.files import atomic_write, check_output
        from regard.pooling.runner import available_threads

        if self.out is not None:
            check_output(self.out, self.force, ValueError)
        facts = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, regard {__version__}"
        print(f"{facts}, {available_threads()} threads")
        print("Gaussian averages in float64, as many queries as rows; median times; ≈: extrapolated from fewer queries")
        print(_line(["rows", "d", "method", "time", "vs regard", "error"]), flush=True)
        found: list[dict[str, Any]] = []
        with spinner("Compiling") as now:
            for d, learned in WIDTHS.items():
                for n in SIZES:
                    now(f"{n:,} rows, {d}-D")
                    contestants = _timed(n, d, learned * (n / 20_000) ** (-1 / (d + 4)))
                    ours = contestants[0].time
                    for one in contestants:
                        error = one.error if math.isfinite(one.error) else None
                        record = {"rows": n, "features": d, "contestant": one.name, "seconds": one.time}
                        found.append(record | {"queries": one.queries, "error": error})
                        print(_line(_cells(n, d, one, ours)), flush=True)
        if self.out is not None:
            written = {"machine": facts, "tol": TOL, "results": found}
            with atomic_write(self.out, force=self.force, error=ValueError) as file:
                file.write((json.dumps(written, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode())
            say(f"wrote {self.out}")


def _timed(n: int, d: int, h: float) -> list[Contestant]:
    """Times of all methods that can handle n rows of d features; regard's own choice comes first."""
    from regard.racing.race import entered, judge, race, rows

    given, w = rows(n, d), 1.0 / h
    contestants = [
        entered(name, answer, given.query, SECONDS, least)
        for name, answer, least in (*_engines(given, w), *_peers(given, w))
    ]
    race(contestants, ROUNDS, REST)
    judge(contestants, given, w, TRUTH_PAIRS)
    return contestants


def _engines(given: RaceProblem, w: float) -> Iterator[tuple[str, Callable[[Any], Any], int | None]]:
    from regard import explain_plan, pool
    from regard.core.scores import Gaussian
    from regard.engines.costs import refusal

    score = Gaussian(w)
    plan = explain_plan(*given, score, tol=TOL)
    chosen = plan.steps[0].engine
    for engine, least in ENGINES.items():
        if engine == chosen or refusal(engine, plan.sketch) is not None:
            continue

        def answer(query: Any, engine: str = engine) -> Any:
            return pool(query, given.key, given.value, score, engine=engine, tol=TOL).output

        name = f"regard ({chosen})" if engine == "auto" else f"engine {engine}"
        yield name, answer, least


def _peers(given: RaceProblem, w: float) -> Iterator[tuple[str, Callable[[Any], Any], int]]:
    from regard.racing import peers

    known = (
        ("numpy", "numpy", peers.numpy_in_place, 32, 64),
        ("scikit-learn KDTree ratio", "sklearn", peers.kdtree_ratio, 0, 16),
        ("torch SDPA", "torch", peers.torch_sdpa, 8, 256),
        ("statsmodels KernelReg", "statsmodels", peers.statsmodels_kernel_reg, 0, 4),
    )
    for name, module, prepare, setting, least in known:
        if find_spec(module) is None:
            continue
        solve = prepare(given.key, given.value, w)

        def answer(query: Any, solve: Run = solve, setting: int = setting) -> Any:
            return solve(query, setting)

        yield name, answer, least


def _cells(n: int, d: int, one: Contestant, ours: float) -> list[str]:
    from regard.racing.race import span

    mark = "≈ " if one.part else ""
    error = f"{one.error:.0e}" + (" of the range, above tol" if one.error > TOL else "")
    return [f"{n:,}", str(d), one.name, mark + span(one.time), f"{one.time / ours:.3g}×", error]


def _line(cells: list[str]) -> str:
    sizes = (9, 3, 27, 12, 12, 0)
    return " ".join(cell.ljust(size) for cell, size in zip(cells, sizes, strict=True)).rstrip()
