"""From scores to weights: softmax, and two alternatives that give most keys a weight of exactly 0.

Each takes scores (…, K) with −inf for "cannot attend" and returns weights (…, K), not negative and summing to 1 over
the last axis. ``normalised`` applies a mask first and handles empty rows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.nn.masks import combined, masked_scores
from regard.nn.precision import widened
from regard.tensors.tensor_inputs import Lengths, can_branch

Normalise = Callable[[Tensor], Tensor]


def softmax(scores: Tensor) -> Tensor:
    """weightₖ = exp(scoreₖ) / Σⱼ exp(scoreⱼ): every weight is positive.

    Parameters
    ----------
    scores : tensor (…, K)
        Scores, −inf for "cannot attend".

    Returns
    -------
    tensor (…, K)
        Not negative, summing to 1.

    >>> softmax(torch.tensor([0.0, 0.0, -torch.inf])).tolist()
    [0.5, 0.5, 0.0]
    """
    return torch.softmax(scores, dim=-1)


def sparsemax(scores: Tensor) -> Tensor:
    """weightₖ = max(scoreₖ − τ, 0), τ such that they sum to 1: the Euclidean projection of the scores onto the simplex.

    Twice differentiable except where a score equals τ. *Cost*: a sort over the keys.

    Parameters
    ----------
    scores : tensor (…, K)
        Scores, −inf for "cannot attend".

    Returns
    -------
    tensor (…, K)
        Not negative, summing to 1.

    >>> sparsemax(torch.tensor([1.0, 0.5, -1.0])).tolist()
    [0.75, 0.25, 0.0]
    """
    if scores.shape[-1] == 0:
        return scores
    z, zero = _below_peak(scores)
    support, size, inside = _support(z, lambda top, count: (top.cumsum(-1) - 1.0) / count)
    tau = (inside.sum(-1, keepdim=True) - 1.0) / size
    return (torch.where(support, inside - tau, 0.0) + zero).to(scores.dtype)


def entmax15(scores: Tensor) -> Tensor:
    """weightₖ = max(scoreₖ/2 − τ, 0)², τ such that they sum to 1: between softmax and sparsemax.

    Twice differentiable except where a score equals τ. *Cost*: a sort over the keys.

    Parameters
    ----------
    scores : tensor (…, K)
        Scores, −inf for "cannot attend".

    Returns
    -------
    tensor (…, K)
        Not negative, summing to 1.

    >>> entmax15(torch.tensor([2.0, 0.0, -4.0])).tolist()
    [1.0, 0.0, 0.0]
    """
    if scores.shape[-1] == 0:
        return scores
    z, zero = _below_peak(scores / 2.0)

    def taus(top: Tensor, count: Tensor) -> Tensor:
        mean = top.cumsum(-1) / count
        variance = (top.square().cumsum(-1) / count - mean.square()).clamp(min=0.0)
        return mean - (1.0 / count - variance).clamp(min=0.0).sqrt()

    support, size, inside = _support(z, taus)
    mean = inside.sum(-1, keepdim=True) / size
    squares = torch.where(support, inside - mean, 0.0).square().sum(-1, keepdim=True)
    tau = mean - ((1.0 - squares) / size).sqrt()
    return (torch.where(support, inside - tau, 0.0).square() + zero).to(scores.dtype)


def normalised(scores: Tensor, mask: Tensor | None, normalise: Normalise) -> Tensor:
    """Weights (…, Q, K) of the pairs that may attend. *Empty rows*: all zero, with gradients of zero."""
    scores = masked_scores(scores, mask)
    if scores.shape[-1] == 0:
        return scores
    empty = scores.detach().amax(-1, keepdim=True) == -torch.inf
    # Without empty rows, which are rare, two passes over all pairs are saved.
    if can_branch(empty) and not bool(empty.any()):
        return normalise(scores)
    return normalise(scores.masked_fill(empty, 0.0)).masked_fill(empty, 0.0)


def masked_softmax(scores: Tensor, valid_lens: Lengths | None = None, *, attn_mask: Tensor | None = None) -> Tensor:
    """Softmax over the keys a query may attend to; the weight of all others is exactly 0.

    Parameters
    ----------
    scores : tensor (…, Q, K)
        Commonly (B, Q, K). The score of a masked pair has no effect, even if it is NaN.
    valid_lens : tensor of int (B,) or (B, Q), default=None
        Only the first ``valid_lens`` keys may be attended to.
    attn_mask : tensor, default=None
        Broadcasts to the scores; boolean, True = may attend, or floats to add, −inf = may not.

    Returns
    -------
    tensor (…, Q, K)
        In the dtype of the scores, computed in float32 at least.

    *Empty rows*: all zero, with gradients of zero. *Cost*: O(Q·K).

    >>> masked_softmax(torch.zeros(2, 1, 3), torch.tensor([2, 0])).tolist()
    [[[0.5, 0.5, 0.0]], [[0.0, 0.0, 0.0]]]
    """
    if scores.ndim < 2 or not scores.is_floating_point():
        raise ValueError(f"scores must be floats of shape (…, queries, keys), got {scores.dtype} {tuple(scores.shape)}")
    mask = combined(scores.shape, scores.device, valid_lens, attn_mask)
    (wide,) = widened(scores)
    return normalised(wide, mask, softmax).to(scores.dtype)


def _below_peak(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Scores minus the largest, and zeros (…, 1) that are NaN in rows where softmax would be."""
    (wide,) = widened(scores)
    peak = wide.detach().amax(-1, keepdim=True)
    return wide - peak, peak - peak


def _support(z: Tensor, taus_of: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Keys (…, K) above the threshold, their number (…, 1), and z with 0 for all others.

    ``taus_of`` returns the thresholds for supports of the 1, 2, …, K largest scores; the largest support all of whose
    scores exceed its threshold is taken.
    """
    # Both thresholds are above −1, so scores below −2 may be clamped.
    top = z.detach().clamp(min=-2.0).sort(-1, descending=True).values
    taus = taus_of(top, torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype))
    largest = (top > taus).sum(-1, keepdim=True)
    support = z > taus.gather(-1, (largest - 1).clamp(min=0))
    return support, support.sum(-1, keepdim=True), torch.where(support, z, 0.0)
