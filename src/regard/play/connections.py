"""Connections: how many there may be, how long each may take for its headers, and which become a WebSocket.

At the limit, or where the system has no file descriptor left, the connection that has been open longest among those
without a request makes room. So requests that are begun and never finished keep nobody else out.
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

MOST_CONNECTIONS = 128
HEADER_SECONDS = 10.0
# Between two attempts to accept a connection where there is no room for one.
RETRY_SECONDS = 0.01
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Once(logging.Filter):
    """Lets every statement that logs do so once."""

    def __init__(self) -> None:
        super().__init__()
        self._known: set[tuple[str, int]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        place = record.pathname, record.lineno
        new = place not in self._known
        self._known.add(place)
        if new and record.levelno >= logging.WARNING:
            record.msg = f"{str(record.msg).strip()} (not reported again)"
        return new


class Connection(H11Protocol):
    """One client over HTTP, with a time limit for the headers of each request."""

    def __init__(self, guard: Guard, header_seconds: float, **given: Any) -> None:
        super().__init__(**given)
        self._guard, self._header_seconds = guard, header_seconds
        self.opened = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def without_request(self) -> bool:
        """No request is being answered."""
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
        """Let the time run while headers are incomplete: more of them gives no more time."""
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
            # Browsers open connections in advance, and would take an answer for that to their next request.
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
    """Accepts connections one by one, as long as there is room for them."""

    def __init__(self, config: uvicorn.Config, guard: Guard, header_seconds: float) -> None:
        super().__init__(config)
        self._guard, self._header_seconds = guard, header_seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None
        self.servers = []
        (listener,) = sockets
        listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(listener))
        # Without it there is nothing left to do, and shutdown raises what has ended it.
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
            if len(self.server_state.connections) < MOST_CONNECTIONS:
                try:
                    line, _ = await loop.sock_accept(listener)
                except ConnectionError:
                    continue
                except OSError as reason:
                    if reason.errno not in NO_ROOM:
                        raise
                else:
                    await loop.connect_accepted_socket(self._connection, line)
                    continue
            LOG.warning("too many connections: those that send no request are closed")
            self._make_room()
            await asyncio.sleep(RETRY_SECONDS)

    def _connection(self) -> Connection:
        given = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
        return Connection(self._guard, self._header_seconds, **given)

    def _make_room(self) -> None:
        idle = [each for each in self.server_state.connections if isinstance(each, Connection) and each.without_request]
        if idle:
            min(idle, key=lambda each: each.opened).transport.abort()
