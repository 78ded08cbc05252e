"""One WebSocket session for each open page: its requests become jobs that wait for their turn and send their results.

Pages send ``{"do": …, "job": number, …}``; every answer carries that number. A new kind of request is a row in
``REQUESTS``: its fields, how long it may run, and a function from the checked fields to the work.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from starlette.websockets import WebSocket, WebSocketDisconnect

from regard.play import date_service, tables, w_training
from regard.play.job_queue import FairQueue, Job, QueueFull
from regard.play.messages import Fields, parsed
from regard.play.security import Refused

LOG = logging.getLogger("regard.play")

MAX_SESSIONS = 100
# Characters that may wait for a page to read them, and how long it may take to read any. Beyond that optional messages
# are dropped, and any other ends the session.
MAX_UNSENT = 1_000_000
SEND_SECONDS = 20.0
OPTIONAL = ("step", "progress")


class PageSession:
    """One open page: its jobs, its model, and the messages waiting for it; ``abort`` closes its connection at once."""

    def __init__(self, shared: SharedState, abort: Callable[[], None]) -> None:
        self.shared, self.abort = shared, abort
        self.fitted: tables.FittedTable | None = None
        self._loop = asyncio.get_running_loop()
        self._unsent: list[str] = []
        self._size = 0  # characters of it
        self._more = asyncio.Event()
        self._closed = False

    def send(self, job: int, message: dict[str, Any]) -> None:
        """Send a message, from any thread; does nothing once the page is gone. Refused if JSON cannot represent it."""
        try:
            text = json.dumps({"job": job, **message}, allow_nan=False)
        except ValueError:
            raise Refused(500, "a bug in regard: an answer contains numbers that are not finite") from None
        if not self._closed:
            self._loop.call_soon_threadsafe(self._put, text, message["did"] in OPTIONAL)

    def _put(self, text: str, optional: bool) -> None:
        if self._size + len(text) <= MAX_UNSENT:
            self._unsent.append(text)
            self._size += len(text)
            self._more.set()
        elif not optional and not self._closed:
            self._closed = True
            LOG.warning("a page does not read the messages sent to it; its connection was closed")
            self.abort()

    async def send_pending(self, websocket: WebSocket) -> None:
        """Send messages as they come, all that have gathered since the last time in one frame."""
        while True:
            await self._more.wait()
            self._more.clear()
            pending, self._unsent, self._size = self._unsent, [], 0
            async with asyncio.timeout(SEND_SECONDS):
                await websocket.send_text(f"[{','.join(pending)}]")

    def close(self) -> None:
        self._closed = True
        self.shared.queue.stop(self)
        self.fitted = None


class SharedState:
    """What all pages of one run share."""

    def __init__(self) -> None:
        self.queue = FairQueue()
        self.tables = tables.TableStore()
        self.dates = date_service.DateService()
        self.sessions: set[PageSession] = set()

    async def serve_page(self, websocket: WebSocket) -> None:
        """Run the session of one page until it leaves."""
        if len(self.sessions) >= MAX_SESSIONS:
            await websocket.close(1013)
            return
        await websocket.accept()
        session = PageSession(self, websocket.scope["state"]["abort"])
        self.sessions.add(session)
        sender = asyncio.create_task(session.send_pending(websocket))
        # If nothing can be sent any more, nothing is received either.
        sender.add_done_callback(lambda task: None if task.cancelled() else session.abort())
        try:
            while (message := await websocket.receive())["type"] == "websocket.receive":
                if message.get("text") is None:
                    await websocket.close(1003)  # messages are text, not bytes
                    break
                _handle(session, message["text"])
        finally:
            self.sessions.discard(session)
            session.close()
            sender.cancel()
            with suppress(asyncio.CancelledError, WebSocketDisconnect, TimeoutError):
                await sender


Work = Callable[[Job, w_training.SendMessage], None]


class RequestKind(NamedTuple):
    """One kind of request that pages may send."""

    fields: tuple[str, ...]
    seconds: float
    work: Callable[[PageSession, Fields], Work]


def _train(_: PageSession, given: Fields) -> Work:
    request = w_training.TrainingRequest.of(given)
    return lambda job, send: w_training.train(request, job, send)


def _fit(session: PageSession, given: Fields) -> Work:
    table = session.shared.tables[given.text("table")]
    target, features = given.text("target"), given.texts("features", 1, tables.MAX_FEATURES)
    tables.chosen_columns(table, target, features)

    def work(job: Job, send: w_training.SendMessage) -> None:
        session.fitted = None
        session.fitted = tables.fit(table, target, features, job, send)

    return work


def _explain(session: PageSession, given: Fields) -> Work:
    row = given.whole("row", 0, tables.MAX_ROWS)

    def work(_: Job, send: w_training.SendMessage) -> None:
        if session.fitted is None:
            raise Refused(409, "fit a table first")
        tables.explain_row(session.fitted, row, send)

    return work


def _translate(session: PageSession, given: Fields) -> Work:
    text = date_service.requested_date(given)
    return lambda _, send: send(session.shared.dates.answer(text))


REQUESTS = {
    "train": RequestKind(("x", "y", "kernel", "optimizer", "w"), w_training.MAX_SECONDS, _train),
    "fit": RequestKind(("table", "target", "features"), tables.MAX_SECONDS, _fit),
    "explain": RequestKind(("row",), tables.MAX_SECONDS, _explain),
    "translate": RequestKind(("text",), date_service.MAX_SECONDS, _translate),
}


def _handle(session: PageSession, text: str) -> None:
    """Submit a job for one message, or stop the session's jobs; an invalid message is answered with its error."""
    number = 0
    try:
        message = parsed(text)
        name = Fields(message, message).choice("do", (*REQUESTS, "stop"))
        if name == "stop":
            for _ in session.shared.queue.stop(session):
                session.send(0, {"did": "dropped"})
            return
        kind = REQUESTS[name]
        given = Fields(message, ("do", "job", *kind.fields))
        number = given.whole("job", 1, 2**31)
        _submit(session, number, kind, kind.work(session, given))
    except Refused as reason:
        session.send(number, _refusal(reason.status, reason.message))


def _submit(session: PageSession, number: int, kind: RequestKind, work: Work) -> None:
    def run(job: Job) -> None:
        def send(message: dict[str, Any]) -> None:
            session.send(number, message)

        send({"did": "started"})
        try:
            work(job, send)
        except Refused as reason:
            send(_refusal(reason.status, reason.message))
        except ValueError as reason:
            send(_refusal(422, str(reason)[:300]))
        except Exception as reason:
            send(_refusal(500, f"a bug in regard: {type(reason).__name__}"))

    try:
        before = session.shared.queue.submit(Job(session, run, kind.seconds))
    except QueueFull:
        raise Refused(409, "too many jobs are waiting already; wait for them or stop them") from None
    session.send(number, {"did": "queued", "before": before})


def _refusal(status: int, error: str) -> dict[str, Any]:
    return {"did": "refused", "status": status, "error": error}
