"""Hard attention: every query looks at one key, drawn with the weights that soft attention would give."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from regard.nn.baselines import LeaveOneOut
from regard.nn.inputs import prepared, score_shape
from regard.nn.looks import Look
from regard.nn.masks import masked_scores
from regard.nn.pooling import ScoreFunction
from regard.nn.precision import full_precision, widened
from regard.tensors.inputs import Lengths

Estimator = Literal["reinforce", "straight_through", "gumbel", "marginal"]


class HardAttention(nn.Module):
    """The value of one key for every query: drawn in training, the likeliest otherwise.

    choice ~ weights, weights = softmax(score(queries, keys) / temperature), output[q] = value[choice[q]]

    A drawn choice has no slope. ``estimator`` says how the score is to learn from what the choice cost:

    - "reinforce": (cost − baseline)·∇log p(choice). Unbiased, noisy; asks nothing of the cost.
    - "straight_through": drawn forward, backward as if the output were the soft average. Biased, quiet.
    - "gumbel": drawn as the largest of score + Gumbel noise, backward as if the largest were a softmax at
      ``temperature``. Less biased the lower the temperature, and noisier.
    - "marginal": nothing is drawn; every key is looked at, and the weights average the costs. Exact, K times the work.

    Parameters
    ----------
    score : as in ``AttentionPooling``.
    estimator : one of the four.
    temperature : above 0. Of the weights; with "gumbel" only of the softmax that stands in for the choice, and the
        weights are softmax(score).
    samples : how many choices to draw for every query.
    baseline : for "reinforce": None, ``MovingAverage()``, ``LearnedBaseline(query_size)`` or, with two samples or more,
        ``LeaveOneOut()``.
    entropy_weight : what entropy of the weights is worth; it keeps them from settling too early.

    The loss comes back through what ``forward`` returns, and the loop is the same for every estimator::

        look = attention(queries, keys, values, valid_lens)
        cost = loss_of_each(look.output)  # (B, Q), whatever the task says
        look.objective(cost).mean().backward()

    *Empty rows*: output 0, choice −1, gradients of zero. *Cost*: that of the score and O(Q·K) for a sample.

    >>> from regard.nn import DotProductScore
    >>> attention = HardAttention(DotProductScore()).eval()
    >>> look = attention(torch.ones(1, 1, 1), torch.tensor([[[1.0], [3.0]]]), torch.tensor([[[5.0], [7.0]]]))
    >>> look.output.item(), look.choice.item()
    (7.0, 1)
    """

    def __init__(
        self,
        score: ScoreFunction,
        estimator: Estimator = "reinforce",
        *,
        temperature: float = 1.0,
        samples: int = 1,
        baseline: nn.Module | None = None,
        entropy_weight: float = 0.0,
    ) -> None:
        super().__init__()
        if estimator not in get_args(Estimator):
            raise ValueError(f"estimator must be one of {', '.join(get_args(Estimator))}, got {estimator!r}")
        if not temperature > 0.0:
            raise ValueError(f"temperature must be above 0, got {temperature!r}")
        if not isinstance(samples, int) or samples < 1:
            raise ValueError(f"samples must be a whole number of at least 1, got {samples!r}")
        if samples > 1 and estimator == "marginal":
            raise ValueError(f"estimator='marginal' looks at every key and draws none, but samples={samples}")
        if baseline is not None and estimator != "reinforce":
            raise ValueError(f"a baseline is for estimator='reinforce', got {estimator!r}")
        if isinstance(baseline, LeaveOneOut) and samples < 2:
            raise ValueError("LeaveOneOut compares samples with each other: samples must be at least 2")
        self.score = score
        self.estimator = estimator
        self.temperature = temperature
        self.samples = samples
        self.baseline = baseline
        self.entropy_weight = entropy_weight

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Lengths | None = None,
        *,
        attn_mask: Tensor | None = None,
    ) -> Look:
        """Look once. Parameters as in ``AttentionPooling``; returns a ``Look``, whose ``objective(cost)`` learns."""
        inputs = prepared(queries, keys, values, valid_lens, attn_mask)
        shape = score_shape(queries, keys, values)
        if shape[-1] == 0:
            raise ValueError("keys are empty: hard attention needs at least one key to look at")
        with full_precision(queries.device):
            (scores,) = widened(self.score(inputs.queries, inputs.keys))
            scores = masked_scores(scores, inputs.mask).expand(shape)  # (…, Q, K)
            nobody = (scores == -torch.inf).all(-1, keepdim=True)  # (…, Q, 1)
            scores = scores.masked_fill(nobody, 0.0)
            log_weights = torch.log_softmax(scores if self.estimator == "gumbel" else scores / self.temperature, dim=-1)
            weights = log_weights.exp()
            choice, soft = self._chosen(log_weights)  # (S, …, Q), (S, …, Q, K) or None
            values = widened(weights, inputs.values)[1]
            output = _taken(values, choice)
            if soft is not None:
                # Exactly zero forward; backward the slope of the average.
                output = output + (soft - soft.detach()).to(values.dtype) @ values.detach()
            finite = log_weights.masked_fill(log_weights == -torch.inf, 0.0)
            log_prob = _along_keys(finite, choice)
        # "marginal" goes through masked keys too; there, as where nobody may attend, nothing is seen.
        unseen = nobody.squeeze(-1) | _along_keys(log_weights == -torch.inf, choice)  # (S, …, Q)
        several = self.training and (self.samples > 1 or self.estimator == "marginal")
        output, choice, log_prob = (
            part if several else part.squeeze(0)
            for part in (
                inputs.told(output.masked_fill(unseen.unsqueeze(-1), 0.0)),
                choice.masked_fill(unseen, -1),
                log_prob.masked_fill(unseen, 0.0),
            )
        )
        return Look(
            output,
            choice,
            log_prob,
            inputs.told_weights(weights.masked_fill(nobody, 0.0)),
            -(weights * finite).sum(-1).masked_fill(nobody.squeeze(-1), 0.0),
            inputs.queries.detach(),
            self.estimator if self.training else "argmax",
            several,
            self.baseline,
            self.entropy_weight,
        )

    def _chosen(self, log_weights: Tensor) -> tuple[Tensor, Tensor | None]:
        """Keys (S, …, Q), and the softmax that stands in for the choice where the estimator wants one."""
        if not self.training:
            return log_weights.argmax(-1).unsqueeze(0), None
        if self.estimator == "marginal":
            keys = torch.arange(log_weights.shape[-1], device=log_weights.device)
            return keys.view(-1, *[1] * (log_weights.ndim - 1)).expand(-1, *log_weights.shape[:-1]), None
        noise = torch.empty(self.samples, *log_weights.shape, device=log_weights.device, dtype=log_weights.dtype)
        # The largest of log-weights plus Gumbel noise is a draw with these weights; −log of an exponential is Gumbel.
        noisy = log_weights - noise.exponential_().clamp_(min=torch.finfo(noise.dtype).tiny).log_()
        if self.estimator == "gumbel":
            return noisy.argmax(-1), torch.softmax(noisy / self.temperature, dim=-1)
        soft = log_weights.exp().expand_as(noisy) if self.estimator == "straight_through" else None
        return noisy.argmax(-1), soft

    def extra_repr(self) -> str:
        return (
            f"estimator={self.estimator!r}, temperature={self.temperature}, samples={self.samples}, "
            f"entropy_weight={self.entropy_weight}"
        )


def _taken(values: Tensor, choice: Tensor) -> Tensor:
    """values (…, K, P) of the chosen keys (S, …, Q): (S, …, Q, P)."""
    samples, *batch, queries = choice.shape
    values = values.expand(*batch, *values.shape[-2:])
    # Samples side by side with the queries, so that no value is copied once per sample.
    index = choice.movedim(0, -2).reshape(*batch, samples * queries, 1)
    taken = values.take_along_dim(index, dim=-2)  # (…, S·Q, P)
    return taken.reshape(*batch, samples, queries, -1).movedim(-3, 0)


def _along_keys(table: Tensor, choice: Tensor) -> Tensor:
    """table (…, Q, K) at the chosen keys (S, …, Q): (S, …, Q)."""
    return table.take_along_dim(choice.movedim(0, -1), dim=-1).movedim(-1, 0)
