"""Second derivatives of translation models, and models converted to another dtype."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from regard.seq2seq.model import Architecture, Seq2Seq
from regard.seq2seq.recurrence import GRUFunction
from regard.seq2seq.unrolled import UnrolledDecoder

SENTENCES = torch.tensor([[4, 5, 6], [3, 2, 0]]), torch.tensor([3, 2]), torch.tensor([[2, 7], [2, 5]])


def test_second_derivatives_of_the_default_model():
    """Against differences of first derivatives; the loss is linear in the output, so its gradient requires none."""
    torch.manual_seed(0)
    model = Seq2Seq(Architecture(embed_size=4, hidden_size=6), 10, 12).double()
    embedding = model.decoder.embedding.weight
    parameters = [embedding, model.encoder.embedding.weight, model.decoder.recurrent.weight_hh_l0]
    cotangent = torch.randn(2, 2, 12).double()
    along, directions = torch.randn_like(embedding), [torch.randn_like(part) for part in parameters]

    def slope(create_graph: bool) -> torch.Tensor:
        loss = (model(*SENTENCES)[0] * cotangent).sum()
        return (torch.autograd.grad(loss, embedding, create_graph=create_graph)[0] * along).sum()

    found = torch.autograd.grad(slope(True), parameters)
    for parameter, direction, gradient in zip(parameters, directions, found, strict=True):
        ends = []
        for step in (1e-6, -2e-6):
            with torch.no_grad():
                parameter += step * direction
            ends.append(slope(False))
        with torch.no_grad():
            parameter += 1e-6 * direction
        torch.testing.assert_close((gradient * direction).sum(), (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-6)


def test_derivatives_of_both_recurrences():
    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64).requires_grad_()

    T, B, S, h, a, m = 2, 2, 3, 2, 3, 2
    gru = numbers(T, B, 3 * h), numbers(B, h), numbers(3 * h, h), numbers(3 * h)
    assert torch.autograd.gradcheck(GRUFunction.apply, gru)
    assert torch.autograd.gradgradcheck(GRUFunction.apply, gru)
    mask = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, -torch.inf]], dtype=torch.float64)
    given, hidden, W_h, b_h = gru
    keys, values, W_q, w_v, W_c = numbers(B, S, a), numbers(B, S, m), numbers(a, h), numbers(a), numbers(3 * h, m)
    unrolled = given, hidden, keys, values, mask, W_q, w_v, W_c, W_h, b_h
    assert torch.autograd.gradcheck(UnrolledDecoder.apply, unrolled)
    assert torch.autograd.gradgradcheck(UnrolledDecoder.apply, unrolled)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"order": "luong"},
        {"score": "gaussian"},
        {"score": "bilinear"},
        {"score": "dot", "bidirectional": False},
        {"attention": "none"},
        {"attention": "hard"},
        {"layers": 2, "cell": "lstm", "coverage": True, "tied": False},
    ],
    ids=str,
)
def test_a_model_in_another_dtype(options, dtype):
    torch.manual_seed(0)
    model = Seq2Seq(Architecture(embed_size=8, hidden_size=16, **options), 10, 12).eval()
    other = deepcopy(model).to(dtype)
    for own in (None, torch.tensor([[False, True], [False, False]])):
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                expected, (found, _) = model(*SENTENCES, own)[0], other(*SENTENCES, own)
            assert found.dtype == dtype
            torch.testing.assert_close(found.float(), expected, rtol=0.0, atol=0.03)
            if grad:
                found.float().sum().backward()
    assert all(part.grad is None or part.grad.isfinite().all() for part in other.parameters())
    assert other.decoder.embedding.weight.grad.dtype == dtype
