"""Predictions along one feature: curve, truth if known, training data and interval."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import FillBetweenPolyCollection
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from regard.plot import style
from regard.plot.display import Array, Display, Labels, column, limits, plain, predictions_of, rows_to_draw

CURVE_QUERIES = 400


class RegressionCurveDisplay(Display):
    """Predictions along one feature, with truth, training data and interval if given.

    Parameters
    ----------
    x : array (m,)
        Queries, drawn in increasing order.
    predicted : array (m,)
        Predictions.
    truth : array (m,), default=None
        True values at the queries.
    x_train : array (n,), default=None
        Keys.
    y_train : array (n,), default=None
        Their values.
    lower : array (m,), default=None
        Lower ends of an interval around the prediction.
    upper : array (m,), default=None
        Upper ends.
    labels : dict, default=None
        Other texts for "truth", "predicted", "training", "interval", "x", "y".

    Attributes
    ----------
    line_, truth_line_, training_line_, band_ : artists
        None if not drawn.
    ax_, figure_ : Axes, Figure
        Where they are drawn.

    *Empty rows*: a NaN leaves a gap. *Cost*: O(m·log m + n).

    >>> display = RegressionCurveDisplay([0.0, 1.0], [2.0, 3.0], lower=[1.0, 2.0], upper=[3.0, 4.0]).plot()
    >>> display.line_.get_ydata().tolist()
    [2.0, 3.0]
    """

    _LABELS: ClassVar[dict[str, str]] = {
        "truth": "Truth",
        "predicted": "Pred",
        "training": "Training",
        "interval": "Interval",
        "x": "x",
        "y": "y",
        "held": "{name} (other features at their median)",
    }

    line_: Line2D
    truth_line_: Line2D | None
    training_line_: Line2D | None
    band_: FillBetweenPolyCollection | None

    def __init__(
        self,
        x: ArrayLike,
        predicted: ArrayLike,
        *,
        truth: ArrayLike | None = None,
        x_train: ArrayLike | None = None,
        y_train: ArrayLike | None = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        labels: Labels | None = None,
    ) -> None:
        super().__init__(labels)
        queries = column("x", x)
        order = np.argsort(queries, kind="stable")

        def along(name: str, array: ArrayLike | None) -> Array | None:
            return None if array is None else column(name, array, "x", queries.size)[order]

        self.x = queries[order]
        self.predicted = column("predicted", predicted, "x", queries.size)[order]
        self.truth, self.lower, self.upper = along("truth", truth), along("lower", lower), along("upper", upper)
        given = {"lower": lower, "upper": upper, "x_train": x_train, "y_train": y_train}
        for one, other in (("lower", "upper"), ("upper", "lower"), ("x_train", "y_train"), ("y_train", "x_train")):
            if given[one] is not None and given[other] is None:
                raise ValueError(f"{other} must be given with {one}")
        self.x_train = self.y_train = None
        if x_train is not None and y_train is not None:
            self.x_train = column("x_train", x_train)
            self.y_train = column("y_train", y_train, "x_train", self.x_train.size)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        feature: int | str | None = None,
        truth: Callable[[Array], ArrayLike] | None = None,
        labels: Labels | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """The curve of a fitted regressor over the range of its training rows.

        Parameters
        ----------
        estimator : estimator
            Fitted, with ``predict``.
        X : array (K, d), default=None
            Rows to draw; None is the training rows.
        y : array (K,), default=None
            Their values.
        feature : int or str, default=None
            Index or name of the feature along x; None is the most relevant. The others are at their median.
        truth : function, default=None
            Of (m,) values of the feature, drawn as the truth.
        labels : dict, default=None
            As in the class.
        ax : Axes, default=None
            Where to draw; None is a new figure.

        Returns
        -------
        RegressionCurveDisplay

        *Cost*: ``predict`` of 400 rows.
        """
        rows = rows_to_draw(estimator, X, y)
        j = rows.feature(feature)
        here = rows.X[:, j]
        grid = np.linspace(here.min(), here.max(), CURVE_QUERIES)
        query = np.tile(np.median(rows.X, axis=0), (CURVE_QUERIES, 1))
        query[:, j] = grid
        name = plain(rows.names[j])
        display = cls(
            grid,
            predictions_of(estimator, query),
            truth=None if truth is None else truth(grid),
            x_train=here,
            y_train=rows.y,
            labels={"x": name, **(labels or {})},
        )
        if rows.X.shape[1] > 1 and "x" not in (labels or {}):
            display.labels["x"] = display._label("held", name=name)
        return display.plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        ax = self._on(ax, 6.4, 4.0)
        self.band_ = self.truth_line_ = self.training_line_ = None
        if self.truth is not None:
            self.truth_line_ = style.truth_line(ax, self.x, self.truth, self.labels["truth"])
        (self.line_,) = ax.plot(
            self.x, self.predicted, color=style.VERMILION, linewidth=2.6, label=self.labels["predicted"]
        )
        if self.x_train is not None and self.y_train is not None:
            # Under the lines, smaller the more there are.
            small = max(2.0, 7.0 * min(1.0, (200.0 / max(self.x_train.size, 1)) ** 0.25))
            self.training_line_ = style.circles(
                ax, self.x_train, self.y_train, self.labels["training"], small, zorder=1.8
            )
        if self.lower is not None and self.upper is not None:
            self.band_ = ax.fill_between(
                self.x,
                self.lower,
                self.upper,
                color=style.VERMILION,
                alpha=0.16,
                linewidth=0,
                zorder=1.5,
                label=self.labels["interval"],
            )
        shown = [a for a in (self.predicted, self.truth, self.y_train, self.lower, self.upper) if a is not None]
        ax.set(xlabel=self.labels["x"], ylabel=self.labels["y"], ylim=limits(*shown))
        style.legend(ax)
        return self
