"""Both sides of a score as rows for matrix products, a float32 number as two half-precision ones.

For a Gaussian score ‖q − k‖² is expanded as ‖q‖² − 2q·k + ‖k‖² about the mean of the keys. Its rounding grows with the
largest scaled ‖q‖² or ‖k‖²: ``largest_norm`` computes it before the products are relied on.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from regard.engines.gpu.layout import LOG2E, Tensor, padded, product_width

# The lowest number of half precision.
LOWEST_HALF = -65504.0
# Features from which on high and low parts are products of their own.
MIN_SPLIT_FEATURES = 16
# Columns that norms and ones take then.
EXTRA_COLUMNS = 16


class ProductRows(NamedTuple):
    """Both sides for matrix products, laid out as ``programs.triton.product_forward`` describes."""

    query: Tensor  # (B, n, length) half
    key: Tensor  # (B, m, length) half
    query_features: Tensor  # (B, n, 2d) half: high parts, low parts; if split, the rows themselves
    key_features: Tensor  # (B, m, 2d)
    factor: Tensor  # (1,)
    gaussian: bool
    exact: bool
    width: int  # d

    @property
    def split(self) -> bool:
        """Whether high and low parts are products of their own."""
        return self.width >= MIN_SPLIT_FEATURES or not self.exact

    @property
    def piece(self) -> int:
        """Length of a product."""
        return piece_length(self.width, self.exact, self.gaussian)


class ScaledFeatures(NamedTuple):
    """Features scaled so that −½‖q − k‖² is the score in powers of two, as sums of two halves."""

    query: Tensor  # (B, Q, d) float32
    key: Tensor
    centre: Tensor  # (d,)


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Two half-precision tensors whose sum is x to 22 bits."""
    high = x.to(torch.float16)
    return high, (x - high.to(torch.float32)).to(torch.float16)


def scaled_features(query: Tensor, key: Tensor, w: Tensor) -> ScaledFeatures:
    """Centred by the mean of the keys, scaled, and rounded to what two halves hold."""
    finite = torch.isfinite(key)
    centre = torch.where(finite, key, 0.0).sum((0, 1)) / finite.sum((0, 1)).clamp(min=1)

    def rounded(x: Tensor) -> Tensor:
        high, low = halves((x - centre) * gaussian_unit(w))
        return high.to(torch.float32) + low.to(torch.float32)

    return ScaledFeatures(rounded(query), rounded(key), centre)


def gaussian_unit(w: Tensor) -> Tensor:
    """What centred features are multiplied by, () or (d,)."""
    return torch.mul(w, LOG2E**0.5)


def largest_norm(query: Tensor, key: Tensor, w: Tensor) -> Tensor:
    """The largest squared norm of scaled features, (); NaN if a number is not finite."""
    found = scaled_features(query, key, w)
    return torch.maximum((found.query**2).sum(2).amax(), (found.key**2).sum(2).amax())


def gaussian_rows(features: ScaledFeatures, key_shift: Tensor, query_shift: Tensor | None = None) -> ProductRows:
    """Rows whose products are scores plus shifts (B, K) and (B, Q); padding is never attended to."""
    sides = []
    d = features.query.shape[2]
    for x, shift, is_key in ((features.query, query_shift, False), (features.key, key_shift, True)):
        norm = -0.5 * (x.to(torch.float64) ** 2).sum(2)
        norm = (norm if shift is None else norm + shift).clamp(min=LOWEST_HALF)
        own = []
        for _ in range(3):
            own.append(norm.to(torch.float16))
            norm = norm - own[-1].to(torch.float64)
        parts, ones = torch.stack(own, 2), torch.ones((*own[0].shape, 3), dtype=torch.float16, device=x.device)
        extra = torch.cat([parts, ones] if is_key else [ones, parts], 2)
        high, low = (part.expand(len(extra), -1, -1) for part in halves(x))
        rows, row_features = _rows(high, low, extra, is_key)
        # Padding among the queries must not attend if keys are fixed and queries are streamed, either.
        first_own = (2 * piece_length(d, True, True) if d >= MIN_SPLIT_FEATURES else 0) + (0 if is_key else 3)
        rows[:, x.shape[1] :, first_own] = LOWEST_HALF
        sides.append((rows, row_features))
    (query, query_features), (key, key_features) = sides
    return ProductRows(query, key, query_features, key_features, features.query.new_ones(1), True, True, d)


def dot_rows(query: Tensor, key: Tensor, w: Tensor) -> tuple[ProductRows, tuple[Tensor, Tensor]]:
    """Rows of a dot product, and the powers of two that both sides were multiplied by."""
    d, one = query.shape[2], w.new_ones(())
    if query.dtype != torch.float32:
        query, key = (_padded_rows(part, piece_length(d, False, False)) for part in (query, key))
        return ProductRows(query, key, query, key, (w * LOG2E).reshape(1), False, False, d), (one, one)
    sides, powers = [], []
    for x, is_key in ((query, False), (key, True)):
        largest = torch.where(torch.isfinite(x), x, 0.0)
        # Largest near 2^8: the low parts are then well above the smallest numbers of half precision.
        powers.append(power_of_two(largest, 8.0))
        high, low = halves(x * powers[-1])
        sides.append(_rows(high, low, high[:, :, :0], is_key))
    factor = (w.to(torch.float32) * LOG2E / (powers[0] * powers[1])).reshape(1)
    (query, query_features), (key, key_features) = sides
    return ProductRows(query, key, query_features, key_features, factor, False, True, d), (powers[0], powers[1])


def power_of_two(x: Tensor, exponent: float) -> Tensor:
    """The power of two that brings the largest number near 2^exponent."""
    largest = x.to(torch.float32).abs().amax().clamp(min=1e-30)
    return torch.exp2(exponent - torch.frexp(largest).exponent.to(torch.float32))


def piece_length(d: int, exact: bool, gaussian: bool) -> int:
    """Length of a product: a power of two."""
    return product_width(d if d >= MIN_SPLIT_FEATURES or not exact else 3 * d + (6 if gaussian else 0))


def _rows(high: Tensor, low: Tensor, extra: Tensor, is_key: bool) -> tuple[Tensor, Tensor]:
    """Rows of one side, split into pieces, or one after the other with the largest products last; and its features."""
    d, gaussian = high.shape[2], extra.shape[2] > 0
    piece = piece_length(d, True, gaussian)
    if d < MIN_SPLIT_FEATURES:
        rows = _padded_rows(torch.cat([extra, high, low, high] if is_key else [extra, low, high, high], 2), piece)
        return rows, _padded_rows(torch.cat([high, low], 2), 2 * d)
    out = high.new_zeros(high.shape[0], padded(high.shape[1]), 2 * piece + (EXTRA_COLUMNS if gaussian else 0))
    for first, part in ((0, high), (piece, low), (2 * piece, extra)):
        out[:, : high.shape[1], first : first + part.shape[2]] = part
    return out, out


def _padded_rows(x: Tensor, length: int) -> Tensor:
    """(B, N, c) → (B, n, length) with zeros."""
    out = x.new_zeros(x.shape[0], padded(x.shape[1]), length)
    out[:, : x.shape[1], : x.shape[2]] = x
    return out
