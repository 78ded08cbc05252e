"""Scores: the unnormalised log-weight between a query and a key, as one table of facts.

Every answer of this library is f(q) = Σᵢ softmaxᵢ(score(q, kᵢ)) vᵢ. This module holds what a score *is*;
the engines hold how it is computed fast, and ``kernels`` the table of statistical kernels.

Radial scores see only u = ‖w∘(q − k)‖ and are log K(u). Differences come first, scaling second: the
expansion ‖q‖² − 2q·k + ‖k‖² loses digits under offsets. |w| is what counts, and h = 1/w.

>>> sorted(KERNELS) == sorted(RADIAL)
True
>>> KERNELS["boxcar"].staircase, RADIAL["boxcar"].__name__
(True, 'Boxcar')
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from regard.core.arrays import Array, is_compiling, is_tensor
from regard.core.double_double import DoubleDouble, two_product, two_sum
from regard.core.kernels import KERNELS, Kernel

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


def _finite(name: str, value: Any, ndims: tuple[int, ...]) -> Any:
    """A read-only float64 array; a torch tensor stays what it is, so that gradients reach it.

    While torch compiles, numbers become a tensor: they are part of its program then.
    """
    compiling = is_compiling()
    if compiling and not is_tensor(value):
        torch = sys.modules["torch"]
        value = torch.as_tensor(value, dtype=torch.float64)
    if is_tensor(value):
        if value.ndim not in ndims:
            raise ValueError(
                f"{name} must have {' or '.join(map(str, ndims))} dimensions, got shape {tuple(value.shape)}"
            )
        # On other devices the check would wait for everything queued there.
        if not compiling and value.device.type == "cpu" and not bool(value.isfinite().all()):
            raise ValueError(f"{name} must be finite, got {value!r}")
        return value
    array = np.array(value, dtype=np.float64)
    if array.ndim not in ndims:
        raise ValueError(f"{name} must have {' or '.join(map(str, ndims))} dimensions, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {value!r}")
    array.setflags(write=False)
    return array


def power_and_stretch(w: float) -> tuple[float, float]:
    """w² = stretch·power², with power a power of two.

    Scaling differences by a power of two rounds nothing, so keys equally far from a query stay so: u² is the sum of
    squares of power·δ, and only then times stretch.

    >>> power_and_stretch(3.0)
    (4.0, 0.5625)
    """
    mantissa, exponent = np.frexp(w)
    # A w of zero ignores differences of any size, also those whose squares overflow.
    power = float(np.ldexp(1.0, int(min(exponent, 1023)))) if w else 0.0
    return power, float(mantissa * (2.0 if exponent > 1023 else 1.0)) ** 2


# Peak below which squares could overflow, and all weight is on the nearest keys anyway. Log sample weights are lost
# beside such scores, so hard attention gives the answer, unless there is an additive mask, which it does not take.
LIMIT = -1e140


def at_limit(peak: Array, largest: float, laplace: bool, additive: bool) -> Array:
    """Queries (Q,) at the softmax limit, whose every score is beyond ``LIMIT`` or saturates near the largest number."""
    lowest = -0.99 * (np.sqrt(largest) if laplace else 0.5 * largest)
    return np.asarray((peak > -np.inf) & (peak <= (lowest if additive else max(lowest, LIMIT))))


def far_below(keys: int, width: int) -> float:
    """Size of the largest score from which on its rounding error matters: (d + 6)·ε·|s| = (n + 6)·ε.

    The first is the rounding error of a score s of d features, the second that of a sum over n keys.
    """
    return (keys + 6) / (width + 6)


class Score:
    """Base class of scores: a check of widths and the (query, key) matrix in plain numpy.

    >>> Gaussian().check(2, 2)  # queries and keys of two features agree
    """

    def check(self, query_width: int, key_width: int) -> None:
        """Raise ValueError if queries or keys have the wrong number of features.

        Parameters
        ----------
        query_width : int
            Number of features of a query.
        key_width : int
            Number of features of a key.

        Raises
        ------
        ValueError
            If the score cannot take queries and keys of these widths.
        """
        raise NotImplementedError

    def bound(self, query: Array, key: Array) -> float:  # noqa: ARG002
        """A bound on scores and on the sums they are computed from; query (d,) and key (d,) bound the features.

        0 if nothing can overflow: squared distances, for example, saturate.

        Parameters
        ----------
        query : array (d,)
            Largest absolute value of each feature of the queries.
        key : array (d,)
            Largest absolute value of each feature of the keys.

        Returns
        -------
        float
        """
        return 0.0

    def __call__(self, query: Array, key: Array) -> Array:
        """Scores (Q, K) in float64, −inf where a key cannot be attended to. Cost: O(Q·K·d) time and memory."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Radial(Score):
    """log K(u) with u = ‖w∘(q − k)‖; w is a scalar, one number per feature (d,), or a matrix (d, r).

    A matrix maps differences to r coordinates: u = ‖(q − k) @ w‖. A torch tensor stays a tensor: ``pool`` of tensors
    has gradients for it.

    Parameters
    ----------
    w : float, array (d,) or (d, r), or tensor, default=1.0
        1/bandwidth, in the inverse units of the features; finite. Signs do not matter, except in a matrix.

    >>> Epanechnikov(w=[2.0, 0.0]).bandwidth.tolist()
    [0.5, inf]
    """

    w: Any = 1.0
    kernel: ClassVar[Kernel]

    def __post_init__(self) -> None:
        w = _finite("w", self.w, (0, 1, 2))
        if w.ndim < 2 and not is_tensor(w):
            w = np.abs(w)
            w.setflags(write=False)
        object.__setattr__(self, "w", w)

    @property
    def bandwidth(self) -> Array:
        """h = 1/w, in the units of the features; inf where w = 0."""
        if self.w.ndim == 2:
            raise ValueError("a matrix w has no bandwidth per feature; use w itself")
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / self.w)

    def check(self, query_width: int, key_width: int) -> None:
        if query_width != key_width:
            raise ValueError(f"query has {query_width} features and key has {key_width}; they must agree")
        if self.w.ndim and self.w.shape[0] != key_width:
            raise ValueError(f"w is for {self.w.shape[0]} features but key has {key_width}")

    def scaled(self, difference: Array) -> Array:
        """w∘difference, (…, d) → (…, d) or (…, r).

        Parameters
        ----------
        difference : array (…, d)
            Differences query − key.

        Returns
        -------
        array (…, d) or (…, r)
        """
        if self.w.ndim < 2:
            return np.asarray(difference * self.w)
        # Not ``@``: with a fused multiply-add two terms that cancel exactly would leave a remainder.
        return np.asarray(sum(difference[..., a, None] * self.w[a] for a in range(len(self.w))))

    def distance2(self, query: Array, key: Array) -> Array:
        """u² (Q, K) in float64, saturating at the largest finite number.

        Parameters
        ----------
        query : array (Q, d)
            Queries.
        key : array (K, d)
            Keys.

        Returns
        -------
        array (Q, K)
            Squares of w∘(query − key), summed over the features.
        """
        query, key = np.asarray(query, np.float64), np.asarray(key, np.float64)
        difference = query[:, None, :] - key[None, :, :]
        stretch = 1.0
        with np.errstate(over="ignore"):
            if self.w.ndim:
                scaled = self.scaled(difference)
            else:
                power, stretch = power_and_stretch(self.w)
                scaled = difference * power
            return np.asarray(np.minimum((scaled * scaled).sum(-1) * stretch, np.finfo(np.float64).max))

    def rises(self, query: Array, key: Array, height: Array) -> Array:
        """score − height (Q, K) of a Gaussian or Laplace score, with an error relative to itself, not to the score.

        height (Q,) is near the largest score of each query. −1e300 if a square overflows.

        Parameters
        ----------
        query : array (Q, d)
            Queries.
        key : array (K, d)
            Keys.
        height : array (Q,)
            A score near the largest of each query.

        Returns
        -------
        array (Q, K)
            Score minus height.
        """
        query, key = np.asarray(query, np.float64)[:, None, :], np.asarray(key, np.float64)[None, :, :]
        shape, height = (query.shape[0], key.shape[1]), height[:, None]
        d = key.shape[2]
        w = self.w if self.w.ndim == 2 else np.diag(np.broadcast_to(self.w, d))
        u2 = DoubleDouble(np.zeros(shape))
        with np.errstate(over="ignore", invalid="ignore"):
            for direction in w.T:
                z = DoubleDouble(np.zeros(shape))
                for f in np.flatnonzero(direction):
                    # The power of two in w goes first, so that differences of any size are safe.
                    mantissa, exponent = np.frexp(direction[f])
                    difference = two_sum(query[..., f], -key[..., f])
                    z = z.plus(DoubleDouble(*(np.ldexp(part, exponent) for part in difference)).times(mantissa))
                u2 = u2.plus(z.squared())
            if self.kernel.name == "laplace":
                level = two_product(height, height)
                rise = -u2.plus(DoubleDouble(-level.head, -level.tail)).rounded() / (np.sqrt(u2.head) - height)
            else:
                rise = -0.5 * u2.plus(DoubleDouble(2.0 * height)).rounded()
            return np.where(u2.head < 1e300, rise, -1e300)

    def is_far(self, peak: Array, keys: int, width: int) -> Array:
        """Queries that need ``rises``: their largest score is so low that its rounding error matters in the weights.

        Parameters
        ----------
        peak : array (Q,)
            Largest score of each query.
        keys : int
            Number of keys.
        width : int
            Number of features.

        Returns
        -------
        array (Q,) of bool
        """
        soft = self.kernel.name in ("gaussian", "laplace")
        return np.asarray(soft & (peak < -far_below(keys, width)) & (peak > LIMIT))

    def __call__(self, query: Array, key: Array) -> Array:
        u2 = self.distance2(query, key)
        if self.kernel.name == "gaussian":
            return -0.5 * u2
        if self.kernel.name == "laplace":
            return np.asarray(-np.sqrt(u2))
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.kernel.value(u2)))


