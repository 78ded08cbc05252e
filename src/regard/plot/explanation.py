"""Explanation: the rows behind one prediction, what each counted for or against, and what made them near."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from regard.plot import style
from regard.plot.display import (
    Display,
    Labels,
    bars,
    column,
    named,
    percent,
    percent_axis,
    plain,
    short,
    unnamed,
    worded,
)

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
        words = [f"row {row}: y = {worded(y)}" for row, y in zip(one.row, one.value, strict=True)]
        known = not np.isnan(one.nearness).any()
        title = f"{worded(one.answer)} predicted from {short(one.neighbours)} of {one.rows:,} rows"
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
        height = 1.5 + 0.34 * max(self.weight.size, 3)
        extra = None if self.nearness is None else 0.9 + 0.32 * max(min(self.nearness.size, FEATURES), 2)
        rows, features = self._panels(ax, height, extra, "there is nearness to draw")
        words = [plain(word) for word in self.words]
        self.bars_ = bars(rows, self.weight, words, color=style.BLUE, label=self.labels["weight"])
        (self.marks_,) = rows.plot(
            self.effective,
            range(len(words)),
            "D",
            color=style.VERMILION,
            markersize=6.5,
            label=self.labels["effective"],
        )
        rows.axvline(0.0, color=style.MUTED, linewidth=0.8)
        low, high = min(0.0, float(self.effective.min())), max(float(self.weight.max()), float(self.effective.max()))
        air = 0.06 * max(high - low, 1e-12)
        rows.set(xlabel=self.labels["x"], xlim=(low - air * (low < 0.0), high + air))
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
        self.nearness_bars_ = bars(ax, nearness[order], [plain(self.names[j]) for j in order], color=style.GREEN)
        for at, share in enumerate(nearness[order]):
            ax.text(max(share, 0.0) + 0.01, at, percent(share), va="center", fontsize=9.5, color=style.INK)
        ax.set(xlabel=self.labels["nearness"], xlim=(min(0.0, float(nearness.min())), 1.17))
        percent_axis(ax)
