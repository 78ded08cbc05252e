"""The attention classes of Dive into Deep Learning, with the signatures of editions 0.17 and 1.0, and the additive
regression of the notes.

Parameters have the same names as there, so saved weights load. What differs: the weight of a masked key is exactly 0, a
length of 0 gives zeros instead of the mean of all values, inputs are not written to, and ``attention_weights`` is
detached.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.nn.additive import additive, projected
from regard.nn.attention_pooling import RecordedAttention
from regard.nn.layer_inputs import prepared
from regard.nn.precision import widened
from regard.nn.score_layers import dot_product
from regard.tensors.gaussian_products import relative_gaussian_scores
from regard.tensors.tensor_inputs import Lengths


class NWKernelRegression(RecordedAttention):
    """Nadaraya–Watson regression with one learned w: Σ_k softmax_k(−½((q − x_k)·w)²) y_k.

    *Empty rows*: zeros. *Cost*: O(n·m).

    >>> net = NWKernelRegression()
    >>> net(torch.zeros(1), torch.tensor([[-1.0, 1.0]]), torch.tensor([[2.0, 4.0]])).tolist()
    [3.0]
    """

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.rand(1))

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """queries (n,), keys (n, m) and values (n, m), a row of keys and values per query; returns (n,).

        For leave-one-out each row of keys holds the m = n − 1 other training inputs.
        """
        if queries.ndim != 1 or keys.ndim != 2 or keys.shape != values.shape or len(keys) != len(queries):
            shapes = ", ".join(str(tuple(t.shape)) for t in (queries, keys, values))
            raise ValueError(f"queries, keys and values must have shapes (n,), (n, m) and (n, m), got {shapes}")
        inputs = prepared(queries[:, None, None], keys.unsqueeze(-1), values.unsqueeze(-1))
        output = self._attended(lambda q, k: relative_gaussian_scores(*widened(q, k, self.w)), inputs, nn.Identity())
        assert self.attention_weights is not None
        self.attention_weights = self.attention_weights.squeeze(1)  # (n, m)
        return output.flatten()


class DotProductAttention(RecordedAttention):
    """Scaled dot-product attention; in both editions ``DotProductAttention(dropout)``.

    *Empty rows*: zeros. *Cost*: O(Q·K·(d + P)).

    >>> attention, x = DotProductAttention(dropout=0.5).eval(), torch.ones(2, 1, 2)
    >>> attention(x, x, x, torch.tensor([1, 1])).shape
    torch.Size([2, 1, 2])
    """

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Lengths | None = None) -> Tensor:
        """queries (B, Q, d), keys (B, K, d), values (B, K, P), valid_lens (B,) or (B, Q); returns (B, Q, P)."""
        inputs = prepared(queries, keys, values, valid_lens)
        return self._attended(dot_product, inputs, self.dropout)


class AdditiveAttention(RecordedAttention):
    """Additive attention: ``AdditiveAttention(key_size, query_size, num_hiddens, dropout)`` as in edition 0.17, or
    ``AdditiveAttention(num_hiddens, dropout)`` as in 1.0, which takes the sizes from the first batch.

    *Empty rows*: zeros. *Cost*: O(Q·K·num_hiddens) time and memory.

    >>> attention = AdditiveAttention(num_hiddens=8, dropout=0.1)
    >>> attention(torch.ones(2, 1, 20), torch.ones(2, 10, 2), torch.ones(2, 10, 4), torch.tensor([2, 6])).shape
    torch.Size([2, 1, 4])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        given = _named(args, kwargs)
        hidden = given["num_hiddens"]
        if "key_size" in given:
            self.W_k = nn.Linear(given["key_size"], hidden, bias=False)
            self.W_q = nn.Linear(given["query_size"], hidden, bias=False)
        else:
            self.W_k = nn.LazyLinear(hidden, bias=False)
            self.W_q = nn.LazyLinear(hidden, bias=False)
        self.w_v = nn.Linear(hidden, 1, bias=False)
        self.dropout = nn.Dropout(given["dropout"])

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Lengths | None = None) -> Tensor:
        """queries (B, Q, query_size), keys (B, K, key_size), values (B, K, P), valid_lens (B,) or (B, Q)."""
        inputs = prepared(queries, keys, values, valid_lens)
        return self._attended(self._score, inputs, self.dropout)

    def _score(self, queries: Tensor, keys: Tensor) -> Tensor:
        return additive(projected(self.W_q, queries), projected(self.W_k, keys), self.w_v)


class AdditiveAttentionReg(RecordedAttention):
    """Kernel regression with a learned score: Σ_k softmax_k(vᵀ tanh(W_q q + W_k x_k)) y_k.

    Parameters
    ----------
    input_size : features of a query and of a key.
    hidden_size : units of the hidden layer.

    *Empty rows*: zeros. *Cost*: O(Q·K·hidden_size) time and memory.

    >>> net = AdditiveAttentionReg(input_size=1, hidden_size=8)
    >>> net(torch.zeros(5, 1), torch.zeros(3, 1), torch.tensor([[1.0], [2.0], [6.0]]))[0].round().tolist()
    [3.0]
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.W_q = nn.Linear(input_size, hidden_size, bias=False)
        self.W_k = nn.Linear(input_size, hidden_size, bias=False)
        self.v = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, *, attn_mask: Tensor | None = None) -> Tensor:
        """Predict: queries (Q, input_size), keys (K, input_size) and values (K, P) of the training set; returns (Q, P).

        attn_mask : (Q, K), True = may attend. In training on the set itself, ``~torch.eye(K, dtype=torch.bool)``
            keeps every row from attending to itself.
        """
        inputs = prepared(queries, keys, values, attn_mask=attn_mask)
        return self._attended(self._score, inputs, nn.Identity())

    def _score(self, queries: Tensor, keys: Tensor) -> Tensor:
        return additive(projected(self.W_q, queries), projected(self.W_k, keys), self.v)


_EDITIONS = (("key_size", "query_size", "num_hiddens", "dropout"), ("num_hiddens", "dropout"))


def _named(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, in the signature of the edition that they fit."""
    for names in _EDITIONS:
        if len(args) + len(kwargs) == len(names) and {*names[: len(args)], *kwargs} == {*names}:
            return {**dict(zip(names, args, strict=False)), **kwargs}
    editions = " or ".join(f"AdditiveAttention({', '.join(names)})" for names in _EDITIONS)
    raise TypeError(f"expected {editions}, got {len(args)} positional arguments and {sorted(kwargs)}")
