"""Gaussian and dot-product pooling without options in as few operations as torch needs, for small problems."""

from __future__ import annotations

import torch

from regard.core.scores import DotProduct, Gaussian, Score
from regard.engines.gpu.lowering import parameter
from regard.tensors import tensor_planner
from regard.tensors.gaussian_products import gaussian_sides
from regard.tensors.query_blocks import takes_torch_attention, torch_attention
from regard.tensors.tensor_inputs import is_finite

Tensor = torch.Tensor


def quick_pool(query: Tensor, key: Tensor, value: Tensor, score: Score) -> tuple[Tensor, Tensor] | None:
    """output (B, Q, P) and logsumexp (B, Q) of ``are_ordinary`` float32 tensors, or None if another path takes them.

    That is other scores, many pairs, products that would round too much, or something that is not finite.
    """
    pairs = query.shape[0] * query.shape[1] * key.shape[1]
    if type(score) is DotProduct and not isinstance(score.w, Tensor) and takes_torch_attention(query, key, value):
        score.check(query.shape[2], key.shape[2])
        scale = float(score.w) / query.shape[2] ** 0.5
        output, logsumexp = torch_attention(query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1), scale)
        # 0 times a value that is not finite is NaN; a query that is not finite may have an output that is.
        if is_finite(query) and is_finite(key) and is_finite(output):
            return output.squeeze(1), logsumexp.squeeze(1)
        return None
    if type(score) is not Gaussian or pairs > tensor_planner.MAX_PAIRS_WITHOUT_BLOCKS:
        return None
    score.check(query.shape[2], key.shape[2])
    sides = gaussian_sides(query, key, parameter(score.w, query.dtype, query.device))
    if sides is None:
        return None
    scores = sides.scores()
    weights = torch.softmax(scores, -1)
    output = torch.bmm(weights, value)
    # The largest weight is exp(peak − logsumexp).
    logsumexp = scores.amax(-1) - torch.log(weights.amax(-1)) + sides.level
    return (output, logsumexp) if is_finite(output) else None
