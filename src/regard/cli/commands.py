"""The table of commands, and the one place where results and errors become exit codes.

Each command is a module with a frozen dataclass. Typer reads its fields as arguments and options and its docstring as
help, and makes one; ``__post_init__`` checks it, and ``run`` then calls ``.run()`` on it.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from regard import __version__
from regard.cli import translate
from regard.cli.attend_command import Attend
from regard.cli.bench_command import Bench
from regard.cli.console import say
from regard.cli.diagnose_command import Diagnose
from regard.cli.fit_command import Fit
from regard.cli.play_command import Play
from regard.cli.predict_command import Predict
from regard.cli.tour_command import Tour

EXIT_CODES = (
    "Exit codes: 0 success; 1 a bug in regard; 2 invalid input or usage; 130 stopped by Ctrl-C; 141 the output pipe "
    "was closed."
)

app = typer.Typer(
    name="regard",
    help="Attention pooling as a practical tool: values pooled with weights from a score of query and key.",
    epilog=EXIT_CODES,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (Fit, Predict, Attend, Diagnose, Tour, Play, Bench):
    app.command(command.__name__.lower(), epilog=EXIT_CODES)(command)
app.add_typer(translate.app, name="translate")
# Help fits the terminal: only empty lines of a docstring separate paragraphs.
for registered in (*app.registered_commands, *translate.app.registered_commands):
    registered.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(registered.callback) or "")

# The base class of all usage errors: newer versions of typer contain click, older ones import it.
_UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def _version(requested: bool) -> None:
    if requested:
        print(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def run(arguments: Sequence[str]) -> int:
    """Parse, run, and return the exit code. Raises nothing but KeyboardInterrupt."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = _show_warning
        try:
            command = _parsed(arguments)
            if isinstance(command, int):
                return command
            command.run()
            if sys.stdout is not None:
                sys.stdout.flush()
            return 0
        except BrokenPipeError:
            _discard_stdout()
            return 141
        except ModuleNotFoundError as reason:
            if str(reason.name).startswith("regard"):
                return _bug(reason)
            say(f"regard: {reason.name} is not installed; run pip install 'regard[cli]'")
        except MemoryError:
            say("regard: not enough memory")
        except (ValueError, OSError) as reason:
            say(f"regard: {reason}")
        except Exception as reason:
            return _bug(reason)
        return 2


def _parsed(arguments: Sequence[str]) -> Any:
    """The command with its checked arguments, or an exit code if typer has already printed help or the version."""
    try:
        found = typer.main.get_command(app).main(
            args=list(arguments) or ["--help"], prog_name="regard", standalone_mode=False
        )
    except _UsageError as reason:
        context = getattr(reason, "ctx", None)
        about = context.command_path if context is not None else "regard"
        raise ValueError(f"{reason.format_message()} (see {about} --help)") from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    return found if found is not None else 0


def _bug(reason: Exception) -> int:
    say(f"regard: a bug in regard {__version__}, please report it: {type(reason).__name__}: {reason}")
    return 1


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    say(f"regard: warning: {message}")


def _discard_stdout() -> None:
    """Discard what is still in the buffer, or Python would report an error at exit."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
