"""Batch matrix multiplication as a weighted average."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from regard import attention_weights, pool
from regard.core.scores import Gaussian
from regard.plot import style
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/batch")


def compute(visit: Visit) -> Findings:
    values = np.arange(20.0).reshape(2, 10)
    position = np.arange(10.0)
    weights = np.repeat(attention_weights([0.0], position, Gaussian(w=0.0)), 2, axis=0)  # (2, 10), all 0.1
    product = weights[:, None, :] @ values[:, :, None]  # (2, 1, 10) · (2, 10, 1) → (2, 1, 1)
    pooled = pool([0.0], position, values.T, Gaussian(w=0.0)).output[0]  # (2,)

    x_train, y_train, x_test, _ = visit.data
    notes_weights = attention_weights(x_test, x_train, Gaussian(w=1.0))  # (50, 50)
    copies = np.broadcast_to(y_train, notes_weights.shape)
    by_product = (notes_weights[:, None, :] @ copies[:, :, None])[:, 0, 0]
    by_pool = pool(x_test, x_train, y_train, Gaussian(w=1.0)).output
    gap = max(float(np.abs(product[:, 0, 0] - pooled).max()), float(np.abs(by_product - by_pool).max()))

    left, right = np.ones((2, 1, 4)), np.ones((2, 4, 6))
    shapes = style.picture(6.4, 3.7)
    _draw_shapes(shapes.subplots(), left, right, left @ right)
    figure = style.picture(6.4, 3.3)
    _draw(figure.subplots(), visit, weights, values, product)
    first, second = product[:, 0, 0]
    return findings(
        TEXTS,
        {"batch_shapes": shapes, "batch": figure},
        shapes=[str(each.shape) for each in (left, right, left @ right)],
        ones=(left @ right)[0, 0, 0],
        first=first,
        second=second,
        gap=gap,
    )


def _draw_shapes(ax: Axes, left: NDArray[Any], right: NDArray[Any], product: NDArray[Any]) -> None:
    """The matrices of both batches and of their product, entry by entry."""
    ax.set(xlim=(-0.2, 20.2), ylim=(0.4, 11.4), aspect="equal")
    ax.axis("off")
    title = f"{left.shape} · {right.shape}  →  {product.shape}"
    ax.text(10.0, 10.6, title, ha="center", size=13, color=style.INK, weight="bold")
    for item in range(len(left)):
        middle = 7.6 - 5.0 * item
        for x, matrix, colour in (
            (0.0, left[item], style.ORANGE),
            (5.4, right[item], style.GREEN),
            (13.8, product[item], style.VERMILION),
        ):
            rows, columns = matrix.shape
            for row in range(rows):
                for column in range(columns):
                    _cell(ax, x + column, middle + rows / 2 - row - 1, f"{matrix[row, column]:g}", colour)
        for x, sign in ((4.7, "·"), (12.6, "=")):
            ax.text(x, middle, sign, ha="center", va="center", size=15, color=style.INK)


def _draw(ax: Axes, visit: Visit, weights: NDArray[Any], values: NDArray[Any], product: NDArray[Any]) -> None:
    ax.set(xlim=(-2.15, 13.1), ylim=(-0.4, 6.9), aspect="equal")
    ax.axis("off")
    ax.text(
        5.0,
        6.45,
        f"{weights[:, None, :].shape} · {values[:, :, None].shape}  →  {product.shape}",
        ha="center",
        size=13,
        color=style.INK,
        weight="bold",
    )
    words = (visit.label(TEXTS["weights"]), visit.label(TEXTS["values"]))
    for item in range(2):
        top = 4.4 - 3.2 * item
        for row, (numbers, colour, name) in enumerate(
            zip((weights[item], values[item]), (style.ORANGE, style.GREEN), words, strict=True)
        ):
            y = top - 1.12 * row
            ax.text(-0.25, y + 0.5, name, ha="right", va="center", size=10.5, color=style.INK)
            for column, number in enumerate(numbers):
                _cell(ax, column, y, f"{number:g}", colour)
        ax.annotate("", (11.35, top - 0.06), (10.2, top - 0.06), arrowprops={"arrowstyle": "-|>", "color": style.MUTED})
        _cell(ax, 11.5, top - 0.56, f"{product[item, 0, 0]:g}", style.VERMILION, width=1.5, size=12)


def _cell(ax: Axes, x: float, y: float, words: str, colour: str, width: float = 1.0, size: float = 10) -> None:
    ax.add_patch(Rectangle((x, y), width, 1.0, facecolor=colour, alpha=0.18, edgecolor="none"))
    ax.add_patch(Rectangle((x, y), width, 1.0, facecolor="none", edgecolor=colour, linewidth=1.2))
    ax.text(x + width / 2, y + 0.48, words, ha="center", va="center", size=size, color=style.INK)


STATION = Station("batch", TEXTS, compute)
