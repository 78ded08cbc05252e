"""Sums of a Gaussian over scattered points, as sums of plane waves on a box, with a bound on what that costs.

In units of the bandwidth, ζ = w∘(key − query), and with i^|α|·∏He_αₐ(ωₐ) for the α-th power of ζ,

    Σ_k c_k ζ^α exp(−½‖ζ‖²) ≈ Σ_ω i^|α|·He_α(ω)·(√(2π)/P)^r·exp(−½‖ω‖²)·(Σ_k c_k e^{−iω·z_k})·e^{iω·z_q}

over the waves ω ∈ (2π/P)·ℤ^r. Three things are lost, each below a share of Σ|c|: the kernel's copies a period P away
(every pair in the box is at least ``reach`` from them), the waves beyond ±``band``, and the tolerance of the two
nonuniform transforms. Rounding of coordinates moves points by a few u·P, which changes a sum by that much of itself.
*Cost*: O(Q + K + N log N) for N ≈ ∏ band·Pₐ/π waves.
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

# The transforms work on a grid this much finer than the waves; finer than the finest tolerance is rounding.
UPSAMPLING = 2.0
FINEST_EPS = 1e-14
UNIT = 2.0**-53
# Grid points per feature that a point is spread over; steps from which on a second thread works more than it waits.
SPREAD, SHORT = 15, 1 << 23
# How far below the tolerance the noise is for a query of average mass: so much lighter ones are still vouched for.
MARGIN = 0.02


@dataclass(frozen=True, eq=False)
class Waves:
    """A box of queries, the keys that reach it, and the plane waves that carry the kernel between them."""

    features: Array  # (r,) numbers of the features with w > 0
    w: Array  # (r,)
    centre: Array  # (r,)
    period: Array  # (r,) in bandwidths
    counts: tuple[int, ...]  # waves per feature, odd
    order: int  # highest power of ζ
    eps: float  # tolerance of the transform of the charges
    noise: float  # error of a sum per unit of Σ|c| before it is evaluated, at most
    slip: float  # error of a sum per unit of the mass, at most
    queries: Array  # (Q,) boolean: in the box
    keys: Array  # (K,) boolean: in reach of the box

    def angles(self, points: Array, rows: Any) -> list[Array]:
        """Points (n, d) as positions on the circles of the box, feature by feature."""
        return [
            (points[rows, f] - c) * (2.0 * pi * w / p)
            for f, w, c, p in zip(self.features, self.w, self.centre, self.period, strict=True)
        ]

    def spectrum(self, angles: list[Array], charges: Iterable[Array], threads: int) -> list[Array]:
        """Σ c·e^{−iω·z} for each complex vector of charges (n,)."""
        plan = self._plan(1, angles, self.eps, threads)
        return [plan.execute(np.ascontiguousarray(c, np.complex128)) for c in charges]

    def _omega(self, a: int) -> Array:
        """Frequencies of the waves along feature a."""
        half = self.counts[a] // 2
        return np.arange(-half, half + 1) * float(2.0 * pi / self.period[a])

    def loudness(self, spectra: Iterable[Array]) -> float:
        """The sum of the moduli of all waves that make up a sum, at most, whatever the power of ζ."""
        envelope = np.ones(())
        for a in range(len(self.counts)):
            omega = self._omega(a)
            largest = np.max([np.abs(hermite(n, omega)) for n in range(self.order + 1)], axis=0)
            envelope = np.multiply.outer(envelope, largest * np.exp(-0.5 * omega**2) * sqrt(2.0 * pi) / self.period[a])
        return max(float((np.abs(spectrum) * envelope).sum()) for spectrum in spectra)

    def tolerance(self, total: float, loudness: float) -> float:
        """What evaluating may cost relative to ``loudness``: as much as the charges' transform, relative to Σ|c|."""
        return float(np.clip(self.eps * total / loudness, self.eps, 1e-3)) if loudness > 0.0 else self.eps

    def error(self, total: float, loudness: float) -> float:
        """The error of every sum of charges with Σ|c| = ``total``, at most, but for ``slip``."""
        return self.noise * total + transform_error(self.tolerance(total, loudness), self.counts) * loudness

    def sums(self, angles: list[Array], spectra: Iterable[Array], eps: float, threads: int) -> Iterator[Array]:
        """What spectra, multiplied by ``kernel``, come to at the points: one complex vector for each."""
        plan = self._plan(2, angles, eps, threads)
        for spectrum in spectra:
            yield plan.execute(spectrum)

    def _plan(self, kind: int, angles: list[Array], eps: float, threads: int) -> Any:
        import finufft  # type: ignore[import-untyped, import-not-found, unused-ignore]

        sign, r = (-1 if kind == 1 else 1), len(self.counts)
        if forked() or len(angles[0]) * SPREAD**r + prod(self.counts) * UPSAMPLING**r < SHORT:
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
    """The error of a nonuniform transform per unit of its input's sum of moduli, rounding included, at most."""
    return 2.0 * eps + 2.0 * UNIT * log2(prod(counts) * UPSAMPLING ** len(counts))


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


