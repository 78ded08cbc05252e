"""Weights, moments and derivative sums of left-out lines on a GPU: the same products of matrices, in float64.

Blocks of rows are large there, so that the weights of a block over all keys are kept between its products, and the host
waits for the device once for the moments and once for the sums of each block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from regard.core.arrays import Array
from regard.engines.gpu import placement

# Weights of a block of rows: a gigabyte.
BLOCK_CELLS = 1 << 27

Tensor = torch.Tensor


class DeviceKeys(NamedTuple):
    """All rows in a head's coordinates as tensors, and the matrices whose products are taken."""

    z: Tensor  # (n, r)
    left: Tensor  # (n, r + 2)
    right: Tensor  # (n, r + 2)
    basis: Tensor  # (n, B)
    squares: Tensor | None  # (n, S)
    log_weight: Tensor | None  # (n,)
    staying: Tensor | None  # (n,)
    groups: Tensor | None  # (n,)


def on_device(array: Array | None) -> Any:
    """The array as a tensor where the programs run; integers keep their dtype."""
    if array is None:
        return None
    dtype = torch.int64 if array.dtype.kind in "iu" else torch.float64
    return torch.as_tensor(np.ascontiguousarray(array), dtype=dtype, device=placement.device())


def block_rows(keys: int) -> int:
    """Rows of a block over so many keys."""
    return max(1, BLOCK_CELLS // keys)


class DeviceBlock:
    """Weights of a block of rows over all keys."""

    def __init__(self, keys: DeviceKeys, at: Array, beyond: Array, least_score: float, least_mass: float) -> None:
        self.keys = keys
        self.at = on_device(at)
        weight = (keys.left[self.at] @ keys.right.T).clamp_(min=least_score).exp_()
        self._leave_out(weight, self.at, lambda mass: mass)
        moments = weight @ keys.basis
        poor = torch.as_tensor(beyond, device=weight.device) | ~(moments[:, 0] >= least_mass)
        if bool(poor.any()):
            weight[poor] = self._exactly(self.at[poor])
            moments[poor] = weight[poor] @ keys.basis
        self.weight = weight
        self.moments = moments.cpu().numpy()

    def _exactly(self, at: Tensor) -> Tensor:
        """Weights relative to the largest of each row, from differences."""
        keys = self.keys
        distance = torch.cdist(keys.z[at], keys.z, compute_mode="donot_use_mm_for_euclid_dist")
        score = -0.5 * distance**2
        if keys.log_weight is not None:
            score += keys.log_weight
        self._leave_out(score, at, torch.log)
        return torch.exp(score - score.amax(dim=1, keepdim=True))

    def _leave_out(self, weight: Tensor, at: Tensor, form: Callable[[Tensor], Tensor]) -> None:
        """Replace weights of keys that are left out of rows ``at`` by ``form`` of what stays of them."""
        keys = self.keys
        if keys.groups is not None:
            weight.masked_fill_(keys.groups[at][:, None] == keys.groups, float(form(torch.zeros(()))))
            return
        stays = torch.zeros_like(keys.z[at, 0]) if keys.staying is None else keys.staying[at]
        weight[torch.arange(len(at), device=weight.device), at] = form(stays)

    def products(self, coefficients: Array) -> Array:
        """Σ weight·h·[1, z, z²] for h = coefficients (q, B)·φ."""
        assert self.keys.squares is not None
        h = (on_device(coefficients) @ self.keys.basis.T).mul_(self.weight)
        return np.asarray((h @ self.keys.squares).cpu().numpy())
