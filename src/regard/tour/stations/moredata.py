"""More data: where a fixed bandwidth stops learning and a shrinking one goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from regard import pool
from regard.core.scores import Gaussian
from regard.data import notes, notes_truth
from regard.model.naive_answers import root_mean_square
from regard.plot import style
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/moredata")

SIZES = (50, 200, 800, 3200, 12800)
REPEATS = 10
# Test inputs 1 ≤ x ≤ 4, where a query has keys on both sides.
INSIDE = slice(10, 41)


class Curve(NamedTuple):
    """Errors for each of ``SIZES``."""

    everywhere: NDArray[Any]
    inside: NDArray[Any]


def compute(visit: Visit) -> Findings:
    fixed, shrinking = _errors(visit.seed, 0.0), _errors(visit.seed, -1 / 5)
    floor = _bias(visit)
    figure = style.picture(6.6, 4.5)
    _draw(figure.subplots(), visit, fixed, shrinking, floor)
    return findings(
        TEXTS,
        {"moredata": figure},
        repeats=REPEATS,
        fewest=SIZES[0],
        most=SIZES[-1],
        bias=floor,
        fixed=fixed.everywhere[[0, -1]],
        fixed_slope=slope(SIZES, fixed.everywhere),
        shrinking=shrinking.everywhere[[0, -1]],
        shrinking_slope=slope(SIZES, shrinking.everywhere),
        inside_slope=slope(SIZES, shrinking.inside),
    )


def _errors(seed: int, power: float) -> Curve:
    """Root of the mean squared error over ``REPEATS`` draws for each size, with h = n^power."""
    errors = np.empty((len(SIZES), REPEATS, 2))
    # Few queries: plain numpy is quick enough.
    for row, n in enumerate(SIZES):
        score = Gaussian(w=1.0 / n**power)
        for draw in range(REPEATS):
            data = notes(n_train=n, seed=seed + draw)
            off = pool(data.x_test, data.x_train, data.y_train, score, engine="reference").output - data.y_truth
            errors[row, draw] = root_mean_square(off), root_mean_square(off[INSIDE])
    return Curve(*np.sqrt((errors**2).mean(axis=1)).T)


def _bias(visit: Visit) -> float:
    """Error at h = 1 with so many keys, free of noise, that only the smoothing itself is left."""
    keys = (np.arange(5000) + 0.5) / 1000
    flat = pool(visit.data.x_test, keys, notes_truth(keys), Gaussian(w=1.0), engine="reference").output
    return root_mean_square(flat - visit.data.y_truth)


def slope(sizes: Sequence[int], heights: NDArray[Any]) -> float:
    """Slope in the log-log picture, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(heights), 1)[0])


def plain_ticks(ax: Axes, visit: Visit, sizes: Sequence[int], ticks: Sequence[float]) -> None:
    """Numbers of training pairs along x, and plain numbers instead of powers of ten."""
    ax.minorticks_off()
    ax.set(
        xlabel=visit.label(TEXTS["n"]),
        xticks=sizes,
        xticklabels=[f"{n:,}" for n in sizes],
        yticks=ticks,
        yticklabels=[f"{tick:g}" for tick in ticks],
    )


def _draw(ax: Axes, visit: Visit, fixed: Curve, shrinking: Curve, floor: float) -> None:
    style.dress(ax)
    for errors, line, colour, name in (
        (fixed.everywhere, "o--", style.VERMILION, "h = 1"),
        (shrinking.everywhere, "s-", style.BLUE, "h = n^(−1/5)"),
        (shrinking.inside, "^-.", style.GREEN, visit.label(TEXTS["inside"])),
    ):
        label = visit.label(TEXTS["slope"], curve=name, slope=slope(SIZES, errors))
        ax.loglog(SIZES, errors, line, color=colour, linewidth=2.2, markersize=7, label=label)
    ax.axhline(floor, color=style.INK, linestyle=":", linewidth=1.6, label=visit.label(TEXTS["bias"]))
    plain_ticks(ax, visit, SIZES, [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0])
    ax.set_ylabel(visit.label(TEXTS["error"]))
    ax.set_ylim(0.35 * shrinking.inside.min(), 1.5 * fixed.everywhere.max())
    style.legend(ax, loc="lower left")


STATION = Station("moredata", TEXTS, compute)
