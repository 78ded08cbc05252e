"""Weights of rows over all keys on a GPU, the moments under them and the sums of derivatives, in float64.

Many rows are taken at once, so that their weights over all keys are kept between the products, and the host waits for
the device once: for the answers and derivatives of these rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from regard.bandwidth.host_lines import MIN_MASS_DOUBLE, MIN_SCORE
from regard.core.arrays import Array
from regard.engines.gpu import placement

# Weights of the rows taken at once: a gigabyte.
CELLS_AT_ONCE = 1 << 27

Tensor = torch.Tensor


class DeviceKeys(NamedTuple):
    """All rows in a head's coordinates as tensors, and the matrices whose products are taken."""

    z: Tensor  # (n, r)
    left: Tensor  # (n, r + 2)
    right: Tensor  # (r + 2, n)
    basis: Tensor  # (B, n)
    squares: Tensor | None  # (S, n)
    log_weight: Tensor | None  # (n,)
    staying: Tensor | None  # (n,)
    groups: Tensor | None  # (n,)


def on_device(array: Array | None) -> Any:
    """The array as a tensor where the programs run; integers keep their dtype."""
    if array is None:
        return None
    dtype = torch.int64 if array.dtype.kind in "iu" else torch.float64
    return torch.as_tensor(np.ascontiguousarray(array), dtype=dtype, device=placement.device())


def rows_at_once(keys: int) -> int:
    """Rows taken at once over so many keys."""
    return max(1, CELLS_AT_ONCE // keys)


class DeviceWeights:
    """Weights of some rows over all keys; ``moments`` (q, B) are Σ weight·φ."""

    def __init__(self, keys: DeviceKeys, at: Array, beyond: Array) -> None:
        self.keys = keys
        self.at = on_device(at)
        self.z = keys.z[self.at]
        weight = (keys.left[self.at] @ keys.right).clamp_(min=MIN_SCORE).exp_()
        self._leave_out(weight, self.at, lambda mass: mass)
        moments = weight @ keys.basis.T
        poor = torch.as_tensor(beyond, device=weight.device) | ~(moments[:, 0] >= MIN_MASS_DOUBLE)
        if bool(poor.any()):
            weight[poor] = self._exactly(self.at[poor])
            moments[poor] = weight[poor] @ keys.basis.T
        self.weight = weight
        self.moments = moments

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

    def products(self, coefficients: Tensor) -> Tensor:
        """Σ weight·h·[1, z, z²] for h = coefficients (q, B)·φ."""
        assert self.keys.squares is not None
        return (coefficients @ self.keys.basis).mul_(self.weight) @ self.keys.squares.T
