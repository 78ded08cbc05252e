"""AttentionPooling: it is the estimator; a mask is a deletion; dropout, layouts, half precision, state."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import regard
from regard.data import notes
from regard.nn import (
    AdditiveScore,
    Attended,
    AttentionPooling,
    BilinearScore,
    DotProductScore,
    GaussianScore,
    entmax15,
    sparsemax,
)
from support.modules import SCORES, checked_twice, every_score, inputs, masks, with_parameters

MASKS = masks(3, 5)
# An additive mask does more than delete.
every_deletion = pytest.mark.parametrize("option", [option for option in MASKS if option != "additive"])


def may_attend(option, shape):
    """Boolean (B, Q, K) of who may attend."""
    options, may = MASKS[option], torch.ones(shape, dtype=torch.bool)
    if "valid_lens" in options:
        lengths = options["valid_lens"]
        may &= torch.arange(shape[-1]) < (lengths[..., None] if lengths.ndim == 2 else lengths[:, None, None])
    return may & options.get("attn_mask", may)


# ---- a layer with a Gaussian score is the estimator


@pytest.mark.parametrize("bandwidth", [0.1, 0.35, 1.0, 5.0])
def test_the_layer_is_the_estimator(bandwidth):
    data = notes(seed=0)
    model = regard.NadarayaWatsonRegressor(bandwidth=bandwidth).fit(data.x_train[:, None], data.y_train)
    layer = AttentionPooling(GaussianScore(1.0 / bandwidth, dtype=torch.float64))
    q, k, v = (torch.tensor(x).reshape(1, -1, 1) for x in (data.x_test, data.x_train, data.y_train))
    output, weights = layer(q, k, v, need_weights=True)
    assert np.abs(output.detach().numpy()[0, :, 0] - model.predict(data.x_test[:, None])).max() < 1e-10
    expected = regard.attention_weights(data.x_test, data.x_train, regard.scores.Gaussian(1.0 / bandwidth))
    assert np.abs(weights.detach().numpy()[0] - expected).max() < 1e-10


@pytest.mark.parametrize(
    "w", [np.array([0.5, 0.0, 2.0]), np.arange(6.0).reshape(3, 2) / 4.0], ids=["feature", "matrix"]
)
def test_the_layer_is_pool_under_masks(w):
    q, k, v = inputs(batch=1, queries=20, keys=30)
    mask = torch.rand(20, 30) < 0.7
    output = AttentionPooling(GaussianScore(torch.tensor(w)))(q, k, v, attn_mask=mask)
    pooled = regard.pool(q[0].numpy(), k[0].numpy(), v[0].numpy(), regard.scores.Gaussian(w), mask=mask.numpy())
    assert np.abs(output[0].detach().numpy() - pooled.output).max() < 1e-10


def test_learning_w_by_leaving_one_out_is_the_estimators_learning():
    """At the bandwidth the estimator learns, the layer's left-out error has no slope."""
    data = notes(seed=0)
    model = regard.NadarayaWatsonRegressor(metric="scalar").fit(data.x_train[:, None], data.y_train)
    layer = AttentionPooling(GaussianScore(float(np.ravel(model.w_)[0]), dtype=torch.float64))
    x, y = (torch.tensor(part).reshape(1, -1, 1) for part in (data.x_train, data.y_train))
    loss = (layer(x, x, y, attn_mask=~torch.eye(50, dtype=torch.bool)) - y).square().mean()
    loss.backward()
    w, loss = layer.score.w, loss.item()
    assert abs((w.grad * w.detach()).item()) < 1e-5 * loss
    assert np.allclose(1.0 - loss / y.var(correction=0).item(), model.loo_score_, atol=1e-8)


def test_dot_products_are_torchs_attention():
    q, k, v = inputs(d=4)
    expected = F.scaled_dot_product_attention(q, k, v)
    assert torch.allclose(AttentionPooling(DotProductScore())(q, k, v), expected, rtol=1e-12, atol=1e-14)


