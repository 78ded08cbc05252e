"""The alignment of a translation: weights of target tokens over source tokens, with the tokens on both axes."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Normalize
from matplotlib.container import BarContainer
from matplotlib.image import AxesImage
from numpy.typing import ArrayLike

from regard.plot import style
from regard.plot.display import Display, Labels, named, numbers_of, plain

# Width of a token in Latin letters; a longer one is cut and ends in ….
MAX_TOKEN_WIDTH = 14
# Inches of a cell whose token is legible.
CELL_SIZE = 0.26
# Inches of a figure's side beyond which cells shrink.
MAX_FIGURE_SIDE = 15.0
# Points of a token's letters: as large as its cell allows, between these.
MIN_FONT_SIZE = 5.0
MAX_FONT_SIZE = 11.0


class AlignmentDisplay(Display):
    """Weights as a heatmap, source tokens along the top and target tokens down the side.

    Parameters
    ----------
    weights : array (T, S)
        As a ``Translation`` of ``regard.seq2seq`` has them.
    tokens : sequence of str (T,)
        Target tokens. A space is shown as ␣, a token of more than 14 letters ends in ….
    source_tokens : sequence of str (S,)
        Source tokens, rotated where they would overlap.
    entropy : bool, default=False
        Draw beside each target token the entropy of its weights, in nats, from 0 (one token) to log S (uniform).
    labels : dict, default=None
        Other texts for "source", "target", "weight", "entropy".

    Attributes
    ----------
    image_, colorbar_, entropy_ : artists
        The heatmap, its colour bar and the bars of the entropy; None if not drawn.
    ax_, figure_ : Axes, Figure
        Where they are drawn.

    Colours run from 0 to 1 always, so that alignments can be compared. *Empty rows*: white; NaN is grey. *Cost*:
    O(T·S).

    >>> display = AlignmentDisplay([[0.9, 0.1], [0.2, 0.8]], ["05", "2021"], ["mai", "2021"]).plot()
    >>> [label.get_text() for label in display.ax_.get_xticklabels()]
    ['mai', '2021']
    """

    _LABELS: ClassVar[dict[str, str]] = {
        "source": "source",
        "target": "target",
        "weight": "weight",
        "entropy": "entropy",
    }

    image_: AxesImage
    colorbar_: Colorbar | None
    entropy_: BarContainer | None

    def __init__(
        self,
        weights: ArrayLike,
        tokens: Sequence[str],
        source_tokens: Sequence[str],
        *,
        entropy: bool = False,
        labels: Labels | None = None,
    ) -> None:
        super().__init__(labels)
        self.weights = numbers_of(weights)
        if self.weights.ndim != 2 or not self.weights.size:
            raise ValueError(
                "weights must have two axes (target tokens, source tokens) and not be empty, got shape "
                f"{self.weights.shape}"
            )
        self.tokens = tuple(named("tokens", tokens, self.weights.shape[0]))
        self.source_tokens = tuple(named("source_tokens", source_tokens, self.weights.shape[1]))
        self.entropy = bool(entropy)

    @classmethod
    def from_translation(
        cls, translation: Any, *, entropy: bool = False, labels: Labels | None = None, ax: Axes | None = None
    ) -> Self:
        """The alignment of one ``Translation``, drawn.

        Parameters
        ----------
        translation : Translation
            Has ``weights``, ``tokens`` and ``source_tokens``.
        entropy : bool, default=False
            As in the class.
        labels : dict, default=None
            As in the class.
        ax : Axes, default=None
            Where to draw; None is a new figure.

        Returns
        -------
        AlignmentDisplay
        """
        missing = [name for name in ("weights", "tokens", "source_tokens") if not hasattr(translation, name)]
        if missing:
            raise TypeError(f"translation must have {missing[0]}, got {type(translation).__name__}")
        made = cls(translation.weights, translation.tokens, translation.source_tokens, entropy=entropy, labels=labels)
        return made.plot(ax)

    def plot(self, ax: Axes | None = None, *, colorbar: bool = True) -> Self:
        """Draw into ``ax``, or into a new figure sized by the tokens.

        Parameters
        ----------
        ax : Axes, default=None
            Where to draw; None is a new figure.
        colorbar : bool, default=True
            Draw a colour bar.

        Returns
        -------
        self
        """
        targets, sources = self.weights.shape
        sources_text = [written(token) for token in self.source_tokens]
        targets_text = [written(token) for token in self.tokens]
        beside = (
            0.09 * max(map(text_width, targets_text))
            + 1.1
            + (1.0 if colorbar else 0.0)
            + (0.8 if self.entropy else 0.0)
        )
        above = 1.1 if max(map(text_width, sources_text)) <= 2 else 0.8 + 0.09 * max(map(text_width, sources_text))
        ax = self._on(ax, _inches(sources, beside, 3.4), _inches(targets, above, 2.2), grid=False)
        self.image_ = style.heatmap(ax, self.weights, Normalize(0.0, 1.0), aspect="auto")
        self._write(ax, sources_text, targets_text)
        self.entropy_ = self._bars(ax) if self.entropy else None
        self.colorbar_ = style.colorbar(self.image_, ax, self.labels["weight"]) if colorbar else None
        return self

    def _write(self, ax: Axes, sources_text: list[str], targets_text: list[str]) -> None:
        """Tokens on both axes, as large as their cells allow."""
        box = ax.get_position()
        size: tuple[float, float] = tuple(ax.figure.get_size_inches())  # type: ignore[union-attr]
        across, down = box.width * size[0] / len(sources_text), box.height * size[1] / len(targets_text)
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")
        widest = max(map(text_width, sources_text))
        fitting = 72.0 * across / (0.62 * widest)  # points at which the widest token fills its cell
        upright = widest > 2 and fitting < MAX_FONT_SIZE
        size_across = _font_size(0.62 * 72.0 * across if upright else fitting)
        ax.set_xticks(range(len(sources_text)), [plain(word) for word in sources_text], rotation=90 if upright else 0)
        ax.set_yticks(range(len(targets_text)), [plain(word) for word in targets_text])
        for axis, points in ((ax.xaxis, size_across), (ax.yaxis, _font_size(0.62 * 72.0 * down))):
            axis.set_tick_params(length=0.0, pad=4.0)
            for label in axis.get_ticklabels():
                label.set_fontsize(points)
        ax.set(xlabel=self.labels["source"], ylabel=self.labels["target"])

    def _bars(self, ax: Axes) -> BarContainer:
        """Entropy of each row of weights, in axes of their own to the right."""
        targets, sources = self.weights.shape
        side = ax.inset_axes((1.02, 0.0, max(0.06, 0.5 / (CELL_SIZE * sources + 0.5)), 1.0), sharey=ax)
        style.dress(side, grid=False)
        side.tick_params(labelleft=False, left=False, labelsize=8)
        side.spines["left"].set_color(style.HAIRLINE)
        positive = np.where(self.weights > 0.0, self.weights, 1.0)  # log 1 = 0; a NaN weight gives NaN, and no bar
        entropy = 0.0 - (self.weights * np.log(positive)).sum(1)
        bars = side.barh(range(targets), entropy, height=0.7, color=style.VERMILION)
        most = float(np.log(sources)) if sources > 1 else 1.0
        side.set(xlim=(0.0, most), xticks=(0.0, most))
        side.set_xticklabels(("0", "log S" if sources > 1 else "1"))
        side.set_title(self.labels["entropy"], fontsize=9)
        return bars


def written(token: str) -> str:
    """A token as written on its axis.

    >>> written(" "), written("Donaudampfschifffahrt")
    ('␣', 'Donaudampfsch…')
    """
    shown = "".join("␣" if c == " " else c if c.isprintable() else repr(c)[1:-1] for c in token)
    if text_width(shown) <= MAX_TOKEN_WIDTH:
        return shown
    while text_width(shown) > MAX_TOKEN_WIDTH - 1:
        shown = shown[:-1]
    return f"{shown}…"


def text_width(text: str) -> int:
    """Width of a text in Latin letters; a Chinese character counts 2, a combining accent 0."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _inches(cells: int, margin: float, least: float) -> float:
    return min(max(least, margin + CELL_SIZE * cells), MAX_FIGURE_SIDE)


def _font_size(points: float) -> float:
    """Font size clipped to the sizes drawn."""
    return min(max(MIN_FONT_SIZE, points), MAX_FONT_SIZE)
