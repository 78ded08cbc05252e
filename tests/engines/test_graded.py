"""Engine ``graded``: what is skipped and what single precision rounds stays within tol, by bounds that hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from regard import LocalLinearRegressor, pool
from regard.core.problem import build
from regard.engines.cpu import graded
from regard.pooling.functions import explain_plan
from regard.pooling.local_pooling import local_output, pool_local
from regard.pooling.planner import plan
from regard.pooling.runner import run_moments
from regard.programs.cpu import graded_sums
from regard.scores import Gaussian
from support import oracle

rng = np.random.default_rng(5)
D = 3
# Several groups of keys with one centre, and a last tile and block that are not full.
KEY = rng.uniform(-1.0, 1.0, (graded_sums.CHUNK_KEYS * graded_sums.CHUNKS_PER_CENTRE + 700, D))
QUERY = rng.uniform(-1.1, 1.1, (70, D))
VALUE = np.stack([np.sin(3.0 * KEY[:, 0]), 1e6 + KEY[:, 1] ** 2], axis=1)
TURN = np.array([[9.0, -2.0], [1.0, 8.0], [2.0, 2.0]])
SCORES = {"scalar": Gaussian(8.0), "feature": Gaussian([12.0, 0.0, 5.0]), "matrix": Gaussian(TURN)}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "weights": {"sample_weight": 10.0 ** rng.uniform(-9.0, 0.0, len(KEY))},
    "labels": {"exclude": (np.arange(70) % 9, np.arange(len(KEY)) % 11)},
}


def problem_of(score: Gaussian, query: Any = QUERY, key: Any = KEY, value: Any = VALUE, **options: Any) -> Any:
    return build(query, key, value, score, degree=2, **({"tol": 1e-9} | options))


def differences(problem: Any) -> tuple[float, float]:
    """The largest errors of log mass, and of a moment relative to the mean of its size, against the reference."""
    got, expected = (run_moments(problem, engine).partial for engine in ("graded", "reference"))
    logs = [part.peak + np.log(part.mass) for part in (got, expected)]
    means = [part.moments / part.mass[:, None] for part in (got, expected)]
    return float(np.abs(logs[0] - logs[1]).max()), float((np.abs(means[0] - means[1]) / np.abs(means[1]).max(0)).max())


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("tol", [1e-9, 1e-5])
def test_moments_are_within_tol(score, option, tol):
    problem = problem_of(SCORES[score], **OPTIONS[option], tol=tol)
    assert max(differences(problem)) < tol
    # Without a tolerance nothing is skipped or rounded.
    assert max(differences(replace(problem, tol=0.0))) < 1e-12


def test_a_coarse_tolerance_is_used():
    """Otherwise nothing above would be skipped or in single precision."""
    exact, rough = (max(differences(problem_of(Gaussian(8.0), tol=tol))) for tol in (0.0, 1e-5))
    assert rough > 1e3 * exact


def test_weights_in_single_precision_keep_the_bound():
    """Against longdouble, in the program itself: a block of queries, keys about one centre."""
    key, query = rng.normal(size=(512, D)), rng.normal(size=(graded_sums.LANES, D)) + 2.0
    square = ((query[:, None].astype(np.longdouble) - key) ** 2).sum(axis=2)
    single = (query[:, None].astype(np.float32) - key.astype(np.float32)) ** 2
    weight = np.exp(np.float32(-0.5) * single.sum(axis=2, dtype=np.float32))
    radius = float(max(np.abs(key).max(), 0.0))
    bound = [graded_sums._error_of_single(float(one), radius) for one in square.ravel()]
    assert (np.abs(weight - np.exp(-0.5 * square)).ravel() <= bound).all()


@pytest.mark.parametrize("least", [1.0, 1e-6, 0.0])
def test_distances_of_grades_keep_what_they_promise(least):
    distance2, mass = rng.uniform(0.0, 120.0, 60), rng.uniform(0.0, 128.0, 60)
    limits = np.empty(2)
    graded_sums.grade_distances(mass, distance2, np.argsort(distance2), least, 1e-9, 1e-9, 3.0, limits)
    skip, single = limits
    assert single <= skip

    def at_most(distance: float, counted: Any = slice(None)) -> Any:
        return np.maximum(distance2[counted], distance)

    assert np.isfinite(skip) == (single < skip) == (least > 0.0)
    if least > 0.0:
        assert (mass * np.exp(-0.5 * at_most(skip))).sum() <= 1e-9 * least * (1.0 + 1e-12)
        inside = distance2 < skip
        errors = [graded_sums._error_of_single(float(one), 3.0) for one in at_most(single, inside)]
        assert mass[inside] @ errors <= 1e-9 * least * (1.0 + 1e-12)


def test_queries_far_from_all_keys_and_wide_data_are_exact():
    far = np.concatenate([QUERY[:20], QUERY[:20] + 40.0, QUERY[:5] * 1e9])
    key, value = KEY[:600], VALUE[:600]
    for query, factor in ((far[:40], 8.0), (far, 8.0), (QUERY, 1e4)):
        problem = problem_of(Gaussian(factor), query, key, value)
        got, expected = (run_moments(problem, engine) for engine in ("graded", "pruned"))
        assert np.array_equal(got.limit, expected.limit)
        for one, two in zip(got.partial[1:3], expected.partial[1:3], strict=True):
            shift = np.exp(got.partial.peak - expected.partial.peak).reshape(-1, *(1,) * (one.ndim - 1))
            np.testing.assert_allclose(one * shift, two, rtol=1e-7, atol=1e-9 * np.abs(two).max())


@pytest.mark.parametrize("engine", ["auto", "graded"])
def test_lines_of_queries_beyond_float64_are_those_of_the_nearest_key(engine):
    """Every score of theirs overflows: another engine computes the second step of the plan."""
    query = np.concatenate([QUERY, [[1e200, 0.0, 0.0], [0.0, -1e300, 0.0]]])
    key, value = KEY[:3000], VALUE[:3000, 0]
    model = LocalLinearRegressor(bandwidth=0.1, engine=engine).fit(key, value)
    expected = LocalLinearRegressor(bandwidth=0.1, engine="reference").fit(key, value)
    np.testing.assert_allclose(model.predict(query), expected.predict(query), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        pool(query, key, value, Gaussian(8.0), engine="graded").output,
        pool(query, key, value, Gaussian(8.0), engine="reference").output,
        atol=1e-8,
    )


def test_threads_and_jobs_change_nothing():
    problem = problem_of(Gaussian(8.0))
    step = plan(problem.sketch(), "graded").steps[0]
    parts = [
        graded.moments(problem, replace(step, query_tile=rows, threads=threads)).partial
        for rows, threads in ((16, 1), (48, 2), (2048, 1))
    ]
    for part in parts[1:]:
        assert np.array_equal(part.mass, parts[0].mass)
        assert np.array_equal(part.moments, parts[0].moments)


def test_lines_are_those_of_long_doubles():
    key, value = KEY[:900], VALUE[:900, :1]
    got = local_output(QUERY, key, value, Gaussian(6.0), degree=1, ridge=0.05, engine="graded").output[:, 0]
    weight = oracle.pooled(QUERY, key, value, Gaussian(6.0), real=np.longdouble).weights.astype(np.float64)
    for query, alpha, answer in zip(QUERY, weight, got, strict=True):
        delta = (key - query) * 6.0
        mean, height = alpha @ delta, alpha @ value[:, 0]
        about = delta - mean
        system = (about * alpha[:, None]).T @ about + 0.05 * (1.0 + mean @ mean) * np.eye(D)
        slope = np.linalg.solve(system, about.T @ (alpha * (value[:, 0] - height)))
        assert answer == pytest.approx(height - mean @ slope, abs=1e-7)


def test_outputs_alone_are_those_of_the_fits(monkeypatch):
    """In blocks of queries, with lines that extrapolate far and are fitted again."""
    monkeypatch.setattr("regard.pooling.local_pooling.FITTED_ROWS", 7)
    query = np.concatenate([QUERY, QUERY[:9] + 1e3])
    for ridge in (0.0, 1e-6, 0.1):
        options = {"degree": 1, "ridge": ridge, "sample_weight": OPTIONS["weights"]["sample_weight"][:400]}
        output, _, local = pool_local(query, KEY[:400], VALUE[:400], Gaussian(4.0), **options)
        found = local_output(query, KEY[:400], VALUE[:400], Gaussian(4.0), **options)
        np.testing.assert_allclose(found.output, output, rtol=1e-12, atol=1e-12)
        assert np.array_equal(found.empty, local.partial.mass <= 0.0)


def test_the_plan_says_so():
    text = str(explain_plan(QUERY, KEY, VALUE, Gaussian(8.0), engine="graded"))
    assert "graded" in text
    assert "no query loses more than 1e-09 of its attention mass" in text
