"""Attention pooling in plain torch: for small problems, and as the oracle of the operators. It forms (B, Q, K).

Everything is differentiable, twice too.
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor

# Codes of scores that are no kernels; kernels have their row numbers in ``regard.kernels``.
DOT, ADDITIVE = 9, 10


def plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    w: Tensor,
    code: int,
    mask: Tensor | None,
    bias: Tensor | None,
    lens: Tensor | None,
    query_labels: Tensor | None,
    key_labels: Tensor | None,
    log_weight: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """output (B, Q, P) and logsumexp (B, Q); arguments as those of ``regard::pool``."""
    allowed = torch.ones((1, query.shape[1], key.shape[1]), dtype=torch.bool, device=query.device)
    if mask is not None:
        allowed = allowed & mask
    if lens is not None:
        allowed = allowed & (torch.arange(key.shape[1], device=query.device) < lens[:, :, None])
    if query_labels is not None and key_labels is not None:
        allowed = allowed & (query_labels[:, :, None] != key_labels[:, None, :])
    if log_weight is not None:
        allowed = allowed & (log_weight > -torch.inf)[:, None, :]
    # What nobody may attend to may be anything, and must not reach a gradient.
    seen, looking = allowed.any(1)[:, :, None], allowed.any(2)[:, :, None]
    key, value, query = torch.where(seen, key, 0.0), torch.where(seen, value, 0.0), torch.where(looking, query, 0.0)
    scores = scores_of(query, key, w, code)
    if bias is not None:
        scores = scores + torch.where(bias > -torch.inf, bias, 0.0)
        allowed = allowed & (bias > -torch.inf)
    if log_weight is not None:
        scores = scores + torch.where(log_weight > -torch.inf, log_weight, 0.0).to(scores.dtype)[:, None, :]
    allowed = allowed & (scores > -torch.inf)
    peak = (
        torch.where(allowed, scores, -torch.inf).amax(2, keepdim=True).detach() if key.shape[1] else scores.sum(2, True)
    )
    level = torch.where(torch.isfinite(peak), peak, 0.0)
    e = torch.where(allowed, torch.exp(torch.where(allowed, scores, level) - level), 0.0)
    mass = e.sum(2, keepdim=True)
    some = mass > 0.0
    safe = torch.where(some, mass, 1.0)
    logsumexp = torch.where(some, level + torch.log(safe), -torch.inf)[:, :, 0]
    return (e / safe) @ value, logsumexp


def scores_of(query: Tensor, key: Tensor, w: Tensor, code: int) -> Tensor:
    """Scores (B, Q, K), −inf beyond a compact kernel's reach; a pair at distance 0 pulls nowhere."""
    if code == DOT:
        return w * (query @ key.transpose(1, 2))
    if code == ADDITIVE:
        return torch.tanh(query[:, :, None, :] + key[:, None, :, :]) @ w
    u2 = (((query[:, :, None, :] - key[:, None, :, :]) * w) ** 2).sum(3)
    if code == 0:
        return -0.5 * u2
    apart = u2 > 0.0
    u = torch.where(apart, torch.sqrt(torch.where(apart, u2, 1.0)), 0.0)
    if code == 1:
        return -u
    inside = u2 <= 1.0
    u, u2 = torch.where(inside, u, 0.0), torch.where(inside, u2, 0.0)
    formulas = {
        2: lambda: torch.ones_like(u),
        3: lambda: 1.0 - u,
        4: lambda: 1.0 - u2,
        5: lambda: (1.0 - u2) ** 2,
        6: lambda: (1.0 - u2) ** 3,
        7: lambda: (1.0 - u2 * u) ** 3,
        8: lambda: torch.sin(0.5 * torch.pi * (1.0 - u)),
    }
    height = formulas[code]()
    reached = inside & (height > 0.0)
    return torch.where(reached, torch.log(torch.where(reached, height, 1.0)), -torch.inf)
