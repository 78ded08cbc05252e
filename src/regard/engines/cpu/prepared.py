"""Gaussian means or local lines of the same rows at many w; what does not depend on w is computed once.

A search evaluates the same rows at dozens or thousands of w, and most of an engine's pass would be preparation. A
prepared problem has the two operations of an engine, with w as an argument. ``pooling.runner.prepare`` decides before a
search which of these classes is used, if any:

- ``FewMeans``: means of a few dozen rows, in plain numpy;
- ``FewLines``: moments of degree 2 of a few dozen rows, in plain numpy;
- ``prepared_tiles.TiledMeans``: means of a few thousand rows, by compiled programs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard.core.arrays import Array
from regard.core.problem import Adjoint, Outcome, Problem, moment_count
from regard.core.scores import Gaussian
from regard.core.state import Partial

# Differences and w of this size have squares, and products of squares, that neither overflow nor underflow.
MIN_MAGNITUDE = 1e-70
MAX_MAGNITUDE = 1e70
# Above this mass per key, what underflow of exp removes is below rounding.
MIN_MASS = 1e-280
# Largest number of terms stored for lines, 4 MB; with more the compiled programs are as fast.
MAX_ENTRIES = 1 << 19


class Prepared:
    """A problem of Q queries and d features, ready to be evaluated at any w for which ``holds(w)``."""

    def holds(self, w: Array) -> bool:
        """Whether w is a scalar or (d,), and none of its squares overflows or underflows."""
        size = np.abs(w[w != 0.0])
        return w.ndim < 2 and bool(((size > MIN_MAGNITUDE) & (size < MAX_MAGNITUDE)).all())

    def moments(self, w: Array, *, slopes: bool = False) -> Outcome:
        """The state at w, and a mask of queries whose mass is too small for it to be reliable.

        Means are relative to each query's own value: the moments are Σ exp(score)·(value − own) and, with ``slopes``,
        what ``pullback`` needs in addition. Lines have an engine's moments of degree 2, which are all that it needs.
        *Cost*: O(Q·K·d), for lines O(Q·K·d²).
        """
        raise NotImplementedError

    def pullback(self, w: Array, partial: Partial, adjoint: Adjoint) -> Array:
        """Gradient of w, shaped as w; ``partial`` is what ``moments`` returned; for lines it may hold more keys."""
        raise NotImplementedError


def shaped_as(w: Array, by_square: Array) -> Array:
    """The gradient by w from the gradient (d,) by w²/2."""
    return np.asarray(w * (by_square if w.ndim else by_square.sum()))


def is_plain_mean(problem: Problem) -> bool:
    """Whether a problem is a Gaussian mean of one column in float64, w no matrix, with labels and no mask."""
    plain = isinstance(problem.score, Gaussian) and problem.score.w.ndim < 2 and problem.query.dtype == np.float64
    alone = problem.mask is None and problem.exclude is not None
    return plain and alone and not problem.degree and problem.columns.shape[1] == 1


@dataclass(frozen=True, eq=False)
class FewMeans(Prepared):
    """Means from the squares of all differences; built by ``few_means``."""

    squares: Array  # (Q, K, d)  δ²
    gain: Array  # (Q, K)  value − own
    bias: Array  # (Q, K)  log weights; −inf where a key may not be attended to
    staying: Array  # (Q,)  mass at the query's own position, with its own value
    least_mass: float

    def moments(self, w: Array, *, slopes: bool = False) -> Outcome:
        by = np.broadcast_to(-0.5 * np.asarray(w) ** 2, self.squares.shape[2])
        score = self.squares @ by + self.bias
        # Relative to its peak the nearest key has weight exactly 1; copies of the query have score 0.
        peak = score.max(axis=1, initial=-np.inf)
        peak = np.where((self.staying > 0.0) | np.isneginf(peak), 0.0, peak)
        e, unit = np.exp(score - peak[:, None]), np.exp(peak)
        mass, error = e.sum(axis=1), (e * self.gain).sum(axis=1)
        sums = np.empty((len(mass), 1 + slopes * len(by)))
        sums[:, 0] = unit * error
        if slopes:
            total = mass + self.staying
            mean = error / np.where(total > 0.0, total, 1.0)
            gains = ((e * (self.gain - mean[:, None]))[:, None] @ self.squares)[:, 0]
            sums[:, 1:] = unit[:, None] * gains
        total = unit * mass + self.staying
        return Outcome(Partial(np.zeros(len(total)), total, sums), total < self.least_mass)

    def pullback(self, w: Array, partial: Partial, adjoint: Adjoint) -> Array:
        return shaped_as(w, (adjoint.value[:, 0] / partial.mass) @ -partial.moments[:, 1:])


def few_means(problem: Problem, own: Array, staying: Array | None) -> FewMeans | None:
    """Prepare a problem whose queries have values ``own`` (Q,), and mass ``staying`` (Q,) of copies of themselves.

    Returns None if it is not a plain mean, or if squares overflow.
    """
    if not is_plain_mean(problem) or not _squares_fit(problem):
        return None
    bias, delta = _bias(problem), problem.key[None, :, :] - problem.query[:, None, :]
    gain = problem.columns[:, 0] - own[:, None]
    stays = np.zeros(len(bias)) if staying is None else staying
    return FewMeans(delta**2, gain, bias, stays, len(problem.key) * MIN_MASS)


@dataclass(frozen=True, eq=False)
class FewLines(Prepared):
    """Moments of degree 2 from all terms that are averaged; built by ``few_lines``."""

    affine: Array  # (Q, K, 1 + d)  (1, δ)
    terms: Array  # (Q, K, M)  the averaged terms: columns, δ, columns·δ, δδᵀ
    squares: Array  # (Q·K, d)  δ²
    bias: Array  # (Q, K)  log weights; −inf where a key may not be attended to
    columns: Array  # (K, P)

    def moments(self, w: Array, *, slopes: bool = False) -> Outcome:  # noqa: ARG002
        score = self._score(w)
        peak = score.max(axis=1, initial=-np.inf)
        e = np.exp(score - np.where(np.isneginf(peak), 0.0, peak)[:, None])
        return Outcome(Partial(peak, e.sum(axis=1), (e[:, None] @ self.terms)[:, 0]))

    def pullback(self, w: Array, partial: Partial, adjoint: Adjoint) -> Array:
        attended = partial.mass > 0.0
        weight = np.exp(self._score(w) - np.where(attended, partial.peak, np.inf)[:, None])
        weight /= np.where(attended, partial.mass, 1.0)[:, None]

        def line(c: Array) -> Array:
            return np.asarray((self.affine @ c[:, :, None])[..., 0])

        slope = line(adjoint.left) * (adjoint.value @ self.columns.T - line(adjoint.right))
        if adjoint.plain is not None:
            slope += line(adjoint.plain)
        return shaped_as(w, -((weight * slope).ravel() @ self.squares))

    def _score(self, w: Array) -> Array:
        by = np.broadcast_to(-0.5 * w**2, self.squares.shape[1])
        return np.asarray((self.squares @ by).reshape(self.bias.shape) + self.bias)


def few_lines(problem: Problem) -> FewLines | None:
    """Prepare a problem of degree 2; None if it is not Gaussian in float64 without a mask, or too large."""
    queries, keys, d = len(problem.query), *problem.key.shape
    columns, plain = problem.columns, isinstance(problem.score, Gaussian) and problem.mask is None
    if not plain or problem.degree != 2 or queries * keys * moment_count(columns.shape[1], d, 2) > MAX_ENTRIES:
        return None
    if problem.query.dtype != np.float64 or (keys and not _squares_fit(problem)):
        return None
    delta = problem.key[None, :, :] - problem.query[:, None, :]
    value = np.broadcast_to(columns, (queries, *columns.shape))
    a, b = np.triu_indices(d)
    crossed = (value[..., None] * delta[:, :, None, :]).reshape(queries, keys, -1)
    terms = np.concatenate([value, delta, crossed, delta[..., a] * delta[..., b]], axis=2)
    affine = np.concatenate([np.ones((queries, keys, 1)), delta], axis=2)
    return FewLines(affine, terms, (delta**2).reshape(-1, d), _bias(problem), columns)


def _squares_fit(problem: Problem) -> bool:
    """Whether no square of a difference between keys overflows."""
    return bool(np.ptp(problem.key, axis=0).max(initial=0.0) < MAX_MAGNITUDE)


def _bias(problem: Problem) -> Array:
    """Log weights (Q, K); −inf where labels are equal."""
    bias = np.zeros((len(problem.query), len(problem.key)))
    if problem.log_weight is not None:
        bias += problem.log_weight
    if problem.exclude is not None:
        bias[problem.exclude[0][:, None] == problem.exclude[1][None, :]] = -np.inf
    return bias
