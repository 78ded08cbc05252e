"""Engine ``pruned``: what it skips is below rounding, what it computes is right, and it does skip."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from regard import engines
from regard.core.problem import Adjoint, Gradients, Problem, build
from regard.core.state import Partial, finish
from regard.engines.cpu import gradients, kd_passes, passes, pruned, pruning, reference
from regard.pooling import planner
from regard.pooling.functions import attention_weights, explain_plan, pool
from regard.pooling.planner import plan
from regard.pooling.runner import run_moments, run_pullback
from regard.programs.cpu.kd_tree import kd_sort
from regard.programs.cpu.lanes import block_lanes
from regard.scores import DotProduct, Epanechnikov, Gaussian, Laplace, Score, Tricube

rng = np.random.default_rng(11)
EVERYTHING = frozenset(Gradients._fields)
D = 3


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Sixteen keys a tile, so that a few hundred rows have many."""
    monkeypatch.setattr(planner, "KEY_TILE", 16)


# ---- the same answers as the reference


def clusters(n: int) -> Any:
    return rng.normal(size=(8, D))[rng.integers(0, 8, n)] * 6.0 + rng.normal(size=(n, D)) * 0.3


class Data(NamedTuple):
    query: Any
    key: Any


def _data() -> dict[str, Data]:
    plain = clusters(300)
    constant, alone = plain.copy(), plain.copy()
    constant[:, 1] = 7.0
    alone[17] = 60.0
    lattice = rng.integers(-4, 5, (300, D)).astype(float)
    return {
        "clusters": Data(clusters(90), plain),
        "itself": Data(plain, plain),
        "lattice": Data(lattice[:100], lattice),
        "duplicates": Data(plain[:50], plain[rng.integers(0, 5, 300)]),
        "one key": Data(plain[:40], plain[:1]),
        "one query": Data(plain[:1], plain),
        "constant feature": Data(constant[:90], constant),
        "alone": Data(alone, alone),
        "offset": Data(plain[:90] + 2.0**20, plain + 2.0**20),
        "far": Data(np.concatenate([plain[:60], plain[:20] + 1e4, plain[:5] * 1e150]), plain),
        "even": Data(
            np.linspace(0.0, 9.0, 200)[:, None] * np.ones(D), np.linspace(0.0, 9.0, 290)[:, None] * np.ones(D)
        ),
    }


DATA = _data()
TURN = np.array([[1.5, -0.5], [0.25, 2.0], [1.0, 1.0]])
SCORES: dict[str, Score] = {
    "gaussian": Gaussian(2.0),
    "feature": Gaussian([3.0, 0.0, 1.0]),
    "matrix": Gaussian(TURN),
    "tiny": Gaussian(1e-9),
    "huge": Gaussian(1e9),
    "laplace": Laplace([30.0, 10.0, 20.0]),
    "epanechnikov": Epanechnikov(0.7),
    "tricube": Tricube(TURN / 2),
}


def make(data: Data, score: Score, degree: int = 0, dtype: Any = np.float64, **options: Any) -> Problem:
    value = np.random.default_rng(3).normal(size=(len(data.key), 2))
    arrays = (part.astype(dtype) for part in (data.query, data.key, value))
    return build(*arrays, score, degree=degree, **({"tol": 0.0} | options))


def agree(got: Partial, expected: Partial, key: Any) -> None:
    """The log of the mass to keys·1e-15; moments to their own size, or to 2⁻⁵³ of the largest product."""
    keys, product = len(key), 1.0 + float(np.ptp(key, axis=0).max()) ** 2
    attended = expected.mass > 0.0
    assert np.array_equal(got.mass > 0.0, attended)
    one, two = (p.peak[attended] + np.log(p.mass[attended]) for p in (got, expected))
    assert (np.abs(one - two) <= 1e-15 * keys + 1e-14 * np.abs(two)).all()
    one, two = (p.moments[attended] / p.mass[attended, None] for p in (got, expected))
    assert (np.abs(one - two) <= 1e-12 * np.abs(two).max(axis=0, initial=0.0) + 2.0**-53 * product).all()


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("data", DATA)
def test_moments(data, score):
    for degree in (0, 1, 2):
        problem = make(DATA[data], SCORES[score], degree)
        got, expected = (run_moments(problem, engine) for engine in ("pruned", "reference"))
        assert np.array_equal(got.limit, expected.limit)
        agree(got.partial, expected.partial, problem.key)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("data", ["itself", "alone", "lattice", "far"])
