"""masked_softmax: lengths, masks of both kinds, rows that may not attend to any key, garbage, half precision."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.nn import from_key_padding_mask, masked_softmax
from support.modules import masks

SCORES = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def by_deletion(scores, may_attend):
    """Row by row, softmax of what is left when the masked scores are deleted."""
    out = torch.zeros_like(scores)
    for place in torch.cartesian_prod(*(torch.arange(n) for n in scores.shape[:-1])):
        kept = may_attend[tuple(place)]
        if kept.any():
            out[tuple(place)][kept] = scores[tuple(place)][kept].exp() / scores[tuple(place)][kept].exp().sum()
    return out


def test_one_length_for_a_batch_entry():
    weights = masked_softmax(SCORES, torch.tensor([2, 4]))
    may = torch.arange(5) < torch.tensor([2, 4])[:, None, None]
    assert torch.allclose(weights, by_deletion(SCORES, may.expand_as(SCORES)), rtol=1e-14)
    assert torch.equal(weights, masked_softmax(SCORES, [2, 4]))


def test_one_length_for_a_query():
    lengths = torch.tensor([[1, 3, 5], [0, 4, 2]])
    weights = masked_softmax(SCORES, lengths)
    assert torch.allclose(weights, by_deletion(SCORES, torch.arange(5) < lengths[..., None]), rtol=1e-14)


@pytest.mark.parametrize("shape", [(2, 3, 5), (3, 5), (2, 1, 5), (1, 5), (5,), (1, 3, 1)])
def test_boolean_masks_broadcast(shape):
    mask = torch.rand(shape) < 0.6
    assert torch.allclose(
        masked_softmax(SCORES, attn_mask=mask), by_deletion(SCORES, mask.expand_as(SCORES)), rtol=1e-14
    )


def test_additive_masks_are_added():
    bias = torch.randn(3, 5, dtype=torch.float64)
    assert torch.allclose(masked_softmax(SCORES, attn_mask=bias), torch.softmax(SCORES + bias, -1), rtol=1e-14)
    bias[1, 2] = -torch.inf
    weights = masked_softmax(SCORES, attn_mask=bias)
    assert torch.allclose(weights, torch.softmax(SCORES + bias, -1), rtol=1e-14)
    assert not weights[:, 1, 2].any()


@pytest.mark.parametrize("mask", [torch.rand(2, 3, 5) < 0.6, torch.zeros(3, 5, dtype=torch.float64)])
def test_lengths_and_masks_must_both_allow(mask):
    within = (torch.arange(5) < 3).expand_as(SCORES)
    may = within & (mask if mask.dtype == torch.bool else mask > -torch.inf)
    assert torch.allclose(
        masked_softmax(SCORES, torch.tensor([3, 3]), attn_mask=mask), by_deletion(SCORES, may), rtol=1e-14
    )


@pytest.mark.parametrize("option", ["boolean", "additive"])
def test_as_scaled_dot_product_attention_has_it(option):
    """The convention is that of torch's function: the same mask gives the same answer, empty rows included."""
    mask = masks(3, 5)[option]["attn_mask"]
    q, k, v = (torch.randn(2, n, 4, dtype=torch.float64) for n in (3, 5, 5))
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    weights = masked_softmax(q @ k.transpose(1, 2) / 2.0, attn_mask=mask)
    assert torch.allclose(weights @ v, expected, rtol=1e-12, atol=1e-14)


def test_the_inverted_convention_of_multihead_attention():
    padding = torch.tensor([[False, False, True, True, False], [False, True, True, True, True]])
    attention = nn.MultiheadAttention(4, 1, bias=False, batch_first=True, dtype=torch.float64)
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    expected = attention(x, x, x, key_padding_mask=padding)[1]
    q, k, _ = F.linear(x, attention.in_proj_weight).chunk(3, dim=-1)
    scores = q @ k.transpose(1, 2) / 2.0
    assert torch.allclose(masked_softmax(scores, attn_mask=from_key_padding_mask(padding)), expected, rtol=1e-12)
    assert not torch.allclose(masked_softmax(scores, attn_mask=padding.unsqueeze(1)), expected)
    floats = torch.zeros(2, 5).masked_fill(padding, -torch.inf)
    assert torch.allclose(masked_softmax(scores, attn_mask=from_key_padding_mask(floats)), expected, rtol=1e-12)


@pytest.mark.parametrize("options", masks(3, 5).values(), ids=masks(3, 5))
def test_gradients(options):
    scores = SCORES.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: masked_softmax(s, **options), scores)
    assert torch.autograd.gradgradcheck(lambda s: masked_softmax(s, **options), scores)


