"""House prices: one learned w per feature shows which features matter for the distance."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from regard import NadarayaWatsonRegressor
from regard.bandwidth import loo_objective
from regard.core.scores import Gaussian
from regard.data import houses
from regard.data.text import Text
from regard.plot import style
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/homes")


def compute(visit: Visit) -> Findings:
    X, y, names, _ = houses(seed=visit.seed)
    vector = NadarayaWatsonRegressor().fit(X, y)
    scalar = NadarayaWatsonRegressor(metric="scalar").fit(X, y)
    rule = NadarayaWatsonRegressor(bandwidth="scott").fit(X, y)
    vector_error, scalar_error = (float(np.sqrt(model.search_.value)) for model in (vector, scalar))
    rule_error = float(np.sqrt(loo_objective(X, y, Gaussian(w=rule.w_))))
    relevance, smoothed_out = vector.feature_relevance_, vector.search_.smoothed_out
    words = [TEXTS[name] for name in names]
    figure = style.picture(6.4, 3.6)
    _draw(figure.subplots(), visit, words, relevance, smoothed_out)
    ignored = [word for word, smoothed in zip(words, smoothed_out, strict=True) if smoothed]
    listed = Text(", ".join(word.en for word in ignored), "、".join(word.zh for word in ignored))
    return findings(
        TEXTS,
        {"homes": figure},
        largest=words[int(relevance.argmax())],
        percent=100 * float(relevance.max()),
        smoothed_out=listed if ignored else TEXTS["none"],
        vector_error=vector_error,
        scalar_error=scalar_error,
        rule_error=rule_error,
    )


def _draw(ax: Axes, visit: Visit, words: list[Text], relevance: NDArray[Any], smoothed_out: NDArray[Any]) -> None:
    style.dress(ax)
    ax.grid(False, axis="y")
    order = np.argsort(relevance, kind="stable")
    place = np.arange(len(order))
    ax.barh(place, 100 * relevance[order], color=style.BLUE, height=0.66)
    for y, feature in enumerate(order):
        label = visit.label(TEXTS["smoothed_out"]) if smoothed_out[feature] else f"{100 * relevance[feature]:.1f}%"
        colour = style.VERMILION if smoothed_out[feature] else style.INK
        ax.text(100 * relevance[feature] + 0.8, y, label, va="center", size=10.5, color=colour)
    ax.set(
        yticks=place,
        yticklabels=[visit.label(words[feature]) for feature in order],
        xlabel=visit.label(TEXTS["relevance"]),
        xlim=(0, 115 * relevance.max()),
    )


STATION = Station("homes", TEXTS, compute)
