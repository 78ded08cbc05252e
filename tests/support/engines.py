"""Which engine takes which problem, by the engine's own word, and marks that run a test for all that do."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import pytest

from regard.core.problem import build
from regard.engines import ENGINES
from regard.engines.costs import refusal
from regard.scores import KERNELS, Score
from support.generators import DTYPES, OPTIONS, OWN_ROWS, make_inputs, score_table
from support.soak import FULL

# Exact to rounding for any number of features. The others answer within tol, or elsewhere.
EXACT = ("reference", "tiled", "pruned")

# One score of each path through the engines: these are multiplied by options, dtypes and engines.
PATHS = [
    "gaussian-scalar",
    "gaussian-feature",
    "gaussian-matrix",
    "laplace-scalar",
    "tricube-scalar",
    "nearest-feature",
    "dot",
    "additive",
]
# Every other kernel once.
OTHERS = [
    "boxcar-feature",
    "triangular-scalar",
    "epanechnikov-matrix",
    "biweight-feature",
    "triweight-scalar",
    "cosine-matrix",
]
if FULL:
    PATHS, OTHERS = [*score_table(1)], []
EACH = [*PATHS, *OTHERS]


# One kernel of each path.
KERNEL_PATHS = ["gaussian", "laplace", "tricube"]


def sparse(argument: str, values: Iterable[Any], paths: Iterable[Any], *axes: tuple[Any, Iterable[Any]]) -> Any:
    """Marks a test: the product of some axes with the values that are paths of their own, and every other value once.

    An axis is what ``parametrize`` takes: a name, or several, and what they go through. Values that stand alone take
    their turns along the axes. Soak runs have the whole product.
    """
    values, along = list(values), [list(one) for _, one in axes]
    crossed = values if FULL else list(paths)
    rows = [(value, *at) for value in crossed for at in product(*along)]
    others = [value for value in values if value not in crossed]
    rows += [(value, *(one[i % len(one)] for one in along)) for i, value in enumerate(others)]
    names = [argument, *(name for name, _ in axes)]
    flat = [
        tuple(part for name, at in zip(names, row, strict=True) for part in ([at] if isinstance(name, str) else at))
        for row in rows
    ]
    return pytest.mark.parametrize([one for name in names for one in ([name] if isinstance(name, str) else name)], flat)


def reason_against(engine: str, score: Score, option: str = "plain", d: int = 3) -> str | None:
    """Why an engine does not take this score with this option of ``make_inputs``; None if it does."""
    inputs = make_inputs(option, 3, 3, 1, d=d)
    return refusal(engine, build(*inputs[:3], score, **inputs.options).sketch())


@cache
def takes(engine: str, score: str, option: str = "plain", d: int = 3) -> bool:
    return reason_against(engine, score_table(d)[score], option, d) is None


def engines_for(*scores: Score, option: str = "plain", d: int = 1) -> pytest.MarkDecorator:
    """Runs a test for every exact engine that takes these scores with this option."""
    willing = [e for e in EXACT if all(reason_against(e, score, option, d) is None for score in scores)]
    return pytest.mark.parametrize("engine", willing)


def taken(scores: Iterable[str], options: Iterable[str] | str = "plain") -> pytest.MarkDecorator:
    """Runs a test for every exact engine with every score, by name, that it takes.

    Several options are arguments of the test too; one is what the test's problem holds.
    """
    if isinstance(options, str):
        return pytest.mark.parametrize(
            ("score", "engine"), [(s, e) for s in scores for e in EXACT if takes(e, s, options)]
        )
    rows = [(s, o, e) for s in scores for o in options for e in EXACT if takes(e, s, o)]
    return pytest.mark.parametrize(("score", "option", "engine"), rows)


class Row(NamedTuple):
    """A problem of the conformance table: a score and an option, by name, and the number of features."""

    score: str
    option: str
    d: int


# Each path with each option; every other kernel with weights and with everything; one feature, which an engine is for.
ROWS = [
    *(Row(score, option, 3) for score in PATHS for option in OPTIONS),
    *(Row(score, option, 3) for score in OTHERS for option in ("weights", "everything")),
    *(Row(f"{name}-scalar", option, 1) for name in KERNELS for option in ("weights", OWN_ROWS)),
]
# Programs that are interpreted, and tasks for workers.
SLOW = ("fused", "dask")


def is_quick(row: Row, engine: str) -> bool:
    """Whether there is time for many rows and shapes: not for these, nor for grids of three features."""
    return engine not in SLOW and (engine, row.d) != ("spectral", 3)


def stands_for_its_path(row: Row, engine: str) -> bool:
    return row.score in PATHS and row.option == ("weights" if engine == "spectral" else "everything")


def conformance(
    options: Iterable[str] = (*OPTIONS, OWN_ROWS),
    without: Iterable[str] = (),
    without_scores: Iterable[str] = (),
    slow_dtypes: Iterable[Any] = DTYPES,
) -> pytest.MarkDecorator:
    """Runs a test for every engine there is, in each dtype, with every row of the table that it says it takes."""
    cases = [
        (row, engine, dtype)
        for engine in ENGINES
        for row in ROWS
        for dtype in DTYPES
        if engine not in without
        and row.option in options
        and row.score not in without_scores
        and (is_quick(row, engine) or (stands_for_its_path(row, engine) and dtype in slow_dtypes))
        and takes(engine, *row)
    ]
    ids = [f"{row.score}-{row.option}-{row.d}-{engine}-{dtype.__name__}" for row, engine, dtype in cases]
    return pytest.mark.parametrize(("row", "engine", "dtype"), cases, ids=ids)


every_engine = pytest.mark.parametrize("engine", EXACT)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
every_kernel = pytest.mark.parametrize("name", KERNELS)
few_and_many = pytest.mark.parametrize("queries", [3, 40])
