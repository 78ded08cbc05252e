"""Marginal effects: derivatives of predictions with respect to the query, and their standard errors.

A prediction is f(x) = Σ_i ℓ_i(x)·y_i, and its marginal effect ∂f/∂x_a = Σ_i (∂ℓ_i/∂x_a)·y_i is linear in y as well.
With independent errors its variance is Σ_i (∂ℓ_i/∂x_a)²·var(y_i), estimated from left-out residuals; the mean effect
over some queries has the mean of their ∂ℓ. Like every standard error of a smoother, it does not include the bias.

With weights α, δ = key − query, e = δ − δ̄ and g = ∂score/∂x less its mean under α:

    mean            ∂α_i = α_i·g_i
    line            ℓ_i = α_i·(1 − p·e_i), p = Pδ̄ (``regard.core.local_fits``)
                    ∂_a ℓ_i = α_i·(g_ia·(1 − p·e_i) − ∂_a p·e_i + p·m_a),   m_a = Σ α·g_a·e,
                    ∂_a p = P(m_a − u_a − Σ α·g_a·(e·p)·e) − ∂_a ρ·W(WᵀCW + ρ)⁻²Wᵀδ̄,   ρ = λ(1 + ‖z̄‖²)
    slope of it     P·c = Σ_i (α_i·P·e_i)·y_i
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.core.local_fits import ZERO_EIGENVALUE, LocalFit
from regard.core.scores import Nearest, Radial
from regard.data.columns import Coding
from regard.model.smoother import Answer, Head, Smoother, tiles

METHODS = ("derivative", "slope")
# Derivatives of weights in one tile.
TILE_CELLS = 1 << 19


class AverageEffects(NamedTuple):
    """Result of ``average_effects``; ``print`` shows one line per feature."""

    effect: Array  # (d,), or (P, d) for several outputs: the mean of the marginal effects
    error: Array  # the same shape: its standard error, for these queries
    names: tuple[str, ...]  # (d,)
    rows: int  # number of queries averaged over

    def __str__(self) -> str:
        width = max(len("feature"), *map(len, self.names))
        lines = [f"average effects over {self.rows:,} rows, ± standard error"]
        tables = self.effect.reshape(-1, len(self.names)), self.error.reshape(-1, len(self.names))
        for number, (effects, errors) in enumerate(zip(*tables, strict=True)):
            if self.effect.ndim == 2:
                lines.append(f"output {number}")
            for name, effect, error in zip(self.names, effects, errors, strict=True):
                lines.append(f"  {name:<{width}}  {effect:>10.4g} ± {error:.2g}")
        return "\n".join(lines)


def marginal_effects(smoother: Smoother, query: Array) -> Answer:
    """∂prediction/∂x (Q, P, columns of X): the exact derivative of the prediction, including that of the weights.

    Scalings are piecewise linear, so it jumps at their knots. *Empty rows*: 0, or NaN with ``empty="nan"``. *Cost*:
    three times that of a prediction for every column of y.
    """
    effects, empty = smoother.mixed(query, _head_effects, derivative=True)
    coding, values = smoother.rows.coding, smoother.rows.columns
    if smoother.tempering is not None:
        effects = smoother.tempering.derivatives(smoother.answer(query, values).output, effects)

    def answer(at: Array) -> Array:
        return smoother.tempered(smoother.answer(at, values).output)

    return Answer(of_columns(coding, query, effects, answer), empty)


def slopes(smoother: Smoother, query: Array) -> Answer:
    """Slopes (Q, P, d) of the local lines of a model with one head."""

    def of_head(one: Smoother, head: Head, at: Array) -> Answer:
        _, scale, local = one.local(head, at, one.rows.columns)
        slope = local.fit.slope * scale[:, None]
        empty = local.partial.mass <= 0.0
        slope[empty] = np.nan if one.empty == "nan" else 0.0
        return Answer(slope, empty)

    return smoother.mixed(query, of_head)


def effect_errors(smoother: Smoother, query: Array, method: str, residual: Array) -> Array:
    """Standard errors (Q, P, columns of X) of the effects, from left-out residuals (K, P).

    √Σ_i (∂ℓ_i/∂x)²·residual_i². *Cost*: O(Q·K·d²) time and a tile.
    """
    squares = residual**2 / smoother.rows.copies[:, None]
    parts = [
        np.einsum("qka,kp->qpa", changes(smoother, query[rows], method) ** 2, squares, optimize=True)
        for rows in tiles(len(query), smoother.rows.key.size, TILE_CELLS)
    ]
    return np.asarray(np.sqrt(np.concatenate(parts)))


def average_effects(
    smoother: Smoother, query: Array, method: str, weight: Array, residual: Array
) -> tuple[Array, Array]:
    """Mean effect (P, columns of X) over queries with normalised weights ``weight`` (Q,), and its standard error."""
    total = np.zeros(())
    for rows in tiles(len(query), smoother.rows.key.size, TILE_CELLS):
        total = total + np.einsum("q,qka->ka", weight[rows], changes(smoother, query[rows], method))
    change, values = np.asarray(total), smoother.rows.columns
    effect = (values - values.mean(axis=0)).T @ change
    return effect, np.sqrt((residual**2 / smoother.rows.copies[:, None]).T @ change**2)


def changes(smoother: Smoother, query: Array, method: str) -> Array:
    """∂ℓ/∂x (Q, K, columns of X) of the effective weights; with ``method`` "slope" the weights of y in the slopes."""
    smoother, query = smoother.exactly(), query.astype(np.float64)
    found, _ = smoother.mixed(query, partial(_head_changes, method), derivative=True)
    if smoother.tempering is not None:
        weights = replace(smoother, tempering=None).effective_weights(query).output
        found = smoother.tempering.weight_derivatives(weights, found, smoother.rows.value)
    return of_columns(smoother.rows.coding, query, found, lambda at: smoother.effective_weights(at).output)


def of_columns(coding: Coding | None, query: Array, effects: Array, answer: Callable[[Array], Array]) -> Array:
    """Effects of features (Q, P, D) on ``answer(queries)`` (Q, P) as effects of the columns of X (Q, P, columns).

    The effect of a category is the answer minus that for the same row with the first category instead.
    """
    if coding is None:
        return effects
    out = np.empty((*effects.shape[:2], coding.columns))
    for part, first in zip(coding.parts, coding.firsts, strict=True):
        here = slice(first, first + part.width)
        steps = part.slopes(query[:, here])
        if steps is None:
            other = query.copy()
            other[:, here] = part.coded([np.array(part.levels[:1], object)])
            out[..., part.columns[0]] = answer(query) - answer(other)
        else:
            out[..., list(part.columns)] = np.einsum("qpf,qfc->qpc", effects[..., here], steps)
    return out


def _head_effects(smoother: Smoother, head: Head, query: Array) -> Answer:
    """∂output/∂z (Q, P, d) of one head."""
    value = smoother.rows.columns
    _, scale, local = smoother.local(head, query, value)
    effects = np.empty((len(query), value.shape[1], query.shape[1]))
    for p in range(value.shape[1]):
        along = np.zeros((len(query), value.shape[1]))
        along[:, p] = 1.0
        grad = local.gradients(along, frozenset({"query"})).query
        assert grad is not None
        effects[:, p] = grad * scale[p]
    empty = local.partial.mass <= 0.0
    effects[empty] = np.nan if smoother.empty == "nan" else 0.0
    return Answer(effects, empty)


def _head_changes(method: str, smoother: Smoother, head: Head, query: Array) -> Answer:
    """∂ℓ/∂z (Q, K, d) of one head with a fixed bandwidth; 0 for empty rows."""
    weights, empty = smoother.head_weights(head, query)
    score, key = head.score, smoother.rows.placed(head.transform)
    assert isinstance(score, Radial)
    # A missing entry contributes no distance.
    delta = np.nan_to_num(key.astype(np.float64)[None] - query[:, None], nan=0.0)
    gradient = score_slopes(score, delta, weights)
    if not head.degree:
        change = weights[:, :, None] * gradient
    else:
        fit = smoother.local(head, query, np.zeros((len(key), 1)))[2].fit
        W = head.w if head.w.ndim == 2 else np.diag(np.broadcast_to(head.w, query.shape[1]))
        if method == "slope":
            away = delta - np.asarray(fit.mean)[:, None, :]
            change = weights[:, :, None] * (away @ inverse_covariance(fit, W, head.ridge))
        else:
            change = line_effects(weights, gradient, delta, fit, W, head.ridge)
    return Answer(np.where(empty[:, None, None], 0.0, change), empty)


def score_slopes(score: Radial, delta: Array, weights: Array) -> Array:
    """∂score/∂query (Q, K, d) minus its mean under ``weights`` (Q, K); ``delta`` (Q, K, d) = key − query.

    0 for hard attention, whose weights are piecewise constant. *Cost*: O(Q·K·d·r).
    """
    if isinstance(score, Nearest):
        return np.zeros(delta.shape)
    w = np.asarray(score.w)
    W = w if w.ndim == 2 else np.diag(np.broadcast_to(w, delta.shape[2]))
    turned = (delta @ W) @ W.T if w.ndim == 2 else delta * np.diagonal(W) ** 2
    if score.kernel.name != "gaussian":
        u2 = (turned * delta).sum(axis=2)
        if score.kernel.name == "laplace":
            rate = 1.0 / np.sqrt(np.where(u2 > 0.0, u2, np.inf))
        else:
            height = score.kernel.value(u2)
            rate = np.where(height > 0.0, -2.0 * score.kernel.rate(u2) / np.where(height > 0.0, height, 1.0), 0.0)
        turned = turned * rate[:, :, None]
    return np.asarray(turned - (weights[:, None, :] @ turned))


def line_effects(weights: Array, slopes: Array, delta: Array, fit: LocalFit, W: Array, ridge: float) -> Array:
    """∂ℓ/∂query (Q, K, d) of the effective weights of local lines; W (d, r) as in ``regard.core.local_fits``.

    If the keys with weight do not span every direction, along those they span. *Cost*: O(Q·K·d²).
    """
    inverse = inverse_covariance(fit, W, ridge)  # (Q, d, d)
    mean = np.asarray(fit.mean)
    away, toward = delta - mean[:, None, :], -np.asarray(fit.left)[:, 1:]  # e, p
    lean = (away @ toward[:, :, None])[..., 0]  # (Q, K)  p·e
    moved = np.einsum("qk,qka,qkb->qab", weights, slopes, away, optimize=True)  # m_a
    bent = np.einsum("qk,qka,qkb->qab", weights * lean, slopes, away, optimize=True)
    turn = (moved - np.eye(delta.shape[2]) - bent) @ inverse  # ∂_a p
    if ridge > 0.0:
        system = _system(fit, W, ridge)
        again = np.linalg.solve(system, np.asarray(fit.solved_offset)[:, :, None])[..., 0] @ W.T
        rise = 2.0 * ridge * ((moved - np.eye(delta.shape[2])) @ (np.asarray(fit.centre) @ W.T)[:, :, None])[..., 0]
        turn = turn - rise[:, :, None] * again[:, None, :]
    change = slopes * (1.0 - lean)[:, :, None] - away @ turn.mT + (moved @ toward[:, :, None])[:, None, :, 0]
    return np.asarray(weights[:, :, None] * change)


def inverse_covariance(fit: LocalFit, W: Array, ridge: float) -> Array:
    """P = W(WᵀCW + ρ)⁻¹Wᵀ (Q, d, d); with ridge = 0 the pseudo-inverse of C in units of its diagonal."""
    spread = np.asarray(fit.covariance)
    if ridge > 0.0:
        system = _system(fit, W, ridge)
        return np.asarray(W @ np.linalg.solve(system, np.broadcast_to(W.T, (len(system), *W.T.shape))))
    variance = np.diagonal(spread, axis1=1, axis2=2)
    varies = variance > 0.0
    safe = np.where(varies, variance, 1.0)
    unit = np.where(varies, 1.0 / np.sqrt(safe), 0.0)
    value, vector = np.linalg.eigh(spread * unit[:, :, None] * unit[:, None, :])
    # The same directions as ``regard.core.local_fits`` uses.
    with np.errstate(over="ignore"):
        rounded = np.where(varies, 1.0 + np.asarray(fit.mean) ** 2 / safe, 1.0).max(axis=1, initial=1.0)
    regular = value > ZERO_EIGENVALUE * rounded[:, None]
    inverse = np.where(regular, 1.0 / np.where(regular, value, 1.0), 0.0)
    turned = vector * inverse[:, None, :] @ vector.mT
    return np.asarray(turned * unit[:, :, None] * unit[:, None, :])


def _system(fit: LocalFit, W: Array, ridge: float) -> Array:
    """WᵀCW + ρ (Q, r, r)."""
    guarded = ridge * (1.0 + (np.asarray(fit.centre) ** 2).sum(axis=1))
    return np.asarray(W.T @ np.asarray(fit.covariance) @ W + guarded[:, None, None] * np.eye(W.shape[1]))
