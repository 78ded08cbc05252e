"""The attention map: weights of queries and keys, in the order of an input, with its values on the axes.

Sorted by the input, local attention is a diagonal band: the larger the bandwidth, the thicker.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Normalize
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from regard.plot import style
from regard.plot.display import Array, Display, Labels, attention_of, column, numbers_of, plain, rows_to_draw, short

# Cells along a side of the map, shared by more queries or keys. As many as 72 dots per inch, the coarsest usual
# output, can show in a figure of the default size, so that no cell is lost or smeared.
MAX_CELLS_PER_SIDE = 280
# Weights computed at once.
MAX_WEIGHTS_PER_TILE = 1 << 22
# How weights that share a cell are combined, and what an empty cell holds.
AGGREGATES = {"max": (np.maximum, -np.inf), "mean": (np.add, 0.0)}
# Smallest distance of two ticks as a share of the side: numbers are wider than high.
MIN_TICK_DISTANCE = {"key": 0.1, "query": 0.05}


class AttentionMapDisplay(Display):
    """Weights as a heatmap, queries downwards and keys to the right.

    Parameters
    ----------
    weights : array (Q, K)
        As ``attend`` and ``attention_weights`` give them.
    query : array (Q,), default=None
        Inputs written on the axis of the queries; without them rows are numbered.
    key : array (K,), default=None
        The same for the keys.
    sort : bool, default=True
        Order queries and keys by these inputs; False keeps the order of the rows.
    aggregate : {"max", "mean"}, default="max"
        Of the weights that share a cell, if there are more than 280 queries or keys; the colour bar is labelled
        accordingly.
    labels : dict, default=None
        Other texts for "query", "key", "weight", "sorted", "max", "mean".

    Attributes
    ----------
    cells : array (≤ 280, ≤ 280)
        The values drawn.
    pooled : tuple of two int
        Queries and keys in a cell.
    image_, colorbar_ : artists
        The heatmap and its colour bar, None without one.
    ax_, figure_ : Axes, Figure
        Where they are drawn.

    *Empty rows*: white; NaN is grey. *Cost*: O(Q·K).

    >>> display = AttentionMapDisplay([[0.2, 0.8], [0.9, 0.1]], query=[5.0, 1.0], key=[1.0, 5.0]).plot()
    >>> display.cells.tolist()
    [[0.9, 0.1], [0.2, 0.8]]
    """

    _LABELS: ClassVar[dict[str, str]] = {
        "query": "queries",
        "key": "keys",
        "sorted": "{side}, sorted by {name}",
        "numbered": "{side}, by row number",
        "unsorted": "{side}, {name} in the order of the rows",
        "input": "input",
        "weight": "weight",
        "max": "weight (largest of {queries} × {keys} in a cell)",
        "mean": "weight (mean of {queries} × {keys} in a cell)",
    }

    image_: AxesImage
    colorbar_: Colorbar | None

    def __init__(
        self,
        weights: ArrayLike,
        *,
        query: ArrayLike | None = None,
        key: ArrayLike | None = None,
        sort: bool = True,
        aggregate: str = "max",
        labels: Labels | None = None,
    ) -> None:
        table = numbers_of(weights)
        if table.ndim != 2 or not table.size:
            raise ValueError(f"weights must have two axes (queries, keys) and not be empty, got shape {table.shape}")
        self._lay_out(table.shape, query, key, sort, aggregate, labels)
        self.cells = self._fill(lambda rows: table[rows])

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        *,
        feature: int | str | None = None,
        sort: bool = True,
        aggregate: str = "max",
        labels: Labels | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """The attention of every row of X.

        Weights are computed for a tile of queries at a time.

        Parameters
        ----------
        estimator : estimator
            Fitted, with ``attend``.
        X : array (Q, d), default=None
            Queries; None is the training rows themselves.
        feature : int or str, default=None
            Index or name of the feature on the axes; None is the most relevant.
        sort : bool, default=True
            As in the class.
        aggregate : {"max", "mean"}, default="max"
            As in the class.
        labels : dict, default=None
            As in the class.
        ax : Axes, default=None
            Where to draw; None is a new figure.

        Returns
        -------
        AttentionMapDisplay

        *Cost*: that of ``attend``, memory O(280²) and a tile.
        """
        if not hasattr(estimator, "attend"):
            raise TypeError(f"estimator must have attend, got {type(estimator).__name__}")
        rows = rows_to_draw(estimator)
        j = rows.feature(feature)
        asked = rows.X if X is None else np.asarray(X, np.float64)
        if asked.ndim != 2 or asked.shape[1] != rows.X.shape[1] or not len(asked):
            raise ValueError(f"X must have shape (queries, {rows.X.shape[1]}), got {asked.shape}")
        display = cls.__new__(cls)
        shape = len(asked), len(rows.X)
        display._lay_out(shape, asked[:, j], rows.X[:, j], sort, aggregate, labels, plain(rows.names[j]))
        display.cells = display._fill(lambda some: attention_of(estimator, asked[some]))
        return display.plot(ax)

    def plot(self, ax: Axes | None = None, *, norm: Normalize | None = None, colorbar: bool = True) -> Self:
        """Draw into ``ax``, or into a new figure.

        Parameters
        ----------
        ax : Axes, default=None
            Where to draw; None is a new figure.
        norm : Normalize, default=None
            A colour scale to share with another map (its ``image_.norm``), which may then do without a ``colorbar``;
            None runs from 0 to the largest weight.
        colorbar : bool, default=True
            Draw a colour bar.

        Returns
        -------
        self
        """
        ax = self._on(ax, 5.8, 4.8, grid=False)
        queries, keys = self.shape
        down, across = (block * count for block, count in zip(self.pooled, self.cells.shape, strict=True))
        norm = style.scale(self.cells) if norm is None else norm
        extent = (-0.5, across - 0.5, down - 0.5, -0.5)
        self.image_ = style.heatmap(ax, self.cells, norm, aspect="auto", extent=extent)
        # The last cells may stand for fewer.
        ax.set(xlim=(-0.5, keys - 0.5), ylim=(queries - 0.5, -0.5))
        for axis, side, inputs in ((ax.xaxis, "key", self.key), (ax.yaxis, "query", self.query)):
            self._write(axis, side, inputs)
        self.colorbar_ = None
        if colorbar:
            a, b = self.pooled
            shared = self.aggregate if max(self.pooled) > 1 else "weight"
            self.colorbar_ = style.colorbar(self.image_, ax, self._label(shared, queries=a, keys=b))
        return self

    def _lay_out(
        self,
        shape: tuple[int, ...],
        query: ArrayLike | None,
        key: ArrayLike | None,
        sort: bool,
        aggregate: str,
        labels: Labels | None,
        name: str | None = None,
    ) -> None:
        super().__init__(labels)
        if aggregate not in AGGREGATES:
            raise ValueError(f"aggregate must be one of 'max', 'mean', got {aggregate!r}")
        self.shape = int(shape[0]), int(shape[1])
        self.sort, self.aggregate = bool(sort), aggregate
        inputs = [
            None if given is None else column(side, given, f"the {which} of weights", length)
            for side, given, which, length in (
                ("query", query, "rows", self.shape[0]),
                ("key", key, "columns", self.shape[1]),
            )
        ]
        self._order = [
            np.arange(length) if values is None or not sort else np.argsort(values, kind="stable")
            for values, length in zip(inputs, self.shape, strict=True)
        ]
        self.query, self.key = (
            None if values is None else values[order] for values, order in zip(inputs, self._order, strict=True)
        )
        # As many rows in every cell: uneven ones would show as stripes.
        self.pooled = -(-self.shape[0] // MAX_CELLS_PER_SIDE), -(-self.shape[1] // MAX_CELLS_PER_SIDE)
        self._edges = [
            np.append(np.arange(0, length, block), length)
            for length, block in zip(self.shape, self.pooled, strict=True)
        ]
        self._name = self.labels["input"] if name is None or "input" in (labels or {}) else name

    def _fill(self, weights_of: Any) -> Array:
        """Cells from the weights of some queries at a time, ``weights_of(numbers of queries)``."""
        rows, columns = self._order
        down, across = self._edges
        combine, identity = AGGREGATES[self.aggregate]
        cells = np.full((len(down) - 1, len(across) - 1), identity)
        block = self.pooled[0]
        many = max(1, MAX_WEIGHTS_PER_TILE // self.shape[1])
        # Whole rows of cells where they fit; otherwise one takes several tiles.
        many -= many % block if many > block else 0
        for first in range(0, len(rows), many):
            some = rows[first : first + many]
            weights = combine.reduceat(np.asarray(weights_of(some), np.float64)[:, columns], across[:-1], axis=1)
            row, start = np.unique(np.arange(first, first + len(some)) // block, return_index=True)
            cells[row] = combine(cells[row], combine.reduceat(weights, start, axis=0))
        if self.aggregate == "mean":
            cells /= np.outer(np.diff(down), np.diff(across))
        return cells

    def _write(self, axis: Axis, side: str, values: Array | None) -> None:
        """Inputs on one axis: round numbers where they stand among sorted rows, or those of evenly spaced rows."""
        text = self.labels[side]
        length = self.shape[1] if side == "key" else self.shape[0]
        if values is None:
            axis.set_major_locator(MaxNLocator(6, integer=True))
            axis.set_label_text(self._label("numbered", side=text))
            return
        if self.sort:
            axis.set_label_text(self._label("sorted", side=text, name=self._name))
            places, words = _round_numbers(values, MIN_TICK_DISTANCE[side])
        else:
            axis.set_label_text(self._label("unsorted", side=text, name=self._name))
            places = np.unique(np.linspace(0, length - 1, min(length, 7)).round())
            words = [short(values[int(place)]) for place in places]
        axis.set_ticks(places, words)


def _round_numbers(values: Array, apart: float) -> tuple[Array, list[str]]:
    """Round numbers within the sorted ``values``, and where among the rows they stand, so far apart at least."""
    low, high = float(values[0]), float(values[-1])
    if not high > low:
        return np.array([(len(values) - 1) / 2]), [short(low)]
    span = 1e-9 * (high - low)
    ticks = [
        tick
        for tick in MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        if low - span <= tick <= high + span
    ]
    distinct, first = np.unique(values, return_index=True)
    last = np.append(first[1:], len(values)) - 1
    places: list[float] = []
    words: list[str] = []
    for tick in ticks:
        place = float(np.interp(tick, distinct, 0.5 * (first + last)))
        # Where inputs are crowded many numbers share a place: write what fits.
        if not places or place - places[-1] >= apart * len(values):
            places.append(place)
            words.append(short(0.0 if abs(tick) < span else tick))
    return np.array(places), words
