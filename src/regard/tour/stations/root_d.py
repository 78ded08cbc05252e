"""Why √d: the variance of a dot product, what softmax makes of it, and scores of unequal lengths."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from regard import attention_weights
from regard.core.scores import Additive, DotProduct
from regard.plot import style
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/root_d")

LENGTHS = (2, 8, 32, 128, 512)
# Vectors drawn for each length; every query with every key gives a product.
VECTORS = 400
# Keys under one softmax.
KEYS = 10
# The book's example of unequal lengths, and hidden units of the additive score.
QUERY_LENGTH = 20
KEY_LENGTH = 2
HIDDEN = 8
# Height of a matrix entry in the picture of shapes, per row of the matrix.
CELL = 0.3


class Measured(NamedTuple):
    """For q·k and for q·k/√d, at each of ``LENGTHS``."""

    variance: NDArray[Any]  # (2, lengths)
    largest: NDArray[Any]  # (2, lengths)  median of the largest weight
    derivative: NDArray[Any]  # (2, lengths)  median of ‖∂weights/∂scores‖


def measure(rng: np.random.Generator) -> Measured:
    """Scores of random vectors with entries of mean 0 and variance 1, and their softmax over ``KEYS`` keys."""
    measured = np.empty((3, 2, len(LENGTHS)))
    for column, d in enumerate(LENGTHS):
        queries, keys = rng.standard_normal((VECTORS, d)), rng.standard_normal((VECTORS, d))
        # The library divides by √d; w = √d takes that back.
        for row, score in enumerate((DotProduct(w=np.sqrt(d)), DotProduct())):
            weights = attention_weights(queries, keys[:KEYS], score)
            derivative = weights[:, :, None] * (np.eye(KEYS) - weights[:, None, :])
            measured[:, row, column] = (
                score(queries, keys).var(),
                np.median(weights.max(axis=1)),
                np.median(np.linalg.norm(derivative, axis=(1, 2))),
            )
    return Measured(*measured)


def compute(visit: Visit) -> Findings:
    rng = np.random.default_rng(visit.seed)
    measured = measure(rng)
    additive = Additive(
        rng.standard_normal((HIDDEN, QUERY_LENGTH)),
        rng.standard_normal((HIDDEN, KEY_LENGTH)),
        rng.standard_normal(HIDDEN),
    )
    scores = additive(rng.standard_normal((1, QUERY_LENGTH)), rng.standard_normal((KEYS, KEY_LENGTH)))
    return findings(
        TEXTS,
        {"root_d": _curves(visit, measured), "attention_shapes": _shapes(visit)},
        d=(LENGTHS[0], LENGTHS[-1]),
        pairs=VECTORS**2,
        queries=VECTORS,
        keys=KEYS,
        variance=measured.variance[0, [0, -1]],
        scaled_variance=measured.variance[1, [0, -1]],
        largest=measured.largest[:, -1],
        derivative=measured.derivative[:, -1],
        additive=scores.size,
    )


def _curves(visit: Visit, measured: Measured) -> Figure:
    figure = style.picture(8.4, 3.8)
    for ax, heights, name in zip(
        figure.subplots(1, 2), (measured.variance, measured.derivative), ("variance", "derivative"), strict=True
    ):
        style.dress(ax)
        for height, line, colour, label in zip(
            heights, ("o--", "s-"), (style.VERMILION, style.BLUE), ("q·k", "q·k/√d"), strict=True
        ):
            ax.loglog(LENGTHS, height, line, color=colour, linewidth=2.4, markersize=7, label=label)
        ax.minorticks_off()
        ax.set(
            title=visit.label(TEXTS[name]),
            xlabel=visit.label(TEXTS["length"]),
            xticks=LENGTHS,
            xticklabels=[str(d) for d in LENGTHS],
        )
        style.legend(ax, loc="upper left" if name == "variance" else "lower left")
    return figure


def _shapes(visit: Visit) -> Figure:
    figure = style.picture(8.4, 4.7)
    above, below = figure.subplots(2, 1, height_ratios=(1.0, 0.95))
    for ax, title in ((above, "dot_product"), (below, "additive")):
        style.dress(ax, grid=False)
        ax.set(xlim=(0.6, 13.6), ylim=(-1.4, 1.5), aspect="equal")
        ax.axis("off")
        ax.set_title(visit.label(TEXTS[title]))
    _draw_dot_product(above, visit)
    _draw_additive(below, visit)
    return figure


def _draw_dot_product(ax: Axes, visit: Visit) -> None:
    """Q Kᵀ = scores → weights, times V = output, for n = 3, m = 6, d = 4 and v = 2."""
    n, m, d, v = 3, 6, 4, 2
    for x, rows, columns, colour, name, shape in (
        (0.8, n, d, style.VERMILION, "queries", "Q: n × d"),
        (2.5, d, m, style.BLUE, "keys", "Kᵀ: d × m"),
        (4.9, n, m, style.PURPLE, "scores", "n × m"),
        (8.4, n, m, style.ORANGE, "weights", "n × m"),
        (10.8, m, v, style.GREEN, "values", "V: m × v"),
        (12.2, n, v, style.INK, "output", "n × v"),
    ):
        _matrix(ax, x, rows, columns, colour, visit.label(TEXTS[name]), shape)
    for x, sign in ((2.25, "·"), (4.6, "="), (10.5, "·"), (11.8, "=")):
        ax.text(x, 0.0, sign, ha="center", va="center", size=15, color=style.INK)
    _arrow(ax, 6.85, 8.25, "softmax(·/√d)")


def _draw_additive(ax: Axes, visit: Visit) -> None:
    """Query and key → hidden units → their sum → one score."""
    for y, colour, name, length, matrix in (
        (0.75, style.VERMILION, "query", QUERY_LENGTH, "$W_q$"),
        (-0.95, style.BLUE, "key", KEY_LENGTH, "$W_k$"),
    ):
        width = 0.19 * length
        ax.add_patch(Rectangle((0.9, y - 0.2), width, 0.4, facecolor=colour, alpha=0.2, edgecolor="none"))
        for cell in range(length):
            ax.add_patch(Rectangle((0.9 + 0.19 * cell, y - 0.2), 0.19, 0.4, facecolor="none", edgecolor=colour))
        ax.text(
            0.9, y + 0.32, f"{visit.label(TEXTS[name])}: {length}", ha="left", va="bottom", size=10.5, color=style.INK
        )
        _arrow(ax, 5.0, 6.6, f"{matrix}: {HIDDEN} × {length}", y)
        _units(ax, 6.8, y, colour)
    ax.text(7.56, -0.1, "+", ha="center", va="center", size=15, color=style.INK)
    _arrow(ax, 8.6, 9.9, "tanh", -0.1)
    _units(ax, 10.1, -0.1, style.ORANGE)
    _arrow(ax, 11.8, 12.8, f"$w_v$: {HIDDEN}", -0.1)
    ax.add_patch(Rectangle((12.95, -0.3), 0.4, 0.4, facecolor=style.INK, alpha=0.25, edgecolor=style.INK))
    ax.text(13.15, -0.6, visit.label(TEXTS["one_score"]), ha="center", va="top", size=10.5, color=style.INK)


def _units(ax: Axes, left: float, middle: float, colour: str) -> None:
    """A row of hidden units."""
    for cell in range(HIDDEN):
        ax.add_patch(Rectangle((left + 0.19 * cell, middle - 0.2), 0.19, 0.4, facecolor=colour, alpha=0.2))
        ax.add_patch(Rectangle((left + 0.19 * cell, middle - 0.2), 0.19, 0.4, facecolor="none", edgecolor=colour))


def _matrix(ax: Axes, left: float, rows: int, columns: int, colour: str, name: str, shape: str) -> None:
    """A matrix centred at height 0, its name above and its shape below."""
    width, height = CELL * columns, CELL * rows
    ax.add_patch(Rectangle((left, -height / 2), width, height, facecolor=colour, alpha=0.18, edgecolor="none"))
    for row in range(rows):
        for column in range(columns):
            corner = left + CELL * column, CELL * row - height / 2
            ax.add_patch(Rectangle(corner, CELL, CELL, facecolor="none", edgecolor=colour, linewidth=0.9))
    middle = left + width / 2
    ax.text(middle, height / 2 + 0.15, name, ha="center", va="bottom", size=10.5, color=style.INK)
    ax.text(middle, -height / 2 - 0.15, shape, ha="center", va="top", size=10.5, color=style.INK)


def _arrow(ax: Axes, left: float, right: float, words: str, height: float = 0.0) -> None:
    ax.annotate("", (right, height), (left, height), arrowprops={"arrowstyle": "-|>", "color": style.MUTED})
    ax.text((left + right) / 2, height + 0.12, words, ha="center", va="bottom", size=10, color=style.INK)


STATION = Station("root_d", TEXTS, compute)
