"""Honest residuals: what every training row is off by when it is left out, also of what was learned.

    residual_i = y_i − f_{−i}(x_i)

A bandwidth that was learned has seen y_i even where the average has not. On a few hundred rows that shows: on the
concrete set left-out rows are predicted to 3.3, new ones to 4.4. So where rows are few, they are dealt into folds, and
the fold's rows are answered by a bandwidth that went on learning, from where all rows had led it, without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from regard.bandwidth.adaptive import Neighbourhood, groups_of
from regard.bandwidth.heads import FINEST, TURN_PRICE
from regard.bandwidth.many import ANSWERED, BAGGED, BATCHED, EXACT, QUICK, among
from regard.bandwidth.search import RIDGES
from regard.bandwidth.shapes import MOST_TURN
from regard.inference.looks import Look

Array = NDArray[Any]

# Folds, and steps of learning without one.
FOLDS, STEPS = 3, 10
# From so many rows on a single one hardly moves what is learned.
MANY = 2000
# Logarithm of the factor by which w may move.
FARTHEST = 2.0
# A step that improves the logarithm of the criterion by less is the last.
LITTLE = 1e-6


def left_out_answers(looks: Sequence[Look], rows: Array | None = None) -> Array:
    """Every row (n, P), or some of them, as the others answer it, by the mix of looks; in the units of y.

    *Empty rows*: the nearest other row answers. *Cost*: O(n²·d) per look at most, d² at degree 1.
    """
    first = looks[0].objective
    rows = np.arange(len(first.key)) if rows is None else rows
    tol = EXACT if len(first.key) > BATCHED else 0.0
    total: Any = 0.0
    for look in looks:
        total = total + look.share * replace(look.objective, tol=tol).looking_at(rows)(look.w, look.ridge).answer
    return np.asarray(total)


def adaptive_answers(look: Look, neighbours: int) -> Array:
    """The same where every row looks as far as its ``neighbours``-th other row."""
    objective, w = look.objective, look.w
    counts = None if objective.repeated is None else objective.counts.astype(np.int64)
    hood = Neighbourhood.of(objective.key, w, objective.kernel, counts)
    answer = np.empty((len(objective.key), objective.loss.columns.shape[1]))
    for reach, rows in groups_of(hood.widths(objective.key, w, neighbours, objective.labels)):
        answer[rows] = objective.looking_at(rows)(w / reach, look.ridge).answer
    return answer


def rows_to_answer(looks: Sequence[Look], seed: int = 0) -> Array:
    """All rows where that can be paid for, else a sample of 20,000, sorted."""
    n = len(looks[0].objective.key)
    if n <= BAGGED or sum(look.objective.seconds(look.w) for look in looks) <= QUICK * n:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, ANSWERED, replace=False))


def relearned_answers(looks: Sequence[Look], *, ridge: bool) -> Array:
    """Every row (n, P) as the others answer it, with w (and λ, with ``ridge``) learned without the row's fold.

    Rows should come in an order that is not theirs by chance, as ``distinct`` gives it: the folds follow from it.
    *Cost*: three times ten evaluations of O(n²·d²) per look.
    """
    first = looks[0].objective
    n = len(first.key)
    folds = min(FOLDS, n)
    fold = np.random.default_rng(0).permutation(n) % folds
    out = np.empty((n, first.loss.columns.shape[1]))
    for number in range(folds):
        held, kept = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        without = [look._replace(objective=among(look.objective, kept)) for look in looks]
        moved = [_learned_on(look, ridge) for look in without]
        part = [look._replace(w=w, ridge=lam) for look, (w, lam) in zip(looks, moved, strict=True)]
        if len(looks) > 1:
            told = np.stack(
                [
                    first.loss.from_units_of_y(look.objective(w, lam).answer)
                    for look, (w, lam) in zip(without, moved, strict=True)
                ]
            )
            shares = without[0].objective.loss.mix(told, without[0].objective.counts)
            part = [look._replace(share=float(share)) for look, share in zip(part, shares, strict=True)]
        out[held] = left_out_answers(part, held)
    return out


def _learned_on(look: Look, learn_ridge: bool) -> tuple[Array, float]:
    """w and λ after a few steps down the objective of a look, from where it is.

    w moves by factors, a matrix diag(w)(I + N) also by N, whose size has the price it has in ``bandwidth.heads``.
    """
    _, objective, w, ridge = look
    # A feature that is ignored stays so.
    seen = np.asarray(w != 0.0) if w.ndim < 2 else np.abs(w).max(axis=1, initial=0.0) > 0.0
    part = np.abs(w[seen]) if w.ndim < 2 else w[seen]
    if not part.size:
        return w, ridge
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
    return placed(found.x)
