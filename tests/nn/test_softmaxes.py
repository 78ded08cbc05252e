"""Sparsemax and entmax: against a bisection, their closed-form Jacobians, their laws, and under masks."""

from __future__ import annotations

import pytest
import torch

from regard.nn import AttentionPooling, DotProductScore, entmax15, softmax, sparsemax

SPARSE = {"sparsemax": (sparsemax, 2.0), "entmax15": (entmax15, 1.5)}
both = pytest.mark.parametrize(("normalise", "alpha"), SPARSE.values(), ids=SPARSE)


def bisected(scores, alpha):
    """max((α−1)·score − τ, 0)^(1/(α−1)) with τ found by halving: slow, and right for every α."""
    z = (alpha - 1.0) * scores.double()
    low, high = z.amax(-1, keepdim=True) - 1.0, z.amax(-1, keepdim=True)
    for _ in range(200):
        middle = (low + high) / 2.0
        enough = (z - middle).clamp(min=0.0).pow(1.0 / (alpha - 1.0)).sum(-1, keepdim=True) >= 1.0
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
    return (z - low).clamp(min=0.0).pow(1.0 / (alpha - 1.0))


@both
@pytest.mark.parametrize("spread", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("keys", [1, 2, 7, 300])
def test_against_a_bisection(normalise, alpha, keys, spread):
    scores = spread * torch.randn(50, keys, dtype=torch.float64)
    weights = normalise(scores)
    assert torch.allclose(weights, bisected(scores, alpha), rtol=1e-10, atol=1e-13)
    assert torch.allclose(weights.sum(-1), torch.ones(50, dtype=torch.float64), rtol=1e-13)
    assert (weights >= 0.0).all()


@both
def test_single_precision_is_close_to_double(normalise, alpha):
    scores = torch.randn(50, 40) * 3.0
    assert torch.allclose(normalise(scores), normalise(scores.double()).float(), atol=1e-6)


@both
def test_the_jacobian(normalise, alpha):
    """diag(g) − g gᵀ/Σg with g = weight^(2−α) on the support."""
    scores = torch.randn(6, dtype=torch.float64) * 0.7
    weights = normalise(scores)
    assert (weights == 0.0).any()
    g = torch.where(weights > 0.0, weights.pow(2.0 - alpha), 0.0)
    expected = torch.diag(g) - torch.outer(g, g) / g.sum()
    assert torch.allclose(torch.autograd.functional.jacobian(normalise, scores), expected, atol=1e-13)


@both
def test_gradients(normalise, alpha):
    scores = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(normalise, scores)
    assert torch.autograd.gradgradcheck(normalise, scores)


@both
def test_laws(normalise, alpha):
    scores = torch.randn(5, 8, dtype=torch.float64)
    weights = normalise(scores)
    assert torch.allclose(normalise(scores + 1e3), weights, atol=1e-12), "only differences count"
    order = torch.randperm(8)
    assert torch.allclose(normalise(scores[:, order]), weights[:, order], atol=1e-14)
    assert torch.equal(normalise(torch.zeros(1, 4)), torch.full((1, 4), 0.25)), "ties share"
    assert torch.equal(normalise(1e6 * scores).argmax(-1), scores.argmax(-1))
    assert torch.equal(normalise(1e6 * scores).amax(-1), torch.ones(5, dtype=torch.float64))


def test_from_soft_to_sparse():
    """Entmax stands between the two: fewer keys than softmax, more than sparsemax."""
    scores = torch.randn(200, 30)
    seen = [(f(scores) > 0.0).sum().item() for f in (softmax, entmax15, sparsemax)]
    assert seen[0] == 200 * 30
    assert seen[0] > seen[1] > seen[2] > 200


@both
def test_minus_infinity_is_deletion(normalise, alpha):
    scores = torch.randn(5, 8, dtype=torch.float64)
    hidden = scores.clone()
    hidden[:, [1, 4]] = -torch.inf
    hidden.requires_grad_()
    weights = normalise(hidden)
    kept = [0, 2, 3, 5, 6, 7]
    assert torch.allclose(weights[:, kept], normalise(scores[:, kept]), atol=1e-14)
    assert not weights[:, [1, 4]].any()
    weights.square().sum().backward()
    assert hidden.grad.isfinite().all()


@both
def test_safe_under_masks(normalise, alpha):
    """Empty rows are zero with finite gradients, and garbage behind the mask is not seen."""
    q, k, v = (torch.randn(2, n, 3, dtype=torch.float64) for n in (4, 5, 5))
    pooling = AttentionPooling(DotProductScore(), normalise=normalise)
    mask = torch.rand(2, 4, 5) < 0.6
    mask[:, :, 2], mask[0, 0] = False, False
    dirty_k, dirty_v = k.clone(), v.clone()
    dirty_k[:, 2], dirty_v[:, 2] = torch.nan, torch.inf
    grads = []
    for keys, values in ((k, v), (dirty_k, dirty_v)):
        leaves = [t.clone().requires_grad_() for t in (q, keys, values)]
        output = pooling(*leaves, attn_mask=mask)
        assert not output[0, 0].any()
        output.square().sum().backward()
        grads.append([output.detach(), *(leaf.grad for leaf in leaves)])
    for clean, dirty in zip(*grads, strict=True):
        assert clean.isfinite().all()
        assert torch.equal(clean, dirty)


@both
@pytest.mark.parametrize("garbage", [torch.nan, torch.inf])
def test_what_softmax_cannot_tell_they_do_not_either(normalise, alpha, garbage):
    scores = torch.zeros(2, 3)
    scores[0, 1] = garbage
    assert torch.equal(normalise(scores).isnan(), softmax(scores).isnan())
    assert normalise(torch.zeros(2, 0)).shape == (2, 0)


@both
def test_half_precision(normalise, alpha):
    scores = (torch.randn(20, 30) * 2.0).half()
    weights = normalise(scores)
    assert weights.dtype == torch.float16
    assert torch.equal(weights, normalise(scores.float()).half())
