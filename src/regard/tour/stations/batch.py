"""Batch matrix multiplication as a weighted average."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from regard import attention_weights, pool
from regard.core.scores import Gaussian
from regard.data.text import Text
from regard.plot import style
from regard.tour.numbers import scientific
from regard.tour.station import Drawing, Station, Told, Visit


def tell(visit: Visit) -> Told:
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

    figure = style.picture(6.4, 3.3)
    _draw(figure.subplots(), visit, weights, values, product)
    caption = Text(
        "Two weighted averages at once: each row of weights meets its own row of values, and one number comes out.",
        "同时做两个加权平均：每一行权重对上自己的一行值，各得一个数。",
    )
    first, second = product[:, 0, 0]
    return Told(
        (Drawing("batch", figure, caption),),
        f"{first:g} · {second:g}",
        Text(
            f"A weighted average for each pair of matrices: {first:g} and {second:g} here. On the notes’ 50 queries, "
            f"batch multiplication and pool() differ by at most {scientific(gap)}.",
            f"每一对矩阵各得一个加权平均：这里是 {first:g} 和 {second:g}。"
            f"在笔记的 50 个查询上，批量矩阵乘法与 pool() 最多相差 {scientific(gap)}。",
        ),
    )


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
    words = (visit.label("weights", "权重"), visit.label("values", "值"))
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


STATION = Station(
    name="batch",
    title=Text("Batch matrix multiplication", "批量矩阵乘法"),
    question=Text("What does multiplying two batches of matrices compute?", "两批矩阵相乘，算的是什么？"),
    story=Text(
        """<p>Given <i>n</i> matrices of size <i>a</i> × <i>b</i> and <i>n</i> of size <i>b</i> × <i>c</i>, batch
        multiplication gives <i>n</i> products of size <i>a</i> × <i>c</i>. Put one query’s weights in a row and its
        values in a column, and the product is their weighted average. Ten weights of 0.1 against 0, 1, …, 9 and
        10, 11, …, 19 give two plain means.</p>""",
        """<p>给定 <i>n</i> 个 <i>a</i> × <i>b</i> 的矩阵和 <i>n</i> 个 <i>b</i> × <i>c</i> 的矩阵，批量矩阵乘法得到
        <i>n</i> 个 <i>a</i> × <i>c</i> 的矩阵。把一个查询的权重排成一行，值排成一列，乘积就是加权平均。十个 0.1 的权重
        分别乘 0、1、…、9 和 10、11、…、19，得到的就是两个普通的平均值。</p>""",
    ),
    formula=("(<i>n</i>, <i>a</i>, <i>b</i>) · (<i>n</i>, <i>b</i>, <i>c</i>) → (<i>n</i>, <i>a</i>, <i>c</i>)",),
    code="""import numpy as np

weights = np.full((2, 10), 0.1)
values = np.arange(20.0).reshape(2, 10)
weights[:, None, :] @ values[:, :, None]  # 4.5 and 14.5""",
    tell=tell,
)
