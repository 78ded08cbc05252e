"""torch.compile, torch.export, torch.func, meta tensors and second derivatives of everything that takes tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import regard
from regard.nn import AttentionPooling, GaussianScore, HardAttention, MultiHead
from regard.scores import Additive, DotProduct, Epanechnikov, Gaussian, Laplace
from support.modules import SCORES, every_score
from support.soak import FULL
from support.tensor_paths import take_blocks, take_engines

PLAIN_SCORES = {
    "gaussian": lambda: Gaussian(0.5),
    "gaussian of features": lambda: Gaussian([0.5, 1.0, 2.0]),
    "gaussian of a matrix": lambda: Gaussian([[0.5], [1.0], [2.0]]),
    "laplace": lambda: Laplace(0.5),
    "epanechnikov": lambda: Epanechnikov(0.1),
    "dot": lambda: DotProduct(2.0),
    "additive": lambda: Additive([[1.0, 2.0, 3.0]], [[1.0, 2.0, 3.0]], [1.0]),
}
every_plain_score = pytest.mark.parametrize("name", PLAIN_SCORES)
PATHS = {"plain": lambda monkeypatch: None, "blocks": take_blocks, "engines": take_engines}
every_path = pytest.mark.parametrize("path", PATHS)


def given(batch: int = 4, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.randn(batch, n, c, dtype=dtype) for n, c in ((5, 3), (6, 3), (6, 2))]


def of_pool(name: str) -> Any:
    return lambda q, k, v: regard.pool(q, k, v, PLAIN_SCORES[name]()).output


class Layer(torch.nn.Module):
    """A layer whose arguments are positional."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return self.layer(q, k, v)  # type: ignore[no-any-return]


class Pool(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return of_pool(self.name)(q, k, v)  # type: ignore[no-any-return]


@every_plain_score
def test_a_score_made_inside_a_compiled_function(name):
    tensors = given()
    torch._dynamo.reset()
    compiled = torch.compile(of_pool(name), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*tensors), of_pool(name)(*tensors))


@every_plain_score
def test_an_exported_pool_keeps_a_dynamic_batch(name):
    batch = torch.export.Dim("batch")
    program = torch.export.export(Pool(name), tuple(given()), dynamic_shapes=({0: batch},) * 3)
    for size in (2, 7):
        tensors = given(size)
        torch.testing.assert_close(program.module()(*tensors), of_pool(name)(*tensors))


@every_score
def test_an_exported_layer_keeps_a_dynamic_batch(name):
    layer, batch = Layer(AttentionPooling(SCORES[name](3)).float()), torch.export.Dim("batch")
    program = torch.export.export(layer, tuple(given()), dynamic_shapes=({0: batch},) * 3)
    assert not [node for node in program.graph.nodes if "regard" in str(node.target)], "it runs without regard"
    for size in (2, 7):
        tensors = given(size)
        torch.testing.assert_close(program.module()(*tensors), layer(*tensors))


@every_plain_score
def test_vmap_and_gradients_of_samples_of_pool(name):
    tensors = given(dtype=torch.float64)
    torch.testing.assert_close(torch.vmap(of_pool(name))(*tensors), of_pool(name)(*tensors))
    gradient = torch.func.grad(lambda q, k, v: of_pool(name)(q, k, v).square().sum())
    leaf = tensors[0].clone().requires_grad_()
    (expected,) = torch.autograd.grad(of_pool(name)(leaf, *tensors[1:]).square().sum(), leaf)
    torch.testing.assert_close(torch.vmap(gradient)(*tensors), expected)


@every_score
def test_gradients_of_samples_of_a_layer(name):
    layer, tensors = AttentionPooling(SCORES[name](3)).double(), given(dtype=torch.float64)
    parameters = dict(layer.named_parameters())

    def loss(parameters: Any, *tensors: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, parameters, tensors).square().sum()  # type: ignore[no-any-return]

    found = torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0, 0))(parameters, *tensors)
    for i in range(len(tensors[0])):
        sample = [part[i] for part in tensors]
        expected = torch.autograd.grad(loss(parameters, *sample), tuple(parameters.values())) if parameters else ()
        for name_of, grad in zip(parameters, expected, strict=True):
            torch.testing.assert_close(found[name_of][i], grad)


