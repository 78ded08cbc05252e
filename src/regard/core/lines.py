"""Local fits from attention moments: the mean (degree 0) and the local line with a ridge (degree 1).

Under the weights of one query let v̄ and δ̄ be means, C the covariance of δ = key − query and c that of δ and v. The
line through z = δ @ W, W = diag(w) or the matrix w itself, with a ridge on its slopes but not on its height is

    β = (WᵀCW + λ(1 + ‖z̄‖²))⁻¹ Wᵀc,   slope = Wβ,   f = v̄ − δ̄·slope

λ → ∞ is the mean. A query away from its keys (‖z̄‖ large: the line would reach far beyond what it was fitted to) is
drawn to the mean more than one among them. At λ = 0 the scale W drops out, and where the keys in reach do not span
every direction the line is the one of least norm in units of their own spread: flat where there is only one key.

f is also Σ weight·(left·(1, δ))·v, with left = (1 + δ̄ᵀPδ̄, −Pδ̄) and P = W(WᵀCW + λ(1 + ‖z̄‖²))⁻¹Wᵀ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard.core.arrays import Array, as_numpy, like, namespace
from regard.core.problem import Adjoint, Moments, split_moments
from regard.core.state import Partial

# What counts as nothing: a variance beside the mean square it was taken from (next to a ridge a real one so small still
# counts for something), and an eigenvalue of a correlation.
NO_SPREAD = 1e-13
NO_SPREAD_NEXT_TO_A_RIDGE = 1e-14
NO_DIRECTION = 1e-8
# Decades of a feature's span whose squares neither overflow nor vanish, mean squares beyond which a line is flat lest
# what is made of them overflow, the least ridge, and the largest part of z̄ that is told.
DECADES = 150
FARTHEST, LEAST, LARGEST = 1e300, 1e-300, 1e140


def check_spans(key: Array) -> None:
    """Refuse keys (K, d) whose lines could not be told from flat ones; errors speak of X."""
    span = np.ptp(key, axis=0) if len(key) else np.zeros(0)
    span = span[span > 0.0]
    if (np.abs(np.log10(span)) > DECADES).any():
        raise ValueError(
            f"lines need squares of differences: features of X must span between 1e-{DECADES} and 1e{DECADES}, "
            f"got {span.max():g} at most and {span.min():g} at least; rescale X"
        )


class Central(NamedTuple):
    """Moments about the means, under the weights of each query."""

    value: Array  # (Q, P)  v̄
    mean: Array  # (Q, d)  δ̄
    square: Array  # (Q, d)  M[δ²]
    spread: Array  # (Q, d, d)  C
    cross: Array  # (Q, P, d)  c


class LocalFit(NamedTuple):
    """One local mean or line per query; P values, d features, r columns of W.

    All but the output stays where the moments are: tensors on a GPU, if one computed them.
    """

    output: Array  # (Q, P)
    slope: Array  # (Q, P, d), zero at degree 0
    left: Array  # (Q, 1 + d), or (Q, 1) at degree 0
    beta: Array  # (Q, P, r)
    pull: Array  # (Q, r)  (WᵀCW + λ(1 + ‖z̄‖²))⁻¹ z̄
    centre: Array  # (Q, r)  z̄
    mean: Array  # (Q, d)  δ̄
    spread: Array  # (Q, d, d)  C
    cross: Array  # (Q, P, d)  c


def local_fit(
    partial: Partial, columns: int, width: int, degree: int, w: Array, ridge: float, leaning: Array | None = None
) -> LocalFit:
    """Fits from the moments of degree 0, or 2 for a line; ``ridge`` is λ ≥ 0.

    ``leaning`` (d,) boolean: features that a line may have a slope in; None: all.

    *Empty rows*: output 0, slope 0. *Cost*: O(Q·d²·(d + P)).
    """
    attended = partial.mass > 0.0
    share = np.where(attended, 1.0 / np.where(attended, partial.mass, 1.0), 0.0)
    sums = partial.moments if ridge > 0.0 else as_numpy(partial.moments)
    moments = split_moments(sums * like(share[:, None], sums), columns, width, 2 * degree)
    if degree == 0:
        nothing = np.zeros((len(share), columns, 0))
        none = np.zeros((len(share), 0))
        return LocalFit(moments.value, nothing, np.ones((len(share), 1)), nothing, none, none, none, nothing, nothing)
    return line(central(moments), w, ridge, leaning)


def central(moments: Moments) -> Central:
    """Moments about the means from those about the query; none where a query is so far that they overflow."""
    xp, value, mean, across = namespace(moments.value), moments.value, moments.delta, moments.value_delta
    assert mean is not None
    assert across is not None
    assert moments.delta_delta is not None
    square = xp.diagonal(moments.delta_delta, 0, 1, 2)
    far = ~(square < FARTHEST).all(axis=1)
    if far.any():
        mean, square = (xp.where(far[:, None], 0.0, part) for part in (mean, square))
        across, both = (xp.where(far[:, None, None], 0.0, part) for part in (across, moments.delta_delta))
    else:
        both = moments.delta_delta
    spread = both - mean[:, :, None] * mean[:, None, :]
    return Central(value, mean, square, spread, across - value[:, :, None] * mean[:, None, :])


def line(about: Central, w: Array, ridge: float, leaning: Array | None = None) -> LocalFit:
    """The line of every query from its moments; parameters as in ``local_fit``."""
    value, mean, square, spread, cross = about
    xp = namespace(value)
    W = np.diag(np.broadcast_to(w, mean.shape[1])) if np.ndim(w) < 2 else w
    W = like(W if leaning is None else W * leaning[:, None], value)
    # Where keys share a place, what is left of the difference is rounding: next to a small λ it would pass for a slope.
    nothing = NO_SPREAD_NEXT_TO_A_RIDGE if ridge > 0.0 else NO_SPREAD
    varies = xp.diagonal(spread, 0, 1, 2) > nothing * square  # (Q, d)
    if leaning is not None:
        varies, mean = varies * like(leaning, value), mean * like(leaning, value)
    spread = spread * varies[:, :, None] * varies[:, None, :]
    cross = cross * varies[:, None, :]
    right = xp.concatenate([cross, mean[:, None, :]], 1)  # (Q, P + 1, d)
    # Squares of a w could overflow; dividing it by a power of two leaves the line as it is.
    unit = _unit(w)
    W = W / unit
    centre = mean @ W
    if ridge > 0.0:
        guarded = xp.clip(ridge * (unit**-2 + (centre**2).sum(axis=1)), LEAST, None)
        system = W.T @ spread @ W + guarded[:, None, None] * like(np.eye(W.shape[1]), W)
        solved = xp.linalg.solve(system, (right @ W).mT).mT  # (Q, P + 1, r)
        in_delta = solved @ W.T
        solved = solved / unit
    else:
        in_delta = solved = _least_norm(spread, square, right)
    slope, toward = in_delta[:, :-1], in_delta[:, -1]
    output = value - (slope @ mean[:, :, None])[..., 0]
    left = xp.concatenate([1.0 + (mean * toward).sum(axis=1, keepdims=True), -toward], 1)
    if unit > 1.0:
        centre = xp.clip(centre, -LARGEST / unit, LARGEST / unit) * unit
    return LocalFit(as_numpy(output), slope, left, solved[:, :-1], solved[:, -1], centre, mean, spread, cross)


def _unit(w: Array) -> float:
    """The power of two in the largest w, at least 1."""
    return float(np.ldexp(1.0, max(int(np.frexp(np.abs(w).max(initial=0.0))[1]) - 1, 0)))


def _least_norm(spread: Array, square: Array, right: Array) -> Array:
    """C⁺ applied to each row of right (Q, R, d), in units of each feature's own spread.

    A variance is the rest of a mean square (Q, d), and rounded as such: directions that this could change by more than
    a part in 10⁸ are none.
    """
    variance = np.diagonal(spread, axis1=1, axis2=2)
    varies = variance > 0.0
    unit = np.where(varies, 1.0 / np.sqrt(np.where(varies, variance, 1.0)), 0.0)  # (Q, d)
    value, vector = np.linalg.eigh(spread * unit[:, :, None] * unit[:, None, :])
    with np.errstate(over="ignore"):
        rounded = np.where(varies, square / np.where(varies, variance, 1.0), 1.0).max(axis=1, initial=1.0)[:, None]
    kept = value > NO_DIRECTION * rounded
    inverse = np.where(kept, 1.0 / np.where(kept, value, 1.0), 0.0)
    turned = (right * unit[:, None, :]) @ vector * inverse[:, None, :]
    return np.asarray(turned @ vector.mT * unit[:, None, :])


class LocalAdjoint(NamedTuple):
    """What a cotangent of the outputs asks of the pullback, and what reaches w, λ and the queries by other ways."""

    adjoint: Adjoint  # where the fit is
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
    # A query that moves leaves its line behind: δ shrinks by as much.
    if ridge == 0.0:
        adjoint = Adjoint(fit.left, grad_output, xp.concatenate([height, slope], 1))
        return LocalAdjoint(adjoint, np.zeros(W.shape), slope, 0.0)
    beta = xp.einsum("qp,qpr->qr", grad_output, fit.beta)
    toward = -fit.left[:, 1:]  # W·pull
    short = fit.mean - (fit.spread @ toward[:, :, None])[..., 0]  # δ̄ − CW·pull
    rest = xp.einsum("qp,qpa->qa", grad_output, fit.cross) - (fit.spread @ slope[:, :, None])[..., 0]  # c − CWβ
    # How the output moves with the query's own ridge λ(1 + ‖z̄‖²), and that with z̄.
    by_ridge = ridge * (beta * fit.pull).sum(axis=1)
    off = (fit.centre**2).sum(axis=1)
    lean = 2.0 * by_ridge[:, None] * fit.centre
    plain = xp.concatenate([(by_ridge * (1.0 - off))[:, None], lean @ W.T], 1)
    adjoint = Adjoint(fit.left, grad_output, xp.concatenate([height, slope], 1), plain)
    w = as_numpy(fit.mean.T @ lean - short.T @ beta - rest.T @ fit.pull)
    return LocalAdjoint(adjoint, w, as_numpy(slope - lean @ W.T), float((by_ridge * (1.0 + off)).sum()))
