"""Talking to a playground from a test: over its WebSocket, or through a page in a browser."""

from __future__ import annotations

import json
from contextlib import ExitStack
from time import monotonic
from typing import Any

from websockets.sync.client import connect

PATIENCE = 60.0
LAST = ("trained", "fitted", "explained", "refused", "dropped", "stopped")


class Conversation:
    """One page's conversation with the server."""

    def __init__(self, playground: Any, **headers: str) -> None:
        given = {
            "origin": playground.address,
            "cookie": f"{playground.app.cookie}={playground.tokens.session}",
            **headers,
        }
        origin = given.pop("origin")
        # Goodbye is quick, even with much left unread.
        options: dict[str, Any] = {"origin": origin, "additional_headers": given, "proxy": None, "close_timeout": 0.2}
        line = connect(f"ws://127.0.0.1:{playground.port}/talk", **options)
        self._open = ExitStack()
        self._socket = self._open.enter_context(line)
        self._unread: list[dict[str, Any]] = []
        self._number = 0

    def ask(self, **message: Any) -> int:
        self._number += 1
        self.send(json.dumps({"job": self._number, **message}))
        return self._number

    def send(self, text: str | bytes) -> None:
        self._socket.send(text)

    def hear(self) -> dict[str, Any]:
        while not self._unread:
            self._unread = json.loads(self._socket.recv(timeout=PATIENCE))
        return self._unread.pop(0)

    def until(self, *did: str) -> list[dict[str, Any]]:
        """Everything heard up to a message of this kind."""
        heard = [self.hear()]
        while heard[-1]["did"] not in (did or LAST):
            heard.append(self.hear())
        return heard

    def close(self) -> None:
        self._open.close()


def wait_for(page: Any, code: str, seconds: float = PATIENCE) -> Any:
    """What an expression gives once it is true; the page's policy forbids playwright's own way to wait."""
    end = monotonic() + seconds
    while not (found := page.evaluate(code)):
        assert monotonic() < end, f"never true: {code}"
        page.wait_for_timeout(20)
    return found
