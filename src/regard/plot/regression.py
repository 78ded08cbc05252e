"""A one-dimensional regression with its training data, as the study notes draw it."""

from __future__ import annotations

from typing import cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.plot import style
from regard.plot.display import column, limits


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
    x_test : array (m,)
        Queries; (m, 1) is taken as (m,).
    y_truth : array (m,)
        True values.
    y_hat : array (m,)
        Predictions.
    x_train : array (n,)
        Keys.
    y_train : array (n,)
        Their values.
    ax : Axes, default=None
        Where to draw; None is a new figure.
    labels : tuple of three str, default=("Truth", "Pred", "Training")
        Names of the truth, the prediction and the training data in the legend.
    xlabel : str, default="x"
        Label of the horizontal axis.
    ylabel : str, default="y"
        Label of the vertical axis.
    xlim : tuple of two float, default=(0.0, 5.0)
        Range shown of x; that of y follows the data.

    Returns
    -------
    Figure
        Or subfigure that the axes belong to; ``ax.lines`` holds truth, prediction and training data in this order.

    *Empty rows*: a NaN in ``y_hat`` leaves a gap in the line. *Cost*: O(m + n).

    >>> figure = plot_kernel_reg([0.0, 5.0], [0.0, 1.0], [0.5, 0.5], [1.0, 4.0], [0.2, 0.8])
    >>> figure.axes[0].get_xlim()[1]
    np.float64(5.0)
    """
    queries, keys = column("x_test", x_test), column("x_train", x_train)
    truth = column("y_truth", y_truth, "x_test", queries.size)
    predicted = column("y_hat", y_hat, "x_test", queries.size)
    values = column("y_train", y_train, "x_train", keys.size)
    if ax is None:
        ax = style.picture(6.4, 4.0).subplots()
    style.dress(ax)
    style.truth_line(ax, queries, truth, labels[0])
    ax.plot(queries, predicted, color=style.VERMILION, linewidth=2.6, label=labels[1])
    style.circles(ax, keys, values, labels[2])
    ax.set(xlabel=xlabel, ylabel=ylabel, xlim=xlim, ylim=limits(truth, predicted, values))
    style.legend(ax)
    return cast(Figure, ax.figure)
