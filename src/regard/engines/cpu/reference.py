"""The reference engine: attention pooling in plain numpy and float64, written to be read.

Every other engine is tested against this one. It forms the weights of one tile of queries at a time: O(Q·K·d) time,
O(tile·K·d) memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from regard.core.arrays import Array
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Outcome, Problem, allowed
from regard.core.scores import Additive, DotProduct, Nearest, Radial, at_limit
from regard.core.state import Partial, decay

# Below this magnitude nothing overflows in ``gaussian_mean``.
MAX_MAGNITUDE = 1e100
# Below this peak scores are rounded too coarsely for ``gaussian_mean``.
MIN_PEAK = -50.0


def moments(problem: Problem, step: Step) -> Outcome:
    """Attention moments of every query, and the queries so far away that every score overflowed."""
    hard = isinstance(problem.score, Nearest)
    parts = [_moments(tile, hard) for tile in _tiles(problem, step)]
    peak, mass, flat = (np.concatenate([part[field] for part in parts]) for field in range(3))
    partial = Partial(peak, mass, flat, hard)
    return Outcome(partial, _overflowed(problem, partial.peak))


def weights(problem: Problem, step: Step) -> tuple[Array, Array | None]:
    """Attention weights (Q, K), zero in empty rows, and a mask of uncertified queries (None if there are none)."""
    peaks, rows = [], []
    for tile in _tiles(problem, step):
        peak, e = _attend(tile)
        mass = e.sum(axis=1, keepdims=True)
        peaks.append(peak)
        rows.append(e / np.where(mass > 0.0, mass, 1.0))
    return np.concatenate(rows), _overflowed(problem, np.concatenate(peaks))


def pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients through the scores, given the cotangent in ``adjoint``.

    ``partial`` is what ``moments`` returned; its mass may include further keys, which reduces the weights accordingly.
    """
    total: dict[str, Any] = {}
    start = 0
    for tile in _tiles(problem, step):
        rows = slice(start, start := start + tile.query.shape[0])
        part = _pullback(tile, partial.peak[rows], partial.mass[rows], adjoint.take(rows))
        for name, grad in part.items():
            if name == "query":
                total.setdefault(name, []).append(grad)
            elif name in total:
                total[name] = tuple(map(np.add, total[name], grad)) if isinstance(grad, tuple) else total[name] + grad
            else:
                total[name] = grad
    total["query"] = np.concatenate(total["query"])
    return Gradients(**{name: grad for name, grad in total.items() if name in want})


def gaussian_mean(query: Array, key: Array, value: Array, w: Array) -> tuple[Array, Array] | None:
    """Output (Q, P) and logsumexp (Q,) of a Gaussian mean of few pairs in float64, without building a ``Problem``.

    The same result as ``moments``, feature by feature; None if a number is not finite or extreme.
    """
    with np.errstate(all="ignore"):
        s = np.zeros((len(query), len(key)))
        for j in range(query.shape[1]):
            u = query[:, j, None] - key[:, j]
            u *= w if w.ndim == 0 else w[j]
            u *= u
            s += u
        s *= -0.5
        peak = s.max(axis=1)
        s -= peak[:, None]
        e = np.exp(s, out=s)
        mass = e.sum(axis=1)
        output = e @ value / mass[:, None]
        low, high = value.min(axis=0), value.max(axis=0)
        # If a number is not finite, neither is its sum, and comparisons with NaN are False.
        magnitudes = abs(query.sum()), abs(key.sum()), abs(output.sum()), -low.min(), high.max()
        if not (peak.min() > MIN_PEAK and all(number < MAX_MAGNITUDE for number in magnitudes)):
            return None
        return np.clip(output, low, high), peak + np.log(mass)


def _tiles(problem: Problem, step: Step) -> Iterator[Problem]:
    n = problem.query.shape[0]
    for start in range(0, max(n, 1), step.query_tile):
        yield problem.take(np.arange(start, min(start + step.query_tile, n)))


def _attend(problem: Problem) -> tuple[Array, Array]:
    """Peak (Q,) and unnormalised weights (Q, K)."""
    score, hard = problem.score, isinstance(problem.score, Nearest)
    # Hard attention compares distances only; sample weights then divide the weight among ties.
    s = -score.distance(problem.query, problem.key) if isinstance(score, Nearest) else score(problem.query, problem.key)
    s = adjusted(problem, s)
    peak = s.max(axis=1, initial=-np.inf)
    base = np.zeros(len(s))
    if isinstance(score, Radial) and (far := score.is_far(peak, *problem.key.shape)).any():
        part = problem.take(np.flatnonzero(far))
        rises = score.rises(part.query, part.key, peak[far])
        # Beside a large relative score a log sample weight would be rounded away, and ties are divided by it.
        top = adjusted(part, rises).max(axis=1)
        base[far] = peak[far] + top
        s[far] = adjusted(part, rises - top[:, None])
        peak[far] = s[far].max(axis=1)
    with np.errstate(invalid="ignore"):
        e = decay(s - peak[:, None], hard)
    return peak + base, e * problem.sample_weight if hard and problem.sample_weight is not None else e


