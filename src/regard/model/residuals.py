"""Honest residuals: what every training row is off by when it is left out, also of what was learned.

    residual_i = y_i − f_{−i}(x_i)

A bandwidth that was learned has seen y_i even where the average has not. On a few hundred rows that shows: on the
concrete set left-out rows are predicted to 3.3, new ones to 4.4. So where rows are few, they are dealt into folds, and
the fold's rows are answered by a bandwidth that went on learning, from where all rows had led it, without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import minimize

from regard.bandwidth.adaptive import evaluated, neighbourhood
from regard.bandwidth.distinct import Distinct, distinct, spread_out
from regard.bandwidth.heads import FINEST, TURN_PRICE
from regard.bandwidth.many import ANSWERED, BAGGED, BATCHED, EXACT, QUICK
from regard.bandwidth.rules import counts_repetitions
from regard.bandwidth.search import RIDGES
from regard.bandwidth.shapes import MOST_TURN
from regard.core.arrays import Array
from regard.core.scores import Nearest
from regard.model.left_out import LeftOut
from regard.model.residual_scale import learn_spread, row_counts, spread_at
from regard.model.smoother import Head, HeadObjective, Smoother

# What is learned again without a fold.
Relearn = Literal["w", "w and ridge"]
# Residuals below this share of the range of y, or so many times as far as its numbers are apart, are what rounding
# leaves of an exact fit.
ROUNDING, ROUNDINGS = 1e-13, 2.0
# Folds, and steps of learning without one.
FOLDS, STEPS = 3, 10
# From so many rows on a single one hardly moves what is learned.
MANY = 2000
# Logarithm of the factor by which w may move.
FARTHEST = 2.0
# A step that improves the logarithm of the criterion by less is the last.
LITTLE = 1e-6


class Residuals(NamedTuple):
    """What every training row is off by when it is left out, and its size from place to place."""

    residual: Array  # (K, P)  NaN for rows without weight, and for rows that it would take too long to answer
    standardised: Array  # (K, P)  over the scale at the row, as the other rows have it
    widening: float  # γ and β of ``residual_scale``
    overall: float

    def shown(self, weight: Array | None) -> tuple[Array, Array]:
        """Standardised residuals (m, P) of the rows that were answered, and what those count (m,)."""
        known = ~np.isnan(self.standardised).any(axis=1)
        return self.standardised[known], row_counts(None if weight is None else weight[known], int(known.sum()))

    def filled(self) -> Array:
        """Residuals (K, P), those of rows not answered as large as the others are on average."""
        known = np.asarray(~np.isnan(self.residual).any(axis=1))
        return np.where(known[:, None], self.residual, np.sqrt(np.mean(self.residual[known] ** 2, axis=0)))

    def scale_at(self, smoother: Smoother, query: Array) -> Array:
        """s(x), (Q, P); of a row with gaps, that in the middle of the columns it lacks."""
        whole = np.asarray(~np.isnan(smoother.rows.key).any(axis=1))
        residual = self.residual
        if not whole.all():
            smoother, residual = smoother.with_rows(whole), residual[whole]
        gaps = np.isnan(query)
        if gaps.any():
            query = np.where(gaps, np.median(smoother.rows.key, axis=0), query)
        heads, weight = smoother.each(query), smoother.rows.sample_weight
        return spread_at(heads, self.widening, self.overall, residual, weight, **smoother.run.options)


def learn_residuals(smoother: Smoother, answers: Array | None, relearn: Relearn | None) -> Residuals:
    """Left-out residuals of a smoother's rows, and their scale.

    ``answers`` (K, P) are left-out answers where they are known; ``relearn`` says what of a head is learned again
    without a row's fold, where rows are few.

    *Cost*: one pass over all pairs and about ten for the scale; with ``relearn`` about as much as ``fit``.
    """
    rows = smoother.rows
    whole = np.asarray(~np.isnan(rows.key).any(axis=1))
    if not whole.all():
        part = learn_residuals(smoother.with_rows(whole), None if answers is None else answers[whole], relearn)
        out = np.full((2, len(whole), part.residual.shape[1]), np.nan)
        out[:, whole] = part.residual, part.standardised
        return part._replace(residual=out[0], standardised=out[1])
    table = distinct(rows.key, rows.value, rows.sample_weight)
    if len(table.key) == 1 and (table.weight is None or table.weight[0] < 2 or not counts_repetitions(table.weight)):
        raise ValueError("residuals leave rows out and need two of them; this model has 1 training row")
    value = as_columns(table.value)
    residual = value - _left_out(smoother, table, answers, relearn)
    rounded = ROUNDING * np.ptp(value, axis=0) + ROUNDINGS * np.spacing(np.abs(value).max(axis=0))
    residual[np.abs(residual) <= rounded] = 0.0
    known = np.flatnonzero(~np.isnan(residual).any(axis=1))
    weight = None if table.weight is None else table.weight[known]
    heads = smoother.each(table.key[known].astype(np.float64))
    spread = learn_spread(heads, residual[known], weight, smoother.run.options["engine"])
    shown = np.full(residual.shape, np.nan)
    shown[known] = residual[known] / spread.scale
    return Residuals(spread_out(residual, table.place), spread_out(shown, table.place), spread.widening, spread.overall)


def _left_out(smoother: Smoother, table: Distinct, answers: Array | None, relearn: Relearn | None) -> Array:
    """Every row of the table (n, P) as the others answer it; NaN where that would take too long."""
    if not 2 < len(table.key) <= MANY:
        relearn = None
    if relearn is None and answers is not None:
        out = np.full((len(table.key), answers.shape[1]), np.nan)
        counted = table.place >= 0
        out[table.place[counted]] = answers[counted]
        return out
    head = smoother.heads[0]
    if isinstance(head.score, Nearest) or head.ignores_queries:
        key, value, engine = table.key.astype(np.float64), as_columns(table.value), smoother.run.options["engine"]
        # About their mean: sums of numbers far from 0 are rounded coarsely.
        centre = value.mean(axis=0)
        return np.asarray(centre + LeftOut.of(table).answers(key, key, value - centre, head.score, engine))
    heads = objectives_of(smoother, table)
    if head.neighbours is not None:
        return adaptive_answers(heads[0])
    if relearn is not None:
        return relearned_answers(heads, ridge=relearn == "w and ridge")
    some = rows_to_answer(heads)
    answer = np.full((len(table.key), heads[0].objective.loss.columns.shape[1]), np.nan)
    answer[some] = left_out_answers(heads, some)
    return answer


def objectives_of(smoother: Smoother, table: Distinct) -> list[HeadObjective]:
    """The leave-one-out objective of every head over the distinct rows of a smoother, in float64."""
    rows = smoother.rows.over(table.key.astype(np.float64), table.value, table.weight)
    return replace(smoother, rows=rows).objectives()


def as_columns(values: Array) -> Array:
    """Float64 columns (n, P)."""
    values = np.asarray(values, np.float64)
    return values[:, None] if values.ndim == 1 else values


def left_out_answers(heads: Sequence[HeadObjective], rows: Array | None = None) -> Array:
    """Every row (n, P), or some of them, as the others answer it, by the mix of heads; in the units of y.

    *Empty rows*: the nearest other row answers. *Cost*: O(n²·d) per head at most, d² at degree 1.
    """
    first = heads[0].objective
    rows = np.arange(len(first.key)) if rows is None else rows
    tol = EXACT if len(first.key) > BATCHED else 0.0
    total: Any = 0.0
    for head, objective in heads:
        total = total + head.mix * replace(objective, tol=tol).looking_at(rows)(head.w, head.ridge).answer
    return np.asarray(total)


def adaptive_answers(one: HeadObjective) -> Array:
    """The same of a head whose bandwidth is a row's distance to its ``neighbours``-th other row."""
    head, objective = one
    assert head.neighbours is not None
    hood, rows = neighbourhood(objective, head.w), np.arange(len(objective.key))
    return evaluated(objective, hood, head.w, head.ridge, head.neighbours, rows)[0].answer


