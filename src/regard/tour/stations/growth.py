"""More data, learned: how w and the error go with n when every sample chooses its own w."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from regard import NadarayaWatsonRegressor
from regard.data import notes
from regard.model.naive_answers import root_mean_square
from regard.plot import style
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.stations.moredata import plain_ticks, slope
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/growth")

SIZES = (50, 100, 200, 400, 800, 1600)
# Enough that the slopes differ little from one set of draws to another.
REPEATS = 20


def compute(visit: Visit) -> Findings:
    every_w, every_error = learned_by_size(visit.seed, SIZES, REPEATS)
    # For each size the geometric mean of the learned w, and the root of the mean squared error.
    w_values, errors = np.exp(np.log(every_w).mean(axis=1)), np.sqrt((every_error**2).mean(axis=1))
    grows, falls = slope(SIZES, w_values), slope(SIZES, errors)
    figure = style.picture(8.4, 3.8)
    left, right = figure.subplots(1, 2)
    for ax, every in ((left, every_w), (right, every_error)):
        ax.loglog(SIZES, every, color=style.MUTED, linewidth=0.7, alpha=0.45)
    _draw(left, visit, w_values, grows, style.BLUE, "o-", visit.label(TEXTS["w"]), 1 / 5)
    _draw(right, visit, errors, falls, style.VERMILION, "s-", visit.label(TEXTS["error"]), -2 / 5)
    return findings(
        TEXTS,
        {"growth": figure},
        repeats=REPEATS,
        fewest=SIZES[0],
        most=SIZES[-1],
        w=w_values[[0, -1]],
        w_slope=grows,
        error=errors[[0, -1]],
        error_slope=falls,
        spread=[float(np.std([slope(SIZES, one) for one in every.T], ddof=1)) for every in (every_w, every_error)],
    )


def learned_by_size(seed: int, sizes: tuple[int, ...], repeats: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The learned w and the error, (sizes, draws) each."""
    w_values, errors = np.empty((2, len(sizes), repeats))
    for row, n in enumerate(sizes):
        for draw in range(repeats):
            data = notes(n_train=n, seed=seed + draw)
            model = NadarayaWatsonRegressor(metric="scalar").fit(data.x_train[:, None], data.y_train)
            w_values[row, draw] = model.w_
            errors[row, draw] = root_mean_square(model.predict(data.x_test[:, None]) - data.y_truth)
    return w_values, errors


def _draw(
    ax: Axes, visit: Visit, heights: NDArray[Any], found: float, colour: str, line: str, name: str, theory: float
) -> None:
    style.dress(ax)
    label = visit.label(TEXTS["slope"], slope=found)
    ax.loglog(SIZES, heights, line, color=colour, linewidth=2.4, markersize=7, label=label)
    middle = np.exp(np.log(heights).mean()) * (np.array(SIZES) / np.exp(np.log(SIZES).mean())) ** theory
    ax.loglog(SIZES, middle, ":", color=style.INK, linewidth=1.8, label=visit.label(TEXTS["slope"], slope=theory))
    low, high = ax.get_ylim()
    ticks = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50)
    plain_ticks(ax, visit, SIZES, [tick for tick in ticks if low < tick < high])
    ax.set_title(name)
    style.legend(ax, loc="upper left" if theory > 0 else "upper right")


STATION = Station("growth", TEXTS, compute)
