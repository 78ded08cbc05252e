"""Scores lowered to what the programs know: both sides projected if the score projects, one parameter, and a code.

Lowering is plain torch and differentiable: gradients of the lowered batch go back through it to the score's own
parameters by autograd, in the engine as in ``regard.tensors``.
"""

from __future__ import annotations

from typing import Any

import torch

from regard.core.scores import Additive, DotProduct, Radial, Score
from regard.engines.gpu.layout import ADDITIVE, DOT, LoweredBatch, Tensor, Visibility


def parameter(given: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A parameter of a score as a tensor; numbers beyond the range of the dtype become its largest."""
    if isinstance(given, Tensor):
        return given.to(device=device, dtype=dtype)
    limits = torch.finfo(dtype)
    if given.ndim:
        return torch.tensor(given.clip(limits.min, limits.max).tolist(), dtype=dtype, device=device)
    # A number is filled in, not copied: a graph that is being captured cannot wait for the host.
    return torch.full((), min(max(float(given), limits.min), limits.max), dtype=dtype, device=device)


def lower(query: Tensor, key: Tensor, value: Tensor, score: Score, visibility: Visibility) -> LoweredBatch:
    """The problems (B, rows, features) as the programs know them."""
    limits = torch.finfo(query.dtype)

    def within(given: Any) -> Tensor:
        part = parameter(given, query.dtype, query.device)
        return part.clamp(limits.min, limits.max) if isinstance(given, Tensor) else part

    if isinstance(score, Additive):
        W_q, W_k, w_v = (within(part) for part in (score.W_q, score.W_k, score.w_v))
        return LoweredBatch(ADDITIVE, query @ W_q.T, key @ W_k.T, value, w_v, visibility)
    if isinstance(score, DotProduct):
        root = max(query.shape[2], 1) ** 0.5
        w = within(score.w / root) if isinstance(score.w, Tensor) else within(score.w) / root
        return LoweredBatch(DOT, query, key, value, w, visibility)
    if not isinstance(score, Radial):
        raise TypeError(f"the score {type(score).__name__} has no Triton program")
    w = within(score.w)
    if w.ndim == 2:
        centre = centre_of(key)
        # A power of two is factored out: products of numbers and a large w would overflow.
        power = torch.frexp(w.detach().abs().amax() if w.numel() else w.new_zeros(())).exponent
        w = shifted(w, -power)
        query, key, w = (query - centre) @ w, (key - centre) @ w, shifted(query.new_ones(()), power)
    return LoweredBatch(score.kernel.code, query, key, value, w, visibility)


def centre_of(key: Tensor) -> Tensor:
    """The mean of the keys (d,), of which differences project with least rounding; what a mask hides does not count."""
    return torch.where(torch.isfinite(key), key, 0.0).detach().flatten(0, -2).mean(0)


def shifted(x: Tensor, exponent: Tensor) -> Tensor:
    """x·2^exponent, in steps: the power itself need not fit into the dtype."""
    for part in range(4):
        x = x * torch.exp2(((exponent + part) // 4).to(x.dtype))
    return x
