"""Explanations: the training rows behind every prediction, what each counted, and what made them near.

A prediction is Σ_i ℓ_i·y_i with effective weights ℓ, which are the attention α itself for weighted averages and lean to
one side or the other for local lines. ``regard.model.nearness`` measures; here it is put into arrays, words and
tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.core.arrays import Array
from regard.core.scores import Nearest
from regard.model.effects import TILE_CELLS
from regard.model.nearness import Seen, attention_of, is_far, seen, usual_distance
from regard.model.smoother import Smoother, tiles
from regard.model.top import best
from regard.model.words import frame_of, number, percent, row_words, table_of

# Training rows whose distance to another is measured: so many, fewer where these are differences, at least so many.
SAMPLE, SAMPLE_CELLS, FEWEST = 200, 1 << 22, 8
# What ``Explained`` has of its query: as it is, as a plain number or boolean, and of the rows that are shown.
OF_QUERIES, NUMBERS = ("answer", "prediction", "nearness"), ("mass", "neighbours", "distance", "far")
OF_ROWS = ("index", "row", "value", "weight", "effective", "square", "score")


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
    weight: Array
    effective: Array
    mass: Array
    neighbours: Array
    names: tuple[str, ...]
    nearness: Array
    square: Array
    score: Array
    distance: Array
    far: Array
    rows: int
    unit: str
    smoother: Smoother = field(repr=False)
    queries: Array = field(repr=False)  # (Q, d)

    @property
    def effective_weights(self) -> Array:
        """What every training row's y counts in each prediction, (Q, K). *Cost*: that memory; a tile at a time."""
        out = np.empty((len(self), self.rows))
        for some in tiles(len(self), self.smoother.rows.key.size, TILE_CELLS):
            out[some] = self.smoother.effective_weights(self.queries[some]).output
        return out

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, query: int) -> Explained:
        query = range(len(self))[query]
        shown = self.weight[query] > 0.0
        here = {name: getattr(self, name)[query] for name in (*OF_QUERIES, *NUMBERS, *OF_ROWS)}
        here |= {name: here[name].item() for name in NUMBERS} | {name: here[name][shown] for name in OF_ROWS}
        return Explained(query=query, names=self.names, rows=self.rows, unit=self.unit, **here)

    def __iter__(self) -> Iterator[Explained]:
        return (self[query] for query in range(len(self)))

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))

    def columns(self) -> dict[str, Array]:
        """One row for each training row that a query looked at, best first: name → (m,)."""
        query, place = np.nonzero(self.weight > 0.0)
        out: dict[str, Array] = {
            "query": query,
            "row": self.row[query, place],
            "attention": self.weight[query, place],
            "effective_weight": self.effective[query, place],
        }
        out |= table_of("y", self.value[query, place]) | table_of("prediction", self.answer[query])
        out |= {"bandwidths_away": np.sqrt(np.maximum(self.square[query, place].sum(axis=1), 0.0))}
        out |= {f"score: {name}": self.score[query, place, j] for j, name in enumerate(self.names)}
        out |= {f"nearness: {name}": self.nearness[query, j] for j, name in enumerate(self.names)}
        return out | {"neighbours": self.neighbours[query], "nearest": self.distance[query], "far": self.far[query]}

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
    parts: list[tuple[Array, ...]] = []
    for some in tiles(len(query), rows.key.size, TILE_CELLS):
        heads, empty[some] = attention_of(smoother, query[some])
        index = best(np.asarray(sum(head.mix * head.weight for head in heads)), min(top, len(rows.key)))
        effective = smoother.effective_weights(query[some]).output
        found = seen(heads, index, rows.copies, rows.counted, fold)
        parts.append((index, np.take_along_axis(effective, index, 1), effective @ values, *found))
    index, effective, prediction, *measured = (np.concatenate(part) for part in zip(*parts, strict=True))
    together = Seen(*measured)
    if smoother.empty == "nan":
        prediction[empty] = np.nan
    explanation = Explanation(
        answer=decide(prediction),
        prediction=prediction,
        index=index,
        row=index if rows.ids is None else rows.ids[index],
        value=rows.labels[index],
        effective=effective,
        **together._asdict(),
        far=empty | is_far(heads, together.distance, _usual(smoother)),
        names=names,
        rows=len(rows.key),
        unit="units of X" if isinstance(heads[0].score, Nearest) else "bandwidths",
        smoother=smoother,
        queries=query,
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


def _said(value: Any) -> str:
    """A number, several, or a class."""
    if np.ndim(value):
        return ", ".join(_said(one) for one in value)
    if value is None:
        return "nothing"
    return number(float(value)) if np.asarray(value).dtype.kind in "fiu" else str(value)
