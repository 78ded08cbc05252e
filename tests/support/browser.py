"""Debian's chromium, driven by playwright; where there is none, tests of pages skip and say so."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from regard.plot.fonts import CHINESE, INSTALLED

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@contextmanager
def launched() -> Iterator[Any]:
    """A browser."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium on this machine: the page was not tested in a browser (make test installs it)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


def glyphs(page: Any, selector: str) -> int:
    """How many letters of an element are drawn with a font that has Chinese ones, our own or an installed one."""
    session = page.context.new_cdp_session(page)
    session.send("DOM.enable")
    session.send("CSS.enable")
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    node = session.send("DOM.querySelector", {"nodeId": root, "selector": selector})["nodeId"]
    used = session.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
    return sum(int(font["glyphCount"]) for font in used if font["familyName"] in (CHINESE, *INSTALLED))
