"""The HTTP surface: bad bodies, bad addresses, and whatever hypothesis thinks of (lines 84, 86, 89, 90, 93 and 94)."""

from __future__ import annotations

import json
import pickle
import socket

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.play import tables
from regard.play.static_files import page_files

CSV = b"x,y\n1,2\n2,3\n3,5\n"
SHORT = 400


def post(web: httpx.Client, content: bytes, kind: str = "text/csv") -> httpx.Response:
    return web.post("/table", content=content, headers={"content-type": kind})


def refused(answer: httpx.Response, *statuses: int) -> str:
    assert answer.status_code in statuses, answer.text[:200]
    assert set(answer.json()) == {"error"}
    assert len(answer.text) < SHORT
    return str(answer.json()["error"])


def test_a_table_is_read_and_described(web):
    found = post(web, b"area,kind,price,same\n1,a,2,7\n2,b,3,7\n3,c,5,7\n").json()
    assert found["rows"] == 3
    why = {column["name"]: column["why_not"] for column in found["columns"]}
    assert why["area"] == why["price"] == ""
    assert "column of text" in why["kind"]
    assert why["same"] == "does not vary"


@pytest.mark.parametrize(
    "kind", ["", "application/json", "multipart/form-data; boundary=x", "application/octet-stream"]
)
def test_84_a_wrong_content_type_is_415(web, kind):
    refused(post(web, CSV, kind), 415)


def test_86_an_oversize_body_is_413_before_it_is_read(playground, web):
    refused(post(web, b"x" * (tables.MAX_BYTES + 1)), 413)
    # Announced but never sent: the answer does not wait for it.
    with socket.create_connection(("127.0.0.1", playground.port), timeout=5) as line:
        line.sendall(head(playground, "text/csv", tables.MAX_BYTES + 1))
        assert line.recv(1000).split()[1] == b"413"


def test_86_an_oversize_body_in_pieces_is_413(web):
    piece = b"1,2\n" * 250_000
    refused(web.post("/table", content=iter([piece] * 5), headers={"content-type": "text/csv"}), 413)


def head(playground, kind: str, length: int) -> bytes:
    cookie = f"{playground.app.cookie}={playground.tokens.session}"
    return (
        f"POST /table HTTP/1.1\r\nHost: 127.0.0.1:{playground.port}\r\nOrigin: {playground.address}\r\n"
        f"Cookie: {cookie}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    ).encode("ascii")


def test_93_a_slow_body_is_timed_out(playground):
    with socket.create_connection(("127.0.0.1", playground.port), timeout=10) as line:
        line.sendall(head(playground, "text/csv", 100) + b"x,y\n")
        assert line.recv(1000).split()[1] == b"408"


def test_a_body_that_breaks_off_leaves_nothing(playground, web):
    before = len(playground.shared.tables)
    with socket.create_connection(("127.0.0.1", playground.port), timeout=10) as line:
        line.sendall(head(playground, "text/csv", 100) + b"x,y\n")
    assert web.get("/notes?n=5&seed=0").status_code == 200
    assert len(playground.shared.tables) == before


@pytest.mark.parametrize(
    "address",
    [
        "/../app.py",
        "/%2e%2e/app.py",
        "/..%2fapp.py",
        "/words/../../app.py",
        "/%5c%5chost%5cshare",
        "//host/share",
        "/index.html",
        "/main.js/",
        "/main.js%00",
        "/C:/windows",
        "/etc/passwd",
        "/words/",
        "/MAIN.JS",
    ],
)
def test_89_paths_that_lead_elsewhere_are_404(playground, web, address):
    with socket.create_connection(("127.0.0.1", playground.port), timeout=10) as line:
        cookie = f"{playground.app.cookie}={playground.tokens.session}"
        host = f"Host: 127.0.0.1:{playground.port}"
        line.sendall(
            f"GET {address} HTTP/1.1\r\n{host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n".encode("ascii")
        )
        assert line.recv(1000).split()[1] == b"404"


def test_90_byte_ranges_are_not_looked_at(web):
    ranges = ",".join(f"{n}-{n}" for n in range(3000))
    answer = web.get("/main.js", headers={"range": f"bytes={ranges}"})
    assert answer.status_code == 200
    assert answer.content == page_files()["/main.js"].content
    # More than a header may hold ends the request, not the server.
    ranges = ",".join(f"{n}-{n}" for n in range(10_000))
    assert web.get("/main.js", headers={"range": f"bytes={ranges}"}).status_code in (200, 400, 431)
    assert web.get("/").status_code == 200


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_94_a_pickle_is_refused_and_never_loaded(web, protocol):
    content = pickle.dumps(Bomb(), protocol)
    refused(post(web, content, "application/octet-stream"), 415)
    refused(post(web, content), 422)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"x,y\n", "no rows"),
        (b"x,y\n1,2\n3\n", "row 1"),
        (b"x,x\n1,2\n", "more than once"),
        (b'x,y\n1,"2\n', "never closed"),
        (b"x,y\n1,\xff\n", "not UTF-8"),
        (b"x,y\n" + b"1,2\n" * (tables.MAX_ROWS + 1), "at most 5,000 rows"),
        (",".join(f"c{n}" for n in range(101)).encode() + b"\n" + b",".join([b"1"] * 101) + b"\n", "100 columns"),
    ],
)
def test_a_bad_table_is_422_and_says_where(web, content, said):
    assert said in refused(post(web, content), 422)


