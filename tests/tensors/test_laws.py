"""What holds whatever the numbers: empty rows, masks as deletion, order, batch, tiles, layouts, the range of halves."""

from __future__ import annotations

import pytest
import torch

from regard.engines.gpu import launch
from regard.engines.gpu.layout import ADDITIVE, DOT, Visibility, tile_score
from regard.scores import Additive, DotProduct, Epanechnikov, Gaussian, Laplace
from regard.tensors import fused_pool
from support.fused_cases import answer, case, excess, plain_pool
from support.soak import FULL

WAYS = pytest.mark.parametrize("way", ["plain", "blocks", "compiled", "programs"])
BOTH = pytest.mark.parametrize("way", ["blocks", "compiled", "programs"])


def take(way: str, request: pytest.FixtureRequest) -> None:
    if way != "plain":
        request.getfixturevalue(way)


@WAYS
@pytest.mark.parametrize("score", ["gaussian", "epanechnikov", "dot", "additive"])
def test_47_a_fully_masked_row_is_zeros_with_finite_gradients(score, way, request):
    take(way, request)
    it = case(score, "mask", torch.float32, B=1, Q=4, K=5)
    it.options["mask"] = it.options["mask"].clone()
    it.options["mask"][:] = False
    output, logsumexp, *grads = answer(it, torch.float32)
    assert not output.any()
    assert (logsumexp == -torch.inf).all()
    assert all(torch.isfinite(grad).all() and not grad.any() for grad in grads)


@WAYS
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("score", ["gaussian", "tricube", "dot", "additive", "gaussian-matrix"])
def test_48_what_a_mask_hides_never_leaks(score, bad, way, request):
    take(way, request)
    it = case(score, "plain", torch.float32, B=1, Q=4, K=6)
    it.options["mask"] = torch.ones(1, 4, 6, dtype=torch.bool)
    it.options["mask"][..., 2] = False
    it.options["mask"][:, 3] = False
    clean = answer(it, torch.float32)
    for part, row in ((1, 2), (2, 2), (0, 3)):
        it.leaves[part][:, row] = bad
    for got, expected in zip(answer(it, torch.float32), clean, strict=True):
        assert torch.allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_who_attends_to_nan_sees_it(programs):
    query, key = torch.zeros(2, 1), torch.tensor([[0.0], [torch.nan]])
    mask = torch.tensor([[True, False], [True, True]])
    for score in (Gaussian(), Epanechnikov()):
        output, _ = fused_pool(query, key, torch.ones(2, 1), score, mask=mask)
        assert output[0].item() == 1.0
        assert torch.isnan(output[1]).all()


@BOTH
def test_49_a_masked_key_gets_nothing_from_a_far_query(way, request):
    take(way, request)
    query, key, value = torch.tensor([[1e3]]), torch.tensor([[0.0], [1e3]]), torch.tensor([[1.0], [2.0]])
    output, _ = fused_pool(query, key, value, Gaussian(), mask=torch.tensor([True, False]))
    assert output.item() == 1.0


@BOTH
def test_far_queries_take_the_nearest_key(way, request):
    take(way, request)
    query = torch.tensor([[1e3], [-1e4], [0.5]])
    key, value = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[1.0], [2.0], [3.0]])
    output, logsumexp = fused_pool(query, key, value, Gaussian(w=3.0))
    assert output[:2, 0].tolist() == [3.0, 1.0]
    assert torch.isfinite(logsumexp).all()


@WAYS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_53_scores_past_half_precision(dtype, way, request):
    take(way, request)
    query = torch.full((1, 2, 4), 300.0, dtype=dtype)
    key = torch.tensor([[300.0] * 4, [299.0] * 4]).to(dtype)
    value = torch.tensor([[1.0], [2.0]], dtype=dtype)
    for score in (DotProduct(), Gaussian(w=300.0), Laplace(w=300.0)):
        output, logsumexp = fused_pool(query, key, value, score)
        assert torch.isfinite(output).all()
        assert logsumexp.dtype == torch.float32
        assert torch.isfinite(logsumexp).all()
    assert fused_pool(query, key, value, DotProduct())[1].min() > 65504


