"""Scores as layers: queries (…, Q, d) and keys (…, K, d) in, scores (…, Q, K) out, with learned parameters.

The functions compute a score; the modules hold its parameters. Any module with the same signature can be a score.
Additive scores are in ``additive``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

import torch
from torch import Tensor, nn

from regard.core import scores
from regard.nn.argument_checks import at_least_one
from regard.nn.precision import widened
from regard.tensors.decaying_scores import decaying_scores
from regard.tensors.gaussian_products import relative_gaussian_scores


def gaussian(queries: Tensor, keys: Tensor, w: Tensor) -> Tensor:
    """−½‖w∘(q − k)‖², the difference first: w is a scalar, (d,) or a matrix (d, r). *Cost*: O(Q·K·d) memory.

    For a query so far from every key that its scores would all round to one number, scores are relative to that of a
    nearest key.
    """
    return decaying_scores(*widened(queries, keys, w))[0]


def dot_product(queries: Tensor, keys: Tensor) -> Tensor:
    """q·k/√d: features of unit variance give scores of unit variance for every d."""
    queries, keys = widened(queries, keys)
    return (queries / sqrt(max(queries.shape[-1], 1))) @ keys.transpose(-2, -1)


class ScoreLayer(nn.Module):
    """Base of the scores of this package: keys are prepared once, and then scored with any number of queries."""

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Scores between all queries and keys.

        Parameters
        ----------
        queries : tensor (…, Q, d)
            Queries.
        keys : tensor (…, K, d')
            Keys.

        Returns
        -------
        tensor (…, Q, K)
        """
        self.check(queries, keys)
        return self.between(queries, self.keep(keys))

    def check(self, queries: Tensor, keys: Tensor) -> None:
        """Raise ValueError unless queries and keys have the same features.

        Parameters
        ----------
        queries : tensor (…, Q, d)
            Queries.
        keys : tensor (…, K, d)
            Keys.
        """
        if queries.shape[-1] != keys.shape[-1]:
            raise ValueError(f"queries have {queries.shape[-1]} features and keys {keys.shape[-1]}; they must agree")

    def keep(self, keys: Tensor) -> Tensor:
        """Keys as ``between`` expects them: unchanged, unless the score projects them.

        Parameters
        ----------
        keys : tensor (…, K, d')
            Keys.

        Returns
        -------
        tensor
        """
        return keys

    def between(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Scores between queries and prepared keys.

        Parameters
        ----------
        queries : tensor (…, Q, d)
            Queries.
        prepared : tensor
            The result of ``keep(keys)``.

        Returns
        -------
        tensor (…, Q, K)
        """
        raise NotImplementedError

    def as_plain(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, scores.Score]:
        """Queries, keys and a score of ``regard.scores`` that give the same scores.

        Parameters
        ----------
        queries : tensor (…, Q, d)
            Queries.
        keys : tensor (…, K, d')
            Keys.

        Returns
        -------
        tuple of two tensors and a score
        """
        raise NotImplementedError


class GaussianScore(ScoreLayer):
    """The score −½‖w∘(q − k)‖² with a learned w: with it, attention pooling is Nadaraya–Watson regression.

    Parameters
    ----------
    w : float, sequence or tensor (d,) or (d, r), default=1.0
        Initial value of the learned parameter: a number, one number per feature, or a matrix that maps differences to r
        coordinates. 1/w is the bandwidth; the sign of w has no effect.
    device : torch device, default=None
        Of the parameter ``w``.
    dtype : torch dtype, default=None
        Of the parameter ``w``.

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
            raise ValueError(f"w must be a finite number, a vector (d,) or a matrix (d, r), got {w!r}")
        self.w = nn.Parameter(start.detach().clone())

    def check(self, queries: Tensor, keys: Tensor) -> None:
        """Raise ValueError unless queries, keys and w have the same number of features.

        Parameters
        ----------
        queries : tensor (…, Q, d)
            Queries.
        keys : tensor (…, K, d)
            Keys.
        """
        super().check(queries, keys)
        w = self.w
        if w.ndim and w.shape[0] != keys.shape[-1]:
            raise ValueError(f"w is for {w.shape[0]} features but keys have {keys.shape[-1]}")

    def between(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Scores between queries and keys.

        Parameters
        ----------
        queries : tensor (…, Q, d)
            Queries.
        prepared : tensor (…, K, d)
            Keys.

        Returns
        -------
        tensor (…, Q, K)
        """
        return gaussian(queries, prepared, self.w)

    def as_plain(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, scores.Score]:
        """Queries, keys and a score of ``regard.scores`` that give the same scores.

        Parameters
        ----------
        queries : tensor (…, Q, d)
            Queries.
        keys : tensor (…, K, d)
            Keys.

        Returns
        -------
        tuple of two tensors and a score
        """
        queries, keys, w = widened(queries, keys, self.w)
        return queries, keys, scores.Gaussian(w)

    def extra_repr(self) -> str:
        return f"w={self.w.item():.4g}" if self.w.ndim == 0 else f"w={tuple(self.w.shape)}"


def relative_scores(score: Callable[[Tensor, Tensor], Tensor], queries: Tensor, keys: Tensor) -> Tensor:
    """The scores (…, Q, K), less what all keys of a query share if that makes them cheaper: no weight depends on it."""
    if type(score) is not GaussianScore:
        return score(queries, keys)
    score.check(queries, keys)
    return relative_gaussian_scores(*widened(queries, keys, score.w))


class DotProductScore(ScoreLayer):
    """The score q·k/√d, without parameters: features of unit variance give scores of unit variance for every d.

    *Cost*: O(Q·K·d) time, O(Q·K) memory.

    >>> DotProductScore()(torch.ones(1, 1, 4), torch.ones(1, 2, 4)).tolist()
    [[[2.0, 2.0]]]
    """

    def between(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Scores between queries and keys.

        Parameters
        ----------
        queries : tensor (…, Q, d)
            Queries.
        prepared : tensor (…, K, d)
            Keys.

        Returns
        -------
        tensor (…, Q, K)
        """
        return dot_product(queries, prepared)

    def as_plain(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, scores.Score]:
        """Queries, keys and a score of ``regard.scores`` that give the same scores.

        Parameters
        ----------
        queries : tensor (…, Q, d)
            Queries.
        keys : tensor (…, K, d)
            Keys.

        Returns
        -------
        tuple of two tensors and a score
        """
        return queries, keys, scores.DotProduct(1.0)


class BilinearScore(ScoreLayer):
    """The score qᵀ W k: a dot product between queries and keys of different sizes.

    Parameters
    ----------
    query_size : int
        Features of a query.
    key_size : int
        Features of a key. ``W`` is (query_size, key_size), initialised so that features of unit variance give scores of
        unit variance.
    device : torch device, default=None
        Of the parameter ``W``.
    dtype : torch dtype, default=None
        Of the parameter ``W``.

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
        """Raise ValueError unless queries and keys have the sizes the score was created for.

        Parameters
        ----------
        queries : tensor (…, Q, query_size)
            Queries.
        keys : tensor (…, K, key_size)
            Keys.
        """
        fits(queries, keys, *self.W.shape)

    def keep(self, keys: Tensor) -> Tensor:
        """Keys after W.

        Parameters
        ----------
        keys : tensor (…, K, key_size)
            Keys.

        Returns
        -------
        tensor (…, K, query_size)
        """
        keys, W = widened(keys, self.W)
        return keys @ W.T

    def between(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Scores between queries and prepared keys.

        Parameters
        ----------
        queries : tensor (…, Q, query_size)
            Queries.
        prepared : tensor (…, K, query_size)
            The result of ``keep(keys)``.

        Returns
        -------
        tensor (…, Q, K)
        """
        queries, prepared = widened(queries, prepared)
        return queries @ prepared.transpose(-2, -1)

    def as_plain(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, scores.Score]:
        """Queries, keys and a score of ``regard.scores`` that give the same scores.

        Parameters
        ----------
        queries : tensor (…, Q, query_size)
            Queries.
        keys : tensor (…, K, key_size)
            Keys.

        Returns
        -------
        tuple of two tensors and a score
        """
        queries, keys, W = widened(queries, keys, self.W)
        return queries, keys @ W.T, scores.DotProduct(W.shape[0] ** 0.5)

    def extra_repr(self) -> str:
        return f"query_size={self.W.shape[0]}, key_size={self.W.shape[1]}"


def fits(queries: Tensor, keys: Tensor, query_size: int, key_size: int) -> None:
    """Raise ValueError unless queries and keys have the sizes the score was created for."""
    if (queries.shape[-1], keys.shape[-1]) != (query_size, key_size):
        raise ValueError(
            f"the score has query_size={query_size} and key_size={key_size}, "
            f"but queries have {queries.shape[-1]} features and keys {keys.shape[-1]}"
        )
