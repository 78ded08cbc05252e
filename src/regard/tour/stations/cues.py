"""Cues: what queries, keys and values stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from numpy.typing import NDArray

from regard import attention_weights, pool
from regard.core.scores import DotProduct
from regard.plot import style
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/cues")

# Each thing on the desk: how much it catches the eye, how much there is to read, and the words it offers.
THINGS = ("mug", "phone", "letter", "novel")
KEYS = np.array([[3.0, 0.0], [2.0, 0.5], [1.0, 2.0], [0.5, 3.0]])
WORDS = np.array([0.0, 40.0, 150.0, 300.0])
NO_WISH = np.array([[1.0, 0.0]])
WISH = np.array([[0.0, 1.0]])
# The library divides by √d; undo it, so that the score is the plain q·k.
SCORE = DotProduct(w=np.sqrt(2.0))
NOVEL = 3
# Orange is too light for letters on white.
DARK_ORANGE = "#9c6c00"


def compute(visit: Visit) -> Findings:
    figure = style.picture(6.4, 6.4)
    top, bottom = figure.subplots(2, 1)
    queries = (
        (top, NO_WISH, visit.label(TEXTS["no_wish"])),
        (bottom, WISH, visit.label(TEXTS["wish"])),
    )
    percent, words = [], []
    for ax, query, wish in queries:
        weights = attention_weights(query, KEYS, SCORE)[0]
        output = float(pool(query, KEYS, WORDS, SCORE).output[0])
        _diagram(ax, visit, wish, weights, output)
        percent.append(100 * float(weights[NOVEL]))
        words.append(output)
    _headings(top, visit)
    return findings(TEXTS, {"cues": figure, "stages": _stages(visit)}, percent=percent, words=words)


def _diagram(ax: Axes, visit: Visit, wish: str, weights: NDArray[Any], output: float) -> None:
    ax.set(xlim=(-0.1, 10.1), ylim=(-0.15, 4.15))
    ax.axis("off")
    middle = 1.8
    draw_box(ax, 0.0, middle, 1.75, 1.3, wish, style.VERMILION)
    for row, thing in enumerate(THINGS):
        y, weight = 3.3 - row, float(weights[row])
        ax.plot([1.75, 2.5], [middle, y], color=style.VERMILION, linewidth=0.6 + 5 * weight, alpha=0.55, zorder=1)
        draw_box(ax, 2.5, y, 1.55, 0.72, visit.label(TEXTS[thing]), style.BLUE)
        ax.barh(y, 1.9 * weight, left=4.3, height=0.5, color=style.ORANGE)
        ax.text(4.38 + 1.9 * weight, y, f"{100 * weight:.0f}%", va="center", size=10.5, color=style.INK)
        draw_box(ax, 6.6, y, 1.1, 0.72, f"{WORDS[row]:.0f}", style.GREEN)
        ax.plot([7.7, 8.6], [y, middle], color=style.GREEN, linewidth=0.6 + 5 * weight, alpha=0.55, zorder=1)
    draw_box(ax, 8.6, middle, 1.4, 1.1, visit.label(TEXTS["words"], output=output), style.INK)


def _stages(visit: Visit) -> Figure:
    """Score, softmax and weighted sum for the query that wishes to read."""
    scores, weights = SCORE(WISH, KEYS)[0], attention_weights(WISH, KEYS, SCORE)[0]
    output = float(pool(WISH, KEYS, WORDS, SCORE).output[0])
    figure = style.picture(6.4, 3.9)
    ax = figure.subplots()
    ax.set(xlim=(-0.1, 11.1), ylim=(-1.55, 4.45))
    ax.axis("off")
    middle = 1.5
    line: dict[str, Any] = {"color": style.MUTED, "linewidth": 1.0, "zorder": 1}
    draw_box(ax, 0.0, middle, 1.2, 0.8, _pair(WISH[0]), style.VERMILION)
    for row in range(len(THINGS)):
        y = 3.0 - row
        ax.plot([1.2, 1.8], [middle, y], **line)
        draw_box(ax, 1.8, y, 1.45, 0.72, _pair(KEYS[row]), style.BLUE)
        ax.plot([3.25, 3.8], [y, y], **line)
        draw_box(ax, 3.8, y, 0.95, 0.72, f"{scores[row]:g}", style.PURPLE)
        ax.plot([4.75, 5.9], [y, y], **line)
        draw_box(ax, 5.9, y, 1.05, 0.72, f"{weights[row]:.2f}", style.ORANGE)
        ax.text(7.15, y, "×", ha="center", va="center", size=12, color=style.INK)
        draw_box(ax, 7.35, y, 1.05, 0.72, f"{WORDS[row]:.0f}", style.GREEN)
        ax.plot([8.4, 8.8], [y, y], **line)
    ax.plot([9.4, 9.85], [middle, middle], **line)
    for left, words in ((5.02, "softmax"), (8.8, "Σ")):
        draw_box(ax, left, middle, 0.6, 3.72, "", style.MUTED)
        ax.text(
            left + 0.3, middle, words, ha="center", va="center", rotation=90 * (len(words) > 1), size=10.5, zorder=3
        )
    draw_box(ax, 9.85, middle, 1.15, 0.8, f"{output:.0f}", style.INK)
    for x, colour, name in (
        (0.6, style.VERMILION, "a_query"),
        (2.52, style.BLUE, "a_key"),
        (4.27, style.INK, "scores"),
        (6.42, DARK_ORANGE, "a_weight"),
        (7.87, style.GREEN, "a_value"),
        (10.42, style.INK, "output"),
    ):
        ax.text(x, 3.62, visit.label(TEXTS[name]), ha="center", va="bottom", size=9.5, weight="bold", color=colour)
    for left, right, name in ((1.8, 4.75, "scoring"), (4.95, 6.95, "softmax"), (7.1, 11.0, "weighted_sum")):
        ax.plot([left, left, right, right], [-0.5, -0.62, -0.62, -0.5], color=style.MUTED, linewidth=1.2)
        ax.text((left + right) / 2, -0.75, visit.label(TEXTS[name]), ha="center", va="top", size=9.5, color=style.INK)
    return figure


def _pair(vector: NDArray[Any]) -> str:
    return "({:g}, {:g})".format(*vector)


def draw_box(ax: Axes, left: float, middle: float, width: float, height: float, words: str, colour: str) -> None:
    """A rounded box from ``left`` with words at the height ``middle``."""
    ax.add_patch(
        FancyBboxPatch(
            (left + 0.08, middle - height / 2 + 0.08),
            width - 0.16,
            height - 0.16,
            boxstyle="round,pad=0.08,rounding_size=0.14",
            facecolor=style.PAPER,
            edgecolor=colour,
            linewidth=1.6,
            zorder=2,
        )
    )
    ax.text(left + width / 2, middle, words, ha="center", va="center", size=10.5, color=style.INK, zorder=3)


def _headings(ax: Axes, visit: Visit) -> None:
    for x, colour, name in (
        (0.87, style.VERMILION, "query"),
        (3.2, style.BLUE, "keys"),
        (5.35, DARK_ORANGE, "weights"),
        (7.15, style.GREEN, "values"),
        (9.3, style.INK, "output"),
    ):
        ax.text(x, 4.1, visit.label(TEXTS[name]), ha="center", va="bottom", size=9.5, weight="bold", color=colour)


STATION = Station("cues", TEXTS, compute)
