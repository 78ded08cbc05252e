"""Explanations: the training rows behind every prediction, what each contributed, and what made them near.

A prediction is Σ_i ℓ_i·y_i with effective weights ℓ. For weighted averages they are the attention α itself; for local
lines they also sum to 1, but may be negative. ``regard.model.attended_rows`` computes the quantities; this module
presents them as arrays, text and tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.core.arrays import Array
from regard.core.scores import Nearest
from regard.model.attended_rows import AttendedRows, attended_rows, attention_of, is_far, largest, usual_distance
from regard.model.effects import TILE_CELLS
from regard.model.formatting import format_number, format_percent, format_table, numbered_columns, to_dataframe
from regard.model.smoother import Smoother, tiles

# Training rows whose distance to their nearest neighbour is measured: at most this many, fewer if their differences
# would exceed this many numbers, but at least so many.
MAX_SAMPLED_ROWS = 200
MAX_SAMPLED_DIFFERENCES = 1 << 22
MIN_SAMPLED_ROWS = 8
# Fields of ``Explained`` that are taken from ``Explanation``: arrays, plain numbers, and one entry per row shown.
ARRAY_FIELDS = ("answer", "prediction", "nearness")
NUMBER_FIELDS = ("mass", "neighbours", "distance", "far")
ROW_FIELDS = ("index", "row", "value", "weight", "effective", "square", "score")


@dataclass(frozen=True, eq=False)
class Explained:
    """One prediction, explained; ``print`` gives a readable summary. Rows of zero weight are left out."""

    query: int  # number of the row of X
    answer: Any  # what was predicted: a number, (P,) numbers, or a class
    prediction: Array  # (P,)  numbers, or the attention that every class holds
    index: Array  # (top,)  positions of the attended rows in key_ and value_, by decreasing attention
    row: Array  # (top,)  their ids, as in row_ids_
    value: Array  # (top,) or (top, P)  their y
    weight: Array  # (top,)  α
    effective: Array  # (top,)  ℓ
    mass: float  # total attention of these rows
    neighbours: float  # effective number of training rows attended to, 1/Σα²
    names: tuple[str, ...]  # (C,)  columns of X
    nearness: Array  # (C,)  fraction of the squared distance that each column accounts for
    square: Array  # (top, C)  part of each column in the squared distance in bandwidths
    score: Array  # (top, C)  part of each column in the score
    distance: float  # bandwidths to the nearest training row
    far: bool  # every training row is farther than the kernel reaches, and than they usually are from each other
    rows: int  # number of training rows
    unit: str  # of distances: "bandwidths", or "units of X" for models without one

    def __str__(self) -> str:
        lines = [f"Row {self.query}: predicted {_format_answer(self.answer)}."]
        if not len(self.index):
            return "\n".join([*lines, "  No training row is within the bandwidth, so none has any weight."])
        lines.append(
            f"  Effective number of training rows (1/Σα²): {format_number(self.neighbours)} of {self.rows:,}; the "
            f"{len(self.index)} below hold{'s' * (len(self.index) == 1)} {format_percent(self.mass)} of the attention."
        )
        lines.append("  " + self._format_nearness())
        away = f"the nearest training row is {format_number(self.distance)} {self.unit} away."
        if self.far:
            lines += [f"  Far from everything: {away}", "  The prediction extrapolates from it: do not trust it."]
        elif np.isfinite(self.distance):
            lines.append(f"  T{away[1:]}")
        distance = np.sqrt(np.maximum(self.square.sum(axis=1), 0.0))
        head = ["row", "attention", "effective weight", f"{self.unit} away", "y"]
        body = [
            [str(row), format_percent(weight), f"{effective:+.4f}", format_number(u), _format_answer(value)]
            for row, weight, effective, u, value in zip(
                self.row, self.weight, self.effective, distance, self.value, strict=True
            )
        ]
        return "\n".join([*lines, *format_table(head, body)])

    def _format_nearness(self) -> str:
        if np.isnan(self.nearness).any():
            return "The score is not a distance, so it has no parts by feature."
        if not self.nearness.any():
            return "All attended rows are equally near in every feature."
        order = np.argsort(-self.nearness, kind="stable")[:4]
        parts = ", ".join(f"{self.names[j]} {format_percent(self.nearness[j])}" for j in order)
        return f"Squared distance by feature: {parts}{', …' * (len(self.names) > len(order))}."


@dataclass(frozen=True, eq=False)
class Explanation:
    """Result of ``explain``: a sequence of one ``Explained`` per row of X, and all of them as arrays.

    effective_weights @ y is the prediction. The arrays are those of ``Explained`` with a leading axis for the queries.
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
        """Coefficient of every training value in each prediction, (Q, K). *Cost*: that memory; a tile at a time."""
        out = np.empty((len(self), self.rows))
        for some in tiles(len(self), self.smoother.rows.key.size, TILE_CELLS):
            out[some] = self.smoother.effective_weights(self.queries[some]).output
        return out

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, query: int) -> Explained:
        query = range(len(self))[query]
        shown = self.weight[query] > 0.0
        here = {name: getattr(self, name)[query] for name in ARRAY_FIELDS}
        here |= {name: getattr(self, name)[query].item() for name in NUMBER_FIELDS}
        here |= {name: getattr(self, name)[query][shown] for name in ROW_FIELDS}
        return Explained(query=query, names=self.names, rows=self.rows, unit=self.unit, **here)

    def __iter__(self) -> Iterator[Explained]:
        return (self[query] for query in range(len(self)))

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))

    def columns(self) -> dict[str, Array]:
        """A table with one line per query and training row shown, by decreasing attention: name → (m,)."""
        query, place = np.nonzero(self.weight > 0.0)
        out: dict[str, Array] = {
            "query": query,
            "row": self.row[query, place],
            "attention": self.weight[query, place],
            "effective_weight": self.effective[query, place],
        }
        out |= numbered_columns("y", self.value[query, place]) | numbered_columns("prediction", self.answer[query])
        out |= {"bandwidths_away": np.sqrt(np.maximum(self.square[query, place].sum(axis=1), 0.0))}
        out |= {f"score: {name}": self.score[query, place, j] for j, name in enumerate(self.names)}
        out |= {f"nearness: {name}": self.nearness[query, j] for j, name in enumerate(self.names)}
        return out | {"neighbours": self.neighbours[query], "nearest": self.distance[query], "far": self.far[query]}

    def to_frame(self, library: str | None = None) -> Any:
        """``columns()`` as a dataframe of "pandas", "polars" or "pyarrow"; by default the first one installed."""
        return to_dataframe(self.columns(), library)


