"""``regard bench``: how fast the engines are on this machine, beside numpy and whichever peers are installed."""

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
from regard.cli.console import say, working

if TYPE_CHECKING:
    from regard.racing.peers import Run
    from regard.racing.race import Contestant, RaceProblem

TOL = 1e-9
SIZES = (1_000, 10_000, 100_000)
# Features, and the bandwidth that leave-one-out finds for 20,000 rows; for other counts it goes by the usual power.
WIDTHS = {1: 0.042, 3: 0.165}
ROUNDS, SECONDS, REST, TRUTH_PAIRS = 3, 0.03, 0.02, 1 << 22
# Engines for Gaussian scores, and the fewest queries to ask; None: all, as their work is not in proportion.
ASKED = {"auto": None, "tiled": 256, "pruned": None, "spectral": None}


@dataclass(frozen=True)
class Bench:
    """Time regard on this machine, beside numpy and other libraries that happen to be installed.

    Averages values on [0, 5) in one and in three features, at bandwidths that suit them. Every line says how long
    all queries take, how that compares with regard's own choice of engine, and the largest error beside direct
    differences. Compilation is left out. Takes less than a minute.
    """

    out: Annotated[str | None, typer.Option(help="Also write the figures as JSON to this file.")] = None
    force: Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")] = False

    def run(self) -> None:
        from regard.data.files import atomic_write, check_output
        from regard.pooling.runner import available_threads

        if self.out is not None:
            check_output(self.out, self.force, ValueError)
        facts = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, regard {__version__}"
        print(f"{facts}, {available_threads()} threads")
        print("Gaussian averages, float64, as many queries as rows; medians; ≈ extended from fewer queries")
        print(_line(["rows", "d", "who", "time", "of regard's", "error"]), flush=True)
        found: list[dict[str, Any]] = []
        with working("Compiling") as now:
            for d, learned in WIDTHS.items():
                for n in SIZES:
                    now(f"{n:,} rows, {d}-D")
                    contestants = _raced(n, d, learned * (n / 20_000) ** (-1 / (d + 4)))
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


def _raced(n: int, d: int, h: float) -> list[Contestant]:
    """Everybody who can take n rows of d features, timed; regard's own choice comes first."""
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
    for engine, least in ASKED.items():
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
