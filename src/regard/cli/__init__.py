"""The command ``regard``: fit, predict, attend, diagnose, tour, play, bench. It parses, calls the library and prints.

Results go to standard output or to the file given by ``--out``; everything else (summaries, progress, warnings, errors)
goes to standard error, errors as one line that starts with ``regard:``. Exit codes:

    0    success
    1    a bug in regard; the line says what to report
    2    invalid input or usage
    130  stopped by Ctrl-C; no output file is left half-written
    141  the output pipe was closed (as by ``| head``); nothing is printed

While ``fit`` learns, Ctrl-C stops the search, and the command goes on with the best model so far, if there is one.
Output files appear whole or not at all; one that exists, or is a symbolic link, is replaced only with ``--force``.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; ``arguments`` default to those of the process."""
    try:
        try:
            return _run(sys.argv[1:] if arguments is None else list(arguments))
        except KeyboardInterrupt:
            return _stopped(ends=arguments is None)
    except KeyboardInterrupt:
        # Pressed a second time before it is ignored.
        return _stopped(ends=arguments is None)


def _run(arguments: Sequence[str]) -> int:
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as reason:
        print(f"regard: the command needs {reason.name}; run pip install 'regard[cli]'", file=sys.stderr)
        return 2
    from regard.cli.commands import run

    return run(arguments)


def _stopped(*, ends: bool) -> int:
    """The exit code after Ctrl-C. ``ends``: the process ends too, and ignores further Ctrl-C."""
    if ends:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("regard: stopped", file=sys.stderr)
    return 130
