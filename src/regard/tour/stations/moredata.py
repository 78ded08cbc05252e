"""More data: where a fixed bandwidth stops learning and a shrinking one goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from regard import pool
from regard.core.scores import Gaussian
from regard.data import notes, notes_truth
from regard.data.text import Text
from regard.model.baselines import root_mean_square
from regard.plot import style
from regard.tour.numbers import signed
from regard.tour.station import Drawing, Station, Told, Visit

SIZES = (50, 200, 800, 3200, 12800)
REPEATS = 10
# Test inputs 1 ≤ x ≤ 4, where a query has keys on both sides.
INSIDE = slice(10, 41)


class Curve(NamedTuple):
    """Errors for each of ``SIZES``."""

    everywhere: NDArray[Any]
    inside: NDArray[Any]


def tell(visit: Visit) -> Told:
    fixed, shrinking = _errors(visit.seed, 0.0), _errors(visit.seed, -1 / 5)
    floor = _bias(visit)
    figure = style.picture(6.6, 4.5)
    _draw(figure.subplots(), visit, fixed, shrinking, floor)
    caption = Text(
        f"Error against the amount of data, both on logarithmic scales, averaged over {REPEATS} draws. "
        "With h = 1 it settles on the bias; with a bandwidth that shrinks it keeps falling.",
        f"误差随数据量的变化，两轴均为对数刻度，取 {REPEATS} 次抽样的平均。"
        "h = 1 时误差停在偏差上；带宽随 n 变小，误差就一直下降。",
    )
    (flat_first, flat_last), (first, last) = (
        f"{c.everywhere[0]:.3f} {c.everywhere[-1]:.3f}".split() for c in (fixed, shrinking)
    )
    flat_slope, falls, falls_inside = (
        signed(slope(SIZES, errors), 2) for errors in (fixed.everywhere, shrinking.everywhere, shrinking.inside)
    )
    return Told(
        (Drawing("moredata", figure, caption),),
        f"{fixed.everywhere[-1]:.2f} / {shrinking.everywhere[-1]:.2f}",
        Text(
            f"Only if the bandwidth shrinks. From {SIZES[0]} to {SIZES[-1]:,} pairs the error goes from {flat_first} "
            f"to {flat_last} at h = 1 (slope {flat_slope}; the bias is {floor:.3f}), but from {first} to {last} with "
            f"h = n^(−1/5) (slope {falls}, and {falls_inside} away from the edges).",
            f"要让带宽一起变小才行。样本从 {SIZES[0]} 增加到 {SIZES[-1]:,}："
            f"h = 1 时误差从 {flat_first} 变到 {flat_last}（斜率 {flat_slope}，偏差是 {floor:.3f}）；"
            f"h = n^(−1/5) 时从 {first} 降到 {last}（斜率 {falls}，远离两端处 {falls_inside}）。",
        ),
    )


def _errors(seed: int, power: float) -> Curve:
    """Root of the mean squared error over ``REPEATS`` draws for each size, with h = n^power."""
    errors = np.empty((len(SIZES), REPEATS, 2))
    # Few queries: plain numpy is quick enough.
    for row, n in enumerate(SIZES):
        score = Gaussian(w=1.0 / n**power)
        for draw in range(REPEATS):
            data = notes(n_train=n, seed=seed + draw)
            off = pool(data.x_test, data.x_train, data.y_train, score, engine="reference").output - data.y_truth
            errors[row, draw] = root_mean_square(off), root_mean_square(off[INSIDE])
    return Curve(*np.sqrt((errors**2).mean(axis=1)).T)


def _bias(visit: Visit) -> float:
    """Error at h = 1 with so many keys, free of noise, that only the smoothing itself is left."""
    keys = (np.arange(5000) + 0.5) / 1000
    flat = pool(visit.data.x_test, keys, notes_truth(keys), Gaussian(w=1.0), engine="reference").output
    return root_mean_square(flat - visit.data.y_truth)


def slope(sizes: Sequence[int], heights: NDArray[Any]) -> float:
    """Slope in the log-log picture, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(heights), 1)[0])


