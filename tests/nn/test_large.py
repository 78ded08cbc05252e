"""Large problems go through the fused programs: the same answers and gradients, whatever the score and the mask."""

from __future__ import annotations

import pytest
import torch

import regard.nn.attention_pooling
from regard.nn import AttentionPooling, DotProductScore, GaussianScore, multi_head, sparsemax
from regard.tensors import pool_inputs
from regard.tensors import tensor_planner as planner
from support.modules import SCORES, every_score, inputs, masks
from support.tensor_paths import take_blocks, take_engines

MASKS = masks(3, 5)


@pytest.fixture(params=["blocks", "engines"])
def calls(monkeypatch, request):
    """Every problem is large; the calls are counted."""
    seen = []

    def counted(*args, **options):
        seen.append(args[1])
        return pool_inputs(*args, **options)

    (take_blocks if request.param == "blocks" else take_engines)(monkeypatch)
    monkeypatch.setattr(regard.nn.attention_pooling, "pool_inputs", counted)
    return seen


def answered(layer, tensors, options):
    """Output and all gradients of one call."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    output = layer(*leaves, **options)
    parameters = list(layer.parameters())
    return [
        output,
        *torch.autograd.grad((output * torch.arange(1.0, 1.0 + output.shape[-1])).sum(), leaves + parameters),
    ]


@every_score
@pytest.mark.parametrize("option", MASKS)
def test_large_is_small(name, option, calls, monkeypatch):
    layer, given = AttentionPooling(SCORES[name](3)), inputs()
    large = answered(layer, given, MASKS[option])
    assert len(calls) == 1
    monkeypatch.setattr(planner, "layer_is_dense", lambda *args, **options: True)
    for one, other in zip(large, answered(layer, given, MASKS[option]), strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


def test_what_is_not_plain_softmax_stays(calls):
    given = inputs()
    AttentionPooling(GaussianScore())(*given, need_weights=True)
    AttentionPooling(GaussianScore(), normalise=sparsemax)(*given)
    AttentionPooling(lambda q, k: q @ k.transpose(-2, -1))(*given)
    learned = torch.zeros(3, 5, requires_grad=True)
    AttentionPooling(GaussianScore())(*given, attn_mask=learned).sum().backward()
    assert learned.grad is not None
    assert not calls
    AttentionPooling(GaussianScore(), dropout=0.5).eval()(*given)
    assert len(calls) == 1


def test_few_pairs_stay(monkeypatch):
    monkeypatch.setattr(regard.nn.attention_pooling, "pool_inputs", None)
    AttentionPooling(GaussianScore())(*inputs())
    with pytest.raises(TypeError):
        AttentionPooling(GaussianScore())(
            torch.ones(1, 1 << 12, 2), torch.ones(1, 1 << 12, 2), torch.ones(1, 1 << 12, 1)
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("score", [GaussianScore(0.5), DotProductScore()], ids=["gaussian", "dot"])
def test_narrow_dtypes(dtype, score, calls):
    given = [t.to(dtype) for t in inputs(queries=20, keys=30)]
    exact = AttentionPooling(score)(*(t.double() for t in given))
    output = AttentionPooling(score)(*given)
    assert output.dtype == dtype
    torch.testing.assert_close(output.double(), exact, rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps)


def test_heads_and_garbage(calls):
    layer, (q, k, v) = (
        multi_head(AttentionPooling(DotProductScore()), heads=2, query_size=4).double(),
        inputs(d=4, columns=4),
    )
    k[0, 4], v[0, 4] = torch.nan, torch.inf
    lengths = torch.tensor([4, 5])
    output = layer(q, k, v, lengths)
    assert len(calls) == 1
    assert output.isfinite().all()
    torch.testing.assert_close(output[:1], layer(q[:1], k[:1, :4], v[:1, :4]), rtol=1e-12, atol=1e-12)
    assert layer(q, k, v)[0].isnan().all()
