"""Who may come in: lines 81 to 83 of the list of bad input, on every method and on WebSockets."""

from __future__ import annotations

import json
import socket

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from regard.play.security import Refused
from regard.play.server import Playground
from support.conversation import Conversation

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
ADDRESSES = ["/", "/notes?n=5&seed=0", "/table", "/talk", "/main.js", "/nowhere"]


@pytest.fixture
def cookie(playground):
    return f"{playground.app.cookie}={playground.tokens.session}"


def status_of(playground: Playground, method: str, address: str, headers: list[tuple[str, str]]) -> tuple[int, str]:
    """Status and body over a bare socket, so that headers are exactly these."""
    with socket.create_connection(("127.0.0.1", playground.port), timeout=10) as line:
        fields = "".join(f"{name}: {value}\r\n" for name, value in headers)
        upgrade = any(name == "Upgrade" for name, _ in headers)
        ending = "" if upgrade else "Connection: close\r\n"
        line.sendall(f"{method} {address} HTTP/1.1\r\n{fields}{ending}\r\n".encode("latin-1"))
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
    token = playground.tokens.issue()
    for address in [*ADDRESSES, "/?token=", "/?token=wrong", f"/notes?token={token}", f"/?other={token}"]:
        status, body = status_of(playground, method, address, given)
        assert status == 401
        assert token not in body
        assert playground.tokens.session not in body
    assert playground.tokens.is_unused(token)
    for cookie in [
        "",
        f"{playground.app.cookie}=",
        f"{playground.app.cookie}=wrong",
        f"{playground.app.cookie}={token}",
        f"other={playground.tokens.session}",
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
    answer = httpx.get(playground.new_url())
    given = answer.headers["set-cookie"]
    assert answer.status_code == 200
    assert all(part in given for part in ("HttpOnly", "SameSite=Strict", "Path=/", playground.app.cookie))
    assert playground.app.cookie == f"regard_{playground.port}"
    assert playground.tokens.session in given


def test_an_address_opens_the_page_once_and_the_cookie_goes_on(playground):
    url = playground.new_url()
    with httpx.Client() as visitor:
        first = visitor.get(url)
        assert first.status_code == 200
        assert url.partition("token=")[2] not in first.headers["set-cookie"]
        # Reloaded, and opened again by the same browser.
        assert visitor.get(playground.address).status_code == 200
        assert visitor.get(url).status_code == 200
    assert httpx.get(url).status_code == 401


def test_only_what_opens_the_page_uses_an_address_up(playground):
    url = playground.new_url()
    assert httpx.head(url).status_code == 401
    assert httpx.get(url, headers={"host": "evil.example"}).status_code == 400
    assert httpx.get(url, headers={"origin": "http://evil.example"}).status_code == 403
    with httpx.Client() as visitor:  # who has a cookie already leaves the token to others
        visitor.get(playground.new_url())
        assert visitor.get(url).status_code == 200
    assert httpx.get(url).status_code == 200


BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_a_browser_that_is_locked_out_is_shown_what_to_do_and_a_new_address_is_announced(own_playground):
    playground, announced = own_playground
    playground.announce_url()
    playground.announce_url()
    assert len(announced) == 1  # it is unused still
    for path in ("/", "/?token=wrong", "/main.js"):
        assert httpx.get(playground.address + path, headers=BROWSER).status_code == 401
    assert len(announced) == 1
    assert httpx.get(announced[0], headers=BROWSER).status_code == 200
    for _ in range(3):
        locked = httpx.get(announced[0], headers=BROWSER)
        assert locked.status_code == 401
        assert locked.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in locked.headers["content-security-policy"]
        assert "The last address in its terminal has not been used yet" in locked.text
        assert '<a href="/">' in locked.text
        assert not any(token in locked.text for token in (playground.tokens.session, announced[-1].partition("=")[2]))
    assert len(announced) == 2
    assert httpx.get(announced[1]).status_code == 200


@pytest.mark.parametrize("part", ["\\", "\\377", "; a=b"])
def test_a_long_cookie_is_not_unquoted(playground, part, monkeypatch):
    """By the standard library the first of them takes seconds, in which no other request is answered."""
    monkeypatch.setattr("http.cookies._unquote", lambda _: pytest.fail("a cookie is unquoted"))
    cookie = f'{playground.app.cookie}="{part * (60_000 // len(part))}"'
    status, _ = status_of(playground, "GET", "/", [("Host", f"127.0.0.1:{playground.port}"), ("Cookie", cookie)])
    assert status == 401


@pytest.mark.parametrize("where", ["header", "address"])
def test_too_much_before_the_body_is_431(playground, where):
    long = b"x" * 66_000
    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"", "headers": []}
    scope |= {"headers": [(b"cookie", long)]} if where == "header" else {"query_string": long}
    with pytest.raises(Refused) as refused:
        playground.app.admit(scope)
    assert refused.value.status == 431


def test_our_cookie_is_found_among_others(playground, cookie):
    given = [("Host", f"127.0.0.1:{playground.port}"), ("Cookie", f"a=b;c; {playground.app.cookie}=old;=; {cookie} ;d")]
    assert status_of(playground, "GET", "/", given)[0] == 200


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
        assert other.app.cookie != playground.app.cookie
        secrets = [other.tokens.session, playground.tokens.session, other.tokens.issue(), playground.tokens.issue()]
        assert len(set(secrets)) == 4
        assert min(map(len, secrets)) >= 43
    finally:
        other.shared.queue.close()
        other.socket.close()


def test_a_port_in_use_is_an_error_that_names_it(playground):
    with pytest.raises(OSError, match=f"port {playground.port} cannot be used"):
        Playground(playground.port)
