"""Attention of a layer's size on a GPU: few launches, and the host never waits.

Gaussian, dot-product and additive scores of one batch, lengths and boolean masks. All else, and all that is large, goes
through ``regard::pool``.
"""

from __future__ import annotations

from typing import Any

import torch

from regard.core.scores import Additive, DotProduct, Gaussian, Score
from regard.engines.gpu.lay import ADDITIVE, DOT, GAUSSIAN
from regard.engines.gpu.layer import WIDEST, Layer, Seen, attend, is_large, pull
from regard.tensors.ops import on_programs

Tensor = torch.Tensor

_REAL = (torch.float32, torch.float16, torch.bfloat16)


def layer_pool(
    query: Tensor, key: Tensor, value: Tensor, score: Score, mask: Tensor | None, valid_lens: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """output (…, Q, P) in the query's dtype and logsumexp (…, Q); None where these tensors are not for it.

    Nothing is refused here: what does not fit goes on to ``inputs.checked``, which says what is wrong.
    """
    tensors = (query, key, value)
    if torch.compiler.is_compiling() or not all(isinstance(part, Tensor) and part.ndim >= 2 for part in tensors):
        return None
    if not on_programs(query) or query.dtype not in _REAL:
        return None
    shape, Q, K = query.shape[:-2], query.shape[-2], key.shape[-2]
    for part in (key, value):
        if part.dtype != query.dtype or part.device != query.device or part.shape[:-2] != shape:
            return None
    if value.shape[-2] != K or not query.numel() * key.numel() * value.numel():
        return None
    if valid_lens is not None and not _are_lens(valid_lens, query):
        return None
    if mask is not None and not _is_mask(mask, query, K):
        return None
    code, width = _kind(query.shape[-1], key.shape[-1], score)
    if not 0 < width <= WIDEST or value.shape[-1] > WIDEST or is_large(code, shape.numel() * Q * K, width):
        return None
    flat = tensors if len(shape) == 1 else tuple(part.reshape(-1, *part.shape[-2:]) for part in tensors)
    if valid_lens is not None and len(shape) != 1:
        valid_lens = valid_lens.reshape(-1, *valid_lens.shape[len(shape) :])
    if mask is not None:
        mask = mask.expand(*shape, Q, K).reshape(-1, Q, K)
    told = _told(flat[0], flat[1], flat[2], score)
    if torch.is_grad_enabled() and any(part.requires_grad for part in told[:4]):
        output, logsumexp = _Layer.apply(*told, valid_lens, mask)  # type: ignore[no-untyped-call]
    else:
        q, k, v, w, code = told
        output, logsumexp, _ = attend(Layer(code, q, k, v, w, valid_lens, mask))
    if len(shape) != 1:
        output, logsumexp = output.reshape(*shape, Q, -1), logsumexp.reshape(*shape, Q)
    return output.to(query.dtype), logsumexp


def _kind(d: int, key_width: int, score: Score) -> tuple[int, int]:
    """Code of a score that the programs know, and its features or hidden units; 0 of them where they do not know it."""
    if isinstance(score, Additive):
        return ADDITIVE, score.w_v.shape[0] if (score.W_q.shape[1], score.W_k.shape[1]) == (d, key_width) else 0
    if not isinstance(score, Gaussian | DotProduct) or d != key_width:
        return GAUSSIAN, 0
    code = DOT if isinstance(score, DotProduct) else GAUSSIAN
    return code, d if score.w.ndim == 0 or tuple(score.w.shape) == (d,) else 0


def _told(query: Tensor, key: Tensor, value: Tensor, score: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Both sides, values, the parameter and the code of a score, as the programs take them."""

    def parameter(given: Any) -> Tensor:
        if isinstance(given, Tensor):
            return given.to(device=query.device, dtype=torch.float32)
        if given.ndim == 0:
            return torch.full((), float(given), dtype=torch.float32, device=query.device)
        return torch.tensor(given.tolist(), dtype=torch.float32, device=query.device)

    if isinstance(score, Additive):
        a, b = (_Projected.apply(x, parameter(W)) for W, x in ((score.W_q, query), (score.W_k, key)))  # type: ignore[no-untyped-call]
        return a, b, value, parameter(score.w_v), ADDITIVE
    w = parameter(score.w)
    if isinstance(score, DotProduct):
        return query, key, value, w / query.shape[2] ** 0.5, DOT
    return query, key, value, w, GAUSSIAN


def _are_lens(lens: Any, query: Tensor) -> bool:
    if not isinstance(lens, Tensor) or lens.device != query.device:
        return False
    return lens.dtype in (torch.int32, torch.int64) and lens.shape in (query.shape[:-2], query.shape[:-1])


def _is_mask(mask: Any, query: Tensor, keys: int) -> bool:
    if not isinstance(mask, Tensor) or mask.device != query.device or mask.dtype != torch.bool:
        return False
    whole = (*query.shape[:-1], keys)
    return mask.ndim <= len(whole) and all(
        n in (1, size) for n, size in zip(reversed(mask.shape), reversed(whole), strict=False)
    )


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
        found = pull(it, Seen(*seen), grad, grad_log, wants)
        given = (query, key, value, w)
        grads = (
            part.to(of.dtype) if wanted and part is not None else None
            for part, of, wanted in zip(found, given, wants, strict=True)
        )
        return (*grads, None, None, None)
