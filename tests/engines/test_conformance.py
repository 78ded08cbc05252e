"""Every engine against the formulas, on every row of one table that it takes: values, logsumexp, weights and moments.

What an engine takes it says itself; what it does not take it refuses, with the same words. Gradients on the same table
are in test_pullback.py. The budget is twice the error of the formulas run naively at the same precision, plus a few
ulps, and tol for the engines that answer within it.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

from regard import engines
from regard.core.arrays import as_numpy
from regard.core.problem import build, moment_count, split_moments
from regard.pooling.functions import attention_weights, pool
from regard.pooling.planner import plan
from regard.scores import Gaussian, Score
from support import oracle
from support.engines import ROWS, SLOW, Row, conformance, every_dtype, every_engine, is_quick, reason_against, taken
from support.generators import OWN_ROWS, Inputs, Known, known, make_inputs, score_table

D = 3
SCORES = score_table(D)
#        Q   K    P     ragged against lanes (16, 32), tiles (256) and each other
SHAPES = [(1, 1, 1), (3, 31, 3), (31, 3, 1), (33, 70, 1), (70, 33, 3), (40, 300, 1)]
ULPS = 8
# What an engine that is not exact may be off by, in units of the values.
TOL = {np.float32: 1e-5, np.float64: 1e-9}
WITHIN_TOL = ("sorted", "spectral", "graded", "dask")
# Never form (Q, K), and say so in tests of their own.
WITHOUT_WEIGHTS = ("sorted", "fused")

pytestmark = pytest.mark.usefixtures("engine_here")


class Case(NamedTuple):
    """Inputs, the truth, and what the naive formulas make of them."""

    inputs: Inputs
    score: Score
    truth: oracle.Answer
    naive: oracle.Answer


@cache
def case(row: Row, shape: tuple[int, int, int], dtype: Any) -> Case:
    inputs, score = make_inputs(row.option, *shape, d=row.d, dtype=dtype), score_table(row.d)[row.score]
    args = (*inputs[:3], score)
    truth, naive = (oracle.pooled(*args, **inputs.options, real=real) for real in (np.longdouble, dtype))
    return Case(inputs, score, truth, naive)


def slack(engine: str, dtype: Any) -> float:
    return TOL[dtype] if engine in WITHIN_TOL else 0.0


def check(got: Any, truth: Any, naive: Any, scale: float, dtype: Any, tol: float = 0.0) -> None:
    """|got − truth| ≤ 2·|naive − truth| + a few ulps of the scale, and infinite in the same places."""
    finite = np.isfinite(truth)
    assert np.array_equal(np.isfinite(got), finite)
    if finite.any():
        error, allowed = (np.abs(x[finite] - truth[finite]).max() for x in (got, naive))
        assert error <= 2 * allowed + (ULPS * np.finfo(dtype).eps + tol) * scale


@conformance()
def test_pool(row, dtype, engine):
    tol = slack(engine, dtype)
    for shape in SHAPES if is_quick(row, engine) else SHAPES[3:4]:
        inputs, score, truth, naive = case(row, shape, dtype)
        output, logsumexp = pool(*inputs[:3], score, engine=engine, tol=TOL[dtype], **inputs.options)
        assert output.dtype == logsumexp.dtype == dtype
        check(output, truth.output, naive.output, np.abs(inputs.value).max(), dtype, tol)
        finite = np.isfinite(truth.logsumexp)
        scale = np.abs(truth.logsumexp[finite]).max(initial=1.0)
        check(logsumexp, truth.logsumexp, naive.logsumexp, scale, dtype, tol)
        # Empty rows are exactly zero.
        assert not output[~finite].any()


@conformance(without=WITHOUT_WEIGHTS)
def test_weights(row, dtype, engine):
    for shape in SHAPES if is_quick(row, engine) else SHAPES[3:4]:
        inputs, score, truth, naive = case(row, shape, dtype)
        weights = attention_weights(*inputs[:2], score, engine=engine, **inputs.options)
        assert weights.dtype == dtype
        assert (weights >= 0.0).all()
        check(weights, truth.weights, naive.weights, 1.0, dtype)
        # A pair that may not attend has no weight, to the last bit.
        assert not weights[truth.weights == 0.0].any()


def run_moments(engine: str, problem: Any) -> Any:
    step = plan(problem.sketch(), engine).steps[0]
    outcome = engines.load(engine).moments(problem, step)
    assert outcome.uncertified is None or not outcome.uncertified.any()
    return outcome.partial._replace(moments=as_numpy(outcome.partial.moments))


@conformance(
    options=("plain", "weights", "everything", OWN_ROWS), without_scores=("additive",), slow_dtypes=(np.float64,)
)
def test_moments_with_delta(row, dtype, engine):
    for degree, shape in product(
        (1, 2), ((3, 31, 3), (33, 70, 1), (5, 300, 2)) if is_quick(row, engine) else SHAPES[3:4]
    ):
        inputs, score, truth, naive = case(row, shape, dtype)
        kept = np.ones(shape[1], bool)
        if "sample_weight" in inputs.options:
            kept &= inputs.options["sample_weight"] > 0.0
        if "mask" in inputs.options:
            kept &= (inputs.options["mask"] > -np.inf).any(axis=0)
        problem = build(*inputs[:3], score, degree=degree, tol=TOL[dtype], **inputs.options)
        partial = run_moments(engine, problem)
        assert partial.moments.shape == (shape[0], moment_count(shape[2], row.d, degree))
        assert np.array_equal(partial.mass > 0.0, np.isfinite(truth.logsumexp))
        phi = oracle.products(inputs.query, inputs.key[kept], inputs.value[kept], degree)
        expected = np.einsum("qk,qkm->qm", truth.weights[:, kept], phi)
        rough = np.einsum("qk,qkm->qm", naive.weights[:, kept], phi.astype(dtype))
        got = partial.moments / np.where(partial.mass > 0.0, partial.mass, 1.0)[:, None]
        scale = np.einsum("qk,qkm->qm", truth.weights[:, kept], np.abs(phi)).max()
        check(got, expected, rough, scale, dtype, slack(engine, dtype))


@pytest.mark.parametrize("engine", engines.ENGINES)
def test_what_an_engine_does_not_take_it_refuses(engine):
    """By name, with its own reason; nothing else is done in its place."""
    for row in ROWS:
        score = score_table(row.d)[row.score]
        reason = reason_against(engine, score, row.option, row.d)
        if reason is not None:
            inputs = make_inputs(row.option, 3, 3, 1, d=row.d)
            with pytest.raises(ValueError, match=re.escape(f"engine {engine!r} {reason}")):
                pool(*inputs[:3], score, engine=engine, **inputs.options)


@every_engine
def test_moments_taken_apart(engine):
    inputs = make_inputs("plain", 4, 9, 2, d=D)
    problem = build(*inputs[:3], Gaussian(), degree=2)
    partial = run_moments(engine, problem)
    value, delta, value_delta, delta_delta = split_moments(partial.moments / partial.mass[:, None], 2, D, 2)
    weights = oracle.pooled(*inputs[:3], Gaussian()).weights
    difference = inputs.key[None] - inputs.query[:, None]
    for got, letters, factors in (
        (value, "qk,kp->qp", (inputs.value,)),
        (delta, "qk,qka->qa", (difference,)),
        (value_delta, "qk,kp,qka->qpa", (inputs.value, difference)),
        (delta_delta, "qk,qka,qkb->qab", (difference, difference)),
    ):
        assert np.allclose(got, np.einsum(letters, weights, *factors).astype(float), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("degree", [1, 2, 3, -1, 0.5, "1"])
def test_degrees_that_are_refused(degree):
    inputs = make_inputs("plain", 2, 3, 1, d=D)
    with pytest.raises(ValueError, match="degree must be 0, 1 or 2"):
        build(*inputs[:3], SCORES["additive" if degree in (1, 2) else "dot"], degree=degree)


@every_engine
@every_dtype
@pytest.mark.parametrize("row", known(), ids=lambda row: row.name)
def test_closed_forms(row: Known, dtype, engine):
    arrays = [array.astype(dtype) for array in (row.query, row.key, row.value)]
    output, logsumexp = pool(*arrays, row.score, engine=engine, tol=0.0)
    # Values reach 100: their sum, not the answer, sets the scale.
    scale = np.finfo(dtype).eps * 32
    assert np.allclose(output, row.output, rtol=scale, atol=scale)
    assert np.allclose(logsumexp, row.logsumexp, rtol=scale, atol=scale)


@every_dtype
@pytest.mark.parametrize("d", [1, 2, 4, 5, 8, 17])
@taken(["gaussian-scalar", "gaussian-feature", "tricube-feature", "nearest-scalar", "dot"])
def test_widths(score, d, dtype, engine):
    """Every number of features, unrolled or not; with exclusion too for the fused program."""
    this = score_table(d)[score]
    for option in ("plain", "weights", "exclude"):
        inputs = make_inputs(option, 35, 131, 1, d=d, dtype=dtype)
        truth, naive = (
            oracle.pooled(*inputs[:3], this, real=real, **inputs.options) for real in (np.longdouble, dtype)
        )
        output, logsumexp = pool(*inputs[:3], this, engine=engine, **inputs.options)
        check(output, truth.output, naive.output, np.abs(inputs.value).max(), dtype)
        finite = np.isfinite(truth.logsumexp)
        check(logsumexp, truth.logsumexp, naive.logsumexp, np.abs(truth.logsumexp[finite]).max(initial=1.0), dtype)


def test_an_unknown_score_is_an_error_in_the_tiled_engine():
    class Odd(Score):
        def check(self, query_width: int, key_width: int) -> None:
            pass

    with pytest.raises(TypeError, match="Odd"):
        pool([0.0], [1.0], [2.0], Odd(), engine="tiled")


def test_engines_are_loaded_by_name():
    CPU = [name for name in engines.ENGINES if name not in SLOW]
    assert [engines.load(name).__name__ for name in CPU] == [engines.ENGINES[name] for name in CPU]
    with pytest.raises(ValueError, match=r"engine must be one of auto, reference, .*, dask, got 'magic'"):
        engines.load("magic")
