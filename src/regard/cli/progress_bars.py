"""Progress bars on a terminal, for fitting (through scikit-learn's callbacks) and for reading a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any

from regard.cli.console import one_line, spinner

Update = Callable[..., None]  # with visible, total, completed and status, the text beside the bar


class SearchBarCallback:
    """A ``sklearn.callback.FitCallback`` that shows the criterion of every evaluation, and the smallest so far."""

    def __init__(self, update: Update) -> None:
        self._update = update
        self._smallest = math.inf
        self._count = 0
        # Time and fraction done at the first evaluation: what comes before it says nothing about the search.
        self._first: tuple[float, float] | None = None

    def setup(self, estimator: Any, context: Any) -> None:  # noqa: ARG002
        self._update(visible=True)

    def teardown(self, estimator: Any, context: Any) -> None:
        """Nothing to do: the bar closes with its block, also after an error."""

    def on_fit_task_begin(self, estimator: Any, context: Any, **kwargs: Any) -> None:
        """Nothing to do: evaluations are too short to report their start."""

    def on_fit_task_end(self, estimator: Any, context: Any, *, metadata: Any = None, **kwargs: Any) -> bool:  # noqa: ARG002
        if metadata and "criterion" in metadata:
            value = float(metadata["criterion"])
            self._count += 1
            self._smallest = min(self._smallest, value)
            status = f"error {value:.3g}, least {self._smallest:.3g}"
            done = metadata.get("done")
            if done:
                now = monotonic()
                began, before = self._first = self._first or (now, done)
                if done > before:
                    status += f", about {time_left((now - began) * (1.0 - done) / (done - before))} left"
            self._update(total=1.0 if done else None, completed=done or self._count, status=status)
        return False


def time_left(seconds: float) -> str:
    """A duration in seconds or minutes, as text."""
    return f"{seconds:.0f} s" if seconds < 100.0 else f"{seconds / 60.0:.0f} min"


@contextmanager
def fitting_bar(model: Any, what: str) -> Iterator[None]:
    """Show a bar while ``model.fit`` runs in the block; the model handles Ctrl-C itself."""
    # Older versions of scikit-learn have no callbacks: a spinner is shown instead.
    with progress_bar(what, quiet=not hasattr(model, "set_callbacks"), visible=False) as update:
        if update is None:
            with spinner(what):
                yield
            return
        model.set_callbacks(SearchBarCallback(update))
        try:
            yield
        finally:
            model.set_callbacks()


@contextmanager
def reading_bar(what: str, *, quiet: bool = False) -> Iterator[Callable[[float | None, int], None]]:
    """Show a bar while a table is read; yields a function of the fraction done (None if unknown) and the rows read."""
    with progress_bar(what, quiet=quiet) as update:

        def advance(fraction: float | None, rows: int) -> None:
            if update is not None:
                update(total=None if fraction is None else 1.0, completed=fraction or 0.0, status=f"{rows:,} rows")

        yield advance


@contextmanager
def progress_bar(
    what: str, *, quiet: bool = False, visible: bool = True, elapsed: bool = True
) -> Iterator[Update | None]:
    """Show a bar with a text beside it until the block ends; yields None if ``quiet`` or not on a terminal.

    With ``visible=False`` nothing is drawn before ``update(visible=True)``: a model may have nothing to search. With
    ``elapsed`` the time so far is shown too.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=10),
        *([TimeElapsedColumn()] if elapsed else []),
        TextColumn("{task.fields[status]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as shown:
        yield partial(shown.update, shown.add_task(one_line(what), total=None, visible=visible, status=""))
