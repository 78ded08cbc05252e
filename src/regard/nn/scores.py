"""Scores as layers: queries (…, Q, d) and keys (…, K, d) in, scores (…, Q, K) out, parameters learned.

The functions say what a score is; the modules hold its parameters. Any module of the same form will do as a score.
Additive scores stand in ``additive``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import torch
from torch import Tensor, nn

from regard.core import scores
from regard.nn.precision import widened
from regard.tensors.decay import decaying


def gaussian(queries: Tensor, keys: Tensor, w: Tensor) -> Tensor:
    """−½‖w∘(q − k)‖², the difference first: w is a scalar, (d,) or a matrix (d, r). *Cost*: O(Q·K·d) memory.

    A query so far from every key that scores would round to each other has them relative to that of a nearest key.
    """
    return decaying(*widened(queries, keys, w))[0]


def dot_product(queries: Tensor, keys: Tensor) -> Tensor:
    """q·k/√d, so that features of unit variance give scores of unit variance whatever d."""
    queries, keys = widened(queries, keys)
    return (queries / sqrt(max(queries.shape[-1], 1))) @ keys.transpose(-2, -1)


class Score(nn.Module):
    """What the scores of this package share: keys are kept once for all queries to come, then scored with each."""

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        self.check(queries, keys)
        return self.between(queries, self.keep(keys))

    def check(self, queries: Tensor, keys: Tensor) -> None:
        """Raise ValueError unless queries and keys have the same features."""
        if queries.shape[-1] != keys.shape[-1]:
            raise ValueError(f"queries have {queries.shape[-1]} features and keys {keys.shape[-1]}; they must agree")

    def keep(self, keys: Tensor) -> Tensor:
        """Keys as ``between`` takes them: as they are, unless the score projects them."""
        return keys

    def between(self, queries: Tensor, kept: Tensor) -> Tensor:
        """Scores (…, Q, K) for keys that were kept."""
        raise NotImplementedError

    def for_programs(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, scores.Score]:
        """Queries, keys and a score of ``regard.scores`` that come to the same."""
        raise NotImplementedError


class GaussianScore(Score):
    """−½‖w∘(q − k)‖² with a learned w: with this score, attention pooling is Nadaraya–Watson regression.

    Parameters
    ----------
    w : where learning starts, and what is learned: a number, one number per feature (d,), or a matrix (d, r) that maps
        differences to r coordinates. 1/w is the bandwidth, and |w| is what counts.
    device, dtype : of the parameter ``w``.

    *Cost*: O(Q·K·d) time and memory.

    >>> GaussianScore(2.0)(torch.tensor([[[1.0]]]), torch.tensor([[[0.5], [1.0]]])).tolist()
    [[[-0.5, -0.0]]]
    """

    w: nn.Parameter

    def __init__(
        self,
        w: float | Sequence[float] | Sequence[Sequence[float]] | Tensor = 1.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        start = torch.as_tensor(w, device=device, dtype=dtype)
        if not start.is_floating_point():
            start = start.to(torch.get_default_dtype())
        if start.ndim > 2 or not bool(start.isfinite().all()):
            raise ValueError(f"w must be a finite number, (d,) numbers or a matrix (d, r), got {w!r}")
        self.w = nn.Parameter(start.detach().clone())

    def check(self, queries: Tensor, keys: Tensor) -> None:
        super().check(queries, keys)
        if self.w.ndim and self.w.shape[0] != keys.shape[-1]:
            raise ValueError(f"w is for {self.w.shape[0]} features but keys have {keys.shape[-1]}")

    def between(self, queries: Tensor, kept: Tensor) -> Tensor:
        return gaussian(queries, kept, self.w)

    def for_programs(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, scores.Score]:
        queries, keys, w = widened(queries, keys, self.w)
        return queries, keys, scores.Gaussian(w)

    def extra_repr(self) -> str:
        return f"w={self.w.item():.4g}" if self.w.ndim == 0 else f"w={tuple(self.w.shape)}"


class DotProductScore(Score):
    """q·k/√d: nothing to learn, and unit variance whatever d.

    *Cost*: O(Q·K·d) time, O(Q·K) memory.

    >>> DotProductScore()(torch.ones(1, 1, 4), torch.ones(1, 2, 4)).tolist()
    [[[2.0, 2.0]]]
    """

    def between(self, queries: Tensor, kept: Tensor) -> Tensor:
        return dot_product(queries, kept)

    def for_programs(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, scores.Score]:
        return queries, keys, scores.DotProduct(1.0)


class BilinearScore(Score):
    """qᵀ W k: a dot product between queries and keys of different sizes.

    Parameters
    ----------
    query_size, key_size : features of a query and of a key. ``W`` is (query_size, key_size) and starts so that features
        of unit variance give scores of unit variance.
    device, dtype : of the parameter ``W``.

    *Cost*: O(K·query_size·key_size + Q·K·query_size) time, O(Q·K) memory.

    >>> BilinearScore(2, 5)(torch.ones(1, 3, 2), torch.ones(1, 4, 5)).shape
    torch.Size([1, 3, 4])
    """

    W: nn.Parameter

    def __init__(
        self,
        query_size: int,
        key_size: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        at_least_one(query_size=query_size, key_size=key_size)
        start = torch.randn(query_size, key_size, device=device, dtype=dtype)
        self.W = nn.Parameter(start / sqrt(query_size * key_size))

    def check(self, queries: Tensor, keys: Tensor) -> None:
        fits(queries, keys, *self.W.shape)

    def keep(self, keys: Tensor) -> Tensor:
        keys, W = widened(keys, self.W)
        return keys @ W.T

    def between(self, queries: Tensor, kept: Tensor) -> Tensor:
        queries, kept = widened(queries, kept)
        return queries @ kept.transpose(-2, -1)

    def for_programs(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, scores.Score]:
        queries, keys, W = widened(queries, keys, self.W)
        return queries, keys @ W.T, scores.DotProduct(W.shape[0] ** 0.5)

    def extra_repr(self) -> str:
        return f"query_size={self.W.shape[0]}, key_size={self.W.shape[1]}"


def fits(queries: Tensor, keys: Tensor, query_size: int, key_size: int) -> None:
    """Raise ValueError unless queries and keys have the widths a score was made for."""
    if (queries.shape[-1], keys.shape[-1]) != (query_size, key_size):
        raise ValueError(
            f"the score is for query_size={query_size} and key_size={key_size}, "
            f"but queries have {queries.shape[-1]} features and keys {keys.shape[-1]}"
        )


def at_least_one(**sizes: int) -> None:
    """Raise ValueError unless every size is a whole number of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {size!r}")
