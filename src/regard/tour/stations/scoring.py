"""Three scoring functions side by side: Gaussian, additive and dot product, each learned on the notes' data."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard import AttentionRegressor
from regard.data.text import Text
from regard.model.baselines import root_mean_square
from regard.plot import plot_kernel_reg, style
from regard.tour.station import Drawing, Station, Told, Visit, needs_torch
from regard.tour.stations.sharper import weight_maps

SCORES = ("gaussian", "additive", "dot")
NAMES = (Text("Gaussian", "高斯"), Text("additive", "加性"), Text("dot product", "点积"))


def learned(visit: Visit, score: str, embed: str | None = None) -> AttentionRegressor:
    """Attention with this score, learned by leaving out each of the notes' points in turn."""
    model = AttentionRegressor(score, embed, hidden_size=32, max_iter=10, learning_rate=0.03, random_state=visit.seed)
    return model.fit(visit.data.x_train[:, None], visit.data.y_train)


@needs_torch
def tell(visit: Visit) -> Told:
    models = [learned(visit, score) for score in SCORES]
    helped = learned(visit, "dot", embed="mlp")
    y_train, x_test, y_truth = visit.data.y_train, visit.data.x_test[:, None], visit.data.y_truth
    curves = [model.predict(x_test) for model in models]
    errors = [f"{root_mean_square(curve - y_truth):.3f}" for curve in curves]
    mean, better = (f"{root_mean_square(curve - y_truth):.3f}" for curve in (y_train.mean(), helped.predict(x_test)))
    losses = [model.history_.loss for model in models]
    names, weights = [name.said(visit.lettering) for name in NAMES], [model.attend(x_test) for model in models]
    left_out = [f"{1.0 - model.loo_score_:.3f}" for model in models]
    return Told(
        (
            Drawing("curves", _curves(visit, curves), _CURVES, wide=True),
            Drawing("weights", weight_maps(visit, weights, names, figsize=(10.4, 4.0)), _WEIGHTS, wide=True),
            Drawing("losses", _losses(visit, losses), _LOSSES),
        ),
        " · ".join(f"{float(error):.2f}" for error in errors),
        Text(
            f"The learned curves miss the truth by {errors[0]} (Gaussian), {errors[1]} (additive) and {errors[2]} (dot "
            f"product); the mean misses by {mean}. Their left-out losses end at {left_out[0]}, {left_out[1]} and "
            f"{left_out[2]}. With a small network in front of it, the dot product misses by {better}.",
            f"学到的曲线与真实函数的误差：高斯 {errors[0]}，加性 {errors[1]}，点积 {errors[2]}；平均值是 {mean}。"
            f"留一损失最后是 {left_out[0]}、{left_out[1]} 和 {left_out[2]}。"
            f"前面加一个小网络之后，点积的误差是 {better}。",
        ),
    )


def _curves(visit: Visit, curves: list[NDArray[Any]]) -> Figure:
    figure = style.picture(10.4, 3.5)
    data = visit.data
    for ax, curve, name in zip(figure.subplots(1, 3, sharey=True), curves, NAMES, strict=True):
        plot_kernel_reg(data.x_test, data.y_truth, curve, data.x_train, data.y_train, ax, labels=visit.lines)
        ax.set_title(name.said(visit.lettering))
    for ax in figure.axes[1:]:
        ax.set_ylabel("")
    # The last panel has room for it.
    for ax in figure.axes[:-1]:
        legend = ax.get_legend()
        if legend is not None:
            legend.remove()
    return figure


def _losses(visit: Visit, losses: list[NDArray[Any]]) -> Figure:
    figure = style.picture(6.4, 3.4)
    ax = style.dress(figure.subplots())
    for loss, name, colour, dash in zip(losses, NAMES, style.CYCLE, style.DASHES, strict=False):
        epochs = np.arange(1, len(loss) + 1)
        ax.plot(epochs, loss, "o", linestyle=dash, color=colour, linewidth=2.2, label=name.said(visit.lettering))
    ax.axhline(1.0, color=style.INK, linestyle=":", linewidth=1.6, label=visit.label("the mean", "平均值"))
    ax.set(xlabel=visit.label("epoch", "轮次"), ylabel=visit.label("left-out loss", "留一损失"), ylim=(0.0, 1.1))
    ax.set_xticks(np.arange(1, len(losses[0]) + 1))
    style.legend(ax, loc="center right")
    return figure


_CURVES = Text(
    "The same fifty points three times. The Gaussian score follows the curve; the additive one finds its shape with a "
    "small network; a dot product of plain numbers can only lean to one side.",
    "同样的五十个点画了三次。高斯评分跟着曲线走；加性评分用一个小网络找出形状；数与数的点积只会往一边倒。",
)
_WEIGHTS = Text(
    "Who looks at whom; each panel is coloured up to its own largest weight. The Gaussian looks at what is near, which "
    "is the diagonal. Nobody told the additive score that near is good: it looks wherever the values suit, even at the "
    "other end. The dot product looks to the ends.",
    "谁在看谁；每张图各自用自己的最大权重定色标。高斯看近处，也就是对角线。没有人告诉加性评分近就是好："
    "哪里的值合适，它就看哪里，哪怕在另一头。点积总是看向两端。",
)
_LOSSES = Text(
    "Squared error of the left-out points, as a share of the variance: the dotted line is what the mean would get.",
    "留出的点的平方误差，占方差的比例：点线是平均值的成绩。",
)

STATION = Station(
    name="scoring",
    title=Text("Three scoring functions", "三种评分函数"),
    question=Text(
        "Must the score be a distance? What do additive and dot-product scores do in its place?",
        "评分一定要是距离吗？换成加性评分和点积评分会怎样？",
    ),
    story=Text(
        """<p>What stands in the exponent of the Gaussian kernel is a score: how well does a key suit a query? Softmax
        takes any score. <em>Additive</em> attention asks a small network with one hidden layer.
        <em>Dot product</em> attention multiplies query and key, which is quick and needs no network, but with a single
        feature it can only say “the larger, the better” or the opposite. In a translation model the words come as
        long vectors, and there a dot product can look as closely as it likes.</p>
        <p>All three are learned in the same way: leave a point out, let the others answer it, go downhill. The inputs
        are standardised first.</p>""",
        """<p>高斯核指数上的那一项，就是评分：一个键有多适合一个查询？softmax 对任何评分都管用。
        <em>加性</em>注意力去问一个只有一个隐藏层的小网络。<em>点积</em>注意力把查询和键相乘，又快又不要网络；
        但只有一个特征时，它只会说“越大越好”，或者反过来。在翻译模型里，词是很长的向量，
        那时点积想看多细就能看多细。</p>
        <p>三者用同样的方法来学：留出一个点，让其余的点来回答，沿着误差往下走。输入先做标准化。</p>""",
    ),
    formula=(
        "−½ (<i>w</i>(<i>q</i> − <i>k</i>))²",
        "<i>v</i><sup>⊤</sup> tanh(<i>W</i><sub>q</sub><i>q</i> + <i>W</i><sub>k</sub><i>k</i>)",
        "<i>q</i><sup>⊤</sup><i>W</i><i>k</i>",
    ),
    code="""from regard import AttentionRegressor

model = AttentionRegressor(score="additive", hidden_size=32, max_iter=10, learning_rate=0.03, random_state=0)
model.fit(x_train[:, None], y_train)
model.history_.loss  # one loss per epoch""",
    tell=tell,
)
