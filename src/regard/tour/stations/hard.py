"""Hard attention: the value of the nearest key and of no other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard import pool
from regard.core.scores import Nearest
from regard.data import notes_truth
from regard.data.text import Text
from regard.model.baselines import root_mean_square
from regard.plot import plot_kernel_reg
from regard.tour.station import Drawing, Station, Told, Visit


def tell(visit: Visit) -> Told:
    x_train, y_train, x_test, y_truth = visit.data
    error = root_mean_square(pool(x_test, x_train, y_train, Nearest()).output - y_truth)
    fine = np.linspace(0.0, 5.0, 1001)
    stairs = pool(fine, x_train, y_train, Nearest()).output
    turns = (_turns(stairs), _turns(notes_truth(fine)))
    figure = plot_kernel_reg(fine, notes_truth(fine), stairs, x_train, y_train, labels=visit.lines)
    caption = Text(
        "Hard attention is a staircase: each query takes the value of its nearest key, noise and all.",
        "硬注意力是一段阶梯：每个查询照搬最近的键的值，连噪声一起搬来。",
    )
    return Told(
        (Drawing("hard", figure, caption),),
        f"{error:.3f}",
        Text(
            f"The RMSE is {error:.3f}. The curve follows the truth but copies the noise: it turns {turns[0]} times "
            f"between 0 and 5, the truth only {turns[1]} times.",
            f"RMSE 是 {error:.3f}。曲线跟着真实函数走，却照抄了噪声："
            f"在 0 到 5 之间拐弯 {turns[0]} 次，真实函数只拐 {turns[1]} 次。",
        ),
    )


def _turns(curve: NDArray[Any]) -> int:
    """How often a curve changes between rising and falling."""
    steps = np.sign(np.diff(curve))
    steps = steps[steps != 0]
    return int((steps[1:] != steps[:-1]).sum())


STATION = Station(
    name="hard",
    title=Text("Hard attention", "硬注意力"),
    question=Text("What if we look at the nearest key only?", "如果只看最近的那个键呢？"),
    story=Text(
        """<p>To price a house, find the one house most like it and copy its price. All the weight goes to the
        nearest key; where several are equally near, they share it. This is hard attention, also known as the nearest
        neighbour.</p>""",
        """<p>要估一套房子的价，就找最像它的那一套，照抄它的价格。全部权重都给最近的键；若有几个一样近，就由它们平分。
        这就是硬注意力，也就是最近邻算法。</p>""",
    ),
    formula=(
        "<i>f</i>(<i>x</i>) = <i>y</i><sub>j</sub>",
        "<i>j</i> = argmin<sub>i</sub> |<i>x</i> − <i>x</i><sub>i</sub>|",
    ),
    code="""from regard import NearestKeyRegressor

model = NearestKeyRegressor().fit(x_train[:, None], y_train)
model.predict(x_test[:, None])""",
    tell=tell,
)
