"""Calibrated class probabilities: a temperature and a mixture with the class frequencies, from left-out rows.

    p̃_c ∝ ((1 − ε)·p_c + ε·frequency_c)^(1/T)

Attention that is too sharp is overconfident (T > 1, larger ε), attention that is too flat underconfident. T and ε
minimise the log-loss of left-out rows, and stay at T = 1, ε = 1/(n + 1) unless that is an improvement.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from regard.core.arrays import Array
from regard.model.quantiles import conformal_bound

# Logarithms of T and of the odds of ε.
BOUNDS = ((-2.0, 2.0), (-20.0, 0.0))


class Calibration(NamedTuple):
    """A map from the attention that each class holds to its probability."""

    temperature: float
    frequency_weight: float  # ε
    frequency: Array  # (C,)

    def __call__(self, probability: Array) -> Array:
        """Probabilities (Q, C) → (Q, C), each row summing to 1; a row of NaN stays."""
        mixed = (
            np.log((1.0 - self.frequency_weight) * probability + self.frequency_weight * self.frequency)
            / self.temperature
        )
        raised = np.exp(mixed - mixed.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def learn_calibration(probability: Array, label: Array, counts: Array) -> Calibration:
    """From left-out probabilities (n, C) of rows with labels (n,) and weights ``counts`` (n,). *Cost*: O(n·C)."""
    weight = counts / counts.sum()
    frequency = class_frequencies(label, counts, probability.shape[1])

    def calibration(x: Array) -> Calibration:
        return Calibration(float(np.exp(x[0])), float(1.0 / (1.0 + np.exp(-x[1]))), frequency)

    def loss(x: Array) -> float:
        right = calibration(x)(probability)[np.arange(len(label)), label]
        return float(-(weight @ np.log(np.maximum(right, np.finfo(float).tiny))))

    start = np.array([0.0, -np.log(counts.sum())])
    starts = [start, np.array([0.0, -2.0])]
    found = [
        minimize(loss, x, method="Nelder-Mead", bounds=BOUNDS, options={"xatol": 1e-4, "fatol": 1e-9}) for x in starts
    ]
    best = min(found, key=lambda one: float(one.fun))
    return calibration(best.x if best.fun < loss(start) else start)


def class_frequencies(label: Array, counts: Array, classes: int) -> Array:
    """Frequency (C,) of every class among rows with labels (n,) and weights ``counts`` (n,); never exactly 0.

    ``partial_fit`` may declare a class before its first row.
    """
    frequency = np.bincount(label, counts / counts.sum(), classes) + 1e-12
    return np.asarray(frequency / frequency.sum())


def set_bound(probability: Array, label: Array, counts: Array, coverage: float) -> float:
    """The least probability of a class in a conformal set; of left-out rows, ``coverage`` have their class in the set.

    The rank is that of ``conformal_bound``; −inf, which includes every class, if there are too few rows for it.
    """
    right = probability[np.arange(len(label)), label]
    return float(-conformal_bound(-right[:, None], counts, coverage)[0])
