"""The edges: a weighted mean is drawn inwards where keys lie on one side only, a weighted line is not."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from regard import LocalLinearRegressor
from regard.data import notes_truth
from regard.model.naive_answers import root_mean_square
from regard.plot import style
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.stations.learned import by_lbfgs
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/edges")

FINE = np.linspace(0.0, 5.0, 501)
# How much of the left end the first panel shows.
END = 1.25


def compute(visit: Visit) -> Findings:
    x_train, y_train, x_test, y_truth = visit.data
    mean = by_lbfgs(visit)
    line = LocalLinearRegressor(bandwidth=mean.bandwidth_).fit(x_train[:, None], y_train)
    models = (mean, line)
    # Predictions are linear in y, so with noise of mean zero the bias is that of the truth at the keys.
    bias = [model.effective_weights(FINE[:, None]) @ notes_truth(x_train) - notes_truth(FINE) for model in models]
    errors = [root_mean_square(model.predict(x_test[:, None]) - y_truth) for model in models]
    figure = style.picture(8.4, 3.8)
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.25))
    _draw_end(left, visit, [model.predict(FINE[:, None]) for model in models])
    _draw_bias(right, visit, bias)
    return findings(
        TEXTS,
        {"edges": figure},
        h=float(mean.bandwidth_),
        mean_bias=bias[0][[0, -1]],
        line_bias=bias[1][[0, -1]],
        mean_error=errors[0],
        line_error=errors[1],
        price=TEXTS["variance"] if errors[1] > errors[0] else "",
    )


def _draw_end(ax: Axes, visit: Visit, curves: list[NDArray[Any]]) -> None:
    style.dress(ax)
    here, near = END >= FINE, visit.data.x_train <= END
    style.truth_line(ax, FINE[here], notes_truth(FINE[here]), visit.lines[0])
    _draw_curves(ax, visit, FINE[here], [curve[here] for curve in curves])
    style.circles(ax, visit.data.x_train[near], visit.data.y_train[near], visit.lines[2])
    ax.set(xlabel="x", ylabel="y", xlim=(-0.03, END), title=visit.label(TEXTS["left_end"]))
    style.legend(ax, loc="lower right")


def _draw_bias(ax: Axes, visit: Visit, bias: list[NDArray[Any]]) -> None:
    style.dress(ax)
    ax.axhline(0.0, color=style.INK, linewidth=1.0)
    _draw_curves(ax, visit, FINE, bias)
    title = visit.label(TEXTS["bias_everywhere"])
    ax.set(xlabel="x", ylabel=visit.label(TEXTS["bias"]), xlim=(0, 5), title=title)
    style.legend(ax, loc="upper right")


def _draw_curves(ax: Axes, visit: Visit, x: NDArray[Any], curves: list[NDArray[Any]]) -> None:
    names = visit.label(TEXTS["mean"]), visit.label(TEXTS["line"])
    for curve, colour, dash, name in zip(curves, (style.VERMILION, style.BLUE), ("-", "-."), names, strict=True):
        ax.plot(x, curve, color=colour, linestyle=dash, linewidth=2.6, label=name)


STATION = Station("edges", TEXTS, compute)
