"""Attention whose scores are products of queries and keys, in plain torch, some queries at a time.

    score[q, k] = query[q]·key[k] + column[k]

Dot products have this form, and so has a Gaussian score (``gaussian_products``). A block of queries takes a few matrix
products and one softmax, small enough for the cache. Weights are kept for the backward pass if they are few, and
otherwise computed again; so is what dropout drew, from its seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from regard.core.kernels import GAUSSIAN
from regard.engines.gpu.layout import DOT, LoweredBatch, Visibility, largest_batch
from regard.tensors.gaussian_products import gaussian_sides
from regard.tensors.second_derivatives import differentiable_again, require_plain_fits

Tensor = torch.Tensor

# What a product is added to where there is nothing to add.
_NOTHING = {dtype: torch.zeros((), dtype=dtype) for dtype in (torch.float32, torch.float64)}
_TORCH_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_TORCH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
# Scores that a block holds: 2 MB of float32 fit into the cache of a core, and 256 MB keep a GPU busy.
BLOCK_SCORES = {"cpu": 1 << 19, "cuda": 1 << 26}
# Weights that are kept for the backward pass: 16 MB of float32.
MAX_KEPT_WEIGHTS = 1 << 22
# Queries per block at least, so that matrix products stay efficient with very many keys.
MIN_BLOCK_QUERIES = 16
# Steps of the probability with which dropout keeps a weight.
DROPOUT_STEPS = 1 << 16


class Dropout(NamedTuple):
    """Which weights are dropped: each with this probability, drawn from a generator with this seed."""

    probability: float
    seed: int

    @classmethod
    def drawn(cls, probability: float) -> Dropout:
        """With a seed from torch's own generator, which ``torch.manual_seed`` controls."""
        return cls(probability, int(torch.randint(1 << 62, ())))


def block_pool(
    it: LoweredBatch, dropout: Dropout | None = None, *, need_logsumexp: bool = True
) -> tuple[Tensor, Tensor | None] | None:
    """output (B, Q, P) and logsumexp (B, Q) of finite inputs, or None if products do not compute the score accurately.

    *Cost*: O(Q·K·(d + P)) time; memory of a block and O((Q + K)·(d + P)).
    """
    sides = None
    if it.code == DOT:
        parts = it.query * it.w, it.key, it.value
        if dropout is None and all(part is None for part in it.visibility[:6]) and takes_torch_attention(*parts):
            batch = largest_batch(*parts)
            q, k, v = (part.expand(batch, -1, -1).unsqueeze(1) for part in parts)
            output, logsumexp = torch_attention(q, k, v, 1.0)
            return output.squeeze(1), logsumexp.squeeze(1)
    elif it.code == GAUSSIAN and (sides := gaussian_sides(*it[1:3], it.w)) is not None:
        parts = sides.query, sides.key, it.value
    else:
        return None
    batch = largest_batch(*parts, *it.visibility[:6])
    query, key, value = (part.expand(batch, -1, -1) for part in parts)
    column = None if sides is None else sides.column.unsqueeze(1).expand(batch, -1, -1)
    output, logsumexp = _BlockFunction.apply(query, key, value, column, dropout, it.visibility, need_logsumexp)  # type: ignore[no-untyped-call]
    return output, logsumexp + sides.level if sides is not None and need_logsumexp else logsumexp


class Block(NamedTuple):
    """Some members of the batch, and some of their queries."""

    number: int
    members: slice
    queries: slice


