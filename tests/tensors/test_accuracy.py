"""Every score, by every way, against float64: no worse than plain torch at the same precision."""

from __future__ import annotations

import pytest
import torch

from regard.scores import DotProduct
from regard.tensors import fused_pool
from support.fused_cases import OPTIONS, SCORES, answer, case, excess, parameter_terms, plain_pool
from support.soak import FULL

# One option for each score, so that every score and every option is run, and Gaussian with all.
PAIRS = [(score, OPTIONS[number % len(OPTIONS)]) for number, score in enumerate(SCORES)]
PAIRS += [("gaussian", option) for option in OPTIONS] + [
    ("additive", "mask"),
    ("dot", "bias"),
    ("epanechnikov", "mask"),
]
every_pair = pytest.mark.parametrize(("score", "option"), sorted(set(PAIRS)))


def agree(found, truth) -> bool:
    """Equal to 1e-10: the layer is the estimator."""
    return all(torch.allclose(got, exact, rtol=1e-10, atol=1e-11) for got, exact in zip(found, truth, strict=True))


@every_pair
def test_compiled_programs(score, option, compiled):
    it = case(score, option, torch.float32)
    truth, rough = answer(it, torch.float64, plain_pool), answer(it, torch.float32, plain_pool)
    assert max(excess(answer(it, torch.float32), truth, rough, torch.float32)) <= 1.0


@every_pair
def test_compiled_programs_in_double(score, option, compiled):
    it = case(score, option, torch.float64)
    assert agree(answer(it, torch.float64), answer(it, torch.float64, plain_pool))


@every_pair
def test_triton_programs(score, option, programs):
    it = case(score, option, torch.float32, B=2 if FULL or option == "lengths" else 1, K=37 if FULL else 21)
    truth, rough = answer(it, torch.float64, plain_pool), answer(it, torch.float32, plain_pool)
    assert max(excess(answer(it, torch.float32), truth, rough, torch.float32, parameter_terms(it))) <= 1.0


@pytest.mark.parametrize("score", ["gaussian-feature", "laplace", "cosine", "additive"])
def test_triton_programs_in_double(score, programs):
    it = case(score, "mask", torch.float64, B=1, P=1)
    assert agree(answer(it, torch.float64), answer(it, torch.float64, plain_pool))


# Scores from products are rounded to 22 bits, not to 24, and w is pulled at from both sides.
TWO_BITS = 4.0

#          Q   K    P   d   ragged against tiles of 32 and 16; 20 features and 20 columns go other ways than few
SHAPES = [(1, 1, 1, 1), (2, 70, 1, 2), (65, 3, 5, 1), (5, 40, 1, 20), (33, 18, 20, 3)]


@pytest.mark.parametrize(("Q", "K", "P", "d"), SHAPES)
@pytest.mark.parametrize("score", ["gaussian", "triangular", "dot", "additive"] if FULL else ["gaussian", "additive"])
def test_ragged_shapes(Q, K, P, d, score, programs):
    it = case(score, "plain", torch.float32, B=1, Q=Q, K=K, P=P, d=d)
    truth, rough = answer(it, torch.float64, plain_pool), answer(it, torch.float32, plain_pool)
    products = score == "dot" and max(d, P) >= 16
    found = excess(answer(it, torch.float32), truth, rough, torch.float32, parameter_terms(it))
    assert max(found) <= (TWO_BITS if products else 1.0)


@pytest.mark.parametrize("option", ["plain", "weights", "exclude"] if FULL else ["weights"])
@pytest.mark.parametrize(
    ("score", "d", "P"), [("gaussian", 9, 1), ("gaussian-feature", 20, 5), ("dot", 20, 1), ("dot", 3, 17)]
)
def test_matrix_products(score, d, P, option, programs, monkeypatch):
    from regard.tensors import tensor_planner as planner

    monkeypatch.setattr(planner, "MIN_PRODUCTS_WORK", 0)
    it = case(score, option, torch.float32, B=1, d=d, P=P)
    it.leaves[0].mul_(0.4), it.leaves[1].mul_(0.4)
    truth, rough = answer(it, torch.float64, plain_pool), answer(it, torch.float32, plain_pool)
    assert max(excess(answer(it, torch.float32), truth, rough, torch.float32)) <= TWO_BITS


def test_products_are_not_taken_where_they_lose(programs, monkeypatch):
    from regard.engines.gpu.layout import GAUSSIAN, GAUSSIAN_PRODUCTS
    from regard.tensors import operators
    from regard.tensors import tensor_planner as planner

    taken = []
    monkeypatch.setattr(planner, "MIN_PRODUCTS_WORK", 0)
    real = operators.pool_op
    monkeypatch.setattr(
        operators, "pool_op", lambda q, k, v, w, code, *rest: taken.append(code) or real(q, k, v, w, code, *rest)
    )
    for scale in (0.3, 30.0):
        it = case("gaussian", "plain", torch.float32, B=1, Q=4, K=5, d=8)
        it.leaves[0].mul_(scale), it.leaves[1].mul_(scale)
        truth, rough = answer(it, torch.float64, plain_pool), answer(it, torch.float32, plain_pool)
        assert max(excess(answer(it, torch.float32), truth, rough, torch.float32)) <= TWO_BITS
    assert taken == [GAUSSIAN_PRODUCTS, GAUSSIAN]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("way", ["blocks", "compiled", "programs"])
@pytest.mark.parametrize("score", ["gaussian", "additive"])
def test_half_precision_is_summed_in_single(score, way, dtype, request):
    request.getfixturevalue(way)
    it = case(score, "mask", dtype, B=1)
    truth, rough = answer(it, torch.float64, plain_pool), answer(it, dtype, plain_pool)
    found = answer(it, dtype)
    assert found[0].dtype == dtype
    assert found[1].dtype == torch.float32
    assert max(excess(found, truth, rough, dtype)) <= 1.0


def test_half_precision_products(programs):
    it = case("dot", "mask", torch.float16, B=1, d=16, P=17)
    truth, rough = answer(it, torch.float64, plain_pool), answer(it, torch.float16, plain_pool)
    assert max(excess(answer(it, torch.float16), truth, rough, torch.float16)) <= 1.0


def test_dot_products_have_a_gradient_at_w_0(programs):
    leaves = [torch.randn(2, n, 17) for n in (5, 7, 7)]
    found = []
    for pool in (fused_pool, plain_pool):
        w = torch.tensor(0.0, requires_grad=True)
        pool(*leaves, DotProduct(w))[0].square().sum().backward()
        found.append(w.grad)
    assert found[1].abs() > 0.1
    assert torch.allclose(*found, rtol=1e-4)
