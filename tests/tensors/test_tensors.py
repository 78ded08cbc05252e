"""The public call on tensors: autograd, operators, errors, and the way into ``regard.pool``."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.scores import Additive, DotProduct, Gaussian, Nearest
from regard.tensors import fused_pool
from support.fused_cases import SCORES, parameters
from support.soak import FULL

QUERY, KEY, VALUE = torch.zeros(2, 3, 1), torch.zeros(2, 4, 1), torch.zeros(2, 4, 1)


@pytest.mark.parametrize("score", SCORES)
def test_gradcheck(score, compiled):
    make, weights = parameters(score, torch.float64)
    leaves = [torch.randn(1, n, c, dtype=torch.float64, requires_grad=True) for n, c in ((4, 3), (5, 3), (5, 2))]
    weights = [w.clone().requires_grad_() for w in weights]
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[0, 1] = False

    def run(q, k, v, *w):
        output, logsumexp = fused_pool(q, k, v, make(*w), mask=mask)
        return output, torch.where(torch.isfinite(logsumexp), logsumexp, 0.0)

    assert torch.autograd.gradcheck(run, (*leaves, *weights), atol=1e-6)


def test_gradgradcheck_where_it_is_plain_torch():
    leaves = [torch.randn(1, n, 2, dtype=torch.float64, requires_grad=True) for n in (3, 4, 4)]
    w = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda q, k, v, w: fused_pool(q, k, v, Gaussian(w)), (*leaves, w))


@pytest.mark.parametrize("way", ["blocks", "compiled", "programs"])
def test_55_a_second_backward_is_right(way, request):
    query, key, value = torch.randn(1, 3, 2, requires_grad=True), torch.randn(1, 4, 2), torch.randn(1, 4, 1)

    def second() -> torch.Tensor:
        output, _ = fused_pool(query, key, value, Gaussian())
        (grad,) = torch.autograd.grad(output.sum(), query, create_graph=True)
        return torch.autograd.grad(grad.sum(), query)[0]

    expected = second()
    request.getfixturevalue(way)
    torch.testing.assert_close(second(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", ["blocks", "compiled", "programs"])
@pytest.mark.parametrize("code", [0, 9, 10] if FULL else [0])
def test_opcheck(way, code, request):
    request.getfixturevalue(way)
    from regard.tensors.operators import pool_op

    w = torch.randn(2, requires_grad=True) if code == 10 else torch.tensor(0.5, requires_grad=True)
    sides = [torch.randn(2, n, 2, requires_grad=True) for n in (3, 4, 4)]
    mask = torch.rand(2, 3, 4) < 0.8
    who = mask, None, None, torch.arange(3)[None], torch.arange(4)[None], None
    torch.library.opcheck(pool_op, (*sides, w, code, *who, 0.0))


def test_torch_compile(compiled):
    query, key, value = torch.randn(1, 4, 2), torch.randn(1, 5, 2), torch.randn(1, 5, 1)
    w = torch.tensor(0.7, requires_grad=True)

    def loss(w):
        return (fused_pool(query, key, value, Gaussian(w))[0] ** 2).sum()

    (expected,) = torch.autograd.grad(loss(w), w)
    (found,) = torch.autograd.grad(torch.compile(loss, backend="aot_eager")(w), w)
    assert torch.allclose(found, expected)


def test_pool_takes_tensors():
    key, value = torch.tensor([[-1.0], [1.0]]), torch.tensor([[2.0], [4.0]])
    w = torch.tensor(1.0, requires_grad=True)
    pooled = regard.pool(torch.tensor([[0.5]]), key, value, Gaussian(w))
    numbers = regard.pool([[0.5]], key.numpy(), value.numpy(), Gaussian(1.0))
    assert pooled.output.item() == pytest.approx(float(numbers.output[0, 0]), rel=1e-6)
    assert pooled.logsumexp.item() == pytest.approx(float(numbers.logsumexp[0]), rel=1e-6)
    pooled.output.sum().backward()
    assert w.grad is not None
    assert regard.pool(torch.tensor([0.5]), key[:, 0], value[:, 0], Gaussian(), engine="fused").output.shape == (1,)


def test_parameters_that_are_tensors_are_kept():
    w = torch.tensor([1.0, -2.0], requires_grad=True)
    assert Gaussian(w).w is w
    assert DotProduct(w[0]).w.requires_grad
    layer = Additive(torch.ones(2, 3), torch.ones(2, 3), w)
    assert layer.w_v is w
    with pytest.raises(ValueError, match="w is for 2 features but key has 1"):
        fused_pool(QUERY, KEY, VALUE, Gaussian(w))


#      what is wrong                                                                     error       words
ERRORS = [
    (lambda: fused_pool(QUERY.long(), KEY, VALUE, Gaussian()), TypeError, "query must be a floating tensor"),
    (lambda: fused_pool(QUERY, KEY.numpy(), VALUE, Gaussian()), TypeError, "key must be a torch tensor"),
    (lambda: fused_pool(QUERY, KEY, VALUE[:, :2], Gaussian()), ValueError, "value has 2 rows but key has 4"),
    (lambda: fused_pool(QUERY[:, :, [0, 0]], KEY, VALUE, Gaussian()), ValueError, "query has 2 features and key has 1"),
    (lambda: fused_pool(torch.zeros(3, 3, 1), KEY, VALUE, Gaussian()), ValueError, "batch shapes must broadcast"),
    (lambda: fused_pool(torch.tensor(1.0), KEY, VALUE, Gaussian()), ValueError, "query must have shape"),
    (lambda: fused_pool(QUERY.to("meta"), KEY, VALUE, Gaussian()), ValueError, "query is on meta and key on cpu"),
    (lambda: fused_pool(QUERY, KEY, VALUE, Nearest()), TypeError, "other than Nearest"),
    (lambda: fused_pool(QUERY, KEY, VALUE, torch.softmax), TypeError, "score must be a score of regard.scores"),
    (
        lambda: fused_pool(QUERY, KEY, VALUE, Gaussian(), mask=torch.ones(3, 4, dtype=torch.int64)),
        TypeError,
        "integers",
    ),
    (lambda: fused_pool(QUERY, KEY, VALUE, Gaussian(), mask=torch.ones(5, 4) > 0), ValueError, "mask must broadcast"),
    (lambda: fused_pool(QUERY, KEY, VALUE, Gaussian(), bias=torch.ones(3, 4) > 0), TypeError, "bias must be floating"),
    (
        lambda: fused_pool(QUERY, KEY, VALUE, Gaussian(), bias=torch.ones(3, 4, requires_grad=True)),
        ValueError,
        "takes no gradient",
    ),
    (
        lambda: fused_pool(QUERY, KEY, VALUE, Gaussian(), valid_lens=torch.tensor([1, 5])),
        ValueError,
        "between 0 and the 4",
    ),
    (lambda: fused_pool(QUERY, KEY, VALUE, Gaussian(), valid_lens=torch.tensor([1, -1])), ValueError, "between 0 and"),
    (lambda: fused_pool(QUERY, KEY, VALUE, Gaussian(), valid_lens=torch.tensor([1.0, 2.0])), TypeError, "integers"),
    (
        lambda: fused_pool(QUERY, KEY, VALUE, Gaussian(), valid_lens=torch.tensor([1, 2, 3])),
        ValueError,
        "must have the shape",
    ),
    (lambda: fused_pool(QUERY, KEY, VALUE, Gaussian(), sample_weight=-torch.ones(4)), ValueError, "not negative"),
    (
        lambda: fused_pool(QUERY, KEY, VALUE, Gaussian(), sample_weight=torch.zeros(4)),
        ValueError,
        "all sample weights are zero",
    ),
    (lambda: fused_pool(QUERY, KEY, VALUE, Gaussian(), sample_weight=torch.ones(3)), ValueError, "must have shape"),
    (
        lambda: fused_pool(QUERY, KEY, VALUE, Gaussian(), exclude=(torch.arange(3), torch.arange(3))),
        ValueError,
        "key labels must have shape",
    ),
    (
        lambda: fused_pool(QUERY, KEY, VALUE, Gaussian(), exclude=(torch.rand(3), torch.arange(4))),
        TypeError,
        "query labels must be integers",
    ),
    (lambda: Gaussian(torch.tensor(torch.nan)), ValueError, "w must be finite"),
    (lambda: Gaussian(torch.ones(1, 1, 1)), ValueError, "w must have"),
    (lambda: Nearest(torch.tensor(1.0)), TypeError, "w of Nearest must be a number"),
    (
        lambda: regard.pool(QUERY[0], KEY[0], VALUE[0], Gaussian(), engine="tiled"),
        ValueError,
        "engine must be 'auto' or 'fused'",
    ),
]


@pytest.mark.parametrize(("run", "error", "words"), ERRORS)
def test_errors_name_what_is_wrong(run, error, words):
    with pytest.raises(error, match=words):
        run()
