"""Attention of a layer's size on a GPU: few launches, and the host never waits.

Gaussian, dot-product and additive scores of one batch, lengths and boolean masks: what ``planner.choose`` sends here.
"""

from __future__ import annotations

from typing import Any

import torch

from regard.core.kernels import GAUSSIAN
from regard.core.scores import Additive, DotProduct, Score
from regard.engines.gpu.launch import Attended
from regard.engines.gpu.lay import ADDITIVE, DOT
from regard.engines.gpu.layer import Layer, attend, pull
from regard.tensors.forms import parameter
from regard.tensors.inputs import Inputs

Tensor = torch.Tensor


def layer_pool(given: Inputs, score: Score) -> tuple[Tensor, Tensor]:
    """output (…, Q, P) in the query's dtype and logsumexp (…, Q)."""
    query, batch, lens, mask = given.query, given.batch, given.lens, given.mask
    Q, K = query.shape[-2], given.key.shape[-2]
    q, k, v = (part if len(batch) == 1 else part.reshape(-1, *part.shape[-2:]) for part in given[:3])
    if lens is not None:
        lens = lens.expand(*batch, lens.shape[-1]).reshape(-1, lens.shape[-1])
        lens = lens[:, 0] if lens.shape[1] == 1 else lens
    if mask is not None:
        mask = mask.expand(*batch, Q, K).reshape(-1, Q, K)
    told = _told(q, k, v, score)
    if torch.is_grad_enabled() and any(part.requires_grad for part in told[:4]):
        output, logsumexp = _Layer.apply(*told, lens, mask)  # type: ignore[no-untyped-call]
    else:
        q, k, v, w, code = told
        output, logsumexp, _ = attend(Layer(code, q, k, v, w, lens, mask))
    if len(batch) != 1:
        output, logsumexp = output.reshape(*batch, Q, -1), logsumexp.reshape(*batch, Q)
    return output.to(query.dtype), logsumexp


def _told(query: Tensor, key: Tensor, value: Tensor, score: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Both sides, values, the parameter and the code of a score, as the programs take them."""
    like = torch.float32, query.device
    if isinstance(score, Additive):
        a, b = (_Projected.apply(x, parameter(W, *like)) for W, x in ((score.W_q, query), (score.W_k, key)))  # type: ignore[no-untyped-call]
        return a, b, value, parameter(score.w_v, *like), ADDITIVE
    w = parameter(score.w, *like)
    if isinstance(score, DotProduct):
        return query, key, value, w / query.shape[2] ** 0.5, DOT
    return query, key, value, w, GAUSSIAN


class _Projected(torch.autograd.Function):
    """x Wᵀ (B, N, h) in float32, stored unit by unit: programs read all rows of one unit at a time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, W: Tensor) -> Tensor:
        ctx.save_for_backward(x, W)
        return torch.matmul(W, x.float().transpose(1, 2)).transpose(1, 2)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, W = ctx.saved_tensors
        grad_x = grad_W = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.matmul(grad, W).to(x.dtype)
        if ctx.needs_input_grad[1]:
            # A mask is deletion: who was not looked at moves nothing, whatever stands there.
            clean = torch.nan_to_num(x.float(), 0.0, 0.0, 0.0)
            grad_W = torch.matmul(grad.flatten(0, 1).T, clean.flatten(0, 1))
        return grad_x, grad_W


class _Layer(torch.autograd.Function):
    """Averages of one batch, with gradients of both sides, values and the score's parameter."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, w: Tensor, code: int, lens: Tensor | None,
        mask: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        seen = attend(Layer(code, query, key, value, w, lens, mask))
        ctx.save_for_backward(query, key, value, w, lens, mask, seen.output, seen.logsumexp, seen.state)
        ctx.code = code
        ctx.set_materialize_grads(False)
        return seen.output, seen.logsumexp

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor | None, grad_log: Tensor | None) -> tuple[Tensor | None, ...]:
        query, key, value, w, lens, mask, *seen = ctx.saved_tensors
        it = Layer(ctx.code, query, key, value, w, lens, mask)
        if grad is None:
            grad = torch.zeros_like(seen[0])
        wants = ctx.needs_input_grad[:4]
        found = pull(it, Attended(*seen), grad, grad_log, wants)
        given = (query, key, value, w)
        grads = (
            part.to(of.dtype) if wanted and part is not None else None
            for part, of, wanted in zip(found, given, wants, strict=True)
        )
        return (*grads, None, None, None)
