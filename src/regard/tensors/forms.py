"""Problems in the operators' form: both sides projected where the score projects, one parameter, and a code."""

from __future__ import annotations

from typing import Any

import torch

from regard.core.scores import Additive, DotProduct, Radial, Score
from regard.engines.gpu.lay import ADDITIVE, DOT, Batch
from regard.tensors.decay import shifted
from regard.tensors.inputs import Laid

Tensor = torch.Tensor


def parameter(given: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A parameter of a score as a tensor; numbers beyond the range of the dtype become its largest."""
    if isinstance(given, Tensor):
        return given.to(device=device, dtype=dtype)
    limits = torch.finfo(dtype)
    within = given.clip(limits.min, limits.max)
    if given.ndim:
        return torch.tensor(within.tolist(), dtype=dtype, device=device)
    # A number is filled in, not copied: a graph that is being captured cannot wait for the host.
    return torch.full((), float(within), dtype=dtype, device=device)


def canonical(given: Laid, score: Score) -> Batch:
    """The problems as the operators know them."""
    query, key, value, who = given[:4]

    def within(given: Any) -> Tensor:
        part = parameter(given, query.dtype, query.device)
        limits = torch.finfo(query.dtype)
        return part.clamp(limits.min, limits.max) if isinstance(given, Tensor) else part

    if isinstance(score, Additive):
        W_q, W_k, w_v = (within(part) for part in (score.W_q, score.W_k, score.w_v))
        return Batch(ADDITIVE, query @ W_q.T, key @ W_k.T, value, w_v, who)
    assert isinstance(score, Radial | DotProduct)
    w = within(score.w)
    if isinstance(score, DotProduct):
        return Batch(DOT, query, key, value, w / max(query.shape[2], 1) ** 0.5, who)
    if w.ndim == 2:
        # Seen from their middle, projections round least; what a mask hides must not move it.
        centre = torch.where(torch.isfinite(key), key, 0.0).detach().mean((0, 1))
        # A power of two stays outside: products of numbers and a large w would overflow.
        power = torch.frexp(w.detach().abs().amax() if w.numel() else w.new_zeros(())).exponent
        w = shifted(w, -power)
        query, key, w = (query - centre) @ w, (key - centre) @ w, shifted(query.new_ones(()), power)
    return Batch(score.kernel.code, query, key, value, w, who)


def far(it: Batch) -> Tensor:
    """Queries (Q,) for which the programs' squares of distances, or of w, may round to each other or overflow."""
    query, key, w = it.query.detach(), it.key.detach(), it.w.detach()
    limits = torch.finfo(query.dtype)
    low, high = key.amin(1, keepdim=True), key.amax(1, keepdim=True)
    nearest, farthest = (
        (low - query).clamp(min=0.0) + (query - high).clamp(min=0.0),
        torch.maximum(high - query, query - low),
    )
    near, far = (((part * w) ** 2).sum(2) for part in (nearest, farthest))  # (B, Q)
    size = w.abs()
    extreme = ((size > 0.0) & ~((size > limits.tiny**0.48) & (size < limits.max**0.48))).any()
    ordinary: Tensor = (near <= 1.0 / limits.eps) & (far <= limits.max**0.96)
    return torch.any(~ordinary | extreme, 0)
