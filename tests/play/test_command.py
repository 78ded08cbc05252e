"""``regard play`` as a command: it prints its address, serves, and ends with Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from time import monotonic, sleep

import httpx
import pytest

from regard.cli import main
from support.command import refused


def test_it_prints_its_address_serves_and_ends_quietly():
    command = [sys.executable, "-m", "regard.cli", "play", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:")
            assert "?token=" in url
            assert httpx.get(url).status_code == 200
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert out == ""
    assert err.splitlines() == [
        "open this address in a browser on this machine; press Ctrl-C to stop",
        "playground closed",
    ]


@pytest.mark.parametrize("module", ["starlette", "uvicorn", "websockets"])
def test_without_the_extra(module, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    assert f"the playground needs {module}; run pip install 'regard[play]'" in refused(capfd, "play")


def test_a_port_in_use_and_one_that_is_none(playground, capfd):
    assert f"port {playground.port} cannot be used" in refused(
        capfd, "play", "--no-open", "--port", str(playground.port)
    )
    assert "--port" in refused(capfd, "play", "--port", "70000")


def test_its_help_names_the_exit_codes(capfd):
    assert main(["play", "--help"]) == 0
    assert "130 stopped by Ctrl-C" in " ".join(capfd.readouterr().out.split())


@pytest.mark.parametrize(("windows", "opened"), [({"DISPLAY": ":0"}, 1), ({}, 0)])
def test_a_browser_is_opened_where_there_are_windows(monkeypatch, windows, opened):
    from regard.play import server

    seen: list[str] = []
    monkeypatch.setattr(server.sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in windows.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(server, "_open", seen.append)
    monkeypatch.setattr(server.Playground, "run", lambda self: (self.shared.queue.close(), self.socket.close()))
    announced: list[str] = []
    server.serve(announce=announced.append)
    end = monotonic() + 10.0
    while len(seen) < opened and monotonic() < end:
        sleep(0.001)
    assert len(seen) == opened
    # The one that is printed is not used up by the browser that is opened.
    assert len({*seen, *announced}) == 1 + opened
    assert all(url.startswith("http://127.0.0.1:") for url in (*seen, *announced))
