"""The report's sentences, for readers who never heard of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.text import Text
from regard.model.diagnosis import Diagnosis
from regard.reporting.facts import Facts

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
    "gaps": Text(
        "{count} rows have empty cells. They were compared by the columns they have, and are not counted here.",
        "有 {count} 行含空单元格：比较时只用它们有的列，这里的数字不计这些行。",
    ),
    "sure": Text("How sure is it?", "它有多大把握？"),
    "by_others": Text("each answered by the others", "各由其余行回答"),
    "not_seen": Text("which the model had not seen", "模型没见过"),
    "sure_inside": Text(
        "Every answer comes with an interval that should hold the truth in nine of ten cases. Of these rows, {how}, "
        "{inside} lie inside theirs. Half of the answers are good to ± {half} or better.",
        "每个答案都带一个区间，十次中应有九次包含真实值。这些行{how}，{inside} 落在自己的区间内；"
        "一半答案的区间不宽于 ± {half}。",
    ),
    "sure_picture": Text(
        "Rows from the lowest prediction to the highest, each with its interval. One dot in ten or so may lie outside.",
        "各行按预测值从低到高排列，每行带自己的区间；大约十个点里有一个在区间外。",
    ),
    "sure_curve": Text(
        "The predictions with their intervals. One dot in ten or so may lie outside.",
        "预测曲线和它的区间；大约十个点里有一个在区间外。",
    ),
    "promise": Text(
        "Conformal intervals: as wide as left-out errors nearby, times one number that puts nine of ten training rows "
        "inside; new rows should do as well if they come from where these came from, though with a learned bandwidth "
        "that is no theorem, and far from all data nobody can promise it.",
        "共形区间：宽度取自附近留一误差的大小，再乘一个数，使十分之九的训练行落在区间内；新数据若与这些行同源，应当差不多，"
        "但带宽是学来的，这不是定理；远离所有数据处，谁也不能保证。",
    ),
    "sure_alone": Text(
        "The model has one training row, and errors are measured on rows left out: there is nothing to tell yet.",
        "模型只有一个训练行，而误差要靠留出的行来量：还没有什么可说。",
    ),
    "sure_few": Text(
        "Too few rows: an interval that should hold nine of ten new rows takes at least nine training rows.",
        "行数太少：要让区间包含十分之九的新数据，至少需要九个训练行。",
    ),
    "sure_large": Text(
        "With so many training rows this takes long; a report made after model.predict_interval was used has it here.",
        "训练行太多，量起来很久；先用一次 model.predict_interval，再做报告，这里就会有。",
    ),
    "looked_at": Text(
        "({looked} of the {there} rows were looked at here.)", "（这里看了 {there} 行中的 {looked} 行。）"
    ),
    "learned_from": Text(
        "(The spread was measured on {rows} of the training rows.)", "（误差的大小是在 {rows} 个训练行上量的。）"
    ),
    "third": Text("answers", "答案"),
    "rows": Text("rows", "行数"),
    "inside": Text("inside", "在区间内"),
    "half": Text("half of them within", "一半不宽于"),
    "surest": Text("the third it is surest of", "最有把握的三分之一"),
    "between": Text("the third between", "中间的三分之一"),
    "unsurest": Text("the third it is least sure of", "最没把握的三分之一"),
    "sets_inside": Text(
        "Every answer comes with the classes that it may be, so that nine of ten times the right one is among them. Of "
        "these rows, {how}, {inside} have the right class in their set, which holds {size} classes on average.",
        "每个答案都给出可能的类别，十次中应有九次包含正确的一个。这些行{how}，{inside} 的集合包含正确类别，"
        "集合平均有 {size} 个类别。",
    ),
    "set_size": Text("classes in the set", "集合中的类别数"),
    "calibration": Text(
        "Rows with about the same chance of their likeliest class together. On the dashed line it is right as often as "
        "it says; below, it is too sure of itself.",
        "把最可能类别概率相近的行放在一起。落在虚线上，说多少就对多少；在虚线下，则过于自信。",
    ),
    "promise_sets": Text(
        "Conformal sets: a class is in the set if its chance is at least what nine of ten left-out rows gave to their "
        "own; new rows should do as well if they come from where these came from, though with a learned bandwidth that "
        "is no theorem.",
        "共形集合：某类别的概率不低于十分之九的留出行给自己类别的概率，就进入集合；新数据若与这些行同源，应当差不多，但带宽是学来的，这不是定理。",
    ),
    "why": Text("Why this answer?", "为什么是这个答案？"),
    "why_left_out": Text(
        "Three rows, each hidden and answered by the others. Rows are counted from 0; the last line says how much each "
        "column had to do with who was near.",
        "举三行为例，每行都被藏起来，由其余行回答。行号从 0 数起；最后一行说明各列对“远近”起了多少作用。",
    ),
    "why_new": Text(
        "Three of the rows. Rows are counted from 0; the last line says how much each column had to do with who was "
        "near.",
        "举三行为例。行号从 0 数起；最后一行说明各列对“远近”起了多少作用。",
    ),
    "leaning": Text(
        "A row counts in the answer as its column “counts” says: a line through the rows near by leans on some and "
        "against others.",
        "各行在答案里占多少，看“分量”一列：答案是附近各行的一条直线，会倚重一些行、抵消另一些行。",
    ),
    "ordinary": Text("An ordinary one: row {row}", "普通的一行：第 {row} 行"),
    "unsure": Text("The one it is least sure of: row {row}", "最没把握的一行：第 {row} 行"),
    "farthest": Text("The one farthest from the others: row {row}", "离其他行最远的一行：第 {row} 行"),
    "answered": Text("Predicted {answer}{half}; it is {actual}.", "预测 {answer}{half}；实际是 {actual}。"),
    "give_or_take": Text(", give or take {half}", "，上下 {half}"),
    "looked": Text(
        "It looks at {neighbours} of {rows} training rows; those below hold {mass} of its attention.",
        "它看 {rows} 个训练行中的 {neighbours} 行；下面这些占注意力的 {mass}。",
    ),
    "bandwidths": Text("The nearest is {distance} bandwidths away.", "最近的一行在 {distance} 个带宽之外。"),
    "units of X": Text("The nearest is {distance} away.", "最近的一行相距 {distance}。"),
    "far": Text(
        "Far from everything the model has seen: the answer is little more than that of the nearest rows. Do not trust "
        "it.",
        "远离模型见过的一切：这个答案不过是最近几行的值，不要轻信。",
    ),
    "nobody": Text(
        "It is {actual}. No training row is in reach, and there is no answer.",
        "实际是 {actual}。没有训练行够得着，没有答案。",
    ),
    "this": Text("this row", "这一行"),
    "counts": Text("counts", "分量"),
    "shares": Text("share in the distance", "在距离中的份额"),
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
    """A number of a column, with the digits that tell its numbers apart; of whole numbers, a whole one as it is."""
    span = float(np.ptp(column))
    if not 1e-6 < span < 1e9:
        return number(value)
    if value.is_integer() and bool((column == np.rint(column)).all()):
        return f"{value:,.0f}"
    return f"{value:,.{int(np.clip(2 - np.floor(np.log10(span)), 0, 8))}f}"


def number(value: float) -> str:
    """Three digits, with commas where there are more before the point, and a power of ten from 1e9 on."""
    if not np.isfinite(value):
        return "∞" if value > 0 else str(value)
    return f"{value:,.0f}" if 1000.0 <= abs(value) < 1e9 else f"{value:.3g}"
