"""Progress of long work: whoever watches is told how many of the jobs are done.

    with regard.watching(lambda done, total: print(f"{done} of {total}", end="\\r")):
        regard.pool(query, key, value, score)

Work is cut into jobs of a few milliseconds to a second, so Ctrl-C is heard between two of them, watched or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Told = Callable[[int, int], None]

_watcher: ContextVar[Told | None] = ContextVar("regard_watcher", default=None)


@contextmanager
def watching(told: Told) -> Iterator[None]:
    """Call ``told(done, total)`` after every job in this block, from the thread that asked for the work.

    Work that goes in several rounds (far queries, rows done again) starts from the beginning in each. An exception that
    ``told`` raises stops the work, as Ctrl-C does.

    >>> from regard import pool
    >>> from regard.scores import Gaussian
    >>> seen = []
    >>> with watching(lambda done, total: seen.append(done / total)):
    ...     answer = pool([0.0] * 99, [0.0] * 999, [1.0] * 999, Gaussian())
    >>> seen[-1]
    1.0
    """
    before = _watcher.set(told)
    try:
        yield
    finally:
        _watcher.reset(before)


def watcher() -> Told | None:
    """Who is to be told, if anybody."""
    return _watcher.get()
