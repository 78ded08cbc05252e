"""Attention pooling as a layer: scores → weights → a weighted average of the values."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from regard.nn.additive import AdditiveScore
from regard.nn.layer_inputs import LayerInputs, prepared
from regard.nn.precision import full_precision, widened
from regard.nn.score_layers import BilinearScore, DotProductScore, GaussianScore, ScoreLayer
from regard.nn.softmaxes import Normalise, normalised, softmax
from regard.tensors import pool_inputs, tensor_planner
from regard.tensors.tensor_inputs import Lengths, TensorInputs

ScoreFunction = Callable[[Tensor, Tensor], Tensor]

# Scores that the compiled programs implement; a subclass may compute something else.
COMPILED_SCORES = (AdditiveScore, BilinearScore, DotProductScore, GaussianScore)


class Attended(NamedTuple):
    """The output of attention together with its weights.

    Attributes
    ----------
    output : tensor (…, Q, P)
        Weighted averages of the values.
    weights : tensor (…, Q, K)
        The weights, before dropout.

    >>> x = torch.ones(1, 2, 3)
    >>> AttentionPooling(DotProductScore())(x, x, x, need_weights=True).weights.tolist()
    [[[0.5, 0.5], [0.5, 0.5]]]
    """

    output: Tensor  # (…, Q, P)
    weights: Tensor  # (…, Q, K), before dropout


def attend(
    score: ScoreFunction, inputs: LayerInputs, normalise: Normalise, dropout: Callable[[Tensor], Tensor]
) -> Attended:
    """Soft attention in plain torch: scores of all pairs, weights, weighted average."""
    with full_precision(inputs.queries.device):
        (scores,) = widened(score(inputs.queries, inputs.keys))  # (…, Q, K)
        weights = normalised(scores, inputs.mask, normalise)
        dropped, values = widened(dropout(weights), inputs.values)
        output = dropped @ values  # (…, Q, P)
    return Attended(inputs.finish_output(output), inputs.finish_weights(weights))


class RecordedAttention(nn.Module):
    """Soft attention that stores its weights, detached, as the classes of the book and of the notes do."""

    attention_weights: Tensor | None = None  # (…, Q, K) of the last call

    def _attended(self, score: ScoreFunction, inputs: LayerInputs, dropout: Callable[[Tensor], Tensor]) -> Tensor:
        output, weights = attend(score, inputs, softmax, dropout)
        self.attention_weights = weights.detach()
        return output


class AttentionPooling(nn.Module):
    """A weighted average of the values for every query, with weights from a score between query and key.

    output[q] = Σ_k weight[q, k] value[k], weight = normalise(score(queries, keys)) over the keys q may attend to

    Large problems with one of the four scores of this module are computed by ``regard.tensors.fused_pool``, unless the
    weights are requested or dropout is active; second derivatives are not available then.

    Parameters
    ----------
    score : module or function
        From queries (…, Q, d) and keys (…, K, d') to scores (…, Q, K): ``GaussianScore``, ``AdditiveScore``,
        ``DotProductScore``, ``BilinearScore``, or your own.
    dropout : float, default=0.0
        Probability of setting a weight to zero in training mode; the others are scaled up to compensate.
    normalise : function, default=softmax
        ``softmax``, ``sparsemax`` or ``entmax15``, or a function with the same contract.

    *Empty rows*: zeros, with gradients of zero. *Cost*: that of the score, and O(Q·K·P) time; O(Q·K) memory,
    O((Q + K)·(d + P)) for large problems.

    >>> import torch
    >>> from regard.nn import GaussianScore
    >>> keys, values = torch.tensor([[[-1.0], [1.0]]]), torch.tensor([[[2.0], [4.0]]])
    >>> AttentionPooling(GaussianScore())(torch.tensor([[[0.0]]]), keys, values).tolist()
    [[[3.0]]]
    """

    def __init__(self, score: ScoreFunction, dropout: float = 0.0, normalise: Normalise = softmax) -> None:
        super().__init__()
        if not callable(score):
            raise TypeError(f"score must be callable, such as GaussianScore(), got {score!r}")
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
        queries : tensor (B, Q, d)
            Floats. Other batch shapes (…) work as well.
        keys : tensor (B, K, d')
            Floats.
        values : tensor (B, K, P)
            Floats.
        valid_lens : tensor of int (B,) or (B, Q), default=None
            Only the first ``valid_lens`` keys may be attended to.
        attn_mask : tensor, default=None
            Broadcasts to (B, Q, K); boolean, True = may attend, or floats to add to the scores, −inf = may not.
        need_weights : bool, default=False
            Also return the weights.

        Returns
        -------
        tensor (B, Q, P), or Attended(output, weights)
            In the dtype of the queries; weights are (B, Q, K), from before dropout. A query that may attend to NaN or
            infinity gets NaN; masked entries have no effect.
        """
        inputs = prepared(queries, keys, values, valid_lens, attn_mask)
        drops = self.training and self.dropout.p > 0.0
        if not (need_weights or drops or self.normalise is not softmax or self._is_dense(inputs)):
            return self._compiled(inputs)
        attended = attend(self.score, inputs, self.normalise, self.dropout)
        return attended if need_weights else attended.output

    def _is_dense(self, inputs: LayerInputs) -> bool:
        """Whether to form the scores of all pairs, in plain torch."""
        if type(self.score) not in COMPILED_SCORES:
            return True
        pairs = inputs.queries.shape[:-1].numel() * inputs.keys.shape[-2]
        if isinstance(self.score, AdditiveScore):
            pairs *= self.score.w_v.in_features
        elif isinstance(self.score, GaussianScore):
            pairs *= inputs.keys.shape[-1]
        return tensor_planner.layer_is_dense(pairs, inputs.mask)

    def _compiled(self, inputs: LayerInputs) -> Tensor:
        """The output (…, Q, P) by a compiled program, which never forms the (…, Q, K) weights."""
        score, values = cast(ScoreLayer, self.score), inputs.values
        score.check(inputs.queries, inputs.keys)
        with full_precision(values.device):
            queries, keys, plain = score.as_plain(inputs.queries, inputs.keys)
            batch = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2], values.shape[:-2])  # type: ignore[no-untyped-call]
            output, _ = pool_inputs(TensorInputs(queries, keys, values, batch, inputs.mask), plain, check_numbers=True)
        return inputs.finish_output(output)

    def extra_repr(self) -> str:
        name = getattr(self.normalise, "__name__", repr(self.normalise))
        return "" if self.normalise is softmax else f"normalise={name}"