def test_weights_labels_and_single_precision(data, score):
    data = DATA[data]
    data = data._replace(query=data.query.clip(-1e30, 1e30))  # float32 holds no more
    n, m = len(data.query), len(data.key)
    weight = 10.0 ** np.random.default_rng(4).uniform(-12.0, 0.0, m)
    for options in (
        {"sample_weight": weight},
        {"exclude": (np.arange(n), np.arange(m))},
        # Whole neighbourhoods excluded: the nearest tiles are empty.
        {"exclude": (np.floor(data.query[:, 0].clip(-99, 99)).astype(int), np.floor(data.key[:, 0]).astype(int))},
    ):
        for dtype in (np.float64, np.float32):
            problem = make(data, SCORES[score], 0, dtype, **options)
            got, expected = (run_moments(problem, engine).partial for engine in ("pruned", "reference"))
            if dtype == np.float64:
                agree(got, expected, problem.key)
            else:
                tiled = run_moments(problem, "tiled").partial
                output, other = (p.moments / np.where(p.mass > 0.0, p.mass, 1.0)[:, None] for p in (got, tiled))
                assert np.allclose(output, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("data", ["clusters", "itself", "lattice", "alone", "offset"])
def test_gradients(data, score, degree):
    data, this = DATA[data], SCORES[score]
    n, m = len(data.query), len(data.key)
    options = {"sample_weight": np.random.default_rng(4).random(m) + 0.1}
    if n == m:
        options["exclude"] = np.arange(n), np.arange(m)
    problem = make(data, this, degree, **options)
    draw = np.random.default_rng(5)
    width = 1 + D * degree
    adjoint = Adjoint(draw.normal(size=(n, width)), draw.normal(size=(n, 2)), draw.normal(size=(n, width)))
    found = {}
    for engine in ("tiled", "pruned"):
        partial = run_moments(problem, engine).partial
        found[engine] = run_pullback(problem, engine, partial, adjoint, EVERYTHING)
        alone = run_pullback(problem, engine, partial, adjoint, frozenset({"w"}))
        assert np.array_equal(alone.w, found[engine].w)
    for got, expected in zip(found["pruned"], found["tiled"], strict=True):
        assert np.allclose(got, expected, rtol=1e-11, atol=1e-11 * np.abs(expected).max(initial=1e-300))


def test_pool_and_weights_by_name():
    query, key = DATA["clusters"]
    value = key[:, 0]
    one, two = (pool(query, key, value, Gaussian(2.0), engine=engine, tol=0.0) for engine in ("pruned", "reference"))
    assert np.allclose(one.output, two.output, rtol=1e-13, atol=1e-13)
    one, two = (attention_weights(query, key, Gaussian(2.0), engine=engine) for engine in ("pruned", "reference"))
    assert np.allclose(one, two, rtol=1e-12, atol=1e-15)


# ---- what is skipped


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("score", ["gaussian", "feature", "matrix", "laplace", "epanechnikov", "tricube"])
@pytest.mark.parametrize("data", ["clusters", "alone", "even", "offset"])
def test_nothing_above_rounding_is_skipped(data, score, dtype):
    """Every pair of every skipped tile weighs less than tol/n, or 2⁻⁵³/n (2⁻³²/n in float32), of the attention."""
    weight = 10.0 ** np.random.default_rng(4).uniform(-3.0, 0.0, len(DATA[data].key))
    for tol in (0.0, 1e-6):
        nothing_above(tol, make(DATA[data], SCORES[score], dtype=dtype, sample_weight=weight, tol=tol))


def nothing_above(tol: float, problem: Problem) -> None:
    ordered = kd_passes.kd_ordered(problem, plan(problem.sketch(), "pruned").steps[0])
    n, m = len(problem.query), len(problem.key)
    partial = engines.load("reference").moments(ordered.problem, plan(problem.sketch(), "reference").steps[0]).partial
    pruner = ordered.pruner()
    blocks = -(-n // block_lanes(problem.query.dtype.itemsize))
    flags = pruner.selection(pruner.threshold(partial.peak, partial.mass, np.inf))(slice(0, blocks))
    visited = np.repeat(np.repeat(flags, pruner.bounds.queries.shape[2], axis=0)[:n], ordered.step.key_tile, axis=1)[
        :, :m
    ]
    scores = problem.score(ordered.problem.query, ordered.problem.key) + ordered.problem.log_weight
    height = np.where(
        partial.mass > 0.0, partial.peak + np.log(np.where(partial.mass > 0.0, partial.mass, 1.0)), np.inf
    )
    least = max(tol, 2.0 ** (-53 if problem.query.dtype == np.float64 else -32))
    rest = np.where(visited != 0, -np.inf, scores)
    assert (rest < height[:, None] + np.log(least) - np.log(m)).all()
    assert not visited.all()


def evaluated_fractions(problem: Problem, monkeypatch: Any) -> tuple[float, float]:
    """Fractions of the tiles that the forward and the backward pass evaluate."""
    shares = []
    step = plan(problem.sketch(), "pruned").steps[0]
    lanes = block_lanes(problem.query.dtype.itemsize)
    tiles = -(-len(problem.query) // lanes) * -(-len(problem.key) // step.key_tile)
    for module, name in ((passes, "add_moments"), (gradients, "backward_over_keys")):
        program, count = getattr(module, name), []

        def counted(*given: Any, program: Any = program, count: list[int] = count) -> None:
            (near,) = (part for part in given if isinstance(part, np.ndarray) and part.dtype == np.uint8)
            count.append(int(near.sum()))
            program(*given)

        monkeypatch.setattr(module, name, counted)
        shares.append(count)
    partial = engines.load("pruned").moments(problem, step).partial
    ones = np.ones((len(problem.query), 1))
    adjoint = Adjoint(ones, np.ones((len(problem.query), 2)), ones)
    engines.load("pruned").pullback(problem, step, partial, adjoint, frozenset({"w"}))
    return sum(shares[0]) / tiles, sum(shares[1]) / tiles


@pytest.mark.parametrize("score", [Gaussian(3.0), Gaussian(TURN * 3), Laplace(60.0), Tricube(0.7)])
def test_it_does_skip(score, monkeypatch):
    moments, adjoint = evaluated_fractions(
        make(DATA["itself"], score, exclude=(np.arange(300), np.arange(300))), monkeypatch
    )
    assert 0.0 < adjoint < 0.35
    assert 0.0 < moments < 0.35


def test_every_tile_is_evaluated_where_every_tile_counts(monkeypatch):
    monkeypatch.setattr(pruning, "every_pair_counts", lambda problem, space: False)
    assert evaluated_fractions(make(DATA["itself"], Gaussian(0.01)), monkeypatch) == (1.0, 1.0)


@pytest.mark.parametrize("score", [Gaussian, Laplace, Tricube])
@pytest.mark.parametrize("weights", [None, np.geomspace(1e-6, 1.0, 300)])
def test_nothing_is_put_in_order_where_even_the_farthest_pair_counts(score, weights):
    """Just inside the border every pair counts; beyond it rows are put in order."""
    query, key = DATA["itself"]
    far = np.linalg.norm(np.maximum(query.max(0) - key.min(0), key.max(0) - query.min(0)))
    room = np.log(1e9) - 1.0 - (np.log(1e6) if weights is not None else 0.0)
    border = {Gaussian: np.sqrt(2.0 * room), Laplace: room, Tricube: np.sqrt(0.99)}[score] / far
    for factor, inside in ((0.999, True), (1.001, False)):
        problem = build(query, key, key[:, :2], score(factor * border), sample_weight=weights, tol=1e-9)
        step = plan(problem.sketch(), "pruned").steps[0]
        assert (kd_passes.kd_ordered(problem, step) is None) == inside
        exact = reference.moments(problem, plan(problem.sketch(), "reference").steps[0]).partial
        assert np.allclose(finish(pruned.moments(problem, step).partial).output, finish(exact).output, atol=1e-8)


@pytest.mark.parametrize("score", [Gaussian(3.0), Tricube(0.7)])
def test_threads_do_not_change_a_bit(score):
    problem = make(DATA["itself"], score, 2)
    step = replace(plan(problem.sketch(), "pruned").steps[0], query_tile=32)
    adjoint = Adjoint(np.ones((300, 1 + D)), np.ones((300, 2)), np.ones((300, 1 + D)))
    answers = []
    for threads in (1, 2, 4):
        now = replace(step, threads=threads)
        partial = pruned.moments(problem, now).partial
        answers.append((*partial[:3], *pruned.pullback(problem, now, partial, adjoint, EVERYTHING)))
    for other in answers[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(answers[0], other, strict=True))


# ---- the order


@pytest.mark.parametrize("n", [1, 15, 16, 17, 127, 1000])
@pytest.mark.parametrize("kind", ["normal", "same", "lattice", "enormous"])
def test_the_order_is_a_permutation_into_leaves(kind, n):
    draw = np.random.default_rng(n)
    points = {
        "normal": draw.normal(size=(n, 2)),
        "same": np.ones((n, 2)),
        "lattice": draw.integers(0, 3, (n, 2)).astype(float),
        "enormous": draw.normal(size=(n, 2)) * 1e306,
    }[kind]
    turned, order = points.copy(), np.arange(n)
    kd_sort(turned, np.array([1.0, 5.0]), 64, 16, order)
    assert np.array_equal(np.sort(order), np.arange(n))
    assert np.array_equal(turned, points[order])
    if kind == "normal" and n == 1000:
        # The first cut is across the second feature, which w makes the widest.
        assert turned[:512, 1].max() <= turned[512:, 1].min()


# ---- conventions


def test_what_it_refuses():
    x = np.zeros((3, 1))
    with pytest.raises(ValueError, match="engine 'pruned' takes no mask"):
        pool(x, x, x, Gaussian(), mask=np.ones((3, 3), bool), engine="pruned")
    for verb in (attention_weights, lambda *given, **named: pool(*given[:2], x, given[2], **named)):
        with pytest.raises(ValueError, match="engine 'pruned' takes radial scores such as Gaussian, got DotProduct"):
            verb(x, x, DotProduct(), engine="pruned")


def test_the_plan_says_what_and_why():
    x = np.linspace(0.0, 1.0, 4 * 20_000).reshape(-1, 4)
    text = str(explain_plan(x, x, x[:, 0], Gaussian(40.0)))
    assert "pruned, Gaussian: " in text
    assert "of the pairs are within reach" in text
    assert "no query loses more than 1e-09" in text