@every_score
def test_meta_tensors_have_shapes(name):
    tensors = [part.to("meta") for part in given()]
    layer = AttentionPooling(SCORES[name](3)).float().to("meta")
    assert layer(*tensors).shape == (4, 5, 2)
    assert layer(*tensors, need_weights=True).weights.shape == (4, 5, 6)
    assert layer(*tensors, torch.zeros(4, dtype=torch.int64, device="meta")).device.type == "meta"


@every_plain_score
def test_meta_tensors_of_pool(name):
    pooled = regard.pool(*(part.to("meta") for part in given()), PLAIN_SCORES[name]())
    assert (pooled.output.shape, pooled.logsumexp.shape) == ((4, 5, 2), (4, 5))


def test_hard_attention_and_heads_of_meta_tensors():
    tensors = [part.to("meta") for part in given()]
    assert HardAttention(GaussianScore().to("meta")).eval()(*tensors).output.shape == (4, 5, 2)
    heads = MultiHead(AttentionPooling(GaussianScore()), 2, 4, 3, 2).to("meta")
    query = torch.empty(4, 5, 4, device="meta")
    assert heads(query, *tensors[1:]).shape == (4, 5, 4)


@every_path
@every_plain_score
@pytest.mark.parametrize("masked", [False, True])
def test_second_derivatives_of_pool(name, path, masked, monkeypatch):
    PATHS[path](monkeypatch)
    q, k, v = (part.requires_grad_() for part in given(2, torch.float64))
    mask = torch.ones(5, 6, dtype=torch.bool).tril(2) if masked else None

    def pooled(*tensors: torch.Tensor) -> Any:
        return tuple(regard.pool(*tensors, PLAIN_SCORES[name](), mask=mask))

    assert torch.autograd.gradgradcheck(pooled, (q, k, v), fast_mode=not FULL)


@every_path
@every_score
def test_second_derivatives_of_a_linear_loss(name, path, monkeypatch):
    """The gradient that comes in requires none: the case in which torch's own guard says nothing."""
    layer, tensors = AttentionPooling(SCORES[name](3)).double(), given(2, torch.float64)
    leaves = [*(part.clone().requires_grad_() for part in tensors), *layer.parameters()]

    def second() -> list[torch.Tensor]:
        first = torch.autograd.grad(layer(*leaves[:3]).sum(), leaves, create_graph=True, materialize_grads=True)
        total = sum((part * part.detach().sin()).sum() for part in first)
        assert isinstance(total, torch.Tensor)
        return list(torch.autograd.grad(total, leaves, materialize_grads=True))

    expected = second()
    PATHS[path](monkeypatch)
    for found, one in zip(second(), expected, strict=True):
        torch.testing.assert_close(found, one)


def test_third_derivatives_and_one_tensor_in_two_places(monkeypatch):
    take_blocks(monkeypatch)
    x = torch.randn(1, 4, 2, dtype=torch.float64, requires_grad=True)

    def gradient(x: torch.Tensor) -> torch.Tensor:
        found = torch.autograd.grad(regard.pool(x, x, x, Gaussian(0.5)).output.sin().sum(), x, create_graph=True)
        return found[0]

    assert torch.autograd.gradgradcheck(gradient, x, fast_mode=not FULL)


def test_second_derivatives_of_what_is_too_large_are_refused(monkeypatch):
    from regard.tensors import second_derivatives

    take_engines(monkeypatch)
    monkeypatch.setattr(second_derivatives, "MAX_PLAIN_NUMBERS", 59)
    q, k, v = given(1, torch.float64)
    q.requires_grad_()
    (first,) = torch.autograd.grad(regard.pool(q, k, v, Gaussian()).output.sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives are computed in plain torch, which would hold"):
        first.sum().backward()
