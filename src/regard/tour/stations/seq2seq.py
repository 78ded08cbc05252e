"""Sequence to sequence: a decoder that learns to read dates, and where it looks while it writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from regard.data.text import Text
from regard.plot import AlignmentDisplay, style
from regard.plot.display import plain
from regard.tour.station import Drawing, Station, Told, Visit, needs_torch

if TYPE_CHECKING:
    from regard.data import Pairs
    from regard.seq2seq.translator import Translation, Translator

# Dates to draw; the last one in Chinese figures, the one before it in English ones.
EXAMPLES = ("May 3rd, 2021", "mardi 24 août 1999", "3. Mai 2021", "21 de junio de 2048", "二〇二一年十一月二十三日")
DASH, END = "-", "<eos>"


@needs_torch
def tell(visit: Visit) -> Told:
    from regard.seq2seq import date_model

    translator = date_model.learn_dates(visit.seed).translator
    held_out = date_model.date_pairs(visit.seed)[2]
    said = translator.translate(held_out.source)
    right = np.mean([one.text == true for one, true in zip(said, held_out.target, strict=True)])
    origin, digits, dashes = _looks(translator, held_out)
    drawn = translator.translate([*EXAMPLES[:3], EXAMPLES[4 if visit.lettering == "zh" else 3]])
    exact, looked, narrow, wide = f"{100 * right:.1f}", f"{100 * origin:.0f}", f"{digits:.1f}", f"{dashes:.1f}"
    return Told(
        (Drawing("seq2seq", _alignments(visit, drawn), _CAPTION, wide=True),),
        f"{exact}%",
        Text(
            f"Of {len(held_out):,} dates that it has never seen, it writes {exact}% without a mistake. For {looked}% "
            f"of the digits it looks most at the very character that the digit comes from, though nobody ever told it "
            f"where to look. A digit looks at {narrow} characters, a dash, which comes from nowhere, at {wide} (the "
            "exponential of the mean entropy).",
            f"{len(held_out):,} 个没见过的日期里，它写对了 {exact}%。{looked}% 的数字，它看得最多的正是这个数字的来处，"
            f"尽管从来没有人告诉它该看哪里。一个数字平均看 {narrow} 个字符，没有来处的横线看 {wide} 个"
            "（平均熵的指数）。",
        ),
    )


def _looks(translator: Translator, pairs: Pairs) -> tuple[float, float, float]:
    """How often a digit looks most at where it comes from, and how many characters a digit and a dash look at."""
    from regard.seq2seq import token_alignment
    from regard.seq2seq.alignment import entropy, links

    assert pairs.alignment is not None
    at_origin: list[bool] = []
    spread: dict[bool, list[float]] = {True: [], False: []}
    written = translator.align(pairs.source, pairs.target)
    for one, source, target, places in zip(written, pairs.source, pairs.target, pairs.alignment, strict=True):
        gold = token_alignment(translator.source, translator.target, source, target, places)
        at_origin += [place in true for place, true in zip(links(one.weights), gold, strict=False) if true]
        for token, nats in zip(one.tokens, entropy(one.weights), strict=True):
            if token != END:
                spread[token == DASH].append(float(nats))
    digits, dashes = (float(np.exp(np.mean(spread[dash]))) for dash in (False, True))
    return float(np.mean(at_origin)), digits, dashes


def _alignments(visit: Visit, translations: list[Translation]) -> Figure:
    figure = style.picture(10.4, 8.2)
    labels = {"source": visit.label("read", "读"), "target": visit.label("written", "写")}
    axes: Any = figure.subplots(2, 2)
    for ax, one in zip(axes.flat, translations, strict=True):
        display = AlignmentDisplay(one.weights, one.tokens, one.source_tokens, labels=labels).plot(ax, colorbar=False)
        ax.set_title(plain(f"→ {one.text}"))
    style.colorbar(display.image_, axes, visit.label("weight", "权重"), shrink=0.6)
    return figure


_CAPTION = Text(
    "Four dates of four forms. A row is a step: the character it writes, and how much it looks at every character of "
    "the date. Years are read digit by digit; both digits of a month look at its name; dashes and the end look "
    "anywhere, for nothing is to be read there.",
    "四个写法各异的日期。一行是一步：写出的字符，以及它看日期里每个字符有多少。年份一位一位地读；"
    "月份的两位数字都看月份的名字；横线和结尾随便看哪里，因为那里没有什么要读的。",
)

STATION = Station(
    name="seq2seq",
    title=Text("From dates to translation", "从日期到翻译"),
    question=Text(
        "Can a decoder find out by itself where to look?",
        "解码器能自己学会该看哪里吗？",
    ),
    story=Text(
        """<p>Here attention became famous. A network reads a sentence word by word, another one writes its translation,
        and for years all that passed between them was one vector, however long the sentence was. Then Bahdanau, Cho and
        Bengio let the writer look back: at every step its state is the <em>query</em>, the reader’s states are
        <em>keys</em> and <em>values</em>, and the weighted average, the <em>context</em>, helps to choose the next
        word. It is the same line as at the first stops, with a score that is learned.</p>
        <p>Our sentences are dates in five languages and twenty-six forms, and the translation is the date as ISO
        writes it. The model sees pairs of texts and nothing else. It is small: 64 numbers for a state, and about a
        minute of learning.</p>""",
        """<p>注意力就是在这里出名的。一个网络逐词读一句话，另一个网络写出译文；多年来，两者之间只传一个向量，
        不管句子多长。后来 Bahdanau、Cho 和 Bengio 让写的人回头看：每一步，它的状态是<em>查询</em>，
        读的人的各个状态是<em>键</em>和<em>值</em>，加权平均得到<em>上下文</em>，用来帮助选下一个词。
        这和最初几站是同一行公式，只是评分是学来的。</p>
        <p>我们的句子是日期，五种语言、二十六种写法；译文是 ISO 写法的日期。模型只见过成对的文本，别的什么也没有。
        它很小：一个状态只有 64 个数，学习大约一分钟。</p>""",
    ),
    formula=(
        "<i>c</i><sub>t</sub> = Σ<sub>s</sub> softmax<sub>s</sub>(score(<i>q</i><sub>t</sub>, <i>k</i><sub>s</sub>)) "
        "<i>v</i><sub>s</sub>",
        "<i>q</i><sub>t</sub> = <i>h</i><sub>t−1</sub>",
        "<i>h</i><sub>t</sub> = GRU([<i>y</i><sub>t−1</sub>, <i>c</i><sub>t</sub>], <i>h</i><sub>t−1</sub>)",
    ),
    code="""from regard.seq2seq.alignment import as_text
from regard.seq2seq.date_model import learn_dates

translator = learn_dates().translator  # about a minute
translation = translator.translate(["le 3 mai 2021"])[0]
print(as_text(translation))
translation.text""",
    tell=tell,
)
