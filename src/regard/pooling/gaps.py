"""Rows with gaps: a column that either row lacks adds no distance, and the others count for it.

    u² = (columns / columns in common) · Σ over the columns in common

as scikit-learn's ``nan_euclidean_distances``. Rows that lack the same columns are pooled together, and the states of
several groups of keys are merged: the associative state makes it exact. In a line, a missing entry stands where the
query stands, so it leans on nothing there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.core.lines import LocalFit, local_fit
from regard.core.problem import build, moment_count
from regard.core.scores import Radial
from regard.core.state import Partial, empty, merge
from regard.pooling.functions import attention_weights, pool
from regard.pooling.local import centre_and_scale
from regard.pooling.runner import run_moments


class Gaps(NamedTuple):
    """Which rows lack what: each feature (d,) belongs to a part, and a part is there or missing as a whole."""

    part_of: Array  # (d,)
    query: Array  # (Q, parts) boolean: missing
    key: Array  # (K, parts)

    @classmethod
    def of(cls, query: Array, key: Array, part_of: Array) -> Gaps:
        firsts = np.unique(part_of, return_index=True)[1]
        return cls(part_of, np.isnan(query[:, firsts]), np.isnan(key[:, firsts]))

    def pairs(self) -> Iterator[tuple[Array, list[tuple[Array, Array, float]]]]:
        """Rows of queries that lack the same; for each groups of keys, features in common, and √(all/in common)."""
        keys = list(_groups(self.key))
        for lacking, rows in _groups(self.query):
            found = []
            for missing, others in keys:
                common = ~(lacking | missing)
                if common.any():
                    found.append((others, common[self.part_of], float(np.sqrt(len(common) / common.sum()))))
            if not found:
                raise ValueError(
                    f"row {int(rows[0])} of X has no entry in a column in which a training row has one; "
                    "there is nothing to compare it by"
                )
            yield rows, found


class GappyFit(NamedTuple):
    """Local means or lines of rows with gaps."""

    fit: LocalFit
    partial: Partial

    def gradients(self, *_: Any) -> Any:
        raise ValueError("X, or a training row, has gaps: how answers move there is not known; use rows without gaps")


def pool_with_gaps(
    query: Array,
    key: Array,
    value: Array,
    score: Radial,
    part_of: Array,
    *,
    degree: int = 0,
    ridge: float = 0.0,
    sample_weight: Array | None = None,
    engine: str = "auto",
    tol: float | None = None,
    leaning: Array | None = None,
) -> tuple[Array, Array, GappyFit]:
    """As ``local.pool_local``, of queries (Q, d) and keys (K, d) with NaN for what is missing; part_of is (d,).

    *Cost*: as without gaps, and a pass over the rows for each way of lacking columns.
    """
    query, key, value = (np.asarray(part, np.float64) for part in (query, key, value))
    centre, scale = centre_and_scale(value, sample_weight)
    columns, (P, d) = (value - centre) / scale, (value.shape[1], query.shape[1])
    whole = empty(len(query), moment_count(P, d, 2 * degree))
    peak, mass, moments = (np.array(part) for part in whole[:3])
    for rows, groups in Gaps.of(query, key, part_of).pairs():
        state = empty(len(rows), moments.shape[1])
        for others, features, longer in groups:
            weight = None if sample_weight is None else sample_weight[others]
            if weight is not None and not weight.any():
                continue
            sides = (query[np.ix_(rows, features)], key[np.ix_(others, features)], columns[others])
            problem = build(*sides, _shortened(score, features, longer), sample_weight=weight, tol=tol)
            found, _ = run_moments(replace(problem, degree=2 * degree), engine)
            part = np.zeros((len(rows), moments.shape[1]))
            part[:, _places(P, d, features, degree)] = found.moments
            state = merge(state, Partial(found.peak + problem.weight_shift, found.mass, part))
        peak[rows], mass[rows], moments[rows] = state[:3]
    partial = Partial(peak, mass, moments)
    fit = local_fit(partial, P, d, degree, score.w, ridge, leaning)
    return centre + scale * fit.output, scale, GappyFit(fit, partial)


def weights_with_gaps(
    query: Array, key: Array, score: Radial, part_of: Array, *, sample_weight: Array | None = None, engine: str = "auto"
) -> Array:
    """As ``attention_weights``, (Q, K), of rows with NaN for what is missing."""
    weights, heights = np.zeros((len(query), len(key))), np.full((len(query), len(key)), -np.inf)
    for rows, groups in Gaps.of(query, key, part_of).pairs():
        for others, features, longer in groups:
            weight = None if sample_weight is None else sample_weight[others]
            if weight is not None and not weight.any():
                continue
            sides = (query[np.ix_(rows, features)], key[np.ix_(others, features)])
            nearer = _shortened(score, features, longer)
            options: dict[str, Any] = {"sample_weight": weight, "engine": engine}
            weights[np.ix_(rows, others)] = attention_weights(*sides, nearer, **options)
            height = pool(*sides, np.zeros(len(others)), nearer, **options).logsumexp
            heights[np.ix_(rows, others)] = height[:, None]
    top = heights.max(axis=1, keepdims=True)
    weights = weights * np.exp(heights - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(axis=1, keepdims=True)
    return np.asarray(weights / np.where(total > 0.0, total, 1.0))


def _groups(missing: Array) -> Iterator[tuple[Array, Array]]:
    """Ways of lacking columns (parts,), and the rows that lack just these. *Cost*: O(K·parts)."""
    bits = np.packbits(missing, axis=1)
    order = np.lexsort(bits.T[::-1])  # of single bytes, which are counted rather than compared
    starts = np.flatnonzero(np.diff(bits[order], axis=0).any(axis=1)) + 1
    for rows in np.split(order, starts) if len(order) else ():
        yield missing[rows[0]], rows


def _shortened(score: Radial, features: Array, longer: float) -> Radial:
    """The score of some of the features, their distances lengthened for those that are missing."""
    w = np.asarray(score.w)
    return type(score)((w[features] if w.ndim else w) * longer)


def _places(P: int, d: int, features: Array, degree: int) -> Array:
    """Where the moments of some features stand among those of all."""
    some = np.flatnonzero(features)
    value = np.arange(P)
    if not degree:
        return value
    triangle = np.empty((d, d), np.intp)
    a, b = np.triu_indices(d)
    triangle[a, b] = np.arange(len(a))
    first, second = np.triu_indices(len(some))
    products = P + d + P * d + triangle[some[first], some[second]]
    return np.concatenate([value, P + some, (P + d + np.arange(P)[:, None] * d + some).ravel(), products])
