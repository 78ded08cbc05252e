"""House prices: one learned w per feature says what decides about nearness, and what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from regard import NadarayaWatsonRegressor
from regard.bandwidth import loo_objective
from regard.core.scores import Gaussian
from regard.data import houses
from regard.data.text import Text
from regard.plot import style
from regard.tour.station import Drawing, Station, Told, Visit

FEATURES = {
    "area": Text("area", "面积"),
    "age": Text("age", "房龄"),
    "rooms": Text("rooms", "房间数"),
    "distance": Text("distance", "到市中心的距离"),
    "latitude": Text("latitude", "纬度"),
    "longitude": Text("longitude", "经度"),
    "door_number": Text("door number", "门牌号"),
}


def tell(visit: Visit) -> Told:
    X, y, names, _ = houses(seed=visit.seed)
    vector = NadarayaWatsonRegressor().fit(X, y)
    scalar = NadarayaWatsonRegressor(metric="scalar").fit(X, y)
    rule = NadarayaWatsonRegressor(bandwidth="scott").fit(X, y)
    each, one = (float(np.sqrt(model.search_.value)) for model in (vector, scalar))
    by_rule = float(np.sqrt(loo_objective(X, y, Gaussian(w=rule.w_))))
    share, gone = vector.feature_relevance_, vector.search_.smoothed_out
    words = [FEATURES[name] for name in names]
    figure = style.picture(6.4, 3.6)
    _draw(figure.subplots(), visit, words, share, gone)
    caption = Text(
        "How much each feature has to say about which houses are near: its share of Σ (w · spread)². A feature that "
        "was smoothed out has w = 0, an infinite bandwidth.",
        "每个特征在“哪些房子算近”中的发言权：它在 Σ (w · 离散程度)² 中所占的份额。被抹平的特征 w = 0，带宽无穷大。",
    )
    most, top = words[int(share.argmax())], f"{100 * share.max():.0f}%"
    out = [word for word, smoothed in zip(words, gone, strict=True) if smoothed]
    return Told(
        (Drawing("homes", figure, caption),),
        f"{one:.1f} → {each:.1f}",
        Text(
            f"Most of all the {most.en} ({top}); smoothed out: {', '.join(w.en for w in out) or 'none'}. A "
            f"left-out house is missed by {each:.1f} thousand with one learned w per feature, {one:.1f} with one w for "
            f"all, and {by_rule:.1f} by Scott’s rule.",
            f"最看重{most.zh}（{top}）；被抹平的特征：{'、'.join(w.zh for w in out) or '无'}。逐套留出来估价，"
            f"每个特征学一个 w，误差 {each:.1f}（千）；所有特征共用一个 w，误差 {one:.1f}；"
            f"用 Scott 规则，误差 {by_rule:.1f}。",
        ),
    )


def _draw(ax: Axes, visit: Visit, words: list[Text], share: NDArray[Any], gone: NDArray[Any]) -> None:
    style.dress(ax)
    ax.grid(False, axis="y")
    order = np.argsort(share, kind="stable")
    place = np.arange(len(order))
    ax.barh(place, 100 * share[order], color=style.BLUE, height=0.66)
    for y, feature in enumerate(order):
        told = visit.label("smoothed out", "被抹平") if gone[feature] else f"{100 * share[feature]:.1f}%"
        colour = style.VERMILION if gone[feature] else style.INK
        ax.text(100 * share[feature] + 0.8, y, told, va="center", size=10.5, color=colour)
    ax.set(
        yticks=place,
        yticklabels=[words[feature].said(visit.lettering) for feature in order],
        xlabel=visit.label("relevance, %", "发言权（%）"),
        xlim=(0, 115 * share.max()),
    )


STATION = Station(
    name="homes",
    title=Text("House prices", "房价"),
    question=Text(
        "Which features decide what a house is worth, and which do not matter?",
        "哪些特征决定房价？哪些无关紧要？",
    ),
    story=Text(
        """<p>The notes begin with houses: price one by those that resemble it. But resemble in what? Four hundred
        houses have seven features: square metres, years, kilometres, degrees, and a door number that we added
        to see whether it would be found out. The units have nothing in common, so one <i>w</i> for all cannot serve
        them.</p>
        <p>With one <i>w</i> per feature, learned by leave-one-out, a feature that tells nothing is given an ever wider
        bandwidth until it is ignored. Location comes three times, as distance, latitude and longitude; the distance
        says most of it.</p>""",
        """<p>笔记从房子讲起：参照相像的房子来估价。可是，哪方面相像？四百套房子有七个特征：平方米、年、公里、度，
        还有一个门牌号，是我们特意放进去、看它会不会被识破的。这些单位毫不相干，共用一个 <i>w</i> 是行不通的。</p>
        <p>每个特征一个 <i>w</i>，用留一法来学：什么也说明不了的特征，带宽会越来越宽，直到被忽略。
        位置出现了三次：距离、纬度、经度；其中距离说明得最多。</p>""",
    ),
    formula=(
        "−½ Σ<sub>k</sub> <i>w</i><sub>k</sub>² (<i>x</i><sub>k</sub> − <i>x</i><sub>ik</sub>)²",
        "<i>w</i><sub>k</sub> = 0 ⟺ <i>h</i><sub>k</sub> = ∞",
    ),
    code="""from regard import NadarayaWatsonRegressor
from regard.data import houses

data = houses()
model = NadarayaWatsonRegressor().fit(data.X, data.y)
dict(zip(data.feature_names, model.feature_relevance_.round(3)))""",
    tell=tell,
)
