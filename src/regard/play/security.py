"""Which requests are accepted: those of this machine, from our own page, with the cookie of this run.

The server listens on the loopback address, but any page in a browser can send requests there. So every request of
every method, and every WebSocket before its handshake, must name us as its Host (not a name that merely resolves to
us), come from our own page (Origin), and carry a cookie. The cookie is given in exchange for a token, which is part of
an address and is valid once (decision 0019).
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from importlib.resources import files
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SAFE_METHODS = ("GET", "HEAD")
TOKEN_BYTES = 32
# Of a request before its body, including the cookies of all ports of this machine.
MAX_HEADER_BYTES = 65_536


class Refused(Exception):
    """A request that is not served: an HTTP status, and a short sentence that does not quote the request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Tokens:
    """The secret in this run's cookie, and tokens, each of which can be exchanged for it once."""

    def __init__(self) -> None:
        self.session = secrets.token_urlsafe(TOKEN_BYTES)
        self._unused: set[str] = set()

    def issue(self) -> str:
        """A new token."""
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._unused.add(token)
        return token

    def is_unused(self, token: str) -> bool:
        return token in self._unused

    def redeem(self, given: str) -> bool:
        """Whether this is an unused token; it is used from now on."""
        found = [token for token in self._unused if _same(token, given)]
        self._unused.difference_update(found)
        return bool(found)

    def is_session(self, given: str) -> bool:
        return _same(self.session, given)


def _same(secret: str, given: str) -> bool:
    return secrets.compare_digest(secret.encode("utf-8"), given.encode("utf-8"))


class Guard:
    """Passes accepted requests on to an ASGI app, and adds our headers to every answer.

    Parameters
    ----------
    locked_out : called when the page is opened in a browser without a cookie or an unused token.
    """

    def __init__(self, app: App, *, port: int, tokens: Tokens, locked_out: Callable[[], None]) -> None:
        self._app, self._tokens, self._locked_out = app, tokens, locked_out
        self._locked_page = files("regard.play").joinpath("locked.html").read_bytes()
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        # Cookies are shared by all ports: two playgrounds must not overwrite each other's.
        self.cookie = f"regard_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        try:
            host, fresh = self.admit(scope)
        except Refused as reason:
            await self._refuse(scope, send, reason)
            return
        headers = self._headers(host)
        if fresh:
            cookie = f"{self.cookie}={self._tokens.session}; Path=/; HttpOnly; SameSite=Strict"
            headers.append((b"set-cookie", cookie.encode("ascii")))

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *headers]}
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def admit(self, scope: Scope) -> tuple[str, bool]:
        """The Host of a request, and whether to set a cookie; raises Refused."""
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if size + len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_HEADER_BYTES:
            raise Refused(431, f"headers and address must have at most {MAX_HEADER_BYTES:,} bytes in all")
        host = self._checked_host(scope)
        self._check_origin(scope, host)
        return host, self._check_token(scope)

    def refusal(self, reason: Refused, page: bytes | None = None) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Headers and body of a refusal, one line of JSON or a page; the connection is closed after it."""
        body = json.dumps({"error": reason.message}).encode("utf-8") if page is None else page
        kind = b"application/json" if page is None else b"text/html; charset=utf-8"
        about = [
            (b"content-type", kind),
            (b"content-length", str(len(body)).encode("ascii")),
            (b"connection", b"close"),
        ]
        return about + self._headers("127.0.0.1"), body

    async def _refuse(self, scope: Scope, send: Send, reason: Refused) -> None:
        if scope["type"] == "websocket":  # the connection has already answered with a status
            await send({"type": "websocket.close", "code": 1008})
            return
        locked = reason.status == 401 and scope["method"] == "GET" and scope["path"] == "/" and _wants_page(scope)
        if locked:
            self._locked_out()
        headers, body = self.refusal(reason, self._locked_page if locked else None)
        await send({"type": "http.response.start", "status": reason.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _checked_host(self, scope: Scope) -> str:
        given = _values(scope, b"host")
        if len(given) != 1 or given[0] not in self._hosts:
            raise Refused(400, "the Host header is not the address of the playground")
        return given[0]

    def _check_origin(self, scope: Scope, host: str) -> None:
        given = _values(scope, b"origin")
        if not given and scope["type"] == "http" and scope["method"] in SAFE_METHODS:
            return
        if given != [f"http://{host}"]:
            raise Refused(403, "the Origin header must be that of the playground's own page")

    def _check_token(self, scope: Scope) -> bool:
        """Whether the address has an unused token, so that a cookie is to be set; raises Refused without either."""
        if self._has_cookie(scope):
            return False
        name, _, given = scope["query_string"].decode("latin-1").partition("=")
        opens = scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/" and name == "token"
        if opens and self._tokens.redeem(given):
            return True
        raise Refused(401, "open the address that regard play printed last: each address opens the page once")

    def _has_cookie(self, scope: Scope) -> bool:
        """Whether our cookie is sent. Split by hand: the standard library takes quadratic time to unquote a cookie."""
        pairs = (pair.strip().partition("=") for line in _values(scope, b"cookie") for pair in line.split(";"))
        return any(name == self.cookie and self._tokens.is_session(value) for name, _, value in pairs)

    def _headers(self, host: str) -> list[tuple[bytes, bytes]]:
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data: blob:; "
            f"worker-src 'self'; connect-src 'self' ws://{host}; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
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


def _wants_page(scope: Scope) -> bool:
    """Whether a browser opens this as a page; programs do not accept HTML."""
    return any("text/html" in value for value in _values(scope, b"accept"))


async def bounded_body(scope: Scope, receive: Receive, max_bytes: int, seconds: float) -> bytes:
    """The body of a request, refused as soon as it is too large (413) or too slow (408)."""
    declared = _values(scope, b"content-length")
    if declared and (not declared[0].isdigit() or int(declared[0]) > max_bytes):
        raise Refused(413, f"the body must have at most {max_bytes:,} bytes")
    try:
        async with asyncio.timeout(seconds):
            return await _collected(receive, max_bytes)
    except TimeoutError:
        raise Refused(408, f"the body took longer than {seconds:g} seconds") from None


async def _collected(receive: Receive, max_bytes: int) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the request ended before its body was complete")
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise Refused(413, f"the body must have at most {max_bytes:,} bytes")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for header, value in scope["headers"] if header.lower() == name]
