"""Live output of a growing curve: in a notebook, in a terminal, or none.

``show(display)`` is called at every step and ``close(display)`` at the end; a screen decides how often to redraw.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import pairwise
from time import monotonic
from typing import Any

from regard.plot.display import short

SPARKLINE_BARS = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH = 40
SECONDS_BETWEEN_NOTEBOOK_UPDATES = 0.3
SECONDS_BETWEEN_TERMINAL_UPDATES = 0.1

SCREENS = ("auto", "notebook", "terminal", "none")


class Screen:
    """Draws a growing curve at most once in ``pause`` seconds, and at the end."""

    def __init__(self, pause: float = math.inf) -> None:
        self._pause, self._next = pause, 0.0

    def show(self, display: Any) -> None:
        if monotonic() >= self._next:
            self._draw(display)
            self._next = monotonic() + self._pause

    def close(self, display: Any) -> None:
        self._draw(display)

    def _draw(self, display: Any) -> None: ...


class NoScreen(Screen):
    """No live output, as in a script."""


class Notebook(Screen):
    """One output cell whose figure is replaced."""

    def __init__(self) -> None:
        super().__init__(SECONDS_BETWEEN_NOTEBOOK_UPDATES)
        self._handle: Any = None

    def _draw(self, display: Any) -> None:
        from IPython.display import display as to_cell  # type: ignore[import-not-found,unused-ignore]

        figure = display.plot(getattr(display, "ax_", None)).figure_
        if self._handle is None:
            self._handle = to_cell(figure, display_id=True)
        else:
            self._handle.update(figure)


class Terminal(Screen):
    """One line that is overwritten: a sparkline, the last loss and the least."""

    def __init__(self, console: Any) -> None:
        super().__init__(SECONDS_BETWEEN_TERMINAL_UPDATES)
        self._console = console

    def close(self, display: Any) -> None:
        super().close(display)
        self._console.print()

    def _draw(self, display: Any) -> None:
        from rich.control import Control
        from rich.segment import ControlType
        from rich.text import Text

        self._console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
        self._console.print(Text(line_of(display.loss)), end="", no_wrap=True, overflow="crop", highlight=False)


def opened(which: str) -> Screen:
    """The screen of that name; "auto" picks the one available."""
    if which == "notebook" or (which == "auto" and _in_notebook()):
        return Notebook()
    if which == "terminal" or which == "auto":
        console = _console()
        if console is not None and (which == "terminal" or console.is_terminal):
            return Terminal(console)
        if which == "terminal":
            raise ModuleNotFoundError(
                "screen='terminal' needs rich, which is not installed; install it with pip install 'regard[cli]'"
            )
    return NoScreen()


def line_of(loss: Sequence[float]) -> str:
    """Step, sparkline, last and least loss in one line.

    >>> line_of([3.0, 2.0, 1.0])
    'step 3  █▄▁  loss 1, least 1'
    """
    finite = [value for value in loss if math.isfinite(value)]
    if not finite:
        return f"step {len(loss)}"
    return f"step {len(loss)}  {sparkline(finite)}  loss {short(loss[-1])}, least {short(min(finite))}"


def sparkline(numbers: Sequence[float], width: int = SPARKLINE_WIDTH) -> str:
    """Finite numbers as small bars, each the mean of a run of them.

    >>> sparkline([0.0, 1.0, 7.0])
    '▁▂█'
    """
    count = min(width, len(numbers))
    edges = [i * len(numbers) // count for i in range(count + 1)]
    means = [sum(numbers[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    step = (high - low) / (len(SPARKLINE_BARS) - 1) or 1.0
    return "".join(SPARKLINE_BARS[int((mean - low) / step)] for mean in means)


def _in_notebook() -> bool:
    """Whether this runs in a notebook kernel."""
    if "IPython" not in sys.modules:
        return False
    shell = getattr(sys.modules["IPython"], "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def _console() -> Any:
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return None
    return Console(stderr=True)
