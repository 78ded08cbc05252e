"""Gaussian pooling on a GPU as a careful user of torch would write it, each at the number of queries where it is best.

Those that form (query, key) do so block by block. Those that do not, SDPA and the like, need many queries to fill a
GPU. So every peer is timed with a few thousand queries and with all of them, always against all keys, and its best
rate counts. Variants in lower precision (TF32, bfloat16, float16) stand beside the float32 ones with their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F

from gpu_timing import error, gaussian_scores, in_blocks, milliseconds

Tensor = torch.Tensor
# Numbers of queries that are tried.
QUERIES = (1 << 11, 1 << 14, 1 << 18)
# Features that fused attention takes are a multiple of this, and at least so many.
MULTIPLE, FEWEST = 8, 16
# A number of queries is left out if it would take longer, in milliseconds.
TOO_LONG = 20_000.0


@dataclass(frozen=True)
class Augmented:
    """Sides whose dot products are Gaussian scores: (w²q, 1)·(k, −½w²‖k‖²), centred and padded; values likewise."""

    query: Tensor
    key: Tensor
    value: Tensor
    columns: int

    @classmethod
    def of(cls, query: Tensor, key: Tensor, value: Tensor, w: float) -> Augmented:
        middle = key.mean(0)
        q, k = query - middle, key - middle
        a = torch.cat([w * w * q, torch.ones_like(q[:, :1])], 1)
        b = torch.cat([k, -0.5 * w * w * (k * k).sum(1, keepdim=True)], 1)
        wide = max(FEWEST, -(-max(a.shape[1], value.shape[1]) // MULTIPLE) * MULTIPLE)
        return cls(*(F.pad(part, (0, wide - part.shape[1])) for part in (a, b, value)), value.shape[1])

    def attended(self, attention: Callable[[Tensor, Tensor, Tensor], Tensor], dtype: torch.dtype) -> Tensor:
        """Attention of (1, 1, rows, features) in this dtype, the columns in float32."""
        four = (part[None, None].to(dtype) for part in (self.query, self.key, self.value))
        return attention(*four)[0, 0, :, : self.columns].float()


def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, scale=1.0)


_COMPILED: dict[str, Any] = {}


def flex(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    if "flex" not in _COMPILED:
        _COMPILED["flex"] = torch.compile(flex_attention, dynamic=False)
    return _COMPILED["flex"](q, k, v, scale=1.0)  # type: ignore[no-any-return]


def flash_attn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    from flash_attn import flash_attn_func

    heads_after_rows = (part.transpose(1, 2) for part in (q, k, v))
    return flash_attn_func(*heads_after_rows, softmax_scale=1.0).transpose(1, 2)  # type: ignore[no-any-return]


def xformers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    from xformers.ops import memory_efficient_attention

    heads_after_rows = (part.transpose(1, 2).contiguous() for part in (q, k, v))
    return memory_efficient_attention(*heads_after_rows, scale=1.0).transpose(1, 2)  # type: ignore[no-any-return]


@contextmanager
def tf32() -> Iterator[None]:
    """Products of float32 matrices in TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def ways(w: float, key: Tensor, value: Tensor) -> dict[str, Callable[[Tensor], Tensor]]:
    """Name → averages (Q, P) for queries (Q, d)."""
    scores, (n, d) = gaussian_scores(w), key.shape
    rows = max(16, min(4096, (1 << 30) // (n * max(d, 4))))

    def differences(q: Tensor) -> Tensor:
        return torch.softmax(scores(q, key), 1) @ value

    def products(q: Tensor) -> Tensor:
        # The textbook's way: ‖q‖² is left out, it does not change the weights.
        middle = key.mean(0)
        a, b = q - middle, key - middle
        return torch.softmax(w * w * (a @ b.T - 0.5 * (b * b).sum(1)), 1) @ value

    def products_in_tf32(q: Tensor) -> Tensor:
        with tf32():
            return in_blocks(products, q, 2048)

    def fused(attention: Callable[..., Tensor], dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
        return lambda q: Augmented.of(q, key, value, w).attended(attention, dtype)

    compiled = torch.compile(differences, dynamic=False)
    found: dict[str, Callable[[Tensor], Tensor]] = {
        "torch, differences": lambda q: in_blocks(differences, q, rows),
        "torch, products": lambda q: in_blocks(products, q, 2048),
        "torch, products, TF32": products_in_tf32,
        "torch.compile": lambda q: in_blocks(compiled, q, rows),
    }
    for name, attention, package in (
        ("SDPA", sdpa, ""),
        ("FlexAttention", flex, ""),
        ("FlashAttention", flash_attn, "flash_attn"),
        ("xformers", xformers, "xformers"),
    ):
        if package and find_spec(package) is None:
            continue
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            if package == "flash_attn" and dtype == torch.float32:
                continue  # it takes half precision only
            suffix = "" if dtype == torch.float32 else f", {str(dtype).removeprefix('torch.')}"
            found[name + suffix] = fused(attention, dtype)
    return found


def best_of(
    run: Callable[[Tensor], Tensor], query: Tensor, time: Callable[[Callable[[], Any]], float]
) -> tuple[int, float]:
    """The number of queries with the highest rate, and milliseconds for so many."""
    found: list[tuple[int, float]] = []
    for count in sorted({min(size, len(query)) for size in QUERIES}):
        if found and found[-1][1] * count / found[-1][0] > TOO_LONG:
            break
        part = query[:count]
        found.append((count, time(lambda part=part: run(part))))
    return max(found, key=lambda one: one[0] / one[1])


def peers(query: Tensor, key: Tensor, value: Tensor, w: float, rounds: int) -> list[dict[str, Any]]:
    """Every peer's best rate in 10¹² pairs per second, the queries it was reached with, and its error."""
    found: list[dict[str, Any]] = []
    for name, run in ways(w, key, value).items():
        try:
            count, spent = best_of(run, query, lambda call: milliseconds(call, rounds))
            off = error(run(query[:2048]), query, key, value, gaussian_scores(w))
            rate = count * len(key) / spent / 1e9
            found.append({"name": name, "rate": rate, "queries": count, "error": off})
        except Exception as reason:
            found.append({"name": name, "reason": str(reason).split("\n")[0][:80]})
    return found
