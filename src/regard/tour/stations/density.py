"""Dense and sparse regions: why the diagonal bends, where weights are large, and a bandwidth for every query."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard import NadarayaWatsonRegressor, attention_weights
from regard.core.scores import Gaussian
from regard.data import NotesData, notes_truth
from regard.data.synthetic import NOISE
from regard.model.naive_answers import root_mean_square
from regard.plot import plot_kernel_reg, style
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.stations.learned import by_lbfgs
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/density")

FINE = np.linspace(0.0, 5.0, 501)
# Queries at either end, and those in the middle, of the fifty.
ENDS = np.r_[0:2, 48:50]
MIDDLE = slice(15, 35)
# Uneven samples: x = 5 u³ for uniform u has half of its points in the first eighth.
POWER = 3
UNEVEN_ROWS = 50
DRAWS = 20


def compute(visit: Visit) -> Findings:
    x_train, y_train, x_test, y_truth = visit.data
    fixed = by_lbfgs(visit)
    adaptive = NadarayaWatsonRegressor(bandwidth="adaptive").fit(x_train[:, None], y_train)
    w = float(fixed.w_)
    wide = attention_weights(x_test, x_train, Gaussian(w=1.0))
    weights = fixed.attend(x_test[:, None])
    keys = [1.0 / (each**2).sum(axis=1) for each in (weights, adaptive.attend(x_test[:, None]), wide)]
    shuffled = np.random.default_rng(visit.seed).permutation(y_train)
    # The same w with other values.
    without_y = NadarayaWatsonRegressor(bandwidth=1 / w).fit(x_train[:, None], shuffled).attend(x_test[:, None])
    largest, wobble = smoothness(x_train, w)
    dark = largest > np.median(largest)
    errors = np.array([uneven_errors(visit.seed + draw) for draw in range(DRAWS)])
    return findings(
        TEXTS,
        {
            "density": _maps(visit, {1.0: wide, w: weights}, keys[:2]),
            "smoothness": _smoothness(visit, fixed, largest, wobble),
            "uneven": _uneven(visit),
        },
        w=w,
        noise=NOISE,
        fewest=keys[0].min(),
        most=keys[0].max(),
        ends=[each[ENDS].mean() for each in keys],
        middle=[each[MIDDLE].mean() for each in keys],
        ratio=root_mean_square(wobble[dark]) / root_mean_square(wobble[~dark]),
        without_y=float(np.abs(without_y - weights).max()),
        draws=DRAWS,
        uneven=np.sqrt((errors**2).mean(axis=0)),
        better=int((errors[:, 1] < errors[:, 0]).sum()),
        even=[root_mean_square(model.predict(x_test[:, None]) - y_truth) for model in (fixed, adaptive)],
    )


def smoothness(x_train: NDArray[Any], w: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """At each of ``FINE``: the largest weight, and the standard deviation of the curve's slope due to noise in y."""
    weights = attention_weights(FINE, x_train, Gaussian(w=w))
    slopes = np.gradient(weights, FINE, axis=0)  # of each weight; the curve is Σ weight · y
    return weights.max(axis=1), NOISE * np.sqrt((slopes**2).sum(axis=1))


def uneven(seed: int) -> NotesData:
    """The notes' curve and noise, with inputs that are dense on the left and sparse on the right."""
    rng = np.random.default_rng(seed)
    x_train = np.sort(5.0 * rng.random(UNEVEN_ROWS) ** POWER)
    y_train = notes_truth(x_train) + NOISE * rng.standard_normal(UNEVEN_ROWS)
    return NotesData(x_train, y_train, FINE, notes_truth(FINE))


def uneven_models(data: NotesData) -> list[NadarayaWatsonRegressor]:
    """One bandwidth for all queries, and one for each."""
    return [
        NadarayaWatsonRegressor(bandwidth=rule, metric="scalar").fit(data.x_train[:, None], data.y_train)
        for rule in ("loo", "adaptive")
    ]


def uneven_errors(seed: int) -> list[float]:
    """Errors of the two against the truth, evenly over the whole interval."""
    data = uneven(seed)
    return [root_mean_square(model.predict(FINE[:, None]) - data.y_truth) for model in uneven_models(data)]


