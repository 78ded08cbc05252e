"""Engine ``spectral``: as good as certified, exact where it cannot certify, and it does certify."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from regard.core.problem import Adjoint, Gradients, Problem, build, split_moments
from regard.core.state import Partial
from regard.engines import costs
from regard.engines.costs import refusal
from regard.engines.cpu import kd_passes, passes, reference, spectral
from regard.engines.cpu.fourier import fourier_grid
from regard.engines.cpu.strengths import scaled_values
from regard.pooling.functions import pool
from regard.pooling.planner import plan
from regard.scores import Epanechnikov, Gaussian
from support.soak import FULL

EVERYTHING = frozenset(Gradients._fields)
TOL = {np.float64: 1e-9, np.float32: 1e-5}


def step(problem: Problem, engine: str = "tiled") -> Any:
    return plan(problem.sketch(), engine).steps[0]


def truth(problem: Problem) -> Partial:
    return reference.moments(problem, step(problem, "reference")).partial


def averages(partial: Partial) -> Any:
    return partial.moments / np.where(partial.mass > 0.0, partial.mass, 1.0)[:, None]


def agree(problem: Problem, got: Partial, expected: Partial, tol: float | None = None) -> None:
    """Means within tol of the range, moments of ζ within tol, and the log of the mass too; rounding besides."""
    tol, w = problem.tol if tol is None else tol, np.broadcast_to(problem.score.w, problem.key.shape[1])
    attended = expected.mass > 0.0
    assert np.array_equal(got.mass > 0.0, attended)
    one, two = (p.peak[attended] + np.log(p.mass[attended]) for p in (got, expected))
    assert (np.abs(one - two) <= tol + 1e-13 * (1.0 + np.abs(two))).all()
    spread = np.ptp(problem.columns.astype(float), axis=0)
    shape = problem.columns.shape[1], problem.key.shape[1], problem.degree
    one, two = (split_moments(averages(p)[attended], *shape) for p in (got, expected))
    slack = 1e-14 * np.abs(problem.columns).max(axis=0, initial=0.0)
    assert (np.abs(one.value - two.value) <= tol * spread + slack).all()
    if problem.degree:
        size = 1.0 + np.abs(two.delta * w)
        assert (np.abs((one.delta - two.delta) * w) <= (tol + 1e-12) * size).all()
        error = np.abs((one.value_delta - two.value_delta) * w)
        assert (error <= (2.0 * tol * (spread + slack * 1e14) + 100.0 * slack)[:, None] * size[:, None]).all()
    if problem.degree == 2:
        scale = np.einsum("qa,qb->qab", size, size)
        assert (np.abs((one.delta_delta - two.delta_delta) * np.outer(w, w)) <= (tol + 1e-12) * scale).all()


OPTIONS: dict[str, Any] = {
    "plain": {},
    "importances": {"sample_weight": np.random.default_rng(1).uniform(0.01, 3.0, 250)},
    "leave one out": {"exclude": (np.arange(250), np.arange(250))},
    "both": {
        "sample_weight": 10.0 ** np.random.default_rng(2).uniform(-9.0, 0.0, 250),
        "exclude": (np.arange(250)[::-1], np.arange(250)[::-1]),
    },
    "shuffled labels": {"exclude": (np.arange(250), np.random.default_rng(3).permutation(500)[:250])},
    "groups": {"exclude": (np.arange(250) % 100, np.arange(250) % 100)},
}


def make(d: int, degree: int = 0, dtype: Any = np.float64, w: Any = None, columns: int = 2, **options: Any) -> Problem:
    rng = np.random.default_rng(7)
    key = rng.uniform(0.0, 5.0, (250, d)).astype(dtype)
    value = rng.normal(10.0, 1.0, (250, columns)).astype(dtype)
    score = Gaussian(np.array([2.0, 1.0, 1.5])[:d] * (1.0 if d < 3 else 0.3) if w is None else w)
    return build(key, key, value, score, degree=degree, tol=TOL[dtype], **options)


# Grids of three features take their time: the two that hold all options.
BRIEF = ("both", "groups")


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize(("d", "option"), [(d, o) for d in (1, 2, 3) for o in OPTIONS if d < 3 or o in BRIEF])
@pytest.mark.parametrize("dtype", TOL, ids=lambda t: t.__name__)
def test_moments(dtype, d, degree, option):
    problem = make(d, degree, dtype, columns=1 + d % 2, **OPTIONS[option])
    outcome = spectral.moments(problem, step(problem))
    assert outcome.uncertified is None
    agree(problem, outcome.partial, truth(problem))


def extremes() -> dict[str, Problem]:
    rng = np.random.default_rng(5)
    x = rng.uniform(0.0, 1.0, (200, 1))
    y = np.sin(6.0 * x)
    plane = rng.uniform(0.0, 1.0, (200, 2))
    huge, alone, lattice = y.copy(), x.copy(), rng.integers(0, 9, (200, 2)) / 2.0
    huge[17], alone[3] = 1e12, 1e7
    out = np.concatenate([x[:20], 1.0 + 0.05 * 10.0 ** np.arange(4)[:, None], [[1e6], [1e150]]])
    return {
        "offset": build(x + 1e6, x + 1e6, y, Gaussian(20.0)),
        "offset, two features": build(plane - 1e6, plane - 1e6, y, Gaussian([9.0, 3.0]), degree=2),
        "duplicates": build(x, x[rng.integers(0, 3, 200)], y, Gaussian(30.0), degree=2),
        "one key": build(x, x[:1], y[:1], Gaussian(5.0), degree=1),
        "one query": build(x[:1], x, y, Gaussian(5.0)),
        "an isolated row": build(alone, alone, y, Gaussian(20.0), exclude=(np.arange(200), np.arange(200))),
        "outside the hull": build(out[:-2], x, y, Gaussian(20.0), degree=2),
        "narrow": build(x, x, y, Gaussian(1e5)),
        "too narrow": build(plane, plane, y, Gaussian(1e7)),
        "wide": build(x, x, y, Gaussian(1e-3)),
        "as good as flat": build(x, x, y, Gaussian(1e-300)),
        "one huge value": build(x, x, huge, Gaussian(20.0)),
        "constant": build(x, x, np.full((200, 1), 3.0), Gaussian(20.0)),
        "no columns": build(x, x, y[:, :0], Gaussian(20.0)),
        "lattice": build(lattice, lattice, y, Gaussian(3.0), exclude=(np.arange(200), np.arange(200))),
        "smoothed out": build(
            np.hstack([x, x, x, plane]), np.hstack([x, x, x, plane]), y, Gaussian([9.0, 0, 0, 2.0, 1.0])
        ),
        "uneven weights": build(x, x, y, Gaussian(20.0), sample_weight=10.0 ** rng.uniform(-250.0, 0.0, 200)),
        "far": build(out[-2:-1], x, y, Gaussian(20.0)),
    }


@pytest.mark.parametrize("name", extremes())
def test_extremes(name):
    problem = extremes()[name]
    agree(problem, spectral.moments(problem, step(problem)).partial, truth(problem))


def test_queries_beyond_every_score_are_handed_on():
    problem = build(np.array([[0.0], [1e160]]), np.array([[0.0], [1.0]]), np.array([[0.0], [1.0]]), Gaussian(1.0))
    outcome = spectral.moments(problem, step(problem))
    assert outcome.uncertified.tolist() == [False, True]
    # From there both keys are equally near.
    assert pool([0.0, 1e160], [0.0, 1.0], [0.0, 1.0], Gaussian(1.0), engine="spectral").output[1] == 0.5


# ---- the certificate is honest


def layout(rng: Any, n: int, d: int) -> Any:
    kind = rng.integers(5)
    if kind == 0:
        return rng.uniform(size=(n, d))
    if kind == 1:
        return rng.normal(size=(n, d))
    if kind == 2:
        return rng.integers(0, rng.integers(2, 40), (n, d)) / 8.0
    if kind == 3:
        return rng.uniform(size=(3, d))[rng.integers(0, 3, n)]
    return rng.normal(size=(4, d))[rng.integers(0, 4, n)] * 3.0 + rng.normal(size=(n, d)) * 0.1


def random_problem(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    d = int(rng.choice([1, 2, 3], p=[0.7, 0.29, 0.01]))
    n, leave, degree = int(rng.integers(1, 60)), rng.random() < 0.5, int(rng.integers(3))
    key = layout(rng, n, d)
    query = key if leave else np.concatenate([key[:20], layout(rng, 10, d), key[:1] + rng.uniform(-5.0, 5.0, (5, d))])
    h = max(float(np.ptp(key, axis=0).max()), 0.1) * 10.0 ** rng.uniform([-5.0, -1.5, -0.5][d - 1], 1.0)
    value = rng.normal(size=(n, int(rng.integers(1, 4)))) + rng.choice([0.0, 1e3])
    if rng.random() < 0.3:
        value[rng.integers(n), 0] = 1e9
    options: dict[str, Any] = {"exclude": (np.arange(n), np.arange(n))} if leave else {}
    if rng.random() < 0.4:
        options["sample_weight"] = 10.0 ** rng.uniform(-6.0, 2.0, n)
    offset, tol = rng.choice([0.0, 1e6]), float(rng.choice([1e-5, 1e-7, 1e-9, 1e-11]))
    return build(query + offset, key + offset, value, Gaussian(1.0 / h), degree=degree, tol=tol, **options)


@pytest.mark.soak
def test_no_error_above_its_bound():
    certified = asked = 0
    for seed in range(10_000 if FULL else 300):
        problem = random_problem(seed)
        waves = fourier_grid(problem, problem.degree)
        assert waves is not None
        rows = np.flatnonzero(waves.queries)
        if not rows.size:
            continue
        part = problem.take(rows)
        got, expected = spectral.fourier_sums(problem, waves, rows, 1), truth(part)
        mass = expected.mass * np.exp(np.where(expected.mass > 0.0, expected.peak, 0.0))
        assert (np.abs(got.mass - mass) <= got.error).all(), seed
        values, P = scaled_values(problem), problem.columns.shape[1]
        one, two = (
            m[:, :P] - values.middle * t[:, None]
            for m, t in ((got.moments, got.mass), (averages(expected) * mass[:, None], mass))
        )
        rounding = 1e-14 * np.abs(values.middle) * mass[:, None]
        assert (np.abs(one - two) <= values.unit * got.error[:, None] + rounding).all(), seed
        sure = got.certified
        if sure.any():
            state = Partial(np.zeros(sure.sum()), got.mass[sure], got.moments[sure])
            known = Partial(expected.peak[sure], expected.mass[sure], expected.moments[sure])
            agree(part.take(np.flatnonzero(sure)), state, known)
        certified, asked = certified + int(sure.sum()), asked + len(problem.query)
    # A bound that certifies no query would be honest too.
    assert certified > 0.4 * asked


# ---- gradients


def adjoint_of(problem: Problem, width: int) -> Adjoint:
    rng = np.random.default_rng(9)
    shape = len(problem.query), width
    return Adjoint(
        rng.normal(size=shape), rng.normal(size=(shape[0], problem.columns.shape[1])), *rng.normal(size=(2, *shape))
    )


FITS = [(1, 0, None), (2, 0, 1.5), (3, 0, None), (1, 2, 2.0), (2, 2, None), (3, 2, 0.5)]


@pytest.mark.parametrize(
    ("d", "degree", "w", "option"), [(*fit, o) for fit in FITS for o in OPTIONS if fit[0] < 3 or o in BRIEF]
)
def test_pullback(d, degree, w, option):
    problem = make(d, degree, w=w, **OPTIONS[option])
    adjoint, state = adjoint_of(problem, 1 + d if degree else 1), truth(problem)
    got = spectral.pullback(
        problem, step(problem), spectral.moments(problem, step(problem)).partial, adjoint, EVERYTHING
    )
    expected = reference.pullback(problem, step(problem, "reference"), state, adjoint, EVERYTHING)
    for name, one, two in zip(Gradients._fields, got, expected, strict=True):
        assert np.shape(one) == np.shape(two), name
        assert np.abs(one - two).max() <= 1e-8 * np.abs(two).max(), name


@pytest.mark.parametrize("w", [1.5, [2.0, 1.0]], ids=["scalar", "feature"])
@pytest.mark.parametrize("want", [{"w"}, {"query"}, {"key"}, {"value"}, {"w", "value"}])
def test_only_the_gradients_wanted(want, w):
    problem = make(2, columns=3, w=w, **OPTIONS["leave one out"])
    adjoint, state = adjoint_of(problem, 1), truth(problem)
    got = spectral.pullback(problem, step(problem), state, adjoint, frozenset(want))
    expected = reference.pullback(problem, step(problem, "reference"), state, adjoint, frozenset(want))
    for name, one, two in zip(Gradients._fields, got, expected, strict=True):
        assert (one is None) == (two is None) == (name not in want)
        assert one is None or np.abs(one - two).max() <= 1e-8 * np.abs(two).max()


def test_gradients_of_features_smoothed_out_and_of_far_rows():
    rng = np.random.default_rng(4)
    x = rng.uniform(0.0, 1.0, (150, 2))
    x[5] = 40.0
    problem = build(x, x, x[:, :1], Gaussian([8.0, 0.0]), exclude=(np.arange(150), np.arange(150)))
    adjoint, state = adjoint_of(problem, 1), truth(problem)
    got = spectral.pullback(problem, step(problem), state, adjoint, EVERYTHING)
    expected = reference.pullback(problem, step(problem, "reference"), state, adjoint, EVERYTHING)
    for one, two in zip(got, expected, strict=True):
        assert np.abs(one - two).max() <= 1e-8 * np.abs(two).max()
    assert got.w[1] == 0.0


def test_float32_in_a_precision_that_holds_it():
    problem = make(1, dtype=np.float32)
    adjoint, state = adjoint_of(problem, 1), truth(problem)
    got = spectral.pullback(problem, step(problem), state, adjoint, EVERYTHING)
    expected = reference.pullback(problem, step(problem, "reference"), state, adjoint, EVERYTHING)
    for one, two in zip(got, expected, strict=True):
        assert np.abs(one - two).max() <= 1e-5 * np.abs(two).max()


# ---- what it takes, and what it leaves to the passes


def test_dense_data_needs_no_pass(monkeypatch):
    """Ten thousand rows, leaving one out, with the gradient: nothing is computed pair by pair."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("a pair was computed")

    for module in (passes, kd_passes):
        monkeypatch.setattr(module, "moments", refuse)
        monkeypatch.setattr(module, "pullback", refuse)
    x = np.random.default_rng(8).uniform(0.0, 5.0, (10_000, 2))
    rows = np.arange(len(x))
    problem = build(x, x, np.sin(x[:, :1]), Gaussian(3.0), exclude=(rows, rows), tol=1e-9)
    partial = spectral.moments(problem, step(problem)).partial
    spectral.pullback(problem, step(problem), partial, adjoint_of(problem, 1), frozenset({"w"}))


