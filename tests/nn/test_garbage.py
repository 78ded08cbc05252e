"""What NaN and infinity do: behind a mask nothing, forward and backward; in view they are in the output."""

from __future__ import annotations

import pytest
import torch

from regard.nn import AttentionPooling, DotProductScore, GaussianScore
from support.modules import SCORES, every_score, inputs


def graded(pooling, q, k, v, rows=slice(None), **options):
    """Output and gradients of a loss over some rows, parameters included."""
    pooling.zero_grad()
    leaves = [t.detach().clone().requires_grad_() for t in (q, k, v)]
    output = pooling(*leaves, **options)
    output[:, rows].square().sum().backward()
    return [output.detach()[:, rows], *(t.grad for t in leaves), *(p.grad for p in pooling.parameters())]


@every_score
@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, -torch.inf])
def test_48_garbage_behind_a_mask_never_leaks(name, garbage):
    q, k, v = inputs()
    dirty_k, dirty_v = k.clone(), v.clone()
    dirty_k[0, 3:], dirty_v[0, 3:], dirty_k[1, 4], dirty_v[1, 4, 0] = garbage, garbage, garbage, garbage
    pooling = AttentionPooling(SCORES[name](3))
    lengths = torch.tensor([3, 4])
    clean, dirty = (graded(pooling, q, *kv, valid_lens=lengths) for kv in ((k, v), (dirty_k, dirty_v)))
    for one, other in zip(clean, dirty, strict=True):
        assert one.isfinite().all()
        assert torch.equal(one, other)


@every_score
def test_48_the_past_does_not_see_a_broken_future(name):
    """A causal mask hides key 3 from the first three queries only: they and their gradients stay clean."""
    q, k, v = inputs(queries=5, keys=5)
    dirty_k, dirty_v = k.clone(), v.clone()
    dirty_k[:, 3, 1], dirty_v[:, 3, 0] = torch.nan, torch.inf
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    pooling = AttentionPooling(SCORES[name](3))
    clean, dirty = (graded(pooling, q, *kv, rows=slice(3), attn_mask=causal) for kv in ((k, v), (dirty_k, dirty_v)))
    for one, other in zip(clean, dirty, strict=True):
        assert one.isfinite().all()
        assert torch.equal(one, other)
    output, weights = pooling(q, dirty_k, dirty_v, attn_mask=causal, need_weights=True)
    assert output[:, 3:].isnan().all(), "queries that may attend to it have NaN"
    assert weights[:, 3:].isnan()[..., causal[3:]].all()
    assert weights[:, :3].isfinite().all()
    assert not weights.masked_select(~causal).any(), "masked weights are zero all the same"


def test_a_query_with_nan_is_its_own_trouble():
    q, k, v = inputs()
    dirty = q.clone()
    dirty[0, 1] = torch.nan
    mask = torch.ones(2, 3, 5, dtype=torch.bool)
    pooling = AttentionPooling(DotProductScore())
    output = pooling(dirty, k, v, attn_mask=mask)
    assert output[0, 1].isnan().all()
    assert output.isfinite().sum() == output.numel() - 2
    mask[0, 1] = False  # padding: it attends to nothing, and changes nothing
    for clean, other in zip(*(graded(pooling, x, k, v, attn_mask=mask) for x in (q, dirty)), strict=True):
        assert torch.equal(clean, other)


@pytest.mark.parametrize("garbage", [torch.nan, torch.inf])
def test_garbage_in_view_is_in_the_output_with_or_without_a_mask(garbage):
    q, k, v = inputs(columns=2)
    v[0, 2, 1] = garbage
    pooling = AttentionPooling(GaussianScore(dtype=torch.float64))
    for options in ({}, {"attn_mask": torch.ones(3, 5, dtype=torch.bool)}, {"valid_lens": torch.tensor([5, 5])}):
        output, weights = pooling(q, k, v, need_weights=True, **options)
        assert output[0, :, 1].isnan().all(), "the column that holds it"
        assert output[0, :, 0].isfinite().all()
        assert output[1].isfinite().all()
        assert weights.isfinite().all(), "a value does not touch the weights"
    leaf = v.clone().requires_grad_()
    (pooling(q, k, leaf) - 1.0).square().sum().backward()
    assert leaf.grad[0, :, 1].isnan().any(), "a loss that looks at it has NaN gradients"
