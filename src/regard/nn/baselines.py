"""Baselines: what a cost is compared with before it moves the weight of a choice.

REINFORCE follows (cost − baseline)·∇log p(choice). Any baseline that does not know the choice leaves the mean of that
as it is, and one that is near the cost makes it vary less.

A baseline is a module called with costs (S, …, Q), one for each of S samples, and queries (…, Q, d), both detached; it
returns a level that broadcasts to the costs. Where the level has gradients it is fitted to the costs by least squares.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MovingAverage(nn.Module):
    """The mean of earlier costs: level ← decay·level + (1 − decay)·mean(cost), after each use in training.

    It starts with the first mean; the first costs of all are compared with 0.

    Parameters
    ----------
    decay : how much of the level stays, in [0, 1).
    """

    level: Tensor
    started: Tensor

    def __init__(self, decay: float = 0.9) -> None:
        super().__init__()
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"decay must lie in [0, 1), got {decay!r}")
        self.decay = decay
        self.register_buffer("level", torch.zeros(()))
        self.register_buffer("started", torch.zeros((), dtype=torch.bool))

    def forward(self, cost: Tensor, queries: Tensor) -> Tensor:  # noqa: ARG002
        level = self.level.clone()
        if self.training and cost.numel():
            mean = cost.mean().to(level.dtype)
            self.level.copy_(torch.where(self.started, torch.lerp(mean, level, self.decay), mean))
            self.started.fill_(True)
        return level.to(cost.dtype)

    def extra_repr(self) -> str:
        return f"decay={self.decay}"


class LearnedBaseline(nn.Module):
    """A straight line in the query, learned beside the attention: level = a·q + b.

    Parameters
    ----------
    query_size : features of a query.
    """

    def __init__(self, query_size: int) -> None:
        super().__init__()
        self.line = nn.Linear(query_size, 1)

    def forward(self, cost: Tensor, queries: Tensor) -> Tensor:
        level: Tensor = self.line(queries.to(self.line.weight.dtype)).squeeze(-1)  # (…, Q)
        return level.to(cost.dtype)


class LeaveOneOut(nn.Module):
    """The mean cost of the other samples; needs at least two of them. Nothing to learn, nothing to remember."""

    def forward(self, cost: Tensor, queries: Tensor) -> Tensor:  # noqa: ARG002
        return (cost.sum(0, keepdim=True) - cost) / (cost.shape[0] - 1)
