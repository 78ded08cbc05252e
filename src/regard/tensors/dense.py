"""Attention in plain torch that forms (B, Q, K): for small problems, and as the oracle of the operators.

Everything is differentiable, also twice.
"""

from __future__ import annotations

import torch

from regard.core import kernels
from regard.engines.gpu.layout import ADDITIVE, DOT, LoweredBatch, largest_batch
from regard.tensors.decaying_scores import decaying_scores
from regard.tensors.gaussian_products import gaussian_scores
from regard.tensors.hidden_scores import hidden_scores
from regard.tensors.second_derivatives import require_plain_fits

Tensor = torch.Tensor

# Scores that are finite for every pair.
NEVER_EMPTY = (DOT, ADDITIVE, kernels.GAUSSIAN, kernels.LAPLACE)


def dense_pool(it: LoweredBatch) -> tuple[Tensor, Tensor]:
    """output (B, Q, P) and logsumexp (B, Q), as by ``regard::pool``.

    A query that may attend to NaN or infinity gets NaN, and no other query is affected.
    """
    weights, logsumexp = dense_weights(it)
    value = it.value
    if not it.visibility.finite:
        value = value.masked_fill(~value.isfinite().all(2)[:, :, None], 0.0)
    return weights @ value, logsumexp


def dense_weights(it: LoweredBatch) -> tuple[Tensor, Tensor]:
    """Weights (B, Q, K) and logsumexp (B, Q)."""
    code, query, key, value, w, (mask, bias, lens, query_labels, key_labels, log_weight, finite) = it
    if finite and key.shape[1] and code in NEVER_EMPTY and all(part is None for part in it.visibility[:6]):
        scores, offset = dense_scores(query, key, w, code, None)
        logsumexp = torch.logsumexp(scores, 2, keepdim=True) + offset
        return torch.softmax(scores, 2), logsumexp.clamp(min=torch.finfo(scores.dtype).min)[:, :, 0]
    allowed = torch.ones((1, query.shape[1], key.shape[1]), dtype=torch.bool, device=query.device)
    if mask is not None:
        allowed = allowed & mask
    if lens is not None:
        allowed = allowed & (torch.arange(key.shape[1], device=query.device) < lens[:, :, None])
    if query_labels is not None and key_labels is not None:
        allowed = allowed & (query_labels[:, :, None] != key_labels[:, None, :])
    if log_weight is not None:
        allowed = allowed & (log_weight > -torch.inf)[:, None, :]
    if bias is not None:
        allowed = allowed & (bias > -torch.inf)
    # What is hidden or not finite must not enter a gradient; a pair with the latter gets a score of NaN below.
    bad_query = ~query.isfinite().all(2)
    bad_key = ~(key.isfinite().all(2) & value.isfinite().all(2))
    query = query.masked_fill((bad_query | ~allowed.any(2))[:, :, None], 0.0)
    key = key.masked_fill((bad_key | ~allowed.any(1))[:, :, None], 0.0)
    scores, offset = dense_scores(query, key, w, code, allowed)
    if bias is not None:
        scores = scores + torch.where(bias > -torch.inf, bias, 0.0)
    if log_weight is not None:
        scores = scores + torch.where(log_weight > -torch.inf, log_weight, 0.0).to(scores.dtype)[:, None, :]
    scores = scores.masked_fill(bad_query[:, :, None] | bad_key[:, None, :], torch.nan)
    allowed = allowed & (scores != -torch.inf)
    peak = (
        torch.where(allowed, scores, -torch.inf).amax(2, keepdim=True).detach() if key.shape[1] else scores.sum(2, True)
    )
    level = torch.where(torch.isfinite(peak), peak, 0.0)
    e = torch.where(allowed, torch.exp(torch.where(allowed, scores, level) - level), 0.0)
    mass = e.sum(2, keepdim=True)
    attended = mass != 0.0
    safe = torch.where(attended, mass, 1.0)
    logsumexp = (offset + (level + torch.log(safe))).clamp(min=torch.finfo(scores.dtype).min)
    return e / safe, torch.where(attended, logsumexp, -torch.inf)[:, :, 0]


def dense_again(it: LoweredBatch) -> tuple[Tensor, Tensor]:
    """``dense_pool`` of a batch that a program computed, in float32 at least, for second derivatives."""
    batch, features = largest_batch(*it[1:4], *it.visibility[:6]), it.query.shape[2]
    require_plain_fits(batch * it.query.shape[1] * it.key.shape[1] * (1 if it.code == DOT else features))
    real = torch.promote_types(it.query.dtype, torch.float32)
    query, key, value, w = (part.to(real) for part in it[1:5])
    return dense_pool(it._replace(query=query, key=key, value=value, w=w))


def dense_scores(
    query: Tensor, key: Tensor, w: Tensor, code: int, allowed: Tensor | None
) -> tuple[Tensor, Tensor | float]:
    """Scores (B, Q, K), −inf outside the support of a compact kernel, less a level of each query, and that level.

    Where a kernel has a kink at distance 0, its gradient there is 0.
    """
    if code == DOT:
        return (w * query) @ key.mT, 0.0
    if code == ADDITIVE:
        return hidden_scores(query, key, w), 0.0
    if code == kernels.GAUSSIAN:
        return gaussian_scores(query, key, w, allowed)
    if code == kernels.LAPLACE:
        return decaying_scores(query, key, w, laplace=True, allowed=allowed)
    # Beyond 1 a kernel is 0 at any distance; clamped, squares do not overflow.
    u2 = ((query[:, :, None, :] - key[:, None, :, :]) * w).clamp(-2.0, 2.0).square().sum(3)
    apart = u2 > 0.0
    u = torch.where(apart, torch.sqrt(torch.where(apart, u2, 1.0)), 0.0)
    inside = u2 <= 1.0
    u, u2 = torch.where(inside, u, 0.0), torch.where(inside, u2, 0.0)
    formulas = {
        kernels.BOXCAR: lambda: torch.ones_like(u),
        kernels.TRIANGULAR: lambda: 1.0 - u,
        kernels.EPANECHNIKOV: lambda: 1.0 - u2,
        kernels.BIWEIGHT: lambda: (1.0 - u2) ** 2,
        kernels.TRIWEIGHT: lambda: (1.0 - u2) ** 3,
        kernels.TRICUBE: lambda: (1.0 - u2 * u) ** 3,
        kernels.COSINE: lambda: torch.sin(0.5 * torch.pi * (1.0 - u)),
    }
    kernel = formulas[code]()
    positive = inside & (kernel > 0.0)
    return torch.where(positive, torch.log(torch.where(positive, kernel, 1.0)), -torch.inf), 0.0
