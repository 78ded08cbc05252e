"""What the numbers are, by every way tensors take: not finite, or so far apart that squares overflow."""

from __future__ import annotations

import math

import pytest
import torch

import regard
from regard.scores import Additive, DotProduct, Epanechnikov, Gaussian, Laplace
from regard.tensors import fused_pool

WAYS = pytest.mark.parametrize("way", ["plain", "blocks", "compiled", "programs", "layers"])
KEY, VALUE = torch.tensor([[-1.0], [1.0]]), torch.tensor([2.0, 4.0])
SCORES = {
    "gaussian": Gaussian(),
    "laplace": Laplace(),
    "epanechnikov": Epanechnikov(0.1),
    "matrix": Gaussian([[0.5]]),
    "dot": DotProduct(),
    "additive": Additive([[1.0]], [[1.0]], [1.0]),
}


def take(way: str, request: pytest.FixtureRequest) -> None:
    if way != "plain":
        request.getfixturevalue(way)


def grads(output: torch.Tensor, *leaves: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(output.sum(), leaves, allow_unused=True, materialize_grads=True))


@WAYS
@pytest.mark.parametrize("score", SCORES)
def test_what_is_not_finite_is_the_error_of_arrays(score, way, request):
    take(way, request)
    for place, row in ((0, 1), (1, 2), (2, 0)):
        for bad in (math.nan, math.inf, -math.inf):
            given = [torch.zeros(2, 1), torch.zeros(3, 1), torch.tensor([1.0, 2.0, 100.0])]
            given[place].view(-1)[row] = bad
            with pytest.raises(ValueError, match="is not finite") as of_arrays:
                regard.pool(*(part.numpy() for part in given), SCORES[score])
            with pytest.raises(ValueError, match="is not finite") as of_tensors:
                regard.pool(*given, SCORES[score])
            assert str(of_tensors.value) == str(of_arrays.value)


@WAYS
def test_a_key_that_one_query_may_attend_to_is_in_use(way, request):
    take(way, request)
    key, mask = torch.tensor([[0.0], [math.nan]]), torch.tensor([[True, False], [True, True]])
    with pytest.raises(ValueError, match="key row 1 is not finite"):
        regard.pool(torch.zeros(2, 1), key, VALUE, Gaussian(), mask=mask)
    with pytest.raises(ValueError, match="key row 1 is not finite"):
        regard.pool(torch.zeros(2, 1), key, VALUE, Gaussian(), mask=torch.where(mask, 0.0, -math.inf))


@WAYS
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_mask_deletes_what_is_not_finite(bad, way, request):
    take(way, request)
    query = torch.tensor([[0.5], [0.2]], requires_grad=True)
    key = torch.tensor([[-1.0], [bad], [1.0]], requires_grad=True)
    value = torch.tensor([[2.0], [bad], [4.0]], requires_grad=True)
    allowed = torch.tensor([True, False, True])
    expected = regard.pool(query, key[allowed], value[allowed], Gaussian())
    for option in ({"mask": allowed}, {"mask": torch.where(allowed, 0.0, -math.inf)}, {"sample_weight": allowed.int()}):
        found = regard.pool(query, key, value, Gaussian(), **option)
        assert torch.allclose(found.output, expected.output)
        assert torch.allclose(found.logsumexp, expected.logsumexp)
        assert all(grad.isfinite().all() for grad in grads(found.output, query, key, value))


def test_compiled_code_cannot_stop_and_gives_nan():
    mask = torch.tensor([[True, False, True], [True, True, True]])
    pool = torch.compile(fused_pool, backend="eager")
    for part in (0, 1, 2):
        given = [torch.zeros(2, 1), torch.zeros(3, 1), torch.ones(3, 1)]
        given[part][1] = math.inf
        output, logsumexp = pool(*given, Gaussian(), mask=mask)
        assert output.isnan()[:, 0].tolist() == [False, True]
        assert logsumexp.isfinite()[0]


def test_a_float64_beyond_the_range_is_the_error_of_arrays():
    with pytest.raises(ValueError, match="query holds numbers beyond ±1e\\+307; rescale it"):
        regard.pool(torch.tensor([[2e307]], dtype=torch.float64), KEY.double(), VALUE.double(), Gaussian())


#        dtype    query  w      Gaussian, Laplace
FAR = [
    ("float32", 1e20, 1.0, 4.0, 2.0 + 2.0 / (1.0 + math.exp(-2.0))),
    ("float32", -1e30, 1.0, 2.0, 2.0 + 2.0 / (1.0 + math.exp(2.0))),
    ("float32", 0.3, 1e25, 4.0, 4.0),
    ("float32", 0.3, 1e200, 4.0, 4.0),
    ("float32", 0.0, 1e25, 3.0, 3.0),
    ("float16", 6e4, 1e30, 4.0, 4.0),
    ("float64", 1e20, 1.0, 4.0, 2.0 + 2.0 / (1.0 + math.exp(-2.0))),
    ("float64", 0.3, 1e200, 4.0, 4.0),
    ("float64", -0.3, 1e308, 2.0, 2.0),
    ("float64", 0.0, 1e200, 3.0, 3.0),
]


