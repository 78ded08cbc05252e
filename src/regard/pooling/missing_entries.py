"""Rows with missing entries: a query is compared with the keys that have every column that it has, on these columns.

    u² = (columns / columns in common) · Σ over the columns in common

as scikit-learn's ``nan_euclidean_distances``. If no key has them all, a query is compared with all keys, each on the
columns that both have; the states of several groups of keys are merged, which is exact. In a local line a missing entry
has δ = 0, so it adds no slope (docs/decisions/0045).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.core.local_fits import LocalFit, local_fit
from regard.core.problem import build, moment_count, split_moments
from regard.core.scores import Radial
from regard.core.state import Partial, empty, merge
from regard.pooling.functions import attention_weights, pool
from regard.pooling.local_pooling import centre_and_scale
from regard.pooling.runner import run_moments


class FitWithMissing(NamedTuple):
    """Local means or lines of rows with missing entries."""

    fit: LocalFit
    partial: Partial

    def gradients(self, *_: Any) -> Any:
        raise ValueError("X or a training row has missing entries, for which there are no gradients; use complete rows")


def pool_with_missing(
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
    sloped: Array | None = None,
) -> tuple[Array, Array, FitWithMissing]:
    """As ``pool_local``, of queries (Q, d) and keys (K, d) with NaN for missing entries; part_of is (d,).

    *Cost*: as without missing entries, and a pass over the rows for each pattern of missing columns.
    """
    query, key, value = (np.asarray(part, np.float64) for part in (query, key, value))
    centre, scale = centre_and_scale(value, sample_weight)
    columns, (P, d) = (value - centre) / scale, (value.shape[1], query.shape[1])
    partial = empty(len(query), moment_count(P, d, 2 * degree))
    for part in _parts(query, key, score, part_of, sample_weight):
        sides = part.query, part.key, columns[part.others]
        problem = build(*sides, part.score, sample_weight=part.weight, tol=tol)
        found, _ = run_moments(replace(problem, degree=2 * degree), engine)
        moments = np.zeros((len(part.rows), partial.moments.shape[1]))
        moments[:, _places(P, d, part.features, degree)] = found.moments
        state = merge(partial.take(part.rows), Partial(found.peak + problem.weight_shift, found.mass, moments))
        partial.peak[part.rows], partial.mass[part.rows], partial.moments[part.rows] = state[:3]
    fit = local_fit(partial, P, d, degree, score.w, ridge, sloped)
    return centre + scale * fit.output, scale, FitWithMissing(fit, partial)


def weights_with_missing(
    query: Array, key: Array, score: Radial, part_of: Array, *, sample_weight: Array | None = None, engine: str = "auto"
) -> Array:
    """As ``attention_weights``, (Q, K), of rows with NaN for missing entries."""
    weights, heights = np.zeros((len(query), len(key))), np.full((len(query), len(key)), -np.inf)
    for part in _parts(query, key, score, part_of, sample_weight):
        options: dict[str, Any] = {"sample_weight": part.weight, "engine": engine}
        at = np.ix_(part.rows, part.others)
        weights[at] = attention_weights(part.query, part.key, part.score, **options)
        height = pool(part.query, part.key, np.zeros(len(part.others)), part.score, **options).logsumexp
        heights[at] = height[:, None]
    top = heights.max(axis=1, keepdims=True)
    weights = weights * np.exp(heights - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(axis=1, keepdims=True)
    return np.asarray(weights / np.where(total > 0.0, total, 1.0))


class _Part(NamedTuple):
    """Queries that lack the same columns, and keys that lack the same: all in the columns they have in common."""

    rows: Array  # (q,) indices of the queries
    others: Array  # (k,) indices of the keys
    features: Array  # (d,) boolean: features in common
    query: Array  # (q, r)
    key: Array  # (k, r)
    score: Radial  # of these features, with distances scaled up for the missing ones
    weight: Array | None  # (k,)


def _parts(query: Array, key: Array, score: Radial, part_of: Array, sample_weight: Array | None) -> Iterator[_Part]:
    """All pairs, group by group; a part of the features (``part_of``, (d,)) is present or missing as a whole."""
    firsts, w = np.unique(part_of, return_index=True)[1], np.asarray(score.w)
    keys = [
        (missing, others)
        for missing, others in _groups(np.isnan(key[:, firsts]))
        if sample_weight is None or sample_weight[others].any()
    ]
    for lacking, rows in _groups(np.isnan(query[:, firsts])):
        found = [(others, common) for missing, others in keys if (common := ~(lacking | missing)).any()]
        if not found:
            raise ValueError(
                f"row {int(rows[0])} of X has no column in common with any training row; each row needs an entry in a "
                "column in which a training row has one"
            )
        if full := [others for others, common in found if (common == ~lacking).all()]:
            found = [(np.sort(np.concatenate(full)), ~lacking)]
        for others, common in found:
            weight = None if sample_weight is None else sample_weight[others]
            features, longer = common[part_of], float(np.sqrt(len(common) / common.sum()))
            nearer = type(score)((w[features] if w.ndim else w) * longer)
            sides = query[np.ix_(rows, features)], key[np.ix_(others, features)]
            yield _Part(rows, others, features, *sides, nearer, weight)


def _groups(missing: Array) -> Iterator[tuple[Array, Array]]:
    """Patterns of missing columns (parts,), and the rows that have each. *Cost*: O(K·parts)."""
    bits = np.packbits(missing, axis=1)
    order = np.lexsort(bits.T[::-1])  # single bytes are sorted by counting
    starts = np.flatnonzero(np.diff(bits[order], axis=0).any(axis=1)) + 1
    for rows in np.split(order, starts) if len(order) else ():
        yield missing[rows[0]], rows


def _places(P: int, d: int, features: Array, degree: int) -> Array:
    """Indices of the moments of some features among those of all."""
    if not degree:
        return np.arange(P)
    value, delta, value_delta, delta_delta = split_moments(np.arange(moment_count(P, d, 2)), P, d, 2)
    assert delta is not None
    assert value_delta is not None
    assert delta_delta is not None
    products = delta_delta[np.ix_(features, features)][np.triu_indices(int(features.sum()))]
    return np.concatenate([value, delta[features], value_delta[:, features].ravel(), products])
