"""Plain dot products in half precision: torch's own fused attention, which nobody beats, with its logsumexp kept.

``F.scaled_dot_product_attention`` does not hand out the logsumexp, so the operators under it are called. The gradient
of the logsumexp is computed only if somebody asks for one.
"""

from __future__ import annotations

from typing import Any

import torch

from regard.engines.gpu.launch import Attended
from regard.engines.gpu.lay import LOG2E, Who
from regard.engines.gpu.products import DOT_ROWS, gradients

Tensor = torch.Tensor

# What ``torch._fused_sdp_choice`` answers, and the operator it means.
FLASH, CUDNN = 1, 3
WIDEST = 256


def flash_pool(query: Tensor, key: Tensor, value: Tensor, w: float) -> tuple[Tensor, Tensor] | None:
    """output (…, Q, P) and logsumexp (…, Q) in float32; None where torch's attention does not take these tensors.

    It takes half precision on CUDA, one width for all, (B, Q, d) or (Q, d) with the same batch.
    """
    tensors = (query, key, value)
    if not all(isinstance(part, Tensor) and part.is_cuda and part.dtype == query.dtype for part in tensors):
        return None
    if query.dtype not in (torch.float16, torch.bfloat16) or len({part.ndim for part in tensors}) > 1:
        return None
    if query.ndim not in (2, 3) or len({(*part.shape[:-2], part.shape[-1]) for part in tensors}) > 1:
        return None
    width = query.shape[-1]
    if width % 8 or not 0 < width <= WIDEST or key.shape[-2] != value.shape[-2] or not query.numel() * key.numel():
        return None
    heads = (None, None) if query.ndim == 2 else (slice(None), None)
    q, k, v = (part[heads] for part in tensors)  # (B, 1, rows, d)
    scale = w / width**0.5
    choice = int(torch._fused_sdp_choice(q, k, v, scale=scale))
    if choice == CUDNN:
        found = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, False, False, scale=scale)
    elif choice == FLASH:
        found = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, False, False, scale=scale)
    else:
        return None
    logsumexp = found[1].reshape(len(q), -1)[:, : query.shape[-2]].detach()
    if any(part.requires_grad for part in (query, key)):
        logsumexp = _LogMass.apply(q[:, 0], k[:, 0], logsumexp, scale)  # type: ignore[no-untyped-call]
    return found[0][:, 0].reshape(value[..., :0, :].shape[:-2] + query.shape[-2:]), logsumexp.reshape(query.shape[:-1])


class _LogMass(torch.autograd.Function):
    """logsumexp as it is, with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, logsumexp: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(query, key, logsumexp)
        ctx.scale = scale
        return logsumexp.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        query, key, logsumexp = ctx.saved_tensors
        nothing = key.new_zeros(*key.shape[:2], 1)
        output = torch.zeros(*logsumexp.shape, 1, device=grad.device)
        state = torch.stack([logsumexp * LOG2E, torch.ones_like(logsumexp)], 1)
        w = torch.tensor(float(ctx.scale), device=grad.device)
        found = Attended(output, logsumexp, state)
        part = gradients(
            DOT_ROWS, query, key, nothing, w, Who(), found, output, grad.contiguous(), frozenset({"query", "key"})
        )
        assert part.query is not None
        assert part.key is not None
        return part.query.to(query.dtype), part.key.to(key.dtype), None, None
