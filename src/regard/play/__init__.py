"""The playground: a local page where moving a point or the bandwidth shows at once what attention does.

    server        a socket on this machine only, addresses that open the page once, the browser
    connections   how many there may be, and how long they may take for their headers
    security      which requests are accepted: Host, Origin, tokens and cookie; headers; size and time of a body
    routes        the page, the notes' data, an uploaded table, and the WebSocket
    sessions      one WebSocket for each page: the table of requests that pages may send
    messages      messages from pages, checked field by field
    job_queue     jobs of all pages take turns, one at a time
    w_training    learning w by leave-one-out, reported step by step
    tables        an uploaded CSV: read, fitted, and the rows behind a prediction
    date_service  dates translated by a small model, which is learned on first use
    static_files  the files of the page, held in memory

The page does its own arithmetic (``plot/scripts/pooling.js``), so that it follows the pointer; the tests compare it
with the library's. A new request is a row in ``sessions.REQUESTS`` and a function that does the work.
"""

from __future__ import annotations

from regard.play.server import serve

__all__ = ["serve"]