def rows_to_answer(heads: Sequence[HeadObjective]) -> Array:
    """All rows where that can be paid for, else a sample of 20,000, sorted."""
    n = len(heads[0].objective.key)
    if n <= BAGGED or sum(objective.seconds(head.w) for head, objective in heads) <= QUICK * n:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, ANSWERED, replace=False))


def relearned_answers(heads: Sequence[HeadObjective], *, ridge: bool) -> Array:
    """Every row (n, P) as the others answer it, with w (and λ, with ``ridge``) learned without the row's fold.

    Rows should come in an order that is not theirs by chance, as ``distinct`` gives it: the folds follow from it.
    *Cost*: three times ten evaluations of O(n²·d²) per head.
    """
    first = heads[0].objective
    n = len(first.key)
    folds = min(FOLDS, n)
    fold = np.random.default_rng(0).permutation(n) % folds
    out = np.empty((n, first.loss.columns.shape[1]))
    for number in range(folds):
        held, kept = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        without = [one._replace(objective=one.objective.among(kept)) for one in heads]
        moved = [_relearned(one, ridge) for one in without]
        if len(heads) > 1:
            answers = [one.objective(head.w, head.ridge).answer for one, head in zip(without, moved, strict=True)]
            inner = without[0].objective
            mix = inner.loss.mix(np.stack([first.loss.from_units_of_y(part) for part in answers]), inner.counts)
            moved = [head._replace(mix=float(share)) for head, share in zip(moved, mix, strict=True)]
        part = [one._replace(head=head) for one, head in zip(heads, moved, strict=True)]
        out[held] = left_out_answers(part, held)
    return out


