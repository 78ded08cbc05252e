"""What a sweep over many w returns, and which w it can take."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Differences and w whose squares, and products of squares, are safe.
SMALLEST, LARGEST = 1e-70, 1e70


class Swept(NamedTuple):
    """Means at one w, relative to each query's own value. The slope of an error is squares·error/mass − gains."""

    mass: Array  # (Q,)  Σ exp(score); not to be trusted below ``least_mass``
    error: Array  # (Q,)  Σ exp(score)·(value − own)
    squares: Array | None  # (Q, d)  Σ exp(score)·δ², δ = key − query; None where not asked for
    gains: Array | None  # (Q, d)  Σ exp(score)·(value − own)·δ²; relative to the mean where squares are zeros


def safe_to_square(w: Array) -> bool:
    """Whether no square of this w overflows or vanishes."""
    w = np.abs(w[w != 0.0])
    return bool(((w > SMALLEST) & (w < LARGEST)).all())
