"""Additive scores in plain torch, block by block: nothing of (query, key, unit) is kept.

    Σ_h w_h·tanh(z_h) = Σ_h w_h − 2·Σ_h w_h·r_h,  r = 1/(1 + exp 2z),  z = query + key

On a CPU exponentials are taken once per query and once per key: exp 2z = exp 2·query · exp 2·key; where they could
overflow, of every z. Blocks fit into the cache, and if there are several the backward pass computes them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from regard.tensors.second_derivatives import differentiable_again, require_plain_fits
from regard.tensors.tensor_inputs import can_branch

Tensor = torch.Tensor

# Numbers of a block, units of pairs: 1 MB of float32 fits into the cache of a core.
BLOCK_NUMBERS = 1 << 18
# Units of pairs from which on blocks are faster; a single query has no more of them than the keys have numbers.
MIN_NUMBERS = 1 << 15
# Absolute values of projected queries and keys up to which exp 2x is a normal number, and so is its inverse.
MAX_EXPONENTIATED = {torch.float32: 40.0, torch.float64: 350.0}


def hidden_scores(query: Tensor, key: Tensor, w: Tensor) -> Tensor:
    """Σ_h w_h·tanh(query_h + key_h) (…, Q, K) of projected queries (…, Q, h) and keys (…, K, h).

    *Cost*: O(Q·K·h) time; memory O(Q·K) and a block on a CPU, O(Q·K·h) elsewhere.
    """
    by_blocks = query.is_cpu and can_branch(query, key, w)
    if not by_blocks or query.shape[-2] == 1 or query.numel() * key.shape[-2] < MIN_NUMBERS:
        return _by_tanh(query, key, w)
    if query.ndim == 3 and query.shape[:-2] == key.shape[:-2]:
        return _HiddenScores.apply(query, key, w)  # type: ignore[no-any-return, no-untyped-call]
    batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])  # type: ignore[no-untyped-call]
    flat = (part.expand(*batch, *part.shape[-2:]).reshape(-1, *part.shape[-2:]) for part in (query, key))
    scores: Tensor = _HiddenScores.apply(*flat, w)  # type: ignore[no-untyped-call]
    return scores.view(*batch, *scores.shape[1:])


def _by_tanh(query: Tensor, key: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)) @ w


class _HiddenScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, w)
        ctx.kept = None
        scores = query.new_empty(*query.shape[:2], key.shape[1])
        blocks: Iterable[tuple[slice, slice, Tensor]] = _blocks(query, key)
        if query.numel() * key.shape[1] <= BLOCK_NUMBERS and any(ctx.needs_input_grad):
            ctx.kept = blocks = list(blocks)
        for members, rows, r in blocks:
            scores[members, rows] = torch.mv(r.flatten(0, 2), w).view(r.shape[:3])
        return scores.mul_(-2.0).add_(w.sum())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, w = ctx.saved_tensors
        with torch.no_grad():
            d_query, d_key, d_w = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(w)
            for members, rows, r in ctx.kept or _blocks(query, key):
                slopes = r * grad[members, rows].unsqueeze(3)
                d_w += slopes.sum((0, 1, 2))
                # 1 − tanh² = 4·r·(1 − r)
                slopes.addcmul_(slopes, r, value=-1.0)
                d_query[members, rows] = slopes.sum(2)
                d_key[members] += slopes.sum(1)
            four = 4.0 * w
            found = [d_query.mul_(four), d_key.mul_(four), grad.sum() - 2.0 * d_w]

        def plain(query: Tensor, key: Tensor, w: Tensor) -> tuple[Tensor]:
            require_plain_fits(query.shape[:2].numel() * key.shape[1] * w.numel())
            return (_by_tanh(query, key, w),)

        wanted = [part if want else None for part, want in zip(found, ctx.needs_input_grad, strict=True)]
        return differentiable_again(wanted, plain, (query, key, w), (grad,))


def _blocks(query: Tensor, key: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Some members of the batch, some of their queries, and r (b, q, K, h) of these."""
    (B, Q, h), K = query.shape, key.shape[1]
    if not (B and Q and K):
        return
    most = MAX_EXPONENTIATED[query.dtype]
    # NaN is the end of a range that holds one.
    within = h > 0 and all(-most <= end.item() <= most for part in (query, key) for end in part.aminmax())
    if within:
        query, key = torch.exp(2.0 * query), torch.exp(2.0 * key)
    q, k, each = query.unsqueeze(2), key.unsqueeze(1), max(1, K * h)
    members, size = max(1, BLOCK_NUMBERS // (Q * each)), max(1, min(Q, BLOCK_NUMBERS // each))
    for first in range(0, B, members):
        for row in range(0, Q, size):
            some, rows = slice(first, first + members), slice(row, row + size)
            x, y = q[some, rows], k[some]
            yield some, rows, (x * y).add_(1.0).reciprocal_() if within else torch.sigmoid(-2.0 * (x + y))
