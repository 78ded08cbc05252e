"""Softmax, the kernel ratio and the dot product: three ways to the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from regard import attention_weights
from regard.core.scores import KERNELS, DotProduct, Gaussian
from regard.data.text import Text
from regard.plot import style
from regard.tour.numbers import scientific
from regard.tour.station import Drawing, Station, Told, Visit

# The query whose scores and weights are drawn.
QUERY = 2.0
# The library divides by √d; undo it, so that the score is the plain q·k.
PLAIN_PRODUCT = DotProduct(w=np.sqrt(2.0))


def tell(visit: Visit) -> Told:
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
    caption = Text(
        "Left: the two scores differ by a constant, the same for every key. Right: softmax forgets constants, so all "
        "three computations give the same weights.",
        "左：两种评分相差一个常数，对每个键都一样。右：softmax 不在乎常数，所以三种算法得到同样的权重。",
    )
    return Told(
        (Drawing("softmax", figure, caption, wide=True),),
        scientific(gap),
        Text(
            f"Yes, to rounding. Over all {softmax.size:,} weights, the kernel ratio, the softmax and dot-product "
            f"attention differ by at most {scientific(gap)}.",
            f"是的，只差舍入误差。在全部 {softmax.size:,} 个权重上，核之比、softmax 与点积注意力"
            f"最多相差 {scientific(gap)}。",
        ),
    )


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
    words = visit.label(f"½q² = {shift:g}\neverywhere", f"处处相差\n½q² = {shift:g}")
    ax.text(q + 0.12, 0.5 * shift, words, va="center", size=10, color=style.INK)
    title = visit.label(f"scores of the query q = {q:g}", f"查询 q = {q:g} 的评分")
    ax.set(title=title, xlabel=visit.label("key k", "键 k"), xlim=(0, 5))
    style.legend(ax, loc="lower left")


def _draw_weights(ax: Axes, visit: Visit, softmax: NDArray[Any], ratio: NDArray[Any], product: NDArray[Any]) -> None:
    keys = visit.data.x_train
    rings: dict[str, Any] = {"marker": "o", "fillstyle": "none", "markersize": 9, "markeredgewidth": 1.6}
    ax.plot(keys, softmax, color=style.BLUE, linewidth=2.2, label="softmax")
    ax.plot(keys, ratio, color=style.ORANGE, label=visit.label("kernel ratio", "核之比"), linestyle="none", **rings)
    ax.plot(keys, product, ".", color=style.INK, markersize=5, label=visit.label("dot product", "点积"))
    title = visit.label("its attention weights", "它的注意力权重")
    ax.set(title=title, xlabel=visit.label("key k", "键 k"), xlim=(0, 5), ylim=(0, None))
    style.legend(ax, loc="upper right")


STATION = Station(
    name="softmax",
    title=Text("Kernel regression is attention", "核回归就是注意力"),
    question=Text("Are kernel weights and softmax attention the same thing?", "核权重与 softmax 注意力是同一回事吗？"),
    story=Text(
        """<p>Put the Gaussian kernel into Nadaraya and Watson’s ratio: 1/√(2π) cancels, and what is left is the
        softmax of the scores −½(<i>x</i> − <i>x</i><sub>i</sub>)².</p>
        <p>Multiply the square out. The part −½‖<i>q</i>‖² is the same for every key, and softmax does not notice what
        is added to all scores alike. What remains is a dot product and a term of each key’s own. So kernel regression
        from 1964 is dot-product attention, with one more number in each key.</p>""",
        """<p>把高斯核代入 Nadaraya 和 Watson 的比值：1/√(2π) 约掉了，剩下的正是评分
        −½(<i>x</i> − <i>x</i><sub>i</sub>)² 的 softmax。</p>
        <p>再把平方展开。−½‖<i>q</i>‖² 这一项对每个键都一样，而所有评分同加一个数，softmax 察觉不到。剩下的是一个点积，
        加上每个键自己的一项。所以 1964 年的核回归就是点积注意力，只是每个键多带了一个数。</p>""",
    ),
    formula=("−½‖<i>q</i> − <i>k</i>‖² = <i>q</i>·<i>k</i> − ½‖<i>k</i>‖² − ½‖<i>q</i>‖²",),
    code="""import numpy as np
from regard import attention_weights
from regard.core.scores import DotProduct, Gaussian

query = np.stack([x_test, np.ones_like(x_test)], axis=1)
key = np.stack([x_train, -0.5 * x_train**2], axis=1)
same = attention_weights(query, key, DotProduct(w=np.sqrt(2)))
np.abs(same - attention_weights(x_test, x_train, Gaussian(w=1.0))).max()""",
    tell=tell,
)
