"""Shared by all Displays: axes without pyplot, replaceable labels, and predictions and weights of an estimator.

A Display holds arrays, draws them with ``plot(ax=None)`` and keeps the artists it made (``ax_``, ``figure_`` and
those of its class). ``from_estimator`` reads a fitted estimator's attributes by name, so that this room does not
import estimators.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import ArrayLike, NDArray

from regard.plot import style

Array = NDArray[Any]
Labels = Mapping[str, str]


class Display:
    """Axes, figure and labels; a notebook shows the figure if the Display created it."""

    # Every text of the Display, in English; ``labels`` replaces any of them.
    _LABELS: ClassVar[dict[str, str]] = {}

    ax_: Axes
    figure_: Figure

    def __init__(self, labels: Labels | None = None) -> None:
        unknown = sorted(set(labels or {}) - set(self._LABELS))
        if unknown:
            raise ValueError(f"labels must be among {', '.join(map(repr, self._LABELS))}, got {', '.join(unknown)}")
        self.labels = {**self._LABELS, **(labels or {})}

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into ``ax``, or into a new figure.

        Parameters
        ----------
        ax : Axes, default=None
            Where to draw; None is a new figure.

        Returns
        -------
        self
        """
        raise NotImplementedError

    def _label(self, label: str, /, **fields: Any) -> str:
        return self.labels[label].format(**fields)

    def _on(self, ax: Axes | None, width: float, height: float, *, grid: bool = True) -> Axes:
        """The axes given, or those of a new figure, styled and stored as ``ax_``."""
        if ax is None:
            ax = style.picture(width, height).subplots()
        elif not isinstance(ax, Axes):
            raise TypeError(f"ax must be matplotlib axes or None, got {type(ax).__name__}")
        self.ax_, self.figure_ = style.dress(ax, grid=grid), cast(Figure, ax.figure)
        return ax

    def _panels(
        self, ax: Axes | Sequence[Axes] | None, height: float, extra: float | None, need: str, *, above: bool = False
    ) -> tuple[Axes, Axes | None]:
        """Axes as ``_on`` gives them, and a second panel if it has a height ``extra``: given, or of a new figure.

        ``need`` says where there is a second panel; ``above``: it stands above the first.
        """
        if ax is None and extra is not None:
            heights = (extra, height) if above else (height, extra)
            made = style.picture(6.4, sum(heights)).subplots(2, 1, height_ratios=heights)
            return self._on(made[int(above)], 0.0, 0.0), made[int(not above)]
        if ax is None or isinstance(ax, Axes):
            return self._on(ax, 6.4, height), None
        given = list(np.ravel(np.asarray(ax, dtype=object)))
        if len(given) != 2 or extra is None:
            raise ValueError(f"ax must be one pair of axes, or two where {need}, got {len(given)}")
        if not isinstance(given[1], Axes):
            raise TypeError(f"ax must hold matplotlib axes, got {type(given[1]).__name__}")
        return self._on(given[0], 0.0, 0.0), given[1]

    def _repr_png_(self) -> Any:
        figure = getattr(self, "figure_", None)
        return figure._repr_png_() if isinstance(figure, style.Picture) else None


class DrawnRows(NamedTuple):
    """The rows a Display draws, and the names of their features."""

    X: Array  # (K, d) float64
    y: Array | None  # (K,) or (K, P)
    names: list[str]  # (d,)
    relevance: Array  # (d,) each feature's share of the distance; equal if the estimator has none

    def feature(self, feature: int | str | None) -> int:
        """Index of a feature given by index or name; by default the most relevant one."""
        count = self.X.shape[1]
        if feature is None:
            return int(np.argmax(self.relevance))
        if isinstance(feature, str):
            if feature not in self.names:
                raise ValueError(f"feature must be one of {', '.join(map(repr, self.names))}, got {feature!r}")
            return self.names.index(feature)
        if isinstance(feature, bool) or not isinstance(feature, int | np.integer) or not 0 <= feature < count:
            raise ValueError(f"feature must be a name or a number from 0 to {count - 1}, got {feature!r}")
        return int(feature)


