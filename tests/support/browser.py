"""Debian's chromium, driven by playwright; where there is none, tests of pages skip and say so."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

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
