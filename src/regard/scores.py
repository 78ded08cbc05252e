"""Scores: the unnormalised log-weight between a query and a key, as one table of facts.

Every answer of this library is f(q) = Σᵢ softmaxᵢ(score(q, kᵢ)) vᵢ. This module holds what a score *is*;
the engines hold how it is computed fast. Adding a kernel is one row in ``KERNELS`` and one class line below.

Radial scores see only u = ‖w∘(q − k)‖ and are log K(u). Differences come first, scaling second: the
expansion ‖q‖² − 2q·k + ‖k‖² loses digits under offsets. |w| is what counts, and h = 1/w.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]

__all__ = [
    "KERNELS",
    "RADIAL",
    "Additive",
    "Biweight",
    "Boxcar",
    "Cosine",
    "DotProduct",
    "Epanechnikov",
    "Gaussian",
    "Kernel",
    "Laplace",
    "Nearest",
    "Radial",
    "Score",
    "Triangular",
    "Tricube",
    "Triweight",
]


class Kernel(NamedTuple):
    """Facts about one statistical kernel K(u), given through u² so that no root is taken in vain.

    ``value`` is K, ``rate`` is dK/d(u²): both plain numpy, both correct on all of [0, ∞).
    ``roughness`` = ∫K² and ``variance`` = ∫u²K of the kernel normalised in one dimension.
    """

    name: str
    code: int  # how compiled programs name this row
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
    return np.maximum(1.0 - u2 * np.sqrt(u2), 0.0) ** 3


def _cosine(u2: Array) -> Array:
    # cos(πu/2) = sin(π(1−u)/2) keeps its relative precision at the edge.
    return np.sin(0.5 * np.pi * np.maximum(1.0 - np.sqrt(u2), 0.0))


def _gaussian_rate(u2: Array) -> Array:
    return -0.5 * np.exp(-0.5 * u2)


def _laplace_rate(u2: Array) -> Array:
    # The kink at u = 0 has no slope; a pair at distance 0 pulls nowhere.
    u = np.sqrt(u2)
    return _per_u(-0.5 * np.exp(-u), u, 0.0)


def _boxcar_rate(u2: Array) -> Array:
    return np.zeros_like(u2)


def _triangular_rate(u2: Array) -> Array:
    u = np.sqrt(u2)
    return np.where(u2 <= 1.0, _per_u(np.full_like(u, -0.5), u, 0.0), 0.0)


def _tricube_rate(u2: Array) -> Array:
    u = np.sqrt(u2)
    return np.asarray(-4.5 * u * np.maximum(1.0 - u2 * u, 0.0) ** 2)


def _cosine_rate(u2: Array) -> Array:
    u = np.sqrt(u2)
    inside = _per_u(-0.25 * np.pi * np.sin(0.5 * np.pi * np.minimum(u, 1.0)), u, -0.125 * np.pi**2)
    return np.where(u2 <= 1.0, inside, 0.0)


_PI = float(np.pi)
_epanechnikov, _epanechnikov_rate = _inside(1)
_biweight, _biweight_rate = _inside(2)
_triweight, _triweight_rate = _inside(3)

#                 name         code compact staircase value      rate                roughness          variance
_ROWS = (
    Kernel("gaussian", 0, False, False, _gaussian, _gaussian_rate, 0.5 / _PI**0.5, 1.0),
    Kernel("laplace", 1, False, False, _laplace, _laplace_rate, 1 / 4, 2.0),
    Kernel("boxcar", 2, True, True, _boxcar, _boxcar_rate, 1 / 2, 1 / 3),
    Kernel("triangular", 3, True, False, _triangular, _triangular_rate, 2 / 3, 1 / 6),
    Kernel("epanechnikov", 4, True, False, _epanechnikov, _epanechnikov_rate, 3 / 5, 1 / 5),
    Kernel("biweight", 5, True, False, _biweight, _biweight_rate, 5 / 7, 1 / 7),
    Kernel("triweight", 6, True, False, _triweight, _triweight_rate, 350 / 429, 1 / 9),
    Kernel("tricube", 7, True, False, _tricube, _tricube_rate, 175 / 247, 35 / 243),
    Kernel("cosine", 8, True, False, _cosine, _cosine_rate, _PI**2 / 16, 1 - 8 / _PI**2),
)
KERNELS: dict[str, Kernel] = {row.name: row for row in _ROWS}


def _finite(name: str, value: ArrayLike, ndims: tuple[int, ...]) -> Array:
    array = np.array(value, dtype=np.float64)
    if array.ndim not in ndims:
        raise ValueError(f"{name} must have {' or '.join(map(str, ndims))} dimensions, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {value!r}")
    array.setflags(write=False)
    return array


class Score:
    """What every score offers: a check of widths and the (query, key) matrix in plain numpy."""

    def check(self, query_width: int, key_width: int) -> None:
        """Raise ValueError when queries or keys have the wrong number of features."""
        raise NotImplementedError

    def __call__(self, query: Array, key: Array) -> Array:
        """Scores (Q, K) in float64, −inf where a key cannot be attended to. Cost: O(Q·K·d) time and memory."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Radial(Score):
    """log K(u) with u = ‖w∘(q − k)‖; w is a scalar, one number per feature (d,), or a matrix (d, r).

    A matrix maps differences to r coordinates: u = ‖(q − k) @ w‖.
    """

    w: Any = 1.0
    kernel: ClassVar[Kernel]

    def __post_init__(self) -> None:
        w = _finite("w", self.w, (0, 1, 2))
        if w.ndim < 2:
            w = np.abs(w)
            w.setflags(write=False)
        object.__setattr__(self, "w", w)

    @property
    def bandwidth(self) -> Array:
        """h = 1/w, in the units of the features; inf where w = 0."""
        if self.w.ndim == 2:
            raise ValueError("a matrix w has no bandwidth per feature; read w itself")
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / self.w)

    def check(self, query_width: int, key_width: int) -> None:
        if query_width != key_width:
            raise ValueError(f"query has {query_width} features and key has {key_width}; they must agree")
        if self.w.ndim and self.w.shape[0] != key_width:
            raise ValueError(f"w is for {self.w.shape[0]} features but key has {key_width}")

    def scaled(self, difference: Array) -> Array:
        """w∘difference, (…, d) → (…, d) or (…, r)."""
        return np.asarray(difference @ self.w if self.w.ndim == 2 else difference * self.w)

    def distance2(self, query: Array, key: Array) -> Array:
        """u² (Q, K) in float64, saturating at the largest finite number."""
        query, key = np.asarray(query, np.float64), np.asarray(key, np.float64)
        with np.errstate(over="ignore"):
            scaled = self.scaled(query[:, None, :] - key[None, :, :])
            return np.asarray(np.minimum((scaled * scaled).sum(-1), np.finfo(np.float64).max))

    def __call__(self, query: Array, key: Array) -> Array:
        u2 = self.distance2(query, key)
        if self.kernel.name == "gaussian":
            return -0.5 * u2
        if self.kernel.name == "laplace":
            return np.asarray(-np.sqrt(u2))
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.kernel.value(u2)))


