"""How sure, in numbers: what intervals and sets of classes hold of the rows given, and how wide they are.

Training rows are judged as the rest of the report judges them, each answered by the others: its left-out residual
against the spread that the others tell. New rows are judged by ``predict_interval`` and ``predict_set`` as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard.core.arrays import Array
from regard.model.calibration import set_bound
from regard.model.intervals import interval
from regard.model.ranks import conformal_bound
from regard.model.residual_scale import row_counts
from regard.model.residuals import Residuals, as_columns, learn_residuals
from regard.model.smoother import Smoother
from regard.reporting.facts import Facts
from regard.reporting.rows import rows_of

COVERAGE, METHOD = 0.9, "conformal"
# Rows looked at, and training rows from which the spread is learned where it is not known yet: more would take long.
MOST, LEARNED_FROM = 2000, 5000
# Rows from which on thirds of them are told apart.
THIRDS = 30
# Along the curve of a single feature.
POINTS = 200


@dataclass(frozen=True)
class Sure:
    """Intervals of m of the rows, or sets of classes; ``why_not`` instead of them where there is nothing to tell."""

    rows: Array  # (m,) places in Facts.X, sorted
    inside: Array  # (m,) whether y lies inside
    centre: Array  # (m,) predictions, or the chance of the likeliest class
    size: Array  # (m,) half the width of the interval, or how many classes the set holds
    right: Array  # (m,) whether the likeliest class is the right one; empty for numbers
    curve: tuple[Array, Array, Array] | None  # (POINTS,) x, predictions and half widths where there is one feature
    learned_from: int  # training rows behind the spread if these are not all; 0 otherwise
    why_not: str = ""  # "alone", "few" or "large"


def sure_of(model: Any, X: Any, facts: Facts) -> Sure:
    """What a model says of its doubts on these rows.

    *Cost*: ``predict_interval`` of at most 2,000 rows, and at the first call its look back at the training rows; for
    more than 10,000 of them at 5,000 only.
    """
    if facts.classes:
        return _classes(model, X, facts)
    if len(facts.whole.rows.key) < 2:
        return _nothing("alone")
    known, learned_from = _residuals(model, facts)
    if known is None:
        return _nothing("large")
    smoother = replace(facts.whole, rows=model._smoother.rows)
    shown, counts = known.shown(model.sample_weight_)
    bound = float(conformal_bound(np.abs(shown), counts, COVERAGE)[0])
    if not np.isfinite(bound):
        return _nothing("few")
    residual, standard = known.residual[:, 0], known.standardised[:, 0]
    rows = _some(~np.isnan(residual[facts.rows]) if facts.left_out else np.ones(len(facts.y), bool))
    centre, half = _ends(smoother, known, facts.query[rows])
    inside = np.abs(facts.y[rows] - centre) <= half
    if facts.left_out:
        residual, standard = residual[facts.rows[rows]], standard[facts.rows[rows]]
        # The spread as the others tell it; where nothing is left of a residual, as all do.
        spread = np.abs(residual / np.where(standard == 0.0, 1.0, standard))
        half = np.where(standard == 0.0, half, spread * bound)
        centre, inside = facts.y[rows] - residual, np.abs(standard) <= bound
    empty = np.empty(0, bool)
    return Sure(rows, inside, centre, half, empty, _curve(smoother, known, facts), learned_from)


def _some(known: Array) -> Array:
    """Places of those that are known (n,), at most 2,000 of them, sorted."""
    return np.sort(np.random.default_rng(3).permutation(np.flatnonzero(known))[:MOST])


def _nothing(why_not: str) -> Sure:
    empty = np.empty(0)
    return Sure(empty.astype(int), empty.astype(bool), empty, empty, empty.astype(bool), None, 0, why_not)


def _residuals(model: Any, facts: Facts) -> tuple[Residuals | None, int]:
    """Left-out residuals, of some rows where they are many and not known yet, and how many; None if that takes long."""
    if "spread_" in vars(model) or len(facts.whole.rows.key) <= 2 * LEARNED_FROM:
        return model._residuals(), 0
    known = vars(model).get("loo_predictions_")
    if known is None:
        if not facts.left_out:
            return None, 0
        known = np.full(len(model.key_), np.nan)
        known[facts.rows] = facts.answer
    told = np.flatnonzero(~np.isnan(known))
    some = np.random.default_rng(4).permutation(len(told))[:LEARNED_FROM]
    answers = np.full(len(model.key_), np.nan)
    answers[told[some]] = known[told[some]]
    return learn_residuals(model._asked, as_columns(answers), None), LEARNED_FROM


def _ends(smoother: Smoother, known: Residuals, query: Array) -> tuple[Array, Array]:
    """Middles and half widths of intervals (m,), rounded as ``predict_interval`` rounds them."""
    output = smoother.answer(query).output
    ends = interval(smoother, known, query, as_columns(output), COVERAGE, METHOD)[:, 0].astype(output.dtype)
    low, high = ends.astype(np.float64).T
    return (low + high) / 2.0, (high - low) / 2.0


def _curve(smoother: Smoother, known: Residuals, facts: Facts) -> tuple[Array, Array, Array] | None:
    if facts.X.shape[1] != 1 or smoother.rows.coding is not None or np.ptp(facts.X) == 0.0:
        return None
    x = np.linspace(facts.X.min(), facts.X.max(), POINTS)
    return (x, *_ends(smoother, known, x[:, None]))


def _classes(model: Any, X: Any, facts: Facts) -> Sure:
    label, rows = facts.y.astype(int), _some(np.ones(len(facts.y), bool))
    if facts.left_out:
        chance = facts.answer
        chance = model._calibration()(chance) if model.calibrate else chance
        weight = None if model.sample_weight_ is None else model.sample_weight_[facts.rows]
        bound = set_bound(chance, label, row_counts(weight, len(label)), COVERAGE)
        chance = chance[rows]
        chosen = chance >= bound
        chosen[np.arange(len(rows)), chance.argmax(axis=1)] = True
    else:
        asked = rows_of(X, facts.rows[rows])
        chance, chosen = facts.answer[rows], model.predict_set(asked, COVERAGE)
    inside = chosen[np.arange(len(rows)), label[rows]]
    likeliest = chance.argmax(axis=1)
    return Sure(rows, inside, chance.max(axis=1), chosen.sum(axis=1), likeliest == label[rows], None, 0)
