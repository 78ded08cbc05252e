"""Gaussian and Laplace scores in plain torch, for queries and keys at any distance and any w.

−½u² and −u with u = ‖w∘(q − k)‖. Far from all keys scores round to each other, and farther yet squares overflow.
Neither may change which key is nearest:

- A query far from every key has scores relative to that of a nearest key p. For a Gaussian this is
  ½(u_p² − u_k²) = (w∘(k − p))·(w∘(q − ½(k + p))), rounded relative to itself; for Laplace twice that over u_p + u_k.
- A score beyond the range of its dtype is replaced by its logarithm, suitably scaled: order and ties stay. Such scores
  have no gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from regard.engines.gpu.lowering import shifted
from regard.tensors.tensor_inputs import can_branch

Tensor = torch.Tensor

# Powers of two beyond which scores are replaced by their logarithms.
MAX_EXPONENT = {torch.float32: 100, torch.float64: 1000}
# Powers of two beyond which scores have no gradient.
MAX_EXPONENT_WITH_GRADIENT = {torch.float32: 120, torch.float64: 1020}


class ScaledNumber(NamedTuple):
    """Numbers 2^exponent·mantissa that may be beyond the range of the dtype."""

    mantissa: Tensor
    exponent: Tensor

    @property
    def log2(self) -> Tensor:
        return torch.log2(self.mantissa) + self.exponent


def decaying_scores(
    query: Tensor, key: Tensor, w: Tensor, *, laplace: bool = False, allowed: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Scores (…, Q, K) less a level of each query, and that level (…, Q, 1): 0 unless a query is far from every key.

    query (…, Q, d), key (…, K, d), w a scalar, (d,) or a matrix (d, r), all float32 or all float64; ``allowed``
    (…, Q, K) says which keys may be the nearest. *Cost*: O(Q·K·d) time and memory.
    """
    q, k = query.unsqueeze(-2), key.unsqueeze(-3)
    z = _times_w(q - k, w)
    u2 = z.square().sum(-1)
    largest = 1.0 / torch.finfo(u2.dtype).eps
    if u2.numel() == 0 or (can_branch(u2) and bool(u2.detach().amax() <= largest)):
        return _score(u2, laplace), u2.new_zeros(())
    with torch.no_grad():
        # Features are divided by 4 so that differences do not overflow; w is scaled to have its maximum near 1.
        power = torch.frexp(w.abs().amax() if w.numel() else w.new_zeros(())).exponent
    unit_w = shifted(w, -power)
    size = _size(_times_w(0.25 * q - 0.25 * k, unit_w))  # (…, Q, K); u is 2^(power + 2) times that
    with torch.no_grad():
        order = size.log2 if allowed is None else torch.where(allowed, size.log2, torch.inf)
        nearest = order.argmin(-1, keepdim=True)  # (…, Q, 1)
        # Not take_along_dim, which fixes the sizes of a program that torch.export makes.
        every = key.unsqueeze(-3).expand(*u2.shape, -1)  # (…, Q, K, d), a view
        p = every.gather(-2, nearest.unsqueeze(-1).expand(*nearest.shape, key.shape[-1]))  # (…, Q, 1, d)
        far = ~(u2.gather(-1, nearest) <= largest)
        unfit = far | ~(u2 <= 0.25 * torch.finfo(u2.dtype).max)
    rise = _rise(0.25 * q, 0.25 * k, 0.25 * p, far.unsqueeze(-1), unit_w)
    size_p = _size(_times_w(0.25 * q - 0.25 * p, unit_w))  # (…, Q, 1)
    if laplace:
        rise = _per_length(rise, size, size_p._replace(mantissa=torch.where(far, size_p.mantissa, 0.0)))
    mantissa, exponent = rise.mantissa, rise.exponent + (1 if laplace else 2) * (power + 2)
    with torch.no_grad():
        most, length = MAX_EXPONENT[u2.dtype], size.log2 + power + 2
        height = torch.log2(mantissa.abs()) + exponent
        over = height > most
        replaced = torch.sign(mantissa) * 2.0**most * (1.0 + height - most)
        fixed = (
            torch.maximum(length if laplace else 2.0 * length, length + power) > MAX_EXPONENT_WITH_GRADIENT[u2.dtype]
        )
    mantissa = torch.where(over, 0.0, torch.where(fixed, mantissa.detach(), mantissa))
    anywhere = torch.where(over, replaced, shifted(mantissa, exponent))
    near = torch.where(unfit.unsqueeze(-1), 0.0, z).square().sum(-1)
    level = _level(_times_w(q - p, w), laplace, shifted(size_p.mantissa.detach(), size_p.exponent + power + 2))
    return torch.where(unfit, anywhere, _score(near, laplace)), torch.where(far, level, 0.0)


def _times_w(difference: Tensor, w: Tensor) -> Tensor:
    return difference @ w if w.ndim == 2 else difference * w


def _score(u2: Tensor, laplace: bool) -> Tensor:
    """−½u² or −u; the latter has gradient 0 at distance 0."""
    if not laplace:
        return -0.5 * u2
    apart = u2 > 0.0
    return torch.where(apart, -torch.sqrt(torch.where(apart, u2, 1.0)), 0.0)


def _size(z: Tensor) -> ScaledNumber:
    """Lengths of (…, d)."""
    exponent = _exponent(z)
    squares = shifted(z, -exponent.unsqueeze(-1)).square().sum(-1)
    return ScaledNumber(-_score(squares, laplace=True), exponent)


def _exponent(z: Tensor) -> Tensor:
    """The power of two next to the largest number of (…, d)."""
    return torch.frexp(z.detach().abs().amax(-1) if z.shape[-1] else z.new_zeros(z.shape[:-1])).exponent


def _rise(q: Tensor, k: Tensor, p: Tensor, far: Tensor, w: Tensor) -> ScaledNumber:
    """½(u_p² − u_k²), or −½u_k² for a query that is not far."""
    ahead = _times_w(torch.where(far, k - p, k - q), w)
    across = _times_w(torch.where(far, q - 0.5 * (k + p), 0.5 * (q - k)), w)
    exponent = _exponent(across)
    return ScaledNumber((ahead * shifted(across, -exponent.unsqueeze(-1))).sum(-1), exponent)


def _per_length(rise: ScaledNumber, u_k: ScaledNumber, u_p: ScaledNumber) -> ScaledNumber:
    """u_p − u_k = 2·½(u_p² − u_k²)/(u_p + u_k)."""
    larger = torch.maximum(u_k.exponent, u_p.exponent)
    total = shifted(u_k.mantissa, u_k.exponent - larger) + shifted(u_p.mantissa, u_p.exponent - larger)
    return ScaledNumber(2.0 * rise.mantissa / torch.where(total > 0.0, total, 1.0), rise.exponent - larger)


def _level(z: Tensor, laplace: bool, u: Tensor) -> Tensor:
    """−½u² or −u (…, Q, 1) of z (…, Q, 1, d), the lowest number if that overflows."""
    lowest = torch.finfo(z.dtype).min
    fits = z.detach().square().sum(-1) <= -0.25 * lowest
    score = _score(torch.where(fits.unsqueeze(-1), z, 0.0).square().sum(-1), laplace)
    return torch.where(fits, score, torch.clamp(-u, min=lowest) if laplace else lowest)
