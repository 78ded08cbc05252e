"""Gaussian sums over scattered points by a Fourier series on a box, with a bound on the error.

In units of the bandwidth, ζ = w∘(key − query), and with i^|α|·∏He_αₐ(ωₐ) for the α-th power of ζ,

    Σ_k c_k ζ^α exp(−½‖ζ‖²) ≈ Σ_ω i^|α|·He_α(ω)·(√(2π)/P)^r·exp(−½‖ω‖²)·(Σ_k c_k e^{−iω·z_k})·e^{iω·z_q}

over the frequencies ω ∈ (2π/P)·ℤ^r. Three errors are bounded relative to Σ|c|: the kernel's periodic images (every
pair in the box is at least ``radius`` away from them), the frequencies beyond ±``band``, and the tolerance of the two
nonuniform transforms. Rounding of coordinates shifts points by a few u·P, a relative change of each sum.
*Cost*: O(Q + K + N log N) for N ≈ ∏ band·Pₐ/π frequencies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import erfc, factorial, log, log2, pi, prod, sqrt
from typing import Any

import numpy as np

from regard.core.arrays import Array
from regard.core.bounds import bounds_of
from regard.core.forks import forked
from regard.core.problem import Problem
from regard.engines.costs import MAX_MODES

Power = tuple[int, ...]

# finufft's grid is finer than that of the frequencies by this factor.
UPSAMPLING = 2.0
# Tolerances of the transforms below this are lost in rounding.
MIN_EPS = 1e-14
UNIT_ROUNDOFF = 2.0**-53
# Grid points per feature that finufft spreads a point over.
SPREAD_WIDTH = 15
# Operations from which on a second thread pays.
MIN_WORK_TO_THREAD = 1 << 23
# The error for a query of average mass relative to its tolerance: queries with this fraction of it are still certified.
ERROR_MARGIN = 0.02


@dataclass(frozen=True, eq=False)
class FourierGrid:
    """A box of queries, the keys within the kernel's radius of it, and the frequencies of the series."""

    features: Array  # (r,) indices of the features with w > 0
    w: Array  # (r,)
    centre: Array  # (r,)
    period: Array  # (r,) in bandwidths
    counts: tuple[int, ...]  # frequencies per feature, odd
    order: int  # highest power of ζ
    eps: float  # tolerance of the transform of the strengths
    truncation_error: float  # bound on the error of a sum relative to Σ|c|, without the evaluation
    shift_error: float  # bound on the error of a sum relative to the mass, from rounding of coordinates
    queries: Array  # (Q,) boolean: in the box
    keys: Array  # (K,) boolean: within the radius of the box

    def angles(self, points: Array, rows: Any) -> list[Array]:
        """Points (n, d) as angles in the period of the box, feature by feature."""
        return [
            (points[rows, f] - c) * (2.0 * pi * w / p)
            for f, w, c, p in zip(self.features, self.w, self.centre, self.period, strict=True)
        ]

    def spectrum(self, angles: list[Array], strengths: Iterable[Array], threads: int) -> list[Array]:
        """Σ c·e^{−iω·z} for each complex vector of strengths (n,)."""
        plan = self._plan(1, angles, self.eps, threads)
        return [plan.execute(np.ascontiguousarray(c, np.complex128)) for c in strengths]

    def _omega(self, a: int) -> Array:
        """Frequencies along feature a."""
        half = self.counts[a] // 2
        return np.arange(-half, half + 1) * float(2.0 * pi / self.period[a])

    def magnitude(self, spectra: Iterable[Array]) -> float:
        """An upper bound on the sum of the moduli of all terms of a sum, for any power of ζ."""
        envelope = np.ones(())
        for a in range(len(self.counts)):
            omega = self._omega(a)
            largest = np.max([np.abs(hermite(n, omega)) for n in range(self.order + 1)], axis=0)
            envelope = np.multiply.outer(envelope, largest * np.exp(-0.5 * omega**2) * sqrt(2.0 * pi) / self.period[a])
        return max(float((np.abs(spectrum) * envelope).sum()) for spectrum in spectra)

    def tolerance(self, total: float, magnitude: float) -> float:
        """Tolerance of the evaluation relative to ``magnitude``: the same absolute error as that of the spectrum."""
        return float(np.clip(self.eps * total / magnitude, self.eps, 1e-3)) if magnitude > 0.0 else self.eps

    def error(self, total: float, magnitude: float) -> float:
        """Bound on the error of every sum of strengths with Σ|c| = ``total``, except for ``shift_error``."""
        return (
            self.truncation_error * total + transform_error(self.tolerance(total, magnitude), self.counts) * magnitude
        )

    def sums(self, angles: list[Array], spectra: Iterable[Array], eps: float, threads: int) -> Iterator[Array]:
        """The series of spectra, multiplied by ``kernel``, evaluated at the points: one complex vector for each."""
        plan = self._plan(2, angles, eps, threads)
        for spectrum in spectra:
            yield plan.execute(spectrum)

    def _plan(self, kind: int, angles: list[Array], eps: float, threads: int) -> Any:
        import finufft  # type: ignore[import-untyped, import-not-found, unused-ignore]

        sign, r = (-1 if kind == 1 else 1), len(self.counts)
        if forked() or len(angles[0]) * SPREAD_WIDTH**r + prod(self.counts) * UPSAMPLING**r < MIN_WORK_TO_THREAD:
            threads = 1
        plan = finufft.Plan(kind, self.counts, 1, eps, sign, nthreads=threads, upsampfac=UPSAMPLING)
        plan.setpts(*angles)
        return plan

    def kernel(self, spectrum: Array, power: Power, towards: int = 1) -> Array:
        """The spectrum times the transform of ζ^power·K; ``towards`` is 1 from keys to queries, −1 back."""
        out = spectrum
        for a, n in enumerate(power):
            omega = self._omega(a)
            factor = (
                (1j * towards) ** n * hermite(n, omega) * np.exp(-0.5 * omega**2) * (sqrt(2.0 * pi) / self.period[a])
            )
            out = out * factor.reshape([-1 if b == a else 1 for b in range(len(power))])
        return out


