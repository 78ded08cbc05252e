"""Left-out answers and their criteria from the formulas, at 80 bits and in complex numbers.

Shares no code with the library. All of it is analytic in w and log λ, so a step of 1e-30 along the imaginary axis gives
a derivative without any cancellation: ``slope`` is the truth that gradients are held to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from support import oracle

Array = NDArray[Any]
LONG = np.clongdouble
TINY = np.longdouble(1e-30)


class Answers(NamedTuple):
    """The answer to every row, and the parts it is computed from."""

    output: Array  # (n, P)
    alpha: Array  # (n, n)
    line: Array  # (n, n, P)  the line of each row at every other: f at degree 0
    lean: Array  # (n, n)  Σ_k α·lean·v is the output
    condition: Array  # (n,)  of the row's least-squares problem; 1 at degree 0
    trace: Any  # Σ ∂f_i/∂y_i


def as_matrix(w: Array, width: int) -> Array:
    w = np.asarray(w, LONG)
    return w if w.ndim == 2 else np.diag(np.broadcast_to(w, width))


def solve(system: Array, right: Array) -> Array:
    """system (Q, r, r) \\ right (Q, R, r), by elimination: numpy's does not know 80 bits."""
    a = np.concatenate([system, right.transpose(0, 2, 1)], axis=2)
    r = system.shape[1]
    rows = np.arange(len(a))
    for i in range(r):
        pivot = i + np.abs(a[:, i:, i]).argmax(axis=1)
        a[rows, i], a[rows, pivot] = a[rows, pivot].copy(), a[rows, i].copy()
        a[:, i] /= a[:, i, i, None]
        for j in range(r):
            if j != i:
                a[:, j] -= a[:, j, i, None] * a[:, i]
    return a[:, :, r:].transpose(0, 2, 1)


def answers(
    X: Array,
    v: Array,
    w: Array,
    *,
    kernel: str = "gaussian",
    degree: int = 0,
    ridge: Any = 0.0,
    own: bool = False,
) -> Answers:
    """Answer every row from the others, or with ``own`` from all rows."""
    X, v = np.asarray(X, np.longdouble), np.asarray(v, np.longdouble)
    W = as_matrix(w, X.shape[1])
    delta = X[None] - X[:, None]  # (n, n, d)
    barred = np.eye(len(X), dtype=bool) & (not own)
    z = delta @ W
    distance = np.where(barred, np.inf, (z * z).sum(-1).real)
    nearest = distance.argmin(axis=1)
    # Relative to the nearest row: what is far away cancels before it can round.
    z0 = z[np.arange(len(X)), nearest][:, None]
    beyond = (X[None] - X[nearest][:, None]) @ W
    if kernel == "gaussian":
        e = np.exp(-np.where(barred, 0, (beyond * (z + z0)).sum(-1)) / 2)
    else:
        u2 = (z * z).sum(-1)
        e = oracle.kernel(kernel, np.sqrt(np.where(u2.real > 0, u2, 1)))
        e = np.where(u2.real > 0, e, 1)
    e = np.where(barred, 0, e)
    alpha = e / e.sum(axis=1, keepdims=True)
    mean = alpha @ v
    hat = alpha[np.arange(len(X)), np.arange(len(X))]
    if degree == 0:
        line = np.broadcast_to(mean[:, None], (len(X), *v.shape))
        return Answers(mean, alpha, line, np.ones(alpha.shape), np.ones(len(X)), hat.sum())
    if not ridge:
        # W drops out: in the units of X no digit is lost on it.
        z, z0, beyond = delta, delta[np.arange(len(X)), nearest][:, None], X[None] - X[nearest][:, None]
    m = np.einsum("qk,qkr->qr", alpha, beyond)
    around = beyond - m[:, None]
    cross = np.einsum("qk,qkp,qka->qpa", alpha, v[None] - mean[:, None], around)
    middle = z0[:, 0] + m  # z̄
    guarded = ridge * (1 + (middle * middle).sum(axis=1))
    spread = np.einsum("qk,qka,qkb->qab", alpha, around, around) + guarded[:, None, None] * np.eye(z.shape[2])
    solved = solve(spread, np.concatenate([cross, middle[:, None]], axis=1))
    beta, pull = solved[:, :-1], solved[:, -1]
    output = mean - np.einsum("qpa,qa->qp", beta, middle)
    line = output[:, None] + np.einsum("qpa,qka->qkp", beta, z)
    lean = 1 - np.einsum("qa,qka->qk", pull, around)
    trace = (hat * (1 + (pull * middle).sum(-1))).sum()
    return Answers(output, alpha, line, lean, _condition(alpha, z, guarded), trace)


def _condition(alpha: Array, z: Array, guarded: Array) -> Array:
    """How much least squares on (1, z) magnify rounding, each coordinate in units of its own mean square."""
    alpha, z, guarded = (np.real(part).astype(float) for part in (alpha, z, guarded))
    unit = np.sqrt(np.einsum("qk,qka->qa", alpha, z**2) + guarded[:, None])
    x = np.concatenate([np.ones((*z.shape[:2], 1)), z / unit[:, None]], axis=2)
    extra = np.concatenate([np.zeros((len(z), 1)), guarded[:, None] / unit**2], axis=1)
    return np.linalg.cond(np.einsum("qk,qka,qkb->qab", alpha, x, x) + extra[:, :, None] * np.eye(x.shape[2]))


def criterion(X: Array, v: Array, w: Array, name: str = "loo", **options: Any) -> Any:
    """loo, gcv or aicc of squared errors."""
    found = answers(X, v, w, own=name != "loo", **options)
    n = len(v)
    error = ((np.asarray(v, np.longdouble) - found.output) ** 2).sum() / n / v.shape[1]
    if name == "gcv":
        return error / (1 - found.trace / n) ** 2
    if name == "aicc":
        return np.log(error) + (1 + found.trace / n) / (1 - (found.trace + 2) / n)
    return error


def slope(function: Callable[[Array], Any], w: Array) -> Array:
    """Derivative of an analytic function at w, entry by entry."""
    w = np.asarray(w, LONG)
    found = np.zeros(w.shape, np.longdouble)
    for index in np.ndindex(w.shape):
        moved = w.copy()
        # Relative to w itself, so that a step is tiny at every scale.
        step = TINY * max(np.abs(w[index]), np.longdouble(1e-300))
        moved[index] += 1j * step
        found[index] = np.imag(function(moved)) / step
    return found
