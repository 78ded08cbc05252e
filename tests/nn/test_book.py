"""The book's and the notes' classes: their formulas, their signatures, the names of their parameters."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard.data import notes
from regard.nn import AdditiveAttention, AdditiveAttentionReg, DotProductAttention, NWKernelRegression
from support.modules import checked_twice, with_parameters


def wide(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.fixture(scope="module")
def curve():
    """The notes' data: x (50,), y (50,), and for every row the 49 others as keys and values."""
    data = notes(seed=0)
    x, y = torch.tensor(data.x_train), torch.tensor(data.y_train)
    others = ~torch.eye(50, dtype=torch.bool)
    return x, y, x.repeat(50, 1)[others].reshape(50, 49), y.repeat(50, 1)[others].reshape(50, 49)


def test_kernel_regression_is_the_notes_formula(curve):
    x, _, keys, values = curve
    net = NWKernelRegression().double()
    assert net.w.shape == (1,)
    assert list(net.state_dict()) == ["w"]
    output = net(x, keys, values)
    weights = F.softmax(-(((x[:, None] - keys) * net.w) ** 2) / 2, dim=1)
    assert torch.allclose(output, (weights * values).sum(1), rtol=1e-12)
    assert torch.allclose(net.attention_weights, weights, rtol=1e-12)
    assert not net.attention_weights.requires_grad


def test_kernel_regression_trained_as_the_notes_train_it(curve):
    """Five steps of plain gradient descent; the estimator with the same w gives the same curve."""
    x, y, keys, values = curve
    net = NWKernelRegression().double()
    trainer = torch.optim.SGD(net.parameters(), lr=0.5)
    losses = []
    for _ in range(5):
        trainer.zero_grad()
        loss = F.mse_loss(net(x, keys, values), y, reduction="none")
        loss.sum().backward()
        trainer.step()
        losses.append(loss.sum().item())
    assert losses[-1] < losses[0]
    data = notes(seed=0)
    grid = torch.tensor(data.x_test)
    predicted = net(grid, x.repeat(50, 1), y.repeat(50, 1)).detach().numpy()
    model = regard.NadarayaWatsonRegressor(bandwidth=1.0 / net.w.item()).fit(x.numpy()[:, None], y.numpy())
    assert np.abs(predicted - model.predict(data.x_test[:, None])).max() < 1e-10


def test_kernel_regression_refuses_other_shapes():
    with pytest.raises(ValueError, match=r"shapes \(n,\), \(n, m\) and \(n, m\), got \(3,\), \(4,\), \(4,\)"):
        NWKernelRegression()(torch.zeros(3), torch.zeros(4), torch.zeros(4))


@pytest.mark.parametrize(
    ("args", "kwargs", "lazy"),
    [
        ((2, 20, 8, 0.1), {}, False),
        ((), {"key_size": 2, "query_size": 20, "num_hiddens": 8, "dropout": 0.1}, False),
        ((2, 20), {"num_hiddens": 8, "dropout": 0.1}, False),
        ((8, 0.1), {}, True),
        ((8,), {"dropout": 0.1}, True),
        ((), {"num_hiddens": 8, "dropout": 0.1}, True),
    ],
)
def test_additive_attention_in_both_editions(args, kwargs, lazy):
    attention = AdditiveAttention(*args, **kwargs)
    assert isinstance(attention.W_q, nn.LazyLinear) == lazy
    queries, keys = torch.randn(2, 1, 20), torch.ones(2, 10, 2)
    values = torch.arange(40.0).reshape(1, 10, 4).repeat(2, 1, 1)
    output = attention.eval()(queries, keys, values, torch.tensor([2, 6]))
    # The book's own example: keys are alike, so the mean of the first two and of the first six rows.
    assert torch.allclose(output[:, 0], torch.tensor([[2.0, 3.0, 4.0, 5.0], [10.0, 11.0, 12.0, 13.0]]))
    assert attention.W_q.weight.shape == (8, 20)
    assert attention.W_k.weight.shape == (8, 2)
    assert sorted(attention.state_dict()) == ["W_k.weight", "W_q.weight", "w_v.weight"]
    assert attention.dropout.p == 0.1
    output.sum().backward()
    assert attention.w_v.weight.grad is not None


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((8,), {}), ((2, 20, 8), {}), ((2, 20, 8, 0.1, 1), {}), ((8, 0.1), {"size": 3})]
)
def test_additive_attention_refuses_other_signatures(args, kwargs):
    with pytest.raises(TypeError, match=r"AdditiveAttention\(key_size, query_size, num_hiddens, dropout\) or"):
        AdditiveAttention(*args, **kwargs)


