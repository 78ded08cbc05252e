"""The routes: the page, the notes' data, an uploaded table, and the WebSocket. Errors are one line of JSON."""

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
from regard.play.security import Guard, Refused, Tokens, bounded_body
from regard.play.sessions import SharedState
from regard.play.static_files import page_files
from regard.play.w_training import MAX_POINTS

BODY_SECONDS = 10.0
MAX_SEED = 9999
CSV_MEDIA_TYPES = ("text/csv", "text/plain", "application/vnd.ms-excel")


def build(
    port: int, tokens: Tokens, locked_out: Callable[[], None], *, body_seconds: float = BODY_SECONDS
) -> tuple[Guard, SharedState]:
    """The guarded app of one run, and the state that its pages share."""
    shared = SharedState()

    async def serve_file(request: Request) -> Response:
        # A Range header is ignored, however long: files are sent whole.
        found = page_files().get(request.url.path)
        if found is None:
            raise Refused(404, "not found")
        return Response(found.content, media_type=found.media_type)

    async def notes_data(request: Request) -> Response:
        n, seed = _integer(request, "n", 1, MAX_POINTS), _integer(request, "seed", 0, MAX_SEED)
        data = notes(n, seed)
        return _json({"x": data.x_train.tolist(), "y": data.y_train.tolist()})

    async def upload_table(request: Request) -> Response:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type not in CSV_MEDIA_TYPES:
            raise Refused(415, f"the content type of a table must be one of {', '.join(CSV_MEDIA_TYPES)}")
        content = await bounded_body(request.scope, request.receive, tables.MAX_BYTES, body_seconds)
        table = await run_in_threadpool(tables.read, content)
        described = tables.describe(table)
        return _json({"table": shared.tables.add(table), **described})

    app = Starlette(
        routes=[
            Route("/notes", notes_data, methods=["GET"]),
            Route("/table", upload_table, methods=["POST"]),
            WebSocketRoute("/talk", shared.serve_page),
            Route("/{path:path}", serve_file, methods=["GET"]),
        ],
        exception_handlers={Refused: _refused, HTTPException: _http_error, Exception: _bug},
    )
    return Guard(app, port=port, tokens=tokens, locked_out=locked_out), shared


def _integer(request: Request, name: str, low: int, high: int) -> int:
    given = request.query_params.getlist(name)
    if len(given) != 1 or not (given[0].isascii() and given[0].isdigit() and len(given[0]) < 8):
        raise Refused(422, f"{name} must be given exactly once, as an integer")
    if not low <= int(given[0]) <= high:
        raise Refused(422, f"{name} must be an integer from {low} to {high:,}")
    return int(given[0])


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(content, allow_nan=False), status, media_type="application/json")


async def _refused(_: Request, reason: Exception) -> Response:
    assert isinstance(reason, Refused)
    return _json({"error": reason.message}, reason.status)


async def _http_error(_: Request, reason: Exception) -> Response:
    assert isinstance(reason, HTTPException)
    response = _json({"error": str(reason.detail).lower()}, reason.status_code)
    response.headers.update(reason.headers or {})
    return response


async def _bug(_: Request, reason: Exception) -> Response:
    return _json({"error": f"a bug in regard: {type(reason).__name__}"}, 500)