def explain(smoother: Smoother, query: Array, top: int, decide: Callable[[Array], Array]) -> tuple[Explanation, Array]:
    """The rows behind every prediction, and which queries (Q,) are empty.

    ``decide`` turns pooled values (Q, P) into answers: numbers, or classes.

    *Cost*: O(Q·K·d) time, d² for local lines, and a tile of memory.
    """
    smoother, query = smoother.exactly(), query.astype(np.float64)
    rows, values = smoother.rows, smoother.rows.columns
    names, fold = rows.fold
    empty = np.zeros(len(query), bool)
    parts: list[tuple[Array, ...]] = []
    for some in tiles(len(query), rows.key.size, TILE_CELLS):
        heads, empty[some] = attention_of(smoother, query[some])
        index = largest(np.asarray(sum(head.mix * head.weight for head in heads)), min(top, len(rows.key)))
        effective = smoother.effective_weights(query[some]).output
        found = attended_rows(heads, index, rows.copies, rows.counted, fold)
        parts.append((index, np.take_along_axis(effective, index, 1), effective @ values, *found))
    index, effective, prediction, *measured = (np.concatenate(part) for part in zip(*parts, strict=True))
    attended = AttendedRows(*measured)
    if smoother.empty == "nan":
        prediction[empty] = np.nan
    explanation = Explanation(
        answer=decide(prediction),
        prediction=prediction,
        index=index,
        row=index if rows.ids is None else rows.ids[index],
        value=rows.labels[index],
        effective=effective,
        **attended._asdict(),
        far=empty | is_far(heads, attended.distance, _usual_distance(smoother)),
        names=names,
        rows=len(rows.key),
        unit="units of X" if isinstance(heads[0].score, Nearest) else "bandwidths",
        smoother=smoother,
        queries=query,
    )
    return explanation, empty


def _usual_distance(smoother: Smoother) -> float:
    """Distance in bandwidths within which 90 % of training rows have another, estimated from a sample.

    0 if the model has no bandwidth.
    """
    rows = smoother.rows
    counted = np.flatnonzero(rows.counted)
    count = min(len(counted), MAX_SAMPLED_ROWS, max(MIN_SAMPLED_ROWS, MAX_SAMPLED_DIFFERENCES // rows.key.size))
    some = counted[np.linspace(0, len(counted) - 1, count).astype(int)]
    heads, _ = attention_of(smoother, rows.key[some].astype(np.float64))
    if any(head.score is None or isinstance(head.score, Nearest) for head in heads):
        return 0.0
    return usual_distance(heads, some, rows.counted)


def _format_answer(value: Any) -> str:
    """A number, several, or a class."""
    if np.ndim(value):
        return ", ".join(_format_answer(one) for one in value)
    if value is None:
        return "nothing"
    return format_number(float(value)) if np.asarray(value).dtype.kind in "fiu" else str(value)
