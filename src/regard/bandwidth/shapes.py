"""Shapes of w that can be learned: one number, one per feature, or a full matrix, as a flat vector of parameters.

Scales are learned as logarithms, relative to each feature's spread, so that units do not matter and no bandwidth is
ever negative. A feature that does not vary has w = 0 and no parameter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from regard.core.arrays import Array

METRICS = ("scalar", "feature", "full")
# From here on (bandwidths of a thousand spreads) a feature is as good as ignored.
WIDEST = 1e-3
# Entries of N in W = diag(w)(I + N): how much of another feature may be mixed into one.
MOST_TURN = 10.0


@dataclass(frozen=True, eq=False)
class Shape:
    """How a vector of parameters becomes w, and a gradient by w a gradient by parameters."""

    metric: str
    spread: Array  # (d,)  typical size of a feature; 0 where it does not vary
    active: Array  # (d,) boolean: features that have parameters

    @classmethod
    def of(cls, metric: str, spread: Array) -> Shape:
        if metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(map(repr, METRICS))}, got {metric!r}")
        return cls(metric, spread, spread > 0.0)

    def without(self, features: Array) -> Shape:
        """The same with some features ignored for good."""
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
        inverse = np.where(self.active, 1.0 / np.where(self.active, self.spread, 1.0), 0.0)
        if self.metric == "feature":
            scale = np.zeros(len(inverse))
            scale[self.active] = np.exp(parameters)
            return np.asarray(scale * inverse)
        full = np.zeros((len(inverse), self.count))
        full[self.active] = np.exp(parameters[: self.count])[:, None] * self._turn(parameters)
        return np.asarray(full * inverse[:, None])

    def _turn(self, parameters: Array) -> Array:
        """I + N of a full matrix W = diag(w)(I + N), where N has no diagonal."""
        turn = np.eye(self.count)
        turn[~np.eye(self.count, dtype=bool)] = parameters[self.count :]
        return turn

    def pull(self, parameters: Array, grad: Array) -> Array:
        """Gradient by the parameters, from the gradient by w."""
        if self.metric == "scalar":
            return np.atleast_1d(grad * self.w(parameters))[: self.size]
        if self.metric == "feature":
            return np.asarray((grad * self.w(parameters))[self.active])
        scales = (grad * self.w(parameters)).sum(axis=1)[self.active]
        spread = np.where(self.spread > 0.0, self.spread, 1.0)
        turns = (grad / spread[:, None])[self.active] * np.exp(parameters[: self.count])[:, None]
        return np.concatenate([scales, turns[~np.eye(self.count, dtype=bool)]])

    def start(self, level: float) -> Array:
        """Parameters with the same w·spread = ``level`` in every feature."""
        scales = np.full(min(self.size, self.count), np.log(level))
        return np.concatenate([scales, np.zeros(self.size - len(scales))])

    def parameters(self, w: Array) -> Array:
        """Parameters of a w that is not 0 in any active feature: one number, one per feature, or such a matrix."""
        if self.metric == "scalar":
            return np.log(np.atleast_1d(w * self._common))[: self.size]
        if w.ndim == 2:
            rows = (w * self.spread[:, None])[self.active]
            scale = np.diagonal(rows)
            return np.concatenate([np.log(scale), (rows / scale[:, None])[~np.eye(len(scale), dtype=bool)]])
        return np.asarray(np.log((w * self.spread)[self.active]))

    def turned(self, parameters: Array) -> tuple[Shape, Array]:
        """One w per feature as the start of a full matrix."""
        full = replace(self, metric="full")
        return full, np.concatenate([parameters, np.zeros(full.size - len(parameters))])

    def bounds(self, sharpest: float) -> list[tuple[float, float]]:
        """Lowest and highest parameters."""
        scales = [(float(np.log(WIDEST)), float(np.log(sharpest)))] * min(self.size, self.count)
        return scales + [(-MOST_TURN, MOST_TURN)] * (self.size - len(scales))

    @property
    def _common(self) -> float:
        """One spread for all features, which share a unit where one w serves them all."""
        largest = float(self.spread.max())
        return largest * float(np.sqrt(np.mean((self.spread[self.active] / largest) ** 2)))


def spreads(X: Array, counts: Array) -> Array:
    """Standard deviation of every feature (d,), 0 where it does not vary; safe for huge and tiny numbers."""
    low, span = X.min(axis=0), np.ptp(X, axis=0)
    varies = span > 0.0
    unit = (X - low) / np.where(varies, span, 1.0)
    share = counts / counts.sum()
    deviation = np.sqrt(share @ (unit - share @ unit) ** 2)
    return np.where(varies, np.maximum(deviation, 1e-9) * span, 0.0)
