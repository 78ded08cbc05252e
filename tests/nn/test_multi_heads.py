"""multi_head: equal to nn.MultiheadAttention, a mask for every head, garbage kept from the projections."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from regard.nn import (
    AdditiveScore,
    AttentionPooling,
    DotProductScore,
    GaussianScore,
    HardAttention,
    from_key_padding_mask,
    multi_head,
)
from support.modules import checked_twice, with_parameters


def wide(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def twins(size=6, heads=3, key_size=None, value_size=None):
    """Ours and torch's, with the same parameters."""
    ours = multi_head(AttentionPooling(DotProductScore()), heads, size, key_size, value_size).double()
    torchs = nn.MultiheadAttention(
        size, heads, bias=False, kdim=key_size, vdim=value_size, batch_first=True, dtype=torch.float64
    )
    with torch.no_grad():
        if torchs.in_proj_weight is None:
            parts = (torchs.q_proj_weight, torchs.k_proj_weight, torchs.v_proj_weight)
        else:
            parts = torchs.in_proj_weight.chunk(3)
        for part, layer in zip(parts, (ours.W_q, ours.W_k, ours.W_v), strict=True):
            layer.weight.copy_(part)
        ours.W_o.weight.copy_(torchs.out_proj.weight)
    return ours, torchs


@pytest.mark.parametrize(("key_size", "value_size"), [(None, None), (4, 5)])
def test_equal_to_torchs(key_size, value_size):
    ours, torchs = twins(key_size=key_size, value_size=value_size)
    q, k, v = wide(2, 3, 6), wide(2, 5, key_size or 6), wide(2, 5, value_size or 6)
    padding = torch.tensor([[False] * 3 + [True] * 2, [False] * 4 + [True]])
    for option, theirs in (
        ({}, {}),
        ({"attn_mask": from_key_padding_mask(padding)}, {"key_padding_mask": padding}),
        ({"valid_lens": torch.tensor([3, 4])}, {"key_padding_mask": padding}),
    ):
        output, weights = ours(q, k, v, need_weights=True, **option)
        expected = torchs(q, k, v, average_attn_weights=False, **theirs)
        assert torch.allclose(output, expected[0], rtol=1e-12, atol=1e-14)
        assert torch.allclose(weights, expected[1], rtol=1e-12, atol=1e-14)
        assert torch.allclose(ours(q, k, v, **option), output, rtol=1e-12, atol=1e-14)


def test_lengths_of_queries_and_masks_of_heads():
    ours, torchs = twins()
    q, k = wide(2, 3, 6), wide(2, 5, 6)
    lengths = torch.tensor([[1, 2, 3], [4, 5, 1]])
    may = torch.arange(5) < lengths[..., None]
    expected = ours(q, k, k, attn_mask=may)
    assert torch.equal(ours(q, k, k, lengths), expected)
    assert torch.equal(ours(q, k, k, attn_mask=may.unsqueeze(1).expand(2, 3, 3, 5)), expected)
    slopes = -torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)[:, None, None] * (torch.arange(5) - 2).abs()
    short = ours(q, k, k, lengths, attn_mask=torch.zeros(2, 3, 3, 5, dtype=torch.float64))
    assert torch.allclose(short, expected, rtol=1e-12), "lengths and a mask of heads must both allow"
    biased = ours(q, k, k, attn_mask=slopes.expand(2, 3, 3, 5), need_weights=True)
    theirs = torchs(q, k, k, attn_mask=slopes.expand(2, 3, 3, 5).flatten(0, 1), average_attn_weights=False)
    assert torch.allclose(biased.weights, theirs[1], rtol=1e-12)
    assert torch.allclose(biased.output, theirs[0], rtol=1e-12)


@pytest.mark.parametrize("score", [GaussianScore(), AdditiveScore(2, 2, 4)], ids=lambda score: type(score).__name__)
def test_gradients(score):
    module = multi_head(AttentionPooling(copy.deepcopy(score)), 2, 3, 2, 3, hidden_size=4).double()
    call, leaves = with_parameters(module, wide(2, 2, 3), wide(2, 3, 2), wide(2, 3, 3))
    checked_twice(call, leaves, {"valid_lens": torch.tensor([2, 3])})