def rows_to_draw(estimator: Any, X: Any = None, y: Any = None) -> DrawnRows:
    """X and y if given, else the training rows of a fitted estimator of this package."""
    if (X is None) != (y is None):
        given, missing = ("y", "X") if X is None else ("X", "y")
        raise ValueError(f"{missing} must be given with {given}; give neither to draw the training rows")
    if X is None:
        rows, values = getattr(estimator, "key_", None), getattr(estimator, "value_", None)
        if rows is None:
            raise ValueError(
                f"X must be given: {type(estimator).__name__} has no training rows (key_); "
                "it is not fitted, or not an estimator of regard"
            )
    else:
        rows, values = np.asarray(X), np.asarray(y)
        if rows.ndim != 2 or not rows.size:
            raise ValueError(f"X must have shape (rows, features) and not be empty, got shape {rows.shape}")
        if len(values) != len(rows):
            raise ValueError(f"y must be as long as X ({len(rows)}), got {len(values)}")
    rows = np.asarray(rows, np.float64)
    # Rows of a mixed table are in the coding of its columns.
    coding = getattr(estimator, "coding_", None)
    names = getattr(estimator, "feature_names_in_", None) if coding is None else coding.features
    if names is None:
        names = ["x"] if rows.shape[1] == 1 else [f"feature {j}" for j in range(rows.shape[1])]
    relevance = getattr(estimator, "feature_relevance_", np.zeros(rows.shape[1]))
    return DrawnRows(rows, values, [str(name) for name in names], relevance)


def predictions_of(estimator: Any, query: Array) -> Array:
    """Predictions (Q,) of a regressor with a single target, for ``query`` (Q, d)."""
    if hasattr(estimator, "classes_"):
        raise TypeError(f"estimator must predict numbers, got {type(estimator).__name__}, which predicts classes")
    with without_name_warning():
        predicted = np.asarray(estimator.predict(query), np.float64)
    if predicted.ndim == 2 and predicted.shape[1] == 1:
        predicted = predicted[:, 0]
    if predicted.ndim != 1:
        raise ValueError(f"estimator must predict one number per row, got answers of shape {predicted.shape}")
    return predicted


def attention_of(estimator: Any, query: Array) -> Array:
    """Attention weights (Q, K) of ``query`` (Q, d)."""
    with without_name_warning():
        return np.asarray(estimator.attend(query), np.float64)


@contextmanager
def without_name_warning() -> Iterator[None]:
    """Silences scikit-learn's warning about missing feature names: rows made here have the columns of ``fit``."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        yield


def numbers_of(array: Any) -> Array:
    """An array in float64, also from a tensor that requires gradients, is on another device, or holds bfloat16."""
    if hasattr(array, "detach"):
        array = array.detach().double().cpu()
    return np.asarray(array, dtype=np.float64)


def column(name: str, array: ArrayLike, like: str = "", length: int | None = None) -> Array:
    """Numbers (n,) from (n,) or (n, 1); ``length`` is that of the argument ``like``."""
    numbers = numbers_of(array)
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.ndim != 1:
        raise ValueError(f"{name} must have one axis (or one column), got shape {numbers.shape}")
    if length is not None and numbers.size != length:
        raise ValueError(f"{name} must be as long as {like} ({length}), got {numbers.size}")
    return numbers


def limits(*columns: ArrayLike) -> tuple[float, float]:
    """Range of the finite numbers with a margin; one unit around a constant."""
    every = np.concatenate([np.ravel(one) for one in columns])
    finite = every[np.isfinite(every)]
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    air = 0.06 * (high - low) or 0.5
    return low - air, high + air


def named(name: str, names: Sequence[str], count: int) -> list[str]:
    """``count`` strings; a ValueError that names the argument otherwise."""
    if isinstance(names, str) or len(names) != count:
        given = repr(names) if isinstance(names, str) else f"{len(names)}"
        raise ValueError(f"{name} must hold {count} strings, got {given}")
    return [str(one) for one in names]


def positive_integer(name: str, number: Any) -> int:
    """An integer of at least 1; a ValueError that names the argument otherwise."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {number!r}")
    return int(number)


def bars(ax: Axes, lengths: ArrayLike, names: Sequence[str], **how: Any) -> BarContainer:
    """Horizontal bars from the top down, each with its name."""
    place = np.arange(len(names), dtype=float)
    made = ax.barh(place, lengths, height=0.66, **how)
    ax.set_yticks(place, names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    return made


def percent_axis(ax: Axes) -> None:
    """Ticks along x in percent."""
    ax.xaxis.set_major_formatter(FuncFormatter(lambda share, _: percent(share)))


def formatted(value: Any) -> str:
    """A number, a class, or several numbers, formatted for readers."""
    if np.ndim(value):
        return ", ".join(formatted(one) for one in value)
    return short(float(value)) if np.asarray(value).dtype.kind in "fiu" else str(value)


def short(number: float) -> str:
    """Three significant digits, for readers."""
    if not np.isfinite(number):
        return str(number)
    return f"{number:,.0f}" if 1000.0 <= abs(number) < 1e6 else f"{number:.3g}"


def percent(share: float) -> str:
    """A share in percent, for readers.

    >>> percent(0.195), percent(0.6), percent(0.0001)
    ('19.5 %', '60 %', '< 0.1 %')
    """
    return "< 0.1 %" if 0.0 < share < 0.0005 else f"{round(100.0 * share, 1):g} %"


def plain(text: object) -> str:
    """Text drawn literally: a dollar sign does not start a formula."""
    return str(text).replace("$", r"\$")
