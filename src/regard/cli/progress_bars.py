"""A bar while a model learns, through scikit-learn's callbacks, or while a table is read; on a terminal only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any

from regard.cli.console import clean, working

Update = Callable[..., None]  # with visible, total, completed and told, the text beside the bar


class Watcher:
    """A ``sklearn.callback.FitCallback`` that shows the criterion of every evaluation, and the least so far."""

    def __init__(self, update: Update) -> None:
        self._update = update
        self._least = math.inf
        self._count = 0
        self._began = monotonic()

    def setup(self, estimator: Any, context: Any) -> None:  # noqa: ARG002
        self._update(visible=True)

    def teardown(self, estimator: Any, context: Any) -> None:
        """The bar closes with its block, also where learning failed."""

    def on_fit_task_begin(self, estimator: Any, context: Any, **told: Any) -> None:
        """Evaluations are too short to announce."""

    def on_fit_task_end(self, estimator: Any, context: Any, *, metadata: Any = None, **told: Any) -> bool:  # noqa: ARG002
        if metadata and "criterion" in metadata:
            value = float(metadata["criterion"])
            self._count += 1
            self._least = min(self._least, value)
            told_now = f"error {value:.3g}, least {self._least:.3g}"
            done = metadata.get("done")
            if done:
                # Searches end early more often than not: this is the longest it should take.
                left = (monotonic() - self._began) * (1.0 - done) / done
                told_now += f", < {time_left(left)}"
            self._update(total=1.0 if done else None, completed=done or self._count, told=told_now)
        return False


def time_left(seconds: float) -> str:
    """Seconds or minutes, for people."""
    return f"{seconds:.0f} s" if seconds < 100.0 else f"{seconds / 60.0:.0f} min"


@contextmanager
def learning(model: Any, what: str) -> Iterator[None]:
    """A bar while ``model.fit`` runs in the block; Ctrl-C is the model's to catch."""
    # An older scikit-learn has no callbacks; then a spinner turns.
    with bar(what, quiet=not hasattr(model, "set_callbacks"), visible=False) as update:
        if update is None:
            with working(what):
                yield
            return
        model.set_callbacks(Watcher(update))
        try:
            yield
        finally:
            model.set_callbacks()


@contextmanager
def walking(what: str, *, quiet: bool = False) -> Iterator[Callable[[float | None, int], None]]:
    """A bar while a table is read; call it with the share of the table done, None if not known, and the rows."""
    with bar(what, quiet=quiet) as update:

        def walk(share: float | None, rows: int) -> None:
            if update is not None:
                update(total=None if share is None else 1.0, completed=share or 0.0, told=f"{rows:,} rows")

        yield walk


@contextmanager
def bar(what: str, *, quiet: bool = False, visible: bool = True) -> Iterator[Update | None]:
    """A bar with a text beside it, which goes when the block ends; None if ``quiet`` or not on a terminal.

    ``visible=False`` draws nothing before ``update(visible=True)``: a model may have nothing to search for.
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
        TimeElapsedColumn(),
        TextColumn("{task.fields[told]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as shown:
        yield partial(shown.update, shown.add_task(clean(what), total=None, visible=visible, told=""))
