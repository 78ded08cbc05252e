"""Progress of long computations: a callback receives how many of the jobs are done.

    with regard.watching(lambda done, total: print(f"{done} of {total}", end="\\r")):
        regard.pool(query, key, value, score)

Work is split into jobs of a few milliseconds to a second, so Ctrl-C takes effect between two jobs, with or without a
callback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ProgressCallback = Callable[[int, int], None]

_callback: ContextVar[ProgressCallback | None] = ContextVar("regard_progress_callback", default=None)


@contextmanager
def watching(callback: ProgressCallback) -> Iterator[None]:
    """Call ``callback(done, total)`` after every job in this block, from the thread that started the work.

    Work in several rounds (far queries, rows computed again) counts from zero in each. An exception raised by
    ``callback`` stops the work, as Ctrl-C does.

    Parameters
    ----------
    callback : callable (done, total)
        Called after every job with the number of jobs done and their total.

    Yields
    ------
    Nothing; it is a context manager.

    >>> from regard import pool
    >>> from regard.scores import Gaussian
    >>> shares = []
    >>> with watching(lambda done, total: shares.append(done / total)):
    ...     answer = pool([0.0] * 99, [0.0] * 999, [1.0] * 999, Gaussian())
    >>> shares[-1]
    1.0
    """
    before = _callback.set(callback)
    try:
        yield
    finally:
        _callback.reset(before)


def progress_callback() -> ProgressCallback | None:
    """The callback of the innermost ``watching`` block, if any."""
    return _callback.get()
