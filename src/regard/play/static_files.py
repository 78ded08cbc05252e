"""The files of the page, read once and held in memory: no path in a request ever reaches the disk."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

# Media types by suffix; browsers refuse scripts without theirs. Files of other kinds are not served.
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".otf": "font/otf",
}


class StaticFile(NamedTuple):
    """One file of the page."""

    content: bytes
    media_type: str


@cache
def page_files() -> dict[str, StaticFile]:
    """Every file of the page by its address, with scripts and a font of figures; ``/`` is index.html."""
    plot = files("regard") / "plot"
    folders = files("regard.play") / "page", plot / "scripts", plot / "fonts"
    found = dict(file for folder in folders for file in _files_below(folder, ""))
    found["/"] = found.pop("/index.html")
    return found


def _files_below(folder: Traversable, prefix: str) -> list[tuple[str, StaticFile]]:
    found = []
    for entry in folder.iterdir():
        address = f"{prefix}/{entry.name}"
        if entry.is_dir():
            found += _files_below(entry, address)
        elif (media_type := MEDIA_TYPES.get("." + entry.name.rsplit(".", 1)[-1])) is not None:
            found.append((address, StaticFile(entry.read_bytes(), media_type)))
    return found
