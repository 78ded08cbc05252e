"""What each engine takes, and what it would cost: a small model with fixed constants, the same on every machine.

Seconds are those of one core of an ordinary laptop. They need not be right, only in the right order: threads and faster
machines shorten all of them alike.

    tiled     pairs
    pruned    an order of the rows, and the share of the pairs that lies within reach
    sorted    rows
    spectral  rows and waves, and pairs for the share of the queries that waves cannot vouch for

How many pairs are within reach is told from the span of the data in bandwidths, as if rows were spread evenly; where
they lie in clumps, fewer are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from math import ceil, gamma, inf, log, pi, prod, sqrt
from typing import NamedTuple

import numpy as np

from regard.core.problem import Sketch, moment_count
from regard.core.scores import Gaussian, Nearest, Radial

# Seconds that a call takes at least, whatever its size.
CALL = {"reference": 5e-5, "tiled": 3e-4, "pruned": 8e-4, "sorted": 1.5e-3, "spectral": 3e-3}
# Seconds of a pair, of each feature of it, and of each sum beyond mass and one moment, for 4 and 8 bytes.
PAIR = {4: 2.2e-10, 8: 6.2e-10}
FEATURE = {4: 3.5e-11, 8: 9e-11}
SUM = {4: 1.5e-10, 8: 3e-10}
# Kernels other than the Gaussian go through the weights of a tile: times as much, compact ones and Laplace.
COMPACT, LAPLACE = 2.5, 5.0
# In plain numpy.
NUMPY_PAIR, NUMPY_FEATURE = 2e-8, 8e-9
# Seconds of putting a row in order, and of looking at a box of 128 keys from a block of queries.
ORDER = 3e-7
BOX = 2e-9
# Seconds of a row on the sorted line, for each sum over it.
LINE = 1.5e-7
# Seconds of a row by waves in 1, 2 and 3 features, and of a wave of the fine grid, for each transform.
WAVES = {1: 1.4e-7, 2: 5e-7, 3: 2.5e-6}
WAVE = 2.5e-8
# Waves vouch for a query with this much of all attention mass, over tol.
FAINTEST = 2e-13
# Waves of the fine grid: a gigabyte. Data wider than so many bandwidths needs more, whatever its features.
FINEST, WIDEST = 1 << 26, 1e8
# Active features up to which there are waves, and features up to which boxes are worth looking at: in more, hardly any
# tile is far from any query.
WAVY, BOXED = 3, 32
# Fewer keys make too few tiles, and fewer queries too large blocks, for one to be far from another.
MANY, SEVERAL = 1 << 11, 1 << 8
# Sample weights lighter than this beside the largest are known by their logarithms only.
LIGHTEST = 2.0**-499


class Candidate(NamedTuple):
    """An engine, what it would cost in seconds on one core, and why in words; infinite where it does not apply."""

    engine: str
    seconds: float
    why: str


def refusal(engine: str, sketch: Sketch) -> str | None:
    """Why an engine does not take a problem; None: it does."""
    return _REFUSALS[engine](sketch) if engine in _REFUSALS else None


def require(engine: str, sketch: Sketch) -> None:
    """Raise ValueError where an engine does not take a problem."""
    reason = refusal(engine, sketch)
    if reason is not None:
        raise ValueError(f"engine {engine!r} {reason}; engine 'tiled' takes every problem")


def candidates(sketch: Sketch) -> list[Candidate]:
    """Every engine of a CPU, cheapest first."""
    found = []
    for engine, cost in _COSTS.items():
        reason = refusal(engine, sketch)
        found.append(Candidate(engine, *cost(sketch)) if reason is None else Candidate(engine, inf, reason))
    return sorted(found, key=lambda candidate: candidate.seconds)


def estimate(sketch: Sketch, engine: str = "auto") -> float:
    """Seconds that a named engine, or else the cheapest, would take on one core; infinite where nobody knows."""
    return min((one.seconds for one in candidates(sketch) if engine in ("auto", "dask", one.engine)), default=inf)


def _sums(sketch: Sketch) -> int:
    return 1 + moment_count(sketch.columns, sketch.width, sketch.degree)


def _pair(sketch: Sketch) -> float:
    """Seconds of one pair in a compiled program."""
    size, score = sketch.dtype.itemsize, sketch.score
    plain = PAIR[size] + FEATURE[size] * sketch.width + SUM[size] * max(0, _sums(sketch) - 2)
    if not isinstance(score, Radial) or isinstance(score, Gaussian | Nearest):
        return plain
    return plain * (COMPACT if score.kernel.compact else LAPLACE)


def _reference(sketch: Sketch) -> tuple[float, str]:
    seconds = sketch.pairs * (NUMPY_PAIR + NUMPY_FEATURE * sketch.width) * (1 + 0.5 * (_sums(sketch) - 1))
    return CALL["reference"] + seconds, f"{sketch.pairs:,} pairs in plain numpy"


def tiled_cost(sketch: Sketch) -> float:
    """Seconds that every pair takes."""
    return CALL["tiled"] + sketch.pairs * _pair(sketch)


def _tiled(sketch: Sketch) -> tuple[float, str]:
    return tiled_cost(sketch), f"{sketch.pairs:,} pairs, exact and compiled"


def share_in_reach(sketch: Sketch) -> float:
    """The share of the pairs that a query has to see, in tiles and blocks; 1 where the span is not known."""
    score = sketch.score
    assert isinstance(score, Radial)
    if not sketch.span:
        return 1.0
    reach = 1.0 if score.kernel.compact else -log(max(sketch.tol, 2.0**-53) / max(sketch.keys, 1))
    if isinstance(score, Gaussian):
        reach = sqrt(2.0 * reach)
    wide = [span for span in sketch.span if span > 0.0]
    # Sides of a tile of 128 keys and of a block of queries, whose boxes have to be apart.
    side = [(128 / max(rows, 128)) ** (1 / max(len(wide), 1)) for rows in (sketch.keys, sketch.queries)]
    box = prod(min(1.0, 2.0 * reach / span + sum(side)) for span in wide)
    # A ball in its cube: boxes in the corners are out of reach.
    ball = pi ** (len(wide) / 2) / gamma(len(wide) / 2 + 1) / 2.0 ** len(wide)
    return box * (ball if box < 1.0 else 1.0)


def order_cost(sketch: Sketch) -> float:
    """Seconds that ``pruned`` takes on top of the pairs it sees."""
    boxes = (sketch.queries / 32) * (sketch.keys / 128) * BOX * max(sketch.width, 1)
    return CALL["pruned"] - CALL["tiled"] + ORDER * (sketch.queries + sketch.keys) + boxes


def _pruned(sketch: Sketch) -> tuple[float, str]:
    if isinstance(sketch.score, Nearest) or not sketch.score.w.any():  # type: ignore[attr-defined]
        return inf, "every pair counts"
    if sketch.width > BOXED:
        return inf, f"in more than {BOXED} features hardly a tile is far from another"
    if sketch.queries < SEVERAL or sketch.keys < MANY:
        return inf, "too few rows for tiles that are far apart"
    share = share_in_reach(sketch)
    seconds = CALL["tiled"] + order_cost(sketch) + share * sketch.pairs * _pair(sketch)
    seen = f"about {share:.2g} of the pairs are within reach" if sketch.span else "tiles out of reach are skipped"
    return seconds, f"rows put in order, {seen}"


def _sorted(sketch: Sketch) -> tuple[float, str]:
    rows = sketch.queries + sketch.keys
    return CALL["sorted"] + rows * LINE * (1 + _sums(sketch)), f"{rows:,} rows along the sorted line"


def _spectral(sketch: Sketch) -> tuple[float, str]:
    if sketch.others:
        return inf, "labels exclude more than each query's own row"
    if not sketch.span:
        return inf, "the span of the data is not known"
    wide = [span for span in sketch.span if span > 0.0]
    r = max(len(wide), 1)
    if max(wide, default=0.0) > WIDEST:
        return inf, f"the data spans more than {WIDEST:g} bandwidths"
    share = prod(min(1.0, sqrt(2.0 * pi) / max(span, 1e-300)) for span in wide)
    # As far as the waves' noise, which is kept well below tol.
    reach = sqrt(-2.0 * log(max(sketch.tol * share / (400.0 * r), 1e-17)))
    grid = prod(2.0 * (2.0 * ceil(reach * (span + 2.0 * reach) / (2.0 * pi)) + 1.0) for span in wide)
    if grid > FINEST:
        return inf, f"{grid:.1e} waves are too many"
    # Values ride two to a transform; powers of δ are transforms of their own.
    there = -(-(1 + sketch.columns) // 2)
    back = there + (moment_count(1, r, sketch.degree) - 1)
    seconds = (WAVES[r] * (sketch.keys * there + sketch.queries * back)) + WAVE * grid * (there + back)
    # At an edge of the data half of the mass is missing, in a corner all but 2⁻ʳ.
    margin = sketch.tol * share / FAINTEST
    exact = 0.0 if margin >= 2.0**r else 1.0 if margin < 1.0 else 1.0 - (margin - 1.0) / (2.0**r - 1.0)
    told = f"{grid:,.0f} waves"
    if exact:
        seconds += order_cost(sketch) + exact * share_in_reach(sketch) * sketch.pairs * _pair(sketch)
        told += f", pair by pair for about {exact:.0%} of the queries"
    return CALL["spectral"] + seconds, told


def _not_pruned(sketch: Sketch) -> str | None:
    if not isinstance(sketch.score, Radial):
        return f"takes radial scores such as Gaussian, got {type(sketch.score).__name__}"
    return "takes no mask; exclude= is accepted" if sketch.masked else None


def _not_sorted(sketch: Sketch) -> str | None:
    score = sketch.score
    if not isinstance(score, Radial) or isinstance(score, Nearest | Gaussian):
        return f"takes compact kernels and Laplace, got {type(score).__name__}"
    if sketch.width != 1:
        return f"takes one feature, got {sketch.width}"
    if sketch.masked:
        return "takes no mask; exclude= is accepted"
    if sketch.lightest <= LIGHTEST:
        return f"takes sample weights within {LIGHTEST:g} of the largest, got one at {sketch.lightest:g}"
    if sketch.others:
        return f"takes exclude {sketch.others}"
    return None


def _not_spectral(sketch: Sketch) -> str | None:
    score = sketch.score
    if not _has_finufft():
        return "needs finufft, which is not installed: pip install finufft"
    if not isinstance(score, Gaussian):
        return f"takes Gaussian scores, got {type(score).__name__}"
    if score.w.ndim == 2:
        return "takes w as a number or one per feature, got a matrix"
    active = int(np.count_nonzero(np.broadcast_to(score.w, sketch.width)))
    if not 1 <= active <= WAVY:
        return f"takes 1 to {WAVY} features with w > 0, got {active}"
    if sketch.degree and active < sketch.width:
        return f"takes w = 0 at degree 0 only, got degree {sketch.degree}"
    if sketch.masked:
        return "takes no mask; exclude= is accepted"
    if not sketch.tol > 0.0:
        return "takes a tol above 0, got 0"
    return None


@lru_cache
def _has_finufft() -> bool:
    return find_spec("finufft") is not None


_COSTS: dict[str, Callable[[Sketch], tuple[float, str]]] = {
    "reference": _reference,
    "tiled": _tiled,
    "pruned": _pruned,
    "sorted": _sorted,
    "spectral": _spectral,
}
_REFUSALS: dict[str, Callable[[Sketch], str | None]] = {
    "pruned": _not_pruned,
    "sorted": _not_sorted,
    "spectral": _not_spectral,
}
