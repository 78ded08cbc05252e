"""Baselines for REINFORCE: what the cost of a choice is compared with.

REINFORCE follows (cost − baseline)·∇log p(choice). A baseline that does not depend on the choice leaves the mean of
this gradient unchanged, and one close to the cost lowers its variance.

A baseline is a module called with costs (S, …, Q), one per sample, and queries (…, Q, d), both detached; it returns a
level that broadcasts to the costs. If the level has gradients, it is fitted to the costs by least squares.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MovingAverage(nn.Module):
    """An exponential moving average: level ← decay·level + (1 − decay)·mean(cost), after each call in training mode.

    The first call returns 0 and sets the level to the mean of its costs.

    Parameters
    ----------
    decay : float, default=0.9
        Weight of the previous level, in [0, 1).

    >>> baseline, cost, queries = MovingAverage(), torch.tensor([[4.0]]), torch.ones(1, 2)
    >>> baseline(cost, queries).item(), baseline(cost, queries).item()
    (0.0, 4.0)
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
        """The level before these costs, which update it in training mode.

        Parameters
        ----------
        cost : tensor (S, …, Q)
            One cost per sample.
        queries : tensor (…, Q, d)
            Not used.

        Returns
        -------
        tensor ()
        """
        level = self.level.clone()
        if self.training and cost.numel():
            mean = cost.mean().to(level.dtype)
            self.level.copy_(torch.where(self.started, torch.lerp(mean, level, self.decay), mean))
            self.started.fill_(True)
        return level.to(cost.dtype)

    def extra_repr(self) -> str:
        return f"decay={self.decay}"


class LearnedBaseline(nn.Module):
    """A linear function of the query, learned together with the attention: level = a·q + b.

    Parameters
    ----------
    query_size : int
        Features of a query.

    >>> LearnedBaseline(2)(torch.zeros(1, 3), torch.ones(3, 2)).shape
    torch.Size([3])
    """

    def __init__(self, query_size: int) -> None:
        super().__init__()
        self.line = nn.Linear(query_size, 1)

    def forward(self, cost: Tensor, queries: Tensor) -> Tensor:
        """The level of every query, with gradients.

        Parameters
        ----------
        cost : tensor (S, …, Q)
            One cost per sample; only its dtype is used.
        queries : tensor (…, Q, d)
            Queries.

        Returns
        -------
        tensor (…, Q)
        """

        level: Tensor = self.line(queries.to(self.line.weight.dtype)).squeeze(-1)  # (…, Q)
        return level.to(cost.dtype)


class LeaveOneOut(nn.Module):
    """The mean cost of the other samples, of which there must be at least one. It has no parameters and no state.

    >>> LeaveOneOut()(torch.tensor([[1.0], [3.0]]), torch.ones(1, 2)).tolist()
    [[3.0], [1.0]]
    """

    def forward(self, cost: Tensor, queries: Tensor) -> Tensor:  # noqa: ARG002
        """The level of every sample.

        Parameters
        ----------
        cost : tensor (S, …, Q)
            One cost per sample, S ≥ 2.
        queries : tensor (…, Q, d)
            Not used.

        Returns
        -------
        tensor (S, …, Q)
        """
        return (cost.sum(0, keepdim=True) - cost) / (cost.shape[0] - 1)
