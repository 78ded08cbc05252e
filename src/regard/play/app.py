"""The routes: the page, the notes' data, a table, and the conversation. All else is refused in one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from regard.data import notes
from regard.play import tables
from regard.play.files import page
from regard.play.security import Guard, Refused, Tokens, bounded_body
from regard.play.talk import House
from regard.play.training import MOST_POINTS

BODY_SECONDS = 10.0
MOST_SEED = 9999
CSV_KINDS = ("text/csv", "text/plain", "application/vnd.ms-excel")


def build(
    port: int, tokens: Tokens, locked_out: Callable[[], None], *, body_seconds: float = BODY_SECONDS
) -> tuple[Guard, House]:
    """The guarded app of one run, and what its pages share."""
    house = House()

    async def show(request: Request) -> Response:
        # Whole or not at all: a Range is not looked at, however long.
        found = page().get(request.url.path)
        if found is None:
            raise Refused(404, "there is nothing here")
        return Response(found.content, media_type=found.kind)

    async def notes_data(request: Request) -> Response:
        n, seed = _whole(request, "n", 1, MOST_POINTS), _whole(request, "seed", 0, MOST_SEED)
        data = notes(n, seed)
        return _json({"x": data.x_train.tolist(), "y": data.y_train.tolist()})

    async def take_table(request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in CSV_KINDS:
            raise Refused(415, "a table must be sent as text/csv")
        content = await bounded_body(request.scope, request.receive, tables.MOST_BYTES, body_seconds)
        table = await run_in_threadpool(tables.read, content)
        described = tables.described(table)
        return _json({"table": house.tables.keep(table), **described})

    app = Starlette(
        routes=[
            Route("/notes", notes_data, methods=["GET"]),
            Route("/table", take_table, methods=["POST"]),
            WebSocketRoute("/talk", house.talk),
            Route("/{path:path}", show, methods=["GET"]),
        ],
        exception_handlers={Refused: _refused, HTTPException: _failed, Exception: _bug},
    )
    return Guard(app, port=port, tokens=tokens, locked_out=locked_out), house


def _whole(request: Request, name: str, low: int, high: int) -> int:
    given = request.query_params.getlist(name)
    if len(given) != 1 or not (given[0].isascii() and given[0].isdigit() and len(given[0]) < 8):
        raise Refused(422, f"{name} must be given once, as a whole number")
    if not low <= int(given[0]) <= high:
        raise Refused(422, f"{name} must be from {low} to {high:,}")
    return int(given[0])


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(content, allow_nan=False), status, media_type="application/json")


async def _refused(_: Request, reason: Exception) -> Response:
    assert isinstance(reason, Refused)
    return _json({"error": reason.told}, reason.status)


async def _failed(_: Request, reason: Exception) -> Response:
    assert isinstance(reason, HTTPException)
    response = _json({"error": str(reason.detail).lower()}, reason.status_code)
    response.headers.update(reason.headers or {})
    return response


async def _bug(_: Request, reason: Exception) -> Response:
    return _json({"error": f"a bug in regard: {type(reason).__name__}"}, 500)
