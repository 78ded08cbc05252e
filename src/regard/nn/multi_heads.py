"""Multi-head attention: the same pooling over several projections at once, with the outputs concatenated."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.nn.argument_checks import at_least_one
from regard.nn.attention_pooling import Attended, AttentionPooling
from regard.nn.layer_inputs import cleaned, score_shape, with_nan
from regard.nn.masks import allowed, combined, joined
from regard.tensors.tensor_inputs import Lengths, are_ordinary, is_finite


class MultiHead(nn.Module):
    """Multi-head attention: W_o [pooling(W_q q, W_k k, W_v v) for each head, concatenated].

    The module is called like ``AttentionPooling``, on (B, Q, query_size), (B, K, key_size) and (B, K, value_size), or
    on the same without B, which is a batch of one. Weights are (B, heads, Q, K), and ``attn_mask`` may have that shape
    too, a mask for each head. ``multi_head`` is another name of this class.

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
    kv_heads : int, default=None
        Number of heads of keys and values, a divisor of heads; None is ``heads``. With fewer, groups of heads/kv_heads
        consecutive heads share their keys and values (grouped queries; 1 is multi-query attention).
    bias : bool, default=False
        Whether ``W_q``, ``W_k``, ``W_v`` and ``W_o`` have a bias.
    device : torch device or str, default=None
        Of the parameters; None is torch's default.
    dtype : torch dtype, default=None
        Of the parameters; None is torch's default.

    *Empty rows*: zeros, or the bias of ``W_o``. *Cost*: that of the pooling for each head, and the four projections;
    with ``is_causal`` a boolean for each pair of query and key.

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
        *,
        kv_heads: int | None = None,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(pooling, AttentionPooling):
            raise TypeError(f"pooling must be an AttentionPooling, got {type(pooling).__name__}")
        key_size, value_size, hidden_size = (size or query_size for size in (key_size, value_size, hidden_size))
        kv_heads = heads if kv_heads is None else kv_heads
        at_least_one(
            heads=heads,
            query_size=query_size,
            key_size=key_size,
            value_size=value_size,
            hidden_size=hidden_size,
            kv_heads=kv_heads,
        )
        if hidden_size % heads:
            raise ValueError(f"hidden_size must be a multiple of heads, got {hidden_size} and {heads}")
        if heads % kv_heads:
            raise ValueError(f"heads must be a multiple of kv_heads, got {heads} and {kv_heads}")
        self.pooling = pooling
        self.heads, self.kv_heads = heads, kv_heads
        options: Any = {"bias": bias, "device": device, "dtype": dtype}
        kv_size = hidden_size // heads * kv_heads
        self.W_q = nn.Linear(query_size, hidden_size, **options)
        self.W_k = nn.Linear(key_size, kv_size, **options)
        self.W_v = nn.Linear(value_size, kv_size, **options)
        self.W_o = nn.Linear(hidden_size, hidden_size, **options)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Lengths | None = None,
        *,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        need_weights: bool = False,
    ) -> Tensor | Attended:
        """Pool the values with every head.

        Parameters
        ----------
        queries, keys, values, valid_lens, attn_mask, need_weights : as in ``AttentionPooling``
            A mask with four axes is (B, heads, Q, K). Without a batch axis ``valid_lens`` is one number, or one for
            each query, and a mask for each head is (heads, Q, K).
        is_causal : bool, default=False
            Query number i may attend to the keys 0 … i only, as in ``F.scaled_dot_product_attention``; lengths and
            masks given as well must also allow a pair.

        Returns
        -------
        tensor (B, Q, hidden_size), or Attended(output, weights)
            Weights are (B, heads, Q, K). Without a batch axis neither has B.
        """
        if queries.ndim == 2:
            return self._unbatched(
                queries, keys, values, valid_lens, attn_mask=attn_mask, is_causal=is_causal, need_weights=need_weights
            )
        without_mask = valid_lens is None and attn_mask is None and not is_causal
        if without_mask and queries.ndim == 3 and are_ordinary(queries, keys, values):
            output, weights = self._pooled(queries, keys, values, None, need_weights=need_weights)
            if is_finite(output):
                return output if weights is None else Attended(output, weights)
        batch, *pairs = score_shape(queries, keys, values)
        if queries.ndim != 3 or len(pairs) != 2:
            raise ValueError(
                f"queries must have shape (batch, queries, features) or (queries, features), got {tuple(queries.shape)}"
            )
        per_head = attn_mask is not None and attn_mask.ndim == 4
        mask = combined((batch, *pairs), queries.device, valid_lens, None if per_head else attn_mask)
        if is_causal:
            mask = joined(torch.ones(pairs, dtype=torch.bool, device=queries.device).tril(), mask)
        if mask is not None and mask.ndim == 3:
            mask = mask.unsqueeze(1)
        if per_head:
            mask = joined(mask, combined((batch, self.heads, *pairs), queries.device, attn_mask=attn_mask))
        # Masked NaN must not reach the projections either: a gradient of 0 times NaN is NaN.
        in_any_head = None if mask is None else allowed(mask).expand(batch, self.heads, *pairs).any(1)
        inputs = cleaned(queries, keys, values, in_any_head)
        output, weights = self._pooled(*inputs[:3], mask, need_weights=need_weights)
        if inputs.non_finite is not None:
            # The projections mix the columns: one non-finite entry of a value affects all of them.
            output = with_nan(output, inputs.non_finite.output.any(-1, keepdim=True))
            if weights is not None:
                rows = inputs.non_finite.rows.unsqueeze(1)
                weights = with_nan(weights, rows if mask is None else rows & allowed(mask))
        return output if weights is None else Attended(output, weights)

    def _pooled(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """output (B, Q, hidden), and weights (B, heads, Q, K) if they are needed."""
        pooled = self.pooling(
            self._grouped(self._split(self.W_q(queries), self.heads)),
            self._shared(self._split(self.W_k(keys), self.kv_heads)),
            self._shared(self._split(self.W_v(values), self.kv_heads)),
            attn_mask=mask if mask is None or mask.ndim < 4 else self._grouped(mask),
            need_weights=need_weights,
        )
        output, weights = pooled if need_weights else (pooled, None)
        if self.kv_heads != self.heads:
            output = output.flatten(1, 2)
            weights = None if weights is None else weights.flatten(1, 2)
        return self.W_o(output.transpose(1, 2).flatten(-2)), weights  # (B, heads, Q, ·) → (B, Q, hidden)

    def _unbatched(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Lengths | None,
        *,
        attn_mask: Tensor | None,
        **options: bool,
    ) -> Tensor | Attended:
        """A batch of one, and its axis removed again."""
        score_shape(queries, keys, values)
        if valid_lens is not None:
            valid_lens = torch.as_tensor(valid_lens).unsqueeze(0)
        if attn_mask is not None and attn_mask.ndim == 3:
            attn_mask = attn_mask.unsqueeze(0)
        found = self(queries[None], keys[None], values[None], valid_lens, attn_mask=attn_mask, **options)
        return Attended(*(part[0] for part in found)) if isinstance(found, Attended) else found[0]

    @staticmethod
    def _split(rows: Tensor, heads: int) -> Tensor:
        """(B, n, heads·size) → (B, heads, n, size)."""
        return rows.reshape(*rows.shape[:-1], heads, -1).transpose(1, 2)

    def _grouped(self, per_head: Tensor) -> Tensor:
        """(B, heads, …) → (B, kv_heads, heads/kv_heads, …) if heads share keys; (B, 1, …) → (B, 1, 1, …)."""
        if self.kv_heads == self.heads:
            return per_head
        if per_head.shape[1] == 1:
            return per_head.unsqueeze(1)
        batch, heads, *rest = per_head.shape
        return per_head.reshape(batch, self.kv_heads, heads // self.kv_heads, *rest)

    def _shared(self, rows: Tensor) -> Tensor:
        """(B, kv_heads, K, size) → (B, kv_heads, 1, K, size), which broadcasts over a group of heads."""
        return rows if self.kv_heads == self.heads else rows.unsqueeze(2)

    def extra_repr(self) -> str:
        return f"heads={self.heads}" + ("" if self.kv_heads == self.heads else f", kv_heads={self.kv_heads}")


multi_head = MultiHead
