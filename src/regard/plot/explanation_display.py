"""The training rows behind one prediction: attention, effective weights, and each feature's share of the distance."""

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
    formatted,
    named,
    percent,
    percent_axis,
    plain,
    short,
    without_name_warning,
)

DEFAULT_TOP = 8
MAX_FEATURES = 12
TITLE_LINE_LENGTH = 60


class ExplanationDisplay(Display):
    """Attention and effective weight of each attended row, and each feature's share of the distance.

    Parameters
    ----------
    weight : array (top,)
        Attention of the rows.
    effective : array (top,)
        Weights of their y in the prediction, may be negative.
    words : sequence of str (top,), default=None
        Names of the rows.
    nearness : array (C,), default=None
        Shares of the features; None draws no second panel.
    names : sequence of str (C,), default=None
        Names of the features.
    title : str, default=""
        Text above.
    far : bool, default=False
        The query is far from all training rows, which is written under the title.
    labels : dict, default=None
        Other texts for "weight", "effective", "x", "nearness", "far".

    Attributes
    ----------
    bars_, marks_ : artists
        Attention as bars, from the top, and effective weights as diamonds.
    nearness_bars_ : artists
        Those of the second panel, None without it.
    ax_, nearness_ax_, figure_ : Axes, Axes, Figure
        Where they are drawn.

    *Cost*: O(top + C).

    >>> display = ExplanationDisplay([0.6, 0.4], [0.9, 0.1], ["row 7", "row 2"], nearness=[0.8, 0.2]).plot()
    >>> [round(float(bar.get_width()), 1) for bar in display.nearness_bars_]
    [0.8, 0.2]
    """

    _LABELS: ClassVar[dict[str, str]] = {
        "weight": "attention",
        "effective": "effective weight in the prediction",
        "x": "weight",
        "nearness": "share of the distance",
        "far": "far from all training rows: do not trust it",
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
        top: int = DEFAULT_TOP,
        labels: Labels | None = None,
        ax: Axes | Sequence[Axes] | None = None,
    ) -> Self:
        """The explanation of one row.

        Parameters
        ----------
        estimator : estimator
            Fitted, with ``explain``.
        X : array (1, d), or dataframe of one row
            The query.
        top : int, default=8
            Maximum number of training rows shown.
        labels : dict, default=None
            As in the class.
        ax : Axes, or sequence of two, default=None
            One pair of axes for the rows, or two for the rows and for the features; None is a new figure.

        Returns
        -------
        ExplanationDisplay

        *Cost*: ``explain`` of one row.
        """
        with without_name_warning():
            explanation = estimator.explain(X, top=top)
        if len(explanation) != 1:
            raise ValueError(f"X must be one row, got {len(explanation)}")
        one = explanation[0]
        if not len(one.index):
            raise ValueError("X has no training row within the bandwidth (empty='nan'), so there is nothing to draw")
        words = [f"row {row}: y = {formatted(y)}" for row, y in zip(one.row, one.value, strict=True)]
        known = not np.isnan(one.nearness).any()
        title = f"{formatted(one.answer)} predicted from {short(one.neighbours)} of {one.rows:,} rows"
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
        """Draw into ``ax``, one pair of axes or two, or into a new figure.

        Parameters
        ----------
        ax : Axes, or sequence of two, default=None
            Where to draw; None is a new figure.

        Returns
        -------
        self
        """
        height = 1.5 + 0.34 * max(self.weight.size, 3)
        extra = None if self.nearness is None else 0.9 + 0.32 * max(min(self.nearness.size, MAX_FEATURES), 2)
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
        title = [fill(self.title, TITLE_LINE_LENGTH)] * bool(self.title) + [self.labels["far"]] * self.far
        if title:
            rows.set_title("\n".join(title), color=style.VERMILION if self.far else style.INK)
        style.legend(rows)
        self.nearness_ax_, self.nearness_bars_ = features, None
        if features is not None and self.nearness is not None:
            self._draw_features(style.dress(features), self.nearness)
        return self

    def _draw_features(self, ax: Axes, nearness: Any) -> None:
        order = np.argsort(-nearness, kind="stable")[:MAX_FEATURES]
        self.nearness_bars_ = bars(ax, nearness[order], [plain(self.names[j]) for j in order], color=style.GREEN)
        for at, share in enumerate(nearness[order]):
            ax.text(max(share, 0.0) + 0.01, at, percent(share), va="center", fontsize=9.5, color=style.INK)
        ax.set(xlabel=self.labels["nearness"], xlim=(min(0.0, float(nearness.min())), 1.17))
        percent_axis(ax)
