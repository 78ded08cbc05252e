"""Additive scores in blocks of exponentials: those of tanh, for any number, size and memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.tensors import hidden_scores as module
from regard.tensors.hidden_scores import hidden_scores

SIZES = {"one block": {}, "many blocks": {"BLOCK_NUMBERS": 100}, "one query a block": {"BLOCK_NUMBERS": 1}}


@pytest.fixture(params=SIZES)
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(module, "MIN_NUMBERS", 0)
    for name, value in SIZES[request.param].items():
        monkeypatch.setattr(module, name, value)
    return str(request.param)


def by_tanh(query: torch.Tensor, key: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)) @ w


def leaves(scale: float = 1.0, dtype: torch.dtype = torch.float64, batch: tuple[int, ...] = (3,)) -> Any:
    """Queries, keys and w; sums of queries and keys stay moderate however large both are."""
    far = scale * torch.randn(1, 1, 4, dtype=torch.float64)
    sides = (
        torch.randn(*batch, 7, 4).double() + far,
        torch.randn(*batch, 9, 4).double() - far,
        torch.randn(4).double(),
    )
    return [part.to(dtype).requires_grad_() for part in sides]


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("scale", [1.0, 30.0, 400.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_as_accurate_as_tanh(scale, dtype):
    given = leaves(scale, dtype)
    exact = [part.detach().double().requires_grad_() for part in given]
    cotangent = torch.randn(3, 7, 9, dtype=torch.float64)
    found, naive, true = hidden_scores(*given), by_tanh(*given), by_tanh(*exact)
    results = [
        [scores.detach(), *torch.autograd.grad(scores, sides, cotangent.to(scores.dtype))]
        for scores, sides in ((found, given), (naive, given), (true, exact))
    ]
    for one, other, expected in zip(*results, strict=True):
        errors = [float((part.double() - expected).abs().max()) for part in (one, other)]
        # Exponentials of both sides round like both sides themselves.
        rounding = 8.0 * torch.finfo(dtype).eps * (1.0 + min(scale, 100.0)) * float(expected.abs().max())
        assert errors[0] <= 2.0 * errors[1] + rounding


@pytest.mark.usefixtures("blocks")
def test_derivatives():
    given = leaves(batch=(2,))
    assert torch.autograd.gradcheck(hidden_scores, given)
    assert torch.autograd.gradgradcheck(hidden_scores, given)
    assert torch.autograd.grad(hidden_scores(given[0].detach(), *given[1:]).sum(), given[1])[0].isfinite().all()


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite(bad):
    query, key, w = (part.detach() for part in leaves())
    query[0, 1, 2] = bad
    key[1, 2, 3] = bad
    torch.testing.assert_close(
        hidden_scores(query, key, w), by_tanh(query, key, w), rtol=1e-12, atol=1e-12, equal_nan=True
    )


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(
    "shapes", [((7, 4), (9, 4)), ((2, 3, 7, 4), (9, 4)), ((3, 7, 4), (2, 1, 9, 4)), ((2, 7, 0), (2, 9, 0))]
)
def test_batches_broadcast(shapes):
    query, key, w = (
        *(torch.randn(*shape, dtype=torch.float64) for shape in shapes),
        torch.randn(shapes[0][-1]).double(),
    )
    torch.testing.assert_close(hidden_scores(query, key, w), by_tanh(query, key, w))


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(("Q", "K", "batch"), [(0, 5, 2), (5, 0, 2), (5, 5, 0)])
def test_nothing_in_nothing_out(Q, K, batch):
    query, key, w = torch.randn(batch, Q, 4), torch.randn(batch, K, 4), torch.randn(4, requires_grad=True)
    scores = hidden_scores(query, key, w)
    assert scores.shape == (batch, Q, K)
    assert torch.autograd.grad(scores.sum(), w)[0].equal(torch.zeros(4))


def test_nothing_of_the_size_of_all_units_is_kept():
    query, key, w = (torch.randn(*shape, requires_grad=True) for shape in ((2, 90, 64), (2, 80, 64), (64,)))
    largest = 0

    def packed(part: torch.Tensor) -> torch.Tensor:
        nonlocal largest
        largest = max(largest, part.numel())
        return part

    with torch.autograd.graph.saved_tensors_hooks(packed, lambda part: part):
        scores = hidden_scores(query, key, w)
    assert 0 < largest <= query.numel()
    assert scores.grad_fn is not None
    assert scores.grad_fn.kept is None
