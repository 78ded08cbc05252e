"""Gradients: every engine against torch's autograd on the plain formulas, in float64."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from regard import engines
from regard.core.problem import Adjoint, Gradients, Problem, build, mean_adjoint
from regard.core.state import finish
from regard.pooling.planner import plan
from regard.scores import Additive, DotProduct, Gaussian, Laplace, Nearest, Radial, Score, Triangular
from support.engines import (
    EACH,
    EXACT,
    Row,
    conformance,
    engines_for,
    every_dtype,
    every_engine,
    is_quick,
    taken,
    takes,
)
from support.generators import OWN_ROWS, make_inputs, score_table

D = 3
SCORES = score_table(D)
EVERYTHING = frozenset(Gradients._fields)

# Gradients of engines that answer within tol, relative to the largest.
WITHIN_TOL = {"spectral": {np.float32: 1e-4, np.float64: 1e-8}, "sorted": {np.float32: 1e-4, np.float64: 1e-9}}

pytestmark = pytest.mark.usefixtures("engine_here")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """The tensors are small: torch's threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---- the formulas in torch


class Leaves:
    """The problem's arrays as float64 leaves of a graph."""

    def __init__(self, problem: Problem) -> None:
        def leaf(array: Any) -> torch.Tensor:
            return torch.tensor(np.asarray(array, np.float64), requires_grad=True)

        self.problem, score = problem, problem.score
        self.query, self.key, self.value = leaf(problem.query), leaf(problem.key), leaf(problem.columns)
        names = ("W_q", "W_k", "w_v") if isinstance(score, Additive) else ("w",)
        self.w = tuple(leaf(getattr(score, name)) for name in names)

    def gradients(self, result: torch.Tensor) -> Gradients:
        leaves = (*self.w, self.query, self.key, self.value)
        grads = torch.autograd.grad(result, leaves, allow_unused=True) if result.requires_grad else [None] * len(leaves)
        filled = [np.zeros(x.shape) if g is None else g.numpy() for x, g in zip(leaves, grads, strict=True)]
        *w, query, key, value = filled
        return Gradients(tuple(w) if len(w) > 1 else w[0], query, key, value)


def allowed_pairs(problem: Problem) -> torch.Tensor:
    allowed = np.ones((len(problem.query), len(problem.key)), bool)
    if problem.mask is not None:
        allowed &= problem.mask if problem.mask.dtype == bool else problem.mask > -np.inf
    if problem.exclude is not None:
        allowed &= problem.exclude[0][:, None] != problem.exclude[1]
    return torch.tensor(allowed)


def scores(leaves: Leaves) -> torch.Tensor:
    """Scores (Q, K) as a graph, −inf where a pair may not attend; a pair at distance 0 pulls nowhere."""
    problem, score = leaves.problem, leaves.problem.score
    allowed = allowed_pairs(problem)
    if isinstance(score, Additive):
        W_q, W_k, w_v = leaves.w
        s = torch.tanh((leaves.query @ W_q.T)[:, None] + (leaves.key @ W_k.T)[None]) @ w_v
    elif isinstance(score, DotProduct):
        s = leaves.query @ leaves.key.T * leaves.w[0] / np.sqrt(D)
    else:
        assert isinstance(score, Radial)
        (w,) = leaves.w
        delta = leaves.query[:, None] - leaves.key[None]
        scaled = delta @ w if w.ndim == 2 else delta * w
        u2 = (scaled**2).sum(-1)
        if isinstance(score, Nearest):
            lowest = torch.where(allowed, u2, torch.inf).min(dim=1, keepdim=True).values
            allowed = allowed & (u2 == lowest)
            s = torch.zeros_like(u2)
        else:
            s, inside = log_kernel(score.kernel.name, u2)
            allowed = allowed & inside
    if problem.sample_weight is not None:
        s = s + torch.log(torch.tensor(problem.sample_weight))
    if problem.mask is not None and problem.mask.dtype != bool and not isinstance(score, Nearest):
        s = s + torch.tensor(np.where(np.isneginf(problem.mask), 0.0, problem.mask))
    return torch.where(allowed, s, -torch.inf)


