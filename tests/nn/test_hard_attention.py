"""Hard attention: what it draws, what it returns, masks, and gradients that can be enumerated."""

from __future__ import annotations

import copy

import pytest
import torch

from regard.nn import (
    BilinearScore,
    DotProductScore,
    GaussianScore,
    HardAttention,
    LearnedBaseline,
    LeaveOneOut,
    MovingAverage,
)
from support.modules import checked_twice, inputs
from support.soak import FULL

ESTIMATORS = ("reinforce", "straight_through", "gumbel", "marginal")
DRAWING = ("reinforce", "straight_through", "gumbel")
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)

# One query, four keys; the task: a cost that is no straight line in the value, so that soft and hard differ.
QUERY = torch.tensor([0.5, -1.0, 0.3], dtype=torch.float64)
KEYS = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
VALUES = torch.tensor([[1.0], [-2.0], [0.5], [3.0]], dtype=torch.float64)


def cost_of(output):
    return (output.squeeze(-1) - 2.0).square() + 10.0


def enumerated(temperature=1.0):
    """∇_query Σ_k weight_k cost_k, by going through all keys."""
    query = QUERY.clone().requires_grad_()
    weights = torch.softmax(KEYS @ query / 3**0.5 / temperature, 0)
    (weights * cost_of(VALUES)).sum().backward()
    return query.grad


def sampled(attention, draws):
    """One gradient of the query for every draw, (draws, 3): each draw has a copy of the query to itself."""
    queries = QUERY.expand(draws, 1, 3).clone().requires_grad_()
    pooled = attention(queries, KEYS.expand(draws, 4, 3), VALUES.expand(draws, 4, 1))
    pooled.objective(cost_of(pooled.output)).sum().backward()
    return queries.grad[:, 0]


def assert_mean(gradients, expected):
    error = gradients.std(0) / len(gradients) ** 0.5
    assert ((gradients.mean(0) - expected).abs() < 3.0 * error).all()


# ---- experiments with known answers


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"baseline": MovingAverage()},
        {"baseline": LearnedBaseline(3).double()},
        {"baseline": LeaveOneOut(), "samples": 4},
        {"samples": 4},
    ],
    ids=["none", "moving average", "learned", "leave-one-out", "samples"],
)
def test_the_enumerated_gradient_lies_within_three_standard_errors(options, temperature):
    torch.manual_seed(5)
    attention = HardAttention(DotProductScore(), temperature=temperature, **copy.deepcopy(options))
    draws = 100_000 // options.get("samples", 1)
    assert_mean(sampled(attention, draws), enumerated(temperature))


def test_baselines_leave_the_mean_and_lower_the_variance():
    draws, spread = 20_000, {}
    moving, learned = MovingAverage(), LearnedBaseline(3).double()
    for name, options in {
        "none": {},
        "moving": {"baseline": moving},
        "learned": {"baseline": learned},
        "none of four": {"samples": 4},
        "left out of four": {"samples": 4, "baseline": LeaveOneOut()},
    }.items():
        attention = HardAttention(DotProductScore(), **options)
        trainer = torch.optim.SGD([p for p in attention.parameters() if p.requires_grad] or [torch.zeros(1)], lr=2e-4)
        for _ in range(50):  # what can settle settles first
            trainer.zero_grad()
            sampled(attention, 1000)
            trainer.step()
        gradients = sampled(attention, draws)
        assert_mean(gradients, enumerated())
        spread[name] = gradients.var(0).sum().item()
    assert spread["moving"] < 0.5 * spread["none"]
    assert spread["learned"] < 0.5 * spread["none"]
    assert spread["left out of four"] < 0.5 * spread["none of four"]


def test_the_marginal_gradient_is_the_enumerated_one():
    attention = HardAttention(DotProductScore(), "marginal")
    assert torch.allclose(sampled(attention, 1)[0], enumerated(), rtol=1e-12)
    pooled = attention(QUERY[None, None], KEYS[None], VALUES[None])
    assert torch.equal(pooled.output[:, 0, 0], VALUES)
    assert torch.equal(pooled.choice.flatten(), torch.arange(4))
    weights = torch.softmax(KEYS @ QUERY / 3**0.5, 0)
    assert torch.allclose(pooled.objective(cost_of(pooled.output)), (weights * cost_of(VALUES)).sum(), rtol=1e-12)


def test_gumbel_comes_near_the_enumerated_gradient_as_it_cools():
    """Biased at every temperature, less so at a low one."""
    draws = 200_000 if FULL else 50_000
    biases = []
    for temperature in (2.0, 0.3):
        gradients = sampled(HardAttention(DotProductScore(), "gumbel", temperature=temperature), draws)
        biases.append((gradients.mean(0) - enumerated()).norm().item())
    assert biases[1] < 0.5 * biases[0]