def transform_error(eps: float, counts: tuple[int, ...]) -> float:
    """Bound on the error of a nonuniform transform relative to its input's sum of moduli, including rounding."""
    return 2.0 * eps + 2.0 * UNIT_ROUNDOFF * log2(prod(counts) * UPSAMPLING ** len(counts))


def hermite(n: int, x: Array) -> Array:
    """He_n, the polynomials orthogonal under exp(−½x²).

    >>> hermite(2, np.array([0.0, 3.0])).tolist()
    [-1.0, 8.0]
    """
    before, now = np.zeros_like(x), np.ones_like(x)
    for k in range(n):
        before, now = now, x * now - k * before
    return now


def powers(width: int, most: int) -> list[Power]:
    """Exponents of the monomials up to a total degree, lowest degree first.

    >>> powers(2, 1)
    [(0, 0), (0, 1), (1, 0)]
    """
    return sorted((p for p in product(range(most + 1), repeat=width) if sum(p) <= most), key=lambda p: (sum(p), p))


def unit_power(r: int, a: int) -> Power:
    """The exponents of ζ_a alone."""
    return tuple(int(b == a) for b in range(r))


def add_powers(p: Power, q: Power, times: int = 1) -> Power:
    """The exponents of a product."""
    return tuple(a + times * b for a, b in zip(p, q, strict=True))


def fourier_grid(problem: Problem, order: int) -> FourierGrid | None:
    """Grid for the powers of ζ up to ``order``; None if no grid of acceptable size exists.

    The box holds the queries within the kernel's radius of some key; if that is too large, of the bulk of the keys.
    """
    w = np.broadcast_to(problem.score.w, problem.key.shape[1])  # type: ignore[attr-defined]
    features = np.flatnonzero(w)
    w = w[features]
    query, key = (part if len(features) == len(part.T) else part[:, features] for part in (problem.query, problem.key))
    low, high = bounds_of(key)
    # Bounds that overflow give no box.
    with np.errstate(over="ignore"):
        grid = _grid_over_box(problem, order, features, w, query, key, low, high)
        if grid is None and len(key) > 1:
            low, high = np.quantile(key, [0.001, 0.999], axis=0)
            grid = _grid_over_box(problem, order, features, w, query, key, low, high)
    return grid