@WAYS
@pytest.mark.parametrize("score", [Gaussian, Laplace])
@pytest.mark.parametrize(("dtype", "at", "w", "gaussian", "laplace"), FAR)
def test_a_far_query_takes_the_nearest_key_and_ties_share(dtype, at, w, gaussian, laplace, score, way, request):
    take(way, request)
    kind, expected = getattr(torch, dtype), gaussian if score is Gaussian else laplace
    query, key, value = (
        torch.tensor(part, dtype=kind, requires_grad=True) for part in ([[0.5], [at]], KEY.tolist(), VALUE.tolist())
    )
    output, logsumexp = regard.pool(query, key, value, score(w))
    assert output[1].item() == pytest.approx(expected, rel=1e-3 if dtype == "float16" else 1e-6)
    assert logsumexp.isfinite().all()
    found = grads(output[1], query, key, value)
    assert all(grad.isfinite().all() for grad in found)
    share = (expected - 2.0) / 2.0
    assert found[2].tolist() == pytest.approx([1.0 - share, share], rel=1e-3 if dtype == "float16" else 1e-6)
    parameter = torch.tensor(min(w, 1e38) if dtype != "float64" else w, dtype=torch.promote_types(kind, torch.float32))
    parameter.requires_grad_()
    output, logsumexp = regard.pool(query, key, value, score(parameter))
    assert output[1].item() == pytest.approx(expected, rel=1e-3 if dtype == "float16" else 1e-6)
    assert grads(output, parameter)[0].isfinite()


@WAYS
def test_other_rows_do_not_feel_a_far_one(way, request):
    take(way, request)
    query, key, value = torch.randn(1, 5, 3), torch.randn(1, 7, 3), torch.randn(1, 7, 2)
    expected = regard.pool(query, key, value, Gaussian(0.7))
    far = torch.cat([query, torch.full((1, 1, 3), 1e20)], 1)
    for got, one in zip(regard.pool(far, key, value, Gaussian(0.7)), expected, strict=True):
        assert torch.allclose(got[:, :5], one, rtol=1e-6, atol=1e-7)


@WAYS
@pytest.mark.parametrize("score", [Gaussian, Laplace])
def test_the_nearest_that_is_not_hidden(score, way, request):
    """Leave-one-out at the limit: a query's own key is at distance 0, and may not be attended to."""
    take(way, request)
    place = torch.tensor([[0.0], [1.0], [3.0], [1e20]])
    value = torch.tensor([1.0, 2.0, 4.0, 8.0])
    rows = torch.arange(4)
    for option in ({"mask": ~torch.eye(4, dtype=torch.bool)}, {"exclude": (rows, rows)}):
        output, logsumexp = regard.pool(place, place, value, score(1e25), **option)
        assert output.tolist() == [2.0, 1.0, 2.0, 4.0]
        assert logsumexp.isfinite().all()


@WAYS
def test_ties_share_by_sample_weight(way, request):
    take(way, request)
    weight = torch.tensor([1.0, 3.0])
    output = regard.pool(torch.zeros(1, 1), KEY, VALUE, Gaussian(1e25), sample_weight=weight).output
    assert output.item() == pytest.approx(3.5, rel=1e-6)


@WAYS
@pytest.mark.parametrize("w", [[1e25, 0.0], [[1e25, 0.0], [0.0, 1e25]]])
def test_one_w_per_feature_and_a_matrix(w, way, request):
    take(way, request)
    key = torch.tensor([[0.0, 9.0], [2.0, 0.0]])
    output = regard.pool(torch.tensor([[0.4, 0.0]]), key, VALUE, Gaussian(w)).output
    assert output.item() == (2.0 if isinstance(w[0], float) else 4.0)


@pytest.mark.parametrize("way", ["plain", "programs", "layers"])
def test_the_gradient_of_a_far_query(way, request):
    """Of Laplace far away, output = 2 + 2/(1 + exp(−2w)); the key that is nearer by ε has w·ε more of a score."""
    take(way, request)
    w = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    key = KEY.double().requires_grad_()
    output = regard.pool(torch.tensor([[1e20]], dtype=torch.float64), key, VALUE.double(), Laplace(w)).output
    slope = 1.0 / (1.0 + math.exp(-2.0)) / (1.0 + math.exp(2.0))
    found = grads(output, w, key)
    assert found[0].item() == pytest.approx(4.0 * slope, rel=1e-9)
    assert found[1].flatten().tolist() == pytest.approx([-2.0 * slope, 2.0 * slope], rel=1e-9)
