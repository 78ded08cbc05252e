"""The spread of y around its prediction, row by row: attention over the residuals, wider than that over y.

    s(x) = (1 − β)·Σ_k α_k(x)·|residual_k| + β·mean |residual|,   α from the model's score at γ·w

A spread needs more neighbours than a mean, so attention is widened: γ is the one of ``WIDENINGS`` under which left-out
residuals are most probable, γ = 0 being one spread for all rows. Sharper ones with fewer than 40 effective neighbours
do not compete: the residual of a near neighbour has itself seen y_i, and would seem to foretell how far off row i is.
The mean of all counts as three neighbours more: β = 3/(3 + effective neighbours).

Absolute residuals are averaged, not squares: a single outlier must not widen everybody's spread around it. Divided by
its spread, a residual is one of many alike, whose shape (``Tails``) all rows share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from regard.bandwidth.many import BATCH, BATCHED, EXACT
from regard.bandwidth.objective import Objective
from regard.bandwidth.rules import counts_repetitions
from regard.core.arrays import Array
from regard.core.scores import Gaussian, Nearest, Radial, Score
from regard.model.smoother import Head
from regard.pooling.functions import attention_weights, pool
from regard.pooling.planner import engine_of_limits

# Shares of w that attention over residuals may have; from the third on, only with so many effective neighbours.
WIDENINGS, NEIGHBOURS = (0.0, 0.1, 0.2, 0.3, 0.45, 0.65, 1.0), 40.0
# Neighbours that the mean of all counts as.
OVERALL = 3.0
# Rows whose neighbours are counted, and weights looked at for that where rows are many.
COUNTED, LOOKED_AT, TILE_CELLS = 200, 2e7, 1 << 21
# Degrees of freedom that tails may have, and steps to the width that goes with them.
FREEDOMS = (2.0, 3.0, 4.0, 6.0, 10.0, 30.0)
STEPS = 30
# Residuals, sorted, by which tails are judged where there are more.
ENOUGH = 20_000


# A head, with queries (Q, r) and training rows (K, r) in its coordinates: what ``Smoother.each`` gives.
Placed = tuple[Head, Array, Array]


class Spread(NamedTuple):
    """What was learned about the spread."""

    widening: float  # γ
    overall: float  # β
    scale: Array  # (n, P)  spread at every row from the others


class Tails(NamedTuple):
    """Student's t that residuals over their spread follow, one per output."""

    freedom: Array  # (P,)
    width: Array  # (P,)


def row_counts(weight: Array | None, rows: int) -> Array:
    """What every row counts among n: repetitions as they are, importances 1 on average."""
    if weight is None:
        return np.ones(rows)
    counts = weight.astype(np.float64)
    return counts if counts_repetitions(weight) else counts / counts.max() / np.mean(counts / counts.max())


def mean_size(residual: Array, counts: Array) -> Array:
    """Mean |residual| of every column (P,)."""
    return np.asarray(counts / counts.sum() @ np.abs(residual))


def learn_spread(heads: Sequence[Placed], residual: Array, weight: Array | None, engine: str = "auto") -> Spread:
    """γ, β and the spread at every row; the queries of ``heads`` are the rows, ``residual`` is (n, P).

    *Cost*: a pass of O(min(n, 5,000)·n·d) at most for each of up to seven widenings and each head (O(n²·d) up to 20,000
    rows), and one over all rows.
    """
    n = len(residual)
    counts = row_counts(weight, n)
    size, overall = np.abs(residual), mean_size(residual, counts)
    rows = np.arange(n) if n <= BATCHED else np.sort(np.random.default_rng(0).choice(n, BATCH, replace=False))
    best: tuple[float, Spread] | None = None
    for widening in WIDENINGS:
        if widening and all(_blind(head.score) for head, *_ in heads):
            break
        neighbours = _neighbours(heads, widening, weight, counts)
        if widening > WIDENINGS[1] and neighbours < NEIGHBOURS:
            break
        part = OVERALL / (OVERALL + neighbours)
        scale = _mixed(_left_out(heads, widening, size, weight, engine, rows), overall, part)
        shown = residual[rows] / scale
        told = log_density(shown, fit_tails(shown, counts[rows])) - np.log(scale)
        value = float(counts[rows] / counts[rows].sum() @ told.sum(axis=1))
        if best is None or value > best[0]:
            best = value, Spread(widening, part, scale)
    assert best is not None
    found = best[1]
    if len(rows) < n:
        scale = _left_out(heads, found.widening, size, weight, engine, np.arange(n))
        found = found._replace(scale=_mixed(scale, overall, found.overall))
    return found


def spread_at(
    heads: Iterable[Placed],
    widening: float,
    overall: float,
    residual: Array,
    weight: ArrayLike | None,
    *,
    engine: str = "auto",
    tol: float | None = None,
) -> Array:
    """s (Q, P) at the heads' queries; ``residual`` (K, P), NaN where a row was not answered.

    *Empty rows*: the nearest training row's. *Cost*: one ``pool`` per head.
    """
    told = ~np.isnan(residual).any(axis=1)
    given = None if weight is None else np.asarray(weight)[told]
    size = np.abs(residual[told])
    counts = row_counts(given, len(size))
    total: Any = 0.0
    for head, query, key in heads:
        if not widening or _blind(head.score):
            total = total + head.mix * np.broadcast_to(mean_size(size, counts), (len(query), size.shape[1]))
            continue
        query, key = query.astype(np.float64), key[told].astype(np.float64)
        options: dict[str, Any] = {"sample_weight": given, "engine": engine, "tol": tol}
        wide = _widened(head.score, widening)
        output, logsumexp = pool(query, key, size, wide, **options)
        empty = np.isneginf(logsumexp)
        if empty.any():
            options["engine"] = engine_of_limits(engine)
            output[empty] = pool(query[empty], key, size, Nearest(wide.w), **options).output
        total = total + head.mix * output
    return _mixed(np.asarray(total), mean_size(size, counts), overall)


