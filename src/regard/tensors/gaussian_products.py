"""Gaussian scores by a product of matrices, where its rounding is no worse than that of differences.

    −½‖w∘(q − k)‖² = (w∘q)·(w∘k) − ½‖w∘k‖² − ½‖w∘q‖²

The last term is the same for all keys of a query: it is left out, which changes no weight. What remains is at most
M = ‖w∘q‖·‖w∘k‖ + ½‖w∘k‖² and is rounded by at most about M·ε; differences round a score s by |s|·ε. Both sides are
moved by one vector, the mean of the keys, if M is too large without.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from regard.engines.gpu.lowering import centre_of
from regard.tensors.decaying_scores import decaying_scores
from regard.tensors.tensor_inputs import can_branch

Tensor = torch.Tensor

# M up to which products are used: they round scores by less than 4e-6 then, and by less than 1e-12 in float64.
MAX_PRODUCT = {torch.float32: 64.0, torch.float64: 2048.0}
# Many features of unit variance are so far apart that differences round by d·ε themselves: so many times d may M be in
# float32, up to a largest.
MAX_PRODUCT_PER_FEATURE = 4.0
LARGEST_PRODUCT = 256.0


class GaussianSides(NamedTuple):
    """Both sides such that query·key + column is the score, less what all keys of a query share."""

    query: Tensor  # (…, Q, d)
    key: Tensor  # (…, K, d)
    squares: Tensor  # (…, K)  ‖key‖²

    def scores(self) -> Tensor:
        """query·key + column (…, Q, K)."""
        if self.query.ndim == 3 and self.query.shape[:-2] == self.key.shape[:-2]:
            # A factor saves an operation, but its backward pass multiplies the gradients of all pairs.
            added, factor = (self.column, 1.0) if self.squares.requires_grad else (self.squares, -0.5)
            return torch.baddbmm(added.unsqueeze(-2), self.query, self.key.mT, beta=factor)
        return self.query @ self.key.mT + self.column.unsqueeze(-2)

    @property
    def column(self) -> Tensor:
        """−½‖key‖² (…, K)."""
        return -0.5 * self.squares

    @property
    def level(self) -> Tensor:
        """What the scores lack, −½‖query‖² (…, Q)."""
        return -0.5 * self.query.square().sum(-1)


def gaussian_scores(query: Tensor, key: Tensor, w: Tensor, allowed: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Scores (…, Q, K) less a level of each query, and that level (…, Q, 1); arguments as of ``decaying_scores``.

    *Cost*: O(Q·K·d) time; O(Q·K) memory by products, O(Q·K·d) by differences.
    """
    sides = gaussian_sides(query, key, w)
    if sides is None:
        return decaying_scores(query, key, w, allowed=allowed)
    return sides.scores(), sides.level.unsqueeze(-1)


def relative_gaussian_scores(query: Tensor, key: Tensor, w: Tensor) -> Tensor:
    """Scores (…, Q, K) less what all keys of a query share, which no weight depends on."""
    sides = gaussian_sides(query, key, w)
    return decaying_scores(query, key, w)[0] if sides is None else sides.scores()


def gaussian_sides(query: Tensor, key: Tensor, w: Tensor) -> GaussianSides | None:
    """The sides of a product, or None if it could round more than differences, or code may not branch on numbers.

    query (…, Q, d), key (…, K, d) and w (), (d,) or (d, r) in one dtype, float32 or float64. *Cost*: O((Q + K)·d).
    """
    if query.dtype not in MAX_PRODUCT or not key.numel() or not query.numel() or not can_branch(query, key, w):
        return None
    found, most = _sides(query, key, w), MAX_PRODUCT[query.dtype]
    if most < LARGEST_PRODUCT:
        most = max(most, min(MAX_PRODUCT_PER_FEATURE * found.key.shape[-1], LARGEST_PRODUCT))
    if _is_at_most(most, found):
        return found
    centre = centre_of(key)
    found = _sides(query - centre, key - centre, w)
    return found if _is_at_most(most, found) else None


def _is_at_most(most: float, sides: GaussianSides) -> bool:
    """Whether the bound M on the absolute values of query·key and column is; False if a number is not finite."""
    query, square = sides.query.detach(), sides.squares.detach().amax().item()
    # The norm of all queries together costs less, and of few queries it is often small enough.
    whole = torch.linalg.vector_norm(query).item()
    if whole * square**0.5 + 0.5 * square <= most:
        return True
    return bool(torch.linalg.vector_norm(query, dim=-1).amax().item() * square**0.5 + 0.5 * square <= most)


def _sides(query: Tensor, key: Tensor, w: Tensor) -> GaussianSides:
    query, key = (query @ w, key @ w) if w.ndim == 2 else (query * w, key * w)
    return GaussianSides(query, key, key.square().sum(-1))
