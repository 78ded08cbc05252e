"""What came from files moves no cursor: a terminal shows control characters, files and pipes have them as they are."""

from __future__ import annotations

import csv
import json
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from regard.cli import main
from regard.cli.console import write_json, write_output
from support.command import ok, refused

# Clears the screen, by ESC and by the one character that means the same; rings; goes back; turns the line round.
EVIL = "\x1b[2J\x9b2J\x07\x08\u202e\r\nend"
SHOWN = r"\x1b[2J\x9b2J\x07\x08\u202e\r\nend"


class Terminal:
    """Standard output on a terminal, and what stood there in the end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ours, theirs = os.openpty()
        self._stream = os.fdopen(theirs, "w", encoding="utf-8")
        monkeypatch.setattr(sys, "stdout", self._stream)

    def read(self) -> str:
        self._stream.close()
        found = b""
        with suppress(OSError):  # the other end is closed
            while more := os.read(self._ours, 1 << 16):
                found += more
        os.close(self._ours)
        return found.decode().replace("\r\n", "\n")


@pytest.fixture
def evil(here: Path, capfd) -> str:
    """A model of a target, and of classes, that are called so."""
    with open("evil.csv", "w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
            [["x", "kind" + EVIL], ["0", "a" + EVIL], ["1", "a" + EVIL], ["10", "b"], ["11", "b"]]
        )
    ok(capfd, "fit", "evil.csv", "--target", "kind" + EVIL, "--out", "m.regard", "--bandwidth", "1")
    return "m.regard"


@pytest.mark.parametrize("arguments", [["predict"], ["predict", "--interval", "0.5"], ["attend", "--top", "1"]])
def test_a_terminal_shows_what_it_would_obey(arguments: list[str], evil: str, monkeypatch) -> None:
    terminal = Terminal(monkeypatch)
    assert main([arguments[0], evil, "evil.csv", *arguments[1:]]) == 0
    out = terminal.read()
    assert all(mark.isprintable() for mark in out.replace("\n", ""))
    assert "a" + SHOWN in out
    assert ("kind" + SHOWN in out) == (arguments[0] == "predict")


@pytest.mark.parametrize(("command", "column"), [("predict", "kind" + EVIL), ("attend", "value")])
def test_files_and_pipes_are_exact(command: str, column: str, evil: str, capfd) -> None:
    ok(capfd, command, evil, "evil.csv", "--out", "out.csv")
    with open("out.csv", newline="", encoding="utf-8") as file:
        assert next(csv.DictReader(file))[column] == "a" + EVIL
    assert main([command, evil, "evil.csv"]) == 0
    assert capfd.readouterr().out.encode() == Path("out.csv").read_bytes()


def test_errors_are_one_visible_line(here: Path, evil: str, capfd) -> None:
    name = "kind" + EVIL
    for arguments in (
        ["fit", "evil.csv", "--target", "absent", "--out", "o.regard"],
        ["predict", evil, f"{EVIL}.csv"],
        ["fit", "evil.csv", "--target", "x", "--features", name + "?", "--out", "o.regard"],
        ["predict", f"{EVIL}.regard", "evil.csv"],
        ["diagnose", EVIL],
        ["nothing" + EVIL],
    ):
        err = refused(capfd, *arguments)
        assert all(mark.isprintable() for mark in err.removesuffix("\n")), arguments


def test_json_on_a_terminal_is_still_json(monkeypatch) -> None:
    terminal = Terminal(monkeypatch)
    write_json({"kind": EVIL + "数"}, indent=1)
    out = terminal.read()
    assert all(mark.isprintable() for mark in out.replace("\n", ""))
    assert json.loads(out) == {"kind": EVIL + "数"}
    assert "数" in out


def test_lines_stay_lines(monkeypatch) -> None:
    terminal = Terminal(monkeypatch)
    write_output("one\x1b[2J\ntwo")
    assert terminal.read() == "one\\x1b[2J\ntwo\n"
