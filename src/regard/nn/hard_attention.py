"""Hard attention: every query takes the value of one key, drawn with the weights of soft attention."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from regard.nn.argument_checks import at_least_one, one_of
from regard.nn.attention_pooling import ScoreFunction
from regard.nn.layer_inputs import prepared, score_shape
from regard.nn.masks import masked_scores
from regard.nn.precision import full_precision, widened
from regard.nn.reinforce_baselines import LeaveOneOut
from regard.nn.score_layers import relative_scores
from regard.tensors.tensor_inputs import Lengths

Estimator = Literal["reinforce", "straight_through", "gumbel", "marginal"]
# Estimators that differentiate the cost by the output.
THROUGH_THE_COST = ("straight_through", "gumbel")


@dataclass(frozen=True)
class HardPooled:
    """The key that every query chose and its value, as returned by ``HardAttention``.

    With several samples, and with "marginal" (which enumerates the keys), ``output``, ``choice`` and ``log_prob`` have
    a leading axis of length S: samples, or keys.

    Attributes
    ----------
    output : tensor (…, Q, P)
        The value of the chosen key.
    choice : tensor (…, Q)
        Its index; −1 if the query may not attend to it.
    log_prob : tensor (…, Q)
        The logarithm of its weight, with gradients.
    weights : tensor (…, Q, K)
        Of all keys, with gradients.
    entropy : tensor (…, Q)
        Of the weights, with gradients.
    queries : tensor (…, Q, d)
        Detached, for the baseline.
    estimator : str
        "argmax" unless in training mode.
    several : bool
        Whether there is a leading axis.
    baseline : module or None
        As given to ``HardAttention``.
    entropy_weight : float
        As given to ``HardAttention``.

    >>> from regard.nn import DotProductScore
    >>> x = torch.ones(1, 1, 1)
    >>> pooled = HardAttention(DotProductScore())(x, x, x)
    >>> pooled.choice.tolist(), pooled.objective(pooled.output[..., 0]).tolist()
    ([[0]], [[1.0]])
    """

    output: Tensor  # (…, Q, P)  the value of the chosen key
    choice: Tensor  # (…, Q)     its index; −1 if the query may not attend to it
    log_prob: Tensor  # (…, Q)   the logarithm of its weight, with gradients
    weights: Tensor  # (…, Q, K) of all keys, with gradients
    entropy: Tensor  # (…, Q)    of the weights, with gradients
    queries: Tensor  # (…, Q, d) detached, for the baseline
    estimator: str  # "argmax" unless in training mode
    several: bool  # whether there is a leading axis
    baseline: nn.Module | None
    entropy_weight: float

    def objective(self, cost: Tensor) -> Tensor:
        """What to minimise: the expected cost, minus entropy_weight times the entropy of the weights.

        Its value is that of the cost (averaged over samples, or over keys with "marginal"); its gradient estimates
        that of the expectation over choices by the ``estimator`` of the attention.

        Parameters
        ----------
        cost : tensor
            The cost of the choices: one number per choice, the shape of ``choice``; or one for all queries of a batch
            entry together, the same without the last axis. Its own gradients flow as usual.

        Returns
        -------
        tensor (…, Q) or (…,)
            The cost's shape without the leading axis of samples or keys. Call ``backward()`` on its mean.
        """
        cost, together = self._checked(cost)
        if self.estimator in THROUGH_THE_COST and self.output.requires_grad and not cost.requires_grad:
            warnings.warn(
                f"estimator={self.estimator!r} differentiates the cost by the output, but this cost has no gradient "
                "(one of zeros and ones has none), so the score learns nothing from it: use estimator='reinforce' or "
                "'marginal', or a cost that is differentiable in the output",
                stacklevel=2,
            )
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
        """The cost, with the gradient (cost − baseline)·∇log p and that of the baseline's squared error added."""
        observed = cost.detach()
        level = torch.zeros_like(observed) if self.baseline is None else self.baseline(observed, queries)
        surrogate = (observed - level.detach()) * log_prob
        if level.requires_grad:
            surrogate = surrogate + 0.5 * (observed - level).square()
        return cost + (surrogate - surrogate.detach())

    def _expected(self, cost: Tensor) -> Tensor:
        """Σₖ weightₖ costₖ; in an empty row every output is zero, and the costs are averaged with equal weights."""
        empty = (self.choice < 0).all(0).unsqueeze(-1)  # (…, Q, 1)
        weights = torch.where(empty, 1.0 / max(cost.shape[0], 1), self.weights)
        cost = cost.movedim(0, -1)  # (…, Q, K)
        # The cost of a masked key is ignored, even if it is NaN.
        return (weights * torch.where(weights > 0.0, cost, 0.0)).sum(-1)

    def _checked(self, cost: Tensor) -> tuple[Tensor, bool]:
        """The cost as (S, …, Q), or (S, …, 1) if it is for all queries together, and which of the two."""
        choices = tuple(self.choice.shape)
        together = tuple(cost.shape) == choices[:-1]
        if not together and tuple(cost.shape) != choices:
            raise ValueError(f"cost must have shape {choices} or {choices[:-1]}, got {tuple(cost.shape)}")
        if together and self.estimator == "marginal" and choices[-1] > 1:
            raise ValueError(
                f"estimator='marginal' needs one cost per query, shape {choices}, got {tuple(cost.shape)}: "
                "the joint choices of several queries are too many to enumerate"
            )
        return self._samples_first(cost.unsqueeze(-1) if together else cost), together

    def _samples_first(self, tensor: Tensor) -> Tensor:
        return tensor if self.several else tensor.unsqueeze(0)


