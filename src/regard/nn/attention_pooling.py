"""Attention pooling as a layer: scores → weights → a weighted average of the values."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.nn.additive import AdditiveScore, ConcatenatedScore, HiddenScore
from regard.nn.layer_inputs import LayerInputs, prepared
from regard.nn.precision import full_precision, widened
from regard.nn.quick_attention import quick_attention
from regard.nn.score_layers import BilinearScore, DotProductScore, GaussianScore, ScoreLayer, relative_scores
from regard.nn.softmaxes import Normalise, normalised, softmax
from regard.tensors import pool_inputs, pool_with_dropout, tensor_planner
from regard.tensors.gaussian_products import gaussian_sides
from regard.tensors.tensor_inputs import Lengths, TensorInputs, are_ordinary, can_branch

ScoreFunction = Callable[[Tensor, Tensor], Tensor]

# Scores that the compiled programs implement; a subclass may compute something else.
COMPILED_SCORES = (AdditiveScore, BilinearScore, ConcatenatedScore, DotProductScore, GaussianScore)
# Numbers that scores in plain torch hold at once: 4 MB of float32 fit into the cache of a CPU, 256 MB keep a GPU busy.
MAX_NUMBERS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 26}
# Queries that are scored at once at least: keys are projected again each time.
MIN_QUERIES_AT_ONCE = 4


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
        (scores,) = widened(relative_scores(score, inputs.queries, inputs.keys))  # (…, Q, K)
        never_empty = inputs.mask is None and type(score) in COMPILED_SCORES and scores.shape[-1] > 0
        weights = normalise(scores) if never_empty else normalised(scores, inputs.mask, normalise)
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

    Large problems with a score of this package are computed some queries at a time, also with dropout, or by
    ``regard.tensors.fused_pool``: both passes then hold O((Q + K)·(d + P)) numbers and a block. What dropout drops then
    follows ``torch.manual_seed``, but is not what ``nn.Dropout`` would drop.

    Parameters
    ----------
    score : module or function
        From queries (…, Q, d) and keys (…, K, d') to scores (…, Q, K): ``GaussianScore``, ``AdditiveScore``,
        ``DotProductScore``, ``BilinearScore``, or your own.
    dropout : float, default=0.0
        Probability of setting a weight to zero in training mode; the others are scaled up to compensate.
    normalise : function, default=softmax
        ``softmax``, ``sparsemax`` or ``entmax15``, or a function with the same contract.

    *Empty rows*: zeros, with gradients of zero. *Cost*: that of the score, and O(Q·K·P) time; O(Q·K) memory for small
    problems, your own scores, and if the weights are requested.

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
        score, layer = self.score, self.dropout
        # Its own mode: some turn dropout on in a model that is otherwise in evaluation mode.
        dropout = layer.p if layer.training else 0.0
        known = self.normalise is softmax and type(score) in COMPILED_SCORES
        if known and valid_lens is None and attn_mask is None and are_ordinary(queries, keys, values):
            found = quick_attention(score, queries, keys, values, dropout, need_weights=need_weights)  # type: ignore[arg-type]
            if found is not None:
                averages, weights = found
                return averages if weights is None else Attended(averages, weights)
        inputs = prepared(queries, keys, values, valid_lens, attn_mask)
        numbers = self._numbers(inputs)
        if not need_weights and known:
            output = self._pooled(inputs, numbers, dropout)
            if output is not None:
                return output
        attended = self._in_plain_torch(inputs, numbers, need_weights)
        return attended if need_weights else attended.output

    def _numbers(self, inputs: LayerInputs) -> int:
        """What the scores of all pairs hold in plain torch, by differences if they are differences."""
        pairs = prod(inputs.queries.shape[:-1]) * inputs.keys.shape[-2]
        if isinstance(self.score, HiddenScore):
            return pairs * self.score.w_v.in_features
        return pairs * inputs.keys.shape[-1] if isinstance(self.score, GaussianScore) else pairs

    def _pooled(self, inputs: LayerInputs, numbers: int, dropout: float) -> Tensor | None:
        """The output (…, Q, P) by a program or in blocks, which never form (…, Q, K); None if by neither."""
        score, values = cast(ScoreLayer, self.score), inputs.values
        by_products = not isinstance(score, HiddenScore) and can_branch(*inputs[:3])
        # Whether products are accurate is asked only where it decides; on a GPU it waits for the device.
        decides = by_products and (dropout > 0.0 or not tensor_planner.on_programs(values))
        if decides and isinstance(score, GaussianScore) and numbers > tensor_planner.MAX_DENSE["cpu"]:
            by_products = gaussian_sides(*widened(*inputs[:2], score.w)) is not None
        if inputs.mask is not None and inputs.mask.requires_grad:
            return None  # the programs have no gradient of a mask
        if tensor_planner.layer_is_dense(
            *inputs[:3],
            numbers,
            by_products=by_products,
            dot=type(score) is not GaussianScore,
            dropout=dropout > 0.0,
        ):
            return None
        score.check(inputs.queries, inputs.keys)
        with full_precision(values.device):
            queries, keys, plain = score.as_plain(inputs.queries, inputs.keys)
            batch = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2], values.shape[:-2])  # type: ignore[no-untyped-call]
            given = TensorInputs(queries, keys, values, batch, inputs.mask)
            if dropout:
                output = pool_with_dropout(given, plain, dropout)
            else:
                output, _ = pool_inputs(given, plain, check_numbers=True, finite=True, need_logsumexp=False)
        return None if output is None else inputs.finish_output(output)

    def _in_plain_torch(self, inputs: LayerInputs, numbers: int, need_weights: bool) -> Attended:
        """In plain torch. If much would be held, some queries at a time, computed again in the backward pass."""
        rest = self.normalise, self.dropout
        if type(self.score) not in COMPILED_SCORES or not can_branch(*inputs[:3]):
            return attend(self.score, inputs, *rest)
        queries, most = inputs.queries.shape[-2], MAX_NUMBERS_AT_ONCE["cuda" if inputs.queries.is_cuda else "cpu"]
        pairs = prod(inputs.queries.shape[:-1]) * inputs.keys.shape[-2]
        if numbers > most and isinstance(self.score, GaussianScore):
            by_products = gaussian_sides(*widened(*inputs[:2], self.score.w)) is not None
            numbers = pairs if by_products else numbers
        elif isinstance(self.score, HiddenScore) and inputs.queries.is_cpu:
            numbers = pairs  # units are summed block by block
        # The weights, if they are needed, are as many numbers themselves.
        if numbers <= most or (need_weights and numbers == pairs):
            return attend(self.score, inputs, *rest)

        def some(first: int) -> tuple[Tensor, ...]:
            attended = attend(self.score, inputs.take(slice(first, first + rows)), *rest)
            return attended if need_weights else attended[:1]

        rows = max(MIN_QUERIES_AT_ONCE, most * queries // numbers)
        parts = [checkpoint(some, first, use_reentrant=False) for first in range(0, queries, rows)]
        output, *weights = (torch.cat(part, -2) for part in zip(*parts, strict=True))
        return Attended(output, weights[0] if weights else output.new_empty(0))

    def extra_repr(self) -> str:
        name = getattr(self.normalise, "__name__", repr(self.normalise))
        return "" if self.normalise is softmax else f"normalise={name}"
