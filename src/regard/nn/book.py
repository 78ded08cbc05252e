"""The attention classes of Dive into Deep Learning, with the signatures of editions 0.17 and 1.0, and the additive
regression of the notes.

Parameters have the same names as there, so saved weights load. What differs: the weight of a masked key is exactly 0, a
length of 0 gives zeros instead of the mean of all values, inputs are not written to, and ``attention_weights`` is
detached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        """Predict, with a row of keys and values per query.

        Parameters
        ----------
        queries : tensor (n,)
            Where to predict.
        keys : tensor (n, m)
            Inputs for each query; for leave-one-out each row holds the m = n − 1 other training inputs.
        values : tensor (n, m)
            Their outputs.

        Returns
        -------
        tensor (n,)
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

    Parameters
    ----------
    dropout : float
        Probability of setting a weight to zero in training mode.

    *Empty rows*: zeros. *Cost*: O(Q·K·(d + P)).

    >>> attention, x = DotProductAttention(dropout=0.5).eval(), torch.ones(2, 1, 2)
    >>> attention(x, x, x, torch.tensor([1, 1])).shape
    torch.Size([2, 1, 2])
    """

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Lengths | None = None) -> Tensor:
        """Pool the values.

        Parameters
        ----------
        queries : tensor (B, Q, d)
            Queries.
        keys : tensor (B, K, d)
            Keys.
        values : tensor (B, K, P)
            Values.
        valid_lens : tensor of int (B,) or (B, Q), default=None
            Only the first ``valid_lens`` keys may be attended to.

        Returns
        -------
        tensor (B, Q, P)
        """
        inputs = prepared(queries, keys, values, valid_lens)
        return self._attended(dot_product, inputs, self.dropout)


class AdditiveAttention(RecordedAttention):
    """Additive attention, with the signature of either edition of the book.

    ``AdditiveAttention(key_size, query_size, num_hiddens, dropout)`` as in edition 0.17, or
    ``AdditiveAttention(num_hiddens, dropout)`` as in 1.0, which takes the sizes from the first batch.

    Parameters
    ----------
    *args : int and float
        The arguments of one of the editions, in its order.
    **kwargs : int and float
        The same by name.

    *Empty rows*: zeros. *Cost*: O(Q·K·num_hiddens) time and memory.

    >>> attention = AdditiveAttention(num_hiddens=8, dropout=0.1)
    >>> attention(torch.ones(2, 1, 20), torch.ones(2, 10, 2), torch.ones(2, 10, 4), torch.tensor([2, 6])).shape
    torch.Size([2, 1, 4])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        given = edition_arguments(
            "AdditiveAttention",
            (("key_size", "query_size", "num_hiddens", "dropout"), ("num_hiddens", "dropout")),
            {},
            args,
            kwargs,
        )
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
        """Pool the values.

        Parameters
        ----------
        queries : tensor (B, Q, query_size)
            Queries.
        keys : tensor (B, K, key_size)
            Keys.
        values : tensor (B, K, P)
            Values.
        valid_lens : tensor of int (B,) or (B, Q), default=None
            Only the first ``valid_lens`` keys may be attended to.

        Returns
        -------
        tensor (B, Q, P)
        """
        inputs = prepared(queries, keys, values, valid_lens)
        return self._attended(self._score, inputs, self.dropout)

    def _score(self, queries: Tensor, keys: Tensor) -> Tensor:
        return additive(projected(self.W_q, queries), projected(self.W_k, keys), self.w_v)


class AdditiveAttentionReg(RecordedAttention):
    """Kernel regression with a learned score: Σ_k softmax_k(vᵀ tanh(W_q q + W_k x_k)) y_k.

    Parameters
    ----------
    input_size : int
        Features of a query and of a key.
    hidden_size : int
        Units of the hidden layer.

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
        """Predict from a training set.

        Parameters
        ----------
        queries : tensor (Q, input_size)
            Where to predict.
        keys : tensor (K, input_size)
            Inputs of the training set.
        values : tensor (K, P)
            Outputs of the training set.
        attn_mask : tensor of bool (Q, K), default=None
            True = may attend. In training on the set itself, ``~torch.eye(K, dtype=torch.bool)`` keeps every row from
            attending to itself.

        Returns
        -------
        tensor (Q, P)
        """
        inputs = prepared(queries, keys, values, attn_mask=attn_mask)
        return self._attended(self._score, inputs, nn.Identity())

    def _score(self, queries: Tensor, keys: Tensor) -> Tensor:
        return additive(projected(self.W_q, queries), projected(self.W_k, keys), self.v)


def edition_arguments(
    name: str,
    editions: Sequence[Sequence[str]],
    defaults: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> dict[str, Any]:
    """The arguments by name, in the signature of the edition that they fit; ``defaults`` are those at its end."""
    for names in editions:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        required = {*names} - {*defaults}
        if len(args) <= len(names) and not {*names[: len(args)]} & {*kwargs} and required <= {*given} <= {*names}:
            return {**defaults, **given}
    signatures = " or ".join(
        f"{name}({', '.join(f'{one}={defaults[one]}' if one in defaults else one for one in names)})"
        for names in editions
    )
    raise TypeError(f"expected {signatures}, got {len(args)} positional arguments and {sorted(kwargs)}")