def test_the_oldest_tables_make_room(playground, web):
    names = [post(web, CSV).json()["table"] for _ in range(tables.MAX_TABLES + 3)]
    assert len(playground.shared.tables) == tables.MAX_TABLES
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "n=50",
        "n=0&seed=0",
        "n=1001&seed=0",
        "n=5&seed=-1",
        "n=5&seed=10000",
        "n=5.0&seed=0",
        "n=1e3&seed=0",
        "n=٣&seed=0",
        "n=5&n=6&seed=0",
        "n=99999999999&seed=0",
    ],
)
def test_notes_for_numbers_that_make_no_sense_are_422(web, query):
    refused(web.get(f"/notes?{query}"), 422)


def test_notes_are_the_librarys(web):
    from regard.data import notes

    found = web.get("/notes?n=20&seed=3").json()
    assert (found["x"], found["y"]) == tuple(each.tolist() for each in notes(20, 3)[:2])


ADDRESS = st.text(
    st.characters(codec="ascii", exclude_characters="\r\n #?", categories=["L", "N", "P", "S"]), max_size=40
)
KNOWN = st.sampled_from(["/", "/notes", "/table", "/talk", "/main.js"])
QUERY = st.dictionaries(
    st.sampled_from(["n", "seed", "token", "x"]), st.one_of(st.integers().map(str), st.text(max_size=8)), max_size=3
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"]),
    address=st.one_of(KNOWN, ADDRESS.map(lambda text: "/" + text)),
    query=QUERY,
    kind=st.sampled_from(["text/csv", "application/json", "text/plain; charset=utf-8", "", "x"]),
    content=st.one_of(st.binary(max_size=200), st.text(max_size=100).map(lambda text: text.encode("utf-8", "replace"))),
)
def test_nothing_is_ever_a_5xx(web, method, address, query, kind, content):
    """Whatever is asked gets an answer below 500, and every refusal is one short line of JSON."""
    try:
        answer = web.request(method, address, params=query, content=content, headers={"content-type": kind})
    except httpx.InvalidURL:
        return
    assert answer.status_code < 500
    if answer.status_code >= 400 and method != "HEAD":
        assert len(answer.content) < SHORT
        assert set(answer.json()) == {"error"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cells=st.lists(st.lists(st.text(max_size=6), min_size=1, max_size=4), min_size=1, max_size=5))
def test_tables_of_anything_are_read_or_refused(web, cells):
    content = "\n".join(",".join(row) for row in cells).encode("utf-8", "surrogatepass")
    answer = post(web, content)
    assert answer.status_code in (200, 422)
    json.loads(answer.text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(raw=st.binary(min_size=1, max_size=300))
def test_raw_bytes_do_not_end_the_server(playground, raw):
    with socket.create_connection(("127.0.0.1", playground.port), timeout=5) as line:
        line.sendall(raw)
        line.shutdown(socket.SHUT_WR)
        answer = line.recv(1000)
    assert not answer or answer.split()[1][:1] in (b"1", b"4"), answer
