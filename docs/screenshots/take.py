"""The README's screenshots: ``python docs/screenshots/take.py`` takes them again, in Debian's chromium.

The playground and its view of dates, a report and the tour, as a reader sees them; into this folder.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import BrowserContext, sync_playwright

from regard.data import Table, houses, write_table

HERE = Path(__file__).resolve().parent
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
WIDTH, HEIGHT = 1280, 840
# Milliseconds; the date model is learned on its first use.
PATIENCE = 300_000


def shoot(
    window: BrowserContext, address: str, name: str, ready: str, scroll: str | None = None, steps: int = 0
) -> None:
    """One window full of a page, once ``ready`` is there; nothing moves in it but for some presses of an arrow key."""
    page = window.new_page()
    page.goto(address)
    page.wait_for_selector(ready, timeout=PATIENCE)
    if scroll is not None:
        page.locator(scroll).scroll_into_view_if_needed()
        page.evaluate("name => document.querySelector(name).scrollIntoView()", scroll)
    for _ in range(steps):
        page.locator("#decoder").press("ArrowRight")
    page.wait_for_timeout(800)
    page.screenshot(path=HERE / f"{name}.png")
    page.close()
    print(f"wrote {name}.png")


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed")
    data = houses()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=list(FLAGS))
        # The address of regard play opens in one browser only.
        window = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce")
        table = dict(zip(data.feature_names, data.X.T, strict=True)) | {data.target_name: data.y}
        write_table(Table(tuple(table), table), f"{folder}/houses.csv")
        command = [sys.executable, "-m", "regard.cli"]
        run = [*command, "fit", "houses.csv", "--target", "price", "--out", "m.regard", "--report", "report.html"]
        subprocess.run(run, cwd=folder, check=True, stderr=subprocess.DEVNULL)
        shoot(window, f"file://{folder}/report.html", "report", "h1")
        regard_tour = [*command, "tour", "--out", "tour"]
        subprocess.run(regard_tour, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shoot(window, f"file://{folder}/tour/index.html", "tour", "h1", "#sharper")
        server = subprocess.Popen([*command, "play", "--no-open"], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
            shoot(window, address, "playground", "svg circle")
            shoot(window, f"{address}#view=dates&date=mardi 24 août 1999", "dates", "#decoder .step.at", steps=6)
        finally:
            server.terminate()
            server.wait()
        browser.close()


if __name__ == "__main__":
    main()