class Gaussian(Radial):
    """The Gaussian score −½‖w∘(q − k)‖², the notes' score.

    Parameters
    ----------
    w : float, array (d,) or (d, r), or tensor, default=1.0
        1/bandwidth: one for all features, one per feature, or a matrix that maps differences to r coordinates.

    >>> float(Gaussian(w=2.0)(np.array([[1.0]]), np.array([[0.5]]))[0, 0])
    -0.5
    """

    kernel = KERNELS["gaussian"]


class Laplace(Radial):
    """The Laplace score −u with u = ‖w∘(q − k)‖: exponential decay, not compact.

    Parameters
    ----------
    w : float, array (d,) or (d, r), or tensor, default=1.0
        1/bandwidth, as in ``Gaussian``.

    >>> float(Laplace(w=2.0)(np.array([[1.0]]), np.array([[0.5]]))[0, 0])
    -1.0
    """

    kernel = KERNELS["laplace"]


class Boxcar(Radial):
    """The boxcar score: 0 where u ≤ 1 (edges included), −inf beyond; a plain mean of the keys within the bandwidth.

    Parameters
    ----------
    w : float, array (d,) or (d, r), or tensor, default=1.0
        1/bandwidth, as in ``Gaussian``; u = ‖w∘(q − k)‖.

    >>> Boxcar(w=2.0)(np.array([[0.0]]), np.array([[0.5], [0.6]])).tolist()
    [[0.0, -inf]]
    """

    kernel = KERNELS["boxcar"]


