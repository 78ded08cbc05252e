"""Torch modules by name, small random inputs, and garbage to hide behind masks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from regard.nn import AdditiveScore, BilinearScore, ConcatenatedScore, DotProductScore, GaussianScore

Make = Callable[[int], nn.Module]

# Scores for queries and keys of d features, in float64.
SCORES: dict[str, Make] = {
    "gaussian": lambda d: GaussianScore(0.7, dtype=torch.float64),
    "gaussian-feature": lambda d: GaussianScore(torch.linspace(0.5, 1.5, d, dtype=torch.float64)),
    "gaussian-matrix": lambda d: GaussianScore(torch.randn(d, 2, dtype=torch.float64)),
    "dot": lambda d: DotProductScore(),
    "bilinear": lambda d: BilinearScore(d, d, dtype=torch.float64),
    "additive": lambda d: AdditiveScore(d, d, 5, dtype=torch.float64),
    "concatenated": lambda d: ConcatenatedScore(d, d, 5, dtype=torch.float64),
}
every_score = pytest.mark.parametrize("name", SCORES)


def inputs(
    batch: int = 2, queries: int = 3, keys: int = 5, d: int = 3, columns: int = 2, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """queries (B, Q, d), keys (B, K, d) and values (B, K, P) in float64."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((batch, queries, d), (batch, keys, d), (batch, keys, columns))
    q, k, v = (torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in shapes)
    return q, k, v


def masks(queries: int, keys: int) -> dict[str, dict[str, object]]:
    """Ways to say who may attend to whom, for a batch of two; some rows are empty."""
    some = torch.rand(2, queries, keys, generator=torch.Generator().manual_seed(1)) < 0.5
    some[0, 0] = False
    bias = torch.randn(2, queries, keys, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return {
        "none": {},
        "lengths": {"valid_lens": torch.tensor([keys - 2, 0])},
        "lengths of queries": {"valid_lens": torch.arange(2 * queries).reshape(2, queries) % (keys + 1)},
        "boolean": {"attn_mask": some},
        "additive": {"attn_mask": bias.masked_fill(~some, -torch.inf)},
        "both": {"valid_lens": torch.tensor([keys - 1, keys - 2]), "attn_mask": some},
    }


def with_parameters(module: nn.Module, *given: Tensor) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """A function of the inputs and the parameters, and both as leaves: what gradcheck wants."""
    names = [name for name, _ in module.named_parameters()]
    leaves = tuple(t.detach().clone().requires_grad_() for t in (*given, *module.parameters()))

    def call(*tensors: Tensor, **options: object) -> Tensor:
        parameters = dict(zip(names, tensors[len(given) :], strict=True))
        return torch.func.functional_call(module, parameters, tensors[: len(given)], options)

    return call, leaves


def checked_twice(
    call: Callable[..., Tensor], leaves: tuple[Tensor, ...], options: dict[str, object] | None = None
) -> None:
    """First and second derivatives against finite differences, in float64."""
    options = options or {}
    assert torch.autograd.gradcheck(lambda *t: call(*t, **options), leaves)
    assert torch.autograd.gradgradcheck(lambda *t: call(*t, **options), leaves, fast_mode=True)
