"""Attention without masks in as few operations as torch needs, for problems so small that each of them counts.

What is computed is checked instead of what is given, where that is less: an entry that is not finite shows in the
bound on products, or in the output, since a weight of 0 times NaN or infinity is NaN. Scores that may hide it, a score
of −inf or the tanh of infinity, have their inputs checked. If anything is not finite the caller starts over on the
general path, which finds the queries that it affects.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.nn.additive import HiddenScore
from regard.nn.score_layers import DotProductScore, GaussianScore, ScoreLayer
from regard.tensors import tensor_planner
from regard.tensors.gaussian_products import gaussian_sides
from regard.tensors.query_blocks import scaled_products, takes_torch_attention, torch_attention
from regard.tensors.tensor_inputs import is_finite


def quick_attention(
    score: ScoreLayer, queries: Tensor, keys: Tensor, values: Tensor, dropout: float, *, need_weights: bool
) -> tuple[Tensor, Tensor | None] | None:
    """output (…, Q, P), and weights (…, Q, K) from before dropout if they are needed, of ``are_ordinary`` tensors.

    None if another path takes it: many pairs, a parameter of another dtype, products that would round too much, or
    something that is not finite.
    """
    score.check(queries, keys)
    pairs = queries.shape[:-1].numel() * keys.shape[-2]
    # Weights that are needed are as many numbers themselves.
    few = need_weights or pairs <= tensor_planner.MAX_PAIRS_WITHOUT_BLOCKS
    scores: Tensor | None = None
    if isinstance(score, GaussianScore):
        w = score.w
        sides = gaussian_sides(_flat(queries), _flat(keys), w) if few and w.dtype is queries.dtype else None
        scores = None if sides is None else sides.scores()
    elif isinstance(score, HiddenScore):
        same = score.w_v.weight.dtype is queries.dtype
        if few and same and is_finite(queries) and is_finite(keys):
            scores = score.between(_flat(queries), _flat(score.keep(keys)))
    else:
        scale = 1.0
        if isinstance(score, DotProductScore):
            scale = queries.shape[-1] ** -0.5
        elif (W := score.W).dtype is queries.dtype:
            keys = keys @ W.T
        else:
            return None
        few_of_one = pairs <= tensor_planner.MAX_PAIRS_WITHOUT_TORCH_ATTENTION and queries.ndim == 3
        if not (few_of_one or dropout or need_weights) and takes_torch_attention(queries, keys, values):
            return _by_torch(queries, keys, values, scale)
        scores = scaled_products(_flat(queries), _flat(keys), scale) if few and is_finite(keys) else None
    if scores is None:
        return None
    weights = torch.softmax(scores, -1)
    output = torch.bmm(torch.dropout(weights, dropout, True) if dropout else weights, _flat(values))
    if not is_finite(output):
        return None
    if queries.ndim > 3:
        batch = queries.shape[:-2]
        output, weights = output.view(*batch, *output.shape[1:]), weights.view(*batch, *weights.shape[1:])
    return output, weights if need_weights else None


def _by_torch(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> tuple[Tensor, None] | None:
    """The output by torch's own attention, which takes heads in the layout they have."""
    q, k, v = (part if part.ndim == 4 else _flat(part).unsqueeze(1) for part in (queries, keys, values))
    output, _ = torch_attention(q, k, v, scale)
    # That may give a query that is not finite an output that is.
    if is_finite(queries) and is_finite(keys) and is_finite(output):
        return output if queries.ndim == 4 else output.view(queries.shape), None
    return None


def _flat(part: Tensor) -> Tensor:
    """With one batch axis."""
    return part if part.ndim == 3 else part.flatten(0, -3)