def test_additive_attention_is_its_formula():
    attention = AdditiveAttention(2, 3, 5, 0.0).double()
    q, k, v = wide(2, 4, 3), wide(2, 6, 2), wide(2, 6, 2)
    hidden = torch.tanh(attention.W_q(q)[:, :, None] + attention.W_k(k)[:, None])
    scores = attention.w_v(hidden).squeeze(-1)
    assert torch.allclose(attention(q, k, v), torch.softmax(scores, -1) @ v, rtol=1e-12)
    assert torch.allclose(attention.attention_weights, torch.softmax(scores, -1), rtol=1e-12)


def test_dot_product_attention_is_torchs():
    attention = DotProductAttention(dropout=0.5).eval()
    q, k, v = wide(2, 4, 3), wide(2, 6, 3), wide(2, 6, 2)
    assert torch.allclose(attention(q, k, v), F.scaled_dot_product_attention(q, k, v), rtol=1e-12)
    lengths = torch.tensor([2, 6])
    mask = torch.arange(6) < lengths[:, None, None]
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert torch.allclose(attention(q, k, v, lengths), expected, rtol=1e-12)
    assert attention.attention_weights.shape == (2, 4, 6)
    assert not attention.attention_weights[0, :, 2:].any()


def test_dropout_is_for_training_and_the_weights_are_those_before_it():
    attention = DotProductAttention(dropout=0.5)
    x = wide(1, 30, 3)
    trained = attention.train()(x, x, x)
    weights = attention.attention_weights
    assert torch.allclose(weights.sum(-1), torch.ones(1, 30, dtype=torch.float64))
    assert not torch.allclose(trained, weights @ x)
    assert torch.allclose(attention.eval()(x, x, x), weights @ x)


def test_additive_regression_is_the_notes_formula():
    net = AdditiveAttentionReg(input_size=2, hidden_size=5).double()
    q, k, v = wide(4, 2), wide(7, 2), wide(7, 1)
    scores = net.v(torch.tanh(net.W_q(q).unsqueeze(1) + net.W_k(k).unsqueeze(0))).squeeze(-1)
    output = net(q, k, v)
    assert output.shape == (4, 1)
    assert torch.allclose(output, F.softmax(scores, dim=1) @ v, rtol=1e-12)
    assert torch.allclose(net.attention_weights, F.softmax(scores, dim=1), rtol=1e-12)
    assert sorted(net.state_dict()) == ["W_k.weight", "W_q.weight", "v.weight"]


def test_additive_regression_learns_the_notes_curve(curve):
    """Every row answered by the others: far below the error of the mean."""
    x, y, _, _ = curve
    x, y = (x[:, None] - 2.5), y[:, None]
    net = AdditiveAttentionReg(1, 16).double()
    others = ~torch.eye(50, dtype=torch.bool)
    trainer = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(150):
        trainer.zero_grad()
        loss = F.mse_loss(net(x, x, y, attn_mask=others), y)
        loss.backward()
        trainer.step()
    assert loss.item() < 0.5 * y.var().item()
    assert not net.attention_weights.diagonal().any()


@pytest.mark.parametrize(
    ("module", "shapes"),
    [
        (NWKernelRegression(), [(4,), (4, 3), (4, 3)]),
        (DotProductAttention(0.0), [(2, 2, 3), (2, 4, 3), (2, 4, 2)]),
        (AdditiveAttention(2, 3, 4, 0.0), [(2, 2, 3), (2, 4, 2), (2, 4, 2)]),
        (AdditiveAttentionReg(2, 3), [(3, 2), (4, 2), (4, 2)]),
    ],
    ids=lambda part: type(part).__name__ if isinstance(part, nn.Module) else "",
)
def test_gradients_and_state(module, shapes):
    module = copy.deepcopy(module).double()
    given = [wide(*shape) for shape in shapes]
    call, leaves = with_parameters(module, *given)
    checked_twice(call, leaves)
    assert module.attention_weights is not None
    before = module(*given)
    assert torch.equal(copy.deepcopy(module)(*given), before), "copied after use: the weights are detached"
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    file.seek(0)
    module.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(module(*given), before)
