"""The conversation with one page, over a WebSocket: it asks, jobs wait for their turn, and what they tell is sent.

Pages send ``{"do": …, "job": number, …}``; every answer carries that number. Something new to ask for is a row in
``ASKS``: the fields it takes, how long it may run, and a function from the checked fields to the work.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from starlette.websockets import WebSocket, WebSocketDisconnect

from regard.play import dates, tables, training
from regard.play.fair import FairQueue, Full, Job
from regard.play.messages import Fields, parsed
from regard.play.security import Refused

LOG = logging.getLogger("regard.play")

MOST_CLIENTS = 100
# Characters that may wait for a page to read them, and how long it may take to read any. Beyond them steps are left
# out, and what cannot be left out ends the conversation.
MOST_UNSENT = 1_000_000
SEND_SECONDS = 20.0
OPTIONAL = ("step", "progress")


class Client:
    """One open page: its jobs, its model, and what is still to be sent to it; ``abort`` ends its connection at once."""

    def __init__(self, house: House, abort: Callable[[], None]) -> None:
        self.house, self.abort = house, abort
        self.fitted: tables.Fitted | None = None
        self._loop = asyncio.get_running_loop()
        self._unsent: list[str] = []
        self._size = 0  # characters of it
        self._more = asyncio.Event()
        self._gone = False

    def tell(self, job: int, message: dict[str, Any]) -> None:
        """Send something, from any thread; after the page is gone, nothing. Refused where JSON cannot hold it."""
        try:
            text = json.dumps({"job": job, **message}, allow_nan=False)
        except ValueError:
            raise Refused(500, "a bug in regard: an answer holds numbers that are not finite") from None
        if not self._gone:
            self._loop.call_soon_threadsafe(self._put, text, message["did"] in OPTIONAL)

    def _put(self, text: str, optional: bool) -> None:
        if self._size + len(text) <= MOST_UNSENT:
            self._unsent.append(text)
            self._size += len(text)
            self._more.set()
        elif not optional and not self._gone:
            self._gone = True
            LOG.warning("a page does not read what it is sent; its connection was closed")
            self.abort()

    async def send_on(self, websocket: WebSocket) -> None:
        """Send what is told, all that has gathered since the last time in one frame."""
        while True:
            await self._more.wait()
            self._more.clear()
            told, self._unsent, self._size = self._unsent, [], 0
            async with asyncio.timeout(SEND_SECONDS):
                await websocket.send_text(f"[{','.join(told)}]")

    def leave(self) -> None:
        self._gone = True
        self.house.queue.stop(self)
        self.fitted = None


class House:
    """What all pages of one run share."""

    def __init__(self) -> None:
        self.queue = FairQueue()
        self.tables = tables.Tables()
        self.dates = dates.Dates()
        self.clients: set[Client] = set()

    async def talk(self, websocket: WebSocket) -> None:
        """One conversation, from hello to goodbye."""
        if len(self.clients) >= MOST_CLIENTS:
            await websocket.close(1013)
            return
        await websocket.accept()
        client = Client(self, websocket.scope["state"]["abort"])
        self.clients.add(client)
        sender = asyncio.create_task(client.send_on(websocket))
        # Where nothing can be sent any more, nothing is received either.
        sender.add_done_callback(lambda task: None if task.cancelled() else client.abort())
        try:
            while (message := await websocket.receive())["type"] == "websocket.receive":
                if message.get("text") is None:
                    await websocket.close(1003)  # bytes: nobody has asked for them
                    break
                _hear(client, message["text"])
        finally:
            self.clients.discard(client)
            client.leave()
            sender.cancel()
            with suppress(asyncio.CancelledError, WebSocketDisconnect, TimeoutError):
                await sender


Work = Callable[[Job, training.Tell], None]


class Ask(NamedTuple):
    """One thing that pages may ask for."""

    fields: tuple[str, ...]
    seconds: float
    work: Callable[[Client, Fields], Work]


def _train(_: Client, given: Fields) -> Work:
    lesson = training.Lesson.of(given)
    return lambda job, tell: training.train(lesson, job, tell)


def _fit(client: Client, given: Fields) -> Work:
    table = client.house.tables[given.text("table")]
    target, features = given.text("target"), given.texts("features", 1, tables.MOST_FEATURES)
    tables.chosen(table, target, features)

    def work(job: Job, tell: training.Tell) -> None:
        client.fitted = None
        client.fitted = tables.fit(table, target, features, job, tell)

    return work


def _look(client: Client, given: Fields) -> Work:
    row = given.whole("row", 0, tables.MOST_ROWS)

    def work(_: Job, tell: training.Tell) -> None:
        if client.fitted is None:
            raise Refused(409, "fit a table first")
        tables.look(client.fitted, row, tell)

    return work


def _translate(client: Client, given: Fields) -> Work:
    text = dates.asked(given)
    return lambda _, tell: tell(client.house.dates.answer(text))


ASKS = {
    "train": Ask(("x", "y", "kernel", "optimizer", "w"), training.SECONDS, _train),
    "fit": Ask(("table", "target", "features"), tables.SECONDS, _fit),
    "look": Ask(("row",), tables.SECONDS, _look),
    "translate": Ask(("text",), dates.SECONDS, _translate),
}


def _hear(client: Client, text: str) -> None:
    """Answer one message: a job of its own, a stop, or what is wrong with it."""
    number = 0
    try:
        message = parsed(text)
        asked = Fields(message, message).choice("do", (*ASKS, "stop"))
        if asked == "stop":
            for _ in client.house.queue.stop(client):
                client.tell(0, {"did": "dropped"})
            return
        ask = ASKS[asked]
        given = Fields(message, ("do", "job", *ask.fields))
        number = given.whole("job", 1, 2**31)
        _submit(client, number, ask, ask.work(client, given))
    except Refused as reason:
        client.tell(number, {"did": "refused", "status": reason.status, "error": reason.told})


def _submit(client: Client, number: int, ask: Ask, work: Work) -> None:
    def run(job: Job) -> None:
        def tell(message: dict[str, Any]) -> None:
            client.tell(number, message)

        tell({"did": "started"})
        try:
            work(job, tell)
        except Refused as reason:
            tell({"did": "refused", "status": reason.status, "error": reason.told})
        except ValueError as reason:
            tell({"did": "refused", "status": 422, "error": str(reason)[:300]})
        except Exception as reason:
            tell({"did": "refused", "status": 500, "error": f"a bug in regard: {type(reason).__name__}"})

    try:
        before = client.house.queue.submit(Job(client, run, ask.seconds))
    except Full:
        raise Refused(409, "too many jobs are waiting already") from None
    client.tell(number, {"did": "queued", "before": before})