# ---- laws


@every_score
@every_deletion
def test_a_mask_is_deletion_row_by_row(name, option):
    q, k, v = inputs()
    pooling = AttentionPooling(SCORES[name](3))
    output, weights = pooling(q, k, v, need_weights=True, **MASKS[option])
    may = may_attend(option, (2, 3, 5))
    for b in range(2):
        for i in range(3):
            kept = may[b, i]
            alone = pooling(q[b : b + 1, i : i + 1], k[b : b + 1, kept], v[b : b + 1, kept])
            assert torch.allclose(output[b, i], alone[0, 0], rtol=1e-12, atol=1e-14)
            assert not weights[b, i, ~kept].any()
    assert torch.allclose(weights.sum(-1), may.any(-1).double(), rtol=1e-12)
    assert torch.allclose(weights @ v, output, rtol=1e-12, atol=1e-14)


@every_score
def test_the_order_of_the_keys_and_the_company_in_a_batch_do_not_matter(name):
    q, k, v = inputs(batch=3, queries=4, keys=7)
    lengths = torch.tensor([7, 4, 2])
    pooling = AttentionPooling(SCORES[name](3))
    output = pooling(q, k, v, lengths)
    order = torch.randperm(7)
    mask = (torch.arange(7) < lengths[:, None, None])[..., order]
    assert torch.allclose(pooling(q, k[:, order], v[:, order], attn_mask=mask), output, rtol=1e-12, atol=1e-14)
    for b in range(3):
        one = slice(b, b + 1)
        assert torch.allclose(pooling(q[one], k[one], v[one], lengths[one])[0], output[b], rtol=1e-12, atol=1e-14)
    rows = torch.randperm(4)
    assert torch.allclose(pooling(q[:, rows], k, v, lengths), output[:, rows], rtol=1e-12, atol=1e-14)


@every_score
@pytest.mark.parametrize("option", ["none", "both", "additive"])
def test_gradients_of_inputs_and_parameters(name, option):
    call, leaves = with_parameters(AttentionPooling(SCORES[name](2)), *inputs(queries=2, keys=3, d=2))
    checked_twice(call, leaves, masks(2, 3)[option])


@pytest.mark.parametrize("normalise", [sparsemax, entmax15])
def test_gradients_with_sparse_weights(normalise):
    pooling = AttentionPooling(SCORES["additive"](2), normalise=normalise)
    call, leaves = with_parameters(pooling, *inputs(queries=2, keys=4, d=2))
    checked_twice(call, leaves, masks(2, 4)["both"])


# ---- dropout


def test_dropout_is_for_training_and_for_the_weights():
    q, k, v = inputs(queries=50, keys=40)
    pooling = AttentionPooling(DotProductScore(), dropout=0.5)
    plain = AttentionPooling(DotProductScore())(q, k, v, need_weights=True)
    assert torch.equal(pooling.eval()(q, k, v), plain.output)
    torch.manual_seed(1)
    output, weights = pooling.train()(q, k, v, need_weights=True)
    assert torch.equal(weights, plain.weights), "returned as they were before dropout"
    torch.manual_seed(1)
    assert torch.allclose(output, F.dropout(plain.weights, 0.5) @ v)
    assert not torch.allclose(output, plain.output)
    mean = torch.stack([pooling(q, k, v) for _ in range(400)]).mean(0)
    assert (mean - plain.output).abs().max() < 0.2, "unbiased: what is kept makes up for what is not"


# ---- shapes, layouts, precision


def test_with_and_without_weights():
    q, k, v = inputs()
    pooling = AttentionPooling(DotProductScore())
    attended = pooling(q, k, v, need_weights=True)
    assert isinstance(attended, Attended)
    assert torch.equal(attended.output, pooling(q, k, v))
    assert attended.output.shape == (2, 3, 2)
    assert attended.weights.shape == (2, 3, 5)


