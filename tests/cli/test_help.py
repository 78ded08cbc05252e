"""Help, version, what is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.cli import main
from support.command import ok, refused


def test_version(capfd) -> None:
    assert ok(capfd, "--version")[0] == f"regard {regard.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--help"],
        ["fit", "--help"],
        ["predict", "-h"],
        ["attend", "-h"],
        ["diagnose", "-h"],
        ["data", "-h"],
        ["tour", "-h"],
    ],
)
def test_help_documents_the_exit_codes(arguments: list[str], capfd) -> None:
    out = " ".join(ok(capfd, *arguments)[0].split())
    for words in ("0 success", "1 a bug", "2 invalid input or usage", "130 stopped by Ctrl-C", "141 the output pipe"):
        assert words in out


def test_an_unknown_command(capfd) -> None:
    assert "No such command 'dance'" in refused(capfd, "dance")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from regard.cli import main; main(['--help']); main(['fit', '--help'])\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'numba', 'polars', 'matplotlib', 'torch', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_extra(module: str, capfd, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert f"the command needs {module}; run pip install 'regard[cli]'" in refused(capfd, "--version")


def test_without_polars(here: Path, capfd, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    err = refused(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard")
    assert "polars is not installed; run pip install 'regard[cli]'" in err


def test_the_console_script_is_this_command() -> None:
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="regard")
    assert script.load() is main
