"""Who may come in: lines 81 to 83 of the list of bad input, on every method and on WebSockets."""

from __future__ import annotations

import json
import socket

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from conversation import Conversation
from regard.play.server import Playground

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
ADDRESSES = ["/", "/notes?n=5&seed=0", "/table", "/talk", "/main.js", "/nowhere"]


@pytest.fixture
def cookie(playground):
    return f"{playground.app.cookie}={playground.token}"


def status_of(playground: Playground, method: str, address: str, headers: list[tuple[str, str]]) -> tuple[int, str]:
    """Status and body over a bare socket, so that headers are exactly these."""
    with socket.create_connection(("127.0.0.1", playground.port), timeout=10) as line:
        told = "".join(f"{name}: {value}\r\n" for name, value in headers)
        upgrade = any(name == "Upgrade" for name, _ in headers)
        ending = "" if upgrade else "Connection: close\r\n"
        line.sendall(f"{method} {address} HTTP/1.1\r\n{told}{ending}\r\n".encode("latin-1"))
        answer = line.recv(65536)
        while not upgrade and (part := line.recv(65536)):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode("utf-8", "replace")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "host", [None, "evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", "[::1]:{port}"]
)
def test_81_a_foreign_or_missing_host_is_400(playground, cookie, method, host):
    headers = [("Cookie", cookie), ("Origin", playground.address)]
    if host is not None:
        headers.insert(0, ("Host", host.format(port=playground.port)))
    status, body = status_of(playground, method, "/", headers)
    assert status == 400
    assert "evil" not in body


def test_81_two_hosts_are_400(playground, cookie):
    host = f"127.0.0.1:{playground.port}"
    status, _ = status_of(playground, "GET", "/", [("Host", host), ("Host", host), ("Cookie", cookie)])
    assert status == 400


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://localhost:{port}", ""]
)
def test_82_a_foreign_or_null_origin_is_403(playground, cookie, method, origin):
    host = ("Host", f"127.0.0.1:{playground.port}")
    for address in ADDRESSES:
        given = ("Origin", origin.format(port=playground.port))
        assert status_of(playground, method, address, [host, given, ("Cookie", cookie)])[0] == 403


@pytest.mark.parametrize("method", [method for method in METHODS if method not in ("GET", "HEAD")])
def test_82_what_could_change_something_must_say_where_it_comes_from(playground, cookie, method):
    host = ("Host", f"127.0.0.1:{playground.port}")
    assert status_of(playground, method, "/table", [host, ("Cookie", cookie)])[0] == 403


@pytest.mark.parametrize("method", METHODS)
def test_83_without_the_token_401(playground, method):
    given = [("Host", f"127.0.0.1:{playground.port}"), ("Origin", playground.address)]
    for address in [*ADDRESSES, "/?token=", "/?token=wrong", f"/notes?token={playground.token}"]:
        status, body = status_of(playground, method, address, given)
        assert status == 401
        assert playground.token not in body
    for cookie in [
        "",
        f"{playground.app.cookie}=",
        f"{playground.app.cookie}=wrong",
        f"other={playground.token}",
        ";;=\x80",
    ]:
        assert status_of(playground, method, "/", [*given, ("Cookie", cookie)])[0] == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 400),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"cookie": "regard=1"}, 401),
    ],
)
def test_81_to_83_hold_for_websockets(playground, headers, status):
    if "host" in headers:  # the client writes its own Host: ask over a bare socket
        given = [
            ("Host", headers["host"]),
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Version", "13"),
        ]
        given += [("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="), ("Origin", playground.address)]
        assert status_of(playground, "GET", "/talk", given)[0] == status
        return
    with pytest.raises(InvalidStatus) as refused:
        Conversation(playground, **headers)
    assert refused.value.response.status_code == status
    assert len(json.loads(refused.value.response.body)["error"]) < 120


def test_a_websocket_without_an_origin_is_refused(playground, cookie):
    given = [("Host", f"127.0.0.1:{playground.port}"), ("Upgrade", "websocket"), ("Connection", "Upgrade")]
    given += [("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="), ("Cookie", cookie)]
    assert status_of(playground, "GET", "/talk", given)[0] == 403


def test_the_first_visit_sets_a_cookie_that_scripts_and_other_sites_cannot_use(playground):
    answer = httpx.get(playground.url)
    given = answer.headers["set-cookie"]
    assert answer.status_code == 200
    assert all(part in given for part in ("HttpOnly", "SameSite=Strict", "Path=/", playground.app.cookie))


@pytest.mark.parametrize("address", ["/", "/main.js", "/nowhere", "/notes?n=0&seed=0"])
def test_every_answer_carries_our_headers(web, address):
    headers = web.get(address).headers
    policy = headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "*" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers


def test_refusals_carry_them_too(playground):
    answer = httpx.get(playground.address)
    assert answer.status_code == 401
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert set(answer.json()) == {"error"}


def test_it_listens_on_this_machine_only(playground):
    assert playground.socket.getsockname()[0] == "127.0.0.1"


def test_two_runs_have_two_tokens_and_two_cookies(playground):
    other = Playground()
    try:
        assert other.token != playground.token
        assert other.app.cookie != playground.app.cookie
        assert len(other.token) >= 43
    finally:
        other.house.queue.close()
        other.socket.close()


def test_a_port_in_use_is_an_error_that_names_it(playground):
    with pytest.raises(OSError, match=f"port {playground.port} cannot be used"):
        Playground(playground.port)
