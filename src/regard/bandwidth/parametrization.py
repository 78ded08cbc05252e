"""Parametrizations of w: one number, one per feature, or a full matrix, as a flat vector of parameters.

Scales are learned as logarithms, relative to the standard deviation of each feature, so that units do not matter and no
bandwidth is negative. A feature that does not vary has w = 0 and no parameter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from regard.core.arrays import Array

METRICS = ("scalar", "feature", "full")
# Smallest w·scale: with a bandwidth of a thousand standard deviations a feature has no influence.
MIN_SCALED_W = 1e-3
# Bound of the entries of N in W = diag(w)(I + N), the part of other features in each direction.
MAX_ROTATION = 10.0


@dataclass(frozen=True, eq=False)
class Parametrization:
    """Maps a vector of parameters to w, and a gradient by w to one by the parameters."""

    metric: str
    scale: Array  # (d,)  standard deviation of each feature; 0 if it does not vary
    active: Array  # (d,) boolean: features that have parameters

    @classmethod
    def of(cls, metric: str, scale: Array) -> Parametrization:
        if metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(map(repr, METRICS))}, got {metric!r}")
        return cls(metric, scale, scale > 0.0)

    def without(self, features: Array) -> Parametrization:
        """The same with some features ignored."""
        return replace(self, active=self.active & ~features)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return {"scalar": min(self.count, 1), "feature": self.count, "full": self.count**2}[self.metric]

    @property
    def count(self) -> int:
        """Number of features that have parameters."""
        return int(self.active.sum())

    def w(self, parameters: Array) -> Array:
        """w in the units of X: (), (d,) or (d, r)."""
        if self.metric == "scalar":
            return np.asarray(np.exp(parameters[0]) / self._common if self.size else 0.0)
        inverse = np.where(self.active, 1.0 / np.where(self.active, self.scale, 1.0), 0.0)
        if self.metric == "feature":
            scale = np.zeros(len(inverse))
            scale[self.active] = np.exp(parameters)
            return np.asarray(scale * inverse)
        full = np.zeros((len(inverse), self.count))
        full[self.active] = np.exp(parameters[: self.count])[:, None] * self._rotation(parameters)
        return np.asarray(full * inverse[:, None])

    def _rotation(self, parameters: Array) -> Array:
        """I + N of a full matrix W = diag(w)(I + N), where N has no diagonal."""
        rotation = np.eye(self.count)
        rotation[~np.eye(self.count, dtype=bool)] = parameters[self.count :]
        return rotation

    def gradient(self, parameters: Array, grad: Array) -> Array:
        """Gradient by the parameters, from the gradient by w."""
        if self.metric == "scalar":
            return np.atleast_1d(grad * self.w(parameters))[: self.size]
        if self.metric == "feature":
            return np.asarray((grad * self.w(parameters))[self.active])
        scales = (grad * self.w(parameters)).sum(axis=1)[self.active]
        scale = np.where(self.scale > 0.0, self.scale, 1.0)
        rotations = (grad / scale[:, None])[self.active] * np.exp(parameters[: self.count])[:, None]
        return np.concatenate([scales, rotations[~np.eye(self.count, dtype=bool)]])

    def uniform(self, level: float) -> Array:
        """Parameters with the same w·scale = ``level`` in every feature."""
        scales = np.full(min(self.size, self.count), np.log(level))
        return np.concatenate([scales, np.zeros(self.size - len(scales))])

    def parameters(self, w: Array) -> Array:
        """Parameters of a w that is not 0 in any active feature: one number, one per feature, or such a matrix."""
        if self.metric == "scalar":
            return np.log(np.atleast_1d(w * self._common))[: self.size]
        if w.ndim == 2:
            rows = (w * self.scale[:, None])[self.active]
            scale = np.diagonal(rows)
            return np.concatenate([np.log(scale), (rows / scale[:, None])[~np.eye(len(scale), dtype=bool)]])
        return np.asarray(np.log((w * self.scale)[self.active]))

    def as_full(self, parameters: Array) -> tuple[Parametrization, Array]:
        """Parameters of one w per feature as those of a full matrix, to start from."""
        full = replace(self, metric="full")
        return full, np.concatenate([parameters, np.zeros(full.size - len(parameters))])

    def bounds(self, max_scaled_w: float) -> list[tuple[float, float]]:
        """Lower and upper bound of every parameter."""
        scales = [(float(np.log(MIN_SCALED_W)), float(np.log(max_scaled_w)))] * min(self.size, self.count)
        return scales + [(-MAX_ROTATION, MAX_ROTATION)] * (self.size - len(scales))

    @property
    def _common(self) -> float:
        """One scale for all features: the root mean square of theirs."""
        largest = float(self.scale.max())
        return largest * float(np.sqrt(np.mean((self.scale[self.active] / largest) ** 2)))


def feature_scales(X: Array, counts: Array) -> Array:
    """Standard deviation of every feature (d,), 0 if it does not vary, without overflow or underflow."""
    low, span = X.min(axis=0), np.ptp(X, axis=0)
    varies = span > 0.0
    unit = (X - low) / np.where(varies, span, 1.0)
    share = counts / counts.sum()
    deviation = np.sqrt(share @ (unit - share @ unit) ** 2)
    return np.where(varies, np.maximum(deviation, 1e-9) * span, 0.0)
