"""Connections that are too many, too slow, refused, or never read; and how much of that is logged."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from regard.play.connections import MAX_CONNECTIONS
from regard.play.sessions import MAX_UNSENT, PageSession
from support.conversation import Conversation

HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def eventually(holds: Callable[[], bool]) -> None:
    end = monotonic() + 20.0
    while not holds():
        assert monotonic() < end
        sleep(0.01)


def line_to(port: int, sent: bytes = b"") -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), timeout=20)
    line.sendall(sent)
    return line


def rest_of(line: socket.socket) -> bytes:
    """All that comes before the connection ends."""
    parts = []
    with suppress(ConnectionError):
        while part := line.recv(65536):
            parts.append(part)
    return b"".join(parts)


# ---- headers

a_second_for_headers = pytest.mark.parametrize("own_playground", [1.0], indirect=True)


@a_second_for_headers
def test_slow_headers_are_408(own_playground):
    playground, _ = own_playground
    with line_to(playground.port, HALF) as line:
        answer = rest_of(line)
    assert answer.split()[1] == b"408"
    assert b"the headers took longer than 1 seconds" in answer
    assert b"default-src 'none'" in answer


@a_second_for_headers
def test_headers_that_trickle_in_get_no_more_time(own_playground):
    playground, _ = own_playground
    with line_to(playground.port, HALF) as line:
        line.settimeout(0.02)
        # A piece that arrives after the end resets the connection, with the answer or without.
        for number in range(2000):
            try:
                if not line.recv(1000).startswith(b"HTTP/1.1 408"):
                    pytest.fail("another answer")
                break
            except TimeoutError:
                with suppress(ConnectionError):
                    line.sendall(b"X-%d: y\r\n" % number)
            except ConnectionError:
                break
        else:
            pytest.fail("the connection is still open")


@a_second_for_headers
def test_a_second_request_has_the_same_time_and_one_that_never_begins_gets_no_answer(own_playground):
    playground, _ = own_playground
    whole = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{playground.port}\r\n"
    cookie = f"Cookie: {playground.app.cookie}={playground.tokens.session}\r\n\r\n"
    with line_to(playground.port, f"{whole}{cookie}".encode("ascii")) as line:
        assert line.recv(1000).startswith(b"HTTP/1.1 200")
        line.sendall(whole.encode("ascii"))
        assert b"HTTP/1.1 408" in rest_of(line)
    with line_to(playground.port) as line:
        assert rest_of(line) == b""


# ---- too many


def test_half_open_requests_do_not_keep_others_out(playground, web):
    with ExitStack() as open_lines:
        for _ in range(2 * MAX_CONNECTIONS):
            open_lines.enter_context(line_to(playground.port, HALF))
        assert web.get("/notes?n=5&seed=0").status_code == 200
        conversation = Conversation(playground)
        conversation.send("{")
        assert conversation.hear()["status"] == 400
        conversation.close()
        assert len(playground.server.server_state.connections) <= MAX_CONNECTIONS


@contextmanager
def running(log: Path, files: int | None = None) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """``regard play`` as a process, with so many file descriptors, and the address it prints."""
    limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))) if files else None
    command = [sys.executable, "-m", "regard.cli", "play", "--no-open"]
    with (
        log.open("w") as err,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True, preexec_fn=limit) as process,
    ):
        try:
            yield process.stdout.readline().strip(), process
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()


GREETING = "open this address in a browser on this machine; press Ctrl-C to stop"
GOODBYE = "playground closed"


def test_few_file_descriptors_and_many_half_open_requests_are_said_once(tmp_path):
    with running(tmp_path / "log", files=64) as (url, _), ExitStack() as open_lines:
        port = httpx.URL(url).port
        for _ in range(150):
            open_lines.enter_context(line_to(port, HALF))
        with httpx.Client() as visitor:
            assert visitor.get(url, timeout=20).status_code == 200
            assert visitor.get(f"http://127.0.0.1:{port}/notes?n=5&seed=0", timeout=20).status_code == 200
    said = (tmp_path / "log").read_text().splitlines()
    assert said == [
        GREETING,
        "too many connections: those without a request are closed (not reported again)",
        GOODBYE,
    ]


def test_refused_connections_are_logged_once_per_kind_at_most(tmp_path):
    with running(tmp_path / "log") as (url, _):
        port = httpx.URL(url).port
        ws = (
            f"GET /talk HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        )
        for _ in range(5):
            for origin, status in (("http://evil.example", b"403"), (f"http://127.0.0.1:{port}", b"401")):
                with line_to(port, f"{ws}Origin: {origin}\r\n\r\n".encode("ascii")) as line:
                    answer = rest_of(line)
                    assert answer.split()[1] == status
                    assert b'{"error": "' in answer
            with line_to(port, b"\x16\x03\x01\r\n\r\n") as line:
                assert rest_of(line).split()[1] == b"400"
            with line_to(port, f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: h2c\r\n".encode("ascii")) as line:
                line.sendall(b"Connection: Upgrade\r\n\r\n")
                assert rest_of(line).split()[1] == b"401"
    said = (tmp_path / "log").read_text().splitlines()
    assert said == [
        GREETING,
        "Invalid HTTP request received. (not reported again)",
        "Unsupported upgrade request. (not reported again)",
        GOODBYE,
    ]


@pytest.mark.parametrize("origin", ["http://evil.example", "null"])
def test_a_websocket_of_another_page_is_403_before_it_is_one(playground, origin):
    with pytest.raises(InvalidStatus) as refused:
        Conversation(playground, origin=origin)
    assert refused.value.response.status_code == 403
    assert set(json.loads(refused.value.response.body)) == {"error"}
    assert "content-security-policy" in refused.value.response.headers


# ---- pages that do not read


class Deaf:
    """A WebSocket whose first frame is never read."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def send_text(self, text: str) -> None:
        self.begun.set()
        await asyncio.Event().wait()