def adjusted(problem: Problem, s: Array, keys: Any = slice(None)) -> Array:
    """Scores (Q, k) of some of the keys with sample weights, masks and exclusions applied."""
    hard = isinstance(problem.score, Nearest)
    if problem.log_weight is not None and not hard:
        s = s + problem.log_weight[keys]
    if problem.mask is not None:
        mask = problem.mask[:, keys]
        s = s + mask if mask.dtype != bool and not hard else np.where(allowed(mask), s, -np.inf)
    if problem.exclude is not None:
        s = np.where(problem.exclude[0][:, None] == problem.exclude[1][keys], -np.inf, s)
    return s


def _moments(problem: Problem, hard: bool) -> Partial:
    peak, e = _attend(problem)
    columns = problem.columns.astype(np.float64)
    flat = [e @ columns]
    # Squares of far differences may overflow; the local linear solve handles it.
    with np.errstate(over="ignore", invalid="ignore"):
        if problem.degree >= 1:
            delta = _delta(problem)
            flat += [
                np.einsum("qk,qka->qa", e, delta),
                np.einsum("qk,kp,qka->qpa", e, columns, delta).reshape(len(e), -1),
            ]
        if problem.degree >= 2:
            a, b = np.triu_indices(problem.key.shape[1])
            flat.append(np.einsum("qk,qka,qkb->qab", e, delta, delta)[:, a, b])
    return Partial(peak, e.sum(axis=1), np.concatenate(flat, axis=1), hard)


def _delta(problem: Problem) -> Array:
    return problem.key.astype(np.float64)[None, :, :] - problem.query.astype(np.float64)[:, None, :]  # (Q, K, d)


def _overflowed(problem: Problem, peak: Array) -> Array | None:
    """Queries so far from every key that all their scores overflow; None if that cannot happen."""
    score, mask = problem.score, problem.mask
    if isinstance(score, Nearest) or not isinstance(score, Radial) or score.kernel.compact:
        return None
    additive = mask is not None and mask.dtype != bool
    return at_limit(peak, float(np.finfo(np.float64).max), score.kernel.name == "laplace", additive)


def _pullback(problem: Problem, peak: Array, mass: Array, adjoint: Adjoint) -> dict[str, Any]:
    top, e = _attend(problem)
    attended = (mass > 0.0) & (top > -np.inf)
    # The peak of a hard state is a distance, and all attended keys are at it.
    rise = np.where(attended & (not isinstance(problem.score, Nearest)), top - np.where(attended, peak, 0.0), 0.0)
    alpha = e * np.where(attended, np.exp(np.where(attended, rise, 0.0)) / np.where(attended, mass, 1.0), 0.0)[:, None]
    columns, delta = problem.columns.astype(np.float64), _delta(problem)
    query, key = problem.query.astype(np.float64), problem.key.astype(np.float64)

    def affine(c: Array) -> Array:  # c·x with x = (1, δ) → (Q, K)
        return np.asarray(c[:, :1] + (np.einsum("qa,qka->qk", c[:, 1:], delta) if c.shape[1] > 1 else 0.0))

    left = alpha * affine(adjoint.left)
    g = left * (adjoint.value @ columns.T - affine(adjoint.right))  # cotangent of each score, (Q, K)
    if adjoint.plain is not None:
        g = g + alpha * affine(adjoint.plain)
    grads: dict[str, Any] = {"value": left.T @ adjoint.value}
    score = problem.score
    if isinstance(score, Nearest):
        grads |= {"w": np.zeros_like(score.w), "query": np.zeros_like(query), "key": np.zeros_like(key)}
    elif isinstance(score, Radial):
        c = g * _log_rate(score, query, key)
        outer = np.einsum("qk,qka,qkb->ab", c, delta, delta)
        w = score.w
        grads["w"] = 2.0 * (outer @ w if w.ndim == 2 else w * np.diag(outer) if w.ndim == 1 else w * np.trace(outer))
        # Sum before multiplying by w: for a huge w all but the nearest key must contribute nothing.
        for name, sums in (("key", np.einsum("qk,qka->ka", c, delta)), ("query", -np.einsum("qk,qka->qa", c, delta))):
            grads[name] = 2.0 * (sums @ w @ w.T if w.ndim == 2 else sums * w * w)
    elif isinstance(score, DotProduct):
        root = np.sqrt(max(query.shape[1], 1))
        grads["w"] = (g * (query @ key.T)).sum() / root
        grads["query"], grads["key"] = g @ key * (score.w / root), g.T @ query * (score.w / root)
    elif isinstance(score, Additive):
        hidden = np.tanh((query @ score.W_q.T)[:, None, :] + (key @ score.W_k.T)[None, :, :])
        inner = g[..., None] * (1.0 - hidden**2) * score.w_v
        grad_q, grad_k = inner.sum(axis=1), inner.sum(axis=0)  # (Q, h), (K, h)
        grads["w"] = (grad_q.T @ query, grad_k.T @ key, np.einsum("qk,qkh->h", g, hidden))
        grads["query"], grads["key"] = grad_q @ score.W_q, grad_k @ score.W_k
    return grads


def _log_rate(score: Radial, query: Array, key: Array) -> Array:
    """d log K / d(u²), zero where K = 0."""
    u2 = score.distance2(query, key)
    if score.kernel.name == "gaussian":
        return np.full_like(u2, -0.5)
    if score.kernel.name == "laplace":
        u = np.sqrt(u2)
        return -0.5 / np.where(u > 0.0, u, np.inf)
    value = score.kernel.value(u2)
    return np.asarray(score.kernel.rate(u2) / np.where(value > 0.0, value, np.inf))
