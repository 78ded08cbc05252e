"""More data, learned: how w and the error go with n when every sample chooses its own w."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from regard import NadarayaWatsonRegressor
from regard.data import notes
from regard.data.text import Text
from regard.model.baselines import root_mean_square
from regard.plot import style
from regard.tour.numbers import signed
from regard.tour.station import Drawing, Station, Told, Visit
from regard.tour.stations.moredata import plain_ticks, slope

SIZES = (50, 100, 200, 400, 800, 1600)
REPEATS = 5


def tell(visit: Visit) -> Told:
    widths, errors = _learned(visit.seed)
    grows, falls = slope(SIZES, widths), slope(SIZES, errors)
    figure = style.picture(8.4, 3.8)
    left, right = figure.subplots(1, 2)
    _draw(left, visit, widths, grows, style.BLUE, "o-", visit.label("learned w", "学到的 w"), 1 / 5)
    _draw(right, visit, errors, falls, style.VERMILION, "s-", visit.label("error (RMSE)", "误差（RMSE）"), -2 / 5)
    caption = Text(
        f"The learned w and the error against the amount of data, all on logarithmic scales, over {REPEATS} draws for "
        "each n. Dotted: the slopes that theory gives away from the edges.",
        f"学到的 w 和误差随数据量的变化，均为对数刻度，每个 n 抽样 {REPEATS} 次。点线：理论上远离边界处的斜率。",
    )
    first, last = (f"{w:.1f}" for w in (widths[0], widths[-1]))
    more, less = (f"{e:.3f}" for e in (errors[0], errors[-1]))
    return Told(
        (Drawing("growth", figure, caption, wide=True),),
        f"{signed(grows, 2)} / {signed(falls, 2)}",
        Text(
            f"Yes. From {SIZES[0]} to {SIZES[-1]:,} pairs the learned w goes from {first} to {last} (slope "
            f"{signed(grows, 2)}) and the error from {more} to {less} (slope {signed(falls, 2)}). Theory has n^(1/5) "
            "away from the edges and, for a weighted mean, up to n^(1/4) with them.",
            f"知道。样本从 {SIZES[0]} 增加到 {SIZES[-1]:,}，"
            f"学到的 w 从 {first} 变到 {last}（斜率 {signed(grows, 2)}），"
            f"误差从 {more} 变到 {less}（斜率 {signed(falls, 2)}）。理论上远离边界处是 n^(1/5)；"
            "加权平均算上边界，则到 n^(1/4)。",
        ),
    )


def _learned(seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """For each size the geometric mean of the learned w, and the root of the mean squared error."""
    widths, errors = np.empty((2, len(SIZES), REPEATS))
    for row, n in enumerate(SIZES):
        for draw in range(REPEATS):
            data = notes(n_train=n, seed=seed + draw)
            model = NadarayaWatsonRegressor(metric="scalar").fit(data.x_train[:, None], data.y_train)
            widths[row, draw] = model.w_
            errors[row, draw] = root_mean_square(model.predict(data.x_test[:, None]) - data.y_truth)
    return np.exp(np.log(widths).mean(axis=1)), np.sqrt((errors**2).mean(axis=1))


def _draw(
    ax: Axes, visit: Visit, heights: NDArray[Any], found: float, colour: str, line: str, name: str, theory: float
) -> None:
    style.dress(ax)
    told = visit.label(f"slope {signed(found, 2)}", f"斜率 {signed(found, 2)}")
    ax.loglog(SIZES, heights, line, color=colour, linewidth=2.4, markersize=7, label=told)
    middle = np.exp(np.log(heights).mean()) * (np.array(SIZES) / np.exp(np.log(SIZES).mean())) ** theory
    told = visit.label(f"slope {signed(theory, 2)}", f"斜率 {signed(theory, 2)}")
    ax.loglog(SIZES, middle, ":", color=style.INK, linewidth=1.8, label=told)
    low, high = 0.7 * float(heights.min()), 1.4 * float(heights.max())
    ticks = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50)
    plain_ticks(ax, visit, SIZES, [tick for tick in ticks if low < tick < high])
    ax.set_title(name)
    style.legend(ax, loc="upper left" if theory > 0 else "upper right")


STATION = Station(
    name="growth",
    title=Text("More data, learned", "更多数据，自己学"),
    question=Text("Does the learned w know that it has more data?", "数据多了，学到的 w 知道吗？"),
    story=Text(
        """<p>Before, the bandwidth shrank by a rule that we wrote down. Now nobody tells the model how many points
        there are or what noise to expect: each sample chooses its own <i>w</i> by leave-one-out. With more points it
        can afford to listen to a narrower circle, because enough of them are still in it.</p>""",
        """<p>前面几站里，带宽按我们写下的规则变小。现在没有人告诉模型有多少个点、噪声有多大：每份样本都用留一法选自己的
        <i>w</i>。点多了，就可以只听更小的圈子，因为圈子里的人仍然够多。</p>""",
    ),
    formula=("<i>w</i> ∝ <i>n</i><sup>1/5</sup>", "⟹", "RMSE ∝ <i>n</i><sup>−2/5</sup>"),
    code="""from regard import NadarayaWatsonRegressor
from regard.data import notes

more = notes(n_train=400, seed=0)
NadarayaWatsonRegressor(metric="scalar").fit(more.x_train[:, None], more.y_train).w_""",
    tell=tell,
)