def log_kernel(name: str, u2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    inside = torch.ones_like(u2, dtype=torch.bool)
    if name == "gaussian":
        return -0.5 * u2, inside
    away = u2 > 0.0
    u = torch.where(away, torch.sqrt(torch.where(away, u2, 1.0)), 0.0)
    if name == "laplace":
        return -u, inside
    inside = u2 <= 1.0 if name == "boxcar" else u2 < 1.0
    u, u2 = torch.where(inside, u, 0.0), torch.where(inside, u2, 0.0)
    K = {
        "boxcar": lambda: torch.ones_like(u),
        "triangular": lambda: 1 - u,
        "epanechnikov": lambda: 1 - u2,
        "biweight": lambda: (1 - u2) ** 2,
        "triweight": lambda: (1 - u2) ** 3,
        "tricube": lambda: (1 - u**3) ** 3,
        "cosine": lambda: torch.cos(torch.pi / 2 * u),
    }[name]()
    return torch.log(K), inside


def softmax(s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and logsumexp; rows of −inf give zeros."""
    seen = (s > -torch.inf).any(dim=1)
    safe = torch.where(seen[:, None], s, 0.0)
    weights = torch.where(seen[:, None], torch.softmax(safe, dim=1), 0.0)
    return weights, torch.where(seen, torch.logsumexp(safe, dim=1), 0.0)


# ---- running an engine


def make_problem(
    score: Score, option: str, shape: tuple[int, int, int], dtype: Any, degree: int = 0, d: int = D
) -> Problem:
    inputs = make_inputs(option, *shape, d=d, dtype=dtype, seed=3)
    return build(*inputs[:3], score, degree=degree, **inputs.options)


def problem_of(row: Row, shape: tuple[int, int, int], dtype: Any, degree: int = 0) -> Problem:
    return make_problem(score_table(row.d)[row.score], row.option, shape, dtype, degree, row.d)


def pull(problem: Problem, engine: str, adjoint: Any, want: frozenset[str] = EVERYTHING, **changes: Any) -> Gradients:
    """Moments, then the adjoint pass; ``adjoint`` is an Adjoint or makes one from the state."""
    step = replace(plan(problem.sketch(), engine).steps[0], **changes)
    module = engines.load(engine)
    partial = module.moments(problem, step).partial
    given = adjoint if isinstance(adjoint, Adjoint) else adjoint(partial)
    return module.pullback(problem, step, partial, given, want)


def flat(gradients: Gradients) -> list[np.ndarray]:
    w = gradients.w if isinstance(gradients.w, tuple) else (gradients.w,)
    return [np.asarray(part) for part in (*w, *gradients[1:])]


def agree(got: Gradients, expected: Gradients, dtype: Any, slack: float = 1.0, engine: str = "tiled") -> None:
    """Equal relative to the largest gradient: those that are sums over all pairs cancel."""
    allowed = WITHIN_TOL[engine][dtype] if engine in WITHIN_TOL else slack * (2e-5 if dtype == np.float32 else 2e-13)
    scale = max(float(np.abs(part).max(initial=0.0)) for part in flat(expected))
    for a, b in zip(flat(got), flat(expected), strict=True):
        assert a.shape == b.shape
        assert np.isfinite(a).all()
        assert np.abs(a - b).max(initial=0.0) <= allowed * scale


def cotangents(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    return rng.normal(size=(len(problem.query), problem.columns.shape[1])), rng.normal(size=len(problem.query))


# ---- degree 0


@cache
def mean_gradients(row: Row, shape: tuple[int, int, int], dtype: Any) -> Gradients:
    """Of Σ grad_output·output + Σ grad_logsumexp·logsumexp, by torch."""
    problem = problem_of(row, shape, dtype)
    grad_output, grad_logsumexp = cotangents(problem)
    leaves = Leaves(problem)
    weights, logsumexp = softmax(scores(leaves))
    terms = weights @ leaves.value * torch.tensor(grad_output), logsumexp * torch.tensor(grad_logsumexp)
    return leaves.gradients(terms[0].sum() + terms[1].sum())


@conformance(slow_dtypes=(np.float64,))
def test_mean_and_logsumexp(row, dtype, engine):
    for shape in ((5, 9, 2), (33, 70, 1), (2, 300, 1)) if is_quick(row, engine) else ((5, 9, 2),):
        problem = problem_of(row, shape, dtype)
        grad_output, grad_logsumexp = cotangents(problem)
        if isinstance(problem.score, Nearest):
            # Of hard attention only the values have a gradient.
            grad_logsumexp = np.zeros_like(grad_logsumexp)
        got = pull(
            problem,
            engine,
            lambda partial: mean_adjoint(partial, finish(partial).output, grad_output, grad_logsumexp),  # noqa: B023
        )
        # The state carries log 1e-200, and with it that number's ulps.
        slack = 20.0 if row.option == "tiny weights" else 1.0
        agree(got, mean_gradients(row, shape, dtype), dtype, slack, engine)


@pytest.mark.parametrize("kind", ["scalar", "feature", "matrix"])
@engines_for(Gaussian(), option="everything")
def test_against_finite_differences(kind, engine):
    problem = make_problem(SCORES[f"gaussian-{kind}"], "everything", (6, 12, 1), np.float64)
    grad_output, _ = cotangents(problem)

    def objective(w: np.ndarray) -> float:
        changed = replace(problem, score=Gaussian(w))
        step = plan(changed.sketch(), engine).steps[0]
        return float((finish(engines.load(engine).moments(changed, step).partial).output * grad_output).sum())

    got = pull(problem, engine, lambda partial: mean_adjoint(partial, finish(partial).output, grad_output)).w
    w = np.array(problem.score.w, ndmin=1)
    for index in np.ndindex(w.shape):
        bump = np.zeros_like(w)
        bump[index] = 1e-6
        slope = (
            objective(np.reshape(w + bump, problem.score.w.shape))
            - objective(np.reshape(w - bump, problem.score.w.shape))
        ) / 2e-6
        assert np.isclose(np.array(got, ndmin=1)[index], slope, rtol=1e-6, atol=1e-9)


@taken(EACH)
def test_only_what_is_wanted(score, engine):
    problem = make_problem(SCORES[score], "plain", (4, 6, 1), np.float64)
    grad_output, _ = cotangents(problem)

    def adjoint(partial):
        return mean_adjoint(partial, finish(partial).output, grad_output)

    everything = pull(problem, engine, adjoint)
    for name in Gradients._fields:
        alone = pull(problem, engine, adjoint, frozenset({name}))
        for field in Gradients._fields:
            if field != name:
                assert getattr(alone, field) is None
        a, b = getattr(alone, name), getattr(everything, name)
        pairs = zip(a, b, strict=True) if isinstance(a, tuple) else [(a, b)]
        assert all(np.array_equal(x, y) for x, y in pairs)


@every_dtype
@taken(EACH, "mask")
def test_empty_rows_pull_nowhere(score, dtype, engine):
    """A problem whose every row is empty, and the empty rows of one that is not."""
    inputs = make_inputs("plain", 5, 7, 2, d=D, dtype=dtype)
    mask = np.ones((5, 7), bool)
    mask[2:] = False
    for some in (mask, np.zeros((5, 7), bool) | (np.arange(5)[:, None] == 9)):
        labels = np.zeros(5, int), np.zeros(7, int)  # every pair excluded
        options = {"mask": some} if some.any() else {"exclude": labels}
        problem = build(*inputs[:3], SCORES[score], **options)
        grad_output, grad_logsumexp = cotangents(problem)
        got = pull(problem, engine, lambda p: mean_adjoint(p, finish(p).output, grad_output, grad_logsumexp))  # noqa: B023
        assert all(np.isfinite(part).all() for part in flat(got))
        assert not got.query[2:].any()
        if not some.any():
            assert not any(part.any() for part in flat(got))


@pytest.mark.parametrize(("Q", "K"), [(0, 7), (4, 0), (0, 0)])
@taken(["gaussian-scalar", "gaussian-matrix", "tricube-feature", "nearest-scalar", "dot", "additive"])
def test_gradients_of_empty_problems(score, Q, K, engine):
    inputs = make_inputs("plain", Q, K, 2, d=D)
    problem = build(*inputs[:3], SCORES[score])
    got = pull(problem, engine, lambda p: mean_adjoint(p, finish(p).output, np.ones((Q, 2))))
    assert not any(part.any() for part in flat(got))
    w = problem.score.W_q if isinstance(problem.score, Additive) else problem.score.w
    assert [part.shape for part in (flat(got)[0], *got[1:])] == [np.shape(w), (Q, D), (K, D), (K, 2)]


@engines_for(Gaussian(), option="mask")
@every_dtype
@pytest.mark.parametrize("light", [1e-20, 1e-50, 1e-290])
@pytest.mark.parametrize(
    "score", [Gaussian(), SCORES["tricube-scalar"], Nearest()], ids=["gaussian", "tricube", "nearest"]
)
def test_a_light_key_has_the_gradient_where_it_is_alone(score, light, dtype, engine):
    """The sample weight of a key cancels where no other key is seen."""
    x = np.zeros((2, D), dtype)
    mask = np.array([[True, False], [False, True]])
    problem = build(x, x, np.array([[1.0], [2.0]], dtype), score, mask=mask, sample_weight=[1.0, light])
    got = pull(problem, engine, lambda p: mean_adjoint(p, finish(p).output, np.array([[3.0], [5.0]])))
    assert np.allclose(got.value, [[3.0], [5.0]], rtol=1e-6)


@every_engine
@pytest.mark.parametrize("score", [Laplace(1.0), Triangular(0.25), SCORES["cosine-scalar"], SCORES["tricube-matrix"]])
def test_a_pair_at_distance_zero_is_finite(score, engine):
    x = make_inputs("plain", 6, 6, 1, d=D).query
    problem = build(x, x, x[:, :1], score)
    grad_output, _ = cotangents(problem)
    got = pull(problem, engine, lambda p: mean_adjoint(p, finish(p).output, grad_output))
    assert all(np.isfinite(part).all() for part in flat(got))


def test_engines_agree_where_torch_cannot_go():
    """Pairs on the edge of a compact kernel, at distance zero, duplicates: every engine, one answer."""
    rng = np.random.default_rng(2)
    lattice = rng.integers(-3, 4, (30, 2)).astype(float)
    for name, score in score_table(2).items():
        problem = build(lattice, lattice, rng.normal(size=(30, 2)), score)
        grad_output, grad_logsumexp = cotangents(problem)
        one, *others = (
            pull(problem, engine, lambda p: mean_adjoint(p, finish(p).output, grad_output, grad_logsumexp))  # noqa: B023
            for engine in EXACT
            if takes(engine, name)
        )
        for two in others:
            for a, b in zip(flat(one), flat(two), strict=True):
                assert np.allclose(a, b, rtol=1e-11, atol=1e-11 * np.abs(b).max(initial=1e-300)), name


# ---- degree 1: the cotangent weight·(left·x)·(value·v − right·x), x = (1, δ)


@conformance(
    options=("plain", "weights", "everything", OWN_ROWS), without_scores=("additive",), slow_dtypes=(np.float64,)
)
def test_degree_one_is_its_formula(row, dtype, engine):
    for shape in ((5, 9, 2), (3, 300, 1)) if is_quick(row, engine) else ((5, 9, 2),):
        problem = problem_of(row, shape, dtype, degree=1)
        rng = np.random.default_rng(4)
        left, right = rng.normal(size=(2, shape[0], 1 + row.d))
        value = rng.normal(size=(shape[0], shape[2]))
        leaves = Leaves(problem)
        s = scores(leaves)
        weights, _ = softmax(s)
        delta = (leaves.key[None] - leaves.query[:, None]).detach()
        x = torch.cat([torch.ones((*delta.shape[:2], 1), dtype=torch.float64), delta], dim=-1)  # (Q, K, 1 + d)
        lean = torch.einsum("qa,qka->qk", torch.tensor(left), x)
        about = torch.tensor(value) @ leaves.value.T - torch.einsum("qa,qka->qk", torch.tensor(right), x)
        g = (weights * lean * about).detach()
        through_scores = leaves.gradients((g * torch.where(s > -torch.inf, s, 0.0)).sum())
        to_values = ((weights * lean).T @ torch.tensor(value)).detach().numpy()
        got = pull(problem, engine, Adjoint(left, value, right))
        if isinstance(problem.score, Nearest):
            through_scores = through_scores._replace(
                w=np.zeros_like(problem.score.w), query=0 * got.query, key=0 * got.key
            )
        agree(got, through_scores._replace(value=to_values), dtype, engine=engine)


@every_engine
def test_the_adjoint_of_a_local_linear_fit(engine):
    """With A = M[xxᵀ], b = M[xv], β = A⁻¹b and g = A⁻¹e₀: ∂β₀ is the adjoint (left g, value 1, right β)."""
    problem = make_problem(SCORES["gaussian-feature"], "weights", (6, 40, 1), np.float64, degree=1)
    leaves = Leaves(problem)
    weights, _ = softmax(scores(leaves))
    delta = (leaves.key[None] - leaves.query[:, None]).detach()
    x = torch.cat([torch.ones((*delta.shape[:2], 1), dtype=torch.float64), delta], dim=-1)
    A = torch.einsum("qk,qka,qkb->qab", weights, x, x)
    b = torch.einsum("qk,qka,k->qa", weights, x, leaves.value[:, 0])
    beta = torch.linalg.solve(A, b)
    first = torch.zeros_like(b)
    first[:, 0] = 1.0
    g = torch.linalg.solve(A, first).detach().numpy()
    expected = leaves.gradients(beta[:, 0].sum())
    got = pull(problem, engine, Adjoint(g, np.ones((6, 1)), beta.detach().numpy()), frozenset({"w", "value"}))
    assert np.allclose(got.w, expected.w, rtol=1e-9)
    assert np.allclose(got.value, expected.value, rtol=1e-9, atol=1e-12)


# ---- agnosticism of the adjoint


@pytest.mark.parametrize("score", ["gaussian-feature", "gaussian-matrix", "tricube-scalar", "dot", "additive"])
def test_tiles_and_threads_do_not_matter(score):
    problem = make_problem(SCORES[score], "everything", (70, 130, 2), np.float64)
    grad_output, grad_logsumexp = cotangents(problem)

    def run(**changes):
        return pull(
            problem, "tiled", lambda p: mean_adjoint(p, finish(p).output, grad_output, grad_logsumexp), **changes
        )

    whole = run()
    for changes in ({"key_tile": 7}, {"query_tile": 1}, {"query_tile": 13, "key_tile": 64}):
        agree(run(**changes), whole, np.float64)
    alone, many = (run(query_tile=8, threads=threads) for threads in (1, 4))
    assert all(np.array_equal(a, b) for a, b in zip(flat(alone), flat(many), strict=True))
