"""Shapes of w: one number, one per feature, a full matrix; three ideas of what near means."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from regard import NadarayaWatsonRegressor
from regard.data.text import Text
from regard.plot import style
from regard.tour.station import Drawing, Station, Told, Visit

ROWS, NOISE = 150, 0.3
# Waves per unit of each feature: both matter, the first one more.
WAVES = np.array([1.6, 0.4])
METRICS = ("scalar", "feature", "full")
NAMES = (Text("one number", "一个数"), Text("one per feature", "每个特征一个"), Text("full matrix", "完整矩阵"))
QUERY = np.array([0.5, 0.5])


def rippled(seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two features in the unit square, and a wave that runs across both, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.random((ROWS, 2))
    return X, np.sin(2 * np.pi * X @ WAVES) + NOISE * rng.standard_normal(ROWS)


def tell(visit: Visit) -> Told:
    X, y = rippled(visit.seed)
    models = [NadarayaWatsonRegressor(metric=metric).fit(X, y) for metric in METRICS]
    errors = [float(np.sqrt(model.search_.value)) for model in models]
    sizes = [int(np.size(model.w_)) for model in models]
    figure = style.picture(8.4, 4.0, squares=True)
    for ax, model, name, size, error in zip(figure.subplots(1, 3), models, NAMES, sizes, errors, strict=True):
        _draw(ax, visit, X, y, np.asarray(model.w_))
        shape = visit.label(f"shape of w: {np.shape(model.w_)}", f"w 的形状：{np.shape(model.w_)}")
        count = visit.label(f"parameters: {size}", f"参数：{size} 个")
        left_out = visit.label(f"left-out error: {error:.3f}", f"留一误差：{error:.3f}")
        ax.set_title(f"{name.said(visit.lettering)}\n{shape}\n{count}\n{left_out}", size=10.5)
    caption = Text(
        "The same points three times, coloured by y, over the wave behind them. The orange line encloses what the "
        "query in the middle calls near (one bandwidth): a circle, an upright ellipse, an ellipse along the wave.",
        "同样的点画了三次，颜色是 y，底色是真实的波纹。"
        "橙线圈出中间的查询心目中的“近”（一个带宽）：圆、正着的椭圆、顺着波纹躺下的椭圆。",
    )
    first, second, third = (f"{error:.3f}" for error in errors)
    return Told(
        (Drawing("shapes", figure, caption, wide=True),),
        f"{errors[0]:.2f} → {errors[2]:.2f}",
        Text(
            f"Scale the difference by more than one number. Left out of {ROWS} points, one is missed by {first} with a "
            f"scalar w ({sizes[0]} parameter), {second} with a vector ({sizes[1]}) and {third} with a matrix "
            f"({sizes[2]}); the noise alone is {NOISE}.",
            f"让差乘以不止一个数。{ROWS} 个点逐一留出，误差是：标量 w（{sizes[0]} 个参数）{first}，"
            f"向量 w（{sizes[1]} 个）{second}，矩阵 w（{sizes[2]} 个）{third}；噪声本身就有 {NOISE}。",
        ),
    )


def _draw(ax: Axes, visit: Visit, X: NDArray[Any], y: NDArray[Any], w: NDArray[Any]) -> None:
    style.dress(ax, grid=False)
    side = np.linspace(0.0, 1.0, 201)
    place = np.stack(np.meshgrid(side, side), axis=-1)
    wave = np.sin(2 * np.pi * place @ WAVES)
    ax.imshow(wave, cmap=style.WEIGHTS, alpha=0.3, extent=(0, 1, 0, 1), origin="lower", interpolation="none")
    ax.scatter(X[:, 0], X[:, 1], c=y, cmap=style.WEIGHTS, s=26, edgecolors=style.MUTED, linewidths=0.5)
    delta = place - QUERY
    scaled = delta @ w if w.ndim == 2 else delta * w
    ax.contour(side, side, (scaled**2).sum(axis=-1), levels=[1.0], colors=[style.VERMILION], linewidths=2.4)
    ax.plot(*QUERY, "P", color=style.VERMILION, markersize=9, markeredgecolor=style.PAPER)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    ax.set_xlabel(visit.label("feature 1", "特征 1"))
    if ax.get_subplotspec().is_first_col():  # type: ignore[union-attr]
        ax.set_ylabel(visit.label("feature 2", "特征 2"))


STATION = Station(
    name="shapes",
    title=Text("Scalar, vector, matrix", "标量、向量、矩阵"),
    question=Text(
        "How do you add hyper-parameters to the kernel regression to predict better?",
        "如何将超参数添加到核回归中，以实现更好的预测？",
    ),
    story=Text(
        """<p>On a line, <i>w</i> is one number. With several features there is more to choose. One <i>w</i> for all
        makes every direction count alike. One <i>w</i> per feature lets some count more and others not at all. A full
        matrix <i>W</i> also mixes features, so that a direction across both can count.</p>
        <p>More parameters always fit better to the training data. They are worth having if they predict left-out points
        better, and that is what is learned here. The notes go one step further and let a small network compute the
        score; that is additive attention.</p>""",
        """<p>在一条线上，<i>w</i> 是一个数。特征多了，可选的也多了。共用一个 <i>w</i>，各个方向一样重要；
        每个特征一个 <i>w</i>，有的可以更重要，有的可以完全不管；完整的矩阵 <i>W</i> 还能混合特征，
        让斜着的方向也算数。</p>
        <p>参数越多，对训练数据总是拟合得越好。值不值得，要看留出的点是否预测得更准，这里学的正是这个。
        笔记还往前走了一步：用一个小网络来算评分，那就是加性注意力。</p>""",
    ),
    formula=(
        "−½ <i>w</i>² ‖<i>x</i> − <i>x</i><sub>i</sub>‖²",
        "−½ Σ<sub>k</sub> <i>w</i><sub>k</sub>² (<i>x</i><sub>k</sub> − <i>x</i><sub>ik</sub>)²",
        "−½ ‖<i>W</i><sup>⊤</sup>(<i>x</i> − <i>x</i><sub>i</sub>)‖²",
    ),
    code="""import numpy as np
from regard import NadarayaWatsonRegressor

X = np.random.default_rng(0).random((150, 2))
y = np.sin(2 * np.pi * X @ [1.6, 0.4])
NadarayaWatsonRegressor(metric="full").fit(X, y).w_.shape""",
    tell=tell,
)