def plain_ticks(ax: Axes, visit: Visit, sizes: Sequence[int], ticks: Sequence[float]) -> None:
    """Numbers of training pairs along x, and plain numbers instead of powers of ten."""
    ax.minorticks_off()
    ax.set(
        xlabel=visit.label("number of training pairs n", "训练样本数 n"),
        xticks=sizes,
        xticklabels=[f"{n:,}" for n in sizes],
        yticks=ticks,
        yticklabels=[f"{tick:g}" for tick in ticks],
    )


def _draw(ax: Axes, visit: Visit, fixed: Curve, shrinking: Curve, floor: float) -> None:
    style.dress(ax)
    for errors, line, colour, name in (
        (fixed.everywhere, "o--", style.VERMILION, "h = 1"),
        (shrinking.everywhere, "s-", style.BLUE, "h = n^(−1/5)"),
        (shrinking.inside, "^-.", style.GREEN, visit.label("h = n^(−1/5), 1 ≤ x ≤ 4", "h = n^(−1/5)，1 ≤ x ≤ 4")),
    ):
        falls = signed(slope(SIZES, errors), 2)
        told = visit.label(f"slope {falls}", f"斜率 {falls}")
        ax.loglog(SIZES, errors, line, color=colour, linewidth=2.2, markersize=7, label=f"{name}: {told}")
    ax.axhline(floor, color=style.INK, linestyle=":", linewidth=1.6, label=visit.label("bias of h = 1", "h = 1 的偏差"))
    plain_ticks(ax, visit, SIZES, [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0])
    ax.set_ylabel(visit.label("error (RMSE)", "误差（RMSE）"))
    ax.set_ylim(0.35 * shrinking.inside.min(), 1.5 * fixed.everywhere.max())
    style.legend(ax, loc="lower left")


STATION = Station(
    name="moredata",
    title=Text("More data", "更多数据"),
    question=Text("Do more training pairs make the prediction better?", "训练样本越多，预测就越好吗？"),
    story=Text(
        """<p>The notes ask this and answer yes: the more houses you know, the better you can price one. More data do
        average the noise away. But at <i>h</i> = 1 every prediction still mixes in values from one unit to either side
        and more, and no amount of data can undo that. This error is called bias.</p>
        <p>So let the bandwidth shrink as data come in, neither too fast (noise) nor too slowly (bias). In one dimension
        <i>n</i><sup>−1/5</sup> strikes the balance: the error then falls like <i>n</i><sup>−2/5</sup>, and more slowly
        at the edges, where a query has keys on one side only.</p>""",
        """<p>笔记里问过这个问题，答案是肯定的：知道的房子越多，估价就越准。数据多了，噪声确实会被平均掉。
        但在 <i>h</i> = 1 时，每个预测仍然混着左右一个单位甚至更远的值，再多的数据也改不了这一点。这种误差叫偏差。</p>
        <p>所以要让带宽随着数据增加而变小：太快，噪声压不住；太慢，偏差去不掉。在一维情形，<i>n</i><sup>−1/5</sup>
        恰到好处：误差按 <i>n</i><sup>−2/5</sup> 下降；两端的查询只有一侧有键，下降得慢一些。</p>""",
    ),
    formula=("<i>h</i> ∝ <i>n</i><sup>−1/5</sup>", "⟹", "RMSE ∝ <i>n</i><sup>−2/5</sup>"),
    code="""from regard import pool
from regard.data import notes
from regard.core.scores import Gaussian

more = notes(n_train=1000, seed=0)
h = 1000 ** (-1 / 5)
pool(more.x_test, more.x_train, more.y_train, Gaussian(w=1 / h)).output""",
    tell=tell,
)
