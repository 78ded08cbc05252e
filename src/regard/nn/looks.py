"""A look: what hard attention returns, and how the cost of it finds its way back to the weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Look:
    """Where every query looked and what it saw.

    With several samples, and with "marginal" (where every key is looked at), ``output``, ``choice`` and ``log_prob``
    have one more axis in front, S long: samples, or keys.
    """

    output: Tensor  # (…, Q, P)  the value of the chosen key
    choice: Tensor  # (…, Q)     its number; −1 where it may not be attended to
    log_prob: Tensor  # (…, Q)   the logarithm of its weight, with gradients
    weights: Tensor  # (…, Q, K) of every key, with gradients
    entropy: Tensor  # (…, Q)    of the weights, with gradients
    queries: Tensor  # (…, Q, d) detached, for the baseline
    estimator: str  # "argmax" when not in training
    several: bool
    baseline: nn.Module | None
    entropy_weight: float

    def objective(self, cost: Tensor) -> Tensor:
        """What to minimise: the expected cost, less entropy_weight times the entropy of the weights.

        Its value is that of the cost (averaged over samples, expected over keys with "marginal"); its gradient is that
        of the expectation over choices, estimated as the attention's ``estimator`` says.

        Parameters
        ----------
        cost : what the choices cost: one number for each of them, the shape of ``choice``; or one for all queries of a
            batch entry together, the same without the last axis. Its own gradients flow as ever.

        Returns
        -------
        (…, Q) or (…,): the cost's shape without the axis of samples or keys. Take its mean and call ``backward()``.
        """
        cost, together = self._checked(cost)
        if self.estimator == "argmax":
            return cost.squeeze(0).squeeze(-1) if together else cost.squeeze(0)
        entropy, log_prob, queries = self.entropy, self._samples_first(self.log_prob), self.queries
        if together:
            entropy, log_prob = entropy.sum(-1, keepdim=True), log_prob.sum(-1, keepdim=True)
            queries = queries.mean(-2, keepdim=True)
        if self.estimator == "marginal":
            expected = self._expected(cost)
        else:
            if self.estimator == "reinforce":
                cost = self._reinforced(cost, log_prob, queries)
            expected = cost.mean(0)
        objective = expected - self.entropy_weight * entropy
        return objective.squeeze(-1) if together else objective

    def _reinforced(self, cost: Tensor, log_prob: Tensor, queries: Tensor) -> Tensor:
        """The cost, with the gradient (cost − baseline)·∇log p and the baseline's own lesson attached to it."""
        known = cost.detach()
        level = torch.zeros_like(known) if self.baseline is None else self.baseline(known, queries)
        pull = (known - level.detach()) * log_prob
        if level.requires_grad:
            pull = pull + 0.5 * (known - level).square()
        return cost + (pull - pull.detach())

    def _expected(self, cost: Tensor) -> Tensor:
        """Σₖ weightₖ costₖ; where nobody may attend all costs are those of a zero, and count alike."""
        nobody = (self.choice < 0).all(0).unsqueeze(-1)  # (…, Q, 1)
        shares = torch.where(nobody, 1.0 / max(cost.shape[0], 1), self.weights)
        cost = cost.movedim(0, -1)  # (…, Q, K)
        # A key that nobody may look at has no cost, not even NaN.
        return (shares * torch.where(shares > 0.0, cost, 0.0)).sum(-1)

    def _checked(self, cost: Tensor) -> tuple[Tensor, bool]:
        """The cost as (S, …, Q), or (S, …, 1) where it is for all queries together, and which of the two."""
        choices = tuple(self.choice.shape)
        together = tuple(cost.shape) == choices[:-1]
        if not together and tuple(cost.shape) != choices:
            raise ValueError(f"cost must have shape {choices} or {choices[:-1]}, got {tuple(cost.shape)}")
        if together and self.estimator == "marginal" and choices[-1] > 1:
            raise ValueError(
                f"estimator='marginal' needs a cost for every query, shape {choices}: "
                "the choices of several queries together are too many to enumerate"
            )
        return self._samples_first(cost.unsqueeze(-1) if together else cost), together

    def _samples_first(self, tensor: Tensor) -> Tensor:
        return tensor if self.several else tensor.unsqueeze(0)
