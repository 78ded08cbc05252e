"""The heatmap of attention weights, sorted and unsorted."""

from __future__ import annotations

import numpy as np

from regard import attention_weights
from regard.core.scores import Gaussian
from regard.data.text import Text
from regard.plot import show_heatmaps
from regard.tour.numbers import signed
from regard.tour.station import Drawing, Station, Told, Visit


def tell(visit: Visit) -> Told:
    from scipy.stats import spearmanr

    x_train, x_test = visit.data.x_train, visit.data.x_test
    rng = np.random.default_rng(visit.seed)
    keys, queries = rng.permutation(x_train), rng.permutation(x_test)
    tidy = attention_weights(x_test, x_train, Gaussian(w=1.0))
    mixed = attention_weights(queries, keys, Gaussian(w=1.0))
    figure = show_heatmaps(
        [[tidy, mixed]],
        xlabel=visit.label("training inputs (keys)", "训练输入（键）"),
        ylabel=visit.label("testing inputs (queries)", "测试输入（查询）"),
        titles=[visit.label("both sorted", "都已排序"), visit.label("both shuffled", "都已打乱")],
        figsize=(8.2, 4.0),
    )
    # Rank correlations of a query's row, or of the query, with the column, or the key, that it attends to most.
    rows = np.arange(len(queries))
    seats = [float(spearmanr(rows, weights.argmax(axis=1)).statistic) for weights in (tidy, mixed)]
    tidily, mixedly = (signed(seat, 3) for seat in seats)
    anyway = signed(float(spearmanr(queries, keys[mixed.argmax(axis=1)]).statistic), 3)
    caption = Text(
        "The same 2,500 weights twice, on one colour scale. Sorted inputs line up on the diagonal; "
        "shuffled ones scatter like stars.",
        "同样的 2500 个权重画了两次，共用一个色标。排好序的输入连成对角线，打乱后像满天星。",
    )
    return Told(
        (Drawing("heatmap", figure, caption, wide=True),),
        f"{signed(seats[0], 2)} / {signed(seats[1], 2)}",
        Text(
            "Near pairs attend to each other, and sorting only seats them side by side. The rank correlation of a "
            f"query’s row with the column it attends to most is {tidily} sorted and {mixedly} shuffled; of the numbers "
            f"themselves it is {anyway}, shuffled or not.",
            "相近的查询和键互相关注，排序只是让它们坐到了一起。查询所在的行与它最关注的列之间的秩相关，"
            f"排序后是 {tidily}，打乱后是 {mixedly}；数值之间的秩相关，打不打乱都是 {anyway}。",
        ),
    )


STATION = Station(
    name="heatmap",
    title=Text("The heatmap and its diagonal", "热图与对角线"),
    question=Text("Why is there a diagonal, and what does sorting change?", "为什么会有对角线？排序改变了什么？"),
    story=Text(
        """<p>Each row is a query, each column a key, and the colour is the weight α(<i>x</i>, <i>x</i><sub>i</sub>).
        When both sides are sorted, a small number sits at a small index and a large one at a large index, so near in
        value becomes near on paper: a diagonal. The width of the band is the bandwidth.</p>
        <p>Shuffle both sides and the diagonal is gone, though no weight has changed.</p>""",
        """<p>每一行是一个查询，每一列是一个键，颜色是权重 α(<i>x</i>, <i>x</i><sub>i</sub>)。两边都排序以后，
        小的数坐在小的座位号上，大的数坐在大的座位号上，数值相近就变成了纸面上相近：一条对角线。带子的胖瘦就是带宽。</p>
        <p>把两边打乱，对角线就不见了，可是没有一个权重改变。</p>""",
    ),
    formula=("α(<i>x</i>, <i>x</i><sub>i</sub>) = softmax<sub>i</sub>(−½ (<i>x</i> − <i>x</i><sub>i</sub>)²)",),
    code="""from regard import attention_weights
from regard.plot import show_heatmaps
from regard.core.scores import Gaussian

weights = attention_weights(x_test, x_train, Gaussian(w=1.0))
show_heatmaps(weights[None, None], xlabel="Sorted training inputs", ylabel="Sorted testing inputs")""",
    tell=tell,
)