def test_many_uncertain_queries_see_the_tiles_near_them(monkeypatch):
    monkeypatch.setattr(spectral, "MAX_QUERIES_UNORDERED", 4)
    problem = make(2, w=[40.0, 30.0])
    agree(problem, spectral.moments(problem, step(problem)).partial, truth(problem))
    adjoint, state = adjoint_of(problem, 1), truth(problem)
    got = spectral.pullback(problem, step(problem), state, adjoint, EVERYTHING)
    expected = reference.pullback(problem, step(problem, "reference"), state, adjoint, EVERYTHING)
    for one, two in zip(got, expected, strict=True):
        assert np.abs(one - two).max() <= 1e-8 * np.abs(two).max()


X = np.random.default_rng(0).uniform(size=(6, 4))
REFUSED = {
    "takes Gaussian scores, got Epanechnikov": build(X[:, :1], X[:, :1], X[:, :1], Epanechnikov(1.0)),
    "got a matrix": build(X[:, :2], X[:, :2], X[:, :1], Gaussian(np.eye(2))),
    "takes 1 to 3 features with w > 0, got 4": build(X, X, X[:, :1], Gaussian(1.0)),
    "takes 1 to 3 features with w > 0, got 0": build(X, X, X[:, :1], Gaussian(0.0)),
    "takes w = 0 at degree 0 only, got degree 1": build(X[:, :2], X[:, :2], X[:, :1], Gaussian([1.0, 0.0]), degree=1),
    "takes no mask": build(X[:, :1], X[:, :1], X[:, :1], Gaussian(1.0), mask=np.ones((6, 6), bool)),
    "takes a tol above 0, got 0": build(X[:, :1], X[:, :1], X[:, :1], Gaussian(1.0), tol=0.0),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_it_refuses(reason):
    problem = REFUSED[reason]
    assert reason in refusal("spectral", problem.sketch())
    for verb in (spectral.moments, spectral.weights):
        with pytest.raises(ValueError, match=f"engine 'spectral' .*{reason}"):
            verb(problem, step(problem))


def test_what_it_takes():
    problem = make(3)
    assert refusal("spectral", problem.sketch()) is None
    weights, lost = spectral.weights(problem, step(problem))
    assert np.allclose(weights, reference.weights(problem, step(problem, "reference"))[0], atol=1e-14)
    assert lost is None or not lost.any()


def test_without_finufft_it_takes_nothing(monkeypatch):
    monkeypatch.setattr(costs, "_has_finufft", lambda: False)
    problem = make(1)
    with pytest.raises(ValueError, match="needs finufft, which is not installed"):
        spectral.moments(problem, step(problem))


def test_no_keys_and_no_queries():
    none = np.zeros((0, 1))
    for query, key in ((X[:, :1], none), (none, X[:, :1])):
        problem = build(query, key, key, Gaussian(1.0))
        assert not spectral.moments(problem, step(problem)).partial.mass.any()
        grads = spectral.pullback(problem, step(problem), truth(problem), adjoint_of(problem, 1), EVERYTHING)
        assert not any(np.any(grad) for grad in grads)
