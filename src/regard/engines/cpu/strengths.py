"""Strengths for nonuniform transforms: values as complex numbers, and each query's own key."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.core.labels import Rows, matched
from regard.core.problem import Problem
from regard.engines.cpu.fourier import FourierGrid, Power


class ScaledValues(NamedTuple):
    """Columns relative to the middle of their range, in units of a power of two: within ±1, no overflow."""

    middle: Array  # (P,)
    unit: Array  # (P,)
    columns: Array  # (K, 1 + P): 1, then (v − middle)/unit
    weight: Array  # (K,)

    def strengths(self, keys: Rows) -> list[Array]:
        """Weighted columns, two at a time as one complex vector."""
        return complex_pairs(self.columns[keys] * self.weight[keys, None])

    @property
    def total(self) -> float:
        """Upper bound on Σ|c| over all pairs of columns."""
        return float(np.sqrt(2.0) * self.weight.sum())


def scaled_values(problem: Problem) -> ScaledValues:
    """The columns of a problem, scaled."""
    columns, keys = problem.columns, len(problem.key)
    low, high = columns.min(axis=0) / 2.0, columns.max(axis=0) / 2.0
    middle, exponent = low + high, np.frexp(high - low)[1]
    weight = np.ones(keys) if problem.sample_weight is None else problem.sample_weight
    scaled = np.hstack([np.ones((keys, 1)), np.ldexp(columns - middle, -exponent)])
    return ScaledValues(middle, np.ldexp(1.0, exponent), scaled, weight)


def complex_pairs(columns: Array) -> list[Array]:
    """Real columns (n, c), two at a time, as complex vectors (n,).

    >>> [pair.tolist() for pair in complex_pairs(np.array([[1.0, 2.0, 3.0]]))]
    [[(1+2j)], [(3+0j)]]
    """
    filled = np.zeros((-(-columns.shape[1] // 2), len(columns), 2))
    for c in range(columns.shape[1]):
        filled[c // 2, :, c % 2] = columns[:, c]
    return list(filled.view(np.complex128)[:, :, 0])


def real_columns(pair: Array) -> Array:
    """The two columns (n, 2) of a complex vector (n,), as a view."""
    return np.ascontiguousarray(pair).view(np.float64).reshape(len(pair), 2)


class OwnKeys(NamedTuple):
    """The key that each query excludes."""

    rows: Rows  # (m,) positions among the queries given
    keys: Rows  # (m,)
    weight: Array  # (m,) sample weight · K
    zeta: Array  # (m, r) w∘(key − query)
    several: Array | None  # (n,) boolean: queries that exclude more than one key; None: no query does

    def term(self, power: Power) -> Array:
        """weight·ζ^power (m,)."""
        out = self.weight
        for zeta, n in zip(self.zeta.T, power, strict=True):
            out = out * zeta**n if n else out
        return out


def own_keys(problem: Problem, grid: FourierGrid, rows: Rows, weight: Array) -> OwnKeys | None:
    """The key that each of the queries ``rows`` (n,) excludes; None where nothing is excluded."""
    if problem.exclude is None:
        return None
    labels, key_labels = problem.exclude[0][rows], problem.exclude[1]
    own, keys, several = matched(labels, key_labels)
    difference = problem.key[keys][:, grid.features] - problem.query[rows][own][:, grid.features]
    # Keys outside the box do not contribute to its sums, and their squares may overflow.
    with np.errstate(over="ignore"):
        zeta = np.clip(difference * grid.w, -1e3, 1e3)
    kernel = np.where(grid.keys[keys], np.exp(-0.5 * (zeta**2).sum(axis=1)), 0.0)
    return OwnKeys(own, keys, weight[keys] * kernel, zeta, several)
