"""A learned w: the notes' parametric attention pooling, five epochs of plain gradient descent."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard import NadarayaWatsonRegressor
from regard.data.text import Text
from regard.plot import plot_kernel_reg, style
from regard.tour.station import Drawing, Station, Told, Visit


def by_the_notes(visit: Visit) -> NadarayaWatsonRegressor:
    """One w by the notes' recipe, from a start in [0, 1)."""
    model = NadarayaWatsonRegressor(metric="scalar", optimizer="sgd", random_state=visit.seed)
    return model.fit(visit.data.x_train[:, None], visit.data.y_train)


def by_lbfgs(visit: Visit) -> NadarayaWatsonRegressor:
    """One w where the left-out error is smallest."""
    return NadarayaWatsonRegressor(metric="scalar").fit(visit.data.x_train[:, None], visit.data.y_train)


def tell(visit: Visit) -> Told:
    x_train, y_train, x_test, y_truth = visit.data
    notes, best = by_the_notes(visit), by_lbfgs(visit)
    fixed = NadarayaWatsonRegressor(bandwidth=1.0).fit(x_train[:, None], y_train).predict(x_test[:, None])
    predicted = notes.predict(x_test[:, None])
    n = len(x_train)
    first, last, least = notes.search_.path[0], n * notes.search_.value, n * best.search_.value
    bends = [float((np.diff(curve, 2) ** 2).sum()) for curve in (fixed, predicted, y_truth)]
    figure = plot_kernel_reg(x_test, y_truth, predicted, x_train, y_train, labels=visit.lines)
    ax = figure.axes[0]
    ax.plot(x_test, fixed, color=style.GREEN, linestyle="-.", linewidth=2.0, label="w = 1")
    style.legend(ax)
    loss = Text(
        "Summed squared error of the left-out predictions before each step. The dotted line is the least that any w "
        "can reach; after its first leap the recipe hardly moves.",
        "每一步之前留一预测的平方误差之和。点线是任何 w 能达到的最小值；第一步大跳之后，就几乎不动了。",
    )
    curve = Text(
        f"The learned curve (w = {notes.w_:.3g}) is less smooth than before (w = 1): it runs after single points.",
        f"学到的曲线（w = {notes.w_:.3g}）不如之前（w = 1）平滑：它追着单个样本跑。",
    )
    start = float(notes.search_.places[0, 0])
    w, best_w = f"{notes.w_:.3g}", f"{best.w_:.3g}"
    return Told(
        (Drawing("loss", _losses(visit, notes.search_.path, least), loss), Drawing("learned", figure, curve)),
        f"w = {w}",
        Text(
            f"Five epochs take w from {start:.3f} to {w} and the left-out squared error from {first:.1f} to "
            f"{last:.1f}. The roughness of the curve, the sum of squared second differences, is {bends[1]:.3g} against "
            f"{bends[0]:.3g} at w = 1 (the truth’s: {bends[2]:.3g}). L-BFGS, which finds steps of the right length, "
            f"stops at w = {best_w} with {least:.1f}.",
            f"五轮训练把 w 从 {start:.3f} 带到 {w}，留一平方误差从 {first:.1f} 变成 {last:.1f}。"
            f"曲线的粗糙度（二阶差分的平方和）是 {bends[1]:.3g}，w = 1 时是 {bends[0]:.3g}"
            f"（真实函数 {bends[2]:.3g}）。步长得当的 L-BFGS 停在 w = {best_w}，误差 {least:.1f}。",
        ),
    )


def _losses(visit: Visit, path: NDArray[Any], least: float) -> Figure:
    figure = style.picture(6.4, 3.2)
    ax = style.dress(figure.subplots())
    epochs = np.arange(1, len(path) + 1)
    recipe = visit.label("the notes’ recipe", "笔记的训练")
    ax.plot(epochs, path, "o-", color=style.BLUE, linewidth=2.4, markersize=7, label=recipe)
    ax.axhline(
        least, color=style.INK, linestyle=":", linewidth=1.8, label=visit.label("least of all w", "所有 w 中最小")
    )
    ax.set(
        xlabel=visit.label("epoch", "轮次"),
        ylabel=visit.label("left-out squared error", "留一平方误差"),
        xticks=epochs,
        ylim=(0.0, 1.1 * float(path.max())),
    )
    style.legend(ax, loc="upper right")
    return figure


STATION = Station(
    name="learned",
    title=Text("Parametric attention pooling", "带参数的注意力汇聚"),
    question=Text("Can the data choose w by themselves?", "能让数据自己选出 w 吗？"),
    story=Text(
        """<p>So far we chose the bandwidth. Now <i>w</i> is a parameter: start anywhere between 0 and 1 and walk
        downhill on the squared error. One thing must not happen. If a query may attend to itself, a huge <i>w</i>
        repeats every training value and the error is zero. So each training input is answered by <em>all others</em>:
        leave-one-out.</p>
        <p>The notes take five steps of plain gradient descent with learning rate 0.5 on the summed error. Here the
        first slope is so steep that one step overshoots by far, and over there the slope is too gentle to come
        back.</p>""",
        """<p>到现在为止，带宽都是我们定的。现在让 <i>w</i> 成为参数：从 0 到 1 之间随便一个数出发，沿着平方误差往下走。
        有一件事不能发生：如果查询可以关注自己，那么 <i>w</i> 很大时就会照抄每个训练值，误差为零。
        所以每个训练输入都由<em>除自己以外的所有样本</em>来回答：留一法。</p>
        <p>笔记对误差之和做五步普通的梯度下降，学习率 0.5。这里一开始的坡太陡，一步就跨过了头；
        那边的坡又太缓，走不回来。</p>""",
    ),
    formula=(
        "<i>f</i>(<i>x</i>) = Σ<sub>i</sub> softmax<sub>i</sub>(−½ ((<i>x</i> − <i>x</i><sub>i</sub>) <i>w</i>)²) "
        "<i>y</i><sub>i</sub>",
        "min<sub><i>w</i></sub> Σ<sub>i</sub> (<i>y</i><sub>i</sub> − <i>f</i><sub>−i</sub>(<i>x</i><sub>i</sub>))²",
    ),
    code="""from regard import NadarayaWatsonRegressor

model = NadarayaWatsonRegressor(metric="scalar", optimizer="sgd", random_state=0)
model.fit(x_train[:, None], y_train)
model.search_.path  # one loss per epoch""",
    tell=tell,
)