def _relearned(one: HeadObjective, learn_ridge: bool) -> Head:
    """The head after a few steps of its w and λ down its objective, from where they are.

    w moves by factors, a matrix diag(w)(I + N) also by N, whose size has the price it has in ``bandwidth.heads``.
    """
    head, objective = one
    w, ridge = head.w, head.ridge
    # A feature that is ignored stays so.
    seen = np.asarray(w != 0.0) if w.ndim < 2 else np.abs(w).max(axis=1, initial=0.0) > 0.0
    part = np.abs(w[seen]) if w.ndim < 2 else w[seen]
    if not part.size:
        return head
    matrix = w.ndim == 2
    straight = matrix and part.shape[0] == part.shape[1] and bool((np.diagonal(part) > 0.0).all())
    scale = (np.diagonal(part) if straight else np.linalg.norm(part, axis=1)) if matrix else np.atleast_1d(part)
    moves, axes = len(scale), np.eye(*part.shape) if straight else 0.0
    turned = part / scale[:, None] - axes if matrix else np.zeros(0)  # N
    price = TURN_PRICE / len(objective.rows) if straight else 0.0
    learn_ridge = learn_ridge and ridge > 0.0

    def placed(x: Array) -> tuple[Array, float]:
        factor, turn = scale * np.exp(x[:moves]), x[moves : moves + turned.size].reshape(turned.shape)
        out = np.zeros(w.shape)
        out[seen] = factor[:, None] * (axes + turn) if matrix else factor
        return out, ridge * float(np.exp(x[-1])) if learn_ridge else ridge

    def at(x: Array) -> tuple[float, Array]:
        here, lam = placed(x)
        found = objective(here, lam, gradient=True)
        assert found.w is not None
        level, turn = found.value + FINEST, x[moves : moves + turned.size]
        along, factor = np.atleast_1d((found.w * here)[seen]), scale * np.exp(x[:moves])
        slope = np.zeros(len(x))
        slope[:moves] = along.sum(axis=1) if matrix else along
        if matrix:
            slope[moves : moves + turned.size] = (found.w[seen] * factor[:, None]).ravel()
        if learn_ridge:
            slope[-1] = found.log_ridge
        slope /= level
        slope[moves : moves + turned.size] += 2.0 * price * turn
        return float(np.log(level) + price * (turn**2).sum()), slope

    start = np.concatenate([np.zeros(moves), turned.ravel(), np.zeros(int(learn_ridge))])
    low, high = (np.log(edge / ridge) for edge in RIDGES) if learn_ridge else (0.0, 0.0)
    bounds = [(-FARTHEST, FARTHEST)] * moves + [(-MOST_TURN, MOST_TURN)] * turned.size
    bounds += [(min(low, 0.0), max(high, 0.0))] * learn_ridge
    found = minimize(
        at, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": STEPS, "maxcor": 20, "ftol": LITTLE}
    )
    return head.at(*placed(found.x))
