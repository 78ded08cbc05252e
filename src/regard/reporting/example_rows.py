"""Three example rows, and the training rows their predictions come from.

A training row is explained by the model without it, so that it does not attend to itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard.core.arrays import Array
from regard.core.scores import Nearest, Radial
from regard.model.explanation import Explained, explain
from regard.model.smoother import Embedded
from regard.pooling.functions import pool
from regard.reporting.certainty import Certainty
from regard.reporting.report_facts import ReportFacts

# Training rows listed for each example.
ATTENDED_ROWS_PER_EXAMPLE = 5
# Candidates for the farthest row: as many as keep rows × keys × features × heads below MAX_DIFFERENCES.
MAX_CANDIDATES = 2000
MIN_CANDIDATES = 20
MAX_DIFFERENCES = 400_000_000


@dataclass(frozen=True)
class ExampleRow:
    """One row and the explanation of its prediction."""

    kind: str  # "ordinary", "unsure" or "farthest"
    place: int  # in ReportFacts.X
    explained: Explained
    certainty: float  # half-width of its interval, or probability of its most likely class; NaN if unknown


def examples(model: Any, facts: ReportFacts, certainty: Certainty) -> list[ExampleRow]:
    """A typical row, the least certain one, and the one farthest from every training row but itself.

    *Cost*: ``explain`` of three rows, and the nearest training row of up to 2,000.
    """
    if len(model.key_) == 1 and facts.left_out:
        return []
    chosen: dict[int, str] = {}
    known = certainty.centre if facts.classes else certainty.size
    if len(certainty.rows):
        order = np.argsort(-known if facts.classes else known, kind="stable")
        chosen[int(certainty.rows[order[len(order) // 2]])] = "ordinary"
        chosen.setdefault(int(certainty.rows[order[-1]]), "unsure")
    else:
        chosen[len(facts.y) // 2] = "ordinary"
    farthest = _farthest(facts, certainty.rows if len(certainty.rows) else np.arange(len(facts.y)), list(chosen))
    if farthest is not None:
        chosen[farthest] = "farthest"
    by_place = dict(zip(certainty.rows.tolist(), known.tolist(), strict=True))
    return [
        ExampleRow(kind, place, _explained(model, facts, place), float(by_place.get(place, np.nan)))
        for place, kind in chosen.items()
    ]


def _explained(model: Any, facts: ReportFacts, place: int) -> Explained:
    smoother = replace(facts.whole, rows=model._smoother.rows)
    if facts.left_out:
        smoother = smoother.with_rows(np.delete(np.arange(len(model.key_)), facts.rows[place]))
    return explain(smoother, facts.query[place : place + 1], ATTENDED_ROWS_PER_EXAMPLE, model._to_predictions)[0][0]


def _farthest(facts: ReportFacts, among_these: Array, taken: list[int]) -> int | None:
    """The row farthest from its nearest other training row, in bandwidths; None if distances are not defined."""
    smoother, key = facts.whole, facts.whole.rows.key
    count = int(np.clip(MAX_DIFFERENCES // (key.size * len(smoother.heads)), MIN_CANDIDATES, MAX_CANDIDATES))
    places = np.setdiff1d(np.random.default_rng(5).permutation(among_these)[:count], taken)
    if not len(places):
        return None
    away = np.zeros(len(places))
    labels = (places, np.arange(len(key))) if facts.left_out else None
    for head, at, placed in smoother.each(facts.X[places]):
        if not isinstance(head.score, Radial) or isinstance(head.transform, Embedded):
            return None
        if head.w.any():
            away += head.mix * _nearest(at, placed.astype(np.float64), head.w, labels)
    return int(places[np.argmax(away)]) if away.any() else None


def _nearest(query: Array, key: Array, w: Array, labels: tuple[Array, Array] | None) -> Array:
    """Distance in bandwidths from queries (Q, d) to the nearest key with another label.

    Nearest keys at equal distance are averaged, and ‖k − q‖² = ‖k‖² − 2k·q + ‖q‖² is the same for all of them: the
    means of k and ‖k‖² give it.
    """
    middle = key.mean(axis=0)
    k, q = ((rows - middle) @ w if w.ndim == 2 else (rows - middle) * w for rows in (key, query))
    found = pool(query, key, np.column_stack([k, (k**2).sum(axis=1)]), Nearest(w), exclude=labels).output
    square = found[:, -1] - 2.0 * (found[:, :-1] * q).sum(axis=1) + (q**2).sum(axis=1)
    return np.asarray(np.sqrt(np.maximum(square, 0.0)))
