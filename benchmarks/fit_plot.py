"""Seconds of a fit and distance from the true function against rows, on logarithmic axes, labelled at the lines."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from regard.plot.style import BLUE, GREEN, INK, ORANGE, PAPER, PURPLE, VERMILION, dress, picture

# Colour, dash and marker of each contestant, so that no meaning hangs on colour alone.
LOOKS = {
    "regard": (INK, "-", "o"),
    "regard-cuda": (BLUE, "-", "D"),
    "boosting": (VERMILION, "--", "s"),
    "forest": (GREEN, "-.", "^"),
    "process": (PURPLE, ":", "v"),
    "vectors": (ORANGE, (0, (5, 1, 1, 1)), "X"),
}
LABELS = {"regard-cuda": "regard, GPU", "process": "Gaussian process", "vectors": "support vectors"}
PARTS = {
    "fit_seconds": "seconds of a fit",
    "distance": "distance from the true function\n(root mean square; the noise has 1)",
}
# Least distance between two labels, as a share of the height of the axes.
LABEL_GAP = 0.052


def spread(places: list[float], gap: float) -> list[float]:
    """The places, moved as little as keeps neighbours ``gap`` apart, in the order given.

    Runs of crowded places are centred on their mean.
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    groups: list[list[int]] = []

    def centre(group: list[int]) -> float:
        return sum(places[i] for i in group) / len(group)

    for i in order:
        groups.append([i])
        while len(groups) > 1 and (
            centre(groups[-1]) - centre(groups[-2]) < gap * (len(groups[-1]) + len(groups[-2])) / 2
        ):
            groups[-2:] = [groups[-2] + groups[-1]]
    moved = list(places)
    for group in groups:
        for at, i in enumerate(group):
            moved[i] = centre(group) + gap * (at - (len(group) - 1) / 2)
    return moved


def draw(cases: list[dict[str, Any]], path: Path) -> None:
    """Write the plot: a column for each number of features, seconds above and errors below."""
    widths = sorted({one["d"] for one in cases})
    figure = picture(5.4 * len(widths), 9.0)
    panels = figure.subplots(len(PARTS), len(widths), sharex=True, sharey="row", squeeze=False)
    for axes, (part, title) in zip(panels, PARTS.items(), strict=True):
        drawn = [
            (dress(ax), lines_of([one for one in cases if one["d"] == d], part))
            for d, ax in zip(widths, axes, strict=True)
        ]
        values = [value for _, lines in drawn for points in lines.values() for _, value in points]
        rows = [n for _, lines in drawn for points in lines.values() for n, _ in points]
        if not values:
            continue
        for d, (ax, lines) in zip(widths, drawn, strict=True):
            ax.set(xscale="log", yscale="log", title=f"d = {d}")
            # Room on the right for the labels of the longest lines.
            ax.set_xlim(min(rows) / 1.5, max(rows) * (1.5 * max(rows) / min(rows)) ** 0.35)
            ax.set_ylim(min(values) / 1.6, max(values) * 1.6)
            for who, points in lines.items():
                colour, dash, marker = LOOKS[who]
                width = 2.4 if who.startswith("regard") else 1.4
                ax.plot(*zip(*points, strict=True), color=colour, linestyle=dash, linewidth=width, marker=marker)
            label_ends(ax, lines)
        axes[0].set_ylabel(title)
    for ax in panels[-1]:
        ax.set_xlabel("training rows n")
    buffer = BytesIO()
    figure.savefig(buffer, dpi=90)
    # A picture of few colours needs no more than a palette: a third of the bytes.
    Image.open(buffer).convert("RGB").quantize(128).save(path, optimize=True)


def lines_of(cases: list[dict[str, Any]], part: str) -> dict[str, list[tuple[int, float]]]:
    """(n, part) of every contestant that has any, by n."""
    found = {
        who: sorted((one["n"], one[part]) for one in cases if one["contestant"] == who and part in one) for who in LOOKS
    }
    return {who: points for who, points in found.items() if points}


def label_ends(ax: Any, lines: dict[str, list[tuple[int, float]]]) -> None:
    """Names to the right of where the lines end, moved apart where several end at the same n."""
    low, high = np.log(ax.get_ylim())
    for end in {points[-1][0] for points in lines.values()}:
        names = [who for who, points in lines.items() if points[-1][0] == end]
        places = [float((np.log(lines[who][-1][1]) - low) / (high - low)) for who in names]
        for who, place in zip(names, spread(places, LABEL_GAP), strict=True):
            ax.annotate(
                LABELS.get(who, who),
                (end, float(np.exp(low + place * (high - low)))),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                color=LOOKS[who][0],
                fontsize=9.5,
                fontweight="bold" if who.startswith("regard") else "normal",
                bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.75, "pad": 0.8},
            )