def _grid_over_box(
    problem: Problem, order: int, features: Array, w: Array, query: Array, key: Array, low: Array, high: Array
) -> FourierGrid | None:
    r = len(w)
    span = (high - low) * w
    if not (span < 1e12).all():
        return None
    fraction = float(np.prod(np.minimum(1.0, sqrt(2.0 * pi) / np.maximum(span, 1.0))))
    target = max(ERROR_MARGIN * problem.tol * fraction, 1e-16)
    radius = _radius(target / (8.0 * r), order)
    # Queries out of range of all keys, and keys out of range of all queries, would only widen the box.
    first, last = bounds_of(query)
    low, high = np.maximum(low - radius / w, first), np.minimum(high + radius / w, last)
    if (low > high).any():
        return None
    centre = low + 0.5 * (high - low)
    period = (high - low) * w + 2.0 * radius * (1.0 + 1e-9)
    halves = np.ceil(radius * period / (2.0 * pi))
    if float(np.prod(2.0 * halves + 1.0)) * UPSAMPLING**r > MAX_MODES:
        return None
    counts = tuple(int(2 * half + 1) for half in halves)
    eps = min(max(target / 4.0, MIN_EPS), 1e-3)
    band = float((2.0 * pi * halves / period).min())
    # |He_α(ω)| is at most √α! on average over the frequencies.
    weight = 1.1 * max(prod(sqrt(factorial(n)) for n in power) for power in powers(r, order))
    copies = 2.5 * max(radius**order, 1.0) * float(np.exp(-0.5 * radius**2))
    band_tail = 4.0 * max(band**order, 1.0) * (erfc(band / sqrt(2.0)) + float(np.exp(-0.5 * band**2)))
    truncation_error = weight * (transform_error(eps, counts) + r * (copies + band_tail))
    return FourierGrid(
        features=features,
        w=w,
        centre=centre,
        period=period,
        counts=counts,
        order=order,
        eps=eps,
        truncation_error=truncation_error,
        shift_error=UNIT_ROUNDOFF
        * (16.0 + 4.0 * float(period.sum()) * _shift_sensitivity(truncation_error / problem.tol, order)),
        queries=_inside(query, low, high),
        keys=_inside(key, low - radius / w, high + radius / w),
    )


def rows_where(mask: Array) -> Any:
    """The rows where a mask is True; a slice if that is all of them, so that indexing makes no copy.

    >>> rows_where(np.array([True, True]))
    slice(None, None, None)
    """
    return slice(None) if mask.all() else np.flatnonzero(mask)


def _inside(points: Array, low: Array, high: Array) -> Array:
    inside = np.ones(len(points), bool)
    for column, bottom, top in zip(points.T, low, high, strict=True):
        inside &= (column >= bottom) & (column <= top)
    return inside


def _shift_sensitivity(fraction: float, order: int) -> float:
    """Bound on the change of Σ c ζ^order K, relative to the mass, per shift of the points by one bandwidth.

    A query with more than twice ``fraction`` of Σ|c| has most of its mass from keys nearer than x, where exp(−½x²) is
    that fraction; the others add at most as much again.
    """
    x = sqrt(max(2.0 * log(1.0 / min(2.0 * fraction, 1.0)), order + 1.0))
    return 2.0 * x ** (order + 1) * (1.0 + order / x**2)


def _radius(fraction: float, order: int) -> float:
    """Where x^order·exp(−½x²) has decayed to a fraction."""
    x = sqrt(2.0 * log(1.0 / fraction))
    for _ in range(3):
        x = sqrt(2.0 * log(1.0 / fraction) + 2.0 * order * log(max(x, 1.0)))
    return x
