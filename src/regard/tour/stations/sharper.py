"""The sharper heatmap: what a learned w does to attention, and what it is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard import NadarayaWatsonRegressor, attention_weights
from regard.bandwidth import loo_objective
from regard.core.scores import Gaussian
from regard.model.naive_answers import root_mean_square
from regard.plot import show_heatmaps
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.stations.learned import by_lbfgs, by_the_notes
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/sharper")


def compute(visit: Visit) -> Findings:
    x_train, y_train, x_test, y_truth = visit.data
    keys = x_train[:, None]
    models = (NadarayaWatsonRegressor(bandwidth=1.0).fit(keys, y_train), by_the_notes(visit), by_lbfgs(visit))
    w_values = [float(model.w_) for model in models]
    left_out = [np.sqrt(loo_objective(keys, y_train, Gaussian(w=w))) for w in w_values]
    errors = [root_mean_square(model.predict(x_test[:, None]) - y_truth) for model in models]
    weights = [attention_weights(x_test, x_train, Gaussian(w=w)) for w in w_values]
    effective_keys = [float(np.median(1.0 / (a**2).sum(axis=1))) for a in weights]
    names = (
        visit.label(TEXTS["fixed"]),
        visit.label(TEXTS["learned"], w=w_values[1]),
    )
    figure = weight_maps(visit, weights[:2], names, figsize=(8.2, 4.2))
    return findings(
        TEXTS, {"sharper": figure}, keys=effective_keys, left_out=left_out, error=errors, best_w=w_values[2]
    )


def weight_maps(
    visit: Visit, weights: Sequence[NDArray[Any]], names: Sequence[str], figsize: tuple[float, float]
) -> Figure:
    """Weights (Q, K) side by side; each panel is coloured up to its own largest weight, which stands in its title."""
    figure = show_heatmaps(
        [[a / a.max() for a in weights]],
        xlabel=visit.label(TEXTS["keys"]),
        ylabel=visit.label(TEXTS["queries"]),
        titles=[
            visit.label(TEXTS["panel"], name=name, largest=float(a.max()))
            for name, a in zip(names, weights, strict=True)
        ],
        figsize=figsize,
    )
    figure.axes[-1].set_ylabel(visit.label(TEXTS["colours"]))
    return figure


STATION = Station("sharper", TEXTS, compute)
