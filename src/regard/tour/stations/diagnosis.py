"""The diagnosis: too thin like a needle, too thick like a river, or about right."""

from __future__ import annotations

from regard import NadarayaWatsonRegressor, attention_weights
from regard.core.scores import Gaussian
from regard.data.text import Text
from regard.model.diagnosis import Diagnosis
from regard.plot import show_heatmaps
from regard.tour.station import Drawing, Station, Told, Visit
from regard.tour.stations.learned import by_lbfgs

# Fitted w over the learned one.
FACTORS = (8.0, 1.0, 1 / 8)
VERDICTS = {
    "too thin": Text("too thin", "太细"),
    "about right": Text("about right", "适中"),
    "too thick": Text("too thick", "太粗"),
}


def tell(visit: Visit) -> Told:
    x_train, y_train = visit.data.x_train, visit.data.y_train
    widths = [factor * float(by_lbfgs(visit).w_) for factor in FACTORS]
    found = [NadarayaWatsonRegressor(bandwidth=1 / w).fit(x_train[:, None], y_train).diagnose() for w in widths]
    weights = [attention_weights(x_train, x_train, Gaussian(w=w)) for w in widths]
    figure = show_heatmaps(
        [[a / a.max() for a in weights]],
        xlabel=visit.label("sorted training inputs", "排序后的训练输入"),
        ylabel=visit.label("the same, as queries", "同样的输入作为查询"),
        titles=[_title(visit, w, d) for w, d in zip(widths, found, strict=True)],
        figsize=(8.4, 3.7),
    )
    figure.axes[-1].set_ylabel(visit.label("share of the largest weight", "占最大权重的比例"))
    caption = Text(
        "The training inputs looking at themselves with three widths; each panel is coloured up to its own largest "
        "weight. Needle, halo, river: all three are straight, and only the width tells them apart.",
        "训练输入用三种宽度互相看；每张图各自用自己的最大权重定色标。针、晕染、河：三条线都直，区别只在胖瘦。",
    )
    return Told(
        (Drawing("diagnosis", figure, caption, wide=True),),
        " · ".join(f"{d.neighbours:.2g}" for d in found),
        Text(
            f"{_said(widths[0], found[0], 'en')}. {_said(widths[1], found[1], 'en')}. "
            f"{_said(widths[2], found[2], 'en')}. The diagnosis would multiply the first w by {found[0].factor:.2g} "
            f"and the last by {found[2].factor:.2g}.",
            f"{_said(widths[0], found[0], 'zh')}。{_said(widths[1], found[1], 'zh')}。"
            f"{_said(widths[2], found[2], 'zh')}。诊断建议把第一个 w 乘以 {found[0].factor:.2g}，"
            f"最后一个乘以 {found[2].factor:.2g}。",
        ),
    )


def _title(visit: Visit, w: float, found: Diagnosis) -> str:
    verdict = VERDICTS[found.verdict].said(visit.lettering)
    heard = visit.label(f"{found.neighbours:.3g} neighbours", f"{found.neighbours:.3g} 个邻居")
    return f"{verdict}\nw = {w:.3g}\n{heard}"


def _said(w: float, found: Diagnosis, lang: str) -> str:
    verdict = VERDICTS[found.verdict].said(lang)
    heard, seen, left = f"{found.neighbours:.3g}", f"{found.training_loss:.3f}", f"{found.loo_loss:.3f}"
    return Text(
        f"w = {w:.3g} is {verdict}: {heard} neighbours, squared error {seen} with itself and {left} without",
        f"w = {w:.3g} {verdict}：{heard} 个邻居，有自己时平方误差 {seen}，没有自己时 {left}",
    ).said(lang)


STATION = Station(
    name="diagnosis",
    title=Text("Needle or river", "像针还是像河"),
    question=Text("How do you tell a w that is too large from one that is too small?", "怎么看出 w 太大还是太小？"),
    story=Text(
        """<p>Read the diagonal. <em>Too thin, like a needle</em>: <i>w</i> is too large, every row looks only at itself
        and learns the noise by heart. <em>Too thick, like a river</em>: <i>w</i> is too small, every row looks at
        everybody and misses the hill. <em>About right</em>: a line with a halo, sharp enough to follow, wide enough to
        average.</p>
        <p>The number behind the picture is the gap between two errors: with the row itself among the keys, and without
        it. A needle is perfect with and poor without; a river is poor both times.</p>""",
        """<p>看对角线。<em>太细，像针</em>：<i>w</i> 太大，每一行只看自己，把噪声背了下来（过拟合）。
        <em>太粗，像河</em>：<i>w</i> 太小，每一行乱看周围，看不见山峰（欠拟合）。
        <em>适中，带晕染</em>：细得跟得上变化，又宽得能取平均。</p>
        <p>图背后的数是两种误差的差距：键里有自己，和没有自己。针是有自己时完美、没有自己时很差；河是两种情况都差。</p>""",
    ),
    formula=(
        "(<i>y</i><sub>i</sub> − <i>f</i>(<i>x</i><sub>i</sub>))²",
        "⟷",
        "(<i>y</i><sub>i</sub> − <i>f</i><sub>−i</sub>(<i>x</i><sub>i</sub>))²",
    ),
    code="""from regard import NadarayaWatsonRegressor

model = NadarayaWatsonRegressor(bandwidth=2.0).fit(x_train[:, None], y_train)
print(model.diagnose())
model.diagnose().verdict""",
    tell=tell,
)
