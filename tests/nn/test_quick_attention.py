"""Attention without masks in few operations: as accurate as the general path, and what is not finite does not hide."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch.autograd import forward_ad

import regard.nn.attention_pooling as module
from regard.nn import AttentionPooling, BilinearScore, DotProductScore, GaussianScore, multi_head
from regard.nn.quick_attention import quick_attention
from regard.tensors.tensor_inputs import are_ordinary
from support.modules import SCORES, every_score, inputs

BAD = [torch.nan, torch.inf, -torch.inf]


@pytest.fixture
def quick(monkeypatch):
    """Whether each call was computed in few operations, in their order."""
    taken = []

    def noted(*args, **options):
        found = quick_attention(*args, **options)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(module, "quick_attention", noted)
    return taken


def graded(layer, tensors, weights, **options):
    """Output, or output and weights, and all gradients."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    found = layer(*leaves, need_weights=weights, **options)
    parts = list(found) if weights else [found]
    total = sum((part * torch.arange(1.0, 1.0 + part.shape[-1]).to(part)).sum() for part in parts)
    gradients = torch.autograd.grad(total, [*leaves, *layer.parameters()], materialize_grads=True)
    return [*(part.detach() for part in parts), *gradients]


def everyone(q, k):
    """A mask that allows all pairs: the general path."""
    return {"attn_mask": torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)}


@every_score
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("sizes", [(3, 5, 3, 2), (40, 30, 8, 8), (1, 1, 1, 1)])
def test_as_accurate_as_the_general_path(name, weights, sizes, quick):
    queries, keys, d, columns = sizes
    # Keys near each other: products are accurate for any w.
    layer, given = AttentionPooling(SCORES[name](d)), [0.4 * part for part in inputs(2, queries, keys, d, columns)]
    exact = graded(layer, given, weights, **everyone(*given[:2]))
    for one, other in zip(graded(layer, given, weights), exact, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)
    layer, narrow = layer.float(), [t.float() for t in given]
    found = graded(layer, narrow, weights)
    assert quick == [True, True]
    for one, naive, true in zip(found, graded(layer, narrow, weights, **everyone(*given[:2])), exact, strict=True):
        assert one.dtype == torch.float32
        errors = [float((part.double() - true).abs().max()) for part in (one, naive)]
        assert errors[0] <= 2.0 * errors[1] + 4e-6 * float(true.abs().max())


@every_score
@pytest.mark.parametrize("weights", [False, True])
def test_what_is_not_finite_does_not_hide(name, weights, quick):
    """Positive queries give a key of −inf a score of −inf, and so a weight of 0."""
    layer = AttentionPooling(SCORES[name](2))
    for place, bad, keys in product(range(3), BAD, (1, 4)):
        given = [part.abs() + 0.1 for part in inputs(2, 3, keys, 2, 2)]
        given[place][0, 0, 1] = bad
        expected = graded(layer, given, weights, **everyone(*given[:2]))
        for one, other in zip(graded(layer, given, weights), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12, equal_nan=True)
        affected = expected[0][0, 0] if place == 0 else expected[0][0]
        assert affected[..., 1].isnan().all()
    assert quick
    assert not any(quick)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("weights", [False, True])
def test_heads_and_what_is_not_finite(place, bad, weights):
    layer = multi_head(AttentionPooling(DotProductScore()), heads=2, query_size=4).double()
    given = inputs(2, 3, 5, 4, 4)
    given[place][0, 1, 2] = bad
    expected = graded(layer, given, weights, **everyone(*given[:2]))
    for one, other in zip(graded(layer, given, weights), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12, equal_nan=True)
    assert expected[0][0].isnan().any()
    assert expected[0][1].isfinite().all()


