"""Both sides of a score as rows for matrix products, a float32 number as two half-precision ones.

For a Gaussian score ‖q − k‖² is taken apart as ‖q‖² − 2q·k + ‖k‖² about the middle of the keys. Its rounding grows with
R², the largest scaled ‖q‖² or ‖k‖²: ``loss`` tells, before anybody relies on it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from regard.engines.gpu.lay import LOG2E, Tensor, filled, wide

LOWEST = -65504.0


# Features from which on high and low parts are products of their own.
SPLIT_WIDTH = 16
EXTRA = 16


class Rows(NamedTuple):
    """Both sides for matrix products, as ``programs.triton_product`` says."""

    query: Tensor  # (B, n, length) half
    key: Tensor  # (B, m, length) half
    query_features: Tensor  # (B, n, 2d) half: high parts, low parts; unless split, where it is the rows themselves
    key_features: Tensor  # (B, m, 2d)
    factor: Tensor  # (1,)
    gaussian: bool
    exact: bool
    width: int  # d

    @property
    def split(self) -> bool:
        """Whether high and low parts are products of their own."""
        return self.width >= SPLIT_WIDTH or not self.exact

    @property
    def piece(self) -> int:
        """Length of a product."""
        return piece_of(self.width, self.exact, self.gaussian)


class Scaled(NamedTuple):
    """Features in the units of the score, −½‖q − k‖² in powers of two, as sums of two halves."""

    query: Tensor  # (B, Q, d) float32
    key: Tensor
    centre: Tensor  # (d,)
    unit: Tensor  # () or (d,): q ↦ unit·(q − centre)


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    high = x.to(torch.float16)
    return high, (x - high.to(torch.float32)).to(torch.float16)


def scaled(query: Tensor, key: Tensor, w: Tensor) -> Scaled:
    """Seen from the middle of the keys, and rounded to what two halves hold."""
    finite = torch.isfinite(key)
    centre = torch.where(finite, key, 0.0).sum((0, 1)) / finite.sum((0, 1)).clamp(min=1)
    unit = w * LOG2E**0.5

    def rounded(x: Tensor) -> Tensor:
        high, low = halves((x - centre) * unit)
        return high.to(torch.float32) + low.to(torch.float32)

    return Scaled(rounded(query), rounded(key), centre, unit)


def loss(query: Tensor, key: Tensor, w: Tensor) -> Tensor:
    """R² of the programs' scores, (): compare with ``planner.LARGEST_LOSS``. NaN where a number is not finite."""
    found = scaled(query, key, w)
    return torch.maximum((found.query**2).sum(2).amax(), (found.key**2).sum(2).amax())


def gaussian_rows(found: Scaled, key_shift: Tensor, query_shift: Tensor | None = None) -> Rows:
    """Rows whose products are scores plus shifts (B, K) and (B, Q); beyond the rows nobody attends."""
    sides, features = [], []
    d = found.query.shape[2]
    for x, shift, is_key in ((found.query, query_shift, False), (found.key, key_shift, True)):
        norm = -0.5 * (x.to(torch.float64) ** 2).sum(2)
        norm = (norm if shift is None else norm + shift).clamp(min=LOWEST)
        own = []
        for _ in range(3):
            own.append(norm.to(torch.float16))
            norm = norm - own[-1].to(torch.float64)
        parts, ones = torch.stack(own, 2), torch.ones((*own[0].shape, 3), dtype=torch.float16, device=x.device)
        extra = torch.cat([parts, ones] if is_key else [ones, parts], 2)
        high, low = (part.expand(len(extra), -1, -1) for part in halves(x))
        laid, own_features = _laid(high, low, extra, is_key)
        # A query that is only filling must not attend where keys look at queries, either.
        laid[:, x.shape[1] :, _first_own(d, is_key)] = LOWEST
        sides.append(laid)
        features.append(own_features)
    (query, key), (query_features, key_features) = sides, features
    return Rows(query, key, query_features, key_features, found.query.new_ones(1), True, True, d)


def _first_own(d: int, is_key: bool) -> int:
    """The column that holds the first part of a side's own −½‖x‖²."""
    return (2 * piece_of(d, True, True) if d >= SPLIT_WIDTH else 0) + (0 if is_key else 3)


def dot_rows(query: Tensor, key: Tensor, w: Tensor) -> tuple[Rows, tuple[Tensor, Tensor]]:
    """Rows of a dot product, and the powers of two that both sides were multiplied by."""
    d, one = query.shape[2], w.new_ones(())
    if query.dtype != torch.float32:
        query, key = (_filled(part, piece_of(d, False, False)) for part in (query, key))
        return Rows(query, key, query, key, (w * LOG2E).reshape(1), False, False, d), (one, one)
    sides, features, powers = [], [], []
    for x, is_key in ((query, False), (key, True)):
        largest = torch.where(torch.isfinite(x), x, 0.0).abs().amax().clamp(min=1e-30)
        # Largest near 2^8: the low parts are then clear of what half precision cuts off.
        power = torch.exp2(8.0 - torch.frexp(largest).exponent.to(torch.float32))
        powers.append(power)
        high, low = halves(x * power)
        laid, own_features = _laid(high, low, high[:, :, :0], is_key)
        sides.append(laid)
        features.append(own_features)
    factor = (w.to(torch.float32) * LOG2E / (powers[0] * powers[1])).reshape(1)
    (query, key), (query_features, key_features) = sides, features
    return Rows(query, key, query_features, key_features, factor, False, True, d), (powers[0], powers[1])


def piece_of(d: int, exact: bool, gaussian: bool) -> int:
    """Length of a product: a power of two."""
    length = d if d >= SPLIT_WIDTH or not exact else 3 * d + (6 if gaussian else 0)
    return wide(length)


def _laid(high: Tensor, low: Tensor, extra: Tensor, is_key: bool) -> tuple[Tensor, Tensor]:
    """Rows of one side, split into pieces, or one after the other with the largest products last; and its features."""
    d, gaussian = high.shape[2], extra.shape[2] > 0
    piece = piece_of(d, True, gaussian)
    if d < SPLIT_WIDTH:
        rows = _filled(torch.cat([extra, high, low, high] if is_key else [extra, low, high, high], 2), piece)
        return rows, _filled(torch.cat([high, low], 2), 2 * d)
    out = high.new_zeros(high.shape[0], filled(high.shape[1]), 2 * piece + (EXTRA if gaussian else 0))
    for first, part in ((0, high), (piece, low), (2 * piece, extra)):
        out[:, : high.shape[1], first : first + part.shape[2]] = part
    return out, out


def _filled(x: Tensor, length: int) -> Tensor:
    """(B, N, c) → (B, n, length) with zeros."""
    out = x.new_zeros(x.shape[0], filled(x.shape[1]), length)
    out[:, : x.shape[1], : x.shape[2]] = x
    return out