def test_other_batch_shapes():
    q, k, v = inputs(batch=6)
    pooling = AttentionPooling(GaussianScore(dtype=torch.float64))
    expected = pooling(q, k, v)
    by_two = [t.unflatten(0, (2, 3)) for t in (q, k, v)]
    assert torch.allclose(pooling(*by_two).flatten(0, 1), expected)
    assert torch.allclose(pooling(q[0], k[0], v[0]), expected[0])
    lengths = torch.tensor([[1, 2, 3], [4, 5, 0]])
    assert torch.allclose(pooling(*by_two, lengths).flatten(0, 1), pooling(q, k, v, lengths.flatten()))
    shared = pooling(q, k[:1], v[:1])
    assert torch.allclose(shared, pooling(q, k[:1].expand(6, -1, -1), v[:1].expand(6, -1, -1)))


def test_54_layouts_do_not_matter_and_nothing_is_written():
    q, k, v = inputs()
    pooling = AttentionPooling(DotProductScore())
    expected = pooling(q, k, v, torch.tensor([3, 4]))
    transposed = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)]
    strided = [torch.stack([t, t], dim=-1)[..., 0] for t in (q, k, v)]
    for given in (transposed, strided):
        before = [t.clone() for t in given]
        assert torch.allclose(pooling(*given, torch.tensor([3, 4])), expected, rtol=1e-14)
        assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True))


def test_52_empty_batches_and_no_keys():
    q, k, v = inputs()
    for name in SCORES:
        pooling = AttentionPooling(SCORES[name](3))
        assert pooling(q[:0], k[:0], v[:0], torch.zeros(0, dtype=torch.long)).shape == (0, 3, 2)
        assert pooling(q[:, :0], k, v).shape == (2, 0, 2)
        leaf = q.clone().requires_grad_()
        output = pooling(leaf, k[:, :0], v[:, :0])
        assert output.shape == (2, 3, 2)
        assert not output.any()
        output.sum().backward()
        assert not leaf.grad.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["gaussian", "dot", "bilinear", "additive"])
def test_53_half_precision_with_scores_past_65504(name, dtype):
    """Scores of ±1e6 and more: half precision would say inf, and softmax NaN."""
    q, k, v = (t.to(dtype) for t in inputs(queries=20, keys=30, d=8))
    q, k = q * 1000, k * 1000
    scores = {
        "gaussian": GaussianScore(),
        "dot": DotProductScore(),
        "bilinear": BilinearScore(8, 8),
        "additive": AdditiveScore(8, 8, 16),
    }
    score = scores[name].to(dtype)
    if name == "additive":
        with torch.no_grad():
            score.w_v.weight.fill_(30000.0)  # sixteen of them: scores up to 480,000
    pooling = AttentionPooling(score)
    lengths = torch.tensor([30, 12])
    assert score(q, k).abs().amax() > 65504
    leaves = [t.detach().clone().requires_grad_() for t in (q, k, v)]
    output, weights = pooling(*leaves, lengths, need_weights=True)
    assert output.dtype == weights.dtype == dtype
    exact = AttentionPooling(copy.deepcopy(score).double())(*(t.double() for t in (q, k, v)), lengths)
    assert (output.double() - exact).abs().max() < 4.0 * torch.finfo(dtype).eps * v.abs().max()
    (output.float().square().mean()).backward()
    assert all(t.grad.dtype == dtype and t.grad.isfinite().all() for t in leaves)


def test_53_autocast_does_not_narrow_the_scores():
    q, k, v = (t.float() for t in inputs(d=8))
    pooling = AttentionPooling(BilinearScore(8, 8))
    expected = pooling(300 * q, 300 * k, v)
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.equal(pooling(300 * q, 300 * k, v), expected)
        projected = torch.nn.functional.linear(q, torch.eye(8))
        assert projected.dtype == torch.float16
        assert pooling(projected, projected, v[:, :3]).dtype == torch.float16


