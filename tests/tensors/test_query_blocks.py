"""Attention by products in blocks: accuracy beside differences, dropout, memory, and what it leaves to others."""

from __future__ import annotations

import pytest
import torch

from regard.engines.gpu.layout import DOT, LoweredBatch
from regard.nn import AdditiveScore, AttentionPooling, DotProductScore, GaussianScore, sparsemax
from regard.tensors import query_blocks
from regard.tensors.gaussian_products import gaussian_sides
from regard.tensors.query_blocks import Dropout, block_pool
from support.tensor_paths import take_blocks

GAUSSIAN = 0
SHAPES = {"one block": {}, "small blocks": {"BLOCK_SCORES": {"cpu": 50}, "MAX_KEPT_WEIGHTS": 0, "MIN_BLOCK_QUERIES": 2}}


@pytest.fixture(params=SHAPES)
def shape(request, monkeypatch):
    for name, value in SHAPES[request.param].items():
        monkeypatch.setattr(query_blocks, name, value)


def batch(code: int, B: int = 3, Q: int = 7, K: int = 9, d: int = 4, P: int = 2, w: float = 0.7) -> LoweredBatch:
    sides = (torch.randn(B, n, c, dtype=torch.float64).requires_grad_() for n, c in ((Q, d), (K, d), (K, P)))
    return LoweredBatch(code, *sides, torch.tensor(w, dtype=torch.float64, requires_grad=True))


def explicit(it: LoweredBatch, kept: torch.Tensor, probability: float) -> torch.Tensor:
    """The formula, with a mask of the weights that dropout kept."""
    if it.code == DOT:
        scores = it.w * it.query @ it.key.mT
    else:
        scores = -0.5 * (it.w * (it.query[:, :, None] - it.key[:, None])).square().sum(-1)
    return (torch.softmax(scores, -1) * kept / (1.0 - probability)) @ it.value


@pytest.mark.usefixtures("shape")
@pytest.mark.parametrize("code", [DOT, GAUSSIAN])
def test_dropout_is_a_mask_of_the_weights_forward_and_backward(code):
    it = batch(code)
    dropout = Dropout(0.25, seed=5)
    numbers = torch.eye(9, dtype=torch.float64).expand(3, -1, -1)
    with torch.no_grad():
        weights = block_pool(it._replace(value=numbers), dropout)[0]
        assert block_pool(it._replace(value=numbers), dropout)[0].equal(weights), "the seed decides"
    kept = weights != 0.0
    assert 0.6 < kept.double().mean() < 0.9
    leaves = it[1:5]
    found, expected = block_pool(it, dropout)[0], explicit(it, kept, 0.25)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
    cotangent = torch.randn_like(found)
    for one, other in zip(
        torch.autograd.grad(found, leaves, cotangent), torch.autograd.grad(expected, leaves, cotangent), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


@pytest.mark.usefixtures("shape")
@pytest.mark.parametrize("code", [DOT, GAUSSIAN])
def test_second_derivatives_with_dropout(code):
    it = batch(code, B=2, Q=3, K=3, d=2, P=1)
    assert torch.autograd.gradgradcheck(
        lambda *sides: block_pool(LoweredBatch(code, *sides), Dropout(0.25, seed=5)), it[1:5]
    )


def test_dropout_is_unbiased():
    it = batch(GAUSSIAN, B=1, Q=1, K=2000)
    with torch.no_grad():
        plain = block_pool(it)[0]
        draws = torch.cat([block_pool(it, Dropout(0.3, seed=1000 * i))[0] for i in range(400)])
    error = (draws.mean(0) - plain[0]).abs() / (draws.std(0) / 20.0)
    assert error.max() < 4.0


@pytest.mark.parametrize("score", [DotProductScore(), GaussianScore(0.5), AdditiveScore(3, 3, 4)], ids=type)
def test_dropout_of_layers_follows_the_seed_of_torch(score, monkeypatch):
    take_blocks(monkeypatch)
    layer = AttentionPooling(score, dropout=0.5).train()
    q, k, v = torch.randn(2, 5, 3), torch.randn(2, 6, 3), torch.randn(2, 6, 2)
    found = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        found.append(layer(q, k, v))
    assert found[0].equal(found[1])
    assert not found[0].equal(found[2])
    torch.testing.assert_close(layer.eval()(q, k, v), AttentionPooling(score)(q, k, v))
    nothing = AttentionPooling(score, dropout=1.0).train()(q, k, v)
    assert nothing.equal(torch.zeros_like(nothing))


@pytest.mark.parametrize(("d", "w", "offset"), [(64, 1.0, 0.0), (64, 1.0, 1e3), (2, 1.0, 0.0), (8, 1.0, 50.0)])
def test_products_round_like_differences(d, w, offset):
    """w = 1 on 64 features of unit variance goes by products; weights are good to the default tol of float32."""
    q, k = ((torch.randn(400, d) + offset).double() for _ in range(2))
    exact = torch.softmax(-0.5 * (w * (q[:, None] - k[None])).square().sum(-1), -1)
    narrow = [part.float() for part in (q, k)]
    differences = torch.softmax(-0.5 * (w * (narrow[0][:, None] - narrow[1][None])).square().sum(-1), -1)
    sides = gaussian_sides(*narrow, torch.tensor(w))
    assert sides is not None
    products = torch.softmax(sides.scores(), -1)
    errors = [float((part.double() - exact).abs().max()) for part in (products, differences)]
    assert errors[0] <= max(3.0 * errors[1], 4e-6)
    assert errors[0] <= 1e-5
    wide = gaussian_sides(q, k, torch.tensor(w).double())
    assert wide is not None
    torch.testing.assert_close(torch.softmax(wide.scores(), -1), exact, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("at", "w"), [(0.0, 100.0), (1e20, 1.0), (0.0, 1e30), (1e4, 1.0)])
def test_what_products_would_round_too_much_takes_differences(at, w):
    q, k = torch.rand(5, 2) + at, torch.rand(6, 2)
    sides = gaussian_sides(q, k, torch.tensor(w))
    assert sides is None or w == 1.0
    if sides is not None:
        exact = torch.softmax(-0.5 * (q.double()[:, None] - k.double()).square().sum(-1), -1)
        torch.testing.assert_close(torch.softmax(sides.scores(), -1).double(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["dot", "gaussian", "additive", "sparsemax", "gaussian by differences"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_nothing_of_the_size_of_all_pairs_is_kept(kind, dropout, monkeypatch):
    """What autograd keeps between forward and backward, counted: nothing with (query, key) axes."""
    import regard.nn.attention_pooling as module

    take_blocks(monkeypatch)
    monkeypatch.setitem(module.MAX_NUMBERS_AT_ONCE, "cpu", 500)
    score = {
        "dot": DotProductScore(),
        "sparsemax": DotProductScore(),
        "additive": AdditiveScore(3, 3, 4),
        "gaussian": GaussianScore(0.5),
        "gaussian by differences": GaussianScore(500.0),
    }[kind]
    layer = AttentionPooling(score, dropout, sparsemax if kind == "sparsemax" else module.softmax).train()
    q, k, v = (torch.randn(2, 90, 3, requires_grad=True) for _ in range(3))
    largest = 0

    def kept(part: torch.Tensor) -> torch.Tensor:
        nonlocal largest
        largest = max(largest, part.numel())
        return part

    with torch.autograd.graph.saved_tensors_hooks(kept, lambda part: part):
        output = layer(q, k, v)
    assert largest < 2 * 90 * 90
    output.sum().backward()
    assert all(part.grad.isfinite().all() for part in (q, k, v))
