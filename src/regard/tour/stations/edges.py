"""The edges: a weighted mean is drawn inwards where keys lie on one side only, a weighted line is not."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from regard import LocalLinearRegressor
from regard.data import notes_truth
from regard.data.text import Text
from regard.model.baselines import root_mean_square
from regard.plot import style
from regard.tour.numbers import signed
from regard.tour.station import Drawing, Station, Told, Visit
from regard.tour.stations.learned import by_lbfgs

FINE = np.linspace(0.0, 5.0, 501)
# How much of the left end the first panel shows.
END = 1.25


def tell(visit: Visit) -> Told:
    x_train, y_train, x_test, y_truth = visit.data
    mean = by_lbfgs(visit)
    line = LocalLinearRegressor(bandwidth=mean.bandwidth_).fit(x_train[:, None], y_train)
    models = (mean, line)
    # Predictions are linear in y, so with noise of mean zero the bias is that of the truth at the keys.
    bias = [model.effective_weights(FINE[:, None]) @ notes_truth(x_train) - notes_truth(FINE) for model in models]
    errors = [root_mean_square(model.predict(x_test[:, None]) - y_truth) for model in models]
    figure = style.picture(8.4, 3.8)
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.25))
    _draw_end(left, visit, [model.predict(FINE[:, None]) for model in models])
    _draw_bias(right, visit, bias)
    caption = Text(
        "Left: the first steps of the interval, drawn with one bandwidth for both. Right: how far each is off on "
        "average over the noise, at every x.",
        "左：区间的开头，两条曲线用同一个带宽。右：对噪声取平均后，各处偏离真实函数多少。",
    )
    ends = [[signed(float(b[at]), 3) for at in (0, -1)] for b in bias]
    return Told(
        (Drawing("edges", figure, caption, wide=True),),
        f"{signed(float(bias[0][0]), 2)} → {signed(float(bias[1][0]), 2)}",
        Text(
            f"A local line takes most of the bias away: at x = 0 it is {ends[1][0]} instead of {ends[0][0]}, at x = 5 "
            f"{ends[1][1]} instead of {ends[0][1]}, with the same h = {mean.bandwidth_:.3f}. "
            f"Over the whole interval the errors are {errors[0]:.3f} (mean) and {errors[1]:.3f} (line)"
            + (": the price is more variance." if errors[1] > errors[0] else "."),
            f"局部直线消掉了大部分偏差：带宽同为 h = {mean.bandwidth_:.3f}，在 x = 0 处偏差是 {ends[1][0]}，"
            f"而不是 {ends[0][0]}；在 x = 5 处是 {ends[1][1]}，而不是 {ends[0][1]}。"
            f"整个区间上的误差是 {errors[0]:.3f}（平均）和 {errors[1]:.3f}（直线）"
            + ("：代价是方差大一些。" if errors[1] > errors[0] else "。"),
        ),
    )


def _draw_end(ax: Axes, visit: Visit, curves: list[NDArray[Any]]) -> None:
    style.dress(ax)
    here, near = END >= FINE, visit.data.x_train <= END
    style.truth_line(ax, FINE[here], notes_truth(FINE[here]), visit.lines[0])
    _draw_curves(ax, visit, FINE[here], [curve[here] for curve in curves])
    style.circles(ax, visit.data.x_train[near], visit.data.y_train[near], visit.lines[2])
    ax.set(xlabel="x", ylabel="y", xlim=(-0.03, END), title=visit.label("the left end", "左端"))
    style.legend(ax, loc="lower right")


def _draw_bias(ax: Axes, visit: Visit, bias: list[NDArray[Any]]) -> None:
    style.dress(ax)
    ax.axhline(0.0, color=style.INK, linewidth=1.0)
    _draw_curves(ax, visit, FINE, bias)
    ax.set(
        xlabel="x", ylabel=visit.label("bias", "偏差"), xlim=(0, 5), title=visit.label("bias everywhere", "各处的偏差")
    )
    style.legend(ax, loc="upper right")


def _draw_curves(ax: Axes, visit: Visit, x: NDArray[Any], curves: list[NDArray[Any]]) -> None:
    names = visit.label("weighted mean", "加权平均"), visit.label("weighted line", "加权直线")
    for curve, colour, dash, name in zip(curves, (style.VERMILION, style.BLUE), ("-", "-."), names, strict=True):
        ax.plot(x, curve, color=colour, linestyle=dash, linewidth=2.6, label=name)


STATION = Station(
    name="edges",
    title=Text("Lines at the edges", "边界上的局部直线"),
    question=Text(
        "At the ends of the interval a query has keys on one side only. Does that matter?",
        "区间两端的查询只有一侧有键，这要紧吗？",
    ),
    story=Text(
        """<p>At <i>x</i> = 0 every key lies to the right, and there the curve is higher. A weighted mean can only take
        values from there, so it starts too high. The remedy is old: around each query fit a <em>line</em> with the same
        weights, and read it off at the query. The line knows which way the values lean.</p>
        <p>The line is one more attention pooling: its weights may be negative, but they still add up to one.</p>""",
        """<p>在 <i>x</i> = 0 处，所有的键都在右边，而右边的曲线更高。加权平均只能从那边取值，所以一开始就偏高。
        办法很老：在每个查询周围用同样的权重拟合一条<em>直线</em>，再读出直线在查询处的高度。直线知道值往哪边倾斜。</p>
        <p>这条直线仍然是注意力汇聚：权重可以是负的，但加起来还是一。</p>""",
    ),
    formula=(
        "min<sub><i>a</i>, <i>b</i></sub> Σ<sub>i</sub> α<sub>i</sub> "
        "(<i>y</i><sub>i</sub> − <i>a</i> − <i>b</i> (<i>x</i><sub>i</sub> − <i>x</i>))²",
        "<i>f</i>(<i>x</i>) = <i>a</i>",
    ),
    code="""from regard import LocalLinearRegressor

model = LocalLinearRegressor(bandwidth=0.2).fit(x_train[:, None], y_train)
model.effective_weights([[0.0]]).sum()""",
    tell=tell,
)
