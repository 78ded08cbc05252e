"""Masks: who may attend to whom, read once into one of three forms.

None (everybody may), boolean (True = may attend, as in ``F.scaled_dot_product_attention``), or floats that are added to
the scores, with −inf for "may not". Lengths and masks given together must both allow a pair.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Lengths = Tensor | Sequence[int] | Sequence[Sequence[int]]


def combined(
    shape: Sequence[int], device: torch.device, valid_lens: Lengths | None = None, attn_mask: Tensor | None = None
) -> Tensor | None:
    """One mask for scores of shape (…, Q, K), from lengths and a mask; it broadcasts to that shape.

    Raises TypeError or ValueError naming the argument, what was given and what is accepted.
    """
    mask = None if attn_mask is None else _checked(attn_mask, shape)
    if valid_lens is None:
        return mask
    return joined(_within(valid_lens, shape, device), mask)


def joined(within: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """One mask from a boolean and a mask of either kind: both must allow a pair."""
    if within is None or mask is None:
        return mask if within is None else within
    return within & mask if mask.dtype == torch.bool else torch.where(within, mask, -torch.inf)


def allowed(mask: Tensor) -> Tensor:
    """Boolean view of a mask: True where a pair may attend at all."""
    return mask if mask.dtype == torch.bool else mask > -torch.inf


def masked_scores(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The scores with the mask in them: −inf where a pair may not attend, whatever stood there."""
    if mask is None:
        return scores
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, -torch.inf)
    # A low number is not a "may not": the sum stops at the lowest number instead of falling to −inf.
    total = (scores + mask.to(scores.dtype)).clamp(min=torch.finfo(scores.dtype).min)
    return torch.where(allowed(mask) & (scores != -torch.inf), total, -torch.inf)


def from_key_padding_mask(key_padding_mask: Tensor) -> Tensor:
    """``attn_mask`` (B, 1, K) from the ``key_padding_mask`` (B, K) of ``nn.MultiheadAttention``, where True = ignore.

    Booleans are inverted; floats are added to the scores there as here and stay as they are. A boolean ``attn_mask``
    of ``nn.MultiheadAttention`` is inverted too: pass ``~attn_mask``.

    >>> from_key_padding_mask(torch.tensor([[False, False, True]]))  # the third key is padding
    tensor([[[ True,  True, False]]])
    """
    if key_padding_mask.ndim != 2:
        raise ValueError(f"key_padding_mask must have shape (batch, keys), got {tuple(key_padding_mask.shape)}")
    if key_padding_mask.dtype != torch.bool and not key_padding_mask.is_floating_point():
        raise TypeError(
            f"key_padding_mask must be boolean (True = ignore) or additive floats, got dtype {key_padding_mask.dtype}"
        )
    kept = ~key_padding_mask if key_padding_mask.dtype == torch.bool else key_padding_mask
    return kept.unsqueeze(-2)


def _checked(attn_mask: Tensor, shape: Sequence[int]) -> Tensor:
    if not isinstance(attn_mask, Tensor):
        raise TypeError(f"attn_mask must be a tensor, got {type(attn_mask).__name__}")
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise TypeError(
            "attn_mask must be boolean (True = may attend) or floats to add to the scores, "
            f"got dtype {attn_mask.dtype}; integers are refused because nn.MultiheadAttention inverts the meaning "
            "(True = ignore): write mask.bool(), or from_key_padding_mask(mask.bool()) for a mask made for it"
        )
    if not _broadcasts(attn_mask.shape, shape):
        raise ValueError(
            f"attn_mask must broadcast to (…, queries, keys) = {tuple(shape)}, got {tuple(attn_mask.shape)}"
        )
    look = attn_mask.is_floating_point() and attn_mask.numel() and not torch.compiler.is_compiling()
    # One number tells both: the largest of numbers with a NaN among them is NaN.
    if look and not bool(attn_mask.detach().amax() < torch.inf):
        raise ValueError("attn_mask of floats may hold −inf but neither NaN nor +inf")
    return attn_mask


def _within(valid_lens: Lengths, shape: Sequence[int], device: torch.device) -> Tensor:
    """Boolean mask of the keys before each length, one length per batch entry or per query."""
    lengths = torch.as_tensor(valid_lens, device=device)
    if lengths.dtype == torch.bool or lengths.is_floating_point() or lengths.is_complex():
        raise TypeError(f"valid_lens must be integers, got dtype {lengths.dtype}")
    batch, keys = tuple(shape[:-2]), shape[-1]
    per_query = lengths.ndim == len(shape) - 1
    if not (
        _broadcasts(lengths.shape, shape[:-1])
        if per_query
        else lengths.ndim == len(batch) and _broadcasts(lengths.shape, batch)
    ):
        raise ValueError(
            f"valid_lens must have the shape {batch} of the batch or {tuple(shape[:-1])} of the queries, "
            f"got {tuple(lengths.shape)}"
        )
    if lengths.numel() and not torch.compiler.is_compiling():
        low, high = (int(end) for end in lengths.aminmax())
        if low < 0 or high > keys:
            raise ValueError(f"valid_lens must lie between 0 and the {keys} keys, got {low if low < 0 else high}")
    ends = lengths.unsqueeze(-1) if per_query else lengths[..., None, None]
    return torch.arange(keys, device=device) < ends


def _broadcasts(given: Sequence[int], shape: Sequence[int]) -> bool:
    return len(given) <= len(shape) and all(
        n in (1, size) for n, size in zip(reversed(given), reversed(shape), strict=False)
    )
