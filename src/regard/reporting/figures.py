"""The report's figures, from its facts."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from regard.plot import AttentionMapDisplay, FeatureRelevanceDisplay, style
from regard.reporting.facts import Facts
from regard.text import Text

# Points drawn at most; more would only make ink.
POINTS = 3000
# Inches across, and features drawn at most.
WIDTH, TOP = 10.4, 15
WORDS = {
    "predicted": Text("predicted, without having seen the row", "预测值（预测时没看过这一行）"),
    "predicted_new": Text("predicted", "预测值"),
    "actual": Text("actual", "真实值"),
    "off": Text("actual less predicted", "真实值减预测值"),
    "rows": Text("rows", "行数"),
    "relevance": Text("share in deciding what is near", "决定“远近”的份额"),
    "smoothed_out": Text("smoothed out", "被平滑掉"),
    "constant": Text("does not vary", "没有变化"),
    "others": Text("{count} others", "其余 {count} 个"),
    "key": Text("training rows", "训练行"),
    "query": Text("rows", "各行"),
    "input": Text("input", "输入"),
    "sorted": Text("{side}, sorted by {name}", "{side}，按 {name} 排序"),
    "weight": Text("attention", "注意力"),
    "max": Text("attention (largest of {queries} × {keys} in a cell)", "注意力（每格取 {queries} × {keys} 中最大的）"),
    "chance": Text("chance given to the right class", "给正确类别的概率"),
}


def figures(facts: Facts, lang: str) -> dict[str, Figure]:
    """Figures by name; "relevance" only where the model has features to weigh."""
    words = {name: text.said(lang) for name, text in WORDS.items()}
    drawn = {"answers": _classes(facts, words) if facts.classes else _answers(facts, words)}
    if facts.relevance is not None and facts.relevance.any():
        drawn["relevance"] = _relevance(facts, words)
    drawn["attention"] = _attention(facts, words)
    return drawn


def _answers(facts: Facts, words: dict[str, str]) -> Figure:
    some = np.random.default_rng(2).permutation(len(facts.y))[:POINTS]
    actual, predicted = facts.y[some], facts.answer[some]
    figure = style.picture(WIDTH, 4.2)
    left, right = (style.dress(ax) for ax in figure.subplots(1, 2, width_ratios=(1.15, 1.0)))
    ends = [min(actual.min(), predicted.min()), max(actual.max(), predicted.max())]
    left.plot(ends, ends, color=style.INK, linewidth=1.2, linestyle="--")
    alpha = float(np.clip(200.0 / len(some), 0.12, 0.6))
    left.plot(predicted, actual, "o", color=style.BLUE, alpha=alpha, markersize=4.5, markeredgewidth=0.0)
    left.set(xlabel=words["predicted" if facts.left_out else "predicted_new"], ylabel=words["actual"])
    off = facts.y - facts.answer
    # A few far ones would squeeze all others into one bar.
    low, high = np.quantile(off, [0.005, 0.995])
    if low < high:
        right.hist(np.clip(off, low, high), bins=40, color=style.SKY, edgecolor=style.PAPER, linewidth=0.5)
    right.axvline(0.0, color=style.INK, linewidth=1.2, linestyle="--")
    right.set(xlabel=words["off"], ylabel=words["rows"])
    return figure


def _classes(facts: Facts, words: dict[str, str]) -> Figure:
    figure = style.picture(WIDTH, 3.6)
    ax = style.dress(figure.subplots())
    chance = facts.answer[np.arange(len(facts.y)), facts.y]
    ax.hist(chance, bins=np.linspace(0.0, 1.0, 41).tolist(), color=style.SKY, edgecolor=style.PAPER, linewidth=0.5)
    ax.set(xlabel=words["chance"], ylabel=words["rows"], xlim=(0.0, 1.0))
    return figure


def _relevance(facts: Facts, words: dict[str, str]) -> Figure:
    assert facts.relevance is not None
    labels = {name: words[name] for name in ("relevance", "smoothed_out", "constant", "others")}
    constant = np.ptp(facts.X, axis=0) == 0.0
    display = FeatureRelevanceDisplay(
        facts.relevance,
        facts.names,
        smoothed_out=(facts.relevance == 0.0) & ~constant,
        constant=constant,
        top=TOP,
        labels=labels,
    )
    return display.plot(style.picture(WIDTH, 1.1 + 0.34 * min(len(facts.names), TOP + 1)).subplots()).figure_


def _attention(facts: Facts, words: dict[str, str]) -> Figure:
    labels = {name: words[name] for name in ("query", "key", "input", "weight", "sorted", "max")}
    labels["input"] = facts.names[facts.along].replace("$", r"\$")
    display = AttentionMapDisplay(
        facts.attention, query=facts.X[facts.shown, facts.along], key=facts.key, labels=labels
    )
    # A few rows that look only at themselves would leave all others pale.
    top = float(np.quantile(display.cells, 0.998)) or float(display.cells.max())
    return display.plot(style.picture(WIDTH, 4.8).subplots(), norm=Normalize(0.0, top)).figure_
