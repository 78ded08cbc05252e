"""A learned w: the notes' parametric attention pooling, five epochs of plain gradient descent."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard import NadarayaWatsonRegressor
from regard.plot import plot_kernel_reg, style
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/learned")


def by_the_notes(visit: Visit) -> NadarayaWatsonRegressor:
    """One w by the notes' recipe, from a start in [0, 1)."""
    model = NadarayaWatsonRegressor(metric="scalar", optimizer="sgd", random_state=visit.seed)
    return model.fit(visit.data.x_train[:, None], visit.data.y_train)


def by_lbfgs(visit: Visit) -> NadarayaWatsonRegressor:
    """One w where the left-out error is smallest."""
    return NadarayaWatsonRegressor(metric="scalar").fit(visit.data.x_train[:, None], visit.data.y_train)


def compute(visit: Visit) -> Findings:
    x_train, y_train, x_test, y_truth = visit.data
    notes, best = by_the_notes(visit), by_lbfgs(visit)
    fixed = NadarayaWatsonRegressor(bandwidth=1.0).fit(x_train[:, None], y_train).predict(x_test[:, None])
    predicted = notes.predict(x_test[:, None])
    n = len(x_train)
    least = n * best.search_.value
    rough = [float((np.diff(curve, 2) ** 2).sum()) for curve in (fixed, predicted, y_truth)]
    figure = plot_kernel_reg(x_test, y_truth, predicted, x_train, y_train, labels=visit.lines)
    ax = figure.axes[0]
    ax.plot(x_test, fixed, color=style.GREEN, linestyle="-.", linewidth=2.0, label="w = 1")
    style.legend(ax)
    return findings(
        TEXTS,
        {"loss": _losses(visit, notes.search_.path, least), "learned": figure},
        start=float(notes.search_.places[0, 0]),
        w=float(notes.w_),
        first=notes.search_.path[0],
        last=n * notes.search_.value,
        rough=rough[1],
        rough_at_1=rough[0],
        rough_truth=rough[2],
        best_w=float(best.w_),
        least=least,
    )


def _losses(visit: Visit, path: NDArray[Any], least: float) -> Figure:
    figure = style.picture(6.4, 3.2)
    ax = style.dress(figure.subplots())
    epochs = np.arange(1, len(path) + 1)
    recipe = visit.label(TEXTS["recipe"])
    ax.plot(epochs, path, "o-", color=style.BLUE, linewidth=2.4, markersize=7, label=recipe)
    ax.axhline(least, color=style.INK, linestyle=":", linewidth=1.8, label=visit.label(TEXTS["least"]))
    ax.set(
        xlabel=visit.label(TEXTS["epoch"]),
        ylabel=visit.label(TEXTS["error"]),
        xticks=epochs,
        ylim=(0.0, 1.1 * float(path.max())),
    )
    style.legend(ax, loc="upper right")
    return figure


STATION = Station("learned", TEXTS, compute)