def test_what_waits_for_a_page_is_bounded_and_beyond_that_its_connection_is_cut(playground):
    async def talk() -> None:
        aborted: list[bool] = []
        client = PageSession(playground.shared, lambda: aborted.append(True))
        deaf = Deaf()
        sender = asyncio.create_task(client.send_pending(deaf))
        client.send(1, {"did": "started"})
        await deaf.begun.wait()
        for number in range(MAX_UNSENT // 20):  # steps are left out
            client.send(1, {"did": "step", "w": 1.0, "loss": number})
        await asyncio.sleep(0)
        assert not aborted
        assert MAX_UNSENT - 100 < sum(map(len, client._unsent)) <= MAX_UNSENT
        for _ in range(3):  # an answer cannot be
            client.send(1, {"did": "explained", "row": "x" * 100})
        await asyncio.sleep(0)
        assert aborted == [True]
        assert sum(map(len, client._unsent)) <= MAX_UNSENT
        sender.cancel()

    # Where a browser is driven there is a loop in this thread already.
    with ThreadPoolExecutor(1) as another:
        another.submit(asyncio.run, talk()).result()


def test_a_client_that_never_reads_is_cut_off(own_playground):
    playground, _ = own_playground
    given = (
        f"GET /talk HTTP/1.1\r\nHost: 127.0.0.1:{playground.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        f"Origin: {playground.address}\r\nCookie: {playground.app.cookie}={playground.tokens.session}\r\n\r\n"
    )
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(20)
        line.connect(("127.0.0.1", playground.port))
        line.sendall(given.encode("ascii"))
        eventually(lambda: len(playground.shared.sessions) == 1)
        message = b"\x81" + struct.pack("B", 0x80 | 1) + b"\0\0\0\0{"  # one masked frame of text, refused in 80 letters
        with suppress(ConnectionError):
            for _ in range(60):
                line.sendall(1000 * message)
        eventually(lambda: not playground.shared.sessions)
