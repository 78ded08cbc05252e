"""Connections: how many there may be, how long each may take for its headers, and which become a WebSocket.

At the limit, or when the system has no file descriptor left, the oldest connection without a complete request is
closed. So requests that are begun and never finished do not keep others out.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from contextlib import suppress
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.play.security import Guard, Refused

LOG = logging.getLogger("regard.play")

MAX_CONNECTIONS = 128
HEADER_SECONDS = 10.0
# Between two attempts to accept a connection when the limit is reached.
RETRY_SECONDS = 0.01
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class ReportOnce(logging.Filter):
    """Lets each logging statement log once."""

    def __init__(self) -> None:
        super().__init__()
        self._reported: set[tuple[str, int]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        place = record.pathname, record.lineno
        new = place not in self._reported
        self._reported.add(place)
        if new and record.levelno >= logging.WARNING:
            record.msg = f"{str(record.msg).strip()} (not reported again)"
        return new


class Connection(H11Protocol):
    """One client over HTTP, with a time limit for the headers of each request."""

    def __init__(self, guard: Guard, header_seconds: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._guard, self._header_seconds = guard, header_seconds
        self.opened = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def without_request(self) -> bool:
        """Whether no request is being answered."""
        return (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_headers()

    def _watch_headers(self) -> None:
        """Start the timer while headers are incomplete; receiving more of them does not reset it."""
        if self.conn.their_state is not h11.IDLE:
            self._stop_watching()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._header_seconds, self._too_slow)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self.conn.trailing_data[0]:
            self._refuse(Refused(408, f"the headers took longer than {self._header_seconds:g} seconds"))
        else:
            # Browsers open connections in advance, and would take an answer here for that to their next request.
            self.transport.close()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        try:
            self._guard.admit({**self.scope, "type": "websocket"})
        except Refused as reason:
            self._refuse(reason)
            return
        self.app_state = {**self.app_state, "abort": self.transport.abort}
        super().handle_websocket_upgrade(event)

    def _refuse(self, reason: Refused) -> None:
        headers, body = self._guard.refusal(reason)
        for part in (h11.Response(status_code=reason.status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(part) or b"")
        self.transport.close()


class Server(uvicorn.Server):
    """Accepts connections one by one, up to the limit."""

    def __init__(self, config: uvicorn.Config, guard: Guard, header_seconds: float) -> None:
        super().__init__(config)
        self._guard, self._header_seconds = guard, header_seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None
        self.servers = []
        (listener,) = sockets
        listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(listener))
        # If accepting ends, the server exits, and shutdown raises the error that ended it.
        self._accepting.add_done_callback(lambda _: setattr(self, "should_exit", True))
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._accepting.cancel()
        try:
            with suppress(asyncio.CancelledError):
                await self._accepting
        finally:
            await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if len(self.server_state.connections) < MAX_CONNECTIONS:
                try:
                    accepted, _ = await loop.sock_accept(listener)
                except ConnectionError:
                    continue
                except OSError as reason:
                    if reason.errno not in OUT_OF_RESOURCES:
                        raise
                else:
                    await loop.connect_accepted_socket(self._connection, accepted)
                    continue
            LOG.warning("too many connections: those without a request are closed")
            self._make_room()
            await asyncio.sleep(RETRY_SECONDS)

    def _connection(self) -> Connection:
        kwargs = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
        return Connection(self._guard, self._header_seconds, **kwargs)

    def _make_room(self) -> None:
        idle = [each for each in self.server_state.connections if isinstance(each, Connection) and each.without_request]
        if idle:
            min(idle, key=lambda each: each.opened).transport.abort()
