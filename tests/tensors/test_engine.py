"""The engine named "fused", numpy in and numpy out, against the reference engine; its programs are interpreted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard import engines, pool
from regard.core.arrays import as_numpy
from regard.core.problem import Adjoint, Gradients, build
from regard.core.state import finish
from regard.engines.cpu import reference
from regard.engines.gpu import fused, placement
from regard.pooling.planner import plan
from regard.scores import RADIAL, Gaussian, Nearest
from support.generators import make_inputs, score_table
from support.soak import FULL

D = 3
SCORES = score_table(D)
EVERYTHING = frozenset(Gradients._fields)
# One of each way through the engine.
WAYS = [
    "gaussian-scalar",
    "gaussian-feature",
    "gaussian-matrix",
    "laplace-feature",
    "tricube-scalar",
    "boxcar-matrix",
    "nearest-feature",
    "dot",
    "additive",
]


@pytest.fixture(autouse=True)
def on_cpu(programs, monkeypatch):
    for module in (fused, placement):
        monkeypatch.setattr(module, "device", lambda: torch.device("cpu"))


def flat(part) -> np.ndarray:
    return np.concatenate([np.ravel(x) for x in (part if isinstance(part, tuple) else (part,))])


def both(name: str, option: str, degree: int, dtype=np.float64):
    inputs = make_inputs(option, 7, 19, 2, d=D, dtype=dtype)
    problem = build(*inputs[:3], SCORES[name], degree=degree, **inputs.options)
    step = plan(problem.sketch(), "fused").steps[0]
    expected, found = reference.moments(problem, step).partial, fused.moments(problem, step).partial
    # What a line is fitted to stays on the device.
    assert isinstance(found.moments, torch.Tensor) == bool(degree and not found.hard)
    return problem, step, expected, found._replace(moments=as_numpy(found.moments))


# Degrees 0 and 1 are rows of the table in tests/engines too; additive scores have no degree but 0.
@pytest.mark.parametrize(
    ("name", "degree"),
    [(name, degree) for name in WAYS for degree in ((0,) if name == "additive" else (0, 1, 2) if FULL else (2,))],
)
def test_moments_and_pullback(name, degree):
    for option in ("plain", "everything") if FULL else ("everything",):
        problem, step, expected, found = both(name, option, degree)
        assert found.hard == expected.hard
        for x, y in zip(finish(found), finish(expected), strict=True):
            assert np.allclose(x, y, rtol=1e-12, atol=1e-12)
        rng = np.random.default_rng(0)
        queries, terms = len(problem.query), 1 + D if degree else 1
        left, right, plain = (rng.normal(size=(queries, terms)) for _ in range(3))
        adjoint = Adjoint(left, rng.normal(size=(queries, 2)), right, plain if degree == 2 else None)
        truth = reference.pullback(problem, step, expected, adjoint, EVERYTHING)
        grads = fused.pullback(problem, step, found, adjoint, EVERYTHING)
        for x, y in zip(grads, truth, strict=True):
            assert np.allclose(flat(x), flat(y), rtol=1e-10, atol=1e-11)
        tensors = Adjoint(*(None if part is None else torch.tensor(part) for part in adjoint))
        if degree:
            assert np.array_equal(fused.pullback(problem, step, found, tensors, EVERYTHING).w, grads.w)
        only = fused.pullback(problem, step, found, adjoint, frozenset({"w"}))
        assert np.allclose(flat(only.w), flat(truth.w), rtol=1e-10, atol=1e-11)
        assert only.query is only.key is only.value is None


@pytest.mark.parametrize("name", ["gaussian-scalar", "epanechnikov-feature", "dot"])
def test_single_precision(name):
    for degree in (0, 2):
        _, _, expected, found = both(name, "weights", degree, np.float32)
        # Products with δ are always in double precision.
        scale = 1e-10 if degree else 2e-6
        assert np.allclose(finish(found).output, finish(expected).output, rtol=scale, atol=scale)


def test_the_whole_call():
    """Few pairs would be plain numpy; by name they are not. Far queries end at the nearest key."""
    key, value = np.linspace(0.0, 1.0, 9), np.arange(9.0)
    query = np.array([0.3, 50.0, -1e180])
    by_name = pool(query, key, value, Gaussian(20.0), engine="fused")
    expected = pool(query, key, value, Gaussian(20.0), engine="reference")
    assert np.allclose(by_name.output, expected.output, rtol=1e-9)
    single = pool(query[:2].astype(np.float32), key.astype(np.float32), value, Gaussian(20.0), engine="fused")
    assert np.allclose(single.output, expected.output[:2], rtol=1e-5)


@pytest.mark.parametrize("name", [name for name, score in RADIAL.items() if score.kernel.compact])
def test_a_key_on_the_edge_of_reach_pulls_nowhere(name):
    """Where K = 0 on one side of a kink, no engine follows the other side."""
    problem = build(np.array([[0.0], [0.25]]), np.array([[1.0], [0.5], [-0.25]]), np.ones((3, 1)), RADIAL[name](1.0))
    step = plan(problem.sketch(), "fused").steps[0]
    adjoint = Adjoint(np.ones((2, 1)), np.ones((2, 1)), np.zeros((2, 1)))
    there, here = (
        e.pullback(problem, step, e.moments(problem, step).partial, adjoint, EVERYTHING) for e in (fused, reference)
    )
    for x, y in zip(there, here, strict=True):
        assert np.allclose(flat(x), flat(y), rtol=1e-10, atol=1e-12)


def test_ties_share():
    pooled = pool([[0.0]], [[-1.0], [1.0], [2.0]], [1.0, 3.0, 9.0], Nearest(), engine="fused")
    assert pooled.output.tolist() == [2.0]


def test_what_it_does_not_do():
    assert engines.load("fused") is fused
    with pytest.raises(ValueError, match="never forms the weights"):
        fused.weights(None, None)


def test_without_a_device(monkeypatch):
    monkeypatch.undo()
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    with pytest.raises(RuntimeError, match="needs a CUDA device"):
        pool([0.0], [1.0], [2.0], Gaussian(), engine="fused")


@pytest.mark.parametrize("d", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_tiles_keep_to_their_rows(d, dtype, monkeypatch):
    """The tiles for many rows, on so few that the last of them is mostly empty: what it holds too much goes nowhere."""
    from regard.engines.gpu import launch

    monkeypatch.setattr(launch, "MAX_ROWS_OF_SMALL_TILES", 0)
    inputs = make_inputs("plain", 300, 20, 1, d=d, dtype=dtype)
    problem = build(*inputs[:3], Gaussian(1.0))
    step = plan(problem.sketch(), "fused").steps[0]
    expected, found = (engine.moments(problem, step).partial for engine in (reference, fused))
    accuracy = 1e-5 if dtype == np.float32 else 1e-12
    assert np.allclose(finish(found).output, finish(expected).output, rtol=accuracy, atol=accuracy)
    adjoint = Adjoint(np.ones((300, 1)), np.ones((300, 1)), finish(expected).output)
    want = frozenset({"w", "query", "value"})
    there, here = (
        e.pullback(problem, step, part, adjoint, want) for e, part in ((fused, found), (reference, expected))
    )
    for name in want:
        a, b = flat(getattr(there, name)), flat(getattr(here, name))
        assert np.allclose(a, b, rtol=0, atol=30 * accuracy * np.abs(b).max())
