"""The scale of residuals as a function of x: attention over absolute residuals, wider than that over y.

    s(x) = (1 − β)·Σ_k α_k(x)·|residual_k| + β·mean |residual|,   α from the model's score at γ·w

A scale needs more neighbours than a mean, so attention is widened: γ is the one of ``WIDENINGS`` that maximises the
likelihood of the left-out residuals; γ = 0 is one scale for all rows. Larger γ with fewer than 40 effective neighbours
are not considered: the residual of a near neighbour depends on y_i, and would seem to predict the residual of row i.
The overall mean counts as three more neighbours: β = 3/(3 + effective neighbours).

Absolute residuals are averaged rather than squares, so that a single outlier does not inflate the scale around it.
Residuals divided by their scale are modelled as draws from one distribution, ``StudentT``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from regard.bandwidth.objective import Objective
from regard.bandwidth.rules import counts_repetitions
from regard.bandwidth.subsampling import EVALUATED_ROWS, FINAL_TOL, MAX_ROWS_ALL_EVALUATED
from regard.core.arrays import Array
from regard.core.scores import Gaussian, Nearest, Radial, Score
from regard.model.smoother import Head
from regard.pooling.functions import attention_weights, pool
from regard.pooling.planner import engine_of_limits

# Candidate factors γ of w for attention over residuals.
WIDENINGS = (0.0, 0.1, 0.2, 0.3, 0.45, 0.65, 1.0)
# From the third candidate on, γ needs this many effective neighbours.
MIN_NEIGHBOURS = 40.0
# Neighbours that the overall mean counts as.
NEIGHBOURS_OF_MEAN = 3.0
# Rows whose neighbours are counted, and weights computed for that if there are many rows.
MAX_COUNTED_ROWS = 200
MAX_COUNTED_WEIGHTS = 2e7
TILE_CELLS = 1 << 21
# Candidate degrees of freedom of Student's t, and iterations for the scale at each.
FREEDOMS = (2.0, 3.0, 4.0, 6.0, 10.0, 30.0)
T_ITERATIONS = 30
# Residuals that Student's t is fitted to if there are more: evenly spaced order statistics.
MAX_RESIDUALS_FOR_T = 20_000


# A head, with queries (Q, r) and training rows (K, r) in its coordinates: what ``Smoother.each`` gives.
Placed = tuple[Head, Array, Array]


class LearnedScale(NamedTuple):
    """What was learned about the scale of residuals."""

    widening: float  # γ
    overall: float  # β
    scale: Array  # (n, P)  scale at every row from the others


class StudentT(NamedTuple):
    """Student's t of the standardised residuals, one per output."""

    freedom: Array  # (P,)
    width: Array  # (P,)


def row_counts(weight: Array | None, rows: int) -> Array:
    """Weight of every row in counts: repetitions as they are, importances divided by their mean."""
    if weight is None:
        return np.ones(rows)
    counts = weight.astype(np.float64)
    return counts if counts_repetitions(weight) else counts / counts.max() / np.mean(counts / counts.max())


def mean_size(residual: Array, counts: Array) -> Array:
    """Mean |residual| of every column (P,)."""
    return np.asarray(counts / counts.sum() @ np.abs(residual))


def learn_residual_scale(
    heads: Sequence[Placed], residual: Array, weight: Array | None, engine: str = "auto"
) -> LearnedScale:
    """γ, β and the scale at every row; the queries of ``heads`` are the rows, ``residual`` is (n, P).

    *Cost*: a pass of O(min(n, 5,000)·n·d) at most for each of up to seven widenings and each head (O(n²·d) up to 20,000
    rows), and one over all rows.
    """
    n = len(residual)
    counts = row_counts(weight, n)
    size, overall = np.abs(residual), mean_size(residual, counts)
    rows = (
        np.arange(n)
        if n <= MAX_ROWS_ALL_EVALUATED
        else np.sort(np.random.default_rng(0).choice(n, EVALUATED_ROWS, replace=False))
    )
    best: tuple[float, LearnedScale] | None = None
    for widening in WIDENINGS:
        if widening and not any(_can_widen(head.score) for head, *_ in heads):
            break
        neighbours = _neighbours(heads, widening, weight, counts)
        if widening > WIDENINGS[1] and neighbours < MIN_NEIGHBOURS:
            break
        part = NEIGHBOURS_OF_MEAN / (NEIGHBOURS_OF_MEAN + neighbours)
        scale = _mixed(_left_out(heads, widening, size, weight, engine, rows), overall, part)
        standardised = residual[rows] / scale
        density = log_density(standardised, fit_t(standardised, counts[rows])) - np.log(scale)
        value = float(counts[rows] / counts[rows].sum() @ density.sum(axis=1))
        if best is None or value > best[0]:
            best = value, LearnedScale(widening, part, scale)
    assert best is not None
    found = best[1]
    if len(rows) < n:
        scale = _left_out(heads, found.widening, size, weight, engine, np.arange(n))
        found = found._replace(scale=_mixed(scale, overall, found.overall))
    return found