class Triangular(Radial):
    """The triangular score log(1 − u) on u ≤ 1, −inf beyond.

    Parameters
    ----------
    w : float, array (d,) or (d, r), or tensor, default=1.0
        1/bandwidth, as in ``Gaussian``; u = ‖w∘(q − k)‖.

    >>> np.exp(Triangular()(np.array([[0.0]]), np.array([[0.5], [2.0]]))).tolist()
    [[0.5, 0.0]]
    """

    kernel = KERNELS["triangular"]


class Epanechnikov(Radial):
    """The Epanechnikov score log(1 − u²) on u ≤ 1, −inf beyond.

    R's np and Stata's ``epa`` stretch the kernel to √5: divide w by √5 for theirs.

    Parameters
    ----------
    w : float, array (d,) or (d, r), or tensor, default=1.0
        1/bandwidth, as in ``Gaussian``; u = ‖w∘(q − k)‖.

    >>> np.exp(Epanechnikov()(np.array([[0.0]]), np.array([[0.5], [2.0]]))).tolist()
    [[0.75, 0.0]]
    """

    kernel = KERNELS["epanechnikov"]


class Biweight(Radial):
    """The biweight score 2 log(1 − u²) on u ≤ 1, −inf beyond.

    Parameters
    ----------
    w : float, array (d,) or (d, r), or tensor, default=1.0
        1/bandwidth, as in ``Gaussian``; u = ‖w∘(q − k)‖.

    >>> np.exp(Biweight()(np.array([[0.0]]), np.array([[0.5], [2.0]]))).round(4).tolist()
    [[0.5625, 0.0]]
    """

    kernel = KERNELS["biweight"]


