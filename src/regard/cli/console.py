"""What the command says to people: on standard error, or on a terminal; what came from files moves no cursor there."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def say(text: str) -> None:
    """One line on standard error; control characters that came with the data are shown, not obeyed."""
    print(clean(text), file=sys.stderr)


def clean(text: str) -> str:
    r"""Text that stays on its line and moves no cursor.

    >>> clean("a\nb\x1b[2J")
    'a b\\x1b[2J'
    """
    return visible(" ".join(text.split("\n")))


def visible(text: str) -> str:
    r"""Text whose control characters are shown, not obeyed.

    >>> visible("a\nb\x1b[2J")
    'a\\nb\\x1b[2J'
    """
    return "".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in text)


def on_terminal() -> bool:
    """Whether standard output is read by a person."""
    return sys.stdout is not None and sys.stdout.isatty()


def tell(text: str) -> None:
    """Lines on standard output: exactly these, or on a terminal with their control characters shown."""
    print("\n".join(map(visible, text.split("\n"))) if on_terminal() else text)


def tell_json(value: Any, **options: Any) -> None:
    """A value as JSON on standard output; on a terminal control characters are escaped as JSON has it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, **options)
    if on_terminal():
        text = "".join(mark if mark.isprintable() or mark == "\n" else json.dumps(mark)[1:-1] for mark in text)
    print(text)


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