class Gaussian(Radial):
    """−½‖w∘(q − k)‖²: the notes' score.

    >>> float(Gaussian(w=2.0)(np.array([[1.0]]), np.array([[0.5]]))[0, 0])
    -0.5
    """

    kernel = KERNELS["gaussian"]


class Laplace(Radial):
    """−u: exponential decay, not compact."""

    kernel = KERNELS["laplace"]


class Boxcar(Radial):
    """0 where u ≤ 1 (edges included), −inf beyond: a plain mean of the keys in reach."""

    kernel = KERNELS["boxcar"]


class Triangular(Radial):
    """log(1 − u) on u ≤ 1."""

    kernel = KERNELS["triangular"]


class Epanechnikov(Radial):
    """log(1 − u²) on u ≤ 1 (R's np and Stata's ``epa`` stretch it to √5: divide w by √5 for theirs)."""

    kernel = KERNELS["epanechnikov"]


class Biweight(Radial):
    """2 log(1 − u²) on u ≤ 1."""

    kernel = KERNELS["biweight"]


class Triweight(Radial):
    """3 log(1 − u²) on u ≤ 1."""

    kernel = KERNELS["triweight"]


class Tricube(Radial):
    """3 log(1 − u³) on u ≤ 1."""

    kernel = KERNELS["tricube"]


