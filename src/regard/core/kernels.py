"""Kernels: one table of facts about each statistical kernel K(u).

Adding one is a row in ``KERNELS``, a code, a class in ``scores`` and loops in ``programs/cpu/pair_scores.py``. Every
other place that writes a formula again (sorted sums, Triton, torch, ONNX, the page's JavaScript) is checked against
this table by ``tests/core/test_kernel_table.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from regard.core.arrays import Array


class Kernel(NamedTuple):
    """Facts about one statistical kernel K(u), as functions of u², so that no root is taken unless needed.

    Attributes
    ----------
    name : str
        Name in ``KERNELS``, as parameters accept it.
    code : int
        Number by which compiled programs and graphs select the kernel.
    compact : bool
        K is 0 beyond u = 1. Otherwise K > 0 everywhere, and log K is the score.
    staircase : bool
        dK/du is 0 almost everywhere, so there is no gradient to follow.
    value : callable
        K from u², correct on all of [0, ∞).
    rate : callable
        dK/d(u²) from u², correct on all of [0, ∞).
    roughness : float
        ∫K² of the kernel normalised in one dimension.
    variance : float
        ∫u²K of the kernel normalised in one dimension.

    >>> KERNELS["epanechnikov"].compact, float(KERNELS["epanechnikov"].value(np.array(0.25)))
    (True, 0.75)
    """

    name: str
    code: int  # the number by which programs and graphs select this kernel
    compact: bool  # K = 0 beyond u = 1; otherwise K > 0 everywhere and log K is the score
    staircase: bool  # dK/du = 0 almost everywhere: no gradient to follow
    value: Callable[[Array], Array]
    rate: Callable[[Array], Array]
    roughness: float
    variance: float

    @property
    def canonical(self) -> float:
        """Width factor that makes bandwidths of different kernels smooth alike: (R(K)/μ₂(K)²)^(1/5)."""
        return float((self.roughness / self.variance**2) ** 0.2)


def _inside(power: int) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """(1 − u²)^power on u ≤ 1, and its rate."""

    def value(u2: Array) -> Array:
        return np.maximum(1.0 - u2, 0.0) ** power

    def rate(u2: Array) -> Array:
        return np.where(u2 <= 1.0, -power * np.maximum(1.0 - u2, 0.0) ** (power - 1), 0.0)

    return value, rate


def _per_u(numerator: Array, u: Array, limit: float) -> Array:
    """numerator / u with its limit at u = 0."""
    return np.where(u > 0.0, numerator / np.where(u > 0.0, u, 1.0), limit)


def _gaussian(u2: Array) -> Array:
    return np.exp(-0.5 * u2)


def _laplace(u2: Array) -> Array:
    return np.exp(-np.sqrt(u2))


def _boxcar(u2: Array) -> Array:
    return np.where(u2 <= 1.0, 1.0, 0.0)


def _triangular(u2: Array) -> Array:
    return np.maximum(1.0 - np.sqrt(u2), 0.0)


def _tricube(u2: Array) -> Array:
    u2 = np.minimum(u2, 1.0)
    return np.asarray((1.0 - u2 * np.sqrt(u2)) ** 3)


def _cosine(u2: Array) -> Array:
    # cos(πu/2) = sin(π(1−u)/2) keeps its relative precision at the edge.
    return np.sin(0.5 * np.pi * np.maximum(1.0 - np.sqrt(u2), 0.0))


def _gaussian_rate(u2: Array) -> Array:
    return -0.5 * np.exp(-0.5 * u2)


def _laplace_rate(u2: Array) -> Array:
    # At u = 0 there is a kink: its derivative counts as 0.
    u = np.sqrt(u2)
    return _per_u(-0.5 * np.exp(-u), u, 0.0)


def _boxcar_rate(u2: Array) -> Array:
    return np.zeros_like(u2)


def _triangular_rate(u2: Array) -> Array:
    u = np.sqrt(u2)
    return np.where(u2 <= 1.0, _per_u(np.full_like(u, -0.5), u, 0.0), 0.0)


def _tricube_rate(u2: Array) -> Array:
    u2 = np.minimum(u2, 1.0)
    u = np.sqrt(u2)
    return np.asarray(-4.5 * u * (1.0 - u2 * u) ** 2)


def _cosine_rate(u2: Array) -> Array:
    u = np.sqrt(u2)
    inside = _per_u(-0.25 * np.pi * np.sin(0.5 * np.pi * np.minimum(u, 1.0)), u, -0.125 * np.pi**2)
    return np.where(u2 <= 1.0, inside, 0.0)


_PI = float(np.pi)
_epanechnikov, _epanechnikov_rate = _inside(1)
_biweight, _biweight_rate = _inside(2)
_triweight, _triweight_rate = _inside(3)

# Codes of the kernels, for engines that branch on them; compact kernels are BOXCAR … COSINE.
GAUSSIAN = 0
LAPLACE = 1
BOXCAR = 2
TRIANGULAR = 3
EPANECHNIKOV = 4
BIWEIGHT = 5
TRIWEIGHT = 6
TRICUBE = 7
COSINE = 8

# name, code, compact, staircase, value, rate, roughness, variance
_ROWS = (
    Kernel("gaussian", GAUSSIAN, False, False, _gaussian, _gaussian_rate, 0.5 / _PI**0.5, 1.0),
    Kernel("laplace", LAPLACE, False, False, _laplace, _laplace_rate, 1 / 4, 2.0),
    Kernel("boxcar", BOXCAR, True, True, _boxcar, _boxcar_rate, 1 / 2, 1 / 3),
    Kernel("triangular", TRIANGULAR, True, False, _triangular, _triangular_rate, 2 / 3, 1 / 6),
    Kernel("epanechnikov", EPANECHNIKOV, True, False, _epanechnikov, _epanechnikov_rate, 3 / 5, 1 / 5),
    Kernel("biweight", BIWEIGHT, True, False, _biweight, _biweight_rate, 5 / 7, 1 / 7),
    Kernel("triweight", TRIWEIGHT, True, False, _triweight, _triweight_rate, 350 / 429, 1 / 9),
    Kernel("tricube", TRICUBE, True, False, _tricube, _tricube_rate, 175 / 247, 35 / 243),
    Kernel("cosine", COSINE, True, False, _cosine, _cosine_rate, _PI**2 / 16, 1 - 8 / _PI**2),
)
KERNELS: dict[str, Kernel] = {row.name: row for row in _ROWS}
