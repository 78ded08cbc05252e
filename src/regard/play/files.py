"""The page itself: read once, held in memory, so that no path of a client ever meets the disk."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

# What may lie in the folder, and how it is called on the wire; scripts must have theirs or browsers refuse them.
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}


class File(NamedTuple):
    """One file of the page."""

    content: bytes
    kind: str


@cache
def page() -> dict[str, File]:
    """Every file of the page by its address, ``/`` being index.html."""
    found = dict(_walk(files("regard.play") / "page", ""))
    found["/"] = found.pop("/index.html")
    return found


def _walk(folder: Traversable, under: str) -> list[tuple[str, File]]:
    found = []
    for entry in folder.iterdir():
        address = f"{under}/{entry.name}"
        if entry.is_dir():
            found += _walk(entry, address)
        elif (kind := KINDS.get("." + entry.name.rsplit(".", 1)[-1])) is not None:
            found.append((address, File(entry.read_bytes(), kind)))
    return found