def test_straight_through_has_the_slope_of_the_average():
    """Where the cost is a straight line in the value, soft and hard have the same expectation: no bias is left."""
    attention = HardAttention(DotProductScore(), "straight_through")
    query = QUERY[None, None].clone().requires_grad_()
    pooled = attention(query, KEYS[None], VALUES[None])
    pooled.objective(3.0 * pooled.output.squeeze(-1)).sum().backward()
    soft = QUERY.clone().requires_grad_()
    (3.0 * torch.softmax(KEYS @ soft / 3**0.5, 0) @ VALUES.squeeze(-1)).backward()
    assert torch.allclose(query.grad[0, 0], soft.grad, rtol=1e-12)


@pytest.mark.parametrize("estimator", DRAWING)
def test_draws_follow_the_weights(estimator):
    draws = 100_000
    attention = HardAttention(DotProductScore(), estimator, samples=draws)
    pooled = attention(QUERY[None, None], KEYS[None], VALUES[None])
    expected = torch.softmax(KEYS @ QUERY / 3**0.5, 0)
    shares = torch.bincount(pooled.choice.flatten(), minlength=4) / draws
    assert ((shares - expected).abs() < 4.0 * (expected * (1 - expected) / draws).sqrt()).all()
    assert torch.allclose(pooled.weights[0, 0], expected, rtol=1e-12)
    assert torch.equal(pooled.output.squeeze(), VALUES.squeeze(-1)[pooled.choice.squeeze()]), (
        "a value, to the last digit"
    )
    assert torch.allclose(pooled.log_prob.squeeze(), expected.log()[pooled.choice.squeeze()], rtol=1e-12)
    assert torch.allclose(pooled.entropy[0, 0], -(expected * expected.log()).sum(), rtol=1e-12)


def test_temperature_sharpens_the_weights():
    scores = KEYS @ QUERY / 3**0.5
    for temperature in (0.1, 1.0, 10.0):
        pooled = HardAttention(DotProductScore(), temperature=temperature)(QUERY[None, None], KEYS[None], VALUES[None])
        assert torch.allclose(pooled.weights[0, 0], torch.softmax(scores / temperature, 0), rtol=1e-12)


# ---- the objective


@pytest.mark.parametrize("estimator", DRAWING)
@pytest.mark.parametrize("samples", [1, 3])
def test_the_objective_has_the_value_of_the_cost(estimator, samples):
    q, k, v = inputs()
    attention = HardAttention(DotProductScore(), estimator, samples=samples, entropy_weight=0.002)
    pooled = attention(q, k, v)
    cost = pooled.output.square().sum(-1)
    assert cost.shape == ((samples, 2, 3) if samples > 1 else (2, 3)) == pooled.choice.shape
    mean = cost.mean(0) if samples > 1 else cost
    assert torch.allclose(pooled.objective(cost), mean - 0.002 * pooled.entropy, rtol=1e-12)


@every_estimator
def test_the_entropy_bonus_has_the_gradient_of_the_entropy(estimator):
    q, k, v = inputs()
    attention = HardAttention(DotProductScore(), estimator, entropy_weight=0.7)
    leaf, other = q.clone().requires_grad_(), q.clone().requires_grad_()
    pooled = attention(leaf, k, v)
    pooled.objective(0.0 * pooled.output.sum(-1)).sum().backward()
    weights = torch.softmax(other @ k.transpose(1, 2) / 3**0.5, -1)
    (0.7 * (weights * weights.log()).sum()).backward()
    assert torch.allclose(leaf.grad, other.grad, rtol=1e-10, atol=1e-13)


def test_one_cost_for_all_queries_of_a_batch_entry():
    """The gradient of log p of all choices together, times one cost."""
    q, k, v = inputs()
    attention = HardAttention(DotProductScore())
    leaf = q.clone().requires_grad_()
    pooled = attention(leaf, k, v)
    cost = torch.tensor([2.0, -1.0], dtype=torch.float64)
    objective = pooled.objective(cost)
    assert torch.equal(objective, cost)
    (expected,) = torch.autograd.grad((cost * pooled.log_prob.sum(-1)).sum(), leaf, retain_graph=True)
    objective.sum().backward()
    assert torch.allclose(leaf.grad, expected, rtol=1e-12)
    several = HardAttention(DotProductScore(), samples=3, baseline=LeaveOneOut(), entropy_weight=0.1)(q, k, v)
    assert several.objective(torch.rand(3, 2)).shape == (2,)
    learned = HardAttention(DotProductScore(), baseline=LearnedBaseline(3))(q, k, v)
    assert learned.objective(cost).shape == (2,)