def fit_tails(shown: Array, counts: Array) -> Tails:
    """The t that makes residuals over their spread (n, P), counting (n,) times each, most probable."""
    pairs = [_fit_one(*_thinned(column, counts)) for column in shown.T]
    return Tails(*(np.array(part) for part in zip(*pairs, strict=True)))


def log_density(shown: Array, tails: Tails) -> Array:
    """Logarithm of the density of residuals over their spread (Q, P)."""
    freedom, width = tails
    constant = gammaln((freedom + 1.0) / 2.0) - gammaln(freedom / 2.0) - np.log(width) - 0.5 * np.log(np.pi * freedom)
    with np.errstate(over="ignore"):
        return np.asarray(constant - (freedom + 1.0) / 2.0 * np.log1p((shown / width) ** 2 / freedom))


def _fit_one(shown: Array, share: Array) -> tuple[float, float]:
    """Degrees of freedom and width of one column; the width by weighing down outliers until nothing moves."""
    squares = shown**2
    best = (-np.inf, FREEDOMS[-1], 1.0)
    for freedom in FREEDOMS:
        variance = max(float(share @ squares), np.finfo(float).tiny)
        for _ in range(STEPS):
            variance = max(
                float(share @ ((freedom + 1.0) / (freedom + squares / variance) * squares)), np.finfo(float).tiny
            )
        width = float(np.sqrt(variance))
        tails = Tails(np.array([freedom]), np.array([width]))
        value = float(share @ log_density(shown[:, None], tails)[:, 0])
        if value > best[0]:
            best = value, freedom, width
    return best[1], best[2]


def _thinned(column: Array, counts: Array) -> tuple[Array, Array]:
    """The column and the share of each row; every so many of the sorted ones where there are more than enough."""
    if len(column) > ENOUGH:
        order = np.argsort(column, kind="stable")
        kept = order[np.linspace(0, len(column) - 1, ENOUGH).astype(np.intp)]
        column, counts = column[kept], counts[kept]
    return column, counts / counts.sum()


def _left_out(
    heads: Sequence[Placed], widening: float, size: Array, weight: Array | None, engine: str, rows: Array
) -> Array:
    """Mean |residual| of the others as attention at γ·w sees them, for some rows (Q, P)."""
    total: Any = 0.0
    for head, query, _ in heads:
        score = head.score
        kernel = score.kernel.name if isinstance(score, Radial) and not isinstance(score, Nearest) else "gaussian"
        objective = Objective.of(query, size, kernel=kernel, sample_weight=weight, engine=engine)
        objective = replace(objective, tol=EXACT if len(size) > BATCHED else 0.0)
        w = np.zeros(()) if not widening or _blind(score) else head.w * widening
        total = total + head.mix * objective.looking_at(rows)(w).answer
    return np.asarray(total)


def _neighbours(heads: Sequence[Placed], widening: float, weight: Array | None, counts: Array) -> float:
    """Effective neighbours of a row among the others, 1/Σα², the harmonic mean over some of the rows."""
    n = len(counts)
    if not widening:
        return float(counts.sum())
    copies = counts if weight is not None and counts_repetitions(weight) else np.ones(n)
    sample = np.random.default_rng(0).permutation(n)[: min(COUNTED, max(20, int(LOOKED_AT / n)))]
    squares = []
    for rows in np.array_split(sample, max(1, min(len(sample), len(sample) * n // TILE_CELLS))):
        weights: Any = 0.0
        for head, query, _ in heads:
            key = query.astype(np.float64)
            score = Gaussian(0.0) if _blind(head.score) else _widened(head.score, widening)
            barred = (rows, np.arange(n)) if weight is None or not counts_repetitions(weight) else None
            options: dict[str, Any] = {"sample_weight": weight, "exclude": barred}
            weights = weights + head.mix * attention_weights(key[rows], key, score, **options)
        squares.append((weights**2 / copies).sum(axis=1))
    return float(1.0 / max(np.mean(np.concatenate(squares)), 1.0 / n))


def _mixed(local: Array, overall: Array, part: float) -> Array:
    """Never 0: where all residuals are, any spread will do."""
    return np.asarray((1.0 - part) * np.maximum(local, 0.0) + part * np.where(overall > 0.0, overall, 1.0))


def _blind(score: Score) -> bool:
    """Attention that cannot be widened: of no distance, everywhere alike, or to the nearest row alone."""
    return not isinstance(score, Radial) or isinstance(score, Nearest) or not np.any(score.w)


def _widened(score: Score, widening: float) -> Radial:
    assert isinstance(score, Radial)
    return type(score)(score.w * widening) if widening else Gaussian(0.0)