def test_48_garbage_behind_a_mask_does_not_reach_the_projections():
    ours, _ = twins()
    q, k = wide(2, 3, 6), wide(2, 5, 6)
    dirty = k.clone()
    dirty[0, 3:], dirty[1, 4] = torch.nan, torch.inf
    grads = []
    for keys in (k, dirty):
        ours.zero_grad()
        leaf = q.clone().requires_grad_()
        output = ours(leaf, keys, keys, torch.tensor([3, 4]))
        output.square().sum().backward()
        grads.append([output.detach(), leaf.grad, *(p.grad for p in ours.parameters())])
    for clean, other in zip(*grads, strict=True):
        assert clean.isfinite().all()
        assert torch.equal(clean, other)
    output, weights = ours(q, dirty, dirty, torch.tensor([4, 4]), need_weights=True)
    assert output[0].isnan().all(), "queries that may attend to it have NaN"
    assert weights[0, ..., :4].isnan().all()
    assert not weights[..., 4].any()
    assert output[1].isfinite().all()


def test_bias_and_dtype_are_torchs():
    ours = multi_head(AttentionPooling(DotProductScore()), 3, 6, bias=True, dtype=torch.float64)
    torchs = nn.MultiheadAttention(6, 3, bias=True, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        torchs.in_proj_bias.normal_()
        torchs.out_proj.bias.normal_()
        layers = (ours.W_q, ours.W_k, ours.W_v)
        for weight, bias, layer in zip(
            torchs.in_proj_weight.chunk(3), torchs.in_proj_bias.chunk(3), layers, strict=True
        ):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
        ours.W_o.load_state_dict(torchs.out_proj.state_dict())
    q, k = wide(2, 3, 6), wide(2, 5, 6)
    assert torch.allclose(ours(q, k, k), torchs(q, k, k)[0], rtol=1e-12)
    causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    expected = torchs(k, k, k, attn_mask=causal, is_causal=True)[0]
    assert torch.allclose(ours(k, k, k, is_causal=True), expected, rtol=1e-12)


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (3, 5), (5, 3)])
def test_causal_is_sdpas(queries, keys):
    """Also with fewer queries than keys: query i attends to keys 0 … i."""
    ours, _ = twins()
    q, k, v = wide(2, queries, 6), wide(2, keys, 6), wide(2, keys, 6)
    heads = [x.unflatten(2, (3, 2)).transpose(1, 2) for x in (ours.W_q(q), ours.W_k(k), ours.W_v(v))]
    pooled = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
    expected = ours.W_o(pooled.transpose(1, 2).flatten(2))
    output, weights = ours(q, k, v, is_causal=True, need_weights=True)
    assert torch.allclose(output, expected, rtol=1e-12)
    assert not weights.triu(1).any()
    later = k.clone()
    later[:, min(queries, keys) - 1] += 1.0
    assert torch.equal(
        ours(q, later, v, is_causal=True)[:, : min(queries, keys) - 1], output[:, : min(queries, keys) - 1]
    )


def test_causal_lengths_and_masks_must_all_allow():
    ours, _ = twins()
    x, lengths = wide(2, 4, 6), torch.tensor([3, 4])
    may = torch.rand(2, 3, 4, 4) < 0.7
    everything = may & torch.ones(4, 4, dtype=torch.bool).tril() & (torch.arange(4) < lengths[:, None, None, None])
    expected = ours(x, x, x, attn_mask=everything)
    assert torch.allclose(ours(x, x, x, lengths, attn_mask=may, is_causal=True), expected, rtol=1e-12)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("options", ["none", "lengths", "heads", "causal"])
