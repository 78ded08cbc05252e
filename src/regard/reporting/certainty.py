"""Coverage and width of the intervals, or sets of classes, of the rows given.

Training rows are judged by their leave-one-out residuals, against the residual scale estimated from the other rows.
New rows are judged by ``predict_interval`` and ``predict_set``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard.core.arrays import Array
from regard.model.calibration import set_bound
from regard.model.intervals import interval
from regard.model.quantiles import conformal_bound
from regard.model.residual_scale import row_counts
from regard.model.residuals import Residuals, as_columns, learn_residuals
from regard.model.smoother import Smoother
from regard.reporting.report_facts import ReportFacts
from regard.reporting.table_rows import rows_of

COVERAGE = 0.9
METHOD = "conformal"
MAX_ROWS = 2000
# Training rows from which the residual scale is estimated if the model does not have it yet.
MAX_ROWS_OF_SCALE = 5000
# Points of the curve of a single feature.
CURVE_POINTS = 200


@dataclass(frozen=True)
class Certainty:
    """Intervals of m rows, or sets of classes; ``missing`` says why there are none."""

    rows: Array  # (m,) indices into ReportFacts.X, sorted
    inside: Array  # (m,) whether y lies inside
    centre: Array  # (m,) predictions, or the probability of the most likely class
    size: Array  # (m,) half-width of the interval, or number of classes in the set
    right: Array  # (m,) whether the most likely class is correct; empty for numbers
    curve: tuple[Array, Array, Array] | None  # (CURVE_POINTS,) x, predictions and half-widths of a single feature
    scale_rows: int  # training rows behind the residual scale if not all; else 0
    missing: str = ""  # "alone", "few" or "large"


def certainty_of(model: Any, X: Any, facts: ReportFacts) -> Certainty:
    """Intervals or sets of up to 2,000 of the rows.

    *Cost*: ``predict_interval`` of those rows, and once the residuals of the training rows; of 5,000 of them if there
    are more than 10,000.
    """
    if facts.classes:
        return _classes(model, X, facts)
    if len(facts.whole.rows.key) < 2:
        return _nothing("alone")
    known, scale_rows = _residuals(model, facts)
    if known is None:
        return _nothing("large")
    smoother = replace(facts.whole, rows=model._smoother.rows)
    shown, counts = known.known(model.sample_weight_)
    bound = float(conformal_bound(np.abs(shown), counts, COVERAGE)[0])
    if not np.isfinite(bound):
        return _nothing("few")
    residual, standard = known.residual[:, 0], known.standardised[:, 0]
    rows = _subsample(~np.isnan(residual[facts.rows]) if facts.left_out else np.ones(len(facts.y), bool))
    centre, half = _ends(smoother, known, facts.query[rows])
    inside = np.abs(facts.y[rows] - centre) <= half
    if facts.left_out:
        residual, standard = residual[facts.rows[rows]], standard[facts.rows[rows]]
        # The residual scale without the row; a residual of 0 does not reveal it, so there that of all rows.
        scale = np.abs(residual / np.where(standard == 0.0, 1.0, standard))
        half = np.where(standard == 0.0, half, scale * bound)
        centre, inside = facts.y[rows] - residual, np.abs(standard) <= bound
    empty = np.empty(0, bool)
    return Certainty(rows, inside, centre, half, empty, _curve(smoother, known, facts), scale_rows)


def _subsample(known: Array) -> Array:
    """Indices of up to MAX_ROWS of the ``known`` (n,) rows, sorted."""
    return np.sort(np.random.default_rng(3).permutation(np.flatnonzero(known))[:MAX_ROWS])


def _nothing(missing: str) -> Certainty:
    empty = np.empty(0)
    return Certainty(empty.astype(int), empty.astype(bool), empty, empty, empty.astype(bool), None, 0, missing)


def _residuals(model: Any, facts: ReportFacts) -> tuple[Residuals | None, int]:
    """Leave-one-out residuals and how many rows they are of if not all; None if they would take too long."""
    if "spread_" in vars(model) or len(facts.whole.rows.key) <= 2 * MAX_ROWS_OF_SCALE:
        return model._residuals(), 0
    known = vars(model).get("loo_predictions_")
    if known is None:
        if not facts.left_out:
            return None, 0
        known = np.full(len(model.key_), np.nan)
        known[facts.rows] = facts.answer
    rows = np.random.default_rng(4).permutation(np.flatnonzero(~np.isnan(known)))[:MAX_ROWS_OF_SCALE]
    answers = np.full(len(model.key_), np.nan)
    answers[rows] = known[rows]
    return learn_residuals(model._configured_smoother, as_columns(answers), None), MAX_ROWS_OF_SCALE


def _ends(smoother: Smoother, known: Residuals, query: Array) -> tuple[Array, Array]:
    """Midpoints and half-widths of intervals (m,), rounded as ``predict_interval`` rounds them."""
    output = smoother.answer(query).output
    ends = interval(smoother, known, query, as_columns(output), COVERAGE, METHOD)[:, 0].astype(output.dtype)
    low, high = ends.astype(np.float64).T
    return (low + high) / 2.0, (high - low) / 2.0


def _curve(smoother: Smoother, known: Residuals, facts: ReportFacts) -> tuple[Array, Array, Array] | None:
    if facts.X.shape[1] != 1 or smoother.rows.coding is not None or np.ptp(facts.X) == 0.0:
        return None
    x = np.linspace(facts.X.min(), facts.X.max(), CURVE_POINTS)
    return (x, *_ends(smoother, known, x[:, None]))


def _classes(model: Any, X: Any, facts: ReportFacts) -> Certainty:
    label, rows = facts.y.astype(int), _subsample(np.ones(len(facts.y), bool))
    if facts.left_out:
        probability = facts.answer
        probability = model._calibration()(probability) if model.calibrate else probability
        weight = None if model.sample_weight_ is None else model.sample_weight_[facts.rows]
        bound = set_bound(probability, label, row_counts(weight, len(label)), COVERAGE)
        probability = probability[rows]
        chosen = probability >= bound
        chosen[np.arange(len(rows)), probability.argmax(axis=1)] = True
    else:
        asked = rows_of(X, facts.rows[rows])
        probability, chosen = facts.answer[rows], model.predict_set(asked, COVERAGE)
    inside = chosen[np.arange(len(rows)), label[rows]]
    most_likely = probability.argmax(axis=1)
    return Certainty(rows, inside, probability.max(axis=1), chosen.sum(axis=1), most_likely == label[rows], None, 0)
