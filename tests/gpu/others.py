"""What is tried on a GPU besides ``fused_pool``: the engine of arrays, layers, odd numbers, graphs, estimators.

Every check is a name and a function; it returns errors over what they may be, or raises.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import product
from random import Random
from typing import Any

import numpy as np
import torch
from torch import nn

import regard
from gpu.cases import SIZES, WIDTHS
from regard.core.problem import Adjoint, Gradients, build
from regard.core.state import finish
from regard.engines.cpu import reference
from regard.engines.gpu import fused
from regard.pooling.planner import plan
from regard.scores import RADIAL, Additive, DotProduct, Epanechnikov, Gaussian, Laplace, Nearest, Score
from regard.tensors import fused_pool

Check = tuple[str, Callable[[str], dict[str, float]]]
Tensor = torch.Tensor

SMALL = tuple(n for n in SIZES if n <= 1000)
KINDS = ("", "-feature", "-matrix")


def checks() -> list[Check]:
    return [*engine_checks(), *layer_checks(), *number_checks(), *estimator_checks(), ("graph: captured", captured)]


# ---- the engine "fused": arrays in, attention moments and gradients out


def engine_checks() -> list[Check]:
    random, out = Random(1), []
    scores = [f"{name}{kind}" for name in (*RADIAL, "nearest") for kind in KINDS] + ["dot", "additive"]
    for number, score in enumerate(scores):
        for degree in (0,) if score == "additive" else (0, 1, 2):
            option = ("plain", "mask", "bias", "weights", "exclude")[(number + degree) % 5]
            Q, K = random.choice(SMALL), random.choice(SMALL)
            d = random.choice([d for d in WIDTHS if d <= (8 if degree == 2 else 64)])
            dtype = ("float64", "float32")[(number + degree) % 2]
            name = f"engine: {score}, {option}, degree {degree}, {Q}×{K} d={d} {dtype}"
            out.append((name, partial(engine, score, option, degree, Q, K, d, dtype)))
    for score, Q, K, d in (
        ("gaussian", 300001, 257, 3),
        ("tricube", 257, 300001, 2),
        ("gaussian-feature", 65537, 1000, 17),
    ):
        name = f"engine: {score}, plain, degree 0, {Q}×{K} d={d} float32"
        out.append((name, partial(engine, score, "plain", 0, Q, K, d, "float32")))
    return out


def engine(score: str, option: str, degree: int, Q: int, K: int, d: int, dtype: str, device: str) -> dict[str, float]:
    rng = np.random.default_rng([Q, K, d, degree])
    # Short numbers: whether a key is in reach, or nearest, is then the same in every precision.
    query, key = (np.round(8.0 * rng.normal(size=(n, d))).clip(-30, 30) / 8.0 for n in (Q, K))
    value = rng.normal(size=(K, 2)) + 0.5
    options: dict[str, Any] = {}
    if option == "mask":
        options["mask"] = rng.random((Q, K)) < 0.7
    if option == "bias":
        options["mask"] = np.where(rng.random((Q, K)) < 0.8, rng.normal(size=(Q, K)), -np.inf)
    if option == "weights":
        options["sample_weight"] = rng.random(K) + 0.1
    if option == "exclude":
        options["exclude"] = rng.integers(0, 7, Q), rng.integers(0, 7, K)
    sides = (part.astype(dtype) for part in (query, key, value))
    problem = build(*sides, _score(score, d, rng), degree=degree, **options)
    step = plan(problem.sketch(), "fused").steps[0]
    # Rows that the oracle takes a moment for.
    rows = (
        np.unique(np.r_[:20, rng.integers(0, Q, 20), Q - 20 : Q].clip(0, Q - 1))
        if Q * K * d > 1 << 22
        else np.arange(Q)
    )
    few = problem.take(rows)
    truth, found = reference.moments(few, step).partial, fused.moments(problem, step).partial
    exact, got = finish(truth), finish(found._replace(moments=regard.core.arrays.as_numpy(found.moments)))
    budget = 1e-10 if dtype == "float64" or degree else 5e-5
    out = {
        "moments": _off(got.output[rows], exact.output) / budget,
        "logsumexp": _off(got.logsumexp[rows], exact.logsumexp) / budget,
    }
    if len(rows) == Q:
        left, right = (rng.normal(size=(Q, 1 + d if degree else 1)) for _ in range(2))
        adjoint = Adjoint(left, rng.normal(size=(Q, 2)), right)
        want = frozenset(Gradients._fields)
        grads = (e.pullback(problem, step, part, adjoint, want) for e, part in ((fused, found), (reference, truth)))
        for name, one, other in zip(Gradients._fields, *grads, strict=True):
            out[f"gradient of {name}"] = _off(_flat(one), _flat(other)) / (30.0 * budget)
    return out


def _score(name: str, d: int, rng: np.random.Generator) -> Score:
    if name == "additive":
        return Additive(rng.normal(size=(9, d)) / d**0.5, rng.normal(size=(9, d)) / d**0.5, rng.normal(size=9))
    if name == "dot":
        return DotProduct(1.5)
    kernel, _, kind = name.partition("-")
    make = Nearest if kernel == "nearest" else RADIAL[kernel]
    w = 2.0 ** round(float(np.log2(0.75 / (2.0 * d) ** 0.5)))
    if kind == "matrix":
        # Projections are taken from the mean of the keys, which is no short number: no pair may lie on the very edge of
        # reach, where rounding decides whether it counts.
        return make(1.1 * w * np.eye(d, max(1, d // 2)))
    return make(w * np.resize([1.0, 0.5, 1.0, 2.0], d) if kind else w)


def _flat(part: Any) -> Any:
    return np.concatenate([np.ravel(x) for x in (part if isinstance(part, tuple) else (part,))])


def _off(got: Any, exact: Any) -> float:
    finite = np.isfinite(exact)
    if not np.array_equal(finite, np.isfinite(got)):
        return float("inf")
    return float(np.abs(got - exact)[finite].max(initial=0.0) / max(1.0, np.abs(exact)[finite].max(initial=0.0)))


# ---- layers


def layer_checks() -> list[Check]:
    from regard import nn as layers

    scores = {
        "gaussian": lambda d: layers.GaussianScore(0.7),
        "gaussian-feature": lambda d: layers.GaussianScore(torch.linspace(0.3, 0.9, d)),
        "gaussian-matrix": lambda d: layers.GaussianScore(torch.randn(d, 2) / d**0.5),
        "dot": lambda d: layers.DotProductScore(),
        "bilinear": lambda d: layers.BilinearScore(d, d),
        "additive": lambda d: layers.AdditiveScore(d, d, 9),
        "concatenated": lambda d: layers.ConcatenatedScore(d, d, 9),
    }
    shapes = ((1, 1, 1, 1), (2, 33, 17, 3), (3, 65, 127, 8), (2, 257, 255, 16), (1, 1000, 129, 33), (2, 31, 1000, 64))
    out: list[Check] = []
    for number, (name, make) in enumerate(scores.items()):
        for turn, option in enumerate(("plain", "lengths", "query lengths", "boolean", "additive", "both")):
            shape = shapes[(number + turn) % len(shapes)]
            build_it = partial(lambda make, d: layers.AttentionPooling(make(d)), make)
            out.append((f"nn: AttentionPooling({name}), {option}, {shape}", partial(layer, build_it, option, shape)))
    # So large that the fused programs take them.
    large = (
        ("gaussian", (1, 8193, 1000, 3)), ("gaussian-feature", (2, 4097, 257, 16)), ("dot", (1, 8193, 4097, 17)),
        ("gaussian-matrix", (1, 4097, 1000, 5)), ("bilinear", (1, 4097, 8193, 8)), ("additive", (1, 2049, 1000, 9)),
    )  # fmt: skip
    for (name, shape), option in product(large, ("plain", "boolean")):
        build_it = partial(lambda make, d: layers.AttentionPooling(make(d)), scores[name])
        out.append((f"nn: AttentionPooling({name}), {option}, {shape}", partial(layer, build_it, option, shape)))
    others: dict[str, Callable[[int], nn.Module]] = {
        "sparsemax": lambda d: layers.AttentionPooling(layers.DotProductScore(), normalise=layers.sparsemax),
        "entmax15": lambda d: layers.AttentionPooling(layers.GaussianScore(0.5), normalise=layers.entmax15),
        "multi_head(dot)": lambda d: layers.multi_head(layers.AttentionPooling(layers.DotProductScore()), 4, d),
        "multi_head(gaussian)": lambda d: layers.multi_head(layers.AttentionPooling(layers.GaussianScore(0.5)), 2, d),
        "DotProductAttention": lambda d: layers.DotProductAttention(0.0),
        "AdditiveAttention": lambda d: layers.AdditiveAttention(d, d, 9, 0.0),
    }
    for name, make in others.items():
        for option, shape in (("plain", (2, 65, 127, 8)), ("lengths", (3, 17, 33, 32))):
            out.append((f"nn: {name}, {option}, {shape}", partial(layer, make, option, shape)))
    out.append(("nn: HardAttention", hard))
    out.append(("nn: NWKernelRegression", book))
    return out


def layer(
    make: Callable[[int], nn.Module], option: str, shape: tuple[int, int, int, int], device: str
) -> dict[str, float]:
    """On the device in float32 beside the same on the CPU, in float64 and float32."""
    torch.manual_seed(0)
    B, Q, K, d = shape
    tensors = [torch.randn(B, Q, d), torch.randn(B, K, d), torch.randn(B, K, d)]
    module = make(d)
    some = torch.rand(B, Q, K) < 0.6
    some[0, 0] = False
    options: dict[str, Any] = {}
    if option in ("lengths", "both"):
        options["valid_lens"] = torch.randint(0, K + 1, (B,))
    if option == "query lengths":
        options["valid_lens"] = torch.randint(0, K + 1, (B, Q))
    if option in ("boolean", "both"):
        options["attn_mask"] = some
    if option == "additive":
        options["attn_mask"] = torch.randn(B, Q, K).masked_fill(~some, -torch.inf)
    grad = torch.randn(B, Q, d)

    def answer(dtype: torch.dtype, where: str) -> list[Tensor]:
        it = make(d).to(where, dtype)
        it.load_state_dict(module.state_dict())
        leaves = [part.to(where, dtype).requires_grad_() for part in tensors]
        given = {name: part.to(where) for name, part in options.items()}
        output = it(*leaves, **given)
        parts = torch.autograd.grad(
            (output * grad.to(where, dtype)).sum(),
            [*leaves, *it.parameters()],
            allow_unused=True,
            materialize_grads=True,
        )
        return [part.detach().cpu().double() for part in (output, *parts)]

    exact, rough, found = answer(torch.float64, "cpu"), answer(torch.float32, "cpu"), answer(torch.float32, device)
    names = ["output", "gradient of queries", "gradient of keys", "gradient of values"]
    names += [f"gradient of {name}" for name, _ in module.named_parameters()]
    return {name: _excess(*parts) for name, *parts in zip(names, found, exact, rough, strict=True)}


def _excess(got: Tensor, exact: Tensor, rough: Tensor) -> float:
    if not bool(got.isfinite().all()):
        return float("inf")
    error, allowed = (float((part - exact).abs().max()) for part in (got, rough))
    # Matrix products of layers on a GPU add up in another order.
    return error / (8.0 * allowed + 256.0 * 1.2e-7 * max(1e-3, float(exact.abs().max())))


def hard(device: str) -> dict[str, float]:
    from regard.nn import GaussianScore, HardAttention

    torch.manual_seed(0)
    q, k, v = torch.randn(2, 65, 3), torch.randn(2, 127, 3), torch.randn(2, 127, 2)
    looks = [
        HardAttention(GaussianScore(0.7)).eval().to(where)(*(x.to(where) for x in (q, k, v)))
        for where in ("cpu", device)
    ]
    _require(torch.equal(looks[0].choice, looks[1].choice.cpu()), "choices differ")
    learning = HardAttention(GaussianScore(0.7)).to(device)
    pooled = learning(*(x.to(device) for x in (q, k, v)))
    pooled.objective(pooled.output.square().sum(-1)).mean().backward()
    _require(bool(learning.score.w.grad.isfinite()), "the gradient of w is not finite")
    return {"weights": float((looks[0].weights - looks[1].weights.cpu()).detach().abs().max()) / 1e-5}


def book(device: str) -> dict[str, float]:
    from regard.nn import NWKernelRegression

    torch.manual_seed(0)
    net, n = NWKernelRegression(), 129
    x, keys, values = torch.randn(n), torch.randn(n, 65), torch.randn(n, 65)
    here = net(x, keys, values).detach()
    there = net.to(device)(x.to(device), keys.to(device), values.to(device)).detach().cpu()
    return {"output": float((here - there).abs().max()) / 1e-5}


# ---- numbers that are not finite, or out of range


def number_checks() -> list[Check]:
    scores: dict[str, Score] = {
        "gaussian": Gaussian(), "laplace": Laplace(), "epanechnikov": Epanechnikov(0.1), "dot": DotProduct(),
        "additive": Additive([[1.0]], [[1.0]], [1.0]),
    }  # fmt: skip
    out: list[Check] = []
    for size, name, dtype in product((3, 3001), scores, (torch.float32, torch.float64, torch.bfloat16)):
        call = partial(odd, scores[name], size, dtype)
        out.append((f"numbers: not finite, {name}, {size} keys, {dtype}", call))
    distances = (
        (torch.float32, 1e20, 1.0), (torch.float32, -1e30, 1.0), (torch.float32, 0.3, 1e25),
        (torch.float32, 0.0, 1e25), (torch.float64, 1e20, 1.0), (torch.float64, 0.3, 1e200),
        (torch.float64, 0.0, 1e200), (torch.float16, 6e4, 1e30),
    )  # fmt: skip
    for make, (dtype, at, w), many in product((Gaussian, Laplace), distances, (0, 100_000)):
        name = f"numbers: far, {make.__name__}, {dtype}, query {at:g}, w {w:g}, {many} others"
        out.append((name, partial(far, make, dtype, at, w, many)))
    return out


def odd(score: Score, size: int, dtype: torch.dtype, device: str) -> dict[str, float]:
    """``pool`` raises what it raises for arrays; behind a mask nothing is odd."""
    for place, bad in ((0, torch.nan), (1, torch.inf), (2, -torch.inf), (1, torch.nan), (2, torch.nan)):
        given = [torch.zeros(size, 1, dtype=dtype, device=device) for _ in range(3)]
        given[place][1] = bad
        name = ("query", "key", "value")[place]
        try:
            regard.pool(*given, score)
        except ValueError as reason:
            _require(f"{name} row 1 is not finite" in str(reason), f"{name}: {reason}")
        else:
            _require(False, f"{bad} in {name} is no error")
        hidden = torch.ones(size, size, dtype=torch.bool, device=device)
        hidden[1] = False
        hidden[:, 1] = False
        found = regard.pool(*given, score, mask=hidden)
        _require(bool(found.output.isfinite().all()), f"{bad} in {name} shows behind a mask")
    return {}


def far(make: type[Score], dtype: torch.dtype, at: float, w: float, many: int, device: str) -> dict[str, float]:
    """The nearest key, ties share; other rows as they are alone."""
    torch.manual_seed(0)
    others = torch.randn(many, 1)
    query = torch.cat([torch.tensor([[at]], dtype=torch.float64), others.double()]).to(device, dtype).requires_grad_()
    key = torch.tensor([[-1.0], [1.0]], dtype=dtype, device=device, requires_grad=True)
    value = torch.tensor([[2.0], [4.0]], dtype=dtype, device=device, requires_grad=True)
    output, logsumexp = regard.pool(query, key, value, make(w))  # type: ignore[call-arg]
    # The nearest key's value, the mean of a tie, and of Laplace far away shares that depend on w alone.
    expected = 3.0 + float(np.sign(at)) if make is Gaussian or w > 1.0 else 3.0 + float(np.tanh(np.sign(at)))
    grads = torch.autograd.grad(output.sum(), [query, key, value])
    _require(bool(logsumexp.isfinite().all()), "logsumexp is not finite")
    _require(all(bool(part.isfinite().all()) for part in grads), "a gradient is not finite")
    out = {"output": abs(output[0].item() - expected) / (64.0 * torch.finfo(dtype).eps)}
    if many and w == 1.0:
        alone = fused_pool(query[1:].detach(), key.detach(), value.detach(), make(w))[0]  # type: ignore[call-arg]
        out["other rows"] = float((alone - output[1:]).abs().max()) / (64.0 * torch.finfo(dtype).eps)
    return out


def captured(device: str) -> dict[str, float]:
    """A graph that holds ``fused_pool`` gives, replayed on other numbers, what a call gives."""
    query, key, value = (torch.randn(2, n, 16, device=device) for n in (65, 129, 129))
    rows = torch.arange(65, device=device), torch.arange(129, device=device)

    def call() -> tuple[Tensor, Tensor]:
        return fused_pool(query, key, value, Gaussian(0.3))[0], fused_pool(
            query, key, value, Laplace(0.3), exclude=rows
        )[0]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        kept = call()
    query.normal_()
    graph.replay()
    return {f"call {n}": float((a - b).abs().max()) / 1e-5 for n, (a, b) in enumerate(zip(kept, call(), strict=True))}


# ---- estimators, where the packages they need are installed


def estimator_checks() -> list[Check]:
    missing = [name for name in ("sklearn", "numba", "scipy") if find_spec(name) is None]
    if missing:
        return []
    names = ("NadarayaWatsonRegressor", "LocalLinearRegressor", "NadarayaWatsonClassifier")
    return [(f"estimator: {name}", partial(estimator, name)) for name in names]


def estimator(name: str, device: str) -> dict[str, float]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=1000)
    target = y > 0.0 if name.endswith("Classifier") else y
    there, here = (getattr(regard, name)(bandwidth=0.4, device=where).fit(X, target) for where in (device, "cpu"))
    call = "predict_proba" if name.endswith("Classifier") else "predict"
    return {call: _off(getattr(there, call)(1.1 * X), getattr(here, call)(1.1 * X)) / 1e-8}


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
