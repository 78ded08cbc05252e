"""How the command ends: pipes, Ctrl-C, bugs, what the machine refuses (lines 79 and 80 of the list)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from regard.cli import main
from support.command import files, predictions, refused, rows, trained

COMMAND = [sys.executable, "-m", "regard.cli"]


# ---- in a process of its own


def process(*arguments: str, unbuffered: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        # A shell may have its children ignore Ctrl-C.
        preexec_fn=restore_interrupt,
    )


def restore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted(running: subprocess.Popen[bytes]) -> int:
    """Exit code after Ctrl-C, pressed again if it fell into the instant before a process begins to wait."""
    for _ in range(10):
        running.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return running.wait(timeout=10)
    running.kill()
    return running.wait()


def test_the_whole_way_in_pipes(here: Path) -> None:
    fitting = process("fit", "-", "--target", "price", "--out", "m.regard")
    out, err = fitting.communicate(Path("houses.csv").read_bytes(), timeout=120)
    assert (fitting.returncode, out) == (0, b""), err
    assert b"60 rows of standard input" in err
    assert b"\x1b" not in err  # no spinner where there is no terminal
    predicting = process("predict", "m.regard", "-", "--out", "-")
    out, err = predicting.communicate(Path("houses.csv").read_bytes(), timeout=120)
    assert (predicting.returncode, err) == (0, b"")
    # Products of matrices round as the memory of their arrays is aligned.
    expected = pytest.approx(predictions("m.regard").tolist(), rel=1e-13)
    assert [float(row["price"]) for row in rows(out.decode())] == expected


@pytest.mark.parametrize(("lines", "unbuffered"), [(3, ""), (20_000, ""), (20_000, "1")])
def test_79_a_closed_pipe_ends_quietly(lines: int, unbuffered: str, here: Path, capfd) -> None:
    Path("xy.csv").write_text("x,y\n0,1\n1,2\n3,4\n")
    model = trained(capfd, "xy.csv", "y")
    Path("many.csv").write_text("x\n" + "".join(f"{i / 7000}\n" for i in range(lines)))
    with process("predict", model, "many.csv", unbuffered=unbuffered) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        # Many lines are more than a pipe holds: the command is still writing. Few are not yet written at all.
        if lines > 1000:
            assert running.stdout.readline() == b"y\n"
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 141


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_80_ctrl_c_leaves_no_output(command: str, here: Path, model: str, capfd) -> None:
    Path("out.csv").write_text("precious")
    before = files(here)
    arguments = {
        "fit": ["fit", "-", "--target", "price", "--out", "out.csv", "--force"],
        "predict": ["predict", model, "-", "--out", "out.csv", "--force"],
    }[command]
    running = process(*arguments)
    assert running.stdin is not None
    header, first = Path("houses.csv").read_bytes().split(b"\n")[:2]
    # More than a pipe holds: once it is all written, the command is surely reading.
    running.stdin.write(header + b"\n" + (first + b"\n") * 5_000)
    running.stdin.flush()
    assert interrupted(running) == 130
    out, err = running.communicate()
    assert (out, err) == (b"", b"regard: stopped\n")
    assert Path("out.csv").read_text() == "precious"
    assert files(here) == before


# Ctrl-C in the middle of writing, and again at another moment of the way out.
TWICE = r"""
import atexit, os, pathlib, signal, sys
import regard.cli

def press(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)

def again(real):
    presses = [press]
    def pressed(*given, **options):
        while presses:
            presses.pop()()
        return real(*given, **options)
    return pressed

class Last:
    def __del__(self, press=press):
        press()

moment, sys.argv[1:] = sys.argv[1], sys.argv[2:]
os.fsync = press
if moment == "while the part is removed":
    pathlib.Path.unlink = again(pathlib.Path.unlink)
elif moment == "while it says so":
    sys.stderr.write = again(sys.stderr.write)
elif moment == "at exit":
    atexit.register(press)
else:
    sys.modules["last"] = Last()
sys.exit(regard.cli.main())
"""


@pytest.mark.parametrize(
    "moment", ["while the part is removed", "while it says so", "at exit", "when the interpreter ends"]
)
def test_ctrl_c_twice_ends_as_once(moment: str, here: Path, model: str) -> None:
    before = files(here)
    ended = subprocess.run(
        [sys.executable, "-c", TWICE, moment, "predict", model, "houses.csv", "--out", "p.csv"],
        capture_output=True,
        timeout=120,
        preexec_fn=restore_interrupt,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"regard: stopped\n")
    assert files(here) == before


# ---- in this process


def test_80_ctrl_c_while_writing(here: Path, model: str, capfd, monkeypatch) -> None:
    before = files(here)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    assert main(["predict", model, "houses.csv", "--out", "p.csv"]) == 130
    assert capfd.readouterr().err == "regard: stopped\n"
    assert files(here) == before


def test_a_bug_is_one_line_too(here: Path, capfd, monkeypatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("a bug\nof two lines")

    monkeypatch.setattr("regard.data.read_table", broken)
    assert main(["fit", "houses.csv", "--target", "price", "--out", "m.regard"]) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("regard: a bug in regard")


@pytest.mark.parametrize(
    ("error", "words"),
    [(MemoryError(), "not enough memory"), (OSError(28, "No space left on device"), "No space left on device")],
)
def test_what_the_machine_refuses(error: Exception, words: str, here: Path, capfd, monkeypatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("regard.data.read_table", failing)
    assert words in refused(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard")