class Triweight(Radial):
    """The triweight score 3 log(1 − u²) on u ≤ 1, −inf beyond.

    Parameters
    ----------
    w : float, array (d,) or (d, r), or tensor, default=1.0
        1/bandwidth, as in ``Gaussian``; u = ‖w∘(q − k)‖.

    >>> np.exp(Triweight()(np.array([[0.0]]), np.array([[0.5], [2.0]]))).round(4).tolist()
    [[0.4219, 0.0]]
    """

    kernel = KERNELS["triweight"]


class Tricube(Radial):
    """The tricube score 3 log(1 − u³) on u ≤ 1, −inf beyond.

    Parameters
    ----------
    w : float, array (d,) or (d, r), or tensor, default=1.0
        1/bandwidth, as in ``Gaussian``; u = ‖w∘(q − k)‖.

    >>> np.exp(Tricube()(np.array([[0.0]]), np.array([[0.5], [2.0]]))).round(4).tolist()
    [[0.6699, 0.0]]
    """

    kernel = KERNELS["tricube"]


class Cosine(Radial):
    """The cosine score log cos(πu/2) on u ≤ 1, −inf beyond.

    Parameters
    ----------
    w : float, array (d,) or (d, r), or tensor, default=1.0
        1/bandwidth, as in ``Gaussian``; u = ‖w∘(q − k)‖.

    >>> np.exp(Cosine()(np.array([[0.0]]), np.array([[0.5], [2.0]]))).round(4).tolist()
    [[0.7071, 0.0]]
    """

    kernel = KERNELS["cosine"]


# The score of each kernel in the table.
RADIAL: dict[str, type[Radial]] = {score.kernel.name: score for score in Radial.__subclasses__()}


