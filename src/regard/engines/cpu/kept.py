"""Moments of a few rows at many w, in plain numpy: all that does not depend on w is kept.

What ``few`` is to means, this is to lines: where a search looks at the same rows a thousand times, most of a pass
through an engine would be spent on getting ready for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.core.problem import Adjoint, Problem
from regard.core.scores import Gaussian
from regard.core.state import Partial
from regard.engines.cpu.swept import LARGEST, safe_to_square

Array = NDArray[Any]

# Numbers kept at most, 4 MB; with more the compiled programs are as fast.
MOST = 1 << 19


@dataclass(frozen=True, eq=False)
class Kept:
    """Gaussian moments of degree 2 at w, one number or (d,); make it by ``kept``."""

    places: Array  # (Q, K, 1 + d)  (1, δ)
    terms: Array  # (Q, K, M)  what is averaged: columns, δ, columns·δ, δδᵀ
    squares: Array  # (Q·K, d)  δ²
    bias: Array  # (Q, K)  log weights; −inf where a key may not be seen
    columns: Array  # (K, P)

    def holds(self, w: Array) -> bool:
        """Whether it serves this w."""
        return w.ndim < 2 and safe_to_square(w)

    def moments(self, w: Array) -> Partial:
        """As an engine's. *Cost*: O(Q·K·d²)."""
        score = self._score(w)
        peak = score.max(axis=1, initial=-np.inf)
        e = np.exp(score - np.where(np.isneginf(peak), 0.0, peak)[:, None])
        return Partial(peak, e.sum(axis=1), (e[:, None] @ self.terms)[:, 0])

    def pullback(self, w: Array, partial: Partial, adjoint: Adjoint) -> Array:
        """Gradient of w through the scores; ``partial`` has what ``moments`` returned, and perhaps more."""
        attended = partial.mass > 0.0
        weight = np.exp(self._score(w) - np.where(attended, partial.peak, np.inf)[:, None])
        weight /= np.where(attended, partial.mass, 1.0)[:, None]

        def line(c: Array) -> Array:
            return np.asarray((self.places @ c[:, :, None])[..., 0])

        slope = line(adjoint.left) * (adjoint.value @ self.columns.T - line(adjoint.right))
        if adjoint.plain is not None:
            slope += line(adjoint.plain)
        by = -((weight * slope).ravel() @ self.squares)
        return np.asarray(w * (by if w.ndim else by.sum()))

    def _score(self, w: Array) -> Array:
        by = np.broadcast_to(-0.5 * w**2, self.squares.shape[1])
        return np.asarray((self.squares @ by).reshape(self.bias.shape) + self.bias)


def kept(problem: Problem) -> Kept | None:
    """Lay out a problem of degree 2; None where this is no way."""
    queries, keys, d = len(problem.query), *problem.key.shape
    columns = problem.columns
    count = columns.shape[1] * (1 + d) + d + d * (d + 1) // 2
    if not isinstance(problem.score, Gaussian) or problem.degree != 2 or queries * keys * count > MOST:
        return None
    wide = not np.ptp(problem.key, axis=0).max(initial=0.0) < LARGEST if keys else False
    if problem.mask is not None or problem.query.dtype != np.float64 or wide:
        return None
    bias = np.zeros((queries, keys))
    if problem.log_weight is not None:
        bias += problem.log_weight
    if problem.exclude is not None:
        bias[problem.exclude[0][:, None] == problem.exclude[1][None, :]] = -np.inf
    delta = problem.key[None, :, :] - problem.query[:, None, :]
    value = np.broadcast_to(columns, (queries, *columns.shape))
    a, b = np.triu_indices(d)
    crossed = (value[..., None] * delta[:, :, None, :]).reshape(queries, keys, -1)
    terms = np.concatenate([value, delta, crossed, delta[..., a] * delta[..., b]], axis=2)
    places = np.concatenate([np.ones((queries, keys, 1)), delta], axis=2)
    return Kept(places, terms, (delta**2).reshape(-1, d), bias, columns)
