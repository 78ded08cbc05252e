"""Which program computes a score on a GPU: differences, or matrix products where they lose little."""

from __future__ import annotations

import torch

from regard.engines.gpu.lay import ADDITIVE_ALONE
from regard.engines.gpu.products import DOT_ROWS, GAUSSIAN_ROWS
from regard.engines.gpu.rows import LARGEST_LOSS, loss
from regard.tensors.inputs import Inputs
from regard.tensors.ops import on_programs, pool_op
from regard.tensors.plain import ADDITIVE, DOT

Tensor = torch.Tensor

GAUSSIAN = 0
# Features from which on products beat differences, and how many features and columns one tile holds.
GAUSSIAN_WIDTH, DOT_WIDTH = 8, 16
MOST_WIDTH, MOST_COLUMNS = 128, 128
# Features of pairs from which on products pay: their rows take the host some milliseconds to lay out.
MANY_PAIRS = 1 << 35


def run(query: Tensor, key: Tensor, w: Tensor, code: int, given: Inputs, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """output and logsumexp; ``dtype`` is what all three tensors came in."""
    value, width, columns = given.value, query.shape[2], given.value.shape[2]
    if on_programs(query) and query.dtype == torch.float32 and columns <= MOST_COLUMNS and width <= MOST_WIDTH:
        if code == DOT and (width >= DOT_WIDTH or columns >= DOT_WIDTH):
            # Numbers that came in half precision are exact in it.
            query, key, value, code = query.to(dtype), key.to(dtype), value.to(dtype), DOT_ROWS
        wide = code == GAUSSIAN and width >= GAUSSIAN_WIDTH and given.bias is None
        if wide and _may_wait(query, key, given) and _loses_little(query, key, w):
            code = GAUSSIAN_ROWS
    if code == ADDITIVE and on_programs(query) and not _pulled(query, key, value, w):
        code = ADDITIVE_ALONE
    output, logsumexp, _ = pool_op(query, key, value, w, code, *given.who)
    return output, logsumexp


def _pulled(*parts: Tensor) -> bool:
    """Whether gradients may be asked for."""
    return torch.is_grad_enabled() and any(part.requires_grad for part in parts)


def _loses_little(query: Tensor, key: Tensor, w: Tensor) -> bool:
    """Whether scores from products are good to 5e-6. NaN, which a mask may hide, does not tell: then they are not."""
    return float(loss(query.detach(), key.detach(), w.detach())) <= LARGEST_LOSS


def _may_wait(query: Tensor, key: Tensor, given: Inputs) -> bool:
    """Whether the problem is large, and neither a graph is captured nor code compiled: those cannot look at numbers."""
    if torch.compiler.is_compiling() or (query.is_cuda and torch.cuda.is_current_stream_capturing()):
        return False
    return given.shape.numel() * query.shape[1] * key.shape[1] * query.shape[2] >= MANY_PAIRS
