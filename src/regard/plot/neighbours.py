"""The training rows that one prediction attends to, with their weights."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb
from matplotlib.container import BarContainer
from matplotlib.lines import Line2D
from matplotlib.text import Text
from numpy.typing import ArrayLike

from regard.plot import style
from regard.plot.display import (
    Array,
    Display,
    Labels,
    attention_of,
    bars,
    column,
    formatted,
    limits,
    named,
    percent,
    percent_axis,
    plain,
    positive_integer,
    rows_to_draw,
    short,
    without_name_warning,
)

DEFAULT_TOP = 10
TITLE_LINE_LENGTH = 50
# Features written beside a row.
MAX_FEATURES_IN_TEXT = 3


class NeighbourDisplay(Display):
    """One bar per attended training row, the most attended on top, with its value and weight.

    Parameters
    ----------
    index : array (top,)
        Numbers of the training rows.
    weight : array (top,)
        Their weights.
    words : sequence of str (top,), default=None
        Text beside each row's number, such as its value.
    rest : float, default=0.0
        Total weight of the rows not shown.
    others : int, default=0
        Their number.
    x : array (K,), default=None
        All training rows of a one-feature model, drawn on a second panel.
    y : array (K,), default=None
        Their values.
    x_weight : array (K,), default=None
        Their weights, which size the circles.
    query : float, default=None
        Marked on the second panel.
    prediction : float, default=None
        Marked there too.
    title : str, default=""
        Text above.
    labels : dict, default=None
        Other texts for "weight", "row", "others", "title", "query", "training", "x", "y".

    Attributes
    ----------
    bars_, texts_ : artists
        From the top, the others last.
    points_, query_line_, prediction_point_ : artists
        Those of the second panel, None without it.
    ax_, x_ax_, figure_ : Axes, Axes, Figure
        Where they are drawn.

    *Cost*: O(top + K).

    >>> display = NeighbourDisplay([7, 2], [0.6, 0.3], ["y = 1", "y = 2"], rest=0.1, others=3).plot()
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['row 7: y = 1', 'row 2: y = 2', '3 others']
    """

    _LABELS: ClassVar[dict[str, str]] = {
        "weight": "attention weight",
        "row": "row {row}: {words}",
        "others": "{count} others",
        "title": "{prediction} predicted at {query}",
        "rows": "training rows, sized by weight",
        "query": "query",
        "prediction": "prediction",
        "x": "x",
        "y": "y",
    }

    bars_: BarContainer
    texts_: list[Text]
    x_ax_: Axes | None
    points_: PathCollection | None
    query_line_: Line2D | None
    prediction_point_: Line2D | None

    def __init__(
        self,
        index: ArrayLike,
        weight: ArrayLike,
        words: Sequence[str] | None = None,
        *,
        rest: float = 0.0,
        others: int = 0,
        x: ArrayLike | None = None,
        y: ArrayLike | None = None,
        x_weight: ArrayLike | None = None,
        query: float | None = None,
        prediction: float | None = None,
        title: str = "",
        labels: Labels | None = None,
    ) -> None:
        super().__init__(labels)
        self.weight = column("weight", weight)
        self.index = column("index", index, "weight", self.weight.size).astype(int)
        if not self.weight.size:
            raise ValueError("weight must hold at least one row, got none")
        self.words = None if words is None else named("words", words, self.weight.size)
        self.rest, self.others = float(rest), int(others)
        self.x = self.y = self.x_weight = None
        if x is not None and y is not None and x_weight is not None:
            self.x = column("x", x)
            self.y = column("y", y, "x", self.x.size)
            self.x_weight = column("x_weight", x_weight, "x", self.x.size)
        elif not (x is None and y is None and x_weight is None):
            raise ValueError("x, y and x_weight must be given together")
        self.query, self.prediction, self.title = query, prediction, title

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        top: int = DEFAULT_TOP,
        labels: Labels | None = None,
        ax: Axes | Sequence[Axes] | None = None,
    ) -> Self:
        """The rows that the prediction of one row attends to.

        Parameters
        ----------
        estimator : estimator
            Fitted, with ``attend`` and ``predict``.
        X : array (1, d)
            The query.
        top : int, default=10
            Maximum number of training rows shown; the others share one last bar.
        labels : dict, default=None
            As in the class.
        ax : Axes, or sequence of two, default=None
            One pair of axes for the bars, or two for the bars and for the rows along x (one feature only); None is a
            new figure.

        Returns
        -------
        NeighbourDisplay

        *Cost*: ``attend`` and ``predict`` of one row.
        """
        rows = rows_to_draw(estimator)
        width = rows.X.shape[1]
        asked = np.asarray(X, np.float64)
        if asked.shape != (1, width):
            raise ValueError(f"X must be one row, shape (1, {width}), got shape {asked.shape}")
        count = positive_integer("top", top)
        weights = attention_of(estimator, asked)[0]
        shown = np.argsort(-weights, kind="stable")[:count]
        shown = shown[weights[shown] > 0.0] if weights.any() else shown[:1]
        with without_name_warning():
            answer = estimator.predict(asked)[0]
        texts = cls._LABELS | dict(labels or {})
        classes = getattr(estimator, "classes_", None)
        values = np.asarray(rows.y if classes is None else classes[rows.y])
        names = rows.names
        written = range(width) if width <= MAX_FEATURES_IN_TEXT else []
        words = [
            ", ".join(
                [
                    *(f"{plain(names[j])} = {short(rows.X[k, j])}" for j in written),
                    f"{texts['y']} = {plain(formatted(values[k]))}",
                ]
            )
            for k in shown
        ]
        one = width == 1 and values.ndim == 1 and values.dtype.kind in "fiu"
        features = ", ".join(
            f"{plain(names[j])} = {short(asked[0, j])}" for j in range(min(width, MAX_FEATURES_IN_TEXT))
        )
        display = cls(
            shown,
            weights[shown],
            words,
            rest=max(0.0, 1.0 - float(weights[shown].sum())) if weights.any() else 0.0,
            others=int((weights > 0.0).sum() - len(shown)) if weights.any() else 0,
            x=rows.X[:, 0] if one else None,
            y=values if one else None,
            x_weight=weights if one else None,
            query=float(asked[0, 0]) if one else None,
            prediction=float(answer) if one else None,
            title=texts["title"].format(
                prediction=plain(formatted(answer)), query=features + ", …" * (width > MAX_FEATURES_IN_TEXT)
            ),
            labels={"x": plain(names[0]), **(labels or {})} if one else labels,
        )
        return display.plot(ax)

    def plot(self, ax: Axes | Sequence[Axes] | None = None) -> Self:
        """Draw into ``ax``, one pair of axes or two, or into a new figure with a panel along x where there is one.

        Parameters
        ----------
        ax : Axes, or sequence of two, default=None
            Where to draw; None is a new figure.

        Returns
        -------
        self
        """
        height = 1.3 + 0.32 * max(self.weight.size + bool(self.others), 3)
        extra = None if self.x is None else 2.9
        ax, along = self._panels(ax, height, extra, "the model has one feature", above=True)
        names = [
            self._label("row", row=row, words=word) if word else self._label("row", row=row, words="").rstrip(": ")
            for row, word in zip(self.index, self.words or [""] * self.index.size, strict=True)
        ]
        weight, colours = self.weight, [style.BLUE] * self.weight.size
        if self.others:
            weight = np.append(weight, self.rest)
            names.append(self._label("others", count=f"{self.others:,}"))
            colours.append(style.MUTED)
        self.bars_ = bars(ax, weight, names, color=colours)
        room = 1.17 * max(float(weight.max()), 1e-12)
        self.texts_ = [
            ax.text(w + 0.012 * room, at, percent(w), va="center", fontsize=9.5, color=style.INK)
            for at, w in enumerate(weight)
        ]
        ax.set(xlabel=self.labels["weight"], xlim=(0.0, room))
        percent_axis(ax)
        if self.title:
            (ax if along is None else along).set_title(fill(self.title, TITLE_LINE_LENGTH))
        self.x_ax_, self.points_, self.query_line_, self.prediction_point_ = along, None, None, None
        if along is not None and self.x is not None and self.y is not None and self.x_weight is not None:
            self._draw_along(along, self.x, self.y, self.x_weight)
        return self

    def _draw_along(self, ax: Axes, x: Array, y: Array, weight: Array) -> None:
        """All training rows along x, sized by weight."""
        style.dress(ax)
        share = weight / max(float(weight.max()), 1e-300)
        self.points_ = ax.scatter(
            x,
            y,
            s=12.0 + 150.0 * share,
            color=[(*to_rgb(style.BLUE), alpha) for alpha in 0.25 + 0.5 * share],
            linewidths=0,
        )
        self.points_.set_label(self.labels["rows"])
        if self.query is not None:
            self.query_line_ = ax.axvline(
                self.query, color=style.INK, linewidth=1.2, linestyle=(0, (5, 2)), label=self.labels["query"]
            )
            if self.prediction is not None:
                (self.prediction_point_,) = ax.plot(
                    [self.query], [self.prediction], "D", color=style.VERMILION, markersize=8, zorder=5
                )
                self.prediction_point_.set_label(self.labels["prediction"])
        ax.set(xlabel=self.labels["x"], ylabel=self.labels["y"], ylim=limits(limits(y)))
        style.legend(ax)
