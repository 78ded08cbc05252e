"""Precision: scores, weights and averages are computed in float32 at least, whatever the dtype of inputs and output.

float16 overflows at 65504, which ordinary scores can exceed. They are computed from widened inputs with autocast
disabled, and only the final average is converted back to the dtype of the queries.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import reduce

import torch
from torch import Tensor


def widened(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in their widest dtype, float32 at least.

    >>> [t.dtype for t in widened(torch.ones(1, dtype=torch.float16), torch.ones(1, dtype=torch.float64))]
    [torch.float64, torch.float64]
    """
    if all(t.dtype is torch.float32 for t in tensors):
        return tensors
    dtype = reduce(torch.promote_types, (t.dtype for t in tensors), torch.float32)
    return tuple(t.to(dtype) for t in tensors)


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """A context with autocast disabled."""
    if not torch.amp.is_autocast_available(device.type) or not torch.is_autocast_enabled(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)
