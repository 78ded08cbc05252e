"""Scores as layers: equal to regard.scores, of unit variance, additive in both forms; far queries; refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard import scores
from regard.nn import (
    AdditiveScore,
    AttentionPooling,
    BilinearScore,
    ConcatenatedScore,
    DotProductScore,
    GaussianScore,
    HardAttention,
)
from support.modules import inputs
from support.tensor_paths import take_blocks, take_engines

D = 3
W = np.random.default_rng(0).normal(size=(D, 2))


@pytest.mark.parametrize("w", [0.7, -1.3, 0.0, [0.5, 0.0, 2.0], W], ids=str)
def test_gaussian_is_the_kernel(w):
    q, k, _ = inputs(d=D)
    given = GaussianScore(torch.as_tensor(w, dtype=torch.float64))(q, k)
    for b in range(len(q)):
        expected = scores.Gaussian(w)(q[b].numpy(), k[b].numpy())
        assert np.allclose(given[b].detach(), expected, rtol=1e-13, atol=0.0)


def test_dot_product_and_additive_are_those_of_the_core():
    q, k, _ = inputs(d=D)
    additive = AdditiveScore(D, D, 6, dtype=torch.float64)
    weights = [layer.weight.detach().numpy() for layer in (additive.W_q, additive.W_k, additive.w_v)]
    for b in range(len(q)):
        pair = q[b].numpy(), k[b].numpy()
        assert np.allclose(DotProductScore()(q, k)[b], scores.DotProduct()(*pair), rtol=1e-13)
        expected = scores.Additive(weights[0], weights[1], weights[2][0])(*pair)
        assert np.allclose(additive(q, k)[b].detach(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("d", [1, 4, 64, 1024])
def test_the_variance_argument(d):
    """Features of unit variance give scores of unit variance whatever d."""
    n = 5000
    q, k = torch.randn(n, 1, d), torch.randn(n, 1, d)
    standard_error = ((2.0 + 6.0 / d) / n) ** 0.5  # of a variance: a sum of d products has kurtosis 3 + 6/d
    scores = DotProductScore()(q, k)
    assert abs(scores.var().item() - 1.0) < 4.0 * standard_error
    assert abs(scores.mean().item()) < 4.0 / n**0.5
    if d > 4:
        assert (q @ k.transpose(1, 2)).var().item() > 50.0, "unscaled it would grow with d"
        assert abs(BilinearScore(d, d)(q, k).detach().var().item() - 1.0) < 0.15, "so does the first W"


def test_bilinear_is_the_double_sum():
    q, k, _ = inputs(d=D)
    k = torch.cat([k, k[..., :1]], dim=-1)
    score = BilinearScore(D, D + 1, dtype=torch.float64)
    expected = torch.einsum("bqi,ij,bkj->bqk", q, score.W, k)
    assert torch.allclose(score(q, k), expected, rtol=1e-12)


def test_one_hidden_layer_over_query_and_key_side_by_side_is_additive():
    """W [q; k] = W_q q + W_k k: values and gradients agree."""
    q, k, _ = inputs(d=D)
    k = torch.cat([k, k[..., :2]], dim=-1)
    concatenated = ConcatenatedScore(D, D + 2, 6, dtype=torch.float64)
    additive = concatenated.as_additive()
    layers = torch.nn.Sequential(concatenated.W, torch.nn.Tanh(), concatenated.w_v)
    by_hand = layers(torch.cat([q[1, 2], k[1, 4]]))
    assert torch.allclose(concatenated(q, k)[1, 2, 4], by_hand[0], rtol=1e-12)
    assert torch.allclose(concatenated(q, k), additive(q, k), rtol=1e-12, atol=1e-14)
    for score in (concatenated, additive):
        score(q, k).square().sum().backward()
    parts = torch.cat([additive.W_q.weight.grad, additive.W_k.weight.grad], dim=1)
    assert torch.allclose(concatenated.W.weight.grad, parts, rtol=1e-11, atol=1e-13)
    assert torch.allclose(concatenated.w_v.weight.grad, additive.w_v.weight.grad, rtol=1e-11, atol=1e-13)
    assert all("bias" not in name for name in concatenated.state_dict() | additive.state_dict())


@pytest.mark.parametrize("distance", [1e4, 1e18, 1e25, 3e37])
def test_31_far_queries_stay_inside_the_values(distance):
    """In float32 squares overflow beyond 1e19; a score of −inf would say that the query may not attend."""
    q = torch.tensor([[[distance, 0.0]]], requires_grad=True)
    k, v = torch.randn(1, 6, 2), torch.arange(6.0).reshape(1, 6, 1)
    score = GaussianScore(2.0)
    output, weights = AttentionPooling(score)(q, k, v, need_weights=True)
    assert 0.0 <= output.item() <= 5.0
    assert abs(weights.sum().item() - 1.0) < 1e-6
    output.sum().backward()
    assert q.grad.isfinite().all()
    assert score.w.grad.isfinite()


WAYS = {"blocks": take_blocks, "engines": take_engines}
LIMITS = [
    (torch.float32, 1e20, 1.0, [0.0, 1.0]),
    (torch.float32, 0.3, 1e25, [0.0, 1.0]),
    (torch.float64, 1e20, 1.0, [0.0, 1.0]),
    (torch.float64, 1e60, 1.0, [0.0, 1.0]),
    (torch.float64, 0.3, 1e200, [0.0, 1.0]),
    (torch.float64, -0.3, 1e308, [1.0, 0.0]),
    (torch.float64, 0.0, 1e200, [0.5, 0.5]),
]


@pytest.mark.parametrize(
    ("way", "dtype", "at", "w", "expected"),
    [(way, *limit) for way in ("small", *WAYS) for limit in LIMITS] + [("compile", *LIMITS[0])],
)
def test_31_the_limit_is_the_nearest_key(way, dtype, at, w, expected, monkeypatch):
    if way in WAYS:
        WAYS[way](monkeypatch)
    q, k = torch.tensor([[[at]]], dtype=dtype, requires_grad=True), torch.tensor([[[-1.0], [1.0]]], dtype=dtype)
    v = torch.tensor([[[2.0], [4.0]]], dtype=dtype, requires_grad=True)
    layer = AttentionPooling(GaussianScore(w, dtype=dtype))
    call = torch.compile(layer, fullgraph=True, backend="eager") if way == "compile" else layer
    output = call(q, k, v)
    output.sum().backward()
    assert v.grad.flatten().tolist() == expected
    assert output.item() == 2.0 * expected[0] + 4.0 * expected[1]
    assert q.grad.isfinite().all()
    assert layer.score.w.grad.isfinite()


def test_31_the_nearest_key_that_is_not_masked():
    place = torch.tensor([[[0.0], [1.0], [3.0]]], dtype=torch.float64)
    score = GaussianScore(1e200, dtype=torch.float64)
    weights = AttentionPooling(score)(
        place, place, place, attn_mask=~torch.eye(3, dtype=torch.bool), need_weights=True
    ).weights
    assert weights[0].tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert HardAttention(score).eval()(place + 0.1, place, place).choice.tolist() == [[0, 1, 2]]


def test_32_an_offset_costs_nothing():
    """Differences come first: the same numbers a million away, kept exact by rounding them first."""
    q, k, _ = (torch.round(t * 64) / 64 for t in inputs(d=D))
    score = GaussianScore(3.0, dtype=torch.float64)
    assert torch.equal(score(q + 1e6, k + 1e6), score(q, k))


def test_a_number_or_a_tensor_says_what_is_learned():
    assert GaussianScore().w.shape == ()
    assert GaussianScore(2).w.dtype == torch.get_default_dtype()
    assert GaussianScore([1.0, 2.0]).w.shape == (2,)
    given = torch.ones(3, 2, dtype=torch.float64)
    score = GaussianScore(given)
    assert score.w.dtype == torch.float64
    with torch.no_grad():
        score.w += 1.0
    assert torch.equal(given, torch.ones_like(given)), "what was given is copied"
    assert all(isinstance(s.w, torch.nn.Parameter) for s in (score, GaussianScore()))


@pytest.mark.parametrize("w", [torch.nan, torch.inf, [1.0, -torch.inf], torch.ones(1, 1, 1)])
def test_27_a_w_that_cannot_be_is_refused(w):
    with pytest.raises(ValueError, match=r"w must be a finite number, a vector \(d,\) or a matrix"):
        GaussianScore(w)


@pytest.mark.parametrize(
    ("score", "widths", "message"),
    [
        (GaussianScore(), (3, 4), "queries have 3 features and keys 4; they must agree"),
        (DotProductScore(), (3, 4), "queries have 3 features and keys 4; they must agree"),
        (GaussianScore([1.0, 1.0]), (3, 3), "w is for 2 features but keys have 3"),
        (GaussianScore(torch.ones(2, 2)), (3, 3), "w is for 2 features but keys have 3"),
        (BilinearScore(3, 4), (4, 3), "query_size=3 and key_size=4, but queries have 4 features and keys 3"),
        (AdditiveScore(3, 4, 5), (4, 3), "query_size=3 and key_size=4, but queries have 4 features and keys 3"),
        (ConcatenatedScore(3, 4, 5), (4, 3), "query_size=3 and key_size=4, but queries have 4 features and keys 3"),
    ],
)
def test_29_wrong_widths_are_refused(score, widths, message):
    with pytest.raises(ValueError, match=message):
        score(torch.zeros(1, 2, widths[0]), torch.zeros(1, 2, widths[1]))


@pytest.mark.parametrize(
    "make", [lambda: BilinearScore(0, 3), lambda: AdditiveScore(2, 3, 0), lambda: ConcatenatedScore(2, 1.5, 2)]
)
def test_sizes_that_cannot_be_are_refused(make):
    with pytest.raises(ValueError, match="must be a whole number of at least 1"):
        make()


def test_what_they_say_of_themselves():
    assert repr(GaussianScore(0.5)) == "GaussianScore(w=0.5)"
    assert repr(GaussianScore(torch.ones(3, 2))) == "GaussianScore(w=(3, 2))"
    assert repr(BilinearScore(2, 3)) == "BilinearScore(query_size=2, key_size=3)"
    assert repr(DotProductScore()) == "DotProductScore()"
    assert "W_q" in repr(AdditiveScore(2, 3, 4))


def test_device_and_dtype_reach_the_parameters():
    for score in (AdditiveScore(2, 3, 4, device="meta", dtype=torch.float64), BilinearScore(2, 3, device="meta")):
        assert {p.device.type for p in score.parameters()} == {"meta"}
    assert AdditiveScore(2, 3, 4, dtype=torch.float64).w_v.weight.dtype == torch.float64
