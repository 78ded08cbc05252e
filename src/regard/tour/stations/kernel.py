"""The kernel K(u) for several w: how far a key can be heard."""

from __future__ import annotations

import numpy as np

from regard import attention_weights
from regard.core.scores import Gaussian
from regard.data.text import Text
from regard.plot import style
from regard.tour.station import Drawing, Station, Told, Visit

WIDTHS = (0.5, 1.0, 2.0, 4.0)
QUERY = 2.5


def tell(visit: Visit) -> Told:
    u = np.linspace(-4.0, 4.0, 401)
    figure = style.picture(6.4, 4.0)
    ax = style.dress(figure.subplots())
    listened = []
    for w, colour, dash in zip(WIDTHS, style.CYCLE, style.DASHES, strict=False):
        score = Gaussian(w=w)
        height = np.exp(score(np.zeros((1, 1)), u[:, None])[0]) / np.sqrt(2 * np.pi)
        ax.plot(u, height, color=colour, linestyle=dash, linewidth=2.4, label=f"w = {w:g}  (h = {1 / w:g})")
        weights = attention_weights([QUERY], visit.data.x_train, score)[0]
        listened.append(1.0 / float((weights**2).sum()))
    ax.set(
        xlabel=visit.label("distance between query and key, x − xᵢ", "查询与键的距离 x − xᵢ"),
        ylabel="K(w·(x − xᵢ))",
        xlim=(-4, 4),
        ylim=(0, 0.43),
    )
    style.legend(ax, loc="upper right")
    caption = Text(
        "One kernel, four widths. A larger w squeezes it, so a key must be nearer to be heard.",
        "同一个核，四种宽度。w 越大，核越窄，键要更近才听得见。",
    )
    counts = dict(zip(WIDTHS, listened, strict=True))
    return Told(
        (Drawing("kernel", figure, caption),),
        f"{counts[1.0]:.0f} → {counts[4.0]:.0f}",
        Text(
            f"It decides how many keys a query listens to. At x = {QUERY:g} that is {counts[1.0]:.1f} of "
            f"{len(visit.data.x_train)} keys for w = 1 and {counts[4.0]:.1f} for w = 4 (effective number, 1/Σα²).",
            f"它决定一个查询听多少个键。在 x = {QUERY:g} 处，{len(visit.data.x_train)} 个键中，"
            f"w = 1 时听 {counts[1.0]:.1f} 个，w = 4 时听 {counts[4.0]:.1f} 个（有效个数 1/Σα²）。",
        ),
    )


STATION = Station(
    name="kernel",
    title=Text("The kernel and its width", "核与它的宽度"),
    question=Text("What does w do to the kernel?", "w 对核做了什么？"),
    story=Text(
        """<p>Multiply the distance by a number <i>w</i> before it enters the kernel. Statisticians speak of the
        bandwidth <i>h</i> = 1/<i>w</i>. With <i>w</i> → 0 the kernel is flat and we are back at the mean; with
        <i>w</i> → ∞ only the nearest key is left and we are back at hard attention. Too small a <i>w</i>
        flattens the curve, too large a <i>w</i> copies the noise.</p>""",
        """<p>距离在进入核之前先乘以一个数 <i>w</i>。统计学家说的带宽就是 <i>h</i> = 1/<i>w</i>。
        <i>w</i> → 0 时核是平的，回到平均汇聚；<i>w</i> → ∞ 时只剩最近的键，回到硬注意力。
        <i>w</i> 太小，曲线被压平（欠拟合）；<i>w</i> 太大，照抄噪声（过拟合）。</p>""",
    ),
    formula=(
        "<i>K</i>(<i>u</i>) = exp(−<i>u</i>²/2) / √(2π)",
        "<i>u</i> = <i>w</i> · (<i>x</i> − <i>x</i><sub>i</sub>)",
        "<i>h</i> = 1/<i>w</i>",
    ),
    code="""from regard import attention_weights
from regard.core.scores import Gaussian

weights = attention_weights([2.5], x_train, Gaussian(w=4.0))
1 / (weights**2).sum()  # effective number of keys""",
    tell=tell,
)
