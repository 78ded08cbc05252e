"""Why, by example: three of the rows and the training rows their answers come from.

A row that the model was fitted to is explained by a model without it, so that it does not look at itself.
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
from regard.reporting.facts import Facts
from regard.reporting.sure import Sure

# Training rows named for each.
TOP = 5
# Rows among which the farthest is looked for, fewer where these are differences, but not fewer than.
LOOKED_AT, CELLS, FEWEST = 2000, 400_000_000, 20


@dataclass(frozen=True)
class Example:
    """One row, and why it is answered as it is."""

    kind: str  # "ordinary", "unsure" or "farthest"
    place: int  # in Facts.X
    told: Explained
    doubt: float  # half the width of its interval, or the chance of the likeliest class; NaN where that is not known


def examples(model: Any, facts: Facts, sure: Sure) -> list[Example]:
    """An ordinary row, the one it is least sure of, and the one farthest from all training rows but itself.

    *Cost*: ``explain`` of three rows, and the nearest training row of up to 2,000.
    """
    if len(model.key_) == 1 and facts.left_out:
        return []
    chosen: dict[int, str] = {}
    told = sure.centre if facts.classes else sure.size
    if len(sure.rows):
        order = np.argsort(-told if facts.classes else told, kind="stable")
        chosen[int(sure.rows[order[len(order) // 2]])] = "ordinary"
        chosen.setdefault(int(sure.rows[order[-1]]), "unsure")
    else:
        chosen[len(facts.y) // 2] = "ordinary"
    farthest = _farthest(facts, sure.rows if len(sure.rows) else np.arange(len(facts.y)), list(chosen))
    if farthest is not None:
        chosen[farthest] = "farthest"
    doubt = dict(zip(sure.rows.tolist(), told.tolist(), strict=True))
    return [
        Example(kind, place, _explained(model, facts, place), float(doubt.get(place, np.nan)))
        for place, kind in chosen.items()
    ]


def _explained(model: Any, facts: Facts, place: int) -> Explained:
    smoother = replace(facts.whole, rows=model._smoother.rows)
    if facts.left_out:
        smoother = smoother.with_rows(np.delete(np.arange(len(model.key_)), facts.rows[place]))
    return explain(smoother, facts.query[place : place + 1], TOP, model._decided)[0][0]


def _farthest(facts: Facts, among_these: Array, taken: list[int]) -> int | None:
    """The row with the longest way to a training row other than itself, in bandwidths; None where there are none."""
    smoother, key = facts.whole, facts.whole.rows.key
    count = int(np.clip(CELLS // (key.size * len(smoother.heads)), FEWEST, LOOKED_AT))
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
    """Bandwidths from queries (Q, d) to the nearest key that does not have the query's label.

    Keys equally near share, and ‖k − q‖² = ‖k‖² − 2k·q + ‖q‖² is the same for all of them: the means of k and ‖k‖² give
    it.
    """
    middle = key.mean(axis=0)
    k, q = ((rows - middle) @ w if w.ndim == 2 else (rows - middle) * w for rows in (key, query))
    found = pool(query, key, np.column_stack([k, (k**2).sum(axis=1)]), Nearest(w), exclude=labels).output
    square = found[:, -1] - 2.0 * (found[:, :-1] * q).sum(axis=1) + (q**2).sum(axis=1)
    return np.asarray(np.sqrt(np.maximum(square, 0.0)))
