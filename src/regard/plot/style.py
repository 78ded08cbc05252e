"""The house style of figures: one colour scheme, safe for colour-blind readers, and quiet axes.

The hues are those of Okabe and Ito; lines that meet in one figure also differ in dash or marker, so that no
meaning hangs on colour alone. Weights are drawn from white (none) to dark blue (most), so that lightness alone
carries them and a printed page keeps them.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, cast

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from regard.plot import fonts

INK = "#22303c"
MUTED = "#66727f"
HAIRLINE = "#d5dbe1"
PAPER = "#ffffff"

BLUE = "#0072b2"
VERMILION = "#d55e00"
GREEN = "#009e73"
ORANGE = "#e69f00"
PURPLE = "#cc79a7"
SKY = "#56b4e9"

# Colours and dashes of a family of lines, in this order.
CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))

WEIGHTS = LinearSegmentedColormap.from_list(
    "regard.weights", ["#ffffff", "#dcebf6", "#9ccbe6", "#3f95c9", "#0b5c9b", "#08264d"]
)

# For predictions: dark blue to yellow, even in lightness and the same for colour-blind readers.
VALUES = "cividis"

# Pixels per inch of a figure shown in a notebook, twice the nominal size for sharp screens.
_SCREEN = 96


class Picture(Figure):
    """A figure without pyplot that notebooks show."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=2 * _SCREEN)
        width, height = (round(float(inches) * _SCREEN) for inches in self.get_size_inches())
        return buffer.getvalue(), {"width": width, "height": height}


def picture(width: float, height: float, *, squares: bool = False) -> Picture:
    """An empty white figure of that many inches with automatic layout; ``squares`` if axes keep an aspect."""
    figure = Picture(figsize=(width, height), facecolor=PAPER)
    figure.set_layout_engine("compressed" if squares else "constrained", w_pad=0.07, h_pad=0.07)
    return figure


def dress(ax: Axes, *, grid: bool = True) -> Axes:
    """Axes in the house style: light spines, ticks and grid."""
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(MUTED)
    family = fonts.families()
    ax.tick_params(colors=MUTED, labelcolor=INK, labelsize=10, labelfontfamily=family)
    ax.xaxis.label.set(color=INK, size=11, fontfamily=family)
    ax.yaxis.label.set(color=INK, size=11, fontfamily=family)
    ax.title.set(color=INK, size=11.5, fontfamily=family)
    ax.set_facecolor(PAPER)
    ax.set_axisbelow(True)
    if grid:
        ax.grid(True, color=HAIRLINE, linewidth=0.7)
    return ax


def legend(ax: Axes, **where: Any) -> None:
    """A legend that covers as little as it can."""
    font = {"family": fonts.families(), "size": 10}
    ax.legend(frameon=True, framealpha=0.88, edgecolor="none", prop=font, labelcolor=INK, **where)


def colorbar(mappable: Any, ax: Any, label: str = "", shrink: float = 0.9) -> Colorbar:
    """A colour bar beside ``ax``, axes or an array of them."""
    bar = mappable.axes.figure.colorbar(mappable, ax=ax, shrink=shrink, pad=0.02)
    bar.outline.set_edgecolor(HAIRLINE)
    bar.ax.tick_params(colors=MUTED, labelcolor=INK, labelsize=9)
    if label:
        bar.set_label(label, color=INK, size=10, fontfamily=fonts.families())
    return cast(Colorbar, bar)


def scale(weights: NDArray[Any]) -> Normalize:
    """Colours from min(0, smallest) to max(0, largest), so that white is no weight at all."""
    finite = weights[np.isfinite(weights)]
    low, high = float(finite.min(initial=0.0)), float(finite.max(initial=0.0))
    return Normalize(low, high if high > low else low + 1.0)


def heatmap(ax: Axes, cells: NDArray[Any], norm: Normalize, cmap: str | Colormap = WEIGHTS, **how: Any) -> AxesImage:
    """Sharp cells in a thin frame; non-finite cells are grey."""
    for spine in ax.spines.values():
        spine.set(visible=True, color=HAIRLINE)
    colours = colormaps.get_cmap(cmap).with_extremes(bad="#b9c0c7")
    return ax.imshow(np.ma.masked_invalid(cells), norm=norm, cmap=colours, interpolation="none", **how)


def truth_line(ax: Axes, x: ArrayLike, y: ArrayLike, label: str) -> Line2D:
    """The true curve, dashed, so that a prediction on top stays visible."""
    (line,) = ax.plot(x, y, color=INK, linestyle=(0, (5, 2)), linewidth=1.8, label=label)
    return line


def circles(ax: Axes, x: ArrayLike, y: ArrayLike, label: str, size: float = 7.0, **how: Any) -> Line2D:
    """Training data; circles that overlap darken."""
    (line,) = ax.plot(x, y, "o", markersize=size, color=BLUE, markeredgewidth=0, alpha=0.5, label=label, **how)
    return line
