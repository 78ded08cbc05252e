"""How effective weights move with the query, and so how sure a marginal effect is.

A prediction is f(x) = Σ_i ℓ_i(x)·y_i, and its marginal effect ∂f/∂x_a = Σ_i (∂ℓ_i/∂x_a)·y_i is as linear in y. If rows
err independently, its variance is Σ_i (∂ℓ_i/∂x_a)²·var(y_i), with left-out residuals for the unknown errors; the mean
effect over some queries has the mean of their ∂ℓ. As with every standard error of a smoother, the bias is not in it.

With weights α, δ = key − query, e = δ − δ̄ and g = ∂score/∂x less its mean under α:

    mean            ∂α_i = α_i·g_i
    line            ℓ_i = α_i·(1 − p·e_i), p = Pδ̄ (``regard.lines``)
                    ∂_a ℓ_i = α_i·(g_ia·(1 − p·e_i) − ∂_a p·e_i + p·m_a),   m_a = Σ α·g_a·e,
                    ∂_a p = P(m_a − u_a − Σ α·g_a·(e·p)·e) − ∂_a ρ·W(WᵀCW + ρ)⁻²Wᵀδ̄,   ρ = λ(1 + ‖z̄‖²)
    slope of it     P·c = Σ_i (α_i·P·e_i)·y_i
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.lines import NO_DIRECTION, LocalFit
from regard.scores import Nearest, Radial

Array = NDArray[Any]

# Derivatives of weights held at once.
TILE_CELLS = 1 << 19


class AverageEffects(NamedTuple):
    """What ``average_effects`` returns; printing it gives one line per feature."""

    effect: Array  # (d,), or (P, d) for several outputs: the mean of the marginal effects
    error: Array  # the same shape: its standard error, for these queries
    names: tuple[str, ...]  # (d,)
    rows: int  # how many queries it is the mean of

    def __str__(self) -> str:
        long = max(len("feature"), *map(len, self.names))
        lines = [f"average effects over {self.rows:,} rows, ± standard error"]
        tables = self.effect.reshape(-1, len(self.names)), self.error.reshape(-1, len(self.names))
        for number, (effects, errors) in enumerate(zip(*tables, strict=True)):
            if self.effect.ndim == 2:
                lines.append(f"output {number}")
            for name, effect, error in zip(self.names, effects, errors, strict=True):
                lines.append(f"  {name:<{long}}  {effect:>10.4g} ± {error:.2g}")
        return "\n".join(lines)


def leaning(weights: Array, left: Array, key: Array, query: Array) -> Array:
    """Effective weights (Q, K) of local lines, α_i·(left·(1, δ_i)), from weights (Q, K) and left (Q, 1 + d).

    *Cost*: O(Q·K·d) time, a tile of differences.
    """
    out = weights.copy()
    for rows in np.array_split(np.arange(len(query)), max(1, weights.size * query.shape[1] >> 22)):
        # A line leans on nothing where an entry is missing.
        delta = np.nan_to_num(key[None].astype(np.float64) - query[rows][:, None], nan=0.0)
        # left·(1, δ) is 1 at the mean of δ: from there, no two large numbers cancel. What rounding leaves of the mean
        # goes the second time.
        for _ in range(2):
            delta -= np.einsum("qk,qka->qa", weights[rows], delta)[:, None]
        out[rows] *= 1.0 + np.einsum("qa,qka->qk", left[rows, 1:], delta)
    return out


def score_slopes(score: Radial, delta: Array, weights: Array) -> Array:
    """∂score/∂query (Q, K, d) less its mean under ``weights`` (Q, K); ``delta`` (Q, K, d) = key − query.

    0 for hard attention, whose weights jump and do not move. *Cost*: O(Q·K·d·r).
    """
    if isinstance(score, Nearest):
        return np.zeros(delta.shape)
    w = np.asarray(score.w)
    W = w if w.ndim == 2 else np.diag(np.broadcast_to(w, delta.shape[2]))
    turned = (delta @ W) @ W.T if w.ndim == 2 else delta * np.diagonal(W) ** 2
    if score.kernel.name != "gaussian":
        u2 = (turned * delta).sum(axis=2)
        if score.kernel.name == "laplace":
            pull = 1.0 / np.sqrt(np.where(u2 > 0.0, u2, np.inf))
        else:
            height = score.kernel.value(u2)
            pull = np.where(height > 0.0, -2.0 * score.kernel.rate(u2) / np.where(height > 0.0, height, 1.0), 0.0)
        turned = turned * pull[:, :, None]
    return np.asarray(turned - (weights[:, None, :] @ turned))


def mean_effects(weights: Array, slopes: Array) -> Array:
    """∂α/∂query (Q, K, d) of weights (Q, K), from ``score_slopes``."""
    return np.asarray(weights[:, :, None] * slopes)


def line_effects(weights: Array, slopes: Array, delta: Array, fit: LocalFit, W: Array, ridge: float) -> Array:
    """∂ℓ/∂query (Q, K, d) of the effective weights of local lines; W (d, r) as in ``regard.lines``.

    Where the keys in reach do not span every direction, those that they do span. *Cost*: O(Q·K·d²).
    """
    inverse = inverse_spread(fit, W, ridge)  # (Q, d, d)
    mean = np.asarray(fit.mean)
    away, toward = delta - mean[:, None, :], -np.asarray(fit.left)[:, 1:]  # e, p
    lean = (away @ toward[:, :, None])[..., 0]  # (Q, K)  p·e
    moved = np.einsum("qk,qka,qkb->qab", weights, slopes, away, optimize=True)  # m_a
    bent = np.einsum("qk,qka,qkb->qab", weights * lean, slopes, away, optimize=True)
    turn = (moved - np.eye(delta.shape[2]) - bent) @ inverse  # ∂_a p
    if ridge > 0.0:
        system = _system(fit, W, ridge)
        again = np.linalg.solve(system, np.asarray(fit.pull)[:, :, None])[..., 0] @ W.T
        rise = 2.0 * ridge * ((moved - np.eye(delta.shape[2])) @ (np.asarray(fit.centre) @ W.T)[:, :, None])[..., 0]
        turn = turn - rise[:, :, None] * again[:, None, :]
    change = slopes * (1.0 - lean)[:, :, None] - away @ turn.mT + (moved @ toward[:, :, None])[:, None, :, 0]
    return np.asarray(weights[:, :, None] * change)


def slope_weights(weights: Array, delta: Array, fit: LocalFit, W: Array, ridge: float) -> Array:
    """What each key's value counts in the slopes of local lines (Q, K, d)."""
    away = delta - np.asarray(fit.mean)[:, None, :]
    return np.asarray(weights[:, :, None] * (away @ inverse_spread(fit, W, ridge)))


