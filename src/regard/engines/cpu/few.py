"""Gaussian means of a few rows at many w, in plain numpy: squares of all differences are kept.

What ``sweep`` is to a few thousand rows, this is to a few dozen: there a pass costs less than asking for one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.core.problem import Problem
from regard.core.scores import Gaussian
from regard.engines.cpu.swept import LARGEST, Swept, safe_to_square

Array = NDArray[Any]

# What is lost where exp underflows is below the rounding of a mass above this.
LEAST_MASS = 1e-280


@dataclass(frozen=True, eq=False)
class Few:
    """Call it with w, one number or (d,); make it by ``few``."""

    squares: Array  # (Q, K, d)  δ²
    gain: Array  # (Q, K)  value − own
    bias: Array  # (Q, K)  log weights; −inf where a key may not be seen
    staying: Array  # (Q,)  mass at the query's own place, of its own value
    least_mass: float

    def holds(self, w: Array) -> bool:
        """Whether no square of this w overflows or vanishes."""
        return safe_to_square(w)

    def __call__(self, w: Array, *, slopes: bool) -> Swept:
        """Means at w, with their slopes if asked for. *Cost*: O(Q·K·d)."""
        by = np.broadcast_to(-0.5 * np.asarray(w) ** 2, self.squares.shape[2])
        score = self.squares @ by + self.bias
        # Relative to its peak the nearest key weighs exactly 1; copies that stay are at score 0.
        peak = score.max(axis=1, initial=-np.inf)
        peak = np.where((self.staying > 0.0) | np.isneginf(peak), 0.0, peak)
        e, unit = np.exp(score - peak[:, None]), np.exp(peak)
        mass, error = e.sum(axis=1), (e * self.gain).sum(axis=1)
        if not slopes:
            return Swept(unit * mass, unit * error, None, None)
        total = mass + self.staying
        mean = error / np.where(total > 0.0, total, 1.0)
        gains = ((e * (self.gain - mean[:, None]))[:, None] @ self.squares)[:, 0]
        return Swept(unit * mass, unit * error, np.zeros(gains.shape), unit[:, None] * gains)


def few(problem: Problem, own: Array, staying: Array | None) -> Few | None:
    """Lay out a problem whose queries have values ``own`` (Q,), and copies of that mass; None where this is no way."""
    plain = isinstance(problem.score, Gaussian) and problem.score.w.ndim < 2 and problem.mask is None
    if not plain or problem.exclude is None or problem.degree or problem.columns.shape[1] != 1:
        return None
    if problem.query.dtype != np.float64 or not np.ptp(problem.key, axis=0).max(initial=0.0) < LARGEST:
        return None
    bias = np.zeros((len(problem.query), len(problem.key)))
    if problem.log_weight is not None:
        bias += problem.log_weight
    bias[problem.exclude[0][:, None] == problem.exclude[1][None, :]] = -np.inf
    delta = problem.key[None, :, :] - problem.query[:, None, :]
    gain = problem.columns[:, 0] - own[:, None]
    stays = np.zeros(len(bias)) if staying is None else staying
    return Few(delta**2, gain, bias, stays, len(problem.key) * LEAST_MASS)
