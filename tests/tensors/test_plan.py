"""``explain_plan`` of tensors names the way that is then taken, whatever the shapes, scores, options and device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import regard
from regard import engines
from regard.engines.gpu.layout import DOT_PRODUCTS, GAUSSIAN_PRODUCTS
from regard.nn import AttentionPooling, GaussianScore, sparsemax
from regard.scores import Additive, DotProduct, Epanechnikov, Gaussian, Laplace
from regard.tensors import layer_autograd, operators
from regard.tensors import tensor_planner as planner
from regard.tensors.quick_pooling import quick_pool

HIDDEN = Additive(torch.ones(4, 3), torch.ones(4, 3), torch.ones(4))


@pytest.fixture
def taken(monkeypatch):
    """Names of the ways that calls go, in their order."""
    seen: list[str] = []

    def spied(where: Any, attribute: str, name: Any) -> None:
        real = getattr(where, attribute)

        def noted(*args: Any, **options: Any) -> Any:
            seen.append(name(*args) if callable(name) else name)
            return real(*args, **options)

        monkeypatch.setattr(where, attribute, noted)

    def program(*args: Any) -> str:
        if not planner.on_programs(args[0]):
            return "compiled"
        return "products" if args[4] in (GAUSSIAN_PRODUCTS, DOT_PRODUCTS) else "fused"

    def quick(*args: Any) -> Any:
        found = quick_pool(*args)
        if found is not None:
            seen.append("dense")
        return found

    monkeypatch.setattr(regard.tensors, "quick_pool", quick)
    spied(regard.tensors, "dense_pool", "dense")
    spied(regard.tensors.query_blocks._BlockFunction, "apply", "blocks")
    spied(layer_autograd, "layer_forward", "layer")
    spied(operators, "pool_op", program)
    # An engine of a CPU is loaded by its name.
    spied(engines, "load", lambda name: name)
    return seen


def tensors(batch: tuple[int, ...], Q: int, K: int, d: int, P: int, dtype: torch.dtype = torch.float32) -> Any:
    return [torch.randn(*batch, n, c).to(dtype) for n, c in ((Q, d), (K, d), (K, P))]


#          batch   Q     K     d  P  score              options
ON_A_CPU = [
    ((), 5, 7, 1, 1, Gaussian(), {}),
    ((2, 3), 5, 7, 3, 2, Laplace(0.5), {"mask": torch.ones(7) > 0}),
    ((2,), 0, 7, 3, 2, HIDDEN, {}),
    ((1,), 700, 800, 3, 1, Gaussian(), {}),
    ((1,), 700, 800, 3, 1, Gaussian(99.0), {}),
    ((3,), 1000, 1100, 3, 1, Gaussian(0.5), {}),
    ((3,), 700, 800, 70, 1, Gaussian(0.5), {}),
    ((2,), 700, 800, 3, 1, DotProduct(), {"sample_weight": torch.ones(800)}),
    ((2, 1), 1200, 1000, 3, 1, HIDDEN, {}),
    ((1,), 2500, 3000, 2, 1, Epanechnikov(20.0), {}),
    ((), 2500, 3000, 1, 1, Epanechnikov(1.0), {"exclude": (torch.arange(2500), torch.arange(3000))}),
    ((), 700, 800, 3, 1, Gaussian(torch.tensor(0.7, requires_grad=True)), {"mask": torch.zeros(700, 800)}),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("batch", "Q", "K", "d", "P", "score", "options"), ON_A_CPU)
def test_on_a_cpu(batch, Q, K, d, P, score, options, dtype, taken):
    given = tensors(batch, Q, K, d, P, dtype)
    made = regard.explain_plan(*given, score, **options)
    assert not taken, "nothing is computed"
    regard.pool(*given, score, **options)
    ways = [way for way in dict.fromkeys(taken) if way != "compiled"]
    assert ways[0] == made.steps[0].engine
    assert set(ways) <= {step.engine for step in made.steps}
    assert (taken[0] == "compiled") == (made.steps[0].engine not in ("dense", "blocks"))
    assert made.sketch.batch == batch
    assert (made.sketch.queries, made.sketch.keys) == (Q, K)


def test_members_of_a_batch_may_take_different_engines(taken):
    x = torch.cat([torch.rand(1, 4000, 2), 1e3 * torch.rand(1, 4000, 2)]).double()
    made = regard.explain_plan(x, x, x[..., :1], Gaussian(3.0))
    regard.pool(x, x, x[..., :1], Gaussian(3.0))
    assert [way for way in taken if way != "compiled"] == ["tiled", "pruned"]
    assert [step.engine for step in made.steps] == ["tiled", "tiled", "pruned", "pruned"]
    assert "(1 of the 2 in the batch)" in str(made)


#              batch  Q   K   d   P  score           options                              way
ON_PROGRAMS = [
    ((2, 3), 5, 7, 3, 2, Gaussian(), {}, "layer"),
    ((), 5, 7, 3, 1, DotProduct(), {"mask": torch.ones(5, 7) > 0}, "layer"),
    ((1,), 5, 7, 3, 1, HIDDEN, {}, "layer"),
    ((1,), 5, 7, 9, 1, Gaussian(), {"mask": torch.zeros(5, 7)}, "fused"),
    ((1,), 5, 7, 9, 1, Gaussian(), {"sample_weight": torch.ones(7)}, "products"),
    ((1,), 5, 7, 9, 1, Gaussian(50.0), {"sample_weight": torch.ones(7)}, "fused"),
    ((1,), 5, 7, 9, 1, Gaussian(torch.eye(9)), {}, "products"),
    ((2,), 5, 7, 3, 1, Laplace(), {}, "fused"),
    ((2,), 5, 7, 16, 1, DotProduct(), {"exclude": (torch.arange(5), torch.arange(7))}, "products"),
    ((2,), 5, 7, 3, 1, DotProduct(), {"exclude": (torch.arange(5), torch.arange(7))}, "fused"),
    ((2,), 0, 7, 3, 1, Gaussian(), {}, "dense"),
]


@pytest.mark.parametrize(("batch", "Q", "K", "d", "P", "score", "options", "way"), ON_PROGRAMS)
def test_on_programs(batch, Q, K, d, P, score, options, way, taken, interpreted, monkeypatch):
    monkeypatch.setattr(planner, "on_programs", lambda query: True)
    monkeypatch.setattr(planner, "MIN_PRODUCTS_WORK", 0)
    monkeypatch.setitem(planner.MAX_DENSE, "cpu", -1)
    given = [0.3 * part for part in tensors(batch, Q, K, d, P)]
    made = regard.explain_plan(*given, score, **options)
    assert made.steps[0].engine == way
    regard.pool(*given, score, **options)
    assert taken == [way]
    # What is far from all keys is the second step's.
    if isinstance(score, Gaussian | Laplace) and Q:
        assert [step.engine for step in made.steps] == [way, "dense"]
        regard.pool(given[0] + 1e30, *given[1:], score, **options)
        assert taken == [way, "dense"]


def test_small_problems_of_other_scores_are_dense_on_a_gpu_too(taken, layers):
    given = tensors((2,), 5, 7, 3, 1)
    assert regard.explain_plan(*given, Epanechnikov(0.1)).steps[0].engine == "dense"
    regard.pool(*given, Epanechnikov(0.1))
    assert taken == ["dense"]


@pytest.mark.parametrize(("answer", "way"), [(1, "flash"), (3, "cudnn"), (0, "dense"), (2, "dense")])
def test_half_precision_dot_products_go_where_torch_says(answer, way, monkeypatch):
    """Of tensors that say they lie on a GPU: nothing is computed."""

    class OnCuda(torch.Tensor):
        is_cuda = True

    monkeypatch.setattr(torch, "_fused_sdp_choice", lambda *args, **options: answer)
    monkeypatch.setattr(planner, "MAX_LAYER_WORK", 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    given = [part.as_subclass(OnCuda) for part in tensors((2,), 5, 7, 16, 16, torch.float16)]
    assert planner.choose(planner.TensorInputs(*given, torch.Size([2])), DotProduct()) == way
    mask = torch.ones(5, 7) > 0
    assert planner.choose(planner.TensorInputs(*given, torch.Size([2]), mask), DotProduct()) == "dense"


def test_layers_ask_the_same_planner(taken, monkeypatch):
    given = tensors((1,), 30, 40, 2, 1)
    AttentionPooling(GaussianScore())(*given)
    assert not taken, "scores and weights of a small layer are its own"
    monkeypatch.setattr(planner, "MAX_PAIRS_WITHOUT_BLOCKS", 30 * 40 - 1)
    AttentionPooling(GaussianScore())(*given)
    assert taken == ["blocks"] == [regard.explain_plan(*given, Gaussian()).steps[0].engine]
    AttentionPooling(GaussianScore())(*given, need_weights=True)
    AttentionPooling(GaussianScore(), normalise=sparsemax)(*given)
    assert len(taken) == 1


def test_the_plan_in_words():
    given = tensors((2, 3), 5, 7, 3, 1)
    assert str(regard.explain_plan(*given, Gaussian(), mask=torch.ones(5, 7) > 0)).splitlines() == [
        "a batch of 2 × 3, each 5 queries × 7 keys in 3-D, 1 value column, float32 on cpu, Gaussian score, with mask",
        "  1. dense, Gaussian: 630 numbers in the scores are few enough for plain torch",
        "  exact to rounding: no query loses any of its attention mass",
    ]
    text = str(regard.explain_plan(*tensors((), 700, 800, 3, 1), Gaussian(), engine="fused"))
    assert text.startswith("700 queries × 800 keys in 3-D, 1 value column, float32 on cpu, Gaussian score\n  1. dense,")


def test_explain_plan_refuses_what_pool_refuses():
    query, key, value = tensors((2,), 5, 7, 3, 1)
    bad = key.clone()
    bad[1, 2] = torch.nan
    for given, options, words in (
        ((query, bad, value), {}, "key row 2 is not finite"),
        ((query, key, value[:, :2]), {}, "value has 2 rows but key has 7"),
        ((query, key, value), {"engine": "tiled"}, "engine must be 'auto' or 'fused'"),
        ((query, key, value), {"mask": torch.full((5, 7), torch.nan)}, "neither NaN nor"),
    ):
        for function in (regard.pool, regard.explain_plan):
            with pytest.raises(ValueError, match=words):
                function(*given, Gaussian(), **options)
