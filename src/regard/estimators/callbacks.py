"""Progress of ``fit``: reported to scikit-learn's callbacks, and shown as a bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ModuleNotFoundError:  # scikit-learn before 1.9 has no callbacks

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Without callbacks."""

    def with_callbacks(method: Any) -> Any:
        return method


__all__ = ["CallbackSupportMixin", "callback_progress", "progress_bar", "with_callbacks"]


class EvaluationProgress(Protocol):
    """Called after every evaluation of a search; ``done`` is the fraction of the planned work, if it is known."""

    def __call__(self, evaluation: int, value: float, done: float | None = None) -> None: ...


@contextmanager
def callback_progress(estimator: Any) -> Iterator[EvaluationProgress | None]:
    """A progress function that reports every evaluation to the estimator's callbacks; None if it has none.

    Each evaluation is a task of its own, with ``metadata={"criterion": value, "done": fraction or None}``. A callback
    that returns True stops the search, which keeps the best parameters so far.
    """
    if not getattr(estimator, "_skl_callbacks", None):
        yield None
        return
    context = estimator._init_callback_context(max_subtasks=None)
    context.call_on_fit_task_begin(estimator=estimator)

    def progress(evaluation: int, value: float, done: float | None = None) -> None:
        task = context.subcontext(task_name=f"evaluation {evaluation}")
        task.call_on_fit_task_begin(estimator=estimator)
        if task.call_on_fit_task_end(estimator=estimator, metadata={"criterion": value, "done": done}):
            raise KeyboardInterrupt

    yield progress
    context.call_on_fit_task_end(estimator=estimator)


@contextmanager
def progress_bar(wanted: bool, what: str, total: int) -> Iterator[Callable[[int, float], None] | None]:
    """A progress function that advances a bar of ``total`` steps on stderr; None if not ``wanted``."""
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
        TextColumn("{task.fields[status]}", markup=False),
    )
    with Bar(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(what, total=total, status="")

        def progress(step: int, value: float) -> None:
            shown.update(task, completed=step, status=f"error {value:.4g}")

        yield progress
