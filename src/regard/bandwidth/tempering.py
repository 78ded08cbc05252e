"""Tempered class probabilities: how confident a mixture of heads may be, learned from rows that no search has used.

    p̃_c = (1 − ε)·p_c^(1/T)/Σ p^(1/T) + ε·frequency_c

Averages over neighbours and over heads are flatter than the truth (T < 1), a few neighbours sharper (T > 1), and no
number of them excludes a class: ε is at least the weight of half a row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from regard.core.arrays import Array

# Penalty on (log T)² in the log-likelihood: a normal prior of log T with a standard deviation of 0.35.
TEMPERATURE_PENALTY = 4.0
# Pseudo-counts of the prior of ε, on each side of its odds.
PRIOR_ROWS = 0.5
# Bounds of log T.
MAX_LOG_TEMPERATURE = 1.5


class Tempering(NamedTuple):
    """A map from the attention that each class holds to its probability."""

    temperature: float
    frequency_weight: float  # ε
    frequency: Array  # (C,)

    def __call__(self, probability: Array) -> Array:
        """Probabilities (Q, C) → (Q, C) in their dtype, each row summing to 1; a row of NaN stays."""
        out = (1.0 - self.frequency_weight) * self._sharpened(probability) + self.frequency_weight * self.frequency
        return np.asarray(out / out.sum(axis=1, keepdims=True), probability.dtype)

    def _sharpened(self, probability: Array) -> Array:
        """p^(1/T)/Σ p^(1/T), (Q, C)."""
        positive = np.maximum(probability.astype(np.float64), 0.0)
        # The largest is not rounded to 0.
        powers = (positive / positive.max(axis=1, keepdims=True)) ** (1.0 / self.temperature)
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def derivatives(self, probability: Array, derivative: Array) -> Array:
        """Derivatives (Q, C, d) of tempered probabilities from those of the probabilities (Q, C)."""
        sharp = self._sharpened(probability)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(probability[:, :, None] > 0.0, derivative / probability[:, :, None], 0.0)
        common = np.einsum("qc,qcd->qd", sharp, relative)
        return np.asarray(
            (1.0 - self.frequency_weight) / self.temperature * sharp[:, :, None] * (relative - common[:, None])
        )

    def backward(self, probability: Array, gradient: Array) -> Array:
        """Gradient (Q, C) by the probabilities from that by the tempered ones."""
        sharp = self._sharpened(probability)
        safe = np.where(probability > 0.0, probability, 1.0)
        rate = np.where(probability > 0.0, sharp / safe, 0.0) * (1.0 - self.frequency_weight) / self.temperature
        return np.asarray(rate * (gradient - (gradient * sharp).sum(axis=1, keepdims=True)))

    def weight_derivatives(self, weights: Array, change: Array, value: Array) -> Array:
        """Derivatives (Q, K, d) of ``weights`` of rows of classes ``value`` (K,), from those of the weights (Q, K)."""
        columns = np.eye(len(self.frequency))[value]
        total, by_class = weights @ columns, np.einsum("qkd,kc->qcd", change, columns, optimize=True)
        held = total > 0.0
        safe = np.where(held, total, 1.0)
        factor = np.where(held, (1.0 - self.frequency_weight) * self._sharpened(total) / safe, 0.0)
        relative = np.where(held[:, :, None], by_class / safe[:, :, None], 0.0)
        slope = self.derivatives(total, by_class) / safe[:, :, None] - factor[:, :, None] * relative
        slope = np.where(held[:, :, None], slope, 0.0)
        return np.asarray(change * factor[:, value, None] + weights[:, :, None] * slope[:, value])

    def weights(self, weights: Array, value: Array, sample_weight: Array | None) -> Array:
        """Weights (Q, K) of rows of classes ``value`` (K,) that add up to the tempered probabilities."""
        total = weights.astype(np.float64) @ np.eye(len(self.frequency))[value]
        tempered = self(total) - self.frequency_weight * self.frequency
        factor = np.where(total > 0.0, tempered / np.where(total > 0.0, total, 1.0), 0.0)
        mass = np.ones(len(value)) if sample_weight is None else sample_weight.astype(np.float64)
        # Every class has its frequency, however many of its rows were there when it was learned.
        each = self.frequency / np.maximum(np.bincount(value, mass, len(self.frequency)), np.finfo(np.float64).tiny)
        return np.asarray(weights * factor[:, value] + self.frequency_weight * mass * each[value], weights.dtype)


def learn_tempering(probability: Array, columns: Array, counts: Array) -> Tempering:
    """From left-out probabilities (n, C), one-hot classes (n, C) and weights ``counts`` (n,). *Cost*: O(n·C)."""
    total = float(counts.sum())
    frequency = counts @ columns / total
    least = PRIOR_ROWS / (total + 2.0 * PRIOR_ROWS)
    low = np.log(least / (1.0 - least))

    def tempering(x: Array) -> Tempering:
        return Tempering(float(np.exp(x[0])), float(1.0 / (1.0 + np.exp(-x[1]))), frequency)

    def penalised_loss(x: Array) -> float:
        found = tempering(x)
        right = (found(probability) * columns).sum(axis=1)
        loss = -(counts @ np.log(np.maximum(right, np.finfo(np.float64).tiny)))
        odds = PRIOR_ROWS * (np.log(found.frequency_weight) + np.log(1.0 - found.frequency_weight))
        return float(loss + TEMPERATURE_PENALTY * x[0] ** 2 - odds) / total

    bounds = ((-MAX_LOG_TEMPERATURE, MAX_LOG_TEMPERATURE), (low, 0.0))
    options = {"xatol": 1e-4, "fatol": 1e-9}
    starts = [np.array([0.0, low]), np.array([-0.3, max(-3.0, low)])]
    found = [minimize(penalised_loss, x, method="Nelder-Mead", bounds=bounds, options=options) for x in starts]
    return tempering(min(found, key=lambda one: float(one.fun)).x)