def test_gradients_flow_to_the_value_that_was_chosen():
    q, k, v = inputs()
    v.requires_grad_()
    pooled = HardAttention(DotProductScore())(q, k, v)
    pooled.output.sum().backward()
    seen = torch.zeros(2, 5, dtype=torch.float64).scatter_add_(1, pooled.choice, torch.ones(2, 3, dtype=torch.float64))
    assert torch.equal(v.grad, seen[..., None].expand_as(v))


@pytest.mark.parametrize("options", [{}, {"attn_mask": torch.tensor([True, False, True, True, False])}])
def test_exact_estimators_pass_gradcheck(options):
    q, k, v = (t.requires_grad_() for t in inputs())
    attention = HardAttention(BilinearScore(3, 3, dtype=torch.float64), "marginal", entropy_weight=0.3)

    def objective(*tensors):
        pooled = attention(*tensors, **options)
        return pooled.objective(pooled.output.sin().sum(-1))

    checked_twice(objective, (q, k, v))


# ---- baselines


def test_the_moving_average_is_that_of_xu():
    """b ← 0.9 b + 0.1 cost, from the first mean on, and used before it is moved."""
    baseline, queries = MovingAverage(), torch.zeros(2, 3)
    levels = [baseline(cost * torch.ones(1, 2), queries).item() for cost in (5.0, 7.0, 9.0)]
    assert levels == pytest.approx([0.0, 5.0, 5.2])
    assert baseline.level.item() == pytest.approx(0.9 * 5.2 + 0.1 * 9.0)
    baseline.eval()(torch.full((1, 2), 100.0), queries)
    assert baseline.level.item() == pytest.approx(5.58), "it does not move outside training"
    twin = MovingAverage()
    twin.load_state_dict(baseline.state_dict())
    assert twin(torch.ones(1, 2), queries).item() == pytest.approx(5.58)


def test_the_learned_baseline_learns_the_mean_cost_and_nothing_else_does():
    attention = HardAttention(DotProductScore(), baseline=LearnedBaseline(3).double())
    trainer = torch.optim.Adam(attention.baseline.parameters(), lr=0.2)
    for _ in range(150):
        trainer.zero_grad()
        queries = sampled(attention, 200)
        trainer.step()
    weights = torch.softmax(KEYS @ QUERY / 3**0.5, 0)
    expected = (weights * cost_of(VALUES)).sum()
    assert abs(attention.baseline(torch.zeros(1, 1, dtype=torch.float64), QUERY[None]) - expected) < 1.0
    assert queries.isfinite().all()


def test_leave_one_out_is_the_mean_of_the_others():
    level = LeaveOneOut()(torch.tensor([[1.0], [2.0], [6.0]]), torch.zeros(1, 1))
    assert level.tolist() == [[4.0], [3.5], [1.5]]


# ---- masks and modes


@every_estimator
def test_only_keys_that_may_be_attended_to_are_drawn(estimator):
    q, k, v = inputs(batch=2, queries=40)
    mask = torch.rand(2, 40, 5) < 0.5
    mask[0, 0] = False
    dirty_k, dirty_v = k.clone(), v.clone()
    mask[:, :, 2] = False
    dirty_k[:, 2], dirty_v[:, 2] = torch.nan, torch.inf
    score = GaussianScore(dtype=torch.float64)
    for training in (True, False):
        attention = HardAttention(score, estimator).train(training)
        results = []
        for keys, values in ((k, v), (dirty_k, dirty_v)):
            torch.manual_seed(7)
            score.zero_grad()
            leaves = [t.clone().requires_grad_() for t in (q, keys, values)]
            pooled = attention(*leaves, attn_mask=mask)
            (pooled.objective(pooled.output.square().sum(-1)) - 0.1 * pooled.entropy).sum().backward()
            results.append(
                [
                    pooled.output.detach(),
                    pooled.weights.detach(),
                    *(t.grad for t in leaves),
                    score.w.grad or torch.zeros(1),
                ]
            )
            if not (training and estimator == "marginal"):
                taken = torch.zeros(2, 40, 5, dtype=torch.bool).scatter_(
                    -1, pooled.choice.clamp(min=0)[..., None], True
                )
                assert mask[taken & (pooled.choice >= 0)[..., None]].all()
            empty = ~mask.any(-1)
            assert (pooled.choice < 0)[..., empty].all()
            assert not pooled.output[..., empty, :].any()
            assert not pooled.log_prob[..., empty].any()
            assert not pooled.entropy[empty].any()
            assert not pooled.weights[empty].any()
        for clean, other in zip(*results, strict=True):
            assert clean.isfinite().all()
            assert torch.equal(clean, other)


