"""Masks: which query may attend to which key, in one of three forms.

None (all pairs), boolean (True = may attend, as in ``F.scaled_dot_product_attention``), or floats that are added to
the scores, with −inf for "may not attend". Lengths and masks given together must both allow a pair.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.tensors.tensor_inputs import LAYER, Lengths, can_branch, lengths_of, mask_of


def combined(
    shape: Sequence[int], device: torch.device, valid_lens: Lengths | None = None, attn_mask: Tensor | None = None
) -> Tensor | None:
    """One mask for scores of shape (…, Q, K), from lengths and a mask; it broadcasts to that shape.

    Raises TypeError or ValueError naming the argument, what was given and what is accepted.
    """
    check_values = can_branch(*(part for part in (attn_mask, valid_lens) if isinstance(part, Tensor)))
    if attn_mask is not None:
        if not isinstance(attn_mask, Tensor):
            raise TypeError(f"attn_mask must be a tensor, got {type(attn_mask).__name__}")
        attn_mask = mask_of(LAYER, LAYER.mask, attn_mask, shape, check_values)
    if valid_lens is None:
        return attn_mask
    ends = lengths_of(valid_lens, shape, device, check_values).unsqueeze(-1)
    return joined(torch.arange(shape[-1], device=device) < ends, attn_mask)


def joined(within: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """One mask from a boolean and a mask of either kind: both must allow a pair."""
    if within is None or mask is None:
        return mask if within is None else within
    return within & mask if mask.dtype == torch.bool else torch.where(within, mask, -torch.inf)


def allowed(mask: Tensor) -> Tensor:
    """Boolean view of a mask: True where a pair may attend at all."""
    return mask if mask.dtype == torch.bool else mask > -torch.inf


def masked_scores(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The scores with the mask applied: −inf at pairs that may not attend, whatever their score was, also NaN."""
    if mask is None:
        return scores
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, -torch.inf)
    # A large negative number does not forbid a pair: the sum is clamped to the lowest finite number, not −inf.
    total = (scores + mask.to(scores.dtype)).clamp(min=torch.finfo(scores.dtype).min)
    return torch.where(allowed(mask) & (scores != -torch.inf), total, -torch.inf)


def from_key_padding_mask(key_padding_mask: Tensor) -> Tensor:
    """``attn_mask`` (B, 1, K) from the ``key_padding_mask`` (B, K) of ``nn.MultiheadAttention``, where True = ignore.

    Booleans are inverted; floats, which both conventions add to the scores, are unchanged. A boolean ``attn_mask``
    of ``nn.MultiheadAttention`` is inverted too: pass ``~attn_mask``.

    Parameters
    ----------
    key_padding_mask : tensor (B, K)
        Booleans, True = ignore, or floats to add.

    Returns
    -------
    tensor (B, 1, K)

    Raises
    ------
    TypeError, ValueError
        If it has another shape or holds integers.

    >>> from_key_padding_mask(torch.tensor([[False, False, True]]))  # the third key is padding
    tensor([[[ True,  True, False]]])
    """
    if key_padding_mask.ndim != 2:
        raise ValueError(f"key_padding_mask must have shape (batch, keys), got {tuple(key_padding_mask.shape)}")
    if key_padding_mask.dtype != torch.bool and not key_padding_mask.is_floating_point():
        raise TypeError(
            f"key_padding_mask must be boolean (True = ignore) or additive floats, got dtype {key_padding_mask.dtype}"
        )
    mask = ~key_padding_mask if key_padding_mask.dtype == torch.bool else key_padding_mask
    return mask.unsqueeze(-2)
