"""Local lines of many rows from their moments, and what the derivatives of their answers need.

With means v̄, δ̄ and covariances C, c of δ = z_k − z_i under the weights, A = C + λ(1 + ‖δ̄‖²), β = A⁻¹c and p = A⁻¹δ̄,
the answer is f = v̄ − δ̄·β, and a change of the scores changes it by Σ_k weight_k·h_k·dscore_k with

    h_k = (1 − p·a_k)(b_k − β·a_k) + λ(1 + ‖δ̄‖²) p·β + 2λ(p·β) δ̄·a_k,   a_k = δ_k − δ̄,  b_k = y_k − v̄

a combination of the columns of φ = [1, z, z zᵀ, y, z y]. Arrays are numpy's or, on a GPU, tensors of torch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

# Features from which LAPACK solves the systems: it takes one at a time, and small ones cost more than their arithmetic.
MIN_WIDTH_FOR_LAPACK = 16


class FittedLines(NamedTuple):
    """Lines of some rows; all about the origin of z."""

    xp: Any
    answer: Any  # (q, P)
    by_log_ridge: Any  # (q, P)
    at: Any  # (q, r)  z of the rows
    mean: Any  # (q, r)  mean of the keys
    offset: Any  # (q, r)  δ̄
    value: Any  # (q, P)  v̄
    beta: Any  # (q, P, r)
    solved_offset: Any  # (q, r)  p
    ridge: float
    guarded: Any  # (q,)  λ(1 + ‖δ̄‖²)

    def coefficients(self, p: int) -> Any:
        """Coefficients (q, B) of h in the columns of φ, for output p."""
        xp, (width, count) = self.xp, (self.mean.shape[1], self.beta.shape[1])
        a, b, _ = _pairs(width)
        beta, solved_offset, mean = self.beta[:, p], self.solved_offset, self.mean
        height = 1.0 + (solved_offset * mean).sum(axis=1)[:, None]
        level = (self.value[:, p] - (beta * mean).sum(axis=1))[:, None]
        bend = 2.0 * self.ridge * (solved_offset * beta).sum(axis=1)[:, None]
        constant = self.by_log_ridge[:, p, None] - height * level - bend * (self.offset * mean).sum(axis=1)[:, None]
        # Of z_a·z_b and z_b·z_a φ has one, of z_a² there is one.
        both = solved_offset[:, a] * beta[:, b] + solved_offset[:, b] * beta[:, a]
        both[:, np.flatnonzero(a == b)] *= 0.5
        parts = [constant, level * solved_offset - height * beta + bend * self.offset, both]
        parts += [height if other == p else xp.zeros_like(height) for other in range(count)]
        parts += [-solved_offset if other == p else xp.zeros_like(solved_offset) for other in range(count)]
        return xp.concatenate(parts, axis=1)

    def slopes(self, p: int, means: Any, metric: str) -> Any:
        """Derivatives (q, r) or (q, r, r) of output p by the metric, from the means of h·[1, z, z²]."""
        at, beta, width = self.at, self.beta[:, p], self.mean.shape[1]
        total, first, second = means[:, :1], means[:, 1 : 1 + width], means[:, 1 + width :]
        bend = 2.0 * self.ridge * (self.solved_offset * beta).sum(axis=1)[:, None]
        guarded = self.guarded[:, None]
        if metric == "feature":
            through = 2.0 * at * first - second - total * at**2
            return through + bend * self.offset**2 - 2.0 * guarded * self.solved_offset * beta
        square = second[:, _pairs(width)[2]].reshape(-1, width, width)
        half = at[:, :, None] * (first - 0.5 * total * at)[:, None]
        half = half + self.offset[:, :, None] * (0.5 * bend * self.offset)[:, None]
        half = half - self.solved_offset[:, :, None] * (guarded * beta)[:, None]
        return half + half.mT - square


def fit_lines(moments: Any, at: Any, ridge: float, count: int) -> FittedLines:
    """The lines of rows at z (q, r) from their moments Σ weight·φ (q, B), for so many outputs."""
    xp = module_of(moments)
    rows, width = at.shape
    pairs = _pairs(width)[2]
    means = moments[:, 1:] / moments[:, :1]
    mean, values = means[:, :width], width + width * (width + 1) // 2
    covariance = means[:, width + pairs].reshape(rows, width, width) - mean[:, :, None] * mean[:, None]
    value = means[:, values : values + count]
    cross = means[:, values + count :].reshape(rows, count, width) - value[:, :, None] * mean[:, None]
    offset = mean - at
    guarded = ridge * (1.0 + (offset**2).sum(axis=1))
    covariance.reshape(rows, -1)[:, :: width + 1] += guarded[:, None]
    solved = solve_positive(covariance, xp.concatenate([cross, offset[:, None]], axis=1))
    beta, solved_offset = solved[:, :-1], solved[:, -1]
    answer = value - (beta * offset[:, None]).sum(axis=2)
    by_ridge = guarded[:, None] * (beta * solved_offset[:, None]).sum(axis=2)
    return FittedLines(xp, answer, by_ridge, at, mean, offset, value, beta, solved_offset, ridge, guarded)


def solve_positive(matrix: Any, right: Any) -> Any:
    """x (Q, R, d) with matrix (Q, d, d) positive definite and right (Q, R, d).

    Small systems are eliminated all at once; a GPU solves those of any size together.

    >>> solve_positive(np.array([[[2.0, 0.0], [0.0, 4.0]]]), np.array([[[2.0, 2.0]]])).tolist()
    [[[1.0, 0.5]]]
    """
    xp, width = module_of(matrix), matrix.shape[1]
    if xp is not np:
        return xp.linalg.solve_ex(matrix, right.mT)[0].mT
    if width >= MIN_WIDTH_FOR_LAPACK:
        return np.linalg.solve(matrix, right.mT).mT
    system = np.ascontiguousarray(np.concatenate([matrix, right.mT], axis=2).transpose(1, 2, 0))  # (d, d + R, Q)
    for j in range(width):
        system[j, j + 1 :] /= system[j, j]
        system[j + 1 :, j + 1 :] -= system[j + 1 :, j, None] * system[j, None, j + 1 :]
    for j in range(width - 1, 0, -1):
        system[:j, width:] -= system[:j, j, None] * system[j, None, width:]
    return np.moveaxis(system[:, width:], 2, 0).mT


def module_of(array: Any) -> Any:
    """The module that an array belongs to: numpy or torch."""
    if isinstance(array, np.ndarray):
        return np
    import torch

    return torch


@lru_cache
def _pairs(width: int) -> tuple[Any, Any, Any]:
    """The pairs a ≤ b of coordinates, and the pair of every entry of a matrix, (r·r,)."""
    a, b = np.triu_indices(width)
    place = np.empty((width, width), np.intp)
    place[a, b] = place[b, a] = np.arange(len(a))
    return a, b, place.reshape(-1)
