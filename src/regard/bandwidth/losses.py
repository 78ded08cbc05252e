"""Losses of leave-one-out predictions, and their gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize, nnls

from regard.bandwidth.tempering import Tempering
from regard.core.arrays import Array

# Penalty on unequal mixing weights, in units of the least squared error among the heads and their equal mix: with few
# rows the best head by leave-one-out is often so by chance, but not if the others are far worse.
EVEN_MIX_PENALTY = 0.1
# Number of rows beyond which the penalty decreases, in inverse proportion.
ROWS_OF_FULL_PENALTY = 1000.0
# Size of the errors at which the absolute error becomes quadratic, relative to the median absolute deviation of y.
ABSOLUTE_ERROR_CORNER = 0.1
# Rounding error of a mean, relative to the largest distance from it, from which on the mean is corrected.
MEAN_CORRECTION = 1e-9
# Pseudo-counts of each head of class attention in the mix, in rows.
MIX_PRIOR_ROWS = 1.0
# Options of the search for the mix of probabilities.
MIX_OPTIONS = {"maxiter": 200, "ftol": 1e-12, "gtol": 1e-8}
# Weight in the mix below which a head of class attention is dropped.
MIN_MIX_WEIGHT = 0.01


LOSSES = ("squared", "absolute")


class Loss(NamedTuple):
    """A mean over rows, and its gradient with respect to every answer."""

    value: float
    gradient: Array  # (Q, P)


@dataclass(frozen=True, eq=False)
class SquaredError:
    """Mean squared error of numbers, each output divided by its variance, averaged over outputs.

    Answers are in the units of ``columns``: centred, and of unit variance where y varies at all.
    """

    columns: Array  # (n, P)
    centre: Array  # (P,)
    scale: Array  # (P,)

    @classmethod
    def of(cls, y: Array, counts: Array) -> SquaredError:
        y = y[:, None] if y.ndim == 1 else y
        share = counts / counts.sum()
        # A mean has a rounding error: whether y varies is decided by comparing its entries, and far from 0 the mean of
        # the deviations is the error of the mean.
        varies = y.min(axis=0) < y.max(axis=0)
        centre = share @ y
        deviation = y - centre
        off = share @ deviation
        off = np.where(np.abs(off) > MEAN_CORRECTION * np.abs(deviation).max(axis=0, initial=0.0), off, 0.0)
        centre, deviation = centre + off, np.where(varies, deviation - off, 0.0)
        largest = np.abs(deviation).max(axis=0, initial=0.0)
        unit = np.where(largest > 0.0, largest, 1.0)
        scale = np.where(varies, unit * np.sqrt(share @ (deviation / unit) ** 2), 1.0)
        return cls(deviation / scale, centre, scale)

    def __call__(self, answer: Array, rows: Array, counts: Array) -> Loss:
        """Loss of answers (Q, P) for the rows (Q,) that count (Q,) times each."""
        share = (counts / counts.sum())[:, None]
        error = answer - self.columns[rows]
        outputs = len(self.scale)
        return Loss(float((share * error**2).sum()) / outputs, 2.0 / outputs * share * error)

    def take(self, rows: Array) -> SquaredError:
        """The same for some of the rows only."""
        return replace(self, columns=self.columns[rows])

    @property
    def unit(self) -> float:
        """Factor that gives the loss of one output in the units of y²; 1 for several outputs."""
        with np.errstate(over="ignore", under="ignore"):
            return float(self.scale[0] ** 2) if len(self.scale) == 1 else 1.0

    def in_units_of_y(self, answer: Array) -> Array:
        return np.asarray(self.centre + self.scale * answer)

    def from_units_of_y(self, answer: Array) -> Array:
        return np.asarray((answer - self.centre) / self.scale)

    def mix(self, answers: Array, counts: Array) -> Array:
        """Weights (H,) on the simplex for answers (H, n, P) with the least squared error of their mix.

        A small penalty favours equal weights: similar heads predict too similarly to tell which one is best. It is
        relative to what the best head leaves, so that heads that are far worse do not raise it.
        """
        count = len(answers)
        even = EVEN_MIX_PENALTY * min(1.0, ROWS_OF_FULL_PENALTY / float(counts.sum()))
        share = np.sqrt(counts / counts.sum())[:, None]
        errors = (share * (answers - self.columns)).reshape(count, -1).T
        size = max(float(np.linalg.norm(errors.mean(axis=1))), 1e-150)
        penalty = np.sqrt(even) * max(min(size, float(np.linalg.norm(errors, axis=0).min())), 1e-150)
        # Non-negative least squares; a heavy last row makes the weights add up to 1.
        system = np.vstack([errors, penalty * np.eye(count), 1e4 * size * np.ones((1, count))])
        right = np.concatenate([np.zeros(len(errors)), np.full(count, penalty / count), [1e4 * size]])
        weights = nnls(system, right)[0]
        return np.asarray(weights / weights.sum())


@dataclass(frozen=True, eq=False)
class AbsoluteError(SquaredError):
    """Mean absolute error, smooth at 0: √(e² + c²) − c, so that an outlier counts linearly and not squared.

    c is a tenth of the median absolute deviation of y. Answers are in the units of ``SquaredError``.
    """

    corner: Array | None = None  # (P,)

    @classmethod
    def of(cls, y: Array, counts: Array) -> AbsoluteError:
        squared = SquaredError.of(y, counts)
        return cls(squared.columns, squared.centre, squared.scale, corner_of(squared.columns))

    def __call__(self, answer: Array, rows: Array, counts: Array) -> Loss:
        share = (counts / counts.sum())[:, None]
        error, outputs = answer - self.columns[rows], len(self.scale)
        assert self.corner is not None
        size = np.hypot(error, self.corner)
        return Loss(float((share * (size - self.corner)).sum()) / outputs, share * error / (size * outputs))

    @property
    def unit(self) -> float:
        """Factor that gives the loss of one output in the units of y; 1 for several outputs."""
        return float(self.scale[0]) if len(self.scale) == 1 else 1.0


def corner_of(columns: Array) -> Array:
    """The c of ``AbsoluteError`` for columns (n, P), (P,)."""
    spread = np.median(np.abs(columns - np.median(columns, axis=0)), axis=0)
    return np.asarray(ABSOLUTE_ERROR_CORNER * np.where(spread > 0.0, spread, 1.0))


def as_probabilities(shares: Array) -> Array:
    """Shares of attention (n, C) as probabilities without rounding errors: in [0, 1], rows sum to 1; NaN stays.

    >>> as_probabilities(np.array([[1.0000000000000002, -1e-17]])).tolist()
    [[1.0, 0.0]]
    """
    positive = np.maximum(shares, 0.0)
    return np.asarray(positive / positive.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class LogLoss:
    """Mean −log of the predicted probability of the true class, smoothed by the class frequencies.

    p̃ = (n·p + frequency)/(n + 1): a class whose only member is left out is improbable, not impossible.
    """

    columns: Array  # (n, C) one-hot
    frequency: Array  # (C,)
    size: float  # n
    unit: float = 1.0
    tempering: Tempering | None = None  # of the answers

    @classmethod
    def of(cls, labels: Array, classes: int, counts: Array) -> LogLoss:
        onehot = np.zeros((len(labels), classes))
        onehot[np.arange(len(labels)), labels] = 1.0
        return cls(onehot, counts / counts.sum() @ onehot, float(counts.sum()))

    def __call__(self, answer: Array, rows: Array, counts: Array) -> Loss:
        share = counts / counts.sum()
        truth = self.columns[rows]
        if self.tempering is not None:
            found = replace(self, tempering=None)(self.tempering(answer), rows, counts)
            return Loss(found.value, self.tempering.backward(answer, found.gradient))
        smooth = ((self.size * answer + self.frequency) * truth).sum(axis=1) / (self.size + 1.0)
        gradient = -(share / smooth)[:, None] * truth * (self.size / (self.size + 1.0))
        return Loss(float(-(share @ np.log(smooth))), gradient)

    def take(self, rows: Array) -> LogLoss:
        """The same for some of the rows only."""
        return replace(self, columns=self.columns[rows], size=float(len(rows)))

    def in_units_of_y(self, answer: Array) -> Array:
        return as_probabilities(answer)

    def from_units_of_y(self, answer: Array) -> Array:
        return answer

    def mix(self, answers: Array, counts: Array) -> Array:
        """Weights (H,) on the simplex for probabilities (H, n, C) with the least log-loss of their mix.

        Each head has MIX_PRIOR_ROWS pseudo-counts, so that with few rows the weights are more equal. Heads of
        negligible weight are dropped.
        """
        right = ((self.size * answers + self.frequency) * self.columns).sum(axis=2) / (self.size + 1.0)  # (H, n)
        prior = MIX_PRIOR_ROWS / (float(counts.sum()) + MIX_PRIOR_ROWS * len(answers))
        share = counts / counts.sum() * (1.0 - prior * len(answers))

        def at(x: Array) -> tuple[float, Array]:
            weights = np.exp(x - x.max())
            weights /= weights.sum()
            mixed = weights @ right
            # The mean responsibility of each head for the true classes.
            found = weights * (right @ (share / mixed)) + prior
            return float(-(share @ np.log(mixed)) - prior * np.log(weights).sum()), weights - found

        x = minimize(at, np.zeros(len(answers)), jac=True, method="L-BFGS-B", options=MIX_OPTIONS).x
        weights = np.exp(x - x.max())
        weights = np.where(weights < MIN_MIX_WEIGHT * weights.sum(), 0.0, weights)
        return np.asarray(weights / weights.sum())
