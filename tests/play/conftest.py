"""A playground of its own for the tests, ways to talk to it, and a browser where there is one."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from conversation import Conversation
from regard.play.server import Playground

# Where pictures are kept: under pytest's own folder, or where --basetemp says.
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="session")
def playground() -> Iterator[Playground]:
    served = Playground(body_seconds=0.5)
    thread = threading.Thread(target=served.run)
    thread.start()
    yield served
    served.stop()
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def web(playground: Playground) -> Iterator[httpx.Client]:
    """A visitor who has opened the printed address."""
    with httpx.Client(base_url=playground.address, headers={"origin": playground.address}) as client:
        assert client.get(f"/?token={playground.token}").status_code == 200
        yield client


@pytest.fixture
def talk(playground: Playground) -> Iterator[Any]:
    """Opens conversations, and closes those left open."""
    opened: list[Conversation] = []

    def start() -> Conversation:
        opened.append(Conversation(playground))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium on this machine: the page was not tested in a browser (make test installs it)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("screenshots")
