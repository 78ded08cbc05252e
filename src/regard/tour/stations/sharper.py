"""The sharper heatmap: what a learned w does to attention, and what it is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard import NadarayaWatsonRegressor, attention_weights
from regard.bandwidth import loo_objective
from regard.core.scores import Gaussian
from regard.data.text import Text
from regard.model.baselines import root_mean_square
from regard.plot import show_heatmaps
from regard.tour.station import Drawing, Station, Told, Visit
from regard.tour.stations.learned import by_lbfgs, by_the_notes


def tell(visit: Visit) -> Told:
    x_train, y_train, x_test, y_truth = visit.data
    keys = x_train[:, None]
    models = (NadarayaWatsonRegressor(bandwidth=1.0).fit(keys, y_train), by_the_notes(visit), by_lbfgs(visit))
    widths = [float(model.w_) for model in models]
    left_out = [np.sqrt(loo_objective(keys, y_train, Gaussian(w=w))) for w in widths]
    errors = [root_mean_square(model.predict(x_test[:, None]) - y_truth) for model in models]
    weights = [attention_weights(x_test, x_train, Gaussian(w=w)) for w in widths]
    heard = [float(np.median(1.0 / (a**2).sum(axis=1))) for a in weights]
    names = (
        visit.label("nonparametric, w = 1", "非参数，w = 1"),
        visit.label(f"learned, w = {widths[1]:.3g}", f"学到的 w = {widths[1]:.3g}"),
    )
    figure = weight_maps(visit, weights[:2], names, figsize=(8.2, 4.2))
    caption = Text(
        "Attention before and after learning; each panel is coloured up to its own largest weight. The band of the "
        "learned one is as narrow as its kernel.",
        "学习前后的注意力；每张图各自用自己的最大权重定色标。学到的那张，带子和它的核一样窄。",
    )
    return Told(
        (Drawing("sharper", figure, caption, wide=True),),
        f"{errors[0]:.2f} → {errors[1]:.2f}",
        Text(
            f"A larger w squeezes the kernel, so a query listens to {heard[1]:.1f} keys instead of {heard[0]:.1f} "
            f"(median of 1/Σα²) and their weights stand out. The left-out error goes from {left_out[0]:.3f} to "
            f"{left_out[1]:.3f} and the error against the truth from {errors[0]:.3f} to {errors[1]:.3f}. For the "
            f"best w, {widths[2]:.3g}, they are {left_out[2]:.3f} and {errors[2]:.3f}, with {heard[2]:.1f} keys.",
            f"w 变大，核变窄，一个查询只听 {heard[1]:.1f} 个键，而不是 {heard[0]:.1f} 个（1/Σα² 的中位数），"
            f"它们的权重就突出了。留一误差从 {left_out[0]:.3f} 变成 {left_out[1]:.3f}，"
            f"与真实函数的误差从 {errors[0]:.3f} 变成 {errors[1]:.3f}。最好的 w 是 {widths[2]:.3g}，"
            f"两种误差是 {left_out[2]:.3f} 和 {errors[2]:.3f}，听 {heard[2]:.1f} 个键。",
        ),
    )


def weight_maps(
    visit: Visit, weights: Sequence[NDArray[Any]], names: Sequence[str], figsize: tuple[float, float]
) -> Figure:
    """Weights (Q, K) side by side; each panel is coloured up to its own largest weight, which stands in its title."""
    figure = show_heatmaps(
        [[a / a.max() for a in weights]],
        xlabel=visit.label("sorted training inputs (keys)", "排序后的训练输入（键）"),
        ylabel=visit.label("sorted testing inputs (queries)", "排序后的测试输入（查询）"),
        titles=[
            name + visit.label(f"\nlargest weight {a.max():.3f}", f"\n最大权重 {a.max():.3f}")
            for name, a in zip(names, weights, strict=True)
        ],
        figsize=figsize,
    )
    figure.axes[-1].set_ylabel(visit.label("share of the panel’s largest weight", "占本图最大权重的比例"))
    return figure


STATION = Station(
    name="sharper",
    title=Text("The sharper heatmap", "更尖锐的热图"),
    question=Text(
        "What is the learned w worth, and why does it make the attention sharper?",
        "学到的参数价值是什么？为什么它会使加权区域更加尖锐？",
    ),
    story=Text(
        """<p>Without a parameter there is one rule for all data: everybody within about one unit is a neighbour. The
        parameter lets the data set the rule. The distance is multiplied by <i>w</i> and then squared, so doubling
        <i>w</i> takes a weight to its fourth power before all are divided by their sum: near keys keep theirs, far
        keys lose it.</p>
        <p>Sharp is not the same as good. The value of <i>w</i> is how well the others predict a point that was left
        out.</p>""",
        """<p>没有参数就只有一条死规矩：方圆大约一个单位以内都是邻居。有了参数，规矩由数据来定。
        距离先乘以 <i>w</i> 再平方，所以 <i>w</i> 加倍，就等于每个权重在归一化之前先取四次方：
        近的键留住权重，远的键失去权重。</p>
        <p>尖锐不等于好。<i>w</i> 的价值，要看留出的那个点被其余的点预测得有多准。</p>""",
    ),
    formula=("exp(−½ (2<i>w</i>·<i>u</i>)²) = [exp(−½ (<i>w</i>·<i>u</i>)²)]<sup>4</sup>",),
    code="""from regard.bandwidth import loo_objective
from regard.core.scores import Gaussian

[loo_objective(x_train[:, None], y_train, Gaussian(w=w)) ** 0.5 for w in (1.0, 5.0, 25.0)]""",
    tell=tell,
)
