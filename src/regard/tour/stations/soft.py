"""Nonparametric attention pooling: Nadaraya and Watson's weighted average at the notes' h = 1."""

from __future__ import annotations

from regard import pool
from regard.core.scores import Gaussian, Nearest
from regard.data.text import Text
from regard.model.baselines import root_mean_square
from regard.plot import plot_kernel_reg
from regard.tour.station import Drawing, Station, Told, Visit


def tell(visit: Visit) -> Told:
    x_train, y_train, x_test, y_truth = visit.data
    predicted = pool(x_test, x_train, y_train, Gaussian(w=1.0)).output
    error = root_mean_square(predicted - y_truth)
    mean = root_mean_square(pool(x_test, x_train, y_train, Gaussian(w=0.0)).output - y_truth)
    hard = root_mean_square(pool(x_test, x_train, y_train, Nearest()).output - y_truth)
    figure = plot_kernel_reg(x_test, y_truth, predicted, x_train, y_train, labels=visit.lines)
    caption = Text(
        "Attention pooling at h = 1: smooth, closer to the truth than the mean, and flatter than the truth at "
        "its hill and its edges.",
        "h = 1 的注意力汇聚：光滑，比平均值更接近真实函数，但在山峰和两端比真实函数平。",
    )
    return Told(
        (Drawing("soft", figure, caption),),
        f"{error:.3f}",
        Text(*_answer(error, mean, hard)),
    )


def _answer(error: float, mean: float, hard: float) -> tuple[str, str]:
    """What the numbers say, in both languages; which of two is larger depends on the seed."""
    share = 100 * (1 - error / mean)
    if error < hard:
        en = f"It also beats hard attention ({hard:.3f}), and it is smooth."
        zh = f"它也胜过硬注意力（{hard:.3f}），而且光滑。"
    else:
        en = (
            f"Hard attention is nearer still ({hard:.3f}): at h = 1 each key speaks too far, and the hill is flattened."
        )
        zh = f"硬注意力还要更近一些（{hard:.3f}）：h = 1 时每个键的影响太远，把山峰压平了。"
    return (
        f"The RMSE is {error:.3f}, {share:.0f}% less than the mean’s {mean:.3f}. {en}",
        f"RMSE 是 {error:.3f}，比平均值的 {mean:.3f} 小 {share:.0f}%。{zh}",
    )


STATION = Station(
    name="soft",
    title=Text("Nonparametric attention pooling", "非参数注意力汇聚"),
    question=Text("What if every key speaks, the nearer the louder?", "如果每个键都说话，越近的声音越大呢？"),
    story=Text(
        """<p>Nadaraya and Watson, in 1964, kept all the values but weighted them by place: the closer a key is to the
        query, the more attention its value gets. The weights of one query are not negative and sum to one, so the
        prediction never leaves the range of the values.</p>
        <p>The notes use the Gaussian kernel as it stands, so the bandwidth is <i>h</i> = 1, in the units of
        <i>x</i>. Nothing is learned.</p>""",
        """<p>1964 年，Nadaraya 和 Watson 保留了所有的值，但按位置加权：键离查询越近，它的值得到的注意力就越多。
        同一个查询的权重非负且和为一，所以预测永远不会超出值的范围。</p>
        <p>笔记直接使用高斯核，带宽就是 <i>h</i> = 1（与 <i>x</i> 同单位）。这里没有任何需要学习的东西。</p>""",
    ),
    formula=(
        "<i>f</i>(<i>x</i>) = Σ<sub>i</sub> <i>K</i>(<i>x</i> − <i>x</i><sub>i</sub>) <i>y</i><sub>i</sub> / "
        "Σ<sub>j</sub> <i>K</i>(<i>x</i> − <i>x</i><sub>j</sub>)",
        "<i>K</i>(<i>u</i>) = exp(−<i>u</i>²/2) / √(2π)",
    ),
    code="""from regard import NadarayaWatsonRegressor

model = NadarayaWatsonRegressor(bandwidth=1.0).fit(x_train[:, None], y_train)
model.predict(x_test[:, None])""",
    tell=tell,
)