@BOTH
@pytest.mark.parametrize("score", ["gaussian", "additive", "dot", "biweight"])
def test_keys_in_any_order(score, way, request):
    take(way, request)
    it = case(score, "plain", torch.float64, B=1, Q=5)
    order = torch.randperm(it.leaves[1].shape[1])
    turned = it._replace(leaves=[it.leaves[0], it.leaves[1][:, order], it.leaves[2][:, order], *it.leaves[3:]])
    a, b = answer(it, torch.float64), answer(turned, torch.float64)
    a[3], a[4] = a[3][:, order], a[4][:, order]
    assert all(torch.allclose(x, y, rtol=1e-12, atol=1e-13) for x, y in zip(a, b, strict=True))


@BOTH
def test_a_batch_is_its_members(way, request):
    take(way, request)
    query, key, value = torch.randn(3, 5, 2), torch.randn(7, 2), torch.randn(3, 7, 2)
    output, logsumexp = fused_pool(query, key, value, Gaussian(0.7))
    for b in range(3):
        one = fused_pool(query[b], key, value[b], Gaussian(0.7))
        assert torch.equal(output[b], one[0])
        assert torch.equal(logsumexp[b], one[1])
    stacked = fused_pool(query.reshape(3, 1, 5, 2), key, value.reshape(3, 1, 7, 2), Gaussian(0.7))
    assert torch.equal(stacked[0], output.reshape(3, 1, 5, 2))


@BOTH
@pytest.mark.parametrize("shared", [0, 1, 2])
def test_what_a_batch_shares_has_one_gradient(shared, way, request):
    take(way, request)
    it = case("gaussian", "plain", torch.float64, B=2, Q=4, K=5)
    whole = [leaf if n != shared else leaf[:1].expand_as(leaf).clone() for n, leaf in enumerate(it.leaves)]
    alone = [leaf if n != shared else leaf[:1] for n, leaf in enumerate(it.leaves)]
    each = answer(it._replace(leaves=whole), torch.float64)
    one = answer(it._replace(leaves=alone), torch.float64)
    assert torch.allclose(one[2 + shared], each[2 + shared].sum(0, keepdim=True), rtol=1e-12)


