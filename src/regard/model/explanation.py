"""Explanations: the training rows behind every prediction, what each counted, and what made them near.

A prediction is Σ_i ℓ_i·y_i with effective weights ℓ, which are the attention α itself for weighted averages and lean to
one side or the other for local lines. ``regard.model.nearness`` measures; here it is put into arrays, words and
tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from regard.core.arrays import Array
from regard.core.scores import Nearest
from regard.model.effects import TILE_CELLS
from regard.model.nearness import Seen, attention_of, is_far, seen, usual_distance
from regard.model.smoother import Smoother
from regard.model.top import best
from regard.model.words import frame_of, number, percent, row_words, table_of

# Training rows whose distance to another is measured: so many, fewer where these are differences, at least so many.
SAMPLE, SAMPLE_CELLS, FEWEST = 200, 1 << 22, 8


@dataclass(frozen=True, eq=False)
class Explained:
    """One prediction, explained; printing it tells it in words. Rows it did not look at are left out."""

    query: int  # number of the row of X
    answer: Any  # what was predicted: a number, (P,) numbers, or a class
    prediction: Array  # (P,)  numbers, or the share of attention of every class
    index: Array  # (top,)  where the rows looked at stand in key_ and value_, most attended first
    row: Array  # (top,)  their numbers in order of arrival
    value: Array  # (top,) or (top, P)  their y
    weight: Array  # (top,)  α
    effective: Array  # (top,)  ℓ
    mass: float  # share of its attention that they hold
    neighbours: float  # how many rows it looked at, 1/Σα²
    names: tuple[str, ...]  # (C,)  columns of X
    nearness: Array  # (C,)  each column's share in what was near
    square: Array  # (top, C)  each column's part of the squared distance in bandwidths
    score: Array  # (top, C)  each column's part of the score
    distance: float  # bandwidths to the nearest training row
    far: bool  # every training row is farther than the kernel reaches, and than they usually are from each other
    rows: int  # training rows there are
    unit: str  # of distances: "bandwidths", or "units of X" where there are none

    def __str__(self) -> str:
        told = _said(self.answer)
        lines = [f"Row {self.query}: {told} predicted."]
        if not len(self.index):
            return "\n".join([*lines, "  No training row is in reach, and none was looked at."])
        lines.append(
            f"  It looks at {number(self.neighbours)} of {self.rows:,} training rows (1/Σα²); "
            f"the {len(self.index)} below hold{'s' * (len(self.index) == 1)} {percent(self.mass)} of its attention."
        )
        lines.append("  " + self._near())
        if self.far:
            lines.append(
                f"  Far from everything: the nearest training row is {number(self.distance)} {self.unit} away.\n"
                "  The answer is little more than the nearest rows' own: do not trust it."
            )
        elif np.isfinite(self.distance):
            lines.append(f"  The nearest training row is {number(self.distance)} {self.unit} away.")
        away = np.sqrt(np.maximum(self.square.sum(axis=1), 0.0))
        head = ["row", "attention", "counts", f"{self.unit} away", "y"]
        body = [
            [str(row), percent(weight), f"{effective:+.4f}", number(u), _said(value)]
            for row, weight, effective, u, value in zip(
                self.row, self.weight, self.effective, away, self.value, strict=True
            )
        ]
        return "\n".join([*lines, *row_words(head, body)])

    def _near(self) -> str:
        if np.isnan(self.nearness).any():
            return "Its score is no distance, so no feature has a share in it."
        if not self.nearness.any():
            return "No feature decides: all that it looks at is equally near."
        order = np.argsort(-self.nearness, kind="stable")[:4]
        shares = ", ".join(f"{self.names[j]} {percent(self.nearness[j])}" for j in order)
        return f"Of the distance between them: {shares}{', …' * (len(self.names) > len(order))}."


@dataclass(frozen=True, eq=False)
class Explanation:
    """What ``explain`` returns: one ``Explained`` for every row of X, and all of them as arrays.

    effective_weights @ y is the prediction; the arrays are those of ``Explained`` with a first axis for the queries.
    """

    answer: Array
    prediction: Array
    index: Array
    row: Array
    value: Array
    effective: Array
    seen: Seen
    far: Array  # (Q,)  queries that are far from everything
    names: tuple[str, ...]
    rows: int
    unit: str
    weights_of: Callable[[], Array] = field(repr=False)

    @property
    def effective_weights(self) -> Array:
        """What every training row's y counts in each prediction, (Q, K). *Cost*: that memory; a tile at a time."""
        return self.weights_of()

    @property
    def weight(self) -> Array:
        """Attention α of the rows told of, (Q, top)."""
        return self.seen.weight

    @property
    def mass(self) -> Array:
        """Share of its attention that those hold, (Q,)."""
        return self.seen.mass

    @property
    def neighbours(self) -> Array:
        """Effective neighbours 1/Σα², (Q,)."""
        return self.seen.neighbours

    @property
    def nearness(self) -> Array:
        """Each column's share in what was near, (Q, C)."""
        return self.seen.nearness

    @property
    def distance(self) -> Array:
        """Bandwidths to the nearest training row, (Q,)."""
        return self.seen.distance

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, query: int) -> Explained:
        query = range(len(self))[query]
        shown = self.seen.weight[query] > 0.0
        s = self.seen
        return Explained(
            query=query,
            answer=self.answer[query],
            prediction=self.prediction[query],
            index=self.index[query][shown],
            row=self.row[query][shown],
            value=self.value[query][shown],
            weight=s.weight[query][shown],
            effective=self.effective[query][shown],
            mass=float(s.mass[query]),
            neighbours=float(s.neighbours[query]),
            names=self.names,
            nearness=s.nearness[query],
            square=s.square[query][shown],
            score=s.score[query][shown],
            distance=float(s.distance[query]),
            far=bool(self.far[query]),
            rows=self.rows,
            unit=self.unit,
        )

    def __iter__(self) -> Iterator[Explained]:
        return (self[query] for query in range(len(self)))

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))

    def columns(self) -> dict[str, Array]:
        """One row for each training row that a query looked at, best first: name → (m,)."""
        query, place = np.nonzero(self.seen.weight > 0.0)
        s = self.seen
        out: dict[str, Array] = {
            "query": query,
            "row": self.row[query, place],
            "attention": s.weight[query, place],
            "effective_weight": self.effective[query, place],
        }
        out |= table_of("y", self.value[query, place]) | table_of("prediction", self.answer[query])
        out |= {"bandwidths_away": np.sqrt(np.maximum(s.square[query, place].sum(axis=1), 0.0))}
        out |= {f"score: {name}": s.score[query, place, j] for j, name in enumerate(self.names)}
        out |= {f"nearness: {name}": s.nearness[query, j] for j, name in enumerate(self.names)}
        return out | {"neighbours": s.neighbours[query], "nearest": s.distance[query], "far": self.far[query]}

    def to_frame(self, library: str | None = None) -> Any:
        """The same as a dataframe of "pandas", "polars" or "pyarrow"; by default the first that is installed."""
        return frame_of(self.columns(), library)


