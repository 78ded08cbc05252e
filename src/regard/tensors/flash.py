"""Plain dot products in half precision: torch's own fused attention, which is the fastest, with its logsumexp.

``F.scaled_dot_product_attention`` does not return the logsumexp, so the operators beneath it are called. The gradient
of the logsumexp is computed only if it is needed.
"""

from __future__ import annotations

from typing import Any

import torch

from regard.engines.gpu.batch_passes import backward_batch
from regard.engines.gpu.launch import ForwardResult
from regard.engines.gpu.layout import DOT_PRODUCTS, LOG2E, LoweredBatch
from regard.tensors.second_derivatives import differentiable_again, require_plain_fits

Tensor = torch.Tensor


def flash_pool(query: Tensor, key: Tensor, value: Tensor, w: float, path: str) -> tuple[Tensor, Tensor]:
    """output (…, Q, d) and logsumexp (…, Q) in float32, by the operator that ``path`` names: "flash" or "cudnn".

    query (…, Q, d), key (…, K, d) and value (…, K, d) in half precision, with one axis in front or none.
    """
    q, k, v = (part.reshape(-1, 1, *part.shape[-2:]) for part in (query, key, value))  # (B, 1, rows, d)
    scale = w / query.shape[-1] ** 0.5
    if path == "cudnn":
        found = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, False, False, scale=scale)
    else:
        found = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, False, False, scale=scale)
    logsumexp = found[1].reshape(len(q), -1)[:, : query.shape[-2]].detach()
    if any(part.requires_grad for part in (query, key)):
        logsumexp = _LogMass.apply(q[:, 0], k[:, 0], logsumexp, scale)  # type: ignore[no-untyped-call]
    return found[0][:, 0].reshape(query.shape), logsumexp.reshape(query.shape[:-1])


class _LogMass(torch.autograd.Function):
    """logsumexp as it is, with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, logsumexp: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(query, key, logsumexp)
        ctx.scale = scale
        return logsumexp.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        query, key, _ = ctx.saved_tensors
        with torch.no_grad():
            found = _LogMass._gradients(ctx, grad)

        def plain(query: Tensor, key: Tensor) -> tuple[Tensor]:
            require_plain_fits(query.shape[0] * query.shape[1] * key.shape[1])
            return (torch.logsumexp(ctx.scale * (query.float() @ key.float().mT), -1),)

        d_query, d_key = differentiable_again(found, plain, (query, key), (grad,))
        return d_query, d_key, None, None

    @staticmethod
    def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        query, key, logsumexp = ctx.saved_tensors
        no_values = key.new_zeros(*key.shape[:2], 1)
        output = torch.zeros(*logsumexp.shape, 1, device=grad.device)
        state = torch.stack([logsumexp * LOG2E, torch.ones_like(logsumexp)], 1)
        w = torch.tensor(float(ctx.scale), device=grad.device)
        found = ForwardResult(output, logsumexp, state)
        it = LoweredBatch(DOT_PRODUCTS, query, key, no_values, w)
        part = backward_batch(it, found, output, grad.contiguous(), frozenset({"query", "key"}))
        return part["query"].to(query.dtype), part["key"].to(key.dtype)
