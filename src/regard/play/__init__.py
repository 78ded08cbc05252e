"""The playground: a local page where moving a point or the bandwidth shows at once what attention does.

    server    a socket on this machine only, addresses that open the page once, the browser
    connections   how many there may be, and how long they may take for their headers
    security  who may come in: Host, Origin, tokens and cookie; headers; how large and how slow a body may be
    app       the routes: the page, the notes' data, a table, and the conversation
    talk      the conversation over a WebSocket: what a page may ask for, in a table
    messages  what pages send, checked field by field
    fair      jobs of all pages take turns, one at a time
    training  learning w by leave-one-out, every step told
    tables    a page's own CSV: read, fitted, and the rows behind a prediction
    dates     dates translated by a small model, which is learned on its first use
    files     the page itself, held in memory

The page does its own arithmetic (``page/pooling.js``), so that it follows the pointer; the tests hold it to the
library's. A new thing to ask for is a row in ``talk.ASKS`` and a function that does it.
"""

from __future__ import annotations

from regard.play.server import serve

__all__ = ["serve"]