@pytest.mark.parametrize(("w", "at"), [(1e30, 0.0), (1.0, 1e20), (1e200, 0.0), (0.0, 0.0), (100.0, 5.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_limits_of_w_and_far_queries(w, at, dtype):
    if w > 1e38 and dtype is torch.float32:
        w = 1e38
    layer = AttentionPooling(GaussianScore(w, dtype=dtype))
    q, k, v = (torch.tensor(part, dtype=dtype)[None] for part in ([[at + 0.9]], [[-1.0], [1.0]], [[2.0], [4.0]]))
    output = layer(q, k, v)
    torch.testing.assert_close(output, layer(q, k, v, **everyone(q, k)))
    expected = 3.0 if w == 0.0 else 4.0
    torch.testing.assert_close(output.item(), expected)


@pytest.mark.parametrize("score", [DotProductScore(), BilinearScore(6, 6)], ids=type)
@pytest.mark.parametrize("rows", [5, 300])
def test_features_that_do_not_lie_next_to_each_other(score, rows):
    """torch's own attention would read others instead."""
    q, k, v = (torch.randn(2, 6, rows).mT for _ in range(3))
    layer, heads = AttentionPooling(score), multi_head(AttentionPooling(DotProductScore()), 2, 6)
    for one in (layer, heads):
        found = graded(one, (q, k, v), False)
        expected = graded(one, [part.contiguous() for part in (q, k, v)], False)
        for part, other in zip(found, expected, strict=True):
            torch.testing.assert_close(part, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [(3,), (2, 3), (2, 1, 3)])
@every_score
def test_batches_of_any_shape(name, batch, quick):
    layer = AttentionPooling(SCORES[name](4))
    given = [part.reshape(*batch, *part.shape[1:]) for part in inputs(torch.Size(batch).numel(), 5, 6, 4, 4)]
    found = layer(*given, need_weights=True)
    flat = [part.flatten(0, -3) for part in given]
    torch.testing.assert_close(found.weights.flatten(0, -3), layer(*flat, need_weights=True).weights)
    torch.testing.assert_close(found.output.flatten(0, -3), layer(*flat))
    torch.testing.assert_close(found.output, layer(*given))
    assert all(quick)


@every_score
def test_dropout(name, quick):
    given, pooling = inputs(2, 20, 30), AttentionPooling(SCORES[name](3), dropout=0.5).train()
    found = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        found.append(pooling(*given, need_weights=True))
    assert found[0].output.equal(found[1].output)
    assert not found[0].output.equal(found[2].output)
    assert found[0].weights.equal(found[2].weights), "they are from before dropout"
    numbers = torch.eye(30, dtype=torch.float64).expand(2, -1, -1)
    dropped = pooling(*given[:2], numbers)
    ratio = dropped / found[0].weights
    assert ((ratio == 0.0) | (ratio - 2.0).abs().lt(1e-12)).all()
    assert 0.4 < float((ratio == 0.0).double().mean()) < 0.6
    pooling.eval().dropout.train()
    assert not pooling(*given).equal(pooling(*given)), "dropout alone is in training mode"
    assert pooling.eval()(*given).equal(pooling(*given))
    assert all(quick)


def test_what_is_not_ordinary():
    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 4)
    assert are_ordinary(q, k, v)
    assert are_ordinary(torch.nn.Parameter(q), k, v)
    for other in (
        (q.half(), k.half(), v.half()),
        (q.double(), k, v),
        (q[:1], k, v),
        (q, k[:, :4], v),
        (q[0], k[0], v[0]),
        (q[:, :0], k, v),
        (q, k[:, :0], v[:, :0]),
        (q.to("meta"), k.to("meta"), v.to("meta")),
    ):
        assert not are_ordinary(*other)
    with torch.autocast("cpu", torch.bfloat16):
        assert not are_ordinary(q, k, v)
        assert AttentionPooling(DotProductScore())(q, k, v).dtype == torch.float32
    seen = []
    torch.vmap(lambda *rows: seen.append(are_ordinary(*rows)) or rows[0].sum())(q[None], k[None], v[None])
    assert seen == [False]


def test_parameters_of_another_dtype():
    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 4)
    for name in SCORES:
        layer = AttentionPooling(SCORES[name](4))
        assert layer(q, k, v).dtype == torch.float32
        torch.testing.assert_close(layer(q, k, v).double(), layer.double()(q.double(), k.double(), v.double()))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_derivatives_in_forward_mode():
    layer = multi_head(AttentionPooling(DotProductScore()), heads=2, query_size=4).double()
    q, k, v = inputs(1, 3, 5, 4, 4)
    direction, step = torch.randn_like(q), 1e-6
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(layer(forward_ad.make_dual(q, direction), k, v)).tangent
    expected = (layer(q + step * direction, k, v) - layer(q - step * direction, k, v)) / (2.0 * step)
    torch.testing.assert_close(tangent, expected, rtol=1e-6, atol=1e-8)


def test_second_derivatives_of_heads():
    layer = multi_head(AttentionPooling(DotProductScore()), heads=2, query_size=4).double()
    leaves = [part.requires_grad_() for part in inputs(1, 2, 3, 4, 4)]
    assert torch.autograd.gradgradcheck(layer, leaves)
