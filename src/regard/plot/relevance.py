"""Feature relevance: each feature's share of the distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.text import Text
from numpy.typing import ArrayLike

from regard.plot import fonts, style
from regard.plot.display import (
    Display,
    Labels,
    bars,
    column,
    named,
    percent,
    percent_axis,
    plain,
    positive_integer,
    rows_to_draw,
)

DEFAULT_TOP = 25


class FeatureRelevanceDisplay(Display):
    """One bar per feature, the most relevant on top; smoothed-out features are labelled.

    Parameters
    ----------
    relevance : array (d,)
        Shares, not negative, adding up to 1 (or all 0).
    names : sequence of str (d,), default=None
        Names of the features.
    smoothed_out : array (d,) of bool, default=None
        Features that the search ignores.
    constant : array (d,) of bool, default=None
        Features that do not vary.
    top : int, default=25
        Maximum number of features drawn; the others share one last bar.
    labels : dict, default=None
        Other texts for "relevance", "smoothed_out", "constant", "others".

    Attributes
    ----------
    order : array (≤ top,)
        Numbers of the features drawn, from the top.
    bars_, texts_ : artists
        From the top, the others last.
    ax_, figure_ : Axes, Figure
        Where they are drawn.

    *Cost*: O(d·log d).

    >>> display = FeatureRelevanceDisplay([0.2, 0.8, 0.0], ["age", "size", "id"], smoothed_out=[False, False, True])
    >>> [text.get_text() for text in display.plot().texts_]
    ['80 %', '20 %', 'smoothed out']
    """

    _LABELS: ClassVar[dict[str, str]] = {
        "relevance": "share of the distance",
        "smoothed_out": "smoothed out",
        "constant": "constant",
        "others": "{count} others",
    }

    bars_: BarContainer
    texts_: list[Text]

    def __init__(
        self,
        relevance: ArrayLike,
        names: Sequence[str] | None = None,
        *,
        smoothed_out: ArrayLike | None = None,
        constant: ArrayLike | None = None,
        top: int = DEFAULT_TOP,
        labels: Labels | None = None,
    ) -> None:
        super().__init__(labels)
        self.relevance = column("relevance", relevance)
        count = self.relevance.size
        if not count or not (self.relevance >= 0.0).all():
            raise ValueError("relevance must hold shares of at least 0, one for every feature")
        most = positive_integer("top", top)
        self.names = [f"feature {j}" for j in range(count)] if names is None else named("names", names, count)
        self.smoothed_out = _flags("smoothed_out", smoothed_out, count)
        self.constant = _flags("constant", constant, count)
        # Stable: equal shares stay in the order of the columns.
        self.order = np.argsort(-self.relevance, kind="stable")[: count if count <= most + 1 else most]

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, top: int = DEFAULT_TOP, labels: Labels | None = None, ax: Axes | None = None
    ) -> Self:
        """``feature_relevance_`` of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted, with ``feature_relevance_``.
        top : int, default=25
            As in the class.
        labels : dict, default=None
            As in the class.
        ax : Axes, default=None
            Where to draw; None is a new figure.

        Returns
        -------
        FeatureRelevanceDisplay
        """
        relevance = getattr(estimator, "feature_relevance_", None)
        if relevance is None:
            raise TypeError(f"estimator must be fitted and have feature_relevance_, got {type(estimator).__name__}")
        rows = rows_to_draw(estimator)
        varies = np.nanmax(rows.X, axis=0) > np.nanmin(rows.X, axis=0)
        w = np.asarray(estimator.w_)
        counts = (np.linalg.norm(w, axis=1) if w.ndim == 2 else np.broadcast_to(w, len(varies))) != 0.0
        names: Sequence[str] = rows.names
        coding = getattr(estimator, "coding_", None)
        if coding is not None:
            # One bar to a column of the table, however many features it has.
            names = list(map(str, getattr(estimator, "feature_names_in_", range(len(relevance)))))
            varies, counts = coding.any_of(varies), coding.any_of(counts)
        smoothed = varies & ~counts
        return cls(relevance, names, smoothed_out=smoothed, constant=~varies, top=top, labels=labels).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        rest = np.setdiff1d(np.arange(self.relevance.size), self.order)
        share = self.relevance[self.order]
        names = [plain(self.names[j]) for j in self.order]
        words = [self._word(j) for j in self.order]
        colours = [style.BLUE] * len(names)
        if rest.size:
            share = np.append(share, self.relevance[rest].sum())
            names.append(self._label("others", count=rest.size))
            words.append(percent(share[-1]))
            colours.append(style.MUTED)
        ax = self._on(ax, 6.4, 1.1 + 0.34 * max(len(names), 2))
        self.bars_ = bars(ax, share, names, color=colours)
        room = 1.16 * max(float(share.max()), 1e-3)
        self.texts_ = [
            ax.text(
                width + 0.012 * room,
                at,
                word,
                va="center",
                fontsize=10,
                fontfamily=fonts.families(),
                color=style.INK if width > 0.0 else style.MUTED,
                fontstyle="normal" if width > 0.0 else "italic",
            )
            for at, (width, word) in enumerate(zip(share, words, strict=True))
        ]
        ax.set(xlabel=self.labels["relevance"], xlim=(0.0, room))
        percent_axis(ax)
        return self

    def _word(self, feature: int) -> str:
        if self.constant[feature]:
            return self.labels["constant"]
        if self.smoothed_out[feature]:
            return self.labels["smoothed_out"]
        return percent(self.relevance[feature])


def _flags(name: str, flags: ArrayLike | None, count: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if flags is None:
        return np.zeros(count, bool)
    array = np.asarray(flags)
    if array.shape != (count,) or array.dtype != bool:
        raise ValueError(f"{name} must be {count} booleans, got dtype {array.dtype} and shape {array.shape}")
    return array
