"""The report's figures, from its facts."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from regard.plot import style
from regard.reporting.facts import Facts
from regard.text import Text

# Points drawn at most; more would only make ink.
POINTS = 3000
# Keys drawn side by side at most; beyond, neighbours are averaged.
CELLS = 600
WORDS = {
    "predicted": Text("predicted, without having seen the row", "预测值（预测时没看过这一行）"),
    "predicted_new": Text("predicted", "预测值"),
    "actual": Text("actual", "真实值"),
    "off": Text("actual less predicted", "真实值减预测值"),
    "rows": Text("rows", "行数"),
    "share": Text("share in deciding what is near", "决定“远近”的份额"),
    "key": Text("training rows, by {}", "训练行，按 {} 排序"),
    "query": Text("rows, by {}", "各行，按 {} 排序"),
    "weight": Text("attention", "注意力"),
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
    figure = style.picture(10.4, 4.2)
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
    figure = style.picture(10.4, 3.6)
    ax = style.dress(figure.subplots())
    chance = facts.answer[np.arange(len(facts.y)), facts.y]
    ax.hist(chance, bins=np.linspace(0.0, 1.0, 41).tolist(), color=style.SKY, edgecolor=style.PAPER, linewidth=0.5)
    ax.set(xlabel=words["chance"], ylabel=words["rows"], xlim=(0.0, 1.0))
    return figure


def _relevance(facts: Facts, words: dict[str, str]) -> Figure:
    assert facts.relevance is not None
    order = np.argsort(facts.relevance, kind="stable")[-15:]
    figure = style.picture(10.4, 0.9 + 0.36 * len(order))
    ax = style.dress(figure.subplots())
    bars = ax.barh([_short(facts.names[i]) for i in order], facts.relevance[order], color=style.BLUE, height=0.62)
    ax.bar_label(bars, [f"{facts.relevance[i]:.0%}" for i in order], padding=4, color=style.INK, fontsize=10)
    ax.set_xlim(0.0, 1.12 * float(facts.relevance.max()))
    ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_xlabel(words["share"])
    ax.grid(False, axis="y")
    return figure


def _attention(facts: Facts, words: dict[str, str]) -> Figure:
    weights = facts.attention[:, facts.order]
    keys = weights.shape[1]
    if keys > CELLS:
        edges = np.linspace(0, keys, CELLS + 1).astype(int)
        weights = np.add.reduceat(weights, edges[:-1], axis=1) / np.diff(edges)
    figure = style.picture(10.4, 4.6)
    ax = style.dress(figure.subplots(), grid=False)
    top = float(np.quantile(weights, 0.999)) or float(weights.max()) or 1.0
    image = ax.imshow(weights, cmap=style.WEIGHTS, vmin=0.0, vmax=top, aspect="auto", interpolation="none")
    name = _short(facts.names[facts.along])
    ax.set(xlabel=words["key"].format(name), ylabel=words["query"].format(name), xticks=[], yticks=[])
    bar: Any = figure.colorbar(image, ax=ax, pad=0.015, label=words["weight"], extend="max")
    bar.outline.set_edgecolor(style.HAIRLINE)
    bar.ax.tick_params(colors=style.MUTED, labelcolor=style.INK, labelsize=9)
    return figure


def _short(name: str) -> str:
    return name if len(name) <= 28 else name[:27] + "…"