def blocks_of(batch: int, queries: int, keys: int, device: str) -> Iterator[Block]:
    """All (batch, queries) in blocks of bounded size."""
    most, number = BLOCK_SCORES[device], 0
    each = max(1, queries * keys)
    members = max(1, most // each)
    rows = queries if each <= most else max(MIN_BLOCK_QUERIES, most // max(1, keys))
    for first in range(0, batch, members):
        for row in range(0, queries, max(1, rows)):
            yield Block(number, slice(first, first + members), slice(row, row + rows))
            number += 1


class _BlockFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, column: Tensor | None, dropout: Dropout | None,
        visibility: Visibility, need_logsumexp: bool,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        ctx.dropout, ctx.visibility, ctx.kept = dropout, visibility, []
        ctx.set_materialize_grads(False)
        (B, Q, _), K = query.shape, key.shape[1]
        few = any(ctx.needs_input_grad) and B * Q * K <= MAX_KEPT_WEIGHTS
        output = query.new_empty(B, Q, value.shape[2])
        logs = query.new_empty(B, Q) if need_logsumexp else None
        for block in blocks_of(B, Q, K, query.device.type):
            _, members, rows = block
            scores = _scores(query, key, column, visibility, block)
            weights = _softmax(scores, visibility)
            if logs is not None:
                peak, top = (part.amax(2) if K else part.sum(2) for part in (scores, weights))
                # The largest weight is exp(peak − logsumexp); it is 0 in empty rows and NaN where scores overflowed.
                logs[members, rows] = torch.where(top == 0.0, -torch.inf, peak - torch.log(top))
            drawn = _drawn(weights, dropout, block)
            average = torch.bmm(_dropped(weights, drawn), value[members])
            output[members, rows] = average if drawn is None else average / drawn.probability
            if few:
                ctx.kept.append((weights, drawn))
        ctx.save_for_backward(query, key, value, *(() if column is None else (column,)))
        return output, logs

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_logsumexp: Tensor | None) -> tuple[Tensor | None, ...]:
        query, key, value, *columns = ctx.saved_tensors
        dropout, visibility = ctx.dropout, ctx.visibility
        cotangent = value.new_zeros(*query.shape[:2], value.shape[2]) if grad is None else grad
        with torch.no_grad():
            found = _gradients(
                query, key, value, columns[0] if columns else None, dropout, visibility, ctx.kept, cotangent,
                grad_logsumexp, ctx.needs_input_grad[:4],
            )  # fmt: skip

        def plain(query: Tensor, key: Tensor, value: Tensor, *columns: Tensor) -> tuple[Tensor, Tensor]:
            return _in_plain_torch(query, key, value, columns[0] if columns else None, dropout, visibility)

        inputs = query, key, value, *columns
        again = differentiable_again(found[: len(inputs)], plain, inputs, (grad, grad_logsumexp))
        return (*again, *[None] * (7 - len(again)))


def takes_torch_attention(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether torch's own attention on a CPU computes plain dot products of these: as many features as columns."""
    return not query.is_cuda and query.shape[-1] == value.shape[-1] > 0 < query.shape[-2] and key.shape[-2] > 0


def scaled_products(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """scale·query·key (B, Q, K) in one operation."""
    return torch.baddbmm(_NOTHING[query.dtype], query, key.mT, beta=0.0, alpha=scale)


def torch_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """output (B, H, Q, d) and logsumexp (B, H, Q) for scores scale·query·key, by torch's own attention on a CPU.

    query (B, H, Q, d), key and value (B, H, K, d), in any layout.
    """
    # The operator reads features as if they lay next to each other.
    sides = [part if part.stride(-1) == 1 else part.contiguous() for part in (query, key, value)]
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        return _TorchAttention.apply(*sides, scale)  # type: ignore[no-any-return, no-untyped-call]
    return _TORCH_FORWARD(*sides, scale=scale)  # type: ignore[no-any-return]


class _TorchAttention(torch.autograd.Function):
    """What ``F.scaled_dot_product_attention`` calls on a CPU, with its logsumexp and second derivatives."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        output, logsumexp = _TORCH_FORWARD(query, key, value, scale=scale)
        ctx.save_for_backward(query, key, value, output, logsumexp)
        ctx.scale = scale
        ctx.set_materialize_grads(False)
        return output, logsumexp

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_logsumexp: Tensor | None) -> tuple[Tensor | None, ...]:
        query, key, value, _, _ = ctx.saved_tensors
        scale = ctx.scale
        if not torch.is_grad_enabled():
            return *_TorchAttention._gradients(ctx, grad, grad_logsumexp), None

        def plain(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            require_plain_fits(query.shape[:3].numel() * key.shape[2])
            scores = (query * scale) @ key.mT
            return torch.softmax(scores, -1) @ value, torch.logsumexp(scores, -1)

        with torch.no_grad():
            found = _TorchAttention._gradients(ctx, grad, grad_logsumexp)
        wanted = [part if want else None for part, want in zip(found, ctx.needs_input_grad, strict=False)]
        return *differentiable_again(wanted, plain, (query, key, value), (grad, grad_logsumexp)), None

    @staticmethod
    def _gradients(ctx: Any, grad: Tensor | None, grad_logsumexp: Tensor | None) -> tuple[Tensor | None, ...]:
        query, key, value, output, logsumexp = ctx.saved_tensors
        cotangent = torch.zeros_like(output) if grad is None else grad
        if grad_logsumexp is None:
            cotangent = cotangent if cotangent.stride(-1) == 1 else cotangent.contiguous()
            return _TORCH_BACKWARD(cotangent, query, key, value, output, logsumexp, 0.0, False, scale=ctx.scale)  # type: ignore[no-any-return]
        # Scores are of the scaled queries: their gradient is scaled as well.
        sides = (query * ctx.scale, key, value, cotangent, grad_logsumexp)
        q, k, v, slope, slope_of_log = (part.flatten(0, 1) for part in sides)
        found = _gradients(q, k, v, None, None, Visibility(), [], slope, slope_of_log, (True, True, True, False))
        d_query, d_key, d_value = (part for part in found if part is not None)
        return (d_query * ctx.scale).view(query.shape), d_key.view(key.shape), d_value.view(value.shape)


def _gradients(
    query: Tensor, key: Tensor, value: Tensor, column: Tensor | None, dropout: Dropout | None, visibility: Visibility,
    kept: list[Any], grad: Tensor, grad_logsumexp: Tensor | None, want: tuple[bool, ...],
) -> list[Tensor | None]:  # fmt: skip
    """Gradients of query, key, value and column, None where not wanted."""
    (B, Q, _), K = query.shape, key.shape[1]
    totals = [torch.zeros_like(part, memory_format=torch.contiguous_format) if wanted and part is not None else None
              for part, wanted in zip((query, key, value, column), want, strict=True)]  # fmt: skip
    d_query, d_key, d_value, d_column = totals
    for block in blocks_of(B, Q, K, query.device.type):
        number, members, rows = block
        if kept:
            weights, drawn = kept[number]
        else:
            weights = _softmax(_scores(query, key, column, visibility, block), visibility)
            drawn = _drawn(weights, dropout, block)
        slope = grad[members, rows] if drawn is None else grad[members, rows] / drawn.probability
        if d_value is not None:
            d_value[members] += torch.bmm(_dropped(weights, drawn).mT, slope)
        if d_query is None and d_key is None and d_column is None:
            continue
        d_weights = _dropped(torch.bmm(slope, value[members].mT), drawn)
        d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
        if grad_logsumexp is not None:
            d_scores = torch.addcmul(d_scores, weights, grad_logsumexp[members, rows, None])
        if d_query is not None:
            d_query[members, rows] = torch.bmm(d_scores, key[members])
        if d_key is not None:
            d_key[members] += torch.bmm(d_scores.mT, query[members, rows])
        if d_column is not None:
            d_column[members] += d_scores.sum(1, keepdim=True)
    return totals


def _in_plain_torch(
    query: Tensor, key: Tensor, value: Tensor, column: Tensor | None, dropout: Dropout | None, visibility: Visibility
) -> tuple[Tensor, Tensor]:
    """The same formula, differentiable any number of times."""
    (B, Q, _), K = query.shape, key.shape[1]
    require_plain_fits(B * Q * K)
    outputs, logs = [], []
    for block in blocks_of(B, Q, K, query.device.type):
        scores = _scores(query, key, column, visibility, block)
        empty = (scores == -torch.inf).all(2, keepdim=True)
        weights = torch.softmax(scores.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)
        drawn = _drawn(weights, dropout, block)
        average = torch.bmm(_dropped(weights, drawn), value[block.members])
        outputs.append(average if drawn is None else average / drawn.probability)
        logs.append(torch.logsumexp(scores.masked_fill(empty, 0.0), -1).masked_fill(empty[:, :, 0], -torch.inf))
    return _assembled(outputs, query), _assembled(logs, query)


def _assembled(parts: list[Tensor], query: Tensor) -> Tensor:
    """Blocks put together again, (B, Q, …)."""
    if not parts:
        return query.new_zeros(0)
    flat = torch.cat([part.flatten(0, 1) for part in parts])
    return flat.reshape(*query.shape[:2], *parts[0].shape[2:])


def _scores(query: Tensor, key: Tensor, column: Tensor | None, visibility: Visibility, block: Block) -> Tensor:
    """Scores (b, q, K) of a block, −inf where a pair may not attend."""
    _, members, rows = block
    sides = query[members, rows], key[members].mT
    scores = torch.bmm(*sides) if column is None else torch.baddbmm(column[members], *sides)
    allowed = None

    def part_of(part: Tensor, axes: tuple[slice, ...]) -> Tensor:
        return part[(slice(None) if part.shape[0] == 1 else axes[0], *axes[1:])]

    mask, bias, lens, query_labels, key_labels, log_weight, _ = visibility
    if mask is not None:
        allowed = part_of(mask, (members, rows))
    if lens is not None:
        within = torch.arange(key.shape[1], device=key.device) < part_of(lens, (members, rows))[:, :, None]
        allowed = within if allowed is None else allowed & within
    if query_labels is not None and key_labels is not None:
        others = part_of(query_labels, (members, rows))[:, :, None] != part_of(key_labels, (members,))[:, None]
        allowed = others if allowed is None else allowed & others
    if log_weight is not None:
        scores = scores + part_of(log_weight, (members,))[:, None].to(scores.dtype)
    if bias is not None:
        added = part_of(bias, (members, rows))
        # A large negative number does not forbid a pair: the sum is clamped to the lowest finite number, not −inf.
        total = (scores + added).clamp(min=torch.finfo(scores.dtype).min)
        scores = torch.where((added > -torch.inf) & (scores != -torch.inf), total, -torch.inf)
    return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)


def _softmax(scores: Tensor, visibility: Visibility) -> Tensor:
    """Weights (b, q, K); zeros in empty rows."""
    if all(part is None for part in visibility[:6]) or not scores.shape[2]:
        return torch.softmax(scores, -1)
    empty = scores.amax(2, keepdim=True) == -torch.inf
    return torch.softmax(scores, -1).masked_fill_(empty, 0.0)


class Drawn(NamedTuple):
    """What dropout drew for a block."""

    kept: Tensor  # (b, q, K) boolean
    probability: float  # with which a weight is kept


def _drawn(weights: Tensor, dropout: Dropout | None, block: Block) -> Drawn | None:
    if dropout is None:
        return None
    generator = torch.Generator(weights.device).manual_seed(dropout.seed + block.number)
    # Four numbers of 16 bits from each of 64: drawing is the most expensive part of dropout.
    words = torch.empty(-(-weights.numel() // 4), dtype=torch.int64, device=weights.device)
    words.random_(torch.iinfo(torch.int64).min, None, generator=generator)
    bits = words.view(torch.int16)[: weights.numel()].view(weights.shape)
    dropped = round(dropout.probability * DROPOUT_STEPS)
    # The lowest of the kept numbers; one beyond all of int16 would wrap around.
    lowest = dropped - DROPOUT_STEPS // 2
    kept = bits >= lowest if dropped < DROPOUT_STEPS else torch.zeros_like(bits, dtype=torch.bool)
    # Where nothing is kept, all sums are 0 and need no scale.
    return Drawn(kept, 1.0 - dropped / DROPOUT_STEPS or 1.0)


def _dropped(weights: Tensor, drawn: Drawn | None) -> Tensor:
    return weights if drawn is None else weights * drawn.kept
