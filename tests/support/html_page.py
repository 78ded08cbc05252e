"""A page as a test reads it: its words, tags and addresses."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path


class Reader(HTMLParser):
    """Text, tags and every address on a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str | None] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(path: Path) -> Reader:
    """The page in a file."""
    return Reader(path.read_text(encoding="utf-8"))
