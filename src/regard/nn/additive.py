"""Additive scores: one hidden layer over a query and a key, in two equivalent forms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.core import scores
from regard.nn.argument_checks import at_least_one
from regard.nn.precision import widened
from regard.nn.score_layers import ScoreLayer, fits
from regard.tensors.hidden_scores import hidden_scores


def projected(layer: nn.Linear, rows: Tensor) -> Tensor:
    """The rows after a linear layer without bias, in float32 at least."""
    if isinstance(layer, nn.LazyLinear):
        layer(rows.to(layer.weight.dtype))  # the first call determines its input size
    rows, weight = widened(rows, layer.weight)
    return F.linear(rows, weight)


def additive(queries: Tensor, keys: Tensor, w_v: nn.Linear) -> Tensor:
    """w_v·tanh(q + k) (…, Q, K) of projected queries (…, Q, h) and keys (…, K, h)."""
    queries, keys, weight = widened(queries, keys, w_v.weight)
    return hidden_scores(queries, keys, weight[0])


class HiddenScore(ScoreLayer):
    """Base of scores with a hidden layer; subclasses create its input projection in ``_project``."""

    def __init__(
        self,
        query_size: int,
        key_size: int,
        hidden_size: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        at_least_one(query_size=query_size, key_size=key_size, hidden_size=hidden_size)
        self.query_size, self.key_size = query_size, key_size
        self._project(hidden_size, device=device, dtype=dtype)
        self.w_v = nn.Linear(hidden_size, 1, bias=False, device=device, dtype=dtype)

    def _project(self, hidden_size: int, **options: Any) -> None:
        raise NotImplementedError

    def check(self, queries: Tensor, keys: Tensor) -> None:
        """Raise ValueError unless queries and keys have the sizes the score was created for.

        Parameters
        ----------
        queries : tensor (…, Q, query_size)
            Queries.
        keys : tensor (…, K, key_size)
            Keys.
        """
        fits(queries, keys, self.query_size, self.key_size)


class AdditiveScore(HiddenScore):
    """The additive score w_vᵀ tanh(W_q q + W_k k), without bias; queries and keys may have different sizes.

    Parameters
    ----------
    query_size : int
        Features of a query.
    key_size : int
        Features of a key.
    hidden_size : int
        h, units of the hidden layer.
    device : torch device, default=None
        Of the parameters ``W_q``, ``W_k`` and ``w_v``.
    dtype : torch dtype, default=None
        Of the same parameters.

    *Cost*: O(Q·K·h) time; O(Q·K) memory on a CPU, O(Q·K·h) elsewhere.

    >>> AdditiveScore(2, 5, 8)(torch.ones(1, 3, 2), torch.ones(1, 4, 5)).shape
    torch.Size([1, 3, 4])
    """

    def _project(self, hidden_size: int, **options: Any) -> None:
        self.W_q = nn.Linear(self.query_size, hidden_size, bias=False, **options)
        self.W_k = nn.Linear(self.key_size, hidden_size, bias=False, **options)

    def keep(self, keys: Tensor) -> Tensor:
        """Keys after ``W_k``.

        Parameters
        ----------
        keys : tensor (…, K, key_size)
            Keys.

        Returns
        -------
        tensor (…, K, h)
        """
        return projected(self.W_k, keys)

    def between(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Scores between queries and prepared keys.

        Parameters
        ----------
        queries : tensor (…, Q, query_size)
            Queries.
        prepared : tensor (…, K, h)
            The result of ``keep(keys)``.

        Returns
        -------
        tensor (…, Q, K)
        """
        return additive(projected(self.W_q, queries), prepared, self.w_v)

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
        queries, keys, W_q, W_k, w_v = widened(queries, keys, self.W_q.weight, self.W_k.weight, self.w_v.weight)
        return queries, keys, scores.Additive(W_q, W_k, w_v[0])


class ConcatenatedScore(HiddenScore):
    """The additive score as textbooks write it, w_vᵀ tanh(W [q; k]): one hidden layer over the concatenated pair.

    W [q; k] = W_q q + W_k k with W = [W_q, W_k]: it is computed like ``AdditiveScore``, which projects each query and
    each key once, and ``as_additive()`` gives one with the same scores.

    Parameters
    ----------
    query_size : int
        Features of a query.
    key_size : int
        Features of a key.
    hidden_size : int
        h, units of the hidden layer.
    device : torch device, default=None
        Of the parameters ``W`` and ``w_v``.
    dtype : torch dtype, default=None
        Of the same parameters.

    *Cost*: O(Q·K·h) time; O(Q·K) memory on a CPU, O(Q·K·h) elsewhere.

    >>> score, q, k = ConcatenatedScore(2, 5, 8), torch.rand(1, 3, 2), torch.rand(1, 4, 5)
    >>> torch.allclose(score(q, k), score.as_additive()(q, k), atol=1e-6)
    True
    """

    def _project(self, hidden_size: int, **options: Any) -> None:
        self.W = nn.Linear(self.query_size + self.key_size, hidden_size, bias=False, **options)

    def keep(self, keys: Tensor) -> Tensor:
        """Keys after W_k, the part of ``W`` that applies to them.

        Parameters
        ----------
        keys : tensor (…, K, key_size)
            Keys.

        Returns
        -------
        tensor (…, K, h)
        """
        keys, weight = widened(keys, self.W.weight)
        return keys @ weight[:, self.query_size :].T

    def between(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Scores between queries and prepared keys.

        Parameters
        ----------
        queries : tensor (…, Q, query_size)
            Queries.
        prepared : tensor (…, K, h)
            The result of ``keep(keys)``.

        Returns
        -------
        tensor (…, Q, K)
        """
        queries, weight = widened(queries, self.W.weight)
        return additive(queries @ weight[:, : self.query_size].T, prepared, self.w_v)

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
        queries, keys, W, w_v = widened(queries, keys, self.W.weight, self.w_v.weight)
        return queries, keys, scores.Additive(W[:, : self.query_size], W[:, self.query_size :], w_v[0])

    def as_additive(self) -> AdditiveScore:
        """The equivalent ``AdditiveScore``, with its own copy of the parameters.

        Returns
        -------
        AdditiveScore
        """
        weight = self.W.weight
        score = AdditiveScore(
            self.query_size, self.key_size, self.W.out_features, device=weight.device, dtype=weight.dtype
        )
        with torch.no_grad():
            score.W_q.weight.copy_(weight[:, : self.query_size])
            score.W_k.weight.copy_(weight[:, self.query_size :])
            score.w_v.weight.copy_(self.w_v.weight)
        return score
