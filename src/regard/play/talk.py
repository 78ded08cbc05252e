"""The conversation with one page, over a WebSocket: it asks, jobs wait for their turn, and what they tell is sent.

Pages send ``{"do": …, "job": number, …}``; every answer carries that number. Something new to ask for is a row in
``ASKS``: the fields it takes, how long it may run, and a function from the checked fields to the work.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.websockets import WebSocket

from regard.play import dates, tables, training
from regard.play.fair import FairQueue, Full, Job
from regard.play.messages import Fields, parsed
from regard.play.security import Refused

MOST_CLIENTS = 100
# Told steps that a slow page may leave unread; more are thinned out.
MOST_UNSENT = 4000


class Client:
    """One open page: its jobs, its model, and what is still to be sent to it."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.fitted: tables.Fitted | None = None
        self._loop = asyncio.get_running_loop()
        self._unsent: list[dict[str, Any]] = []
        self._more = asyncio.Event()
        self._gone = False

    def tell(self, job: int, message: dict[str, Any]) -> None:
        """Send something, from any thread; after the page is gone, nothing."""
        if not self._gone:
            self._loop.call_soon_threadsafe(self._put, {"job": job, **message})

    def _put(self, message: dict[str, Any]) -> None:
        if len(self._unsent) < MOST_UNSENT or message["did"] not in ("step", "progress"):
            self._unsent.append(message)
            self._more.set()

    async def send_on(self, websocket: WebSocket) -> None:
        """Send what is told, all that has gathered since the last time in one frame."""
        while True:
            await self._more.wait()
            self._more.clear()
            told, self._unsent = self._unsent, []
            await websocket.send_text(json.dumps(told, allow_nan=False))

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
        client = Client(self)
        self.clients.add(client)
        sender = asyncio.create_task(client.send_on(websocket))
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
            await asyncio.gather(sender, return_exceptions=True)


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
