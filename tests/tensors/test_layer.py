"""Problems of a layer's size: one program forward, two backward, against float64 and by their laws."""

from __future__ import annotations

import pytest
import torch

from regard.engines.gpu.launch import TileShape
from regard.engines.gpu.layer_launch import layer_forward
from regard.engines.gpu.layout import LoweredBatch
from regard.scores import Additive, DotProduct, Epanechnikov, Gaussian
from regard.tensors import fused_pool, layer_autograd
from support.fused_cases import answer, case, excess, plain_pool
from support.soak import FULL

# Scores from products are rounded to 22 bits, not to 24.
TWO_BITS = 4.0
SCORES = ("gaussian", "gaussian-feature", "dot", "additive")


def taken(monkeypatch) -> list[int]:
    """Codes of the problems that went to these programs."""
    codes: list[int] = []

    def noted(it, *rest):
        codes.append(it.code)
        return layer_forward(it, *rest)

    monkeypatch.setattr(layer_autograd, "layer_forward", noted)
    return codes


@pytest.mark.parametrize("option", ["plain", "mask", "lengths"])
@pytest.mark.parametrize(("score", "d"), [(score, d) for score in SCORES for d in ((3, 20) if FULL else (3,))])
def test_no_worse_than_plain_torch(score, d, option, layers, monkeypatch):
    codes = taken(monkeypatch)
    it = case(score, option, torch.float32, Q=70 if FULL else 33, K=67 if FULL else 21, d=d)
    truth, rough = answer(it, torch.float64, plain_pool), answer(it, torch.float32, plain_pool)
    assert max(excess(answer(it, torch.float32), truth, rough, torch.float32)) <= (TWO_BITS if d > 8 else 1.0)
    assert len(codes) == 1


@pytest.mark.parametrize(("score", "d", "P"), [("gaussian", 9, 1), ("gaussian-feature", 20, 5), ("dot", 20, 17)])
def test_products(score, d, P, layers):
    it = case(score, "mask", torch.float32, B=1, d=d, P=P)
    it.leaves[0].mul_(0.4), it.leaves[1].mul_(0.4)
    truth, rough = answer(it, torch.float64, plain_pool), answer(it, torch.float32, plain_pool)
    assert max(excess(answer(it, torch.float32), truth, rough, torch.float32)) <= TWO_BITS


@pytest.mark.parametrize("apart", [30.0, 1e3])
def test_rows_that_products_would_round_are_done_by_differences(apart, layers):
    it = case("gaussian", "plain", torch.float32, B=1, d=9, P=1)
    it.leaves[0][:, 20:] += apart
    it.leaves[1][:, 20:] += apart
    truth, rough = answer(it, torch.float64, plain_pool), answer(it, torch.float32, plain_pool)
    assert max(excess(answer(it, torch.float32), truth, rough, torch.float32)) <= 1.0


