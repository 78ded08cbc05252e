"""A one-dimensional regression over its training data, as the notes draw it."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from regard.plot import style


def plot_kernel_reg(
    x_test: ArrayLike,
    y_truth: ArrayLike,
    y_hat: ArrayLike,
    x_train: ArrayLike,
    y_train: ArrayLike,
    ax: Axes | None = None,
    *,
    labels: tuple[str, str, str] = ("Truth", "Pred", "Training"),
    xlabel: str = "x",
    ylabel: str = "y",
    xlim: tuple[float, float] = (0.0, 5.0),
) -> Figure:
    """The prediction over the truth (lines) and the training data (circles).

    Parameters
    ----------
    x_test, y_truth, y_hat : (m,) queries, what is true there and what was predicted; (m, 1) is taken as (m,)
    x_train, y_train : (n,) keys and their values
    ax : axes to draw into; by default a new figure
    labels : names of the truth, the prediction and the training data in the legend
    xlabel, ylabel : labels of the axes
    xlim : range shown of x; that of y follows the data

    Returns
    -------
    Figure (or subfigure) the axes belong to; ``ax.lines`` holds truth, prediction and training data in this order.

    *Empty rows*: a NaN in ``y_hat`` leaves a gap in the line. *Cost*: O(m + n).

    >>> figure = plot_kernel_reg([0.0, 5.0], [0.0, 1.0], [0.5, 0.5], [1.0, 4.0], [0.2, 0.8])
    >>> figure.axes[0].get_xlim()[1]
    np.float64(5.0)
    """
    queries, truth, predicted = (
        _column(name, a) for name, a in (("x_test", x_test), ("y_truth", y_truth), ("y_hat", y_hat))
    )
    keys, values = _column("x_train", x_train), _column("y_train", y_train)
    for name, array, like, length in (
        ("y_truth", truth, "x_test", queries.size),
        ("y_hat", predicted, "x_test", queries.size),
        ("y_train", values, "x_train", keys.size),
    ):
        if array.size != length:
            raise ValueError(f"{name} must be as long as {like} ({length}), got {array.size}")
    if ax is None:
        ax = style.picture(6.4, 4.0).subplots()
    style.dress(ax)
    ax.plot(queries, truth, color=style.INK, linestyle=(0, (5, 2)), linewidth=1.8, label=labels[0])
    ax.plot(queries, predicted, color=style.VERMILION, linewidth=2.6, label=labels[1])
    ax.plot(
        keys,
        values,
        linestyle="none",
        marker="o",
        markersize=7,
        color=style.BLUE,
        markeredgewidth=0,
        alpha=0.5,
        label=labels[2],
    )
    ax.set(xlabel=xlabel, ylabel=ylabel, xlim=xlim, ylim=_range(truth, predicted, values))
    style.legend(ax)
    return cast(Figure, ax.figure)


def _column(name: str, array: ArrayLike) -> NDArray[Any]:
    column = np.asarray(array, dtype=np.float64)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1:
        raise ValueError(f"{name} must have one axis (or one column), got shape {column.shape}")
    return column


def _range(*columns: NDArray[Any]) -> tuple[float, float]:
    """Smallest to largest finite number with a little air; one unit around a constant."""
    every = np.concatenate(columns)
    finite = every[np.isfinite(every)]
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    air = 0.06 * (high - low) or 0.5
    return low - air, high + air
