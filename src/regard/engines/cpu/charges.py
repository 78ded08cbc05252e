"""What rides on the points when attention is summed by waves: values as complex charges, and each query's own key."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.core.labels import Rows, matched
from regard.core.problem import Problem
from regard.engines.cpu.waves import Power, Waves


class Values(NamedTuple):
    """Columns about the middle of their range in units of a power of two: nothing overflows, all are within ±1."""

    middle: Array  # (P,)
    unit: Array  # (P,)
    columns: Array  # (K, 1 + P): 1, then (v − middle)/unit
    weight: Array  # (K,)

    def charges(self, keys: Rows) -> list[Array]:
        """Two columns at a time as one complex charge."""
        return paired(self.columns[keys] * self.weight[keys, None])

    @property
    def total(self) -> float:
        """Σ|c| of the heaviest pair, at most."""
        return float(np.sqrt(2.0) * self.weight.sum())


def values_of(problem: Problem) -> Values:
    columns, keys = problem.columns, len(problem.key)
    low, high = columns.min(axis=0) / 2.0, columns.max(axis=0) / 2.0
    middle, exponent = low + high, np.frexp(high - low)[1]
    weight = np.ones(keys) if problem.sample_weight is None else problem.sample_weight
    scaled = np.hstack([np.ones((keys, 1)), np.ldexp(columns - middle, -exponent)])
    return Values(middle, np.ldexp(1.0, exponent), scaled, weight)


def paired(columns: Array) -> list[Array]:
    """Real columns (n, c) two by two as complex vectors (n,).

    >>> [pair.tolist() for pair in paired(np.array([[1.0, 2.0, 3.0]]))]
    [[(1+2j)], [(3+0j)]]
    """
    filled = np.zeros((-(-columns.shape[1] // 2), len(columns), 2))
    for c in range(columns.shape[1]):
        filled[c // 2, :, c % 2] = columns[:, c]
    return list(filled.view(np.complex128)[:, :, 0])


def parted(pair: Array) -> Array:
    """The two columns (n, 2) of a complex vector (n,), as a view."""
    return np.ascontiguousarray(pair).view(np.float64).reshape(len(pair), 2)


class Own(NamedTuple):
    """The one key each query may not see."""

    rows: Rows  # (m,) places among the queries asked for
    keys: Rows  # (m,)
    weight: Array  # (m,) sample weight · K
    zeta: Array  # (m, r) w∘(key − query)
    several: Array | None  # (n,) boolean: queries that exclude more than one key; None: nobody

    def term(self, power: Power) -> Array:
        """weight·ζ^power (m,)."""
        out = self.weight
        for zeta, n in zip(self.zeta.T, power, strict=True):
            out = out * zeta**n if n else out
        return out


def own_keys(problem: Problem, waves: Waves, rows: Rows, weight: Array) -> Own | None:
    """The key that each of the queries ``rows`` (n,) excludes; None where nothing is excluded."""
    if problem.exclude is None:
        return None
    labels, key_labels = problem.exclude[0][rows], problem.exclude[1]
    own, keys, several = matched(labels, key_labels)
    difference = problem.key[keys][:, waves.features] - problem.query[rows][own][:, waves.features]
    # What lies beyond any box has no part in its sums, and squares there may overflow.
    with np.errstate(over="ignore"):
        zeta = np.clip(difference * waves.w, -1e3, 1e3)
    kernel = np.where(waves.keys[keys], np.exp(-0.5 * (zeta**2).sum(axis=1)), 0.0)
    return Own(own, keys, weight[keys] * kernel, zeta, several)
