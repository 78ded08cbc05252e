"""The training curve: the loss at every step, drawn live or afterwards."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from regard.plot import style
from regard.plot.display import Display, Labels, column, limits, short
from regard.plot.live import SCREENS, NoScreen, Screen, opened

# Losses that span more than this factor are drawn on a logarithmic axis.
MIN_RATIO_FOR_LOG_AXIS = 20.0


class TrainingCurveDisplay(Display):
    """The loss at every step, with that of held-out rows or the least so far, and the step that was chosen.

    It updates live: a figure in a notebook, a sparkline in a terminal, nothing in a script. Use it as

    - ``model.set_callbacks(display).fit(X, y)`` for the estimators that learn (scikit-learn 1.9 or newer);
    - ``progress=display`` for the searches of ``regard.bandwidth``;
    - ``display.update(step, loss, validation)`` in your own loop, followed by ``display.close()``.

    Parameters
    ----------
    step : array (n,) of int, default=()
        Steps so far.
    loss : array (n,), default=()
        Their loss.
    validation : array (n,), default=None
        Loss of held-out rows.
    best : int, default=None
        The step that was chosen; None is the one of least validation loss, or of least loss.
    screen : {"auto", "notebook", "terminal", "none"}, default="auto"
        Where to show it live.
    labels : dict, default=None
        Other texts for "step", "loss", "validation", "least", "best".

    Attributes
    ----------
    line_, validation_line_, least_line_, best_point_ : artists
        None if not drawn.
    ax_, figure_ : Axes, Figure
        Where they are drawn.

    *Empty rows*: a NaN or an infinite loss leaves a gap. *Cost*: O(n) for every picture, a few pictures a second.

    >>> display = TrainingCurveDisplay(screen="none")
    >>> for step, loss in enumerate([3.0, 1.0, 2.0], 1):
    ...     display.update(step, loss)
    >>> display.plot().best
    2
    """

    _LABELS: ClassVar[dict[str, str]] = {
        "step": "step",
        "evaluation": "evaluation",
        "epoch": "epoch",
        "loss": "loss",
        "train": "training",
        "validation": "held-out rows",
        "least": "least so far",
        "best": "chosen: {loss} at {step}",
    }

    line_: Line2D
    validation_line_: Line2D | None
    least_line_: Line2D | None
    best_point_: Line2D | None

    def __init__(
        self,
        step: ArrayLike = (),
        loss: ArrayLike = (),
        validation: ArrayLike | None = None,
        *,
        best: int | None = None,
        screen: str = "auto",
        labels: Labels | None = None,
    ) -> None:
        super().__init__(labels)
        self.step: list[int] = [int(number) for number in column("step", step)]
        self.loss: list[float] = column("loss", loss, "step", len(self.step)).tolist()
        given = [np.nan] * len(self.step) if validation is None else validation
        self.validation: list[float] = column("validation", given, "step", len(self.step)).tolist()
        if best is not None and best not in self.step:
            raise ValueError(f"best must be one of the steps, got {best!r}")
        self._best, self._kind = best, "step"
        self._screen: Screen | None = None
        if screen not in SCREENS:
            raise ValueError(f"screen must be one of {', '.join(map(repr, SCREENS))}, got {screen!r}")
        self._wanted = screen

    @classmethod
    def from_estimator(cls, estimator: Any, *, labels: Labels | None = None, ax: Axes | None = None) -> Self:
        """The training of a fitted estimator: its ``history_`` by epochs, or its ``search_`` by evaluations.

        Parameters
        ----------
        estimator : estimator
            Fitted.
        labels : dict, default=None
            As in the class.
        ax : Axes, default=None
            Where to draw; None is a new figure.

        Returns
        -------
        TrainingCurveDisplay
        """
        display = cls(screen="none", labels=labels)
        display._load(estimator)
        if not display.step:
            raise TypeError(
                f"estimator must have history_ or search_ (something learned), got {type(estimator).__name__}"
            )
        return display.plot(ax)

    @property
    def best(self) -> int | None:
        """The chosen step; None before any finite loss."""
        if self._best is not None:
            return self._best
        judged = self.validation if self._held else self.loss
        finite = [(value, step) for value, step in zip(judged, self.step, strict=True) if np.isfinite(value)]
        return min(finite)[1] if finite else None

    def update(self, step: int, loss: float, validation: float | None = None) -> None:
        """Append a step, and redraw if an update is due.

        Parameters
        ----------
        step : int
            Number of the step.
        loss : float
            Its loss.
        validation : float, default=None
            Loss of held-out rows.
        """
        self.step.append(int(step))
        self.loss.append(float(loss))
        self.validation.append(np.nan if validation is None else float(validation))
        self._best = None
        if self._screen is None:
            self._screen = opened(self._wanted)
        self._screen.show(self)

    def __call__(self, step: int, loss: float, done: float | None = None) -> None:  # noqa: ARG002
        """As a ``progress`` function: append an evaluation; the share of work done is ignored."""
        self._kind = "evaluation"
        self.update(step, loss)

    def close(self) -> Self:
        """Draw the final figure and end the live output.

        Returns
        -------
        self
        """
        if self.step:
            self.plot(getattr(self, "ax_", None))
        if self._screen is not None:
            self._screen.close(self)
            self._screen = NoScreen()
        return self

    def setup(self, estimator: Any, context: Any) -> None:  # noqa: ARG002
        """scikit-learn callback: ``fit`` begins.

        Parameters
        ----------
        estimator : estimator
            The estimator that is fitted.
        context : CallbackContext
            Of scikit-learn.
        """
        self.step, self.loss, self.validation, self._best, self._screen = [], [], [], None, None
        self._kind = "epoch" if hasattr(estimator, "max_iter") else "evaluation"

    def on_fit_task_begin(self, estimator: Any, context: Any, **context_options: Any) -> None:
        """scikit-learn callback: nothing to do.

        Parameters
        ----------
        estimator : estimator
            The estimator that is fitted.
        context : CallbackContext
            Of scikit-learn.
        **context_options : dict
            Not used.
        """

    def on_fit_task_end(self, estimator: Any, context: Any, *, metadata: Any = None, **context_options: Any) -> bool:  # noqa: ARG002
        """scikit-learn callback: a step of ``fit`` ended.

        Parameters
        ----------
        estimator : estimator
            The estimator that is fitted.
        context : CallbackContext
            Of scikit-learn.
        metadata : dict, default=None
            Its "criterion" is the step's loss.
        **context_options : dict
            Not used.

        Returns
        -------
        bool
            False: ``fit`` goes on.
        """
        if metadata and "criterion" in metadata:
            self.update(len(self.step) + 1, metadata["criterion"])
        return False

    def teardown(self, estimator: Any, context: Any) -> None:  # noqa: ARG002
        """scikit-learn callback: ``fit`` ended; its ``history_`` holds more than the callbacks received.

        Parameters
        ----------
        estimator : estimator
            The estimator that was fitted.
        context : CallbackContext
            Of scikit-learn.
        """
        history = getattr(estimator, "history_", None)
        if history is not None and len(history.loss) == len(self.step):
            self._load(estimator)
        self.close()

    def plot(self, ax: Axes | None = None) -> Self:
        # Axes of an earlier call are cleared first.
        again = ax is not None and ax is getattr(self, "ax_", None)
        ax = self._on(ax, 6.4, 3.6)
        if again:
            ax.clear()
            style.dress(ax)
        step, loss, validation = np.array(self.step), _finite(self.loss), _finite(self.validation)
        self.validation_line_ = self.least_line_ = self.best_point_ = None
        few = len(step) <= 60
        (self.line_,) = ax.plot(
            step,
            loss,
            color=style.BLUE,
            linewidth=1.3,
            # A search jumps: a line between its evaluations would have no meaning.
            linestyle="none" if self._kind == "evaluation" else "-",
            marker="o",
            markersize=4.0 if few else 2.8,
            markeredgewidth=0,
            alpha=0.85 if self._held else 0.6,
            label=self.labels["train" if self._held else "loss"],
        )
        if self._held:
            (self.validation_line_,) = ax.plot(
                step, validation, color=style.VERMILION, linewidth=2.2, linestyle="--", label=self.labels["validation"]
            )
        elif np.isfinite(loss).any():
            least = np.fmin.accumulate(loss)
            (self.least_line_,) = ax.plot(
                step,
                least,
                color=style.VERMILION,
                linewidth=2.2,
                drawstyle="steps-post",
                label=self.labels["least"],
            )
        shown = np.concatenate([loss, validation])
        shown = shown[np.isfinite(shown)]
        logarithmic = shown.size and shown.min() > 0.0 and shown.max() > MIN_RATIO_FOR_LOG_AXIS * shown.min()
        ax.set_yscale("log" if logarithmic else "linear")
        if shown.size:
            ax.set_ylim(*(np.exp(limits(np.log(shown))) if logarithmic else limits(shown)))
        if (best := self.best) is not None:
            height = (validation if self._held else loss)[self.step.index(best)]
            chosen = self._label("best", loss=short(height), step=f"{self.labels[self._kind]} {best}")
            (self.best_point_,) = ax.plot([best], [height], "o", color=style.INK, markersize=7, zorder=5, label=chosen)
        ax.set(xlabel=self.labels[self._kind], ylabel=self.labels["loss"])
        ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        if self.step:
            style.legend(ax, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.2)
        return self

    @property
    def _held(self) -> bool:
        """Whether there are held-out rows."""
        return bool(np.isfinite(self.validation).any())

    def _load(self, estimator: Any) -> None:
        """Take the losses from a fitted estimator."""
        history, search = getattr(estimator, "history_", None), getattr(estimator, "search_", None)
        if history is not None:
            self._kind, self.loss = "epoch", np.asarray(history.loss, np.float64).tolist()
            held = history.validation
            self.validation = [np.nan] * len(self.loss) if held is None else np.asarray(held, np.float64).tolist()
            self._best = history.best + 1
        elif search is not None:
            self._kind, self.loss = "evaluation", np.asarray(search.path, np.float64).tolist()
            self.validation = [np.nan] * len(self.loss)
        self.step = list(range(1, len(self.loss) + 1))


def _finite(numbers: list[float]) -> Any:
    """Numbers (n,), NaN if not finite."""
    array = np.array(numbers, np.float64)
    return np.where(np.isfinite(array), array, np.nan)
