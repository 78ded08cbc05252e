"""A playground of its own for the tests, ways to talk to it, and a browser where there is one."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from regard.play.connections import HEADER_SECONDS
from regard.play.date_service import DateService
from regard.play.server import Playground
from support.browser import launched
from support.conversation import Conversation
from support.reader import learned_at_once
from support.soak import FULL
from support.visits import DESK, Visit


@pytest.fixture(scope="session")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    served = Playground(body_seconds=0.5)
    # The user's own cache is neither read nor written, and no minute is spent on learning.
    served.shared.dates = DateService(tmp_path_factory.mktemp("cache") / "dates.regard", learned_at_once)
    thread = threading.Thread(target=served.run)
    thread.start()
    yield served
    served.stop()
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def own_playground(request) -> Iterator[tuple[Playground, list[str]]]:
    """A playground for this test alone, and the addresses it announces; its parameter is the time for headers."""
    announced: list[str] = []
    served = Playground(announce=announced.append, header_seconds=getattr(request, "param", HEADER_SECONDS))
    thread = threading.Thread(target=served.run)
    thread.start()
    yield served, announced
    served.stop()
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def web(playground: Playground) -> Iterator[httpx.Client]:
    """A visitor who has opened the printed address."""
    with httpx.Client(base_url=playground.address, headers={"origin": playground.address}) as client:
        assert client.get(playground.new_url()).status_code == 200
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
    with launched() as browser:
        yield browser


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Soak runs keep pictures of every page: under pytest's own folder, or where --basetemp says."""
    return tmp_path_factory.mktemp("screenshots")


@pytest.fixture
def visit(playground, chromium, request, pictures) -> Iterator[Any]:
    """Opens pages; at the end none may have complained, or asked for anything beyond this machine."""
    contexts, complaints, asked = [], [], []
    # A refusal is an answer like any other, yet chromium writes it on its console.
    excused = getattr(request.function, "refused", False)

    def start(viewport: dict[str, int] = DESK, **options: Any) -> Visit:
        context = chromium.new_context(viewport=viewport, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(error.stack))
        page.on("request", lambda request: asked.append(request.url))
        page.on("websocket", lambda socket: asked.append(socket.url))
        return Visit(page, playground.new_url)

    yield start
    for number, context in enumerate(contexts):
        name = re.sub(r"\W+", "_", request.node.name)
        if FULL:
            context.pages[0].screenshot(path=pictures / f"{name}_{number}.png", full_page=True)
        context.close()
    assert [each for each in complaints if not (excused and "responded with a status of 4" in each)] == []
    local = (
        f"http://127.0.0.1:{playground.port}/",
        f"ws://127.0.0.1:{playground.port}/",
        "blob:http://127.0.0.1",
        "data:",
    )
    assert [url for url in asked if not url.startswith(local)] == []
