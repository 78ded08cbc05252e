"""Attention pooling from the formulas, at any precision, sharing no code with the engines.

``pooled(…, real=np.longdouble)`` is the truth that the engines are held to; the same lines at the working precision
are the naive implementation whose error sets their budget. ``exact`` is 60-digit arithmetic for the accuracy line.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import mpmath
import numpy as np
from numpy.typing import NDArray

from regard.scores import Additive, DotProduct, Nearest, Radial, Score

Array = NDArray[Any]
mpmath.mp.dps = 60

PI = 4 * np.arctan(np.longdouble(1))


def kernel(name: str, u: Array) -> Array:
    """K(u) by its textbook formula, in u's precision."""
    inside = u <= 1
    v = np.where(inside, u, u.dtype.type(1))
    formulas = {
        "gaussian": lambda: np.exp(-u * u / 2),
        "laplace": lambda: np.exp(-u),
        "boxcar": lambda: inside.astype(u.dtype),
        "triangular": lambda: 1 - v,
        "epanechnikov": lambda: 1 - v**2,
        "biweight": lambda: (1 - v**2) ** 2,
        "triweight": lambda: (1 - v**2) ** 3,
        "tricube": lambda: (1 - v**3) ** 3,
        "cosine": lambda: np.where(inside, np.cos(u.dtype.type(PI) * v / 2), u.dtype.type(0)),
    }
    return formulas[name]()


def distance(score: Radial, query: Array, key: Array, real: Any) -> Array:
    """u = ‖w∘(q − k)‖, differences first."""
    difference = query.astype(real)[:, None, :] - key.astype(real)[None, :, :]
    w = score.w.astype(real)
    scaled = np.einsum("qka,ar->qkr", difference, w) if w.ndim == 2 else difference * w
    return np.sqrt((scaled * scaled).sum(-1))


def scores(score: Score, query: Array, key: Array, real: Any = np.longdouble) -> Array:
    """Unnormalised log-weights (Q, K) in the precision asked for."""
    if isinstance(score, Nearest):
        u = distance(score, query, key, np.longdouble)
        return np.where(u == u.min(axis=1, keepdims=True, initial=np.inf), 0, -np.inf).astype(real)
    if isinstance(score, Radial):
        u = distance(score, query, key, real)
        if score.kernel.name in ("gaussian", "laplace"):
            return -u * u / 2 if score.kernel.name == "gaussian" else -u
        with np.errstate(divide="ignore"):
            return np.log(kernel(score.kernel.name, u))
    query, key = query.astype(real), key.astype(real)
    if isinstance(score, DotProduct):
        return np.einsum("qa,ka->qk", query, key) * real(score.w) / np.sqrt(real(query.shape[1]))
    assert isinstance(score, Additive)
    W_q, W_k, w_v = (part.astype(real) for part in (score.W_q, score.W_k, score.w_v))
    projected = np.einsum("qa,ha->qh", query, W_q)[:, None] + np.einsum("ka,ha->kh", key, W_k)[None]
    return np.einsum("qkh,h->qk", np.tanh(projected), w_v)


class Answer(NamedTuple):
    """What pooling should say."""

    output: Array  # (Q, P)
    logsumexp: Array  # (Q,)
    weights: Array  # (Q, K)


def pooled(
    query: Array,
    key: Array,
    value: Array,
    score: Score,
    *,
    mask: Array | None = None,
    sample_weight: Array | None = None,
    exclude: tuple[Array, Array] | None = None,
    real: Any = np.longdouble,
) -> Answer:
    """Softmax over the keys that may be attended to, then the weighted average."""
    allowed = np.ones((len(query), len(key)), bool)
    bias = np.zeros((len(query), len(key)), real)
    if mask is not None:
        mask = np.broadcast_to(mask, allowed.shape)
        allowed &= mask if mask.dtype == bool else mask > -np.inf
        if mask.dtype != bool and not isinstance(score, Nearest):
            bias = bias + np.where(allowed, mask, 0).astype(real)
    if exclude is not None:
        allowed &= exclude[0][:, None] != exclude[1][None, :]
    shift = real(0)
    if sample_weight is not None:
        allowed &= (sample_weight > 0)[None, :]
        relative = sample_weight.astype(np.longdouble) / sample_weight.max()
        shift = np.log(np.longdouble(sample_weight.max()))
        bias = bias + np.log(np.where(sample_weight > 0, relative, 1)).astype(real)
    if isinstance(score, Nearest):
        u = np.where(allowed, distance(score, query, key, np.longdouble), np.inf)
        nearest = (u == u.min(axis=1, keepdims=True, initial=np.inf)) & allowed
        s = np.where(nearest, bias, -np.inf)
    else:
        s = np.where(allowed, scores(score, query, key, real) + bias, -np.inf)
    peak = s.max(axis=1, keepdims=True, initial=-np.inf)
    e = np.where(s > -np.inf, np.exp(s - np.where(peak > -np.inf, peak, 0)), 0)
    mass = e.sum(axis=1, keepdims=True)
    weights = e / np.where(mass > 0, mass, 1)
    with np.errstate(divide="ignore"):
        logsumexp = np.log(mass[:, 0]) + np.where(mass[:, 0] > 0, peak[:, 0], 0)
    return Answer(np.einsum("qk,kp->qp", weights, value.astype(real)), logsumexp + shift.astype(real), weights)


