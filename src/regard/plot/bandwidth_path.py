"""The bandwidth path: the loss against w, with the w that was chosen.

Small w (left) averages over all keys, large w (right) over few. The training loss falls all the way, since every row
attends to itself; the leave-one-out loss has a minimum, and that is where w belongs.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike

from regard.plot import fonts, style
from regard.plot.display import Display, Labels, column, limits, short

# The loss axis ends at this multiple of the loss of the smallest w.
MAX_LOSS_RATIO = 3.0
# Multiples of the learned w, four per doubling.
DEFAULT_MULTIPLES = 2.0 ** np.linspace(-4.0, 4.0, 33)


class BandwidthPathDisplay(Display):
    """Left-out loss, and training loss where known, against w on a logarithmic axis.

    Parameters
    ----------
    w : array (m,)
        Positive; 1/bandwidth, or multiples of a w.
    left_out : array (m,)
        Leave-one-out loss.
    training : array (m,), default=None
        Loss when every row attends to itself too.
    chosen : float, default=None
        The chosen w, marked.
    labels : dict, default=None
        Other texts for "w", "loss", "left_out", "training", "chosen".

    Attributes
    ----------
    line_, training_line_, chosen_line_, chosen_point_, chosen_text_ : artists
        None if not drawn.
    ax_, figure_ : Axes, Figure
        Where they are drawn.

    *Empty rows*: a NaN leaves a gap. *Cost*: O(m·log m).

    >>> display = BandwidthPathDisplay([4.0, 1.0, 2.0], [3.0, 2.0, 1.0], chosen=2.0).plot()
    >>> display.line_.get_xdata().tolist(), display.chosen_point_.get_ydata().tolist()
    ([1.0, 2.0, 4.0], [1.0])
    """

    _LABELS: ClassVar[dict[str, str]] = {
        "w": "w = 1/bandwidth   (left: thick, right: thin)",
        "multiple": "multiple of the learned w   (left: thick, right: thin)",
        "loss": "loss",
        "left_out": "leave-one-out",
        "training": "training",
        "chosen": "chosen: {w}",
        "learned": "the learned w",
    }

    line_: Line2D
    training_line_: Line2D | None
    chosen_line_: Line2D | None
    chosen_point_: Line2D | None
    chosen_text_: Annotation | None

    def __init__(
        self,
        w: ArrayLike,
        left_out: ArrayLike,
        *,
        training: ArrayLike | None = None,
        chosen: float | None = None,
        labels: Labels | None = None,
    ) -> None:
        super().__init__(labels)
        places = column("w", w)
        if not places.size or not ((places > 0.0) & np.isfinite(places)).all():
            raise ValueError("w must hold positive finite numbers: its axis is logarithmic")
        if chosen is not None and not 0.0 < chosen < np.inf:
            raise ValueError(f"chosen must be a positive finite number or None, got {chosen!r}")
        order = np.argsort(places, kind="stable")
        self.w = places[order]
        self.left_out = column("left_out", left_out, "w", places.size)[order]
        self.training = None if training is None else column("training", training, "w", places.size)[order]
        self.chosen = None if chosen is None else float(chosen)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        multiples: ArrayLike | None = None,
        labels: Labels | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """The path of a fitted estimator: every w that it learned times one common multiple.

        The axis is w if it is a single number, else the multiple of the learned w.

        Parameters
        ----------
        estimator : estimator
            Fitted, with ``loss_path``.
        multiples : array (m,), default=None
            Positive; None is 33 from 1/16 to 16. 1 is always included.
        labels : dict, default=None
            As in the class.
        ax : Axes, default=None
            Where to draw; None is a new figure.

        Returns
        -------
        BandwidthPathDisplay

        *Cost*: that of ``loss_path``.
        """
        if not hasattr(estimator, "loss_path"):
            raise TypeError(
                f"estimator must have loss_path, as NadarayaWatsonRegressor does, got {type(estimator).__name__}"
            )
        wanted = DEFAULT_MULTIPLES if multiples is None else column("multiples", multiples)
        path = estimator.loss_path(np.union1d(wanted, [1.0]))
        learned = np.ravel(estimator.w_)
        own = learned.size == 1 and learned[0] > 0.0
        unit = float(learned[0]) if own else 1.0
        display = cls(unit * path.multiple, path.left_out, training=path.training, chosen=unit, labels=labels)
        if not own and "w" not in (labels or {}):
            display.labels["w"], display.labels["chosen"] = display.labels["multiple"], display.labels["learned"]
        return display.plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        ax = self._on(ax, 6.4, 4.0)
        self.training_line_ = self.chosen_line_ = self.chosen_point_ = self.chosen_text_ = None
        ax.set_xscale("log")
        if self.training is not None:
            (self.training_line_,) = ax.plot(
                self.w, self.training, color=style.BLUE, linestyle="--", linewidth=1.8, label=self.labels["training"]
            )
        (self.line_,) = ax.plot(
            self.w, self.left_out, color=style.VERMILION, linewidth=2.6, label=self.labels["left_out"]
        )
        ax.set(xlabel=self.labels["w"], ylabel=self.labels["loss"], ylim=self._range())
        if self.chosen is not None:
            self.chosen_line_ = ax.axvline(self.chosen, color=style.INK, linewidth=1.0, linestyle=":")
            known = np.isfinite(self.left_out)
            height = float(np.interp(np.log(self.chosen), np.log(self.w[known]), self.left_out[known]))
            (self.chosen_point_,) = ax.plot([self.chosen], [height], "o", color=style.INK, markersize=7, zorder=5)
            right = self.chosen > np.sqrt(self.w[0] * self.w[-1]) * 1.5
            self.chosen_text_ = ax.annotate(
                self._label("chosen", w=short(self.chosen)),
                (self.chosen, 0.93),
                xycoords=("data", "axes fraction"),
                xytext=(-6 if right else 6, 0),
                textcoords="offset points",
                ha="right" if right else "left",
                color=style.INK,
                fontsize=10,
                fontfamily=fonts.families(),
            )
        _plain_ticks(ax)
        style.legend(ax)
        return self

    def _range(self) -> tuple[float, float]:
        """All losses, cut off where a large w errs so much that the minimum would not be visible."""
        known = self.left_out[np.isfinite(self.left_out)]
        usual = [known[:1]] if self.training is None else [known[:1], self.training]
        top = max(MAX_LOSS_RATIO * limits(*usual)[1], MAX_LOSS_RATIO * float(known.min(initial=np.inf)))
        low, high = limits(known, *([] if self.training is None else [self.training]))
        return low, min(high, top) if top > low else high


def _plain_ticks(ax: Axes) -> None:
    """0.1, 0.2, 0.5, 1, … instead of powers of ten."""
    low, high = ax.get_xlim()
    many = np.log10(high / low) > 3.5
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0,) if many else (1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda number, _: short(number)))
    ax.xaxis.set_minor_formatter(NullFormatter())