def test_grouped_queries_are_repeated_keys(kv_heads, options):
    grouped = multi_head(AttentionPooling(DotProductScore()), 4, 8, kv_heads=kv_heads, bias=True, dtype=torch.float64)
    full = multi_head(AttentionPooling(DotProductScore()), 4, 8, bias=True, dtype=torch.float64)
    state = grouped.state_dict()
    for name in ("W_k", "W_v"):
        for part in ("weight", "bias"):
            heads = state[f"{name}.{part}"].unflatten(0, (kv_heads, -1))
            state[f"{name}.{part}"] = heads.repeat_interleave(4 // kv_heads, 0).flatten(0, 1)
    full.load_state_dict(state)
    q, k = wide(2, 3, 8), wide(2, 5, 8)
    given = {
        "none": {},
        "lengths": {"valid_lens": torch.tensor([3, 5])},
        "heads": {"attn_mask": torch.rand(2, 4, 3, 5) < 0.6},
        "causal": {"is_causal": True},
    }[options]
    output, weights = grouped(q, k, k, need_weights=True, **given)
    expected = full(q, k, k, need_weights=True, **given)
    assert weights.shape == (2, 4, 3, 5)
    assert torch.allclose(output, expected.output, rtol=1e-12)
    assert torch.allclose(weights, expected.weights, rtol=1e-12)
    assert torch.allclose(grouped(q, k, k, **given), output, rtol=1e-12)
    heads = [x.unflatten(2, (-1, 2)).transpose(1, 2) for x in (grouped.W_q(q), grouped.W_k(k), grouped.W_v(k))]
    if options == "none":
        pooled = nn.functional.scaled_dot_product_attention(*heads, enable_gqa=True)
        assert torch.allclose(output, grouped.W_o(pooled.transpose(1, 2).flatten(2)), rtol=1e-12)


def test_gradients_of_grouped_queries():
    module = multi_head(AttentionPooling(GaussianScore()), 4, 4, 3, 2, kv_heads=2, bias=True).double()
    call, leaves = with_parameters(module, wide(2, 3, 4), wide(2, 3, 3), wide(2, 3, 2))
    checked_twice(call, leaves, {"valid_lens": torch.tensor([2, 3]), "is_causal": True})


@pytest.mark.parametrize("kv_heads", [1, 3])
def test_unbatched_is_a_batch_of_one(kv_heads):
    ours = multi_head(AttentionPooling(DotProductScore()), 3, 6, kv_heads=kv_heads, dtype=torch.float64)
    q, k = wide(3, 6), wide(5, 6)
    heads = torch.rand(3, 3, 5) < 0.6
    for alone, batched in (
        ({}, {}),
        ({"valid_lens": 3}, {"valid_lens": torch.tensor([3])}),
        ({"valid_lens": torch.tensor([1, 2, 3])}, {"valid_lens": torch.tensor([[1, 2, 3]])}),
        ({"attn_mask": heads[0]}, {"attn_mask": heads[:1]}),
        ({"attn_mask": heads}, {"attn_mask": heads[None]}),
        ({"is_causal": True}, {"is_causal": True}),
    ):
        output, weights = ours(q, k, k, need_weights=True, **alone)
        expected = ours(q[None], k[None], k[None], need_weights=True, **batched)
        assert torch.equal(output, expected.output[0])
        assert torch.equal(weights, expected.weights[0])
        assert torch.equal(ours(q, k, k, **alone), ours(q[None], k[None], k[None], **batched)[0])
    with pytest.raises(ValueError, match="valid_lens must have the shape"):
        ours(q, k, k, torch.tensor([1, 2]))


def test_empty_rows_are_zeros():
    ours, _ = twins()
    q, k = wide(2, 3, 6).requires_grad_(), wide(2, 5, 6)
    output = ours(q, k, k, torch.tensor([0, 5]))
    assert not output[0].any()
    output.sum().backward()
    assert not q.grad[0].any()
    assert q.grad.isfinite().all()


def test_state_and_words():
    ours, _ = twins()
    assert sorted(ours.state_dict()) == ["W_k.weight", "W_o.weight", "W_q.weight", "W_v.weight"]
    x = wide(1, 4, 6)
    assert torch.equal(copy.deepcopy(ours)(x, x, x), ours(x, x, x))
    assert "heads=3" in repr(ours)
    with pytest.raises(ValueError, match="hidden_size must be a multiple of heads, got 6 and 4"):
        multi_head(AttentionPooling(DotProductScore()), 4, 6)
    with pytest.raises(ValueError, match="heads must be a whole number"):
        multi_head(AttentionPooling(DotProductScore()), 0, 6)
    with pytest.raises(TypeError, match="pooling must be an AttentionPooling, got HardAttention"):
        multi_head(HardAttention(DotProductScore()), 2, 6)
    with pytest.raises(
        ValueError, match=r"valid_lens must have the shape \(1,\) of the batch or \(1, 4\) of the queries"
    ):
        ours(x, x, x, torch.tensor([1, 2, 3]))
    with pytest.raises(ValueError, match=r"attn_mask must broadcast to .* = \(1, 3, 4, 4\)"):
        ours(x, x, x, attn_mask=torch.ones(1, 2, 4, 4))
    with pytest.raises(
        ValueError, match=r"queries must have shape \(batch, queries, features\) or .* got \(1, 1, 4, 6\)"
    ):
        ours(x[None], x[None], x[None])
    with pytest.raises(ValueError, match="heads must be a multiple of kv_heads, got 4 and 3"):
        multi_head(AttentionPooling(DotProductScore()), 4, 8, kv_heads=3)
    with pytest.raises(ValueError, match="kv_heads must be a whole number of at least 1, got 0"):
        multi_head(AttentionPooling(DotProductScore()), 4, 8, kv_heads=0)
