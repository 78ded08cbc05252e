"""The playground: bytes and first paint of the page, frames while dragging, and many clients at once.

    python benchmarks/play.py                  everything, three minutes; writes results/play.*
    python benchmarks/play.py --seconds 10     shorter with many clients; prints only

The server is ``regard play`` in a process of its own; the page runs in Debian's chromium without a window.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import numpy as np
from websockets.asyncio.client import connect

from machine import describe, facts, save, table
from regard.data import houses, notes
from regard.play.static_files import page_files

CLIENTS, SECONDS = 50, 120.0
FRAMES, POINTS, VISITS = 600, 500, 5
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WIDE = {"viewport": {"width": 1360, "height": 900}}

# Every frame moves one point; the time of a frame is that until the next one begins.
DRAG = """async ([frames, at]) => {
  const svg = document.getElementById("plot"), box = svg.getBoundingClientRect();
  const send = (name, x, y) => svg.dispatchEvent(new PointerEvent(name, { clientX: box.left + x, clientY: box.top + y,
    pointerId: 1, buttons: +(name !== "pointerup"), pointerType: "mouse", bubbles: true, cancelable: true }));
  svg.setPointerCapture = () => {};
  const [x, y] = at;
  send("pointerdown", x, y);
  const times = [];
  let last = 0;
  for (let i = 0; i <= frames; i++) {
    const now = await new Promise(requestAnimationFrame);
    if (last) times.push(now - last);
    last = now;
    send("pointermove", x + 120 * Math.sin(i / 20), y + 90 * Math.cos(i / 13));
  }
  const rest = performance.now();
  while (document.querySelector(".sweep").classList.contains("stale")) await new Promise((done) => setTimeout(done, 2));
  const swept = performance.now() - rest;
  send("pointerup", x, y);
  return { times, swept };
}"""


class Server:
    """``regard play`` in a process of its own."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "regard.cli", "play", "--no-open"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        parts = urlsplit(self.url)
        self.port = parts.port
        self.address, self.token = f"http://{parts.netloc}", parse_qs(parts.query)["token"][0]
        self.headers = {"origin": self.address, "cookie": f"regard_{parts.port}={self.token}"}

    def megabytes(self) -> float:
        """Resident memory now."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * 4096 / 1e6


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait(10)


# Scripts that are loaded when they are asked for.
LATER = ("/table.js", "/share.js")


def sizes() -> dict[str, int]:
    """Bytes of the page by kind; translations, and what is loaded later, apart."""
    found: Counter[str] = Counter()
    for address, file in page_files().items():
        kind = file.media_type.split(";")[0].split("/")[1]
        kind = "translations" if address.startswith("/words/") else "later" if address in LATER else kind
        found[kind] += len(file.content)
    return dict(found)


def in_browser(server: Server) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        paints = []
        for _ in range(VISITS):
            context = browser.new_context(**WIDE)
            visit = context.new_page()
            visit.goto(server.url)
            visit.wait_for_selector(".dot")
            visit.wait_for_timeout(200)
            entries = "performance.getEntriesByType('paint').map((e) => [e.name, e.startTime])"
            paints.append(dict(visit.evaluate(entries))["first-contentful-paint"])
            context.close()
        visit = browser.new_context(**WIDE).new_page()
        visit.goto(f"{server.url}#notes={POINTS}.0&w=3")
        visit.wait_for_selector(f".dot:nth-child({POINTS})", state="attached")
        visit.wait_for_selector(".sweep[d]", state="attached")
        visit.wait_for_timeout(1000)
        dot = "[...document.querySelectorAll('.dot')].map((d) => [+d.getAttribute('cx'), +d.getAttribute('cy')])[250]"
        found = visit.evaluate(DRAG, [FRAMES, visit.evaluate(dot)])
        browser.close()
    times = np.array(found["times"])
    return {
        "first_paint_ms": round(median(paints), 1),
        "slowest_first_paint_ms": round(max(paints), 1),
        "frames": len(times),
        "frames_under_20_ms": round(float((times < 20.0).mean()), 4),
        "frame_ms_median": round(float(np.median(times)), 2),
        "frame_ms_95": round(float(np.quantile(times, 0.95)), 2),
        "curve_ms": round(found["swept"], 1),
    }


async def visit(server: Server, number: int, until: float, statuses: Counter[int], jobs: Counter[int]) -> None:
    """A client that loads the page, trains again and again, and now and then fits a table."""
    data = notes(40, number)
    lesson = {"do": "train", "x": data.x_train.tolist(), "y": data.y_train.tolist(), "kernel": "gaussian", "w": 1.0}
    async with httpx.AsyncClient(base_url=server.address, headers=server.headers, timeout=60.0) as web:
        for address in page_files():
            statuses[(await web.get(address)).status_code] += 1
        uri = f"ws://127.0.0.1:{server.port}/talk"
        extra = {"cookie": server.headers["cookie"]}
        async with connect(uri, origin=server.address, additional_headers=extra, proxy=None) as line:  # type: ignore[arg-type]
            job = 0
            while monotonic() < until:
                job += 1
                asked: dict[str, Any] = {**lesson, "optimizer": "lbfgs" if job % 2 else "sgd"}
                if job % 20 == 5:
                    answer = await web.post("/table", content=_csv(), headers={"content-type": "text/csv"})
                    statuses[answer.status_code] += 1
                    name = answer.json()["table"]
                    asked = {"do": "fit", "table": name, "target": "price", "features": ["area", "distance"]}
                await line.send(json.dumps({"job": job, **asked}))
                message: dict[str, Any] = {}
                while message.get("did") not in ("trained", "fitted", "refused"):
                    message = json.loads(await asyncio.wait_for(line.recv(), 120.0))[-1]
                statuses[message.get("status", 200)] += 1
                jobs[number] += message["did"] != "refused"


def _csv() -> bytes:
    data = houses(25)
    rows = (",".join(f"{cell:g}" for cell in (*row, y)) for row, y in zip(data.X, data.y, strict=True))
    return "\n".join([",".join([*data.feature_names, data.target_name]), *rows]).encode()


async def many(server: Server, seconds: float) -> dict[str, Any]:
    statuses: Counter[int] = Counter()
    jobs: Counter[int] = Counter()
    until = monotonic() + seconds
    memory: list[float] = []

    async def watch() -> None:
        while True:
            await asyncio.sleep(min(1.0, seconds / 20))
            memory.append(server.megabytes())

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(visit(server, number, until, statuses, jobs) for number in range(CLIENTS)))
    watching.cancel()
    # Imports and first fits belong to the start: growth is counted from a quarter of the time on.
    early, late = median(memory[len(memory) // 4 :][:5]), median(memory[-5:])
    done = [jobs[number] for number in range(CLIENTS)]
    return {
        "clients": CLIENTS,
        "seconds": seconds,
        "answers": sum(statuses.values()),
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "answers_5xx": sum(count for status, count in statuses.items() if status >= 500),
        "jobs": sum(done),
        "jobs_per_client": [min(done), max(done)],
        "memory_mb": [round(early, 1), round(late, 1)],
        "memory_growth": round(late / early - 1.0, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long the clients stay")
    seconds = parser.parse_args().seconds
    record: dict[str, Any] = {"machine": facts(), "bytes": sizes()}
    with serving() as server:
        record["page"] = in_browser(server)
    with serving() as server:
        record["clients"] = asyncio.run(many(server, seconds))
    shown, crowd, weighed = record["page"], record["clients"], record["bytes"]
    whole = sum(count for kind, count in weighed.items() if kind != "translations")
    opening, scripts = whole - weighed["later"], weighed["javascript"] + weighed["later"]
    fewest, most = crowd["jobs_per_client"]
    rows = [
        ["the page without translations", f"{whole:,} bytes", "60,000", whole < 60_000],
        ["what of it is loaded when it opens", f"{opening:,} bytes", "60,000", opening < 60_000],
        ["all its scripts, without markup and style", f"{scripts:,} bytes", "60,000", scripts < 60_000],
        ["first paint", f"{shown['first_paint_ms']} ms", "1,000 ms", shown["first_paint_ms"] < 1000],
        [
            f"frames under 20 ms, dragging with {POINTS} points",
            f"{shown['frames_under_20_ms']:.1%} (95 % within {shown['frame_ms_95']} ms)",
            "95 %",
            shown["frames_under_20_ms"] >= 0.95,
        ],
        ["loss curve after rest", f"{shown['curve_ms']} ms", "200 ms", shown["curve_ms"] < 200],
        ["5xx", f"{crowd['answers_5xx']} of {crowd['answers']:,}", "0", crowd["answers_5xx"] == 0],
        [
            "memory growth",
            f"{crowd['memory_growth']:.1%} of {crowd['memory_mb'][0]} MB",
            "5 %",
            crowd["memory_growth"] < 0.05,
        ],
        ["jobs per client", f"{fewest} to {most}", "at most 2 apart", most - fewest <= 2],
    ]
    text = table(["what", "measured", "floor", "met"], [[*row[:3], "yes" if row[3] else "NO"] for row in rows])
    about = f"{CLIENTS} clients for {seconds:g} s, each training and fitting again and again."
    page = f"# The playground\n\n{describe(record['machine'])}\n\n{about}\n\n{text}"
    print(page)
    if seconds >= SECONDS:
        save("play", record, page)


if __name__ == "__main__":
    main()
