"""Average pooling: the mean of all values, whatever the query."""

from __future__ import annotations

from regard import pool
from regard.core.scores import Gaussian
from regard.data.text import Text
from regard.model.baselines import root_mean_square
from regard.plot import plot_kernel_reg
from regard.tour.station import Drawing, Station, Told, Visit


def tell(visit: Visit) -> Told:
    x_train, y_train, x_test, y_truth = visit.data
    # With w = 0 every key is equally near, so every weight is 1/n: the mean is attention that does not look.
    mean = pool(x_test, x_train, y_train, Gaussian(w=0.0)).output
    error = root_mean_square(mean - y_truth)
    figure = plot_kernel_reg(x_test, y_truth, mean, x_train, y_train, labels=visit.lines)
    caption = Text(
        "Average pooling draws one flat line through the 50 training values (circles), far from the truth (dashed).",
        "平均汇聚在 50 个训练值（圆圈）中间画一条水平线，与真实函数（虚线）相差很大。",
    )
    return Told(
        (Drawing("average", figure, caption),),
        f"{error:.3f}",
        Text(
            f"Not well: the mean is {mean[0]:.3f} everywhere and misses the truth by {error:.3f} (root mean squared "
            f"error, RMSE, over the {len(x_test)} test inputs). It never looked at x.",
            f"不好：均值处处都是 {mean[0]:.3f}，与真实函数相差 {error:.3f}"
            f"（{len(x_test)} 个测试输入上的均方根误差 RMSE）。它从不看 x。",
        ),
    )


STATION = Station(
    name="average",
    title=Text("Average pooling", "平均汇聚"),
    question=Text("How well does the plain mean predict?", "只用平均值，预测得有多好？"),
    story=Text(
        """<p>The notes draw 50 training inputs from [0,&nbsp;5), sort them, and add noise with standard deviation
        0.5 to <i>y</i> = 2 sin <i>x</i> + <i>x</i><sup>0.8</sup>. The 50 test inputs are 0, 0.1, 0.2, …, 4.9.</p>
        <p>The simplest answer gives every training value the same weight 1/<i>n</i>. It is attention that asks
        nothing: the query does not appear in the formula.</p>""",
        """<p>笔记从 [0, 5) 中抽取 50 个训练输入并排序，输出是 <i>y</i> = 2 sin <i>x</i> + <i>x</i><sup>0.8</sup>
        加上标准差为 0.5 的噪声；50 个测试输入是 0、0.1、0.2、…、4.9。</p>
        <p>最简单的办法是给每个训练值同样的权重 1/<i>n</i>。这是一种什么也不问的注意力：公式里根本没有查询。</p>""",
    ),
    formula=("<i>f</i>(<i>x</i>) = (1/<i>n</i>) Σ<sub>i</sub> <i>y</i><sub>i</sub>",),
    code="""from regard import AveragePoolingRegressor

model = AveragePoolingRegressor().fit(x_train[:, None], y_train)
model.predict(x_test[:, None])""",
    tell=tell,
)
