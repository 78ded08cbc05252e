"""Engine ``sorted``: one feature, against the reference and against 60 digits, and its bound against both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest

from regard.core.problem import Adjoint, Gradients, Problem, build, mean_adjoint
from regard.core.state import finish
from regard.engines.costs import refusal
from regard.engines.cpu import reference, sorted_layout
from regard.engines.cpu import sorted as engine
from regard.pooling.planner import Step, plan
from regard.scores import RADIAL, DotProduct, Gaussian, Nearest, Tricube
from support import oracle
from support.engines import every_dtype, sparse
from support.soak import FULL

EVERYTHING = frozenset(Gradients._fields)
NAMES = [name for name in RADIAL if name != "gaussian"]
COMPACT = [name for name in NAMES if name != "laplace"]
# Sums from both sides, of powers of u², of |u| too, and of a wave.
PATHS = ["laplace", "epanechnikov", "tricube", "cosine"]
OPTIONS = ("plain", "weights", "loo", "loo with weights")

every_kernel = pytest.mark.parametrize("name", NAMES)
every_compact = pytest.mark.parametrize("name", COMPACT)


def step_of(problem: Problem, threads: int = 1) -> Step:
    return replace(plan(problem.sketch(), "reference").steps[0], threads=threads)


# ---- problems


class Row:
    """Keys, queries and a bandwidth; with leave-one-out the keys are the queries too."""

    def __init__(self, query: Any, key: Any, h: float, huge: bool = False) -> None:
        self.query, self.key, self.h, self.huge = query, key, h, huge


def _rows() -> dict[str, Row]:
    rng = np.random.default_rng(7)
    key, query = rng.random(120) * 5.0, rng.random(60) * 6.0 - 0.5
    lattice = rng.integers(0, 40, 120) / 8.0
    alone = np.r_[key[:100], 40.0, 55.0, 55.0]
    far = np.r_[query[:20], 5.0 + 0.5 * np.array([1.0, 3.0, 30.0, 1000.0]), -0.5 * np.array([1.0, 2.0, 1000.0])]
    close = np.sort(rng.random(150) * 5.0)
    close[1::2] = close[::2] + 2e-5 * rng.random(75)
    return {
        "plain": Row(query, key, 0.6),
        "wide": Row(query, key, 80.0),
        "lattice": Row(lattice[:50], lattice, 0.5),
        "one place": Row(np.r_[query[:20], 2.5], np.full(30, 2.5), 0.7),
        "alone": Row(np.r_[query, 41.0, 55.0], alone, 0.4),
        "far": Row(far, key, 0.5),
        "offset": Row(query + 1e6, key + 1e6, 0.6),
        "tiny h": Row(np.r_[close[:60], close[:40] + 1e-5], close, 5e-5),
        "one huge value": Row(query, key, 0.3, huge=True),
        "one key": Row(query[:9], key[:1], 0.8),
        "one query": Row(query[:1], key, 0.8),
    }


ROWS = _rows()


def problem_of(
    name: str, row: str, option: str = "plain", dtype: Any = np.float64, degree: int = 0, tol: float | None = None
) -> Problem:
    rng = np.random.default_rng(3)
    this = ROWS[row]
    key = this.key.astype(dtype)
    query = key if option.startswith("loo") else this.query.astype(dtype)
    value = rng.normal(size=(len(key), 2)) + 4.0
    if this.huge:
        value[len(key) // 3, 0] = 1e12
    options: dict[str, Any] = {}
    if option.endswith("weights"):
        options["sample_weight"] = np.where(rng.random(len(key)) < 0.1, 1e-6, rng.random(len(key)) + 0.2)
    if option.startswith("loo"):
        labels = rng.permutation(len(key)) + 5
        options["exclude"] = labels, labels
    score = RADIAL[name](1.0 / this.h)
    return build(query[:, None], key[:, None], value.astype(dtype), score, degree=degree, tol=tol, **options)


# ---- the same answers as the reference


def compare(problem: Problem) -> None:
    """Moments to rounding of Σα|φ|, mass to rounding, empty rows in the same places."""
    step = step_of(problem)
    truth, lost = reference.moments(problem, step)
    (got, uncertified), _ = engine.certified(problem, step)
    attended = truth.mass > 0.0
    assert np.array_equal(got.mass > 0.0, attended)
    assert np.array_equal(got.peak > -np.inf, attended)
    assert lost is None or np.array_equal(uncertified, lost)
    alpha = reference.weights(problem, step)[0]
    columns = np.abs(problem.columns.astype(np.float64))
    scale = np.einsum("qk,qkm->qm", alpha, np.abs(oracle.products(problem.query, problem.key, columns, problem.degree)))
    with np.errstate(divide="ignore"):
        error = np.abs(finish(got).output - finish(truth).output)
    slack = max(problem.tol * 0.1, 1e-12) if problem.degree == 0 else 1e-12
    # Products with δ cancel to below Σα|φ| of the row; what they are sums of is as long as the reach.
    assert (error <= slack * np.maximum(scale, 1e-3 * scale.max(axis=0))).all()
    height = np.log(got.mass[attended]) + got.peak[attended] - np.log(truth.mass[attended]) - truth.peak[attended]
    assert (np.abs(height) <= slack * np.maximum(1.0, np.abs(truth.peak[attended]))).all()


@every_dtype
@sparse("name", NAMES, PATHS, ("option", OPTIONS), ("row", ROWS))
def test_moments(name, dtype, option, row):
    for degree in (0, 1, 2):
        compare(problem_of(name, row, option, dtype, degree))


@every_kernel
def test_shapes_of_w(name):
    for w in ([1.7], [[1.7]], [[1.2, -1.2]], 0.0, 1e-200, 1e3):
        query, key = ROWS["plain"].query[:, None], ROWS["plain"].key[:, None]
        compare(build(query, key, np.sin(key), RADIAL[name](w), degree=2))


@every_compact
def test_edges_are_those_of_the_score(name):
    """Keys exactly at u = 1, one step inside and one outside."""
    key = np.array([1.0, np.nextafter(1.0, 2.0), np.nextafter(1.0, 0.0), -1.0, 3.0])[:, None]
    compare(build(np.zeros((1, 1)), key, np.arange(5.0)[:, None], RADIAL[name](1.0)))


@every_compact
def test_rows_at_the_edge_keep_their_digits(name):
    """Every key within 1e-9 of the edge: weights in 60 digits."""
    key = 1.0 - np.array([1e-9, 3e-10, 2e-12, 7e-10])
    value = np.array([1.0, -2.0, 3.0, 0.5])
    problem = build(np.zeros((1, 1)), key[:, None], value[:, None], RADIAL[name](1.0), tol=0.0)
    got = finish(engine.moments(problem, step_of(problem)).partial)
    e = [mpmath.exp(oracle.exact_log_kernel(name, mpmath.mpf(float(x)) ** 2)) for x in key]
    exact = sum(a * float(v) for a, v in zip(e, value, strict=True)) / sum(e)
    assert abs(got.output[0, 0] - exact) < 1e-14
    assert abs(got.logsumexp[0] - mpmath.log(sum(e))) < 1e-12


@every_kernel
def test_threads_change_nothing(name, monkeypatch):
    monkeypatch.setattr(sorted_layout, "MIN_QUERIES_TO_THREAD", 8)
    problem = problem_of(name, "plain", "loo with weights", degree=2)
    one, three = (engine.moments(problem, step_of(problem, threads)).partial for threads in (1, 3))
    assert all(np.array_equal(a, b) for a, b in zip(one[:3], three[:3], strict=True))


def test_a_huge_value_stays_where_it_is():
    problem = problem_of("epanechnikov", "one huge value")
    step = step_of(problem)
    blind = reference.weights(problem, step)[0][:, len(problem.key) // 3] == 0.0
    truth, got = (finish(m(problem, step).partial).output[blind] for m in (reference.moments, engine.moments))
    assert np.allclose(got, truth, rtol=1e-12, atol=1e-12)


def test_no_queries_or_no_keys():
    for query, key in ((np.zeros((0, 1)), np.ones((3, 1))), (np.ones((2, 1)), np.zeros((0, 1)))):
        problem = build(query, key, np.zeros((len(key), 1)), Tricube(), degree=1)
        partial = engine.moments(problem, step_of(problem)).partial
        assert partial.moments.shape == (len(query), 3)
        assert not partial.mass.any()
        adjoint = Adjoint(np.ones((len(query), 2)), np.ones((len(query), 1)), np.ones((len(query), 2)))
        grads = engine.pullback(problem, step_of(problem), partial, adjoint, EVERYTHING)
        assert [np.shape(part) for part in grads] == [(), query.shape, key.shape, (len(key), 1)]


def test_queries_among_keys_with_ties():
    """A few of the rows, in any order, leave themselves out; equal rows and rows without a label stay."""
    rng = np.random.default_rng(1)
    key = rng.integers(0, 6, 80) / 2.0
    rows = rng.permutation(80)[:50]
    labels = np.where(rng.random(50) < 0.7, rows, -1 - np.arange(50))
    for name in NAMES:
        problem = build(
            key[rows][:, None],
            key[:, None],
            rng.normal(size=(80, 1)),
            RADIAL[name](0.9),
            degree=2,
            exclude=(labels, np.arange(80)),
        )
        compare(problem)
        gradients_agree(problem)


# ---- gradients


def gradients_agree(problem: Problem) -> None:
    rng = np.random.default_rng(5)
    step, count, columns = step_of(problem), len(problem.query), problem.columns.shape[1]
    size = 2 if problem.degree else 1
    partial = reference.moments(problem, step).partial
    adjoint = Adjoint(
        rng.normal(size=(count, size)),
        rng.normal(size=(count, columns)),
        rng.normal(size=(count, size)),
        rng.normal(size=(count, size)) if problem.degree else None,
    )
    truth = reference.pullback(problem, step, partial, adjoint, EVERYTHING)
    got = engine.pullback(problem, step, engine.moments(problem, step).partial, adjoint, EVERYTHING)
    for a, b in zip(got, truth, strict=True):
        assert np.shape(a) == np.shape(b)
        assert np.allclose(a, b, rtol=1e-9, atol=1e-9 * max(np.abs(truth.query).max(), np.abs(b).max(), 1e-300))


@sparse(
    "name",
    NAMES,
    PATHS,
    ("option", OPTIONS),
    ("row", ["plain", "wide", "lattice", "alone", "far", "tiny h", "one key"]),
)
def test_gradients(name, option, row):
    for degree in (0, 1):
        gradients_agree(problem_of(name, row, option, degree=degree))


@every_kernel
def test_only_what_is_wanted(name):
    problem = problem_of(name, "plain", "loo")
    step = step_of(problem)
    partial = engine.moments(problem, step).partial
    output = finish(partial).output
    adjoint = mean_adjoint(partial, output, np.ones_like(output))
    whole = engine.pullback(problem, step, partial, adjoint, EVERYTHING)
    for field in Gradients._fields:
        part = engine.pullback(problem, step, partial, adjoint, frozenset({field}))
        assert [name for name in Gradients._fields if getattr(part, name) is not None] == [field]
        assert np.array_equal(getattr(part, field), getattr(whole, field))


@every_kernel
def test_a_mass_from_elsewhere_shrinks_the_gradients(name):
    problem = problem_of(name, "plain")
    step = step_of(problem)
    partial = engine.moments(problem, step).partial
    adjoint = Adjoint(
        np.ones((len(problem.query), 1)), np.ones((len(problem.query), 2)), np.zeros((len(problem.query), 1))
    )
    more = partial._replace(peak=partial.peak + 1.0, mass=partial.mass * 3.0)
    one, other = (engine.pullback(problem, step, state, adjoint, EVERYTHING) for state in (partial, more))
    assert np.allclose(other.value, one.value / (3.0 * np.e), rtol=1e-13)
    assert np.allclose(other.w, one.w / (3.0 * np.e), rtol=1e-12)


# ---- rows done pair by pair


@sparse("name", COMPACT, PATHS[1:], ("option", OPTIONS))
def test_pair_by_pair(name, option, monkeypatch):
    """With no rounding allowed every row goes there, and says the same."""
    monkeypatch.setattr(engine, "MAX_LOSS", 0.0)
    monkeypatch.setattr(engine, "MAX_LOSS_WITH_DELTA", 0.0)
    for row in ("plain", "lattice", "far"):
        for degree in (0, 1, 2):
            problem = problem_of(name, row, option, degree=degree, tol=0.0)
            compare(problem)
            gradients_agree(problem)


@every_compact
def test_hardly_any_row_is_done_pair_by_pair(name, monkeypatch):
    rows: list[int] = []
    monkeypatch.setattr(engine, "sum_pairs", lambda layout, again, *_: rows.append(len(again)))
    key = np.random.default_rng(2).random((3000, 1))
    labels = np.arange(3000)
    for degree in (0, 1, 2):
        problem = build(key, key, key, RADIAL[name](20.0), degree=degree, exclude=(labels, labels), tol=0.0)
        engine.moments(problem, step_of(problem))
    assert len(rows) == 3
    assert max(rows) <= 3


# ---- the bound


@pytest.mark.soak
def test_the_bound_is_honest():
    """Random problems of every kind: no mean is further off than the engine says, and it says at most tol."""
    rng = np.random.default_rng(17)
    for _ in range(10_000 if FULL else 1_000):
        name = NAMES[rng.integers(len(NAMES))]
        keys, queries = rng.integers(1, 40), rng.integers(1, 12)
        key = rng.normal(size=keys) * 10.0 ** rng.integers(-3, 4) + rng.choice([0.0, 0.0, 1e6])
        if rng.random() < 0.3:
            key = rng.choice(key, keys)
        spread = max(np.ptp(key), 1e-3)
        h = spread * 10.0 ** rng.uniform(-5, 1)
        query = np.where(rng.random(queries) < 0.7, rng.choice(key, queries), 0.0) + rng.normal(size=queries) * h
        value = rng.normal(size=(keys, 1)) * (1.0 + 1e9 * (rng.random((keys, 1)) < 0.02))
        weight = rng.random(keys) + 1e-3 if rng.random() < 0.4 else None
        tol = float(rng.choice([0.0, 1e-12, 1e-9, 1e-6]))
        problem = build(query[:, None], key[:, None], value, RADIAL[name](1.0 / h), sample_weight=weight, tol=tol)
        (partial, _), bound = engine.certified(problem, step_of(problem))
        truth = oracle.pooled(problem.query, problem.key, value, problem.score, sample_weight=weight)
        seen = (partial.mass > 0.0) & np.isfinite(truth.logsumexp)
        error = np.abs(finish(partial).output - truth.output)[seen, 0]
        # Scores of far rows are rounded at 80 bits too.
        room = bound[seen] + 2.0**-60 * np.abs(partial.peak[seen])
        assert (error <= room * np.ptp(value) + 4.0 * np.finfo(float).eps * np.abs(value).max()).all()
        assert (bound <= max(tol, 2e-12)).all()


# ---- what it takes


def test_what_it_takes():
    key = np.arange(4.0)[:, None]
    good = build(key, key, key, Tricube(), exclude=(np.arange(4), np.arange(4)))
    assert refusal("sorted", good.sketch()) is None
    two = np.ones((4, 2))
    refused = {
        "takes one feature, got 2": build(two, two, key, Tricube()),
        "takes no mask": build(key, key, key, Tricube(), mask=np.eye(4, dtype=bool)),
        "got Gaussian": build(key, key, key, Gaussian()),
        "got Nearest": build(key, key, key, Nearest()),
        "got DotProduct": build(key, key, key, DotProduct()),
        "from key to key": build(key, key, key, Tricube(), exclude=(np.arange(4), np.zeros(4, int))),
        "from query to query": build(key * 0.0, key, key, Tricube(), exclude=(np.zeros(4, int), np.arange(4))),
        "a key elsewhere": build(key, key, key, Tricube(), exclude=(np.arange(4)[::-1], np.arange(4))),
        "sample weights above": build(key, key, key, Tricube(), sample_weight=[1.0, 1e-200, 1.0, 1.0]),
    }
    for message, problem in refused.items():
        assert message in refusal("sorted", problem.sketch())
        with pytest.raises(ValueError, match=message):
            engine.moments(problem, step_of(problem))
    with pytest.raises(ValueError, match="does not compute attention weights"):
        engine.weights(good, step_of(good))