def plus(p: Power, q: Power, times: int = 1) -> Power:
    """The exponents of a product."""
    return tuple(a + times * b for a, b in zip(p, q, strict=True))


def waves_for(problem: Problem, order: int) -> Waves | None:
    """Waves for the powers of ζ up to ``order``; None where no grid of bearable size serves.

    The box holds the queries that are in reach of some key; where it is too large, only those amid most of the keys.
    """
    w = np.broadcast_to(problem.score.w, problem.key.shape[1])  # type: ignore[attr-defined]
    features = np.flatnonzero(w)
    w = w[features]
    query, key = (part if len(features) == len(part.T) else part[:, features] for part in (problem.query, problem.key))
    low, high = bounds_of(key)
    # Bounds that overflow take part in no box that is made.
    with np.errstate(over="ignore"):
        made = _fitted(problem, order, features, w, query, key, low, high)
        if made is None and len(key) > 1:
            low, high = np.quantile(key, [0.001, 0.999], axis=0)
            made = _fitted(problem, order, features, w, query, key, low, high)
    return made


def _fitted(
    problem: Problem, order: int, features: Array, w: Array, query: Array, key: Array, low: Array, high: Array
) -> Waves | None:
    r = len(w)
    span = (high - low) * w
    if not (span < 1e12).all():
        return None
    share = float(np.prod(np.minimum(1.0, sqrt(2.0 * pi) / np.maximum(span, 1.0))))
    target = max(MARGIN * problem.tol * share, 1e-16)
    reach = _depth(target / (8.0 * r), order)
    # Queries beyond reach of the keys, and keys beyond reach of the queries, would only widen the box.
    first, last = bounds_of(query)
    low, high = np.maximum(low - reach / w, first), np.minimum(high + reach / w, last)
    if (low > high).any():
        return None
    centre = low + 0.5 * (high - low)
    period = (high - low) * w + 2.0 * reach * (1.0 + 1e-9)
    halves = np.ceil(reach * period / (2.0 * pi))
    if float(np.prod(2.0 * halves + 1.0)) * UPSAMPLING**r > MAX_MODES:
        return None
    counts = tuple(int(2 * half + 1) for half in halves)
    eps = min(max(target / 4.0, FINEST_EPS), 1e-3)
    band = float((2.0 * pi * halves / period).min())
    # |He_α(ω)| weighs at most √α! on average over the waves.
    weight = 1.1 * max(prod(sqrt(factorial(n)) for n in power) for power in powers(r, order))
    copies = 2.5 * max(reach**order, 1.0) * float(np.exp(-0.5 * reach**2))
    beyond = 4.0 * max(band**order, 1.0) * (erfc(band / sqrt(2.0)) + float(np.exp(-0.5 * band**2)))
    noise = weight * (transform_error(eps, counts) + r * (copies + beyond))
    return Waves(
        features=features,
        w=w,
        centre=centre,
        period=period,
        counts=counts,
        order=order,
        eps=eps,
        noise=noise,
        slip=UNIT * (16.0 + 4.0 * float(period.sum()) * _lever(noise / problem.tol, order)),
        queries=_inside(query, low, high),
        keys=_inside(key, low - reach / w, high + reach / w),
    )


def chosen(mask: Array) -> Any:
    """The rows where a mask is True, as a slice where that is all of them: no copies are made then.

    >>> chosen(np.array([True, True]))
    slice(None, None, None)
    """
    return slice(None) if mask.all() else np.flatnonzero(mask)


def _inside(points: Array, low: Array, high: Array) -> Array:
    inside = np.ones(len(points), bool)
    for column, bottom, top in zip(points.T, low, high, strict=True):
        inside &= (column >= bottom) & (column <= top)
    return inside


def _lever(share: float, order: int) -> float:
    """How much Σ c ζ^order K changes, at most, per mass and per shift of the points by one bandwidth.

    A query with more than twice a share of Σ|c| owes most of its mass to keys nearer than x, where exp(−½x²) is that
    share; the others add no more than as much again.
    """
    x = sqrt(max(2.0 * log(1.0 / min(2.0 * share, 1.0)), order + 1.0))
    return 2.0 * x ** (order + 1) * (1.0 + order / x**2)


def _depth(share: float, order: int) -> float:
    """Where x^order·exp(−½x²) has come down to a share."""
    x = sqrt(2.0 * log(1.0 / share))
    for _ in range(3):
        x = sqrt(2.0 * log(1.0 / share) + 2.0 * order * log(max(x, 1.0)))
    return x
