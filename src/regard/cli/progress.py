"""A bar while a model learns, through scikit-learn's callbacks, or walks through a table; on a terminal only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from regard.cli.console import clean, working


class Watcher:
    """A ``sklearn.callback.FitCallback`` that shows the criterion of every evaluation, and the least so far."""

    def __init__(self, bar: Any, what: str) -> None:
        self._bar, self._what = bar, what
        self._task: Any = None
        self._least = math.inf
        self._count = 0
        self._began = monotonic()

    def setup(self, estimator: Any, context: Any) -> None:  # noqa: ARG002
        self._task = self._bar.add_task(self._what, total=None, told="")

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
                # Walks end early more often than not: this is the longest it should take.
                left = (monotonic() - self._began) * (1.0 - done) / done
                told_now += f", < {_seconds(left)}"
            self._bar.update(self._task, total=1.0 if done else None, completed=done or self._count, told=told_now)
        return False


def _seconds(left: float) -> str:
    return f"{left:.0f} s" if left < 100.0 else f"{left / 60.0:.0f} min"


@contextmanager
def learning(model: Any, what: str) -> Iterator[None]:
    """A bar while ``model.fit`` runs in the block; Ctrl-C is the model's to catch."""
    from rich.console import Console

    console = Console(stderr=True)
    if not (console.is_terminal and hasattr(model, "set_callbacks")):
        # An older scikit-learn has no callbacks; then a spinner turns.
        with working(what):
            yield
        return
    with bar_on(console) as bar:
        model.set_callbacks(Watcher(bar, clean(what)))
        try:
            yield
        finally:
            model.set_callbacks()


@contextmanager
def walking(what: str, *, quiet: bool = False) -> Iterator[Callable[[float | None, int], None]]:
    """A bar while a table is walked through; tell it the share of the table done, None if not known, and the rows."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _share, _rows: None
        return
    with bar_on(console) as bar:
        task = bar.add_task(clean(what), total=None, told="")

        def walk(share: float | None, rows: int) -> None:
            bar.update(task, total=None if share is None else 1.0, completed=share or 0.0, told=f"{rows:,} rows")

        yield walk


def bar_on(console: Any) -> Any:
    """A bar with a text beside it, field ``told``, which goes when it is done."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=10),
        TimeElapsedColumn(),
        TextColumn("{task.fields[told]}", markup=False),
    )
    return Progress(*columns, console=console, transient=True)
