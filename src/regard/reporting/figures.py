"""The report's figures, from its facts."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from regard.data.text import Text
from regard.plot import AttentionMapDisplay, FeatureRelevanceDisplay, RegressionCurveDisplay, style
from regard.plot.display import limits, plain
from regard.reporting.facts import Facts
from regard.reporting.sure import Sure

# Points drawn at most; more would only make ink.
POINTS = 3000
# Inches across, and features and intervals drawn at most.
WIDTH, TOP, INTERVALS = 10.4, 15, 90
# Groups of rows alike in the chance of their likeliest class; fewer where they would hold fewer rows than.
GROUPS, GROUP = 10, 8
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
    "inside": Text("actual, inside the interval", "真实值，在区间内"),
    "outside": Text("actual, outside", "真实值，在区间外"),
    "interval": Text("90 % interval", "90% 区间"),
    "by_answer": Text("rows, from the lowest prediction to the highest", "各行，按预测值从低到高"),
    "likeliest": Text("chance given to the likeliest class", "给最可能类别的概率"),
    "right": Text("share of rows where it is right", "其中答对的比例"),
    "as_said": Text("as often right as it says", "说多少就对多少"),
}


def figures(facts: Facts, sure: Sure, target: str, lang: str) -> dict[str, Figure]:
    """Figures by name; "relevance" only where the model has features to weigh, "sure" only where it tells how sure."""
    words = {name: text.said(lang) for name, text in WORDS.items()}
    drawn = {"answers": _classes(facts, words) if facts.classes else _answers(facts, words)}
    if facts.relevance is not None and facts.relevance.any():
        drawn["relevance"] = _relevance(facts, words)
    drawn["attention"] = _attention(facts, words)
    if not sure.why_not:
        words["target"] = plain(target)
        draw = _calibration if facts.classes else _intervals if sure.curve is None else _band
        drawn["sure"] = draw(facts, sure, words)
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
    labels["input"] = plain(facts.names[facts.along])
    display = AttentionMapDisplay(
        facts.attention, query=facts.X[facts.shown, facts.along], key=facts.key, labels=labels
    )
    # A few rows that look only at themselves would leave all others pale.
    top = float(np.quantile(display.cells, 0.998)) or float(display.cells.max())
    return display.plot(style.picture(WIDTH, 4.8).subplots(), norm=Normalize(0.0, top)).figure_


def _intervals(facts: Facts, sure: Sure, words: dict[str, str]) -> Figure:
    """Some rows from the lowest prediction to the highest, evenly spread over all."""
    order = np.argsort(sure.centre, kind="stable")
    order = order[np.unique(np.linspace(0, len(order) - 1, INTERVALS).astype(int))]
    actual, place = facts.y[sure.rows[order]], np.arange(len(order))
    low, high = sure.centre[order] - sure.size[order], sure.centre[order] + sure.size[order]
    inside = sure.inside[order]
    figure = style.picture(WIDTH, 4.4)
    ax = style.dress(figure.subplots())
    wide = float(np.clip(360.0 / len(order), 3.0, 14.0))
    ax.vlines(place, low, high, color=style.SKY, alpha=0.45, linewidth=wide, label=words["interval"])
    ax.plot(place, sure.centre[order], color=style.INK, linewidth=1.2, label=words["predicted_new"])
    for which, mark, colour, name in ((inside, "o", style.BLUE, "inside"), (~inside, "D", style.VERMILION, "outside")):
        ax.plot(place[which], actual[which], mark, color=colour, markersize=4.5, markeredgewidth=0.0, label=words[name])
    ax.set(xlabel=words["by_answer"], ylabel=words["target"], xticks=[], ylim=limits(low, high, actual))
    ax.set_xlim(-1.0, len(order))
    style.legend(ax)
    return figure


def _band(facts: Facts, sure: Sure, words: dict[str, str]) -> Figure:
    """The curve of the only feature, with its band."""
    assert sure.curve is not None
    x, predicted, half = sure.curve
    some = np.random.default_rng(2).permutation(len(facts.y))[:POINTS]
    labels = {
        "predicted": words["predicted_new"],
        "training": words["actual"],
        "interval": words["interval"],
        "x": plain(facts.names[0]),
        "y": words["target"],
    }
    display = RegressionCurveDisplay(
        x,
        predicted,
        x_train=facts.X[some, 0],
        y_train=facts.y[some],
        lower=predicted - half,
        upper=predicted + half,
        labels=labels,
    )
    return display.plot(style.picture(WIDTH, 4.4).subplots()).figure_


def _calibration(facts: Facts, sure: Sure, words: dict[str, str]) -> Figure:  # noqa: ARG001
    """Rows with about the same chance of their likeliest class together: how often was it right?"""
    order = np.argsort(sure.centre, kind="stable")
    groups = np.array_split(order, int(np.clip(len(order) // GROUP, 1, GROUPS)))
    said = [float(sure.centre[group].mean()) for group in groups]
    right = [float(sure.right[group].mean()) for group in groups]
    figure = style.picture(WIDTH, 4.4)
    ax = style.dress(figure.subplots())
    least = min(0.5, *said)
    ax.plot([least, 1.0], [least, 1.0], color=style.INK, linewidth=1.2, linestyle="--", label=words["as_said"])
    ax.plot(said, right, "o-", color=style.BLUE, linewidth=1.8, markersize=8)
    ax.set(
        xlabel=words["likeliest"],
        ylabel=words["right"],
        xlim=(least - 0.02, 1.02),
        ylim=(min(least, *right) - 0.04, 1.04),
    )
    style.legend(ax, loc="lower right")
    return figure
