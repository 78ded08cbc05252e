"""Which problems each engine takes, and an estimate of its cost: a small model with fixed constants.

Seconds are those of one core of an ordinary laptop. Only their order matters: threads and faster machines shorten all
of them alike. Cost is proportional to

    tiled     pairs
    pruned    rows to put in order, and the fraction of the pairs within reach
    graded    the same, with all moments of degree 2, those of far tiles in single precision
    sorted    rows
    spectral  rows and Fourier modes, and pairs for the fraction of the queries that need an exact recomputation

The fraction of the pairs within reach follows from the span of the data in bandwidths if rows are spread evenly, and is
smaller if they are clustered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from math import ceil, gamma, inf, log, pi, prod, sqrt
from typing import NamedTuple

import numpy as np

from regard.core.problem import Sketch, moment_count
from regard.core.scores import Gaussian, Nearest, Radial

# Seconds that a call takes at least, whatever its size.
CALL_SECONDS = {"reference": 5e-5, "tiled": 3e-4, "pruned": 8e-4, "graded": 2e-3, "sorted": 1.5e-3, "spectral": 3e-3}
# Seconds per pair, per feature of a pair, and per sum beyond mass and one moment, for 4 and 8 bytes.
PAIR_SECONDS = {4: 2.2e-10, 8: 6.2e-10}
FEATURE_SECONDS = {4: 3.5e-11, 8: 9e-11}
SUM_SECONDS = {4: 1.5e-10, 8: 3e-10}
# Seconds per sum beyond mass and one moment if products of keys are formed once per tile.
SUM_OF_PRODUCTS_SECONDS = {4: 6e-11, 8: 1.1e-10}
# Fraction of the mass of a query that may be computed in single precision, relative to tol.
MASS_IN_SINGLE_PER_TOL = 1e5
# Kernels other than the Gaussian form the weights of a tile first, which takes this many times as long.
COMPACT_FACTOR = 2.5
LAPLACE_FACTOR = 5.0
# Seconds per pair, and per feature of a pair, in plain numpy.
NUMPY_PAIR_SECONDS = 2e-8
NUMPY_FEATURE_SECONDS = 8e-9
# Seconds to put a row in spatial order, and to compare a box of 128 keys with a block of queries, per feature.
ORDER_ROW_SECONDS = 3e-7
BOX_SECONDS = 2e-9
# Seconds per row of a sorted line, for each sum over it.
SORTED_ROW_SECONDS = 1.5e-7
# Seconds per row of a non-uniform transform in 1, 2 and 3 features, and per mode of the fine grid.
TRANSFORM_ROW_SECONDS = {1: 1.4e-7, 2: 5e-7, 3: 2.5e-6}
MODE_SECONDS = 2.5e-8
# Noise of a transform relative to the attention mass: queries with less than this, over tol, are computed exactly.
TRANSFORM_NOISE = 2e-13
# Modes of the fine grid, a gigabyte of them. Data wider than this many bandwidths needs more in any dimension.
MAX_MODES = 1 << 26
MAX_SPECTRAL_SPAN = 1e8
# Features with w > 0 that the spectral engine takes.
MAX_SPECTRAL_FEATURES = 3
# In more features hardly any tile is out of reach of another.
MAX_FEATURES_TO_PRUNE = 32
# With fewer keys or queries, tiles are too large to be out of reach of each other.
MIN_KEYS_TO_PRUNE = 1 << 11
MIN_QUERIES_TO_PRUNE = 1 << 8
# With fewer keys or queries, sorting them and forming products takes longer than all pairs.
MIN_ROWS_TO_GRADE = 1 << 8
# Sample weights below this, relative to the largest, are represented by their logarithms only.
MIN_RELATIVE_WEIGHT = 2.0**-499


class Candidate(NamedTuple):
    """An engine, its estimated seconds on one core (inf if it does not apply), and the reason."""

    engine: str
    seconds: float
    why: str


def refusal(engine: str, sketch: Sketch) -> str | None:
    """Why an engine does not take a problem; None if it does."""
    return _REFUSALS[engine](sketch) if engine in _REFUSALS else None


def require(engine: str, sketch: Sketch) -> None:
    """Raise ValueError if an engine does not take a problem."""
    reason = refusal(engine, sketch)
    if reason is not None:
        raise ValueError(f"engine {engine!r} {reason}; engine 'tiled' takes every problem")


def candidates(sketch: Sketch) -> list[Candidate]:
    """Every CPU engine, cheapest first."""
    found = []
    for engine, cost in _COSTS.items():
        reason = refusal(engine, sketch)
        found.append(Candidate(engine, *cost(sketch)) if reason is None else Candidate(engine, inf, reason))
    return sorted(found, key=lambda candidate: candidate.seconds)


def estimate(sketch: Sketch, engine: str = "auto") -> float:
    """Seconds of a named engine, or of the cheapest, on one core; inf if no estimate is available."""
    return min((one.seconds for one in candidates(sketch) if engine in ("auto", "dask", one.engine)), default=inf)


def _sums(sketch: Sketch) -> int:
    return 1 + moment_count(sketch.columns, sketch.width, sketch.degree)


def _pair(sketch: Sketch) -> float:
    """Seconds of one pair in a compiled program."""
    size, score = sketch.dtype.itemsize, sketch.score
    extra = max(0, _sums(sketch) - 2)
    plain = PAIR_SECONDS[size] + FEATURE_SECONDS[size] * sketch.width + SUM_SECONDS[size] * extra
    if not isinstance(score, Radial) or isinstance(score, Gaussian | Nearest):
        return plain
    return plain * (COMPACT_FACTOR if score.kernel.compact else LAPLACE_FACTOR)


def _reference(sketch: Sketch) -> tuple[float, str]:
    pair = NUMPY_PAIR_SECONDS + NUMPY_FEATURE_SECONDS * sketch.width
    seconds = sketch.pairs * pair * (1 + 0.5 * (_sums(sketch) - 1))
    return CALL_SECONDS["reference"] + seconds, f"{sketch.pairs:,} pairs in plain numpy"


def tiled_cost(sketch: Sketch) -> float:
    """Seconds to compute every pair."""
    return CALL_SECONDS["tiled"] + sketch.pairs * _pair(sketch)


def _tiled(sketch: Sketch) -> tuple[float, str]:
    return tiled_cost(sketch), f"{sketch.pairs:,} pairs, exact and compiled"


def fraction_in_reach(sketch: Sketch) -> float:
    """The fraction of the pairs in tiles within reach; 1 if the span of the data is unknown."""
    score = sketch.score
    assert isinstance(score, Radial)
    if not sketch.span:
        return 1.0
    reach = 1.0 if score.kernel.compact else -log(max(sketch.tol, 2.0**-53) / max(sketch.keys, 1))
    if isinstance(score, Gaussian):
        reach = sqrt(2.0 * reach)
    wide = [span for span in sketch.span if span > 0.0]
    # Sides of a tile of 128 keys and of a block of queries, relative to the data.
    side = [(128 / max(rows, 128)) ** (1 / max(len(wide), 1)) for rows in (sketch.keys, sketch.queries)]
    box = prod(min(1.0, 2.0 * reach / span + sum(side)) for span in wide)
    # The volume of a ball in its cube: boxes in the corners are out of reach.
    ball = pi ** (len(wide) / 2) / gamma(len(wide) / 2 + 1) / 2.0 ** len(wide)
    return box * (ball if box < 1.0 else 1.0)


def order_cost(sketch: Sketch) -> float:
    """Seconds that ``pruned`` takes besides computing pairs."""
    boxes = (sketch.queries / 32) * (sketch.keys / 128) * BOX_SECONDS * max(sketch.width, 1)
    return CALL_SECONDS["pruned"] - CALL_SECONDS["tiled"] + ORDER_ROW_SECONDS * (sketch.queries + sketch.keys) + boxes


def _pruned(sketch: Sketch) -> tuple[float, str]:
    if isinstance(sketch.score, Nearest) or not sketch.score.w.any():  # type: ignore[attr-defined]
        return inf, "every pair is within reach"
    if sketch.width > MAX_FEATURES_TO_PRUNE:
        return inf, f"in more than {MAX_FEATURES_TO_PRUNE} features hardly any tile is out of reach"
    if sketch.queries < MIN_QUERIES_TO_PRUNE or sketch.keys < MIN_KEYS_TO_PRUNE:
        return inf, "too few rows for tiles out of reach"
    fraction = fraction_in_reach(sketch)
    seconds = CALL_SECONDS["tiled"] + order_cost(sketch) + fraction * sketch.pairs * _pair(sketch)
    reach = f"about {fraction:.2g} of the pairs are within reach" if sketch.span else "tiles out of reach are skipped"
    return seconds, f"rows in spatial order, {reach}"


def _graded(sketch: Sketch) -> tuple[float, str]:
    if min(sketch.queries, sketch.keys) < MIN_ROWS_TO_GRADE:
        return inf, "too few rows to be worth sorting into near and far tiles"
    # All products of degree 2 are computed, whatever the degree.
    sums = moment_count(sketch.columns, sketch.width, 2)
    by_precision = (
        (PAIR_SECONDS[size] + FEATURE_SECONDS[size] * sketch.width + SUM_OF_PRODUCTS_SECONDS[size] * sums)
        * sketch.pairs
        for size in (4, 8)
    )
    reach = fraction_in_reach(sketch) if sketch.tol > 0.0 else 1.0
    # Without a span the distances are unknown: as if every tile were near.
    near = (
        fraction_in_reach(replace(sketch, tol=min(1.0, MASS_IN_SINGLE_PER_TOL * sketch.tol))) if sketch.span else reach
    )
    single, double = by_precision
    seconds = CALL_SECONDS["graded"] + order_cost(sketch) + near * double + (reach - near) * single
    why = f"products about centres of tiles, about {near:.2g} of the pairs in double precision" if sketch.span else ""
    return seconds, why or "products about centres of tiles, the far ones in single precision"


def _sorted(sketch: Sketch) -> tuple[float, str]:
    rows = sketch.queries + sketch.keys
    return CALL_SECONDS["sorted"] + rows * SORTED_ROW_SECONDS * (
        1 + _sums(sketch)
    ), f"{rows:,} rows along the sorted line"


def _spectral(sketch: Sketch) -> tuple[float, str]:
    if sketch.others:
        return inf, "labels exclude more than each query's own row"
    if not sketch.span:
        return inf, "the span of the data is unknown"
    wide = [span for span in sketch.span if span > 0.0]
    r = max(len(wide), 1)
    if max(wide, default=0.0) > MAX_SPECTRAL_SPAN:
        return inf, f"the data spans more than {MAX_SPECTRAL_SPAN:g} bandwidths"
    typical = prod(min(1.0, sqrt(2.0 * pi) / max(span, 1e-300)) for span in wide)
    # Up to the noise of the transform, which is well below tol.
    reach = sqrt(-2.0 * log(max(sketch.tol * typical / (400.0 * r), 1e-17)))
    modes = prod(2.0 * (2.0 * ceil(reach * (span + 2.0 * reach) / (2.0 * pi)) + 1.0) for span in wide)
    if modes > MAX_MODES:
        return inf, f"{modes:.1e} Fourier modes are too many"
    # Two columns share a transform; powers of δ have transforms of their own.
    forward = -(-(1 + sketch.columns) // 2)
    inverse = forward + (moment_count(1, r, sketch.degree) - 1)
    rows = sketch.keys * forward + sketch.queries * inverse
    seconds = (TRANSFORM_ROW_SECONDS[r] * rows) + MODE_SECONDS * modes * (forward + inverse)
    # At an edge of the data half of the mass is missing, in a corner all but 2⁻ʳ.
    margin = sketch.tol * typical / TRANSFORM_NOISE
    exact = 0.0 if margin >= 2.0**r else 1.0 if margin < 1.0 else 1.0 - (margin - 1.0) / (2.0**r - 1.0)
    reason = f"{modes:,.0f} Fourier modes"
    if exact:
        seconds += order_cost(sketch) + exact * fraction_in_reach(sketch) * sketch.pairs * _pair(sketch)
        reason += f", pair by pair for about {exact:.0%} of the queries"
    return CALL_SECONDS["spectral"] + seconds, reason


def _not_pruned(sketch: Sketch) -> str | None:
    if not isinstance(sketch.score, Radial):
        return f"takes radial scores such as Gaussian, got {type(sketch.score).__name__}"
    return "takes no mask; exclude= is accepted" if sketch.masked else None


def _not_graded(sketch: Sketch) -> str | None:
    if not isinstance(sketch.score, Gaussian):
        return f"takes Gaussian scores, got {type(sketch.score).__name__}"
    return "takes no mask; exclude= is accepted" if sketch.masked else None


def _not_sorted(sketch: Sketch) -> str | None:
    score = sketch.score
    if not isinstance(score, Radial) or isinstance(score, Nearest | Gaussian):
        return f"takes compact kernels and Laplace, got {type(score).__name__}"
    if sketch.width != 1:
        return f"takes one feature, got {sketch.width}"
    if sketch.masked:
        return "takes no mask; exclude= is accepted"
    if sketch.lightest <= MIN_RELATIVE_WEIGHT:
        return f"takes sample weights above {MIN_RELATIVE_WEIGHT:g} of the largest, got {sketch.lightest:g} of it"
    if sketch.others:
        return f"takes exclude {sketch.others}"
    return None


def _not_spectral(sketch: Sketch) -> str | None:
    score = sketch.score
    if not _has_finufft():
        return "needs finufft, which is not installed; run pip install finufft"
    if not isinstance(score, Gaussian):
        return f"takes Gaussian scores, got {type(score).__name__}"
    if score.w.ndim == 2:
        return "takes w as a number or one per feature, got a matrix"
    active = int(np.count_nonzero(np.broadcast_to(score.w, sketch.width)))
    if not 1 <= active <= MAX_SPECTRAL_FEATURES:
        return f"takes 1 to {MAX_SPECTRAL_FEATURES} features with w > 0, got {active}"
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
    "graded": _graded,
    "sorted": _sorted,
    "spectral": _spectral,
}
_REFUSALS: dict[str, Callable[[Sketch], str | None]] = {
    "pruned": _not_pruned,
    "graded": _not_graded,
    "sorted": _not_sorted,
    "spectral": _not_spectral,
}
