"""Progress of a search through scikit-learn's callbacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ModuleNotFoundError:  # scikit-learn before 1.9 has none

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing to set."""

    def with_callbacks(method: Any) -> Any:
        return method


__all__ = ["CallbackSupportMixin", "watched", "with_callbacks"]


class Progress(Protocol):
    """Told of every evaluation of a search; ``done`` is the share of the work planned, where a search has a plan."""

    def __call__(self, evaluation: int, value: float, done: float | None = None) -> None: ...


@contextmanager
def watched(estimator: Any) -> Iterator[Progress | None]:
    """A progress function that tells the estimator's callbacks of every evaluation; None where there are none.

    Each evaluation is a task of its own, with ``metadata={"criterion": value, "done": share of the work planned or
    None}``. A callback that returns True stops the search, and the best so far is kept.
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
