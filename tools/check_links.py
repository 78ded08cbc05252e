"""Check a built site: every link and anchor leads somewhere in it, and no page loads anything from elsewhere.

``python tools/check_links.py docs/_build/html``; nothing is fetched. Links to other sites are counted, not opened.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes by which a page loads a file when it is opened.
LOADS = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
}


class Page(HTMLParser):
    """What one page refers to: links, loaded files, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if tag in LOADS and LOADS[tag] in values:
            self.loaded.add(values[LOADS[tag]])


def is_elsewhere(target: str) -> bool:
    parts = urlsplit(target)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def broken(pages: dict[Path, Page]) -> list[str]:
    """One line for each link that leads nowhere, and for each file loaded from elsewhere."""
    found = []
    for path, page in pages.items():
        found += [f"{path}: loads {target}" for target in sorted(page.loaded) if is_elsewhere(target)]
        for target in sorted(page.links | page.loaded):
            parts = urlsplit(target)
            if is_elsewhere(target) or parts.scheme == "data":
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not to.is_file():
                found.append(f"{path}: no file for {target}")
            elif anchor and to in pages and anchor not in pages[to].anchors:
                found.append(f"{path}: no anchor for {target}")
    return found


def loaded_by_styles(folder: Path) -> list[str]:
    """What style sheets load from elsewhere."""
    return [
        f"{path}: loads {target}"
        for path in sorted(folder.rglob("*.css"))
        for target in re.findall(r"(?:url\(|@import )['\"]?((?:https?:)?//[^'\")]+)", path.read_text(encoding="utf-8"))
    ]


def check(folder: Path) -> tuple[int, int, list[str]]:
    """Pages, links within the site, and what is wrong."""
    pages = {
        path.resolve(): Page(path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.html"))
        if "_static" not in path.parts
    }
    inside = sum(not is_elsewhere(target) for page in pages.values() for target in page.links)
    return len(pages), inside, broken(pages) + loaded_by_styles(folder)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("usage: python tools/check_links.py FOLDER")
    count, links, wrong = check(Path(sys.argv[1]))
    print("\n".join(wrong) or f"{count} pages, {links} links within the site: all lead somewhere")
    sys.exit(bool(wrong))