@dataclass(frozen=True, eq=False)
class Nearest(Radial):
    """Hard attention: 0 for the nearest keys under w, −inf for all others; ties count equally.

    The limit w → ∞ of every decaying radial score. The size of w cancels, only its direction counts.

    Parameters
    ----------
    w : float, array (d,) or (d, r), default=1.0
        Weights of the features in the distance, not all zero; no tensor.

    >>> Nearest()(np.array([[0.4]]), np.array([[0.0], [1.0]])).tolist()
    [[0.0, -inf]]
    """

    # Not used: hard attention is no K of a distance, and shares only the distances with Radial.
    kernel = KERNELS["gaussian"]

    def __post_init__(self) -> None:
        if is_tensor(self.w):
            raise TypeError("w of Nearest must be a number or an array, got a tensor; Nearest has no gradient")
        super().__post_init__()
        largest = np.abs(self.w).max() if self.w.size else 1.0
        if largest == 0.0:
            raise ValueError("w of Nearest must not be all zero: with w = 0 every key is equally near")
        # By a power of two: nothing is rounded, and ties stay ties.
        w = np.ldexp(self.w, 1 - np.frexp(largest)[1])
        w.setflags(write=False)
        object.__setattr__(self, "w", w)

    def __call__(self, query: Array, key: Array) -> Array:
        distance = self.distance(query, key)
        nearest = distance == distance.min(axis=1, keepdims=True, initial=np.inf)
        return np.where(nearest, 0.0, -np.inf)

    def is_far(self, peak: Array, keys: int, width: int) -> Array:  # noqa: ARG002
        # Ties are decided by distances, not by rounded scores.
        return np.zeros(peak.shape, bool)

    def distance(self, query: Array, key: Array) -> Array:
        """‖w∘(q − k)‖ (Q, K), safe from overflow and underflow of squares.

        Parameters
        ----------
        query : array (Q, d)
            Queries.
        key : array (K, d)
            Keys.

        Returns
        -------
        array (Q, K)
        """
        query, key = np.asarray(query, np.float64), np.asarray(key, np.float64)
        scaled = np.abs(self.scaled(query[:, None, :] - key[None, :, :]))
        largest = scaled.max(axis=-1, initial=0.0)
        # A power of two near the largest coordinate: squares neither overflow nor vanish, and nothing is rounded.
        unit = np.ldexp(1.0, np.clip(np.frexp(largest)[1], -1000, 1000))
        return np.asarray(unit * np.sqrt(((scaled / unit[..., None]) ** 2).sum(-1)))


@dataclass(frozen=True, eq=False)
class DotProduct(Score):
    """The scaled dot product w · q·k / √d: unit-variance features give unit-variance scores for any d.

    Parameters
    ----------
    w : float or tensor, default=1.0
        Factor of the scores; finite.

    >>> DotProduct()(np.array([[1.0, 1.0, 1.0, 1.0]]), np.array([[1.0, 2.0, 3.0, 4.0]])).tolist()
    [[5.0]]
    """

    w: Any = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "w", _finite("w", self.w, (0,)))

    def check(self, query_width: int, key_width: int) -> None:
        if query_width != key_width:
            raise ValueError(f"query has {query_width} features and key has {key_width}; they must agree")

    def __call__(self, query: Array, key: Array) -> Array:
        query, key = np.asarray(query, np.float64), np.asarray(key, np.float64)
        return np.asarray(query @ key.T * (self.w / np.sqrt(max(query.shape[1], 1))))

    def bound(self, query: Array, key: Array) -> float:
        # The sum of products before it is scaled may be larger than the score.
        return float(max(1.0, abs(self.w)) * (query @ key))


@dataclass(frozen=True, eq=False)
class Additive(Score):
    """The additive score w_vᵀ tanh(W_q q + W_k k): queries and keys may have different numbers of features.

    Parameters
    ----------
    W_q : array or tensor (h, query width)
        Maps queries to h hidden units.
    W_k : array or tensor (h, key width)
        Maps keys to the same hidden units.
    w_v : array or tensor (h,)
        Weight of each hidden unit in the score.

    >>> score = Additive(W_q=[[1.0]], W_k=[[2.0, 0.0]], w_v=[3.0])
    >>> score(np.array([[0.0]]), np.array([[0.5, 9.0]])).round(4).tolist()
    [[2.2848]]
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

    def bound(self, query: Array, key: Array) -> float:
        # The sums before tanh may be larger than the score.
        hidden = np.abs(self.W_q) @ query + np.abs(self.W_k) @ key
        return float(max(hidden.max(initial=0.0), np.abs(self.w_v).sum()))