class Cosine(Radial):
    """log cos(πu/2) on u ≤ 1."""

    kernel = KERNELS["cosine"]


# The score of each kernel in the table.
RADIAL: dict[str, type[Radial]] = {score.kernel.name: score for score in Radial.__subclasses__()}


@dataclass(frozen=True, eq=False)
class Nearest(Radial):
    """Hard attention: 0 for the nearest keys under w, −inf for all others; ties share.

    The limit w → ∞ of every decaying radial score. The size of w cancels, only its direction counts.
    """

    # Hard attention is a rule of its own, not K of a distance; the geometry is what it shares with Radial.
    kernel = KERNELS["gaussian"]

    def __post_init__(self) -> None:
        super().__post_init__()
        largest = np.abs(self.w).max() if self.w.size else 1.0
        if largest == 0.0:
            raise ValueError("Nearest needs a w that is not all zero: with w = 0 every key is equally near")
        object.__setattr__(self, "w", self.w / largest)

    def __call__(self, query: Array, key: Array) -> Array:
        distance = self.distance(query, key)
        nearest = distance == distance.min(axis=1, keepdims=True, initial=np.inf)
        return np.where(nearest, 0.0, -np.inf)

    def distance(self, query: Array, key: Array) -> Array:
        """‖w∘(q − k)‖ (Q, K), safe from overflow and underflow of squares."""
        query, key = np.asarray(query, np.float64), np.asarray(key, np.float64)
        scaled = np.abs(self.scaled(query[:, None, :] - key[None, :, :]))
        largest = scaled.max(axis=-1, initial=0.0)
        unit = np.where(largest > 0.0, largest, 1.0)
        # A subnormal unit would lose the digits that tell two keys apart.
        unit = np.maximum(unit, np.finfo(np.float64).tiny)
        return np.asarray(unit * np.sqrt(((scaled / unit[..., None]) ** 2).sum(-1)))


@dataclass(frozen=True, eq=False)
class DotProduct(Score):
    """w · q·k / √d, so that unit-variance features give unit-variance scores whatever d."""

    w: Any = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "w", _finite("w", self.w, (0,)))

    def check(self, query_width: int, key_width: int) -> None:
        if query_width != key_width:
            raise ValueError(f"query has {query_width} features and key has {key_width}; they must agree")

    def __call__(self, query: Array, key: Array) -> Array:
        query, key = np.asarray(query, np.float64), np.asarray(key, np.float64)
        return np.asarray(query @ key.T * (self.w / np.sqrt(max(query.shape[1], 1))))


@dataclass(frozen=True, eq=False)
class Additive(Score):
    """w_vᵀ tanh(W_q q + W_k k): queries and keys may have different widths.

    ``W_q`` is (h, query width), ``W_k`` is (h, key width), ``w_v`` is (h,).
    """

    W_q: Any = field()
    W_k: Any = field()
    w_v: Any = field()

    def __post_init__(self) -> None:
        for name, ndim in (("W_q", 2), ("W_k", 2), ("w_v", 1)):
            object.__setattr__(self, name, _finite(name, getattr(self, name), (ndim,)))
        hidden = {self.W_q.shape[0], self.W_k.shape[0], self.w_v.shape[0]}
        if len(hidden) > 1:
            raise ValueError(
                f"W_q {self.W_q.shape}, W_k {self.W_k.shape} and w_v {self.w_v.shape} must share their first size"
            )

    def check(self, query_width: int, key_width: int) -> None:
        if (query_width, key_width) != (self.W_q.shape[1], self.W_k.shape[1]):
            raise ValueError(
                f"W_q and W_k are for widths {self.W_q.shape[1]} and {self.W_k.shape[1]}, "
                f"but query has {query_width} features and key has {key_width}"
            )

    def __call__(self, query: Array, key: Array) -> Array:
        hidden = np.tanh((query @ self.W_q.T)[:, None, :] + (key @ self.W_k.T)[None, :, :])  # (Q, K, h)
        return np.asarray(hidden @ self.w_v)
