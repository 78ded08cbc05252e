"""A socket on this machine only, a token for this run, and a browser if there is one."""

from __future__ import annotations

import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from regard.play.app import BODY_SECONDS, build
from regard.play.messages import MOST_CHARACTERS
from regard.play.security import new_token

HOST = "127.0.0.1"


class Playground:
    """One run: ``url`` is known before it is served, and holds the token."""

    def __init__(self, port: int = 0, *, body_seconds: float = BODY_SECONDS) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind((HOST, port))
        except OSError as reason:
            self.socket.close()
            raise OSError(f"port {port} cannot be used: {reason.strerror}; leave --port out for a free one") from None
        # From here on visitors wait in the socket's queue, and the address can be opened.
        self.socket.listen()
        self.port = int(self.socket.getsockname()[1])
        self.token = new_token()
        self.address = f"http://{HOST}:{self.port}"
        self.url = f"{self.address}/?token={self.token}"
        self.app, self.house = build(self.port, self.token, body_seconds=body_seconds)
        self.server = uvicorn.Server(
            uvicorn.Config(
                self.app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="off",
                # Characters take up to four bytes; what is too long for us is refused by name, beyond that cut off.
                ws_max_size=4 * MOST_CHARACTERS,
                ws_per_message_deflate=False,
                timeout_graceful_shutdown=1,
            )
        )

    def run(self) -> None:
        """Serve until Ctrl-C, or until ``stop`` from another thread."""
        try:
            with suppress(KeyboardInterrupt):
                self.server.run(sockets=[self.socket])
        finally:
            self.house.queue.close()
            self.house.dates.close()
            self.socket.close()

    def stop(self) -> None:
        self.server.should_exit = True


def serve(port: int = 0, *, browser: bool = True, announce: Callable[[str], None] = print) -> None:
    """Serve the playground on this machine until Ctrl-C.

    Parameters
    ----------
    port : 0 for a free one.
    browser : open the page where there is a browser with a window to open it in.
    announce : told the address, which holds the token of this run, once it can be opened.
    """
    playground = Playground(port)
    announce(playground.url)
    if browser and _has_windows():
        threading.Thread(target=_open, args=(playground.url,), daemon=True).start()
    playground.run()


def _has_windows() -> bool:
    """Without windows a browser would be one for terminals, and take this one over."""
    return sys.platform in ("win32", "darwin") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _open(url: str) -> None:
    with suppress(webbrowser.Error, OSError):
        webbrowser.open(url)
