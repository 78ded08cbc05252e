"""Multi-head attention: the same pooling over several projections at once, with the outputs concatenated."""

from __future__ import annotations

from torch import Tensor, nn

from regard.nn.argument_checks import at_least_one
from regard.nn.attention_pooling import Attended, AttentionPooling
from regard.nn.layer_inputs import cleaned, score_shape, with_nan
from regard.nn.masks import allowed, combined, joined
from regard.tensors.tensor_inputs import Lengths


class MultiHead(nn.Module):
    """Multi-head attention: W_o [pooling(W_q q, W_k k, W_v v) for each head, concatenated].

    The module is called like ``AttentionPooling``, on (B, Q, query_size), (B, K, key_size) and (B, K, value_size).
    Weights are (B, heads, Q, K), and ``attn_mask`` may have that shape too, a mask for each head. ``W_q``, ``W_k``,
    ``W_v`` and ``W_o`` have no bias. ``multi_head`` is another name of this class.

    Parameters
    ----------
    pooling : AttentionPooling
        Its score gets hidden_size/heads features; all heads share it.
    heads : int
        Number of heads.
    query_size : int
        Features of a query.
    key_size : int, default=None
        Features of a key; None is ``query_size``.
    value_size : int, default=None
        Features of a value; None is ``query_size``.
    hidden_size : int, default=None
        Features of all heads together and of the output, a multiple of heads; None is ``query_size``.

    *Empty rows*: zeros. *Cost*: that of the pooling for each head, and the four projections.

    >>> import torch
    >>> from regard.nn import DotProductScore
    >>> attention = multi_head(AttentionPooling(DotProductScore()), heads=2, query_size=6)
    >>> attention(torch.ones(1, 3, 6), torch.ones(1, 4, 6), torch.ones(1, 4, 6)).shape
    torch.Size([1, 3, 6])
    """

    def __init__(
        self,
        pooling: AttentionPooling,
        heads: int,
        query_size: int,
        key_size: int | None = None,
        value_size: int | None = None,
        hidden_size: int | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(pooling, AttentionPooling):
            raise TypeError(f"pooling must be an AttentionPooling, got {type(pooling).__name__}")
        key_size, value_size, hidden_size = (size or query_size for size in (key_size, value_size, hidden_size))
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
        """Pool the values with every head.

        Parameters
        ----------
        queries, keys, values, valid_lens, attn_mask, need_weights : as in ``AttentionPooling``
            With a batch axis; a mask with four axes is (B, heads, Q, K).

        Returns
        -------
        tensor (B, Q, hidden_size), or Attended(output, weights)
            Weights are (B, heads, Q, K).
        """
        batch, *pairs = score_shape(queries, keys, values)
        if queries.ndim != 3 or len(pairs) != 2:
            raise ValueError(f"queries must have shape (batch, queries, features), got {tuple(queries.shape)}")
        per_head = attn_mask is not None and attn_mask.ndim == 4
        mask = combined((batch, *pairs), queries.device, valid_lens, None if per_head else attn_mask)
        if mask is not None and mask.ndim == 3:
            mask = mask.unsqueeze(1)
        if per_head:
            mask = joined(mask, combined((batch, self.heads, *pairs), queries.device, attn_mask=attn_mask))
        # Masked NaN must not reach the projections either: a gradient of 0 times NaN is NaN.
        in_any_head = None if mask is None else allowed(mask).expand(batch, self.heads, *pairs).any(1)
        inputs = cleaned(queries, keys, values, in_any_head)
        pooled = self.pooling(
            self._split(self.W_q(inputs.queries)),
            self._split(self.W_k(inputs.keys)),
            self._split(self.W_v(inputs.values)),
            attn_mask=mask,
            need_weights=need_weights,
        )
        output, weights = pooled if need_weights else (pooled, None)
        output = self.W_o(output.transpose(1, 2).flatten(-2))  # (B, heads, Q, ·) → (B, Q, hidden)
        if inputs.non_finite is not None:
            # The projections mix the columns: one non-finite entry of a value affects all of them.
            output = with_nan(output, inputs.non_finite.output.any(-1, keepdim=True))
            if weights is not None:
                rows = inputs.non_finite.rows.unsqueeze(1)
                weights = with_nan(weights, rows if mask is None else rows & allowed(mask))
        return output if weights is None else Attended(output, weights)

    def _split(self, rows: Tensor) -> Tensor:
        """(B, n, hidden) → (B, heads, n, hidden/heads)."""
        return rows.reshape(*rows.shape[:-1], self.heads, -1).transpose(1, 2)

    def extra_repr(self) -> str:
        return f"heads={self.heads}"


multi_head = MultiHead
