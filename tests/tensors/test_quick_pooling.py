"""Pooling in few operations: as accurate as all other paths, and errors are those of arrays."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.scores import DotProduct, Gaussian
from regard.tensors.quick_pooling import quick_pool

SCORES = {
    "gaussian": Gaussian(0.4),
    "gaussian of features": Gaussian([0.4, 0.5, -0.6]),
    "gaussian of a matrix": Gaussian(torch.tensor([[0.5, 0.1], [0.2, 0.3], [0.1, 0.4]])),
    "gaussian of a parameter": Gaussian(torch.tensor(0.4, requires_grad=True)),
    "dot": DotProduct(),
    "scaled dot": DotProduct(-0.7),
}


def given(Q=6, K=9, d=3, P=3, dtype=torch.float32):
    return [torch.randn(2, n, c, dtype=torch.float64).to(dtype).requires_grad_() for n, c in ((Q, d), (K, d), (K, P))]


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("sizes", [(6, 9), (1, 1), (40, 50)])
def test_as_accurate_as_the_general_path(name, sizes):
    score, tensors = SCORES[name], given(*sizes)
    assert quick_pool(*tensors, score) is not None
    wide = [part.detach().double().requires_grad_() for part in tensors]
    general = {"mask": torch.ones(sizes, dtype=torch.bool)}
    results = []
    for sides, options in ((tensors, {}), (tensors, general), (wide, general)):
        found = regard.pool(*sides, score, **options)
        total = (found.output * torch.arange(1.0, 4.0)).sum() + found.logsumexp.square().sum()
        results.append([*(part.detach() for part in found), *torch.autograd.grad(total, sides)])
    for one, naive, exact in zip(*results, strict=True):
        assert one.dtype == naive.dtype == torch.float32
        errors = [float((part.double() - exact).abs().max()) for part in (one, naive)]
        assert errors[0] <= 2.0 * errors[1] + 4e-6 * float(exact.abs().max())


@pytest.mark.parametrize("name", ["gaussian", "dot"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("keys", [1, 9])
def test_what_is_not_finite_is_the_error_of_arrays(name, bad, keys):
    """Positive queries give a key of −inf a weight of 0; all-negative products give a query of infinity none."""
    for place, which in enumerate(("query", "key", "value")):
        tensors = [part.detach().abs() + 0.1 for part in given(K=keys)]
        tensors[place][1, 0, 2] = bad
        with pytest.raises(ValueError, match=f"{which} row 0 is not finite"):
            regard.pool(*tensors, SCORES[name])


@pytest.mark.parametrize(("at", "w"), [(1e20, 1.0), (0.9, 1e30), (0.9, 1e200), (1e4, 1.0)])
def test_far_queries_and_large_w_take_the_nearest_key(at, w):
    query, key, value = torch.tensor([[[at]]]), torch.tensor([[[-1.0], [1.0]]]), torch.tensor([[[2.0], [4.0]]])
    assert quick_pool(query, key, value, Gaussian(w)) is None
    assert regard.pool(query, key, value, Gaussian(w)).output.item() == 4.0


def test_arguments_are_checked():
    query, key, value = (part.detach() for part in given())
    for score, words in ((Gaussian([1.0, 2.0]), "w has 2 entries|features"), (DotProduct(), "must agree")):
        with pytest.raises(ValueError, match=words):
            regard.pool(query[..., :2] if isinstance(score, DotProduct) else query, key, value, score)
    with pytest.raises(ValueError, match="tol must be"):
        regard.pool(query, key, value, Gaussian(), tol=2.0)
    with pytest.raises(TypeError, match="Nearest"):
        regard.pool(query, key, value, regard.core.scores.Nearest(1.0))


@pytest.mark.parametrize("rows", [5, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_features_that_do_not_lie_next_to_each_other(rows, dtype):
    tensors = [torch.randn(2, 6, rows, dtype=dtype).mT for _ in range(3)]
    found = regard.pool(*tensors, DotProduct())
    for one, other in zip(found, regard.pool(*(part.contiguous() for part in tensors), DotProduct()), strict=True):
        torch.testing.assert_close(one, other)
