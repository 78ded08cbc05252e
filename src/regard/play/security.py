"""Who may come in: requests of this machine, of our own page, with the token of this run.

The server listens on the loopback address, but any page a browser shows can send requests there. So every request of
every method, and every WebSocket before it is accepted, must name us as its Host (no name that merely resolves to us),
come from our own page (Origin), and carry the token that only the printed address holds: in that address at first, in
a cookie from then on.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SAFE_METHODS = ("GET", "HEAD")
TOKEN_BYTES = 32


class Refused(Exception):
    """A request that is not served: a status as in HTTP, and a short sentence that quotes nothing of it."""

    def __init__(self, status: int, told: str) -> None:
        super().__init__(told)
        self.status, self.told = status, told


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(TOKEN_BYTES)


class Guard:
    """Lets an ASGI app see only requests that may come in, and puts our headers on every answer."""

    def __init__(self, app: App, *, port: int, token: str) -> None:
        self._app, self._token = app, token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        # Cookies know no ports: two playgrounds must not overwrite each other's.
        self.cookie = f"regard_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        try:
            host = self._checked_host(scope)
            self._check_origin(scope, host)
            fresh = self._check_token(scope)
        except Refused as reason:
            await refuse(scope, send, reason, self._headers("127.0.0.1"))
            return
        headers = self._headers(host)
        if fresh:
            headers.append(
                (b"set-cookie", f"{self.cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict".encode("ascii"))
            )

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *headers]}
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _checked_host(self, scope: Scope) -> str:
        given = _values(scope, b"host")
        if len(given) != 1 or given[0] not in self._hosts:
            raise Refused(400, "this is not the host of the playground")
        return given[0]

    def _check_origin(self, scope: Scope, host: str) -> None:
        given = _values(scope, b"origin")
        if not given and scope["type"] == "http" and scope["method"] in SAFE_METHODS:
            return
        if given != [f"http://{host}"]:
            raise Refused(403, "only the playground's own page may ask this")

    def _check_token(self, scope: Scope) -> bool:
        """Whether the token came in the address, and a cookie is to be set."""
        if self._has_cookie(scope):
            return False
        asked = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [])
        if scope["type"] == "http" and scope["path"] == "/" and len(asked) == 1 and self._is_token(asked[0]):
            return True
        raise Refused(401, "open the address that regard play has printed: it holds the token of this run")

    def _has_cookie(self, scope: Scope) -> bool:
        try:
            jar = SimpleCookie("; ".join(_values(scope, b"cookie")))
        except CookieError:
            return False
        return self.cookie in jar and self._is_token(jar[self.cookie].value)

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode("utf-8"), self._token.encode("utf-8"))

    def _headers(self, host: str) -> list[tuple[bytes, bytes]]:
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; worker-src 'self'; "
            f"connect-src 'self' ws://{host}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return [
            (b"content-security-policy", policy.encode("ascii")),
            (b"x-content-type-options", b"nosniff"),
            (b"x-frame-options", b"DENY"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cache-control", b"no-store"),
        ]


async def refuse(scope: Scope, send: Send, reason: Refused, headers: list[tuple[bytes, bytes]]) -> None:
    """Answer with a status and one line of JSON; a WebSocket too, while it is still a request."""
    body = json.dumps({"error": reason.told}).encode("utf-8")
    kind = "websocket.http" if scope["type"] == "websocket" else "http"
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    about = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode("ascii"))]
    await send({"type": f"{kind}.response.start", "status": reason.status, "headers": about + headers})
    await send({"type": f"{kind}.response.body", "body": body})


async def bounded_body(scope: Scope, receive: Receive, most: int, seconds: float) -> bytes:
    """The body of a request, refused as soon as it is too large (413) or too slow (408)."""
    declared = _values(scope, b"content-length")
    if declared and (not declared[0].isdigit() or int(declared[0]) > most):
        raise Refused(413, f"a body may hold at most {most:,} bytes")
    try:
        async with asyncio.timeout(seconds):
            return await _collected(receive, most)
    except TimeoutError:
        raise Refused(408, f"the body took longer than {seconds:g} seconds") from None


async def _collected(receive: Receive, most: int) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the request ended before its body did")
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise Refused(413, f"a body may hold at most {most:,} bytes")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for header, value in scope["headers"] if header.lower() == name]
