"""Time against rows on logarithmic axes, one panel for each number of features, with the slopes in the legend."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from regard.plot.style import CYCLE, DASHES, INK, MUTED, PAPER, dress, picture
from speed_cases import CLUSTERED
from speed_peers import PEERS, RANKED, REGARD, TILED

STEEP_FROM = 1_000  # rows from which the slope is fitted: below, calls cost more than their pairs
MARKERS = "os^Dv<>pX*P"
NAMES = (REGARD, TILED, *(peer.name for peer in PEERS))


def slope(points: list[tuple[int, float]]) -> float:
    """Exponent of the time in the rows, by least squares over the larger sizes; NaN where there is only one."""
    large = np.log([point for point in points if point[0] >= STEEP_FROM])
    return float(np.polyfit(large[:, 0], large[:, 1], 1)[0]) if len(large) > 1 else float("nan")


def titled(d: int) -> str:
    return f"d = {d}" + (", clusters" if d == CLUSTERED else "")


def draw(cases: list[dict[str, Any]], path: Path) -> None:
    """Write the plot: lines of the contestants of all cases; hollow marks are extended from fewer queries."""
    widths = sorted({case["d"] for case in cases})
    figure = picture(5.0 * len(widths), 7.6)
    for d, ax in zip(widths, figure.subplots(1, len(widths), sharey=True, squeeze=False)[0], strict=True):
        for number, name in enumerate(NAMES):
            found = [(case["n"], one) for case in cases if case["d"] == d for one in case["contestants"]]
            found = [(n, one) for n, one in found if one["name"] == name]
            if not found:
                continue
            points = [(n, one["time"]) for n, one in found]
            steep = slope(points)
            ours = name == REGARD
            colour = INK if ours else CYCLE[(number - 1) % len(CYCLE)] if name in RANKED | {TILED} else MUTED
            mark = {"color": colour, "marker": MARKERS[number], "markersize": 5}
            dash = "-" if ours else DASHES[number % len(DASHES)]
            label = name + (f", slope {steep:.2f}" if steep == steep else "")
            ax.plot(*zip(*points, strict=True), label=label, linewidth=2.6 if ours else 1.2, linestyle=dash, **mark)
            extended = [(n, one["time"]) for n, one in found if one["extended"]]
            if extended:
                ax.plot(*zip(*extended, strict=True), linestyle="", markerfacecolor=PAPER, **mark)
        dress(ax).set(xscale="log", yscale="log", xlabel="rows n, and as many queries", title=titled(d))
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), frameon=False, fontsize=8.5, labelcolor=INK)
    figure.axes[0].set_ylabel("seconds (hollow: extended from fewer queries)")
    buffer = BytesIO()
    figure.savefig(buffer, dpi=80)
    # A picture of few colours needs no more than a palette: a third of the bytes.
    Image.open(buffer).convert("RGB").quantize(128).save(path, optimize=True)
