"""Explanations: the training rows behind every prediction, what each counted, and what made them near.

A prediction is Σ_i ℓ_i·y_i with effective weights ℓ, which are the attention α itself for weighted averages and lean to
one side or the other for local lines. ``regard.inference.nearness`` measures; here it is put into arrays, words and
tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.inference.nearness import Seen
from regard.inference.words import frame_of, number, percent, row_words, table_of

Array = NDArray[Any]


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


def _said(value: Any) -> str:
    """A number, several, or a class."""
    if np.ndim(value):
        return ", ".join(_said(one) for one in value)
    if value is None:
        return "nothing"
    return number(float(value)) if np.asarray(value).dtype.kind in "fiu" else str(value)
