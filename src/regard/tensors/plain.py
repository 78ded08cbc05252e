"""Attention pooling in plain torch: for small problems, and as the oracle of the operators. It forms (B, Q, K).

Everything is differentiable, twice too.
"""

from __future__ import annotations

import torch

from regard.core import kernels
from regard.engines.gpu.lay import ADDITIVE, DOT, Batch
from regard.tensors.decay import decaying

Tensor = torch.Tensor


def plain(it: Batch) -> tuple[Tensor, Tensor]:
    """output (B, Q, P) and logsumexp (B, Q), as by ``regard::pool``.

    A query that may attend to NaN or infinity gets NaN, and no other notices.
    """
    code, query, key, value, w, (mask, bias, lens, query_labels, key_labels, log_weight, _) = it
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
    # What is hidden or not finite must not reach a gradient; a pair with the latter gets a score of NaN below.
    odd_query = ~query.isfinite().all(2)
    odd_key = ~(key.isfinite().all(2) & value.isfinite().all(2))
    query = query.masked_fill((odd_query | ~allowed.any(2))[:, :, None], 0.0)
    key, value = (part.masked_fill((odd_key | ~allowed.any(1))[:, :, None], 0.0) for part in (key, value))
    scores, height = scores_of(query, key, w, code, allowed)
    if bias is not None:
        scores = scores + torch.where(bias > -torch.inf, bias, 0.0)
    if log_weight is not None:
        scores = scores + torch.where(log_weight > -torch.inf, log_weight, 0.0).to(scores.dtype)[:, None, :]
    scores = scores.masked_fill(odd_query[:, :, None] | odd_key[:, None, :], torch.nan)
    allowed = allowed & (scores != -torch.inf)
    peak = (
        torch.where(allowed, scores, -torch.inf).amax(2, keepdim=True).detach() if key.shape[1] else scores.sum(2, True)
    )
    level = torch.where(torch.isfinite(peak), peak, 0.0)
    e = torch.where(allowed, torch.exp(torch.where(allowed, scores, level) - level), 0.0)
    mass = e.sum(2, keepdim=True)
    some = mass != 0.0
    safe = torch.where(some, mass, 1.0)
    logsumexp = (height + (level + torch.log(safe))).clamp(min=torch.finfo(scores.dtype).min)
    return (e / safe) @ value, torch.where(some, logsumexp, -torch.inf)[:, :, 0]


def scores_of(query: Tensor, key: Tensor, w: Tensor, code: int, allowed: Tensor) -> tuple[Tensor, Tensor | float]:
    """Scores (B, Q, K), −inf beyond a compact kernel's reach, less a level of each query, and that level.

    A pair at distance 0 pulls nowhere.
    """
    if code == DOT:
        return w * (query @ key.transpose(1, 2)), 0.0
    if code == ADDITIVE:
        return torch.tanh(query[:, :, None, :] + key[:, None, :, :]) @ w, 0.0
    if code in (kernels.GAUSSIAN, kernels.LAPLACE):
        return decaying(query, key, w, laplace=code == kernels.LAPLACE, allowed=allowed)
    # Beyond 1 a kernel does not tell how far, and squares do not overflow.
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
    height = formulas[code]()
    reached = inside & (height > 0.0)
    return torch.where(reached, torch.log(torch.where(reached, height, 1.0)), -torch.inf), 0.0
