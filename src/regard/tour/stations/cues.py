"""Cues: what queries, keys and values stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from numpy.typing import NDArray

from regard import attention_weights, pool
from regard.core.scores import DotProduct
from regard.data.text import Text
from regard.plot import style
from regard.tour.station import Drawing, Station, Told, Visit

# Each thing on the desk: how much it catches the eye, how much there is to read, and the words it offers.
THINGS = (Text("red mug", "红杯子"), Text("phone", "手机"), Text("letter", "信"), Text("novel", "小说"))
KEYS = np.array([[3.0, 0.0], [2.0, 0.5], [1.0, 2.0], [0.5, 3.0]])
WORDS = np.array([0.0, 40.0, 150.0, 300.0])
GLANCE = np.array([[1.0, 0.0]])
WISH = np.array([[0.0, 1.0]])
# The library divides by √d; undo it, so that the score is the plain q·k.
SCORE = DotProduct(w=np.sqrt(2.0))
NOVEL = 3
# Orange is too light for letters on white.
DARK_ORANGE = "#9c6c00"


def tell(visit: Visit) -> Told:
    figure = style.picture(6.4, 6.4)
    top, bottom = figure.subplots(2, 1)
    queries = (
        (top, GLANCE, visit.label("whatever\nstands out", "什么显眼\n看什么")),
        (bottom, WISH, visit.label("something\nto read", "想找点\n东西读")),
    )
    shares, words = [], []
    for ax, query, wish in queries:
        weights = attention_weights(query, KEYS, SCORE)[0]
        output = float(pool(query, KEYS, WORDS, SCORE).output[0])
        _diagram(ax, visit, wish, weights, output)
        shares.append(float(weights[NOVEL]))
        words.append(output)
    _headings(top, visit)
    caption = Text(
        "The same keys and values under two queries. Bars are attention weights; the output is their weighted "
        "average of the values, here words to read.",
        "同样的键和值，两个不同的查询。横条是注意力权重；输出是值（这里是可读的字数）的加权平均。",
    )
    before, after = (f"{100 * share:.0f}%" for share in shares)
    return Told(
        (Drawing("cues", figure, caption),),
        f"{before} → {after}",
        Text(
            f"Your intention decides. The novel’s share of attention rises from {before} to {after} when the query "
            f"asks for something to read, and the pooled value from {words[0]:.0f} to {words[1]:.0f} words. "
            "Keys and values never changed.",
            f"由意愿决定。当查询变成“想找点东西读”，小说分到的注意力从 {before} 升到 {after}，"
            f"汇聚得到的值从 {words[0]:.0f} 字变成 {words[1]:.0f} 字；键和值都没有变。",
        ),
    )


def _diagram(ax: Axes, visit: Visit, wish: str, weights: NDArray[Any], output: float) -> None:
    ax.set(xlim=(-0.1, 10.1), ylim=(-0.15, 4.15))
    ax.axis("off")
    middle = 1.8
    _box(ax, 0.0, middle, 1.75, 1.3, wish, style.VERMILION)
    for row, thing in enumerate(THINGS):
        y, weight = 3.3 - row, float(weights[row])
        ax.plot([1.75, 2.5], [middle, y], color=style.VERMILION, linewidth=0.6 + 5 * weight, alpha=0.55, zorder=1)
        _box(ax, 2.5, y, 1.55, 0.72, thing.said(visit.lettering), style.BLUE)
        ax.barh(y, 1.9 * weight, left=4.3, height=0.5, color=style.ORANGE)
        ax.text(4.38 + 1.9 * weight, y, f"{100 * weight:.0f}%", va="center", size=10.5, color=style.INK)
        _box(ax, 6.6, y, 1.1, 0.72, f"{WORDS[row]:.0f}", style.GREEN)
        ax.plot([7.7, 8.6], [y, middle], color=style.GREEN, linewidth=0.6 + 5 * weight, alpha=0.55, zorder=1)
    _box(ax, 8.6, middle, 1.4, 1.1, visit.label(f"{output:.0f}\nwords", f"{output:.0f}\n字"), style.INK)


def _box(ax: Axes, left: float, middle: float, width: float, height: float, words: str, colour: str) -> None:
    ax.add_patch(
        FancyBboxPatch(
            (left + 0.08, middle - height / 2 + 0.08),
            width - 0.16,
            height - 0.16,
            boxstyle="round,pad=0.08,rounding_size=0.14",
            facecolor=style.PAPER,
            edgecolor=colour,
            linewidth=1.6,
            zorder=2,
        )
    )
    ax.text(left + width / 2, middle, words, ha="center", va="center", size=10.5, color=style.INK, zorder=3)


def _headings(ax: Axes, visit: Visit) -> None:
    for x, colour, en, zh in (
        (0.87, style.VERMILION, "query\n(volitional\ncue)", "查询\n（自主提示）"),
        (3.2, style.BLUE, "keys\n(nonvolitional\ncues)", "键\n（非自主提示）"),
        (5.35, DARK_ORANGE, "attention\nweights", "注意力\n权重"),
        (7.15, style.GREEN, "values\n(sensory\ninputs)", "值\n（感官输入）"),
        (9.3, style.INK, "output", "输出"),
    ):
        ax.text(x, 4.1, visit.label(en, zh), ha="center", va="bottom", size=9.5, weight="bold", color=colour)


STATION = Station(
    name="cues",
    title=Text("Cues: query, key, value", "提示：查询、键、值"),
    question=Text(
        "A mug, a phone, a letter and a novel lie on the desk. What decides where you look?",
        "桌上有杯子、手机、信和小说。是什么决定你看向哪里？",
    ),
    story=Text(
        """<p>Two kinds of cues guide the eye. A <em>nonvolitional</em> cue belongs to the thing: the mug is red, the
        phone lights up. A <em>volitional</em> cue belongs to you: you would like something to read. Attention is what
        happens when the two meet.</p>
        <p>In the words of this library the volitional cue is the <b class="query">query</b>, each thing’s look is a
        <b class="key">key</b>, and what you take in when you look there is its <b class="value">value</b>. Keys and
        values come in pairs. A score says how well a key suits the query; softmax turns scores into weights that are
        never negative and sum to one; the output is the weighted average of the values.</p>
        <p>For the rest of the tour: a query is an input <i>x</i> where we want a prediction, a key is a training input
        <i>x</i><sub>i</sub>, and its value is the training output <i>y</i><sub>i</sub>.</p>""",
        """<p>引导目光的提示有两种。<em>非自主提示</em>属于物体：杯子是红的，手机屏幕亮了。<em>自主提示</em>属于你自己：
        你想找点东西读。两者相遇，就有了注意力。</p>
        <p>用这个库的话说：自主提示是<b class="query">查询</b>（query），每样东西的样子是<b class="key">键</b>（key），
        看向它时得到的内容是<b class="value">值</b>（value）。键和值成对出现。
        评分说明一个键与查询有多相称；softmax 把评分变成非负且和为一的权重；输出就是值的加权平均。</p>
        <p>在接下来的旅程里：查询是想要预测的输入 <i>x</i>，键是训练输入 <i>x</i><sub>i</sub>，
        值是训练输出 <i>y</i><sub>i</sub>。</p>""",
    ),
    formula=(
        "α<sub>i</sub> = exp(score(<i>q</i>, <i>k</i><sub>i</sub>)) / "
        "Σ<sub>j</sub> exp(score(<i>q</i>, <i>k</i><sub>j</sub>))",
        "<i>f</i>(<i>q</i>) = Σ<sub>i</sub> α<sub>i</sub> <i>v</i><sub>i</sub>",
    ),
    code="""import numpy as np
from regard import pool
from regard.core.scores import DotProduct

key = [[3.0, 0.0], [2.0, 0.5], [1.0, 2.0], [0.5, 3.0]]  # catches the eye, can be read
words = [0.0, 40.0, 150.0, 300.0]
pool([[0.0, 1.0]], key, words, DotProduct(w=np.sqrt(2))).output""",
    tell=tell,
)
