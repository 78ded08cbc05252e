"""Local fits from attention moments: the mean (degree 0) and the local line with a ridge (degree 1).

Under the weights of one query let v̄ and δ̄ be means, C the covariance of δ = key − query and c that of δ and v. The
line through z = δ @ W, W = diag(w) or the matrix w itself, with a ridge on its slopes but not on its height is

    β = (WᵀCW + λ(1 + ‖z̄‖²))⁻¹ Wᵀc,   slope = Wβ,   f = v̄ − δ̄·slope

λ → ∞ is the mean. The ridge is stronger for a query away from its keys (‖z̄‖ large), where the line would extrapolate.
At λ = 0 the scale W drops out, and if the keys in reach do not span every direction the line is the one of least norm
in units of their standard deviations: flat if there is only one key.

f is also Σ weight·(left·(1, δ))·v, with left = (1 + δ̄ᵀPδ̄, −Pδ̄) and P = W(WᵀCW + λ(1 + ‖z̄‖²))⁻¹Wᵀ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard.core.arrays import Array, as_numpy, like, namespace
from regard.core.problem import Adjoint, Moments, split_moments
from regard.core.state import Partial

# Variance relative to the mean square it was computed from, up to which it counts as zero.
ZERO_VARIANCE = 1e-13
# The same next to a ridge, where a true variance of that size still matters.
ZERO_VARIANCE_WITH_RIDGE = 1e-14
# Eigenvalue of a correlation matrix up to which it counts as zero.
ZERO_EIGENVALUE = 1e-8
# A feature's range must lie between 10^−DECADES and 10^DECADES, so that its square neither overflows nor underflows.
DECADES = 150
# Mean square of δ from which on a line is flat, so that products of moments do not overflow.
MAX_MEAN_SQUARE = 1e300
# Smallest ridge added to a system of equations.
MIN_RIDGE = 1e-300
# Largest entry of z̄ that is returned.
MAX_CENTRE = 1e140


def check_spans(key: Array) -> None:
    """Raise ValueError if a feature of the keys (K, d) spans too many or too few decades for lines; it says X."""
    span = np.ptp(key, axis=0) if len(key) else np.zeros(0)
    span = span[span > 0.0]
    if (np.abs(np.log10(span)) > DECADES).any():
        raise ValueError(
            f"local lines square differences: the range of each feature of X must lie between 1e-{DECADES} and "
            f"1e{DECADES}, got {span.min():g} to {span.max():g}; rescale X"
        )


class Central(NamedTuple):
    """Central moments under the weights of each query."""

    value: Array  # (Q, P)  v̄
    mean: Array  # (Q, d)  δ̄
    square: Array  # (Q, d)  M[δ²]
    covariance: Array  # (Q, d, d)  C
    cross: Array  # (Q, P, d)  c


class LocalFit(NamedTuple):
    """One local mean or line per query; P values, d features, r columns of W.

    All but the output stay where the moments are: tensors on a GPU, if one computed them.
    """

    output: Array  # (Q, P)
    slope: Array  # (Q, P, d), zero at degree 0
    left: Array  # (Q, 1 + d), or (Q, 1) at degree 0
    beta: Array  # (Q, P, r)
    solved_offset: Array  # (Q, r)  (WᵀCW + λ(1 + ‖z̄‖²))⁻¹ z̄
    centre: Array  # (Q, r)  z̄
    mean: Array  # (Q, d)  δ̄
    covariance: Array  # (Q, d, d)  C
    cross: Array  # (Q, P, d)  c


def local_fit(
    partial: Partial, columns: int, width: int, degree: int, w: Array, ridge: float, sloped: Array | None = None
) -> LocalFit:
    """Fits from the moments of degree 0, or 2 for a line; ``ridge`` is λ ≥ 0.

    ``sloped`` (d,) boolean: features in which a line may have a slope; None: all.

    *Empty rows*: output 0, slope 0. *Cost*: O(Q·d²·(d + P)).
    """
    attended = partial.mass > 0.0
    inverse_mass = np.where(attended, 1.0 / np.where(attended, partial.mass, 1.0), 0.0)
    sums = partial.moments if ridge > 0.0 else as_numpy(partial.moments)
    moments = split_moments(sums * like(inverse_mass[:, None], sums), columns, width, 2 * degree)
    if degree == 0:
        nothing = np.zeros((len(inverse_mass), columns, 0))
        none = np.zeros((len(inverse_mass), 0))
        return LocalFit(
            moments.value, nothing, np.ones((len(inverse_mass), 1)), nothing, none, none, none, nothing, nothing
        )
    return line(central(moments), w, ridge, sloped)


def central(moments: Moments) -> Central:
    """Central moments from those about the query; zero where a query is so far away that they overflow."""
    xp, value, mean, across = namespace(moments.value), moments.value, moments.delta, moments.value_delta
    assert mean is not None
    assert across is not None
    assert moments.delta_delta is not None
    square = xp.diagonal(moments.delta_delta, 0, 1, 2)
    far = ~(square < MAX_MEAN_SQUARE).all(axis=1)
    if far.any():
        mean, square = (xp.where(far[:, None], 0.0, part) for part in (mean, square))
        across, both = (xp.where(far[:, None, None], 0.0, part) for part in (across, moments.delta_delta))
    else:
        both = moments.delta_delta
    covariance = both - mean[:, :, None] * mean[:, None, :]
    return Central(value, mean, square, covariance, across - value[:, :, None] * mean[:, None, :])


def line(about: Central, w: Array, ridge: float, sloped: Array | None = None) -> LocalFit:
    """The line of every query from its moments; parameters as in ``local_fit``."""
    value, mean, square, covariance, cross = about
    xp = namespace(value)
    W = np.diag(np.broadcast_to(w, mean.shape[1])) if np.ndim(w) < 2 else w
    W = like(W if sloped is None else W * sloped[:, None], value)
    # The variance of a feature that is equal in all keys is rounding error, and next to a small λ would make a slope.
    zero = ZERO_VARIANCE_WITH_RIDGE if ridge > 0.0 else ZERO_VARIANCE
    varies = xp.diagonal(covariance, 0, 1, 2) > zero * square  # (Q, d)
    if sloped is not None:
        varies, mean = varies * like(sloped, value), mean * like(sloped, value)
    covariance = covariance * varies[:, :, None] * varies[:, None, :]
    cross = cross * varies[:, None, :]
    right = xp.concatenate([cross, mean[:, None, :]], 1)  # (Q, P + 1, d)
    # Squares of a large w could overflow; dividing it by a power of two leaves the line as it is.
    unit = float(np.ldexp(1.0, max(int(np.frexp(np.abs(w).max(initial=0.0))[1]) - 1, 0)))
    W = W / unit
    centre = mean @ W
    if ridge > 0.0:
        guarded = xp.clip(ridge * (unit**-2 + (centre**2).sum(axis=1)), MIN_RIDGE, None)
        system = W.T @ covariance @ W + guarded[:, None, None] * like(np.eye(W.shape[1]), W)
        solved = xp.linalg.solve(system, (right @ W).mT).mT  # (Q, P + 1, r)
        in_delta = solved @ W.T
        solved = solved / unit
    else:
        in_delta = solved = _least_norm(covariance, square, right)
    slope, toward = in_delta[:, :-1], in_delta[:, -1]
    output = value - (slope @ mean[:, :, None])[..., 0]
    left = xp.concatenate([1.0 + (mean * toward).sum(axis=1, keepdims=True), -toward], 1)
    if unit > 1.0:
        centre = xp.clip(centre, -MAX_CENTRE / unit, MAX_CENTRE / unit) * unit
    return LocalFit(as_numpy(output), slope, left, solved[:, :-1], solved[:, -1], centre, mean, covariance, cross)


def _least_norm(covariance: Array, square: Array, right: Array) -> Array:
    """C⁺ applied to each row of right (Q, R, d), in units of each feature's standard deviation.

    A variance is a difference of mean squares (Q, d) and has their rounding error: directions whose eigenvalue this
    could change by more than a part in 10⁸ are dropped.
    """
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    varies = variance > 0.0
    unit = np.where(varies, 1.0 / np.sqrt(np.where(varies, variance, 1.0)), 0.0)  # (Q, d)
    value, vector = np.linalg.eigh(covariance * unit[:, :, None] * unit[:, None, :])
    with np.errstate(over="ignore"):
        rounded = np.where(varies, square / np.where(varies, variance, 1.0), 1.0).max(axis=1, initial=1.0)[:, None]
    spanned = value > ZERO_EIGENVALUE * rounded
    inverse = np.where(spanned, 1.0 / np.where(spanned, value, 1.0), 0.0)
    turned = (right * unit[:, None, :]) @ vector * inverse[:, None, :]
    return np.asarray(turned @ vector.mT * unit[:, None, :])


class LocalAdjoint(NamedTuple):
    """The adjoint to propagate back through the scores, and the gradients that do not go through the scores."""

    adjoint: Adjoint  # on the device of the fit
    w: Array  # (d, r)  gradient of W with the weights held fixed
    query: Array  # (Q, d)  gradient of the queries with the weights held fixed
    log_ridge: float


def local_adjoint(fit: LocalFit, grad_output: Array, W: Array, ridge: float) -> LocalAdjoint:
    """Adjoint of ``local_fit``; grad_output f̄ is (Q, P), W (d, r)."""
    xp, height = namespace(fit.left), (grad_output * fit.output).sum(axis=1, keepdims=True)
    if fit.left.shape[1] == 1:
        return LocalAdjoint(
            Adjoint(fit.left, grad_output, height), np.zeros(W.shape), np.zeros((len(height), len(W))), 0.0
        )
    grad_output, height, W = (like(part, fit.left) for part in (grad_output, height, W))
    slope = xp.einsum("qp,qpa->qa", grad_output, fit.slope)
    # δ = key − query, so a query that moves by ε changes every δ by −ε.
    if ridge == 0.0:
        adjoint = Adjoint(fit.left, grad_output, xp.concatenate([height, slope], 1))
        return LocalAdjoint(adjoint, np.zeros(W.shape), slope, 0.0)
    beta = xp.einsum("qp,qpr->qr", grad_output, fit.beta)
    toward = -fit.left[:, 1:]  # W·solved_offset
    short = fit.mean - (fit.covariance @ toward[:, :, None])[..., 0]  # δ̄ − CW·solved_offset
    rest = xp.einsum("qp,qpa->qa", grad_output, fit.cross) - (fit.covariance @ slope[:, :, None])[..., 0]  # c − CWβ
    # Derivative of the output by the query's own ridge λ(1 + ‖z̄‖²), and of that by z̄.
    by_ridge = ridge * (beta * fit.solved_offset).sum(axis=1)
    off = (fit.centre**2).sum(axis=1)
    by_centre = 2.0 * by_ridge[:, None] * fit.centre
    plain = xp.concatenate([(by_ridge * (1.0 - off))[:, None], by_centre @ W.T], 1)
    adjoint = Adjoint(fit.left, grad_output, xp.concatenate([height, slope], 1), plain)
    w = as_numpy(fit.mean.T @ by_centre - short.T @ beta - rest.T @ fit.solved_offset)
    return LocalAdjoint(adjoint, w, as_numpy(slope - by_centre @ W.T), float((by_ridge * (1.0 + off)).sum()))
