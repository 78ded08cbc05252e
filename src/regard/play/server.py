"""A socket on this machine only, addresses that open the page once, and a browser if there is one."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from regard.play.connections import HEADER_SECONDS, ReportOnce, Server
from regard.play.messages import MAX_CHARACTERS
from regard.play.routes import BODY_SECONDS, build
from regard.play.security import MAX_HEADER_BYTES, Tokens

HOST = "127.0.0.1"
LOGGERS = ("uvicorn.error", "asyncio", "regard.play")


class Playground:
    """One run of the playground; its addresses are known before it is served.

    Parameters
    ----------
    port : 0 for a free one.
    announce : called with an address that opens the page once.
    body_seconds, header_seconds : the longest that a request may take to send its body and its headers.
    """

    def __init__(
        self,
        port: int = 0,
        announce: Callable[[str], None] = print,
        *,
        body_seconds: float = BODY_SECONDS,
        header_seconds: float = HEADER_SECONDS,
    ) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind((HOST, port))
        except OSError as reason:
            self.socket.close()
            raise OSError(f"port {port} cannot be used: {reason.strerror}; omit --port to use a free one") from None
        # From here on the address can be opened: connections wait in the socket's queue.
        self.socket.listen()
        self.port = int(self.socket.getsockname()[1])
        self.tokens = Tokens()
        self.address = f"http://{HOST}:{self.port}"
        self._announce, self._announced = announce, ""
        self.app, self.shared = build(self.port, self.tokens, self.announce_url, body_seconds=body_seconds)
        self.server = Server(
            uvicorn.Config(
                self.app,
                loop="asyncio",
                http="h11",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="off",
                # Characters take up to four bytes. Up to this size a long message is answered, beyond it disconnected.
                ws_max_size=4 * MAX_CHARACTERS,
                ws_per_message_deflate=False,
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
                timeout_graceful_shutdown=1,
            ),
            self.app,
            header_seconds,
        )

    def new_url(self) -> str:
        """An address that opens the page once."""
        return self._url(self.tokens.issue())

    def announce_url(self) -> None:
        """Announce a new address, unless the last one announced is still unused."""
        if not self.tokens.is_unused(self._announced):
            self._announced = self.tokens.issue()
            self._announce(self._url(self._announced))

    def _url(self, token: str) -> str:
        return f"{self.address}/?token={token}"

    def run(self) -> None:
        """Serve until Ctrl-C, or until ``stop`` from another thread."""
        report_once = ReportOnce()
        for name in LOGGERS:
            logging.getLogger(name).addFilter(report_once)
        try:
            with suppress(KeyboardInterrupt):
                self.server.run(sockets=[self.socket])
        finally:
            for name in LOGGERS:
                logging.getLogger(name).removeFilter(report_once)
            self.shared.queue.close()
            self.shared.dates.close()
            self.socket.close()

    def stop(self) -> None:
        self.server.should_exit = True


def serve(port: int = 0, *, browser: bool = True, announce: Callable[[str], None] = print) -> None:
    """Serve the playground on this machine until Ctrl-C.

    Parameters
    ----------
    port : 0 for a free one.
    browser : open the page in a browser, if there is a graphical one.
    announce : called with an address that opens the page once, and with a new one if that was used and the page is
        opened again without a cookie.
    """
    playground = Playground(port, announce)
    playground.announce_url()
    if browser and _has_display():
        # The browser gets its own address: other users can read its arguments, and the announced one stays unused.
        threading.Thread(target=_open, args=(playground.new_url(),), daemon=True).start()
    playground.run()


def _has_display() -> bool:
    """Whether a browser would open a window; a text browser would take over the terminal instead."""
    return sys.platform in ("win32", "darwin") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _open(url: str) -> None:
    with suppress(webbrowser.Error, OSError):
        webbrowser.open(url)