def residual_scale_at(
    heads: Iterable[Placed],
    widening: float,
    overall: float,
    residual: Array,
    weight: ArrayLike | None,
    *,
    engine: str = "auto",
    tol: float | None = None,
) -> Array:
    """s (Q, P) at the heads' queries; ``residual`` (K, P) is NaN for rows without a left-out prediction.

    *Empty rows*: the nearest training row's. *Cost*: one ``pool`` per head.
    """
    known = ~np.isnan(residual).any(axis=1)
    known_weight = None if weight is None else np.asarray(weight)[known]
    size = np.abs(residual[known])
    counts = row_counts(known_weight, len(size))
    total: Any = 0.0
    for head, query, key in heads:
        if not widening or not _can_widen(head.score):
            total = total + head.mix * np.broadcast_to(mean_size(size, counts), (len(query), size.shape[1]))
            continue
        query, key = query.astype(np.float64), key[known].astype(np.float64)
        options: dict[str, Any] = {"sample_weight": known_weight, "engine": engine, "tol": tol}
        wide = _widened(head.score, widening)
        output, logsumexp = pool(query, key, size, wide, **options)
        empty = np.isneginf(logsumexp)
        if empty.any():
            options["engine"] = engine_of_limits(engine)
            output[empty] = pool(query[empty], key, size, Nearest(wide.w), **options).output
        total = total + head.mix * output
    return _mixed(np.asarray(total), mean_size(size, counts), overall)


def fit_t(standardised: Array, counts: Array) -> StudentT:
    """Maximum-likelihood Student's t of standardised residuals (n, P) with weights ``counts`` (n,)."""
    pairs = [_fit_column(*_thinned(column, counts)) for column in standardised.T]
    return StudentT(*(np.array(part) for part in zip(*pairs, strict=True)))


def log_density(standardised: Array, t: StudentT) -> Array:
    """Log-density of standardised residuals (Q, P)."""
    freedom, width = t
    constant = gammaln((freedom + 1.0) / 2.0) - gammaln(freedom / 2.0) - np.log(width) - 0.5 * np.log(np.pi * freedom)
    with np.errstate(over="ignore"):
        return np.asarray(constant - (freedom + 1.0) / 2.0 * np.log1p((standardised / width) ** 2 / freedom))


def _fit_column(standardised: Array, weight: Array) -> tuple[float, float]:
    """Degrees of freedom and scale of one column; the scale by iteratively reweighted squares."""
    squares = standardised**2
    best = (-np.inf, FREEDOMS[-1], 1.0)
    for freedom in FREEDOMS:
        variance = max(float(weight @ squares), np.finfo(float).tiny)
        for _ in range(T_ITERATIONS):
            variance = max(
                float(weight @ ((freedom + 1.0) / (freedom + squares / variance) * squares)), np.finfo(float).tiny
            )
        width = float(np.sqrt(variance))
        t = StudentT(np.array([freedom]), np.array([width]))
        value = float(weight @ log_density(standardised[:, None], t)[:, 0])
        if value > best[0]:
            best = value, freedom, width
    return best[1], best[2]


def _thinned(column: Array, counts: Array) -> tuple[Array, Array]:
    """The column and normalised weights; evenly spaced order statistics if there are too many."""
    if len(column) > MAX_RESIDUALS_FOR_T:
        order = np.argsort(column, kind="stable")
        some = order[np.linspace(0, len(column) - 1, MAX_RESIDUALS_FOR_T).astype(np.intp)]
        column, counts = column[some], counts[some]
    return column, counts / counts.sum()


def _left_out(
    heads: Sequence[Placed], widening: float, size: Array, weight: Array | None, engine: str, rows: Array
) -> Array:
    """Mean |residual| of the other rows under attention at γ·w, for some rows (Q, P)."""
    total: Any = 0.0
    for head, query, _ in heads:
        score = head.score
        kernel = score.kernel.name if isinstance(score, Radial) and not isinstance(score, Nearest) else "gaussian"
        objective = Objective.of(query, size, kernel=kernel, sample_weight=weight, engine=engine)
        objective = replace(objective, tol=FINAL_TOL if len(size) > MAX_ROWS_ALL_EVALUATED else 0.0)
        w = head.w * widening if widening and _can_widen(score) else np.zeros(())
        total = total + head.mix * objective.evaluated_at(rows)(w).answer
    return np.asarray(total)


def _neighbours(heads: Sequence[Placed], widening: float, weight: Array | None, counts: Array) -> float:
    """Effective number of neighbours of a row among the others, 1/Σα²: harmonic mean over a sample of rows."""
    n = len(counts)
    if not widening:
        return float(counts.sum())
    copies = counts if weight is not None and counts_repetitions(weight) else np.ones(n)
    sample = np.random.default_rng(0).permutation(n)[: min(MAX_COUNTED_ROWS, max(20, int(MAX_COUNTED_WEIGHTS / n)))]
    squares = []
    for rows in np.array_split(sample, max(1, min(len(sample), len(sample) * n // TILE_CELLS))):
        weights: Any = 0.0
        for head, query, _ in heads:
            key = query.astype(np.float64)
            score = _widened(head.score, widening) if _can_widen(head.score) else Gaussian(0.0)
            exclude = (rows, np.arange(n)) if weight is None or not counts_repetitions(weight) else None
            options: dict[str, Any] = {"sample_weight": weight, "exclude": exclude}
            weights = weights + head.mix * attention_weights(key[rows], key, score, **options)
        squares.append((weights**2 / copies).sum(axis=1))
    return float(1.0 / max(np.mean(np.concatenate(squares)), 1.0 / n))


def _mixed(local: Array, overall: Array, part: float) -> Array:
    """(1 − part)·local + part·overall, and never 0: if all residuals are 0, the scale is arbitrary."""
    return np.asarray((1.0 - part) * np.maximum(local, 0.0) + part * np.where(overall > 0.0, overall, 1.0))


def _can_widen(score: Score) -> bool:
    """Whether attention can be widened: not if it is uniform, hard, or of a score that is not a distance."""
    return isinstance(score, Radial) and not isinstance(score, Nearest) and bool(np.any(score.w))


def _widened(score: Score, widening: float) -> Radial:
    assert isinstance(score, Radial)
    return type(score)(score.w * widening) if widening else Gaussian(0.0)
