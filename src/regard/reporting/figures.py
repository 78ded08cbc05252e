"""The report's figures."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from regard.plot import AttentionMapDisplay, FeatureRelevanceDisplay, RegressionCurveDisplay, style
from regard.plot.display import limits, plain
from regard.reporting.certainty import Certainty
from regard.reporting.report_facts import ReportFacts
from regard.reporting.report_sentences import SENTENCES

WIDTH_IN_INCHES = 10.4
MAX_POINTS = 3000
MAX_FEATURES = 15
MAX_INTERVALS = 90
# Groups of the calibration curve.
MAX_GROUPS = 10
MIN_ROWS_PER_GROUP = 8


def figures(facts: ReportFacts, certainty: Certainty, target: str, lang: str) -> dict[str, Figure]:
    """Figures by name; "relevance" if the model has relevant features, "sure" if it has intervals or sets."""
    words = {name: text.said(lang) for name, text in SENTENCES["figure"].items()}
    drawn = {"answers": _classes(facts, words) if facts.classes else _answers(facts, words)}
    if facts.relevance is not None and facts.relevance.any():
        drawn["relevance"] = _relevance(facts, words)
    drawn["attention"] = _attention(facts, words)
    if not certainty.missing:
        words["target"] = plain(target)
        draw = _calibration if facts.classes else _intervals if certainty.curve is None else _band
        drawn["sure"] = draw(facts, certainty, words)
    return drawn


def _answers(facts: ReportFacts, words: dict[str, str]) -> Figure:
    some = np.random.default_rng(2).permutation(len(facts.y))[:MAX_POINTS]
    actual, predicted = facts.y[some], facts.answer[some]
    figure = style.picture(WIDTH_IN_INCHES, 4.2)
    left, right = (style.dress(ax) for ax in figure.subplots(1, 2, width_ratios=(1.15, 1.0)))
    ends = [min(actual.min(), predicted.min()), max(actual.max(), predicted.max())]
    left.plot(ends, ends, color=style.INK, linewidth=1.2, linestyle="--")
    alpha = float(np.clip(200.0 / len(some), 0.12, 0.6))
    left.plot(predicted, actual, "o", color=style.BLUE, alpha=alpha, markersize=4.5, markeredgewidth=0.0)
    left.set(xlabel=words["predicted" if facts.left_out else "predicted_new"], ylabel=words["actual"])
    off = facts.y - facts.answer
    # A few large errors would squeeze all others into one bar.
    low, high = np.quantile(off, [0.005, 0.995])
    if low < high:
        right.hist(np.clip(off, low, high), bins=40, color=style.SKY, edgecolor=style.PAPER, linewidth=0.5)
    right.axvline(0.0, color=style.INK, linewidth=1.2, linestyle="--")
    right.set(xlabel=words["off"], ylabel=words["rows"])
    return figure


def _classes(facts: ReportFacts, words: dict[str, str]) -> Figure:
    figure = style.picture(WIDTH_IN_INCHES, 3.6)
    ax = style.dress(figure.subplots())
    chance = facts.answer[np.arange(len(facts.y)), facts.y]
    ax.hist(chance, bins=np.linspace(0.0, 1.0, 41).tolist(), color=style.SKY, edgecolor=style.PAPER, linewidth=0.5)
    ax.set(xlabel=words["chance"], ylabel=words["rows"], xlim=(0.0, 1.0))
    return figure


def _relevance(facts: ReportFacts, words: dict[str, str]) -> Figure:
    assert facts.relevance is not None
    labels = {name: words[name] for name in ("relevance", "smoothed_out", "constant", "others")}
    constant = ~facts.varies
    display = FeatureRelevanceDisplay(
        facts.relevance,
        facts.names,
        smoothed_out=(facts.relevance == 0.0) & ~constant,
        constant=constant,
        top=MAX_FEATURES,
        labels=labels,
    )
    return display.plot(
        style.picture(WIDTH_IN_INCHES, 1.1 + 0.34 * min(len(facts.names), MAX_FEATURES + 1)).subplots()
    ).figure_


def _attention(facts: ReportFacts, words: dict[str, str]) -> Figure:
    labels = {name: words[name] for name in ("query", "key", "input", "weight", "sorted", "max")}
    labels["input"] = plain(facts.feature)
    display = AttentionMapDisplay(
        facts.attention, query=facts.X[facts.mapped, facts.along], key=facts.key, labels=labels
    )
    # A few rows that attend only to themselves would leave all others pale.
    top = float(np.quantile(display.cells, 0.998)) or float(display.cells.max())
    return display.plot(style.picture(WIDTH_IN_INCHES, 4.8).subplots(), norm=Normalize(0.0, top)).figure_


def _intervals(facts: ReportFacts, certainty: Certainty, words: dict[str, str]) -> Figure:
    """Evenly spaced rows from the lowest prediction to the highest."""
    order = np.argsort(certainty.centre, kind="stable")
    order = order[np.unique(np.linspace(0, len(order) - 1, MAX_INTERVALS).astype(int))]
    actual, place = facts.y[certainty.rows[order]], np.arange(len(order))
    low, high = certainty.centre[order] - certainty.size[order], certainty.centre[order] + certainty.size[order]
    inside = certainty.inside[order]
    figure = style.picture(WIDTH_IN_INCHES, 4.4)
    ax = style.dress(figure.subplots())
    wide = float(np.clip(360.0 / len(order), 3.0, 14.0))
    ax.vlines(place, low, high, color=style.SKY, alpha=0.45, linewidth=wide, label=words["interval"])
    ax.plot(place, certainty.centre[order], color=style.INK, linewidth=1.2, label=words["predicted_new"])
    for which, mark, colour, name in ((inside, "o", style.BLUE, "inside"), (~inside, "D", style.VERMILION, "outside")):
        ax.plot(place[which], actual[which], mark, color=colour, markersize=4.5, markeredgewidth=0.0, label=words[name])
    ax.set(xlabel=words["by_answer"], ylabel=words["target"], xticks=[], ylim=limits(low, high, actual))
    ax.set_xlim(-1.0, len(order))
    style.legend(ax)
    return figure


def _band(facts: ReportFacts, certainty: Certainty, words: dict[str, str]) -> Figure:
    """The curve of the only feature, with its band."""
    assert certainty.curve is not None
    x, predicted, half = certainty.curve
    some = np.random.default_rng(2).permutation(len(facts.y))[:MAX_POINTS]
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
    return display.plot(style.picture(WIDTH_IN_INCHES, 4.4).subplots()).figure_


def _calibration(facts: ReportFacts, certainty: Certainty, words: dict[str, str]) -> Figure:  # noqa: ARG001
    """Calibration curve: accuracy of groups of rows with similar probability of their most likely class."""
    order = np.argsort(certainty.centre, kind="stable")
    groups = np.array_split(order, int(np.clip(len(order) // MIN_ROWS_PER_GROUP, 1, MAX_GROUPS)))
    stated = [float(certainty.centre[group].mean()) for group in groups]
    right = [float(certainty.right[group].mean()) for group in groups]
    figure = style.picture(WIDTH_IN_INCHES, 4.4)
    ax = style.dress(figure.subplots())
    least = min(0.5, *stated)
    ax.plot([least, 1.0], [least, 1.0], color=style.INK, linewidth=1.2, linestyle="--", label=words["as_said"])
    ax.plot(stated, right, "o-", color=style.BLUE, linewidth=1.8, markersize=8)
    ax.set(
        xlabel=words["likeliest"],
        ylabel=words["right"],
        xlim=(least - 0.02, 1.02),
        ylim=(min(least, *right) - 0.04, 1.04),
    )
    style.legend(ax, loc="lower right")
    return figure