def test_54_layouts_are_equal(programs):
    it = case("gaussian", "mask", torch.float32, B=1, Q=6, K=7)
    expected = answer(it, torch.float32)
    strided = [leaf.transpose(-1, -2).contiguous().transpose(-1, -2) if leaf.ndim == 3 else leaf for leaf in it.leaves]
    mask = it.options["mask"].transpose(1, 2).contiguous().transpose(1, 2)
    found = answer(it._replace(leaves=strided, options={"mask": mask}), torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("code", [0, 4, DOT, ADDITIVE] if FULL else [0, ADDITIVE])
def test_tiles_and_shares_do_not_matter(code, programs):
    query, key, value = (torch.randn(1, n, 4, dtype=torch.float64) for n in (33, 50, 50))
    w = torch.randn(4, dtype=torch.float64) if code == ADDITIVE else torch.tensor(0.4, dtype=torch.float64)
    score, visibility = tile_score(code, query, key, w), Visibility()
    first = launch.launch_forward(score, value, visibility)
    grad, level = torch.randn_like(query), torch.randn(1, 33, dtype=torch.float64)
    given = (score, value, visibility, first.state, grad, level)
    sums = [launch.launch_backward(*given, mirror=mirror) for mirror in (False, True)]
    tiles = (
        ((64, 1, 1, None, None, False, 16), (32, 1, 1, None, None, False, 16))
        if code == ADDITIVE
        else ((64, 16), (32, 32))
    )
    for tile, splits in zip((launch.TileShape(*tile) for tile in tiles), (1, 2), strict=True):
        again = launch.launch_forward(score, value, visibility, tile=tile, splits=splits)
        assert torch.allclose(again.output, first.output, rtol=1e-12)
        for mirror in (False, True):
            more = launch.launch_backward(*given, mirror=mirror, tile=tile, splits=splits)
            assert torch.allclose(more.sides, sums[mirror].sides, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("width", [3, 20, 40] if FULL else [20])
def test_units_in_registers_are_units_in_memory(width, programs, monkeypatch):
    """However many lanes share a pair."""
    query, key, value = (torch.randn(2, n, c, dtype=torch.float64) for n, c in ((12, width), (7, width), (7, 3)))
    score, visibility = tile_score(ADDITIVE, query, key, torch.randn(width, dtype=torch.float64)), Visibility()
    assert launch.unit_lanes(score, 3) > 0
    grad, level = torch.randn(2, 12, 3, dtype=torch.float64), torch.randn(2, 12, dtype=torch.float64)

    def sums():
        first = launch.launch_forward(score, value, visibility)
        given = (score, value, visibility, first.state, grad, level)
        one, other = launch.launch_backward(*given, mirror=False, want_w=1), launch.launch_backward(*given, mirror=True)
        return first.output, one.sides, one.squares, other.sides, other.columns

    found = sums()
    monkeypatch.setattr(launch, "unit_lanes", lambda score, columns: 0)
    for x, y in zip(found, sums(), strict=True):
        assert torch.allclose(x, y, rtol=1e-10, atol=1e-12)


def test_answers_alone_are_the_same(programs):
    """Without gradients to come, additive scores have a program of their own."""
    it = case("additive", "lengths", torch.float32, B=2, Q=5, K=9)
    with torch.no_grad():
        alone = fused_pool(*it.leaves[:3], it.score(*it.leaves[3:]), **it.options)
    for x, y in zip(alone, answer(it, torch.float32), strict=False):
        assert torch.allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reach", [1.0, 12.0, 60.0])
def test_hidden_units_however_far_they_reach(reach, programs):
    """Exponentials of single precision would overflow beyond 44; saturated units must not."""
    it = case("additive", "plain", torch.float32, B=1, Q=5, K=6)
    it.leaves[0].mul_(reach)
    it.leaves[1].mul_(reach)
    truth, rough = answer(it, torch.float64, plain_pool), answer(it, torch.float32, plain_pool)
    # Where units are saturated little is left of 1 − tanh², here as there.
    assert max(excess(answer(it, torch.float32), truth, rough, torch.float32)) <= 2.0


@BOTH
@pytest.mark.parametrize(("B", "Q", "K"), [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_52_empty_in_empty_out(B, Q, K, way, request):
    take(way, request)
    leaves = [torch.randn(B, n, 2, requires_grad=True) for n in (Q, K, K)]
    for score in (Gaussian(), Additive(torch.ones(2, 2), torch.ones(2, 2), torch.ones(2))):
        output, logsumexp = fused_pool(*leaves, score)
        assert output.shape == (B, Q, 2)
        assert not output.any()
        assert (logsumexp == -torch.inf).all()
        output.sum().backward()


def test_weights_of_any_size(programs):
    query, key, value = torch.randn(1, 3, 2), torch.randn(1, 5, 2), torch.randn(1, 5, 1)
    weight = torch.rand(5, dtype=torch.float64) + 0.1
    expected, height = fused_pool(query, key, value, Gaussian(), sample_weight=weight)
    for size in (1e-290, 1e290):
        output, logsumexp = fused_pool(query, key, value, Gaussian(), sample_weight=weight * size)
        assert torch.equal(output, expected)
        assert torch.allclose(logsumexp, height + torch.log(torch.tensor(size, dtype=torch.float64)).float())
