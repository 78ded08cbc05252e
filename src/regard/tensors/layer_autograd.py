"""Attention of a layer's size on a GPU: few launches, and the host never waits.

Gaussian, dot-product and additive scores of one batch with lengths and boolean masks, as ``tensor_planner`` decides.
"""

from __future__ import annotations

from typing import Any

import torch

from regard.core.kernels import GAUSSIAN
from regard.core.scores import Additive, DotProduct, Score
from regard.engines.gpu.launch import ForwardResult
from regard.engines.gpu.layer_launch import layer_backward, layer_forward
from regard.engines.gpu.layout import ADDITIVE, DOT, LoweredBatch, Visibility
from regard.engines.gpu.lowering import parameter
from regard.tensors.dense import dense_again
from regard.tensors.second_derivatives import differentiable_again
from regard.tensors.tensor_inputs import TensorInputs

Tensor = torch.Tensor


def layer_pool(given: TensorInputs, score: Score) -> tuple[Tensor, Tensor]:
    """output (…, Q, P) in the query's dtype and logsumexp (…, Q)."""
    query, batch, lens, mask = given.query, given.batch, given.lens, given.mask
    Q, K = query.shape[-2], given.key.shape[-2]
    q, k, v = (part if len(batch) == 1 else part.reshape(-1, *part.shape[-2:]) for part in given[:3])
    if lens is not None:
        lens = lens.expand(*batch, lens.shape[-1]).reshape(-1, lens.shape[-1])
        lens = lens[:, 0] if lens.shape[1] == 1 else lens
    if mask is not None:
        mask = mask.expand(*batch, Q, K).reshape(-1, Q, K)
    it = _lowered(q, k, v, score, Visibility(mask=mask, lens=lens))
    if torch.is_grad_enabled() and any(part.requires_grad for part in it[1:5]):
        output, logsumexp = _LayerFunction.apply(*it[:5], lens, mask)  # type: ignore[no-untyped-call]
    else:
        output, logsumexp, _ = layer_forward(it)
    if len(batch) != 1:
        output, logsumexp = output.reshape(*batch, Q, -1), logsumexp.reshape(*batch, Q)
    return output.to(query.dtype), logsumexp


def _lowered(query: Tensor, key: Tensor, value: Tensor, score: Any, visibility: Visibility) -> LoweredBatch:
    """As ``lowering.lower``, in float32 parameters and with tensors in the layout they have."""
    like = torch.float32, query.device
    if isinstance(score, Additive):
        a, b = (_Projected.apply(x, parameter(W, *like)) for W, x in ((score.W_q, query), (score.W_k, key)))  # type: ignore[no-untyped-call]
        return LoweredBatch(ADDITIVE, a, b, value, parameter(score.w_v, *like), visibility)
    w = parameter(score.w, *like)
    if isinstance(score, DotProduct):
        return LoweredBatch(DOT, query, key, value, w / query.shape[2] ** 0.5, visibility)
    return LoweredBatch(GAUSSIAN, query, key, value, w, visibility)


class _Projected(torch.autograd.Function):
    """x Wᵀ (B, N, h) in float32, stored unit by unit: programs read all rows of one unit at a time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, W: Tensor) -> Tensor:
        ctx.save_for_backward(x, W)
        return torch.matmul(W, x.float().transpose(1, 2)).transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        # Plain torch, which autograd differentiates again.
        x, W = ctx.saved_tensors
        grad_x = grad_W = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.matmul(grad, W).to(x.dtype)
        if ctx.needs_input_grad[1]:
            # A mask is deletion: rows that were not attended to have no gradient, whatever they hold.
            clean = torch.nan_to_num(x.float(), 0.0, 0.0, 0.0)
            grad_W = torch.matmul(grad.flatten(0, 1).T, clean.flatten(0, 1))
        return grad_x, grad_W


class _LayerFunction(torch.autograd.Function):
    """Averages of one batch, with gradients of both sides, values and the score's parameter."""

    @staticmethod
    def forward(
        ctx: Any, code: int, query: Tensor, key: Tensor, value: Tensor, w: Tensor, lens: Tensor | None,
        mask: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        found = layer_forward(LoweredBatch(code, query, key, value, w, Visibility(mask=mask, lens=lens)))
        ctx.save_for_backward(query, key, value, w, lens, mask, *found)
        ctx.code = code
        ctx.set_materialize_grads(False)
        return found.output, found.logsumexp

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_logsumexp: Tensor | None) -> tuple[Tensor | None, ...]:
        query, key, value, w, lens, mask, *_ = ctx.saved_tensors
        with torch.no_grad():
            found = _LayerFunction._gradients(ctx, grad, grad_logsumexp)
        if lens is not None and lens.ndim == 1:
            lens = lens[:, None].expand(-1, query.shape[1])

        def plain(query: Tensor, key: Tensor, value: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
            return dense_again(LoweredBatch(ctx.code, query, key, value, w, Visibility(mask=mask, lens=lens)))

        return (None, *differentiable_again(found, plain, (query, key, value, w), (grad, grad_logsumexp)), None, None)

    @staticmethod
    def _gradients(ctx: Any, grad: Tensor | None, grad_logsumexp: Tensor | None) -> list[Tensor | None]:
        query, key, value, w, lens, mask, *found = ctx.saved_tensors
        given = (query, key, value, w)
        it = LoweredBatch(ctx.code, *given, Visibility(mask=mask, lens=lens))
        if grad is None:
            grad = torch.zeros_like(found[0])
        wants = ctx.needs_input_grad[1:5]
        grads = layer_backward(it, ForwardResult(*found), grad, grad_logsumexp, wants)
        return [
            part.to(of.dtype) if wanted and part is not None else None
            for part, of, wanted in zip(grads, given, wants, strict=True)
        ]
