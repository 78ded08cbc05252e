"""Attention pooling as a layer: scores → weights → a weighted average of the values."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from regard.nn.additive import AdditiveScore
from regard.nn.inputs import Inputs, prepared
from regard.nn.precision import full_precision, widened
from regard.nn.scores import BilinearScore, DotProductScore, GaussianScore, Score
from regard.nn.softmaxes import Normalise, normalised, softmax
from regard.tensors import planner, pooled
from regard.tensors.inputs import Inputs as Given
from regard.tensors.inputs import Lengths

ScoreFunction = Callable[[Tensor, Tensor], Tensor]

# Scores that the programs have; a subclass may be any other.
WITH_PROGRAMS = (AdditiveScore, BilinearScore, DotProductScore, GaussianScore)


class Attended(NamedTuple):
    """What attention returns when asked for its weights."""

    output: Tensor  # (…, Q, P)
    weights: Tensor  # (…, Q, K), before dropout


def attend(score: ScoreFunction, inputs: Inputs, normalise: Normalise, dropout: Callable[[Tensor], Tensor]) -> Attended:
    """The whole of soft attention, in plain torch; the one place where it is computed."""
    with full_precision(inputs.queries.device):
        (scores,) = widened(score(inputs.queries, inputs.keys))  # (…, Q, K)
        weights = normalised(scores, inputs.mask, normalise)
        kept, values = widened(dropout(weights), inputs.values)
        output = kept @ values  # (…, Q, P)
    return Attended(inputs.told(output), inputs.told_weights(weights))


class Remembered(nn.Module):
    """Soft attention that leaves its weights behind, detached, as the book's and the notes' classes do."""

    attention_weights: Tensor | None = None  # (…, Q, K) of the last call

    def _attended(self, score: ScoreFunction, inputs: Inputs, dropout: Callable[[Tensor], Tensor]) -> Tensor:
        output, weights = attend(score, inputs, softmax, dropout)
        self.attention_weights = weights.detach()
        return output


class AttentionPooling(nn.Module):
    """A weighted average of values for every query, weighted by a score between query and key.

    output[q] = Σ_k weight[q, k] value[k], weight = normalise(score(queries, keys)) over the keys q may attend to

    Parameters
    ----------
    score : a module (or function) from queries (…, Q, d) and keys (…, K, d') to scores (…, Q, K): ``GaussianScore``,
        ``AdditiveScore``, ``DotProductScore``, ``BilinearScore``, or your own.
    dropout : share of the weights set to zero in training; the others grow to make up for it.
    normalise : ``softmax``, ``sparsemax`` or ``entmax15``, or a function that does as they do.

    Large problems with a score of this module go through ``regard.tensors.fused_pool``, unless weights are asked for or
    some are dropped; there is no gradient of a gradient then.

    *Empty rows*: zeros, with gradients of zero. *Cost*: that of the score, and O(Q·K·P) time; O(Q·K) memory, where the
    problem is large O((Q + K)·(d + P)).

    >>> import torch
    >>> from regard.nn import GaussianScore
    >>> keys, values = torch.tensor([[[-1.0], [1.0]]]), torch.tensor([[[2.0], [4.0]]])
    >>> AttentionPooling(GaussianScore())(torch.tensor([[[0.0]]]), keys, values).tolist()
    [[[3.0]]]
    """

    def __init__(self, score: ScoreFunction, dropout: float = 0.0, normalise: Normalise = softmax) -> None:
        super().__init__()
        if not callable(score):
            raise TypeError(f"score must be a module such as GaussianScore(), got {score!r}")
        self.score = score
        self.dropout = nn.Dropout(dropout)
        self.normalise = normalise

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Lengths | None = None,
        *,
        attn_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> Tensor | Attended:
        """Pool the values.

        Parameters
        ----------
        queries : (B, Q, d), keys : (B, K, d'), values : (B, K, P), floats. Other batch shapes (…) will do as well.
        valid_lens : integers (B,) or (B, Q); only the first so many keys may be attended to.
        attn_mask : broadcasts to (B, Q, K); boolean, True = may attend, or floats to add to the scores, −inf = may not.
        need_weights : return the weights too.

        Returns
        -------
        output (B, Q, P) in the dtype of the queries, or ``Attended(output, weights)`` with weights (B, Q, K) as they
        were before dropout. A query that may attend to NaN or infinity gets NaN; behind a mask they have no effect.
        """
        inputs = prepared(queries, keys, values, valid_lens, attn_mask)
        dropping = self.training and self.dropout.p > 0.0
        if not (need_weights or dropping or self.normalise is not softmax or self._is_dense(inputs)):
            return self._by_programs(inputs)
        attended = attend(self.score, inputs, self.normalise, self.dropout)
        return attended if need_weights else attended.output

    def _is_dense(self, inputs: Inputs) -> bool:
        """Whether the scores of all pairs are formed, in plain torch."""
        if type(self.score) not in WITH_PROGRAMS:
            return True
        pairs = inputs.queries.shape[:-1].numel() * inputs.keys.shape[-2]
        if isinstance(self.score, AdditiveScore):
            pairs *= self.score.w_v.in_features
        elif isinstance(self.score, GaussianScore):
            pairs *= inputs.keys.shape[-1]
        return planner.layer_is_dense(pairs, inputs.mask)

    def _by_programs(self, inputs: Inputs) -> Tensor:
        """The output (…, Q, P) without its (…, Q, K) weights."""
        score, values = cast(Score, self.score), inputs.values
        score.check(inputs.queries, inputs.keys)
        with full_precision(values.device):
            queries, keys, plain = score.for_programs(inputs.queries, inputs.keys)
            batch = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2], values.shape[:-2])  # type: ignore[no-untyped-call]
            output, _ = pooled(Given(queries, keys, values, batch, inputs.mask), plain, look=True)
        return inputs.told(output)

    def extra_repr(self) -> str:
        name = getattr(self.normalise, "__name__", repr(self.normalise))
        return "" if self.normalise is softmax else f"normalise={name}"
