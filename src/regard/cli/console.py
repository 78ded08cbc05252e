"""Printing to standard error and standard output; control characters in data never reach a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def say(text: str) -> None:
    """Print one line to standard error, with control characters escaped."""
    print(one_line(text), file=sys.stderr)


def one_line(text: str) -> str:
    r"""Text on one line, with control characters escaped.

    >>> one_line("a\nb\x1b[2J")
    'a b\\x1b[2J'
    """
    return escaped(" ".join(text.split("\n")))


def escaped(text: str) -> str:
    r"""Text with its control characters escaped.

    >>> escaped("a\nb\x1b[2J")
    'a\\nb\\x1b[2J'
    """
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def write_output(text: str) -> None:
    """Print lines to standard output, on a terminal with control characters escaped."""
    print("\n".join(map(escaped, text.split("\n"))) if on_terminal() else text)


def write_json(value: Any, **options: Any) -> None:
    """Print a value as JSON to standard output, on a terminal with control characters escaped as in JSON."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, **options)
    if on_terminal():
        text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    print(text)


@contextmanager
def spinner(what: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner while the block runs, on a terminal only; it yields a function that changes the text beside it."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(Text(one_line(what))) as status:
        yield lambda changed: status.update(Text(one_line(changed)))
