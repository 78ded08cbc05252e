"""What the command says to people, always on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def say(text: str) -> None:
    """One line on standard error; control characters that came with the data are shown, not obeyed."""
    print(clean(text), file=sys.stderr)


def clean(text: str) -> str:
    r"""Text that stays on its line and moves no cursor.

    >>> clean("a\nb\x1b[2J")
    'a b\\x1b[2J'
    """
    joined = " ".join(text.split("\n"))
    return "".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in joined)


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """A spinner while the block runs, on a terminal only; what it yields changes the text beside it."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(Text(clean(what))) as status:
        yield lambda changed: status.update(Text(clean(changed)))
