"""Heatmaps of attention weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from regard.plot import style
from regard.plot.display import named, numbers_of, plain

# What 72 dots per inch, the coarsest usual output, can still show.
_CELLS_PER_INCH = 60.0


def show_heatmaps(
    matrices: ArrayLike,
    xlabel: str | None = None,
    ylabel: str | None = None,
    titles: Sequence[str] | None = None,
    figsize: tuple[float, float] | None = None,
    cmap: str | Colormap = style.WEIGHTS,
    *,
    key_labels: Sequence[str] | None = None,
    query_labels: Sequence[str] | None = None,
) -> Figure:
    """A grid of heatmaps with one colour scale for all of them and one colour bar.

    Panel (r, c) shows matrices[r, c], queries downwards and keys to the right; the scale runs from min(0, smallest) to
    max(0, largest), so that white is no attention at all. Every weight has its own sharp cell. Where there are more
    keys or queries than dots to draw, a cell shows the largest weight (by magnitude) of the neighbours it stands for,
    so that no peak is lost or smeared.

    Parameters
    ----------
    matrices : array or tensor (rows, cols, queries, keys)
        Such as ``attention_weights(…)[None, None]``.
    xlabel : str, default=None
        Label of the key axis.
    ylabel : str, default=None
        Label of the query axis.
    titles : sequence of str, default=None
        One per column (repeated on every row) or one per panel, row by row.
    figsize : tuple of two float, default=None
        Width and height in inches; None follows rows and cols.
    cmap : str or Colormap
        A matplotlib colour map or its name.
    key_labels : sequence of str (keys,), default=None
        Words written at every key, such as tokens.
    query_labels : sequence of str (queries,), default=None
        Words written at every query.

    Returns
    -------
    Figure
        Its axes are the panels row by row, then the colour bar.

    *Empty rows*: zero weights stay white; NaN and ±inf are grey. *Cost*: O(size of matrices).

    >>> figure = show_heatmaps(np.eye(3)[None, None], xlabel="keys", ylabel="queries")
    >>> len(figure.axes)
    2
    """
    grid = _grid(matrices)
    rows, cols, queries, keys = grid.shape
    names = _panel_titles(titles, rows, cols)
    tokens = [
        None if given is None else [plain(word) for word in named(name, given, count)]
        for name, given, count in (("key_labels", key_labels, keys), ("query_labels", query_labels, queries))
    ]
    # Squares while both sides can be read; very long matrices fill the panel instead.
    square = 1 / 3 <= queries / keys <= 3
    if figsize is None:
        figsize = (1.3 + 3.1 * cols, 0.6 + 2.9 * rows) if rows * cols > 1 else (5.6, 4.6)
    figure = style.picture(*figsize, squares=square)
    axes: NDArray[Any] = figure.subplots(rows, cols, sharex=True, sharey=True, squeeze=False)
    norm = style.scale(grid)
    room = max(1, int(_CELLS_PER_INCH * figsize[1] / rows)), max(1, int(_CELLS_PER_INCH * figsize[0] / cols))
    for (r, c), ax in np.ndenumerate(axes):
        image = style.heatmap(
            style.dress(ax, grid=False),
            _fitted(grid[r, c], room),
            norm,
            cmap,
            aspect="equal" if square else "auto",
            extent=(-0.5, keys - 0.5, queries - 0.5, -0.5),
        )
        if xlabel and r == rows - 1:
            ax.set_xlabel(xlabel)
        if ylabel and c == 0:
            ax.set_ylabel(ylabel)
        if names:
            ax.set_title(names[r * cols + c])
        if tokens[0] is not None:
            ax.set_xticks(range(keys), tokens[0], rotation=0 if max(map(len, tokens[0])) <= 2 else 90)
        if tokens[1] is not None:
            ax.set_yticks(range(queries), tokens[1])
    style.colorbar(image, axes, shrink=0.85)
    return figure


def _grid(matrices: ArrayLike) -> NDArray[np.float64]:
    grid = numbers_of(matrices)
    if grid.ndim != 4:
        raise ValueError(
            f"matrices must have 4 axes (rows, cols, queries, keys), got shape {grid.shape}"
            + ("; for one heatmap pass matrices[None, None]" if grid.ndim == 2 else "")
        )
    if 0 in grid.shape:
        raise ValueError(f"matrices must not be empty, got shape {grid.shape}")
    return grid


def _panel_titles(titles: Sequence[str] | None, rows: int, cols: int) -> list[str]:
    if titles is None:
        return []
    if isinstance(titles, str) or len(titles) not in (cols, rows * cols):
        given = repr(titles) if isinstance(titles, str) else f"{len(titles)} titles"
        raise ValueError(
            f"titles must be {cols} strings (one per column) or {rows * cols} (one per panel), got {given}"
        )
    return list(titles) * (rows * cols // len(titles))


def _fitted(matrix: NDArray[np.float64], room: tuple[int, int]) -> NDArray[np.float64]:
    """The matrix itself if it fits, otherwise the largest weight of each block; blocks differ by one at most."""
    matrix = np.where(np.isfinite(matrix), matrix, np.nan)
    for axis, cells in enumerate(room):
        size = matrix.shape[axis]
        if size > cells:
            starts = np.arange(cells) * size // cells
            high, low = (extreme.reduceat(matrix, starts, axis=axis) for extreme in (np.fmax, np.fmin))
            matrix = np.where(-low > high, low, high)
    return matrix
