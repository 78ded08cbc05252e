"""Several heads: the same attention looks through several projections at once, and the answers are joined."""

from __future__ import annotations

from torch import Tensor, nn

from regard.nn.inputs import cleaned, score_shape, with_nan
from regard.nn.masks import allowed, combined, joined
from regard.nn.pooling import Attended, AttentionPooling
from regard.nn.scores import at_least_one
from regard.tensors.inputs import Lengths


def multi_head(
    pooling: AttentionPooling,
    heads: int,
    query_size: int,
    key_size: int | None = None,
    value_size: int | None = None,
    hidden_size: int | None = None,
) -> MultiHead:
    """Wrap attention in heads: W_o [pooling(W_q q, W_k k, W_v v) for each head, side by side].

    Parameters
    ----------
    pooling : any ``AttentionPooling``; its score sees hidden_size/heads features, and all heads share it.
    heads : how many.
    query_size : features of a query; key_size, value_size : of a key and of a value, query_size unless given.
    hidden_size : features of all heads together and of the output, a multiple of heads; query_size unless given.

    Returns
    -------
    A module called like ``AttentionPooling``, on (B, Q, query_size), (B, K, key_size) and (B, K, value_size). Weights
    are (B, heads, Q, K), and ``attn_mask`` may have that shape too, a mask for each head.

    *Empty rows*: zeros. *Cost*: that of the pooling for each head, and the four projections.

    >>> import torch
    >>> from regard.nn import DotProductScore
    >>> attention = multi_head(AttentionPooling(DotProductScore()), heads=2, query_size=6)
    >>> attention(torch.ones(1, 3, 6), torch.ones(1, 4, 6), torch.ones(1, 4, 6)).shape
    torch.Size([1, 3, 6])
    """
    return MultiHead(
        pooling, heads, query_size, key_size or query_size, value_size or query_size, hidden_size or query_size
    )


class MultiHead(nn.Module):
    """What ``multi_head`` returns. Parameters ``W_q``, ``W_k``, ``W_v``, ``W_o``, without bias."""

    def __init__(
        self, pooling: AttentionPooling, heads: int, query_size: int, key_size: int, value_size: int, hidden_size: int
    ) -> None:
        super().__init__()
        if not isinstance(pooling, AttentionPooling):
            raise TypeError(f"pooling must be an AttentionPooling, got {type(pooling).__name__}")
        at_least_one(
            heads=heads, query_size=query_size, key_size=key_size, value_size=value_size, hidden_size=hidden_size
        )
        if hidden_size % heads:
            raise ValueError(f"hidden_size must be a multiple of heads, got {hidden_size} and {heads}")
        self.pooling = pooling
        self.heads = heads
        self.W_q = nn.Linear(query_size, hidden_size, bias=False)
        self.W_k = nn.Linear(key_size, hidden_size, bias=False)
        self.W_v = nn.Linear(value_size, hidden_size, bias=False)
        self.W_o = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Lengths | None = None,
        *,
        attn_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> Tensor | Attended:
        """As in ``AttentionPooling``; a mask with four axes is (B, heads, Q, K)."""
        batch, *pairs = score_shape(queries, keys, values)
        if queries.ndim != 3 or len(pairs) != 2:
            raise ValueError(f"queries must have shape (batch, queries, features), got {tuple(queries.shape)}")
        own = attn_mask is not None and attn_mask.ndim == 4  # a mask for every head
        mask = combined((batch, *pairs), queries.device, valid_lens, None if own else attn_mask)
        if mask is not None and mask.ndim == 3:
            mask = mask.unsqueeze(1)
        if own:
            mask = joined(mask, combined((batch, self.heads, *pairs), queries.device, attn_mask=attn_mask))
        # Garbage must not reach the projections either: a gradient of 0 times NaN is NaN.
        somebody = None if mask is None else allowed(mask).expand(batch, self.heads, *pairs).any(1)
        inputs = cleaned(queries, keys, values, somebody)
        pooled = self.pooling(
            self._split(self.W_q(inputs.queries)),
            self._split(self.W_k(inputs.keys)),
            self._split(self.W_v(inputs.values)),
            attn_mask=mask,
            need_weights=need_weights,
        )
        output, weights = pooled if need_weights else (pooled, None)
        output = self.W_o(output.transpose(1, 2).flatten(-2))  # (B, heads, Q, ·) → (B, Q, hidden)
        if inputs.spoilt is not None:
            # Heads mix the columns: one bad number in a value reaches them all.
            output = with_nan(output, inputs.spoilt.output.any(-1, keepdim=True))
            if weights is not None:
                spoilt = inputs.spoilt.rows.unsqueeze(1)
                weights = with_nan(weights, spoilt if mask is None else spoilt & allowed(mask))
        return output if weights is None else Attended(output, weights)

    def _split(self, rows: Tensor) -> Tensor:
        """(B, n, hidden) → (B, heads, n, hidden/heads)."""
        return rows.reshape(*rows.shape[:-1], self.heads, -1).transpose(1, 2)

    def extra_repr(self) -> str:
        return f"heads={self.heads}"