@pytest.mark.parametrize("offset", [1e3, -1e4])
def test_an_offset_does_not_matter(offset, layers):
    it = case("gaussian", "plain", torch.float32, B=2, d=9, P=1)
    # Numbers that an offset does not round.
    near = [torch.round(leaf * 64.0) / 64.0 for leaf in it.leaves[:2]]
    answers = []
    for move in (0.0, offset):
        it.leaves[0], it.leaves[1] = (leaf + move for leaf in near)
        answers.append(answer(it, torch.float32))
    for got, expected in zip(*answers, strict=True):
        assert torch.allclose(got, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(("Q", "K", "P", "d"), [(1, 1, 1, 1), (2, 70, 1, 12), (65, 3, 5, 1)])
@pytest.mark.parametrize("score", ["gaussian", "dot", "additive"])
def test_ragged_shapes(Q, K, P, d, score, layers):
    it = case(score, "plain", torch.float32, B=1, Q=Q, K=K, P=P, d=d)
    truth, rough = answer(it, torch.float64, plain_pool), answer(it, torch.float32, plain_pool)
    assert max(excess(answer(it, torch.float32), truth, rough, torch.float32)) <= TWO_BITS


@pytest.mark.parametrize("score", SCORES)
def test_47_a_fully_masked_row_is_zeros_with_finite_gradients(score, layers):
    it = case(score, "mask", torch.float32, B=1, Q=4, K=5)
    it.options["mask"][:] = False
    output, logsumexp, *grads = answer(it, torch.float32)
    assert not output.any()
    assert (logsumexp == -torch.inf).all()
    assert all(torch.isfinite(grad).all() and not grad.any() for grad in grads)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("score", SCORES)
def test_48_what_a_mask_hides_never_leaks(score, bad, layers):
    it = case(score, "plain", torch.float32, B=1, Q=4, K=6, d=9)
    it.options["mask"] = torch.ones(1, 4, 6, dtype=torch.bool)
    it.options["mask"][..., 2] = False
    it.options["mask"][:, 3] = False
    clean = answer(it, torch.float32)
    for part, row in ((1, 2), (2, 2), (0, 3)):
        it.leaves[part][:, row] = bad
    for got, expected in zip(answer(it, torch.float32), clean, strict=True):
        assert torch.allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_who_attends_to_nan_sees_it_in_answers_and_gradients(layers):
    mask = torch.tensor([[True, False], [True, True]])
    for part in (1, 2):
        leaves = [torch.zeros(2, 1), torch.zeros(2, 1), torch.ones(2, 1)]
        leaves[part][1] = torch.nan
        leaves = [leaf.requires_grad_() for leaf in leaves]
        output, logsumexp = fused_pool(*leaves, Gaussian(), mask=mask)
        assert output[0].item() == 1.0
        assert torch.isnan(output[1]).all()
        assert torch.isfinite(logsumexp).tolist() == [True, False]
        (grad,) = torch.autograd.grad(output.sum(), leaves[0])
        assert torch.isnan(grad[:, 0]).tolist() == [False, True]


def test_a_cotangent_of_nan_reaches_only_what_it_looked_at(layers):
    leaves = [torch.randn(2, 9), torch.randn(3, 9), torch.randn(3, 1)]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    output, _ = fused_pool(*leaves, Gaussian(), mask=torch.tensor([[True, True, False], [False, False, True]]))
    grads = torch.autograd.grad(output, leaves, torch.tensor([[torch.nan], [1.0]]))
    assert [torch.isnan(grad).any(1).tolist() for grad in grads] == [
        [True, False],
        [True, True, False],
        [True, True, False],
    ]


@pytest.mark.parametrize("score", [Gaussian(0.5), DotProduct(0.7)])
def test_the_batch_may_have_any_shape(score, layers):
    x = [torch.randn(2, 3, n, 9) for n in (5, 6, 6)]
    whole = fused_pool(*x, score, valid_lens=torch.tensor([[1, 2, 3], [4, 5, 6]]))
    assert whole[0].shape == (2, 3, 5, 9)
    one = fused_pool(*(part[1, 0] for part in x), score, mask=torch.arange(6) < 4)
    assert torch.allclose(whole[0][1, 0], one[0], rtol=1e-5, atol=1e-6)
    assert torch.allclose(whole[1][1, 0], one[1], rtol=1e-5, atol=1e-6)


def test_layouts_and_lengths_of_queries(layers):
    x = [torch.randn(2, n, 9) for n in (5, 6, 6)]
    lens = torch.randint(0, 7, (2, 5))
    plain = fused_pool(*x, Gaussian(0.5), mask=torch.arange(6) < lens[:, :, None])
    turned = [part.transpose(1, 2).contiguous().transpose(1, 2) for part in x]
    for got, expected in zip(fused_pool(*turned, Gaussian(0.5), valid_lens=lens), plain, strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("tile", [TileShape(16, 16, 4, 1), TileShape(32, 64, 4, 1)])
def test_tiles_do_not_matter(tile, layers):
    x = [torch.randn(1, n, 9) for n in (50, 60, 60)]
    it = LoweredBatch(0, *x, torch.tensor(0.5))
    for got, expected in zip(layer_forward(it, tile), layer_forward(it), strict=True):
        assert torch.allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_half_precision_comes_in_and_goes_out(layers):
    it = case("gaussian", "lengths", torch.float16, d=9)
    truth, rough = answer(it, torch.float64, plain_pool), answer(it, torch.float16, plain_pool)
    found = answer(it, torch.float16)
    assert found[0].dtype == torch.float16
    assert found[1].dtype == torch.float32
    assert max(excess(found, truth, rough, torch.float16)) <= 1.0


def test_what_they_do_not_know_goes_on(layers, monkeypatch):
    codes = taken(monkeypatch)
    x = [torch.randn(1, n, 3) for n in (5, 6, 6)]
    fused_pool(*x, Epanechnikov(0.1))
    fused_pool(*x, Gaussian(torch.eye(3)))
    fused_pool(*x, Gaussian(), bias=torch.zeros(5, 6))
    fused_pool(*(part.double() for part in x), Gaussian())
    fused_pool(x[0], x[1].repeat(2, 1, 1), x[2], Gaussian())
    assert not codes
    with pytest.raises(ValueError, match="query has 3 features"):
        fused_pool(x[0], x[1][..., :2], x[2], Gaussian())
    with pytest.raises(TypeError, match="valid_lens must be integers"):
        fused_pool(*x, Gaussian(), valid_lens=torch.tensor([1.5]))
    with pytest.raises(TypeError, match="integers are refused"):
        fused_pool(*x, Gaussian(), mask=torch.ones(5, 6, dtype=torch.int64))


SECOND = {
    "gaussian": lambda: Gaussian(torch.tensor(0.7, requires_grad=True)),
    "dot": lambda: DotProduct(torch.tensor(0.7, requires_grad=True)),
    "additive": lambda: Additive(
        *(
            torch.linspace(-1.0, 1.0, 4 * n).reshape(shape).requires_grad_()
            for n, shape in ((3, (4, 3)), (3, (4, 3)), (1, (4,)))
        )
    ),
}


@pytest.mark.parametrize("name", SECOND)
@pytest.mark.parametrize("masked", [False, True])
def test_second_derivatives(name, masked, request):
    """Also of a loss that is linear in the output, whose gradient requires none."""
    x = [torch.randn(1, n, 3, requires_grad=True) for n in (5, 6, 6)]
    score = SECOND[name]()
    leaves = [*x, *vars(score).values()]
    options = {"valid_lens": torch.tensor([4])} if masked else {}

    def second() -> list[torch.Tensor]:
        output, logsumexp = fused_pool(*x, score, **options)
        first = torch.autograd.grad(output.sum() + logsumexp.sum(), leaves, create_graph=True)
        return list(torch.autograd.grad(sum((part * part.detach().sin()).sum() for part in first), leaves))

    expected = second()
    request.getfixturevalue("layers")
    for found, one in zip(second(), expected, strict=True):
        torch.testing.assert_close(found, one, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("reach", [1.0, 40.0, 1e4])
def test_hidden_units_however_far_they_reach(reach, layers):
    # An odd number of units, of which pairs share a reciprocal unless their exponentials could overflow.
    x = [torch.randn(1, 5, 3), torch.randn(1, 7, 3), torch.randn(1, 7, 2)]
    W = [reach * torch.randn(5, 3), -reach * torch.randn(5, 3), torch.randn(5)]
    got, expected = fused_pool(*x, Additive(*W)), plain_pool(*(part.double() for part in x), Additive(*W))
    for a, b in zip(got, expected, strict=True):
        assert torch.allclose(a.double(), b, rtol=1e-4, atol=1e-6 * reach)


def test_additive_projections_of_other_widths(layers, monkeypatch):
    codes = taken(monkeypatch)
    W = [torch.randn(6, 3), torch.randn(6, 4), torch.randn(6)]
    x = [torch.randn(1, 5, 3), torch.randn(1, 7, 4), torch.randn(1, 7, 2)]
    got, expected = fused_pool(*x, Additive(*W)), plain_pool(*x, Additive(*W))
    assert len(codes) == 1
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(got, expected, strict=True))