def inverse_spread(fit: LocalFit, W: Array, ridge: float) -> Array:
    """P = W(WᵀCW + ρ)⁻¹Wᵀ (Q, d, d); with ridge = 0 the pseudo-inverse of C in units of its diagonal."""
    spread = np.asarray(fit.spread)
    if ridge > 0.0:
        system = _system(fit, W, ridge)
        return np.asarray(W @ np.linalg.solve(system, np.broadcast_to(W.T, (len(system), *W.T.shape))))
    variance = np.diagonal(spread, axis1=1, axis2=2)
    varies = variance > 0.0
    safe = np.where(varies, variance, 1.0)
    unit = np.where(varies, 1.0 / np.sqrt(safe), 0.0)
    value, vector = np.linalg.eigh(spread * unit[:, :, None] * unit[:, None, :])
    # As many directions as ``regard.lines`` trusts.
    with np.errstate(over="ignore"):
        rounded = np.where(varies, 1.0 + np.asarray(fit.mean) ** 2 / safe, 1.0).max(axis=1, initial=1.0)
    kept = value > NO_DIRECTION * rounded[:, None]
    inverse = np.where(kept, 1.0 / np.where(kept, value, 1.0), 0.0)
    turned = vector * inverse[:, None, :] @ vector.mT
    return np.asarray(turned * unit[:, :, None] * unit[:, None, :])


def effect_errors(changes: Callable[[slice], Array], queries: int, residual: Array, copies: Array, tile: int) -> Array:
    """√Σ_i (∂ℓ_i/∂x)²·residual_i²/copies_i (Q, P, d); ``changes(rows)`` gives ∂ℓ (tile, K, d).

    ``residual`` is (K, P), ``copies`` (K,) how many rows a row stands for. *Cost*: O(Q·K·d·(d + P)) and a tile.
    """
    squares = residual**2 / copies[:, None]
    parts = [
        np.einsum("qka,kp->qpa", changes(slice(start, start + tile)) ** 2, squares, optimize=True)
        for start in range(0, queries, tile)
    ]
    return np.asarray(np.sqrt(np.concatenate(parts)))


def average_change(changes: Callable[[slice], Array], tile: int, share: Array) -> Array:
    """Σ_q share_q·∂ℓ_i(x_q)/∂x (K, d): what the mean effect is made of; ``share`` is (Q,)."""
    total: Any = 0.0
    for start in range(0, len(share), tile):
        rows = slice(start, start + tile)
        total = total + np.einsum("q,qka->ka", share[rows], changes(rows))
    return np.asarray(total)


def _system(fit: LocalFit, W: Array, ridge: float) -> Array:
    """WᵀCW + ρ (Q, r, r)."""
    guarded = ridge * (1.0 + (np.asarray(fit.centre) ** 2).sum(axis=1))
    return np.asarray(W.T @ np.asarray(fit.spread) @ W + guarded[:, None, None] * np.eye(W.shape[1]))