@every_estimator
def test_the_likeliest_key_outside_training(estimator):
    q, k, v = inputs()
    attention = HardAttention(DotProductScore(), estimator, samples=1 if estimator == "marginal" else 3).eval()
    pooled = attention(q, k, v, torch.tensor([5, 2]))
    scores = q @ k.transpose(1, 2)
    scores[1, :, 2:] = -torch.inf
    assert torch.equal(pooled.choice, scores.argmax(-1))
    assert torch.equal(pooled.output, torch.stack([v[b, pooled.choice[b]] for b in range(2)]))
    assert pooled.output.shape == (2, 3, 2)
    assert torch.equal(attention(q, k, v, torch.tensor([5, 2])).output, pooled.output)
    cost = torch.rand(2, 3)
    assert torch.equal(pooled.objective(cost), cost)


def test_a_query_that_may_attend_to_nan_gets_nan():
    q, k, v = inputs()
    k[0, 1] = torch.nan
    pooled = HardAttention(DotProductScore())(q, k, v)
    assert pooled.output[0].isnan().all()
    assert pooled.weights[0].isnan().all()
    assert pooled.output[1].isfinite().all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_half_precision_and_other_batches(estimator):
    q, k, v = (t.half() * 300 for t in inputs(batch=6))
    pooled = HardAttention(DotProductScore(), estimator)(
        *(t.unflatten(0, (2, 3)) for t in (q, k)), v[0], torch.tensor([[5, 1, 2], [3, 4, 5]])
    )
    assert pooled.output.dtype == torch.float16
    assert pooled.output.shape[-4:] == (2, 3, 3, 2)
    assert pooled.output.isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"estimator": "magic"},
            "estimator must be one of 'reinforce', 'straight_through', 'gumbel', 'marginal', got 'magic'",
        ),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"samples": 0}, "samples must be a whole number"),
        ({"estimator": "marginal", "samples": 2}, "draws no samples"),
        ({"estimator": "gumbel", "baseline": MovingAverage()}, "baseline is used by estimator='reinforce' only"),
        ({"baseline": LeaveOneOut()}, "samples must be at least 2"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        HardAttention(DotProductScore(), **options)


def test_costs_of_another_shape_are_refused():
    q, k, v = inputs()
    with pytest.raises(ValueError, match=r"cost must have shape \(2, 3\) or \(2,\), got \(3, 2\)"):
        HardAttention(DotProductScore())(q, k, v).objective(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="too many to enumerate"):
        HardAttention(DotProductScore(), "marginal")(q, k, v).objective(torch.zeros(5, 2))
    with pytest.raises(ValueError, match="needs at least one key"):
        HardAttention(DotProductScore())(q, k[:, :0], v[:, :0])
    with pytest.raises(ValueError, match=r"decay must lie in \[0, 1\)"):
        MovingAverage(1.0)


def test_state_and_words():
    attention = HardAttention(BilinearScore(3, 3), baseline=MovingAverage(), entropy_weight=0.002)
    q, k, v = (t.float() for t in inputs())
    pooled = attention(q, k, v)
    pooled.objective(pooled.output.sum(-1)).sum().backward()
    assert sorted(attention.state_dict()) == ["baseline.level", "baseline.started", "score.W"]
    twin = HardAttention(BilinearScore(3, 3), baseline=MovingAverage())
    twin.load_state_dict(attention.state_dict())
    for other in (twin, copy.deepcopy(attention)):
        assert torch.equal(other.eval()(q, k, v).output, attention.eval()(q, k, v).output)
        assert torch.equal(other.baseline.level, attention.baseline.level)
    text = repr(attention)
    assert "estimator='reinforce', temperature=1.0, samples=1, entropy_weight=0.002" in text
    assert "MovingAverage(decay=0.9)" in text


@pytest.mark.parametrize("estimator", ["straight_through", "gumbel"])
def test_a_cost_without_a_gradient_is_a_warning(estimator):
    attention = HardAttention(GaussianScore(), estimator)
    pooled = attention(*inputs())
    wrong = (pooled.output[..., 0] > 0.5).double()
    with pytest.warns(UserWarning, match=f"estimator='{estimator}' .* this cost has no gradient"):
        pooled.objective(wrong).mean().backward()
    assert attention.score.w.grad == 0.0


@pytest.mark.parametrize("estimator", ["reinforce", "marginal"])
def test_a_cost_of_zeros_and_ones_teaches_the_others(estimator):
    attention = HardAttention(GaussianScore(), estimator)
    q, k, v = inputs(queries=20, keys=30)
    pooled = attention(q, k, v)
    pooled.objective((pooled.output[..., 0] > v[..., 0].median()).double()).mean().backward()
    assert attention.score.w.grad != 0.0
