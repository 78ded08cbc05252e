"""Precision: scores, weights and averages are computed in float32 at least, whatever comes in and goes out.

A half-precision number ends at 65504, and ordinary scores do not: they are formed from widened inputs, out of reach of
autocast, and only the finished average goes back to the dtype of the queries.
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
    dtype = reduce(torch.promote_types, (t.dtype for t in tensors), torch.float32)
    return tuple(t.to(dtype) for t in tensors)


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """A context in which autocast narrows nothing."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)