class HardAttention(nn.Module):
    """The value of one key for every query: drawn in training mode, the most probable one otherwise.

    choice ~ weights, weights = softmax(score(queries, keys) / temperature), output[q] = value[choice[q]]

    A drawn choice has no derivative. ``estimator`` determines how the gradient of the expected cost is estimated:

    - "reinforce": (cost − baseline)·∇log p(choice). Unbiased, with high variance; the cost need not be differentiable.
    - "straight_through": drawn forward, backward as if the output were the soft average. Biased, with low variance.
    - "gumbel": drawn as the largest of score + Gumbel noise, backward as if the largest were a softmax at
      ``temperature``. A lower temperature lowers the bias and raises the variance. This one and "straight_through" need
      a cost that is differentiable in the output; for one of zeros and ones the gradient is zero, with a warning.
    - "marginal": nothing is drawn; the cost of every key is computed and averaged with the weights. Exact, at K times
      the cost.

    The training loop is the same for every estimator::

        pooled = attention(queries, keys, values, valid_lens)
        cost = loss_of_each(pooled.output)  # (B, Q)
        pooled.objective(cost).mean().backward()

    Parameters
    ----------
    score : module or function
        As in ``AttentionPooling``.
    estimator : {"reinforce", "straight_through", "gumbel", "marginal"}, default="reinforce"
        See above.
    temperature : float, default=1.0
        Above 0. Of the weights; with "gumbel" only of the softmax in the backward pass, and the weights are
        softmax(score).
    samples : int, default=1
        Choices drawn per query.
    baseline : module, default=None
        For "reinforce": ``MovingAverage()``, ``LearnedBaseline(query_size)`` or, with two samples or more,
        ``LeaveOneOut()``.
    entropy_weight : float, default=0.0
        Weight of the entropy bonus, which keeps the weights from collapsing onto one key too early.

    *Empty rows*: output 0, choice −1, gradients of zero. *Cost*: that of the score and O(Q·K) per sample.

    >>> from regard.nn import DotProductScore
    >>> attention = HardAttention(DotProductScore()).eval()
    >>> pooled = attention(torch.ones(1, 1, 1), torch.tensor([[[1.0], [3.0]]]), torch.tensor([[[5.0], [7.0]]]))
    >>> pooled.output.item(), pooled.choice.item()
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
        one_of(get_args(Estimator), estimator=estimator)
        if not temperature > 0.0:
            raise ValueError(f"temperature must be above 0, got {temperature!r}")
        at_least_one(samples=samples)
        if samples > 1 and estimator == "marginal":
            raise ValueError(f"estimator='marginal' draws no samples: samples must be 1, got {samples}")
        if baseline is not None and estimator != "reinforce":
            raise ValueError(f"baseline is used by estimator='reinforce' only, got estimator={estimator!r}")
        if isinstance(baseline, LeaveOneOut) and samples < 2:
            raise ValueError(f"LeaveOneOut averages the other samples: samples must be at least 2, got {samples}")
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
    ) -> HardPooled:
        """Choose one key per query; minimise ``objective`` of the result.

        Parameters
        ----------
        queries, keys, values, valid_lens, attn_mask : as in ``AttentionPooling``
            There must be at least one key.

        Returns
        -------
        HardPooled
        """
        inputs = prepared(queries, keys, values, valid_lens, attn_mask)
        shape = score_shape(queries, keys, values)
        if shape[-1] == 0:
            raise ValueError(f"hard attention needs at least one key, got keys of shape {tuple(keys.shape)}")
        with full_precision(queries.device):
            (scores,) = widened(relative_scores(self.score, inputs.queries, inputs.keys))
            scores = masked_scores(scores, inputs.mask).expand(shape)  # (…, Q, K)
            empty = (scores == -torch.inf).all(-1, keepdim=True)  # (…, Q, 1)
            scores = scores.masked_fill(empty, 0.0)
            log_weights = torch.log_softmax(scores if self.estimator == "gumbel" else scores / self.temperature, dim=-1)
            weights = log_weights.exp()
            choice, soft = self._choose(log_weights)  # (S, …, Q), (S, …, Q, K) or None
            values = widened(weights, inputs.values)[1]
            output = _values_at(values, choice)
            if soft is not None:
                # Exactly zero forward; backward the derivative of the average.
                output = output + (soft - soft.detach()).to(values.dtype) @ values.detach()
            finite = log_weights.masked_fill(log_weights == -torch.inf, 0.0)
            log_prob = _scores_at(finite, choice)
        # "marginal" enumerates masked keys too; their output is zero, as it is in empty rows.
        masked = empty.squeeze(-1) | _scores_at(log_weights == -torch.inf, choice)  # (S, …, Q)
        several = self.training and (self.samples > 1 or self.estimator == "marginal")
        output, choice, log_prob = (
            part if several else part.squeeze(0)
            for part in (
                inputs.finish_output(output.masked_fill(masked.unsqueeze(-1), 0.0)),
                choice.masked_fill(masked, -1),
                log_prob.masked_fill(masked, 0.0),
            )
        )
        return HardPooled(
            output,
            choice,
            log_prob,
            inputs.finish_weights(weights.masked_fill(empty, 0.0)),
            -(weights * finite).sum(-1).masked_fill(empty.squeeze(-1), 0.0),
            inputs.queries.detach(),
            self.estimator if self.training else "argmax",
            several,
            self.baseline,
            self.entropy_weight,
        )

    def _choose(self, log_weights: Tensor) -> tuple[Tensor, Tensor | None]:
        """Chosen keys (S, …, Q), and the softmax to differentiate in their place if the estimator has one."""
        if not self.training:
            return log_weights.argmax(-1).unsqueeze(0), None
        if self.estimator == "marginal":
            keys = torch.arange(log_weights.shape[-1], device=log_weights.device)
            return keys.view(-1, *[1] * (log_weights.ndim - 1)).expand(-1, *log_weights.shape[:-1]), None
        noisy = with_gumbel_noise(log_weights.expand(self.samples, *log_weights.shape))
        if self.estimator == "gumbel":
            return noisy.argmax(-1), torch.softmax(noisy / self.temperature, dim=-1)
        soft = log_weights.exp().expand_as(noisy) if self.estimator == "straight_through" else None
        return noisy.argmax(-1), soft

    def extra_repr(self) -> str:
        return (
            f"estimator={self.estimator!r}, temperature={self.temperature}, samples={self.samples}, "
            f"entropy_weight={self.entropy_weight}"
        )


def with_gumbel_noise(scores: Tensor) -> Tensor:
    """Scores plus Gumbel noise, −log of an exponential variate: the argmax is a draw from softmax(scores)."""
    noise = torch.empty(scores.shape, device=scores.device, dtype=scores.dtype)
    return scores - noise.exponential_().clamp_(min=torch.finfo(noise.dtype).tiny).log_()


def _values_at(values: Tensor, choice: Tensor) -> Tensor:
    """values (…, K, P) of the chosen keys (S, …, Q): (S, …, Q, P)."""
    samples, *batch, queries = choice.shape
    values = values.expand(*batch, *values.shape[-2:])
    # Samples are laid out beside the queries, so that no value is copied once per sample.
    index = choice.movedim(0, -2).reshape(*batch, samples * queries, 1)
    chosen = values.take_along_dim(index, dim=-2)  # (…, S·Q, P)
    return chosen.reshape(*batch, samples, queries, -1).movedim(-3, 0)


def _scores_at(scores: Tensor, choice: Tensor) -> Tensor:
    """scores (…, Q, K) at the chosen keys (S, …, Q): (S, …, Q)."""
    return scores.take_along_dim(choice.movedim(0, -1), dim=-1).movedim(-1, 0)
