"""Predictions over two features: filled contours, with the training data on top in the same colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Normalize
from matplotlib.contour import QuadContourSet
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from regard.plot import style
from regard.plot.display import Display, Labels, column, limits, plain, predictions_of, rows_to_draw

QUERIES_PER_SIDE = 70
MAX_CONTOUR_LEVELS = 14


class SurfaceDisplay(Display):
    """Predictions on a grid of two features as filled contours, training rows as dots of the same scale.

    Parameters
    ----------
    x0 : array (m,)
        Values of the first feature, increasing.
    x1 : array (l,)
        Values of the second feature, increasing.
    predicted : array (l, m)
        Predictions: x1 along rows, x0 along columns.
    train0 : array (n,), default=None
        First feature of the training rows.
    train1 : array (n,), default=None
        Second feature of the training rows.
    y_train : array (n,), default=None
        Their values.
    labels : dict, default=None
        Other texts for "x0", "x1", "y" and "held".

    Attributes
    ----------
    contours_, points_, colorbar_ : artists
        ``points_`` is None without training rows.
    ax_, figure_ : Axes, Figure
        Where they are drawn.

    *Empty rows*: a NaN stays white. *Cost*: O(l·m + n).

    >>> display = SurfaceDisplay([0.0, 1.0], [0.0, 2.0], [[1.0, 2.0], [3.0, 4.0]]).plot()
    >>> display.ax_.get_ylim()
    (np.float64(0.0), np.float64(2.0))
    """

    _LABELS: ClassVar[dict[str, str]] = {
        "x0": "feature 0",
        "x1": "feature 1",
        "y": "prediction (map) and y (dots)",
        "held": "other features at their median",
    }

    contours_: QuadContourSet
    points_: PathCollection | None
    colorbar_: Colorbar

    def __init__(
        self,
        x0: ArrayLike,
        x1: ArrayLike,
        predicted: ArrayLike,
        *,
        train0: ArrayLike | None = None,
        train1: ArrayLike | None = None,
        y_train: ArrayLike | None = None,
        labels: Labels | None = None,
    ) -> None:
        super().__init__(labels)
        self.x0, self.x1 = column("x0", x0), column("x1", x1)
        for name, grid in (("x0", self.x0), ("x1", self.x1)):
            if grid.size < 2 or not (np.diff(grid) > 0.0).all():
                raise ValueError(f"{name} must hold at least two increasing numbers, got {grid.size} numbers")
        self.predicted = np.asarray(predicted, np.float64)
        if self.predicted.shape != (self.x1.size, self.x0.size):
            raise ValueError(
                f"predicted must have shape (len(x1), len(x0)) = ({self.x1.size}, {self.x0.size}), "
                f"got {self.predicted.shape}"
            )
        given = {"train0": train0, "train1": train1, "y_train": y_train}
        missing = [name for name, array in given.items() if array is None]
        if 0 < len(missing) < 3:
            raise ValueError(f"{', '.join(missing)} must be given too: train0, train1 and y_train go together")
        self.train0 = self.train1 = self.y_train = None
        if train0 is not None and train1 is not None and y_train is not None:
            self.train0 = column("train0", train0)
            self.train1 = column("train1", train1, "train0", self.train0.size)
            self.y_train = column("y_train", y_train, "train0", self.train0.size)
        self._held = False

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        features: Sequence[int | str] | None = None,
        labels: Labels | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """The map of a fitted regressor over the range of its training rows.

        Parameters
        ----------
        estimator : estimator
            Fitted, with ``predict``.
        X : array (K, d), default=None
            Rows to draw; None is the training rows.
        y : array (K,), default=None
            Their values.
        features : sequence of two int or str, default=None
            Indices or names of two features; None is the two most relevant. The others are at their median.
        labels : dict, default=None
            As in the class.
        ax : Axes, default=None
            Where to draw; None is a new figure.

        Returns
        -------
        SurfaceDisplay

        *Cost*: ``predict`` of 4,900 rows.
        """
        rows = rows_to_draw(estimator, X, y)
        width = rows.X.shape[1]
        if width < 2:
            raise ValueError("estimator must have two features or more for a map; RegressionCurveDisplay draws one")
        if features is None:
            features = sorted(range(width), key=lambda j: -rows.relevance[j])[:2]
        if isinstance(features, str) or len(features) != 2:
            raise ValueError(f"features must be two numbers or names, got {features!r}")
        a, b = (rows.feature(feature) for feature in features)
        if a == b:
            raise ValueError(f"features must be two different ones, got {features!r}")
        # With a margin, so that no dot is clipped.
        grids = [np.linspace(*limits(rows.X[:, j]), QUERIES_PER_SIDE) for j in (a, b)]
        query = np.tile(np.median(rows.X, axis=0), (QUERIES_PER_SIDE * QUERIES_PER_SIDE, 1))
        query[:, a], query[:, b] = (one.ravel() for one in np.meshgrid(*grids))
        display = cls(
            grids[0],
            grids[1],
            predictions_of(estimator, query).reshape(QUERIES_PER_SIDE, QUERIES_PER_SIDE),
            train0=rows.X[:, a],
            train1=rows.X[:, b],
            y_train=rows.y,
            labels={"x0": plain(rows.names[a]), "x1": plain(rows.names[b]), **(labels or {})},
        )
        display._held = width > 2
        return display.plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        ax = self._on(ax, 6.2, 4.8, grid=False)
        # The predictions alone set the scale, so that one outlier in y does not; dots beyond it take the end colours.
        finite = self.predicted[np.isfinite(self.predicted)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        if not high - low > 1e-12 * max(abs(low), abs(high)):
            low, high = low - 0.5, high + 0.5
        levels = MaxNLocator(MAX_CONTOUR_LEVELS).tick_values(low, high)
        self.contours_ = ax.contourf(
            self.x0, self.x1, np.ma.masked_invalid(self.predicted), levels=levels, cmap=style.VALUES, extend="neither"
        )
        self.points_ = None
        if self.train0 is not None and self.train1 is not None:
            small = 36.0 * min(1.0, (200.0 / max(self.train0.size, 1)) ** 0.6)
            self.points_ = ax.scatter(
                self.train0,
                self.train1,
                c=self.y_train,
                s=max(small, 5.0),
                cmap=style.VALUES,
                norm=cast(Normalize, self.contours_.norm),
                edgecolors=style.PAPER,
                linewidths=0.8 if small > 12.0 else 0.35,
            )
        ax.set(xlabel=self.labels["x0"], ylabel=self.labels["x1"])
        ax.set(xlim=(self.x0[0], self.x0[-1]), ylim=(self.x1[0], self.x1[-1]))
        if self._held:
            ax.set_title(self._label("held"), color=style.MUTED, fontsize=10)
        self.colorbar_ = style.colorbar(self.contours_, ax, self.labels["y"])
        return self
