"""A bar while a network learns, on request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from regard.bandwidth.search import Progress


@contextmanager
def bar(wanted: bool, what: str, total: int) -> Iterator[Progress | None]:
    """A progress function that moves a bar of ``total`` steps on stderr; None where none is wanted."""
    if not wanted:
        yield None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "progress=True draws its bar with rich, which is not installed; pip install 'regard[cli]' brings it",
            name=missing.name,
        ) from missing
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[told]}", markup=False),
    )
    with Bar(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(what, total=total, told="")

        def progress(step: int, value: float) -> None:
            shown.update(task, completed=step, told=f"error {value:.4g}")

        yield progress