def _maps(visit: Visit, weights: dict[float, NDArray[Any]], keys: list[NDArray[Any]]) -> Figure:
    x_train, x_test = visit.data.x_train, visit.data.x_test
    figure = style.picture(10.0, 4.0)
    *maps, right = figure.subplots(1, 3, sharey=True, width_ratios=(1.2, 1.2, 1.0))
    rows, columns = len(x_test), len(x_train)
    # Between two columns: as many keys are smaller.
    place = np.searchsorted(x_train, x_test) - 0.5
    for ax, (w, each) in zip(maps, weights.items(), strict=True):
        style.heatmap(style.dress(ax, grid=False), each, style.scale(each), aspect="auto")
        ax.plot(place, np.arange(rows), color=style.VERMILION, linewidth=2.0, label=visit.label(TEXTS["place"]))
        ax.plot([-0.5, columns - 0.5], [-0.5, rows - 0.5], ":", color=style.INK, linewidth=1.4)
        ax.set(
            title=visit.label(TEXTS["weights"], w=w),
            xlabel=visit.label(TEXTS["keys"]),
            xlim=(-0.5, columns - 0.5),
            ylim=(rows - 0.5, -0.5),
        )
    maps[0].set_ylabel(visit.label(TEXTS["queries"]))
    maps[1].tick_params(labelleft=False)
    style.legend(maps[1], loc="lower left")
    style.dress(right)
    for effective, colour, dash, name in zip(
        keys, (style.BLUE, style.GREEN), ("-", "--"), ("fixed", "adaptive"), strict=True
    ):
        label = visit.label(TEXTS[name])
        right.plot(effective, np.arange(rows), color=colour, linestyle=dash, linewidth=2.2, label=label)
    right.set(title=visit.label(TEXTS["effective"]), xlim=(0, 1.2 * float(keys[0].max())))
    right.tick_params(labelleft=False)
    style.legend(right, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=2, handlelength=1.4, columnspacing=1.0)
    return figure


def _smoothness(visit: Visit, fixed: NadarayaWatsonRegressor, largest: NDArray[Any], wobble: NDArray[Any]) -> Figure:
    figure = style.picture(6.4, 5.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.4, 1.0))
    data = visit.data
    curve = fixed.predict(FINE[:, None])
    plot_kernel_reg(FINE, notes_truth(FINE), curve, data.x_train, data.y_train, above, labels=visit.lines)
    above.set(xlabel="", title=visit.label(TEXTS["curve"], w=float(fixed.w_)))
    style.dress(below)
    for each, colour, dash, name in zip(
        (largest, wobble), (style.BLUE, style.VERMILION), ("-", "--"), ("largest", "wobble"), strict=True
    ):
        label = visit.label(TEXTS[name])
        below.plot(FINE, each / each.max(), color=colour, linestyle=dash, linewidth=2.0, label=label)
    below.plot(data.x_train, np.full(len(data.x_train), 0.03), "|", color=style.INK, markersize=9)
    below.set(xlabel="x", xlim=(0, 5), ylim=(0, 1.42), yticks=(0, 0.5, 1))
    style.legend(below, loc="upper center", ncols=2)
    return figure


def _uneven(visit: Visit) -> Figure:
    data = uneven(visit.seed)
    fixed, adaptive = (model.predict(FINE[:, None]) for model in uneven_models(data))
    figure = style.picture(6.4, 4.0)
    ax = style.dress(figure.subplots())
    style.truth_line(ax, FINE, data.y_truth, visit.lines[0])
    for curve, colour, dash, name in (
        (fixed, style.VERMILION, "-.", "fixed"),
        (adaptive, style.GREEN, "-", "adaptive"),
    ):
        ax.plot(FINE, curve, color=colour, linestyle=dash, linewidth=2.4, label=visit.label(TEXTS[name]))
    style.circles(ax, data.x_train, data.y_train, visit.lines[2])
    ax.set(xlabel="x", ylabel="y", xlim=(-0.05, 5), title=visit.label(TEXTS["uneven"]))
    style.legend(ax, loc="upper right")
    return figure


STATION = Station("density", TEXTS, compute)
