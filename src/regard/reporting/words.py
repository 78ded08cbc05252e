"""The report's sentences, for readers who never heard of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.inference import Diagnosis
from regard.reporting.facts import Facts
from regard.text import Text

# Features with less than this share hardly matter.
HARDLY = 0.005

WORDS = {
    "title": Text("What was learned about {target}", "关于 {target} 学到了什么"),
    "kicker": Text("regard · report", "regard · 报告"),
    "good": Text("How good are the answers?", "答案有多准？"),
    "good_left_out": Text(
        "Every row was hidden once and answered by looking at all the others, so nobody could copy.",
        "每一行都被藏起来一次，只看其余各行来回答它，所以谁也抄不到答案。",
    ),
    "good_new": Text(
        "These rows were not used for learning: the model had not seen them.",
        "这些行没有参与学习，模型以前没见过它们。",
    ),
    "who": Text("who answers", "谁来回答"),
    "error": Text("typical error", "典型误差"),
    "loss": Text("log-loss (0 is perfect)", "对数损失（0 为完美）"),
    "r2": Text("explained (R²)", "解释比例（R²）"),
    "right": Text("right", "答对"),
    "model": Text("this model", "本模型"),
    "mean": Text("always the mean", "总是回答平均值"),
    "mean_class": Text("always the class frequencies", "总是回答各类频率"),
    "nearest": Text("the most similar row", "最相似的那一行"),
    "answers": Text(
        "On the dashed line an answer is exactly right. On the right: how far off the answers are.",
        "落在虚线上就是完全答对。右图：答案差了多少。",
    ),
    "answers_class": Text(
        "How much chance the model gave to the class that was right; the farther right, the better.",
        "模型给正确类别的概率；越靠右越好。",
    ),
    "looks": Text("What does it look at?", "它看重什么？"),
    "looks_lead": Text(
        "An answer is a weighted average of similar rows. These features decide what counts as similar:",
        "每个答案都是相似行的加权平均。哪些行算相似，由这些特征决定：",
    ),
    "feature": Text("feature", "特征"),
    "reach": Text("looks about this far", "大约看多远"),
    "share": Text("share", "份额"),
    "says": Text("in words", "用话来说"),
    "much": Text("decides most", "起决定作用"),
    "some": Text("counts", "有作用"),
    "none": Text("hardly counts", "几乎不起作用"),
    "still": Text("does not vary", "没有变化"),
    "map": Text("Where does it look?", "它看向哪里？"),
    "map_lead": Text(
        "One line per row, one column per training row; dark means much attention. A thin dark diagonal looks only at "
        "its nearest neighbours, a broad pale band averages over many.",
        "每一横行是一个被回答的行，每一列是一个训练行；颜色越深，注意力越多。又细又深的对角线只看最近的邻居，"
        "又宽又淡的带子则把许多行平均起来。",
    ),
    "verdict": Text("Is it looking too closely, or not closely enough?", "看得太近，还是太远？"),
    "foremost": Text("The rows looked at most", "最受关注的行"),
    "foremost_lead": Text(
        "If every training row were looked at alike, each would get {expected}. These get the most:",
        "如果每个训练行得到同样的注意力，各得 {expected}。得到最多的是这些：",
    ),
    "row": Text("row", "行号"),
    "attention": Text("attention", "注意力"),
    "data": Text("The data", "数据"),
    "least": Text("least", "最小"),
    "middle": Text("middle", "中位"),
    "most": Text("most", "最大"),
    "made": Text("How it was computed", "怎么算的"),
    "again": Text("The same in Python", "用 Python 再做一遍"),
    "letters": Text("", "本机没有找到中文字体，图中的文字用英文。"),
}
PICTURES = {
    "too thin": Text("Too thin, like a needle: it looks too closely.", "太细，像一根针：看得太近了。"),
    "too thick": Text("Too thick, like a river: it hardly looks at who is near.", "太粗，像一条河：几乎不分远近。"),
    "about right": Text("About right.", "正合适。"),
}


def lead(facts: Facts, target: str) -> Text:
    """What was done, in one sentence, and what it is worth, in another."""
    rows, features, best = len(facts.y), len(facts.names), facts.contestants[0]
    many = f"{features} feature" + "s" * (features != 1)
    if facts.classes:
        en = f"It puts {best.score:.0%} of the rows into the right one of {len(facts.classes)} classes."
        zh = f"在 {len(facts.classes)} 个类别中，{best.score:.0%} 的行被分对了。"
    else:
        mean = next(one.error for one in facts.contestants if one.name == "mean")
        en = f"Its answers are typically off by {number(best.error)}; the mean alone is off by {number(mean)}."
        zh = f"它的答案通常差 {number(best.error)}；总是回答平均值则差 {number(mean)}。"
    return Text(
        f"The model predicts {target} from {many} by looking at {rows:,} rows. {en}",
        f"模型根据 {features} 个特征、参照 {rows:,} 行数据来预测 {target}。{zh}",
    )


def judgement(found: Diagnosis) -> Text:
    """The diagnosis in two or three sentences."""
    seen, rows = number(found.neighbours), f"{found.rows:,.0f}"
    zh = PICTURES[found.verdict].zh + f"每一行大约看 {seen} 行（共 {rows} 行）。"
    if found.verdict == "about right":
        zh += "换一个带宽并不能预测得更好。" if not found.says_nothing else "没有哪个带宽比平均值更好。"
    else:
        times = max(found.factor, 1.0 / found.factor)
        told = "很多" if not np.isfinite(times) or times >= 100.0 else f" {times:.2g} 倍"
        zh += f"建议把带宽{'放宽' if found.factor < 1.0 else '收窄'}{told}，或者用留一法来学习它。"
    return Text(f"{PICTURES[found.verdict].en} {found.why} {found.advice}", zh)


def weight_in_words(share: float, varies: bool, largest: float) -> Text:
    """A feature's share as a word."""
    if not varies:
        return WORDS["still"]
    if share < HARDLY:
        return WORDS["none"]
    return WORDS["much"] if share == largest else WORDS["some"]


def cell(value: float, column: NDArray[Any]) -> str:
    """A number of a column, with the digits that tell its numbers apart."""
    span = float(np.ptp(column))
    if not 1e-6 < span < 1e9:
        return number(value)
    return f"{value:,.{int(np.clip(2 - np.floor(np.log10(span)), 0, 8))}f}"


def number(value: float) -> str:
    """Three digits, with commas where there are more before the point."""
    if not np.isfinite(value):
        return "∞" if value > 0 else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"
