"""Marked-item retrieval: one of L items is marked, and hard attention has to learn to look at it.

Chance is known: 1/L to hit the marked item, and of the others 1/V hold the same value by luck.
"""

from __future__ import annotations

import pytest
import torch

from regard.nn import BilinearScore, HardAttention, LeaveOneOut, MovingAverage

ITEMS, KINDS, NOISE = 10, 5, 3
CHANCE = 1 / ITEMS + (1 - 1 / ITEMS) / KINDS


def batch(size, generator):
    """A query that says nothing, keys with a mark on one of them, one-hot values, and the marked value."""
    keys = torch.randn(size, ITEMS, NOISE + 1, generator=generator)
    kinds = torch.randint(KINDS, (size, ITEMS), generator=generator)
    marked = torch.randint(ITEMS, (size,), generator=generator)
    keys[..., 0] = torch.nn.functional.one_hot(marked, ITEMS)
    values = torch.nn.functional.one_hot(kinds, KINDS).float()
    return torch.ones(size, 1, 1), keys, values, values[torch.arange(size), marked]


def accuracy(attention, generator, size=5000):
    *given, target = batch(size, generator)
    pooled = attention(*given)
    return (pooled.output[:, 0] * target).sum(-1).mean().item()


@pytest.mark.parametrize(
    "options",
    [
        {"estimator": "reinforce", "baseline": MovingAverage(), "entropy_weight": 0.002},
        {"estimator": "reinforce", "baseline": LeaveOneOut(), "samples": 4},
        {"estimator": "straight_through"},
        {"estimator": "gumbel"},
        {"estimator": "marginal"},
    ],
    ids=["moving average", "leave-one-out", "straight-through", "gumbel", "marginal"],
)
def test_marked_item_retrieval(options):
    generator = torch.Generator().manual_seed(1)
    score = BilinearScore(1, NOISE + 1)
    attention = HardAttention(score, **options)
    torch.nn.init.zeros_(score.W)
    if options["estimator"] != "marginal" and options.get("samples", 1) == 1:
        standard_error = (CHANCE * (1 - CHANCE) / 5000) ** 0.5
        assert abs(accuracy(attention, generator) - CHANCE) < 4.0 * standard_error
    trainer = torch.optim.Adam(score.parameters(), lr=0.1)
    for _ in range(200):
        *given, target = batch(64, generator)
        pooled = attention(*given)
        cost = 1.0 - (pooled.output * target.unsqueeze(1)).sum(-1)
        trainer.zero_grad()
        pooled.objective(cost).mean().backward()
        trainer.step()
    assert accuracy(attention.eval(), generator) >= 0.99
