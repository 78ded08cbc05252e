"""Softmax, the kernel ratio and the dot product: three ways to the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from regard import attention_weights
from regard.core.scores import KERNELS, DotProduct, Gaussian
from regard.plot import style
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/softmax")

# The query whose scores and weights are drawn.
QUERY = 2.0
# The library divides by √d; undo it, so that the score is the plain q·k.
PLAIN_PRODUCT = DotProduct(w=np.sqrt(2.0))


def compute(visit: Visit) -> Findings:
    x_train, x_test = visit.data.x_train, visit.data.x_test
    # 1. Softmax of −½(x − xᵢ)².
    softmax = attention_weights(x_test, x_train, Gaussian(w=1.0))
    # 2. The kernel ratio of Nadaraya and Watson.
    heights = KERNELS["gaussian"].value((x_test[:, None] - x_train[None, :]) ** 2)
    ratio = heights / heights.sum(axis=1, keepdims=True)
    # 3. Dot-product attention: q·k − ½k² is the product of (q, 1) and (k, −½k²).
    query, key = _augmented(x_test, x_train)
    product = attention_weights(query, key, PLAIN_PRODUCT)
    gap = max(float(np.abs(a - b).max()) for a, b in ((softmax, ratio), (softmax, product), (ratio, product)))

    row = int(np.abs(x_test - QUERY).argmin())
    figure = style.picture(8.2, 3.9)
    left, right = (style.dress(ax) for ax in figure.subplots(1, 2))
    _draw_scores(left, visit, x_test[row : row + 1])
    _draw_weights(right, visit, softmax[row], ratio[row], product[row])
    return findings(TEXTS, {"softmax": figure}, n=softmax.size, gap=gap)


def _augmented(x_test: NDArray[Any], x_train: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    query = np.stack([x_test, np.ones_like(x_test)], axis=1)  # (Q, 2)
    key = np.stack([x_train, -0.5 * x_train**2], axis=1)  # (K, 2)
    return query, key


def _draw_scores(ax: Axes, visit: Visit, query: NDArray[Any]) -> None:
    keys = np.linspace(0.0, 5.0, 101)
    q, shift = float(query[0]), 0.5 * float(query[0]) ** 2
    product = PLAIN_PRODUCT(*_augmented(query, keys))[0]
    square = Gaussian(w=1.0)(query[:, None], keys[:, None])[0]
    ax.plot(keys, product, color=style.GREEN, linestyle="--", linewidth=2.2, label="q·k − ½k²")
    ax.plot(keys, square, color=style.BLUE, linewidth=2.2, label="−½(q − k)²")
    ax.annotate("", (q, 0.0), (q, shift), arrowprops={"arrowstyle": "<->", "color": style.INK})
    words = visit.label(TEXTS["shift"], shift=shift)
    ax.text(q + 0.12, 0.5 * shift, words, va="center", size=10, color=style.INK)
    title = visit.label(TEXTS["scores"], q=q)
    ax.set(title=title, xlabel=visit.label(TEXTS["key"]), xlim=(0, 5))
    style.legend(ax, loc="lower left")


def _draw_weights(ax: Axes, visit: Visit, softmax: NDArray[Any], ratio: NDArray[Any], product: NDArray[Any]) -> None:
    keys = visit.data.x_train
    rings: dict[str, Any] = {"marker": "o", "fillstyle": "none", "markersize": 9, "markeredgewidth": 1.6}
    ax.plot(keys, softmax, color=style.BLUE, linewidth=2.2, label="softmax")
    ax.plot(keys, ratio, color=style.ORANGE, label=visit.label(TEXTS["ratio"]), linestyle="none", **rings)
    ax.plot(keys, product, ".", color=style.INK, markersize=5, label=visit.label(TEXTS["product"]))
    title = visit.label(TEXTS["weights"])
    ax.set(title=title, xlabel=visit.label(TEXTS["key"]), xlim=(0, 5), ylim=(0, None))
    style.legend(ax, loc="upper right")


STATION = Station("softmax", TEXTS, compute)