def test_gradients_of_an_additive_mask():
    bias = torch.randn(3, 5, dtype=torch.float64)
    bias[0, 1], bias[2] = -torch.inf, -torch.inf
    finite = bias.masked_fill(bias == -torch.inf, 0.0).requires_grad_()
    open_ = bias > -torch.inf
    assert torch.autograd.gradcheck(
        lambda b: masked_softmax(SCORES, attn_mask=torch.where(open_, b, -torch.inf)), finite
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_47_a_fully_masked_row_is_zeros_with_finite_gradients(dtype):
    for options in (
        {"valid_lens": torch.tensor([0, 2])},
        {"attn_mask": torch.zeros(2, 3, 5, dtype=torch.bool)},
        {"attn_mask": torch.full((5,), -torch.inf)},
    ):
        scores = SCORES.to(dtype, copy=True).requires_grad_()
        weights = masked_softmax(scores, **options)
        assert not weights[0].any()
        weights.square().sum().backward()
        assert scores.grad.isfinite().all()
        assert not scores.grad[0].any()


def test_a_row_of_scores_of_minus_infinity_is_empty_too():
    scores = SCORES.clone()
    scores[0, 1] = -torch.inf
    scores.requires_grad_()
    weights = masked_softmax(scores)
    assert not weights[0, 1].any()
    weights.square().sum().backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, -torch.inf])
def test_48_garbage_at_masked_pairs_has_no_effect(garbage):
    mask = torch.tensor([True, False, True, True, False])
    clean = SCORES.clone().requires_grad_()
    dirty = SCORES.masked_fill(~mask, garbage).requires_grad_()
    for scores in (clean, dirty):
        masked_softmax(scores, attn_mask=mask).square().sum().backward()
    assert torch.equal(masked_softmax(clean, attn_mask=mask), masked_softmax(dirty, attn_mask=mask))
    assert torch.equal(clean.grad, dirty.grad)
    assert masked_softmax(SCORES.masked_fill(~mask, torch.nan)).isnan().all(), "without a mask it is seen"


def test_49_a_masked_key_wins_nothing_however_low_the_others():
    scores = torch.tensor([[[-3e6, -3e6, 0.0]]])
    weights = masked_softmax(scores, torch.tensor([2]))
    assert weights.tolist() == [[[0.5, 0.5, 0.0]]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_49_a_finite_mask_is_obeyed_however_low(dtype):
    low = torch.finfo(dtype).min
    mask = torch.tensor([[low, 0.1 * low], [0.0, low], [low, low]], dtype=dtype)
    weights = masked_softmax(torch.full((3, 2), -1e4, dtype=dtype), attn_mask=mask)
    assert weights.tolist() == [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.complex64])
def test_50_a_mask_that_is_neither_boolean_nor_float_is_an_error(dtype):
    with pytest.raises(TypeError, match=r"True = may attend.*nn\.MultiheadAttention inverts the meaning"):
        masked_softmax(SCORES, attn_mask=torch.ones(3, 5, dtype=dtype))
    with pytest.raises(TypeError, match="True = ignore"):
        from_key_padding_mask(torch.ones(3, 5, dtype=dtype))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"valid_lens": torch.tensor([2, -1])}, ValueError, "valid_lens must lie between 0 and the 5 keys, got -1"),
        ({"valid_lens": torch.tensor([6, 1])}, ValueError, "valid_lens must lie between 0 and the 5 keys, got 6"),
        ({"valid_lens": torch.tensor([2.0, 1.0])}, TypeError, "valid_lens must be integers, got dtype torch.float32"),
        ({"valid_lens": torch.tensor([True, True])}, TypeError, "valid_lens must be integers"),
        ({"valid_lens": torch.tensor([1, 2, 3])}, ValueError, r"shape \(2,\) of the batch or \(2, 3\) of the queries"),
        ({"valid_lens": torch.tensor(2)}, ValueError, r"got \(\)"),
        ({"valid_lens": torch.ones(2, 2, dtype=torch.long)}, ValueError, r"got \(2, 2\)"),
        ({"attn_mask": torch.ones(2, 5, dtype=torch.bool)}, ValueError, r"broadcast to .* = \(2, 3, 5\), got \(2, 5\)"),
        ({"attn_mask": torch.ones(1, 2, 3, 5)}, ValueError, "attn_mask must broadcast"),
        ({"attn_mask": torch.full((3, 5), torch.nan)}, ValueError, "neither NaN nor"),
        ({"attn_mask": torch.full((3, 5), torch.inf)}, ValueError, "neither NaN nor"),
        ({"attn_mask": [[True] * 5] * 3}, TypeError, "attn_mask must be a tensor, got list"),
    ],
)
def test_what_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        masked_softmax(SCORES, **options)


def test_51_and_52_nothing_to_attend_to():
    assert masked_softmax(torch.zeros(2, 3, 0)).shape == (2, 3, 0)
    assert masked_softmax(torch.zeros(0, 3, 5), torch.zeros(0, dtype=torch.long)).shape == (0, 3, 5)
    assert not masked_softmax(torch.zeros(2, 3, 5), torch.tensor([0, 0])).any()


def test_53_half_precision_is_computed_wide():
    """Scores near the end of half precision plus a mask would overflow; in float32 they do not."""
    scores = torch.tensor([[[60000.0, 60000.0, -60000.0]]], dtype=torch.float16)
    mask = torch.tensor([30000.0, 30000.0, 0.0], dtype=torch.float16)
    weights = masked_softmax(scores, attn_mask=mask)
    assert weights.dtype == torch.float16
    assert weights.tolist() == [[[0.5, 0.5, 0.0]]]


def test_inputs_are_not_written_to():
    scores, mask = SCORES.clone(), torch.rand(3, 5) < 0.5
    before = mask.clone()
    masked_softmax(scores, torch.tensor([2, 3]), attn_mask=mask)
    assert torch.equal(scores, SCORES)
    assert torch.equal(mask, before)