def products(query: Array, key: Array, columns: Array, degree: int, real: Any = np.longdouble) -> Array:
    """What the moments average, (Q, K, M), laid out as ``regard.core.problem`` says."""
    delta = key.astype(real)[None, :, :] - query.astype(real)[:, None, :]
    v = np.broadcast_to(columns.astype(real)[None], (len(query), *columns.shape))
    flat = [v]
    if degree >= 1:
        flat += [delta, (v[..., :, None] * delta[..., None, :]).reshape(*delta.shape[:2], -1)]
    if degree >= 2:
        a, b = np.triu_indices(key.shape[1])
        flat.append(delta[..., a] * delta[..., b])
    return np.concatenate(flat, axis=-1)


class Exact(NamedTuple):
    """One query's answer in 60 digits."""

    output: mpmath.mpf
    scale: mpmath.mpf  # Σα|v|
    gaps: list[mpmath.mpf]  # largest score − score, per key
    logsumexp: mpmath.mpf


def exact_log_kernel(name: str, u2: mpmath.mpf) -> mpmath.mpf:
    """log K from u², −inf outside."""
    u = mpmath.sqrt(u2)
    if name == "gaussian":
        return -u2 / 2
    if name == "laplace":
        return -u
    inside = {
        "boxcar": lambda: mpmath.mpf(1),
        "triangular": lambda: 1 - u,
        "epanechnikov": lambda: 1 - u2,
        "biweight": lambda: (1 - u2) ** 2,
        "triweight": lambda: (1 - u2) ** 3,
        "tricube": lambda: (1 - u**3) ** 3,
        "cosine": lambda: mpmath.cos(mpmath.pi * u / 2),
    }
    K = inside[name]() if u2 <= 1 else mpmath.mpf(0)
    return mpmath.log(K) if K > 0 else mpmath.mpf("-inf")


def exact_distance2(w: Array, query: Array, key: Array) -> mpmath.mpf:
    """‖w∘(q − k)‖² of one query and one key, in 60 digits."""
    difference = [mpmath.mpf(float(a)) - mpmath.mpf(float(b)) for a, b in zip(query, key, strict=True)]
    if w.ndim == 2:
        scaled = [
            sum(x * mpmath.mpf(float(c)) for x, c in zip(difference, w[:, r], strict=True)) for r in range(w.shape[1])
        ]
    else:
        scaled = [x * mpmath.mpf(float(c)) for x, c in zip(difference, np.broadcast_to(w, len(query)), strict=True)]
    return mpmath.fsum(x * x for x in scaled)


def exact(score: Radial, query: Array, key: Array, value: Array) -> Exact:
    """One query (d,) over keys (K, d) with values (K,), in 60 digits."""
    s = [exact_log_kernel(score.kernel.name, exact_distance2(score.w, query, k)) for k in key]
    peak = max(s)
    e = [mpmath.exp(x - peak) for x in s]
    v = [mpmath.mpf(float(x)) for x in value]
    mass = mpmath.fsum(e)
    return Exact(
        mpmath.fsum(a * b for a, b in zip(e, v, strict=True)) / mass,
        mpmath.fsum(a * abs(b) for a, b in zip(e, v, strict=True)) / mass,
        [peak - x for x in s],
        peak + mpmath.log(mass),
    )