def explain(smoother: Smoother, query: Array, top: int, decide: Callable[[Array], Array]) -> tuple[Explanation, Array]:
    """The rows behind every answer, and which queries (Q,) are empty; ``decide`` makes answers of predictions (Q, P).

    *Cost*: O(Q·K·d) time, d² for local lines, and a tile of memory.
    """
    smoother, query = smoother.exactly(), query.astype(np.float64)
    rows, values = smoother.rows, smoother.rows.columns
    names, fold = rows.fold
    empty = np.zeros(len(query), bool)
    parts: list[tuple[Array, Array, Array, Seen]] = []
    tile = max(1, TILE_CELLS // rows.key.size)
    for start in range(0, len(query), tile):
        some = slice(start, start + tile)
        heads, empty[some] = attention_of(smoother, query[some])
        index = best(np.asarray(sum(head.mix * head.weight for head in heads)), min(top, len(rows.key)))
        effective = smoother.effective_weights(query[some]).output
        found = seen(heads, index, rows.copies, rows.counted, fold)
        parts.append((index, np.take_along_axis(effective, index, 1), effective @ values, found))
    index, effective, prediction = (np.concatenate([part[j] for part in parts]) for j in range(3))
    together = Seen(*(np.concatenate([part[3][j] for part in parts]) for j in range(len(Seen._fields))))
    if smoother.empty == "nan":
        prediction[empty] = np.nan
    explanation = Explanation(
        answer=decide(prediction),
        prediction=prediction,
        index=index,
        row=index if rows.ids is None else rows.ids[index],
        value=rows.labels[index],
        effective=effective,
        seen=together,
        far=empty | is_far(heads, together.distance, _usual(smoother)),
        names=names,
        rows=len(rows.key),
        unit="units of X" if isinstance(heads[0].score, Nearest) else "bandwidths",
        weights_of=partial(_all_effective, smoother, query, tile),
    )
    return explanation, empty


def _usual(smoother: Smoother) -> float:
    """How far nine of ten training rows are from another one, in bandwidths; from a few of them where rows are many."""
    rows = smoother.rows
    counted = np.flatnonzero(rows.counted)
    count = min(len(counted), SAMPLE, max(FEWEST, SAMPLE_CELLS // rows.key.size))
    some = counted[np.linspace(0, len(counted) - 1, count).astype(int)]
    heads, _ = attention_of(smoother, rows.key[some].astype(np.float64))
    if any(head.score is None or isinstance(head.score, Nearest) for head in heads):
        return 0.0
    return usual_distance(heads, some, rows.counted)


def _all_effective(smoother: Smoother, query: Array, tile: int) -> Array:
    out = np.empty((len(query), len(smoother.rows.key)))
    for start in range(0, len(query), tile):
        out[start : start + tile] = smoother.effective_weights(query[start : start + tile]).output
    return out


def _said(value: Any) -> str:
    """A number, several, or a class."""
    if np.ndim(value):
        return ", ".join(_said(one) for one in value)
    if value is None:
        return "nothing"
    return number(float(value)) if np.asarray(value).dtype.kind in "fiu" else str(value)
