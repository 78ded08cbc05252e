"""Explanation: the rows behind one prediction, what each counted for or against, and what made them near."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter
from numpy.typing import ArrayLike

from regard.plot import style
from regard.plot.display import Display, Labels, column, named, percent, plain, short, unnamed

TOP = 8
# Features drawn at most, and characters of a title's line.
FEATURES, LINE = 12, 60


class ExplanationDisplay(Display):
    """Attention and effective weight of each row looked at, and each feature's share in what was near.

    Parameters
    ----------
    weight : (top,) attention of the rows, effective : (top,) what their y counts in the prediction, may be negative
    words : (top,) what to call the rows
    nearness : (C,) shares of the features, names : (C,) what they are called; None draws no second panel
    title : a line or two; far : the query is far from everything, which is said under the title
    labels : other texts for "weight", "effective", "x", "nearness", "far"

    Attributes
    ----------
    bars_, marks_ : attention as bars, from the top, and effective weights as diamonds; nearness_bars_ : those of the
        second panel, None where there is none; ax_ (and nearness_ax_), figure_.

    *Cost*: O(top + C).

    >>> display = ExplanationDisplay([0.6, 0.4], [0.9, 0.1], ["row 7", "row 2"], nearness=[0.8, 0.2]).plot()
    >>> [round(float(bar.get_width()), 1) for bar in display.nearness_bars_]
    [0.8, 0.2]
    """

    _LABELS: ClassVar[dict[str, str]] = {
        "weight": "attention: how near it is",
        "effective": "effective weight: what its y counts",
        "x": "weight",
        "nearness": "share in the distance",
        "far": "far from everything: do not trust it",
    }

    bars_: BarContainer
    marks_: Line2D
    nearness_ax_: Axes | None
    nearness_bars_: BarContainer | None

    def __init__(
        self,
        weight: ArrayLike,
        effective: ArrayLike,
        words: Sequence[str] | None = None,
        *,
        nearness: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        title: str = "",
        far: bool = False,
        labels: Labels | None = None,
    ) -> None:
        super().__init__(labels)
        self.weight = column("weight", weight)
        count = self.weight.size
        if not count:
            raise ValueError("weight must hold at least one row, got none")
        self.effective = column("effective", effective, "weight", count)
        self.words = [f"row {k}" for k in range(count)] if words is None else named("words", words, count)
        self.nearness = None if nearness is None else column("nearness", nearness)
        features = 0 if self.nearness is None else self.nearness.size
        self.names = [f"feature {j}" for j in range(features)] if names is None else named("names", names, features)
        self.title, self.far = title, bool(far)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        top: int = TOP,
        labels: Labels | None = None,
        ax: Axes | Sequence[Axes] | None = None,
    ) -> Self:
        """The explanation of one row.

        Parameters
        ----------
        estimator : fitted, with ``explain``
        X : the row asked about: (1, d), or a dataframe of one row
        top : how many training rows to show at most
        ax : one pair of axes for the rows, or two for the rows and for the features

        *Cost*: ``explain`` of one row.
        """
        with unnamed():
            told = estimator.explain(X, top=top)
        if len(told) != 1:
            raise ValueError(f"X must be one row, got {len(told)}")
        one = told[0]
        if not len(one.index):
            raise ValueError("X has no training row in reach (empty='nan'): there is nothing to draw")
        words = [f"row {row}: y = {_word(y)}" for row, y in zip(one.row, one.value, strict=True)]
        known = not np.isnan(one.nearness).any()
        title = f"{_word(one.answer)} predicted from {short(one.neighbours)} of {one.rows:,} rows"
        return cls(
            one.weight,
            one.effective,
            words,
            nearness=one.nearness if known else None,
            names=one.names if known else None,
            title=title,
            far=one.far,
            labels=labels,
        ).plot(ax)

    def plot(self, ax: Axes | Sequence[Axes] | None = None) -> Self:
        """Draw into ``ax``, one pair of axes or two, or into a new figure."""
        rows, features = self._panels(ax)
        place = np.arange(self.weight.size, dtype=float)
        self.bars_ = rows.barh(place, self.weight, height=0.66, color=style.BLUE, label=self.labels["weight"])
        (self.marks_,) = rows.plot(
            self.effective, place, "D", color=style.VERMILION, markersize=6.5, label=self.labels["effective"]
        )
        rows.axvline(0.0, color=style.MUTED, linewidth=0.8)
        rows.set_yticks(place, [plain(word) for word in self.words])
        low, high = min(0.0, float(self.effective.min())), max(float(self.weight.max()), float(self.effective.max()))
        air = 0.06 * max(high - low, 1e-12)
        rows.set(xlabel=self.labels["x"], xlim=(low - air * (low < 0.0), high + air), ylim=(len(place) - 0.4, -0.6))
        rows.grid(False, axis="y")
        rows.tick_params(axis="y", length=0)
        title = [fill(self.title, LINE)] * bool(self.title) + [self.labels["far"]] * self.far
        if title:
            rows.set_title("\n".join(title), color=style.VERMILION if self.far else style.INK)
        style.legend(rows)
        self.nearness_ax_, self.nearness_bars_ = features, None
        if features is not None and self.nearness is not None:
            self._draw_features(style.dress(features), self.nearness)
        return self

    def _draw_features(self, ax: Axes, nearness: Any) -> None:
        order = np.argsort(-nearness, kind="stable")[:FEATURES]
        place = np.arange(len(order), dtype=float)
        self.nearness_bars_ = ax.barh(place, nearness[order], height=0.66, color=style.GREEN)
        for at, share in zip(place, nearness[order], strict=True):
            ax.text(max(share, 0.0) + 0.01, at, percent(share), va="center", fontsize=9.5, color=style.INK)
        ax.set_yticks(place, [plain(self.names[j]) for j in order])
        ax.set(xlabel=self.labels["nearness"], xlim=(min(0.0, float(nearness.min())), 1.17))
        ax.set_ylim(len(place) - 0.4, -0.6)
        ax.xaxis.set_major_formatter(FuncFormatter(lambda share, _: percent(share)))
        ax.grid(False, axis="y")
        ax.tick_params(axis="y", length=0)

    def _panels(self, ax: Axes | Sequence[Axes] | None) -> tuple[Axes, Axes | None]:
        upper = 1.5 + 0.34 * max(self.weight.size, 3)
        if ax is None and self.nearness is not None:
            lower = 0.9 + 0.32 * max(min(self.nearness.size, FEATURES), 2)
            pair = style.picture(6.4, upper + lower).subplots(2, 1, height_ratios=(upper, lower))
            return self._on(pair[0], 0.0, 0.0), pair[1]
        if ax is None or isinstance(ax, Axes):
            return self._on(ax, 6.4, upper), None
        given = list(np.ravel(np.asarray(ax, dtype=object)))
        if len(given) != 2 or self.nearness is None:
            raise ValueError(f"ax must be one pair of axes, or two where there is nearness to draw, got {len(given)}")
        if not isinstance(given[1], Axes):
            raise TypeError(f"ax must hold matplotlib axes, got {type(given[1]).__name__}")
        return self._on(given[0], 0.0, 0.0), given[1]


def _word(value: Any) -> str:
    if np.ndim(value):
        return ", ".join(_word(one) for one in value)
    return short(float(value)) if np.asarray(value).dtype.kind in "fiu" else str(value)
