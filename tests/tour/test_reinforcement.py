"""Hard attention by reinforcement: its gradients by enumeration, its costs by plain torch."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from regard.tour.stations import reinforcement
from support.story import NAMES

# One worker runs the tour once per language and all these tests read it.
pytestmark = pytest.mark.xdist_group("tour")

N = reinforcement.SYMBOLS


@pytest.fixture(scope="module")
def answer(tours):
    return tours["en"].rows[NAMES.index("reinforcement")].answer


@pytest.fixture(scope="module")
def gradients():
    return reinforcement.measure(0)


def _of_one_draw(symbol, choice):
    """∇ log p(choice) with respect to the row of W that the query ``symbol`` selects, at W = 0."""
    return np.eye(N)[choice] - 1 / N


def _moments(baseline):
    """Mean and variance of the gradient of one batch, every set of draws enumerated by its choices' costs."""
    mean, variance = np.zeros((N, N)), 0.0
    draws, repeats = reinforcement.DRAWS, reinforcement.QUERIES // N
    wrong = 1 - 1 / N
    for symbol in range(N):
        steps = np.array([_of_one_draw(symbol, choice) for choice in range(N)])
        cost = 1.0 - np.eye(N)[symbol]
        mean[symbol] = (cost[:, None] * steps).mean(axis=0) * repeats / reinforcement.QUERIES
        # E‖Σ_s (c_s − b_s) g_s‖² over the draws s; b_s is the mean cost of the others, independent of draw s.
        noise = wrong * (1 - wrong) / (draws - 1) if baseline else 0.0
        level = wrong if baseline else 0.0
        square = (((cost - level) ** 2 + noise)[:, None] * steps**2).mean(axis=0).sum()
        each = (cost[:, None] * steps).mean(axis=0)
        total = draws * square
        # Different draws share costs through their baselines: E[(c_s − b_s)(c_t − b_t) g_s·g_t].
        share = 1 / (draws - 1) if baseline else 0.0
        total += draws * (draws - 1) * (1 + share**2) * (each @ each)
        variance += repeats * (total - (draws * each) @ (draws * each)) / (draws * reinforcement.QUERIES) ** 2
    return mean.ravel(), variance


def test_the_exact_gradient_is_that_of_the_expected_cost(gradients):
    W = torch.zeros(N, N, dtype=torch.float64, requires_grad=True)
    (1 - W.softmax(-1).diagonal()).mean().backward()
    np.testing.assert_allclose(gradients.exact, W.grad.flatten().numpy(), atol=1e-8)
    np.testing.assert_allclose(gradients.exact, _moments(baseline=False)[0], atol=1e-8)


@pytest.mark.parametrize("way", ["without", "with"])
def test_variance_and_mean_of_the_estimates(answer, gradients, way):
    estimates, (mean, variance) = gradients.estimates[way], _moments(baseline=way == "with")
    measured = estimates.var(axis=0).sum()
    np.testing.assert_allclose(measured, variance, rtol=0.1)
    off = np.linalg.norm(estimates.mean(axis=0) - mean)
    chance = np.sqrt(measured / len(estimates))
    assert off < 1.5 * chance, "the estimates are right on average"
    for said in (measured, off, chance):
        assert f"{said:.4f}" in answer


def test_a_baseline_lowers_the_variance(answer):
    without, with_baseline = map(
        float, re.search(r"is ([\d.]+) without a baseline and ([\d.]+) with it", answer).groups()
    )
    assert with_baseline < 0.3 * without


@pytest.mark.parametrize("way", ["exact", "soft"])
def test_costs_without_draws_are_those_of_plain_torch(answer, way):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        torch.randn(N, N)
        W = torch.zeros(N, N, requires_grad=True)
        optimizer = torch.optim.Adam([W], lr=reinforcement.LEARNING_RATE)
        for _ in range(reinforcement.STEPS):
            torch.rand(reinforcement.QUERIES, N)
            symbol = torch.randint(N, (reinforcement.QUERIES, 1))[:, 0]
            weights = W.softmax(-1)
            wrong = {
                "exact": 1 - weights.diagonal(),
                "soft": ((weights - torch.eye(N)) ** 2).sum(-1) / 2,
            }[way]
            optimizer.zero_grad()
            wrong[symbol].mean().backward()
            optimizer.step()
        weights = W.detach().softmax(-1)
        cost = {"exact": 1 - weights.diagonal(), "soft": ((weights - torch.eye(N)) ** 2).sum(-1) / 2}[way].mean()
    assert abs(reinforcement.train(way, 0)[-1] - float(cost)) < 1e-5
    assert f"{cost:.3f}" in answer


def test_order_of_the_ways(answer):
    last = {way: reinforcement.train(way, 0)[-1] for way in reinforcement.WAYS}
    assert last["argmax"] == reinforcement.train("argmax", 0)[0] == 1 - 1 / N
    assert last["exact"] < last["with"] < last["without"] < last["argmax"]
    assert f"to {last['without']:.3f} without a baseline, {last['with']:.3f} with it, and {last['exact']:.3f}" in answer