def test_mixed_precision_is_computed_in_the_wider():
    q, k, v = inputs()
    pooling = AttentionPooling(AdditiveScore(3, 3, 4))  # float32 parameters, float64 inputs
    expected = AttentionPooling(copy.deepcopy(pooling.score).double())(q, k, v)
    assert torch.allclose(pooling(q, k, v), expected, rtol=1e-12)
    assert pooling(q.float(), k, v).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_single_precision_is_no_worse_than_plain_torch(dtype):
    """Against float64: at most twice the error of softmax and matmul as torch has them at the same precision."""
    q, k, v = (t.to(dtype) for t in inputs(queries=60, keys=80, d=16))
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
    plain = torch.softmax(q @ k.transpose(1, 2) / 4.0, -1) @ v
    ours = AttentionPooling(DotProductScore())(q, k, v)
    assert (ours - exact).abs().max() <= 2.0 * (plain - exact).abs().max()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"queries": torch.zeros(3)}, ValueError, r"queries must have shape \(batch, queries, features\), got \(3,\)"),
        ({"keys": torch.zeros(2, 5, 3).long()}, TypeError, "keys must be a tensor of floats, got torch.int64"),
        ({"values": [[1.0]]}, TypeError, "values must be a tensor of floats, got list"),
        ({"values": torch.zeros(2, 4, 2)}, ValueError, "values have 4 rows but there are 5 keys"),
        ({"queries": torch.zeros(3, 3, 3)}, ValueError, r"must have the same batch, got shapes \(3, 3, 3\)"),
    ],
)
def test_what_is_refused(change, error, message):
    given = {"queries": torch.zeros(2, 3, 3), "keys": torch.zeros(2, 5, 3), "values": torch.zeros(2, 5, 2)} | change
    with pytest.raises(error, match=message):
        AttentionPooling(DotProductScore())(**given)


def test_a_score_must_be_callable():
    with pytest.raises(TypeError, match="score must be callable, such as GaussianScore"):
        AttentionPooling("gaussian")


def test_any_function_of_queries_and_keys_is_a_score():
    """A deep kernel: an embedding under a Gaussian score; and a plain function."""

    class Deep(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.score = torch.nn.Linear(3, 2, dtype=torch.float64), GaussianScore(dtype=torch.float64)

        def forward(self, queries, keys):
            return self.score(self.embed(queries), self.embed(keys))

    q, k, v = inputs()
    pooling = AttentionPooling(Deep())
    pooling(q, k, v).sum().backward()
    assert pooling.score.embed.weight.grad.isfinite().all()
    plain = AttentionPooling(lambda queries, keys: queries @ keys.transpose(-2, -1))
    assert torch.allclose(plain(q, k, v), F.scaled_dot_product_attention(q, k, v, scale=1.0))


# ---- state


@every_score
def test_state_survives_every_way_of_copying(name):
    q, k, v = inputs()
    pooling, other = AttentionPooling(SCORES[name](3), dropout=0.1), AttentionPooling(SCORES[name](3), dropout=0.1)
    with torch.no_grad():
        for parameter in pooling.parameters():
            parameter += 0.1
    expected = pooling.eval()(q, k, v)
    file = io.BytesIO()
    torch.save(pooling.state_dict(), file)
    file.seek(0)
    other.eval().load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(q, k, v), expected)
    twin = copy.deepcopy(pooling)
    assert torch.equal(twin(q, k, v), expected)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter += 1.0
    assert torch.equal(pooling(q, k, v), expected), "a copy has its own parameters"
    assert not [name for name in vars(pooling) if isinstance(getattr(pooling, name), torch.Tensor)], (
        "no results on self"
    )


def test_what_it_says_of_itself():
    assert "normalise=sparsemax" in repr(AttentionPooling(DotProductScore(), normalise=sparsemax))
    text = repr(AttentionPooling(GaussianScore(0.5), dropout=0.1))
    assert "GaussianScore(w=0.5)" in text
    assert "p=0.1" in text
    assert "normalise" not in text
