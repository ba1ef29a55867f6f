"""Test the server's side of the WebSocket handshake [RFC 6455 4.2], byte by byte."""

from __future__ import annotations

import base64
import hashlib
import random
from typing import NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from cext.testing import net_api
from tests.harness.effort import tries

KEY = "dGhlIHNhbXBsZSBub25jZQ=="  # of RFC 6455 1.3
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
HEADERS = {
    "Host": "broker.example",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "mqtt",
}
GOOD_101 = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: " + ACCEPT + b"\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


def request(line: str = "GET /mqtt HTTP/1.1", extra: str = "", **changes: str | None) -> bytes:
    """Return a valid request with some headers changed, or omitted (None); `_` in a name stands for `-`."""
    headers: dict[str, str | None] = {**HEADERS, **{name.replace("_", "-"): value for name, value in changes.items()}}
    lines = [line, *(f"{name}: {value}" for name, value in headers.items() if value is not None)]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n" + extra.encode("latin-1") + b"\r\n"


def req(**changes: str | None) -> bytes:
    return request(**changes)


class Row(NamedTuple):
    id: str
    clause: str
    wire: bytes
    status: int
    subprotocol: str | None = "mqtt"
    text: str = ""  # part of the body of a refusal


ROWS = [
    Row("good", "4.2.2", request(), 101),
    Row("any-path", "4.2.1", request("GET / HTTP/1.1"), 101),
    Row("path-and-query", "4.2.1", request("GET /a/b?c=d#e HTTP/1.1"), 101),
    Row("full-url", "9112 3.2.2", request("GET http://broker.example/mqtt HTTP/1.1"), 101),
    Row("http-1.2", "4.2.1", request("GET / HTTP/1.2"), 101),
    Row("case-of-words", "4.2.1", req(Upgrade="WebSocket", Connection="upgrade"), 101),
    Row("case-of-names", "9110 5.1", request().replace(b"Sec-WebSocket", b"SEC-websocket"), 101),
    Row("connection-list", "4.2.1", req(Connection="keep-alive, Upgrade"), 101),
    Row("upgrade-list", "9110 7.8", req(Upgrade="h2c,websocket"), 101),
    Row("blanks-around-values", "9112 5", request(extra="X-A:  \t b \t\r\nX-B:\r\n"), 101),
    Row("no-host", "lenient", req(Host=None), 101),
    Row("v31", "4.2.2", req(Sec_WebSocket_Protocol="mqttv3.1"), 101, "mqttv3.1"),
    Row("clients-order", "4.2.2", req(Sec_WebSocket_Protocol="mqttv3.1, mqtt"), 101, "mqttv3.1"),
    Row("among-others", "4.2.2", req(Sec_WebSocket_Protocol="chat ,mqtt, x"), 101),
    Row("protocol-in-two-lines", "11.3.4", request(extra="Sec-WebSocket-Protocol: mqttv3.1\r\n"), 101),
    Row("other-lines", "9112", request(extra="Cookie: a=b; c=\"d\"\r\nUser-Agent: \xe9\xff\r\nSec-WebSocket-Extensions: permessage-deflate\r\n"), 101),
    Row("no-protocol", "v5 6.0.0-3", req(Sec_WebSocket_Protocol=None), 400, None, "must offer mqtt"),
    Row("other-protocol", "v5 6.0.0-3", req(Sec_WebSocket_Protocol="chat"), 400, None, "must offer mqtt"),
    Row("protocol-case", "v5 6.0.0-4", req(Sec_WebSocket_Protocol="MQTT"), 400, None, "must offer mqtt"),
    Row("post", "4.2.1", request("POST /mqtt HTTP/1.1"), 405, text="GET"),
    Row("options", "4.2.1", request("OPTIONS * HTTP/1.1"), 405, text="GET"),
    Row("get-in-small", "9110 9.1", request("get / HTTP/1.1"), 400),
    Row("method-long", "9110 9.1", b"A" * 40, 400),
    Row("http-1.0", "4.2.1", request("GET / HTTP/1.0"), 505, text="1.1"),
    Row("http-2.0", "4.2.1", request("GET / HTTP/2.0"), 505, text="1.1"),
    Row("http-word", "9112 2.3", request("GET / HTTX/1.1"), 400),
    Row("http-0.9", "9112 3", b"GET /\r\n", 400),
    Row("no-path", "9112 3", request("GET  HTTP/1.1"), 400),
    Row("blank-in-path", "9112 3", request("GET /a b HTTP/1.1"), 400),
    Row("control-in-path", "9112 3", request("GET /a\x01 HTTP/1.1"), 400),
    Row("no-upgrade", "4.2.1", req(Upgrade=None), 426, text="WebSocket port"),
    Row("other-upgrade", "4.2.1", req(Upgrade="h2c"), 426, text="WebSocket port"),
    Row("no-connection", "4.2.1", req(Connection="keep-alive"), 426, text="WebSocket port"),
    Row("no-version", "4.2.1", req(Sec_WebSocket_Version=None), 426, text="Version: 13"),
    Row("version-8", "4.4", req(Sec_WebSocket_Version="8"), 426, text="Version: 13"),
    Row("version-list", "4.4", req(Sec_WebSocket_Version="8, 13"), 426, text="Version: 13"),
    Row("version-twice", "11.3.5", request(extra="Sec-WebSocket-Version: 13\r\n"), 400),
    Row("no-key", "4.2.1", req(Sec_WebSocket_Key=None), 426, text="Key"),
    Row("key-short", "4.2.1", req(Sec_WebSocket_Key="dGhl"), 400, text="Key"),
    Row("key-letters", "4.2.1", req(Sec_WebSocket_Key="!GhlIHNhbXBsZSBub25jZQ=="), 400, text="Key"),
    Row("key-17-bytes", "4.2.1", req(Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQA="), 400, text="Key"),
    Row("key-loose-bits", "4.2.1", req(Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZR=="), 400, text="Key"),
    Row("key-twice", "11.3.1", request(extra=f"Sec-WebSocket-Key: {KEY}\r\n"), 400),
    Row("lf-only", "9112 2.2", request().replace(b"\r\n", b"\n"), 400),
    Row("empty-line-first", "9112 2.2", b"\r\n" + request(), 400),
    Row("folded-line", "9112 5.2", request(extra="X: a\r\n b\r\n"), 400),
    Row("blank-before-colon", "9112 5.1", request(extra="X : a\r\n"), 400),
    Row("no-colon", "9112 5", request(extra="Xa\r\n"), 400),
    Row("no-name", "9112 5", request(extra=": a\r\n"), 400),
    Row("nul-in-value", "9110 5.5", request(extra="X: a\x00b\r\n"), 400),
    Row("cr-in-value", "9110 5.5", request(extra="X: a\rb\r\n"), 400),
    Row("an-mqtt-connect", "plain on ws", bytes.fromhex("100c00044d5154540402003c0000"), 400, text="HTTP"),
    Row("a-tls-hello", "tls on ws", bytes.fromhex("16030100c8010000c4"), 400, text="HTTP"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_clause(row: Row) -> None:
    whole = net_api.Handshake()
    assert whole.take(row.wire) == row.status, row.clause
    answer = whole.answer()
    if row.status == 101:
        assert whole.size() == len(row.wire)
        assert whole.subprotocol() == row.subprotocol
        assert answer == GOOD_101.replace(b": mqtt\r\n", f": {row.subprotocol}\r\n".encode())
    else:
        refusal(answer, row.status, row.text)


def refusal(answer: bytes, status: int, text: str) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0].startswith(f"HTTP/1.1 {status} ")
    fields = dict(line.split(": ", 1) for line in lines[1:])
    assert fields["Content-Length"] == str(len(body))
    assert "close" in fields["Connection"]
    assert text in body.decode()
    assert fields.get("Sec-WebSocket-Version") == ("13" if status == 426 else None)
    assert fields.get("Allow") == ("GET" if status == 405 else None)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_byte_by_byte(row: Row) -> None:
    slow = net_api.Handshake()
    for n in range(1, len(row.wire) + 1):
        status = slow.take(row.wire[:n])
        if status:
            break
    assert status == row.status
    fast = net_api.Handshake()
    fast.take(row.wire)
    assert slow.answer() == fast.answer()
    assert n == len(row.wire) if row.status == 101 else n <= len(row.wire)


@pytest.mark.parametrize("wire", [b"\x10", b"\x16", b"x", b"GEX ", b"\r", b"GET\n"])
def test_input_that_is_not_http_is_refused_at_once(wire: bytes) -> None:
    assert net_api.Handshake().take(wire) in (400, 405)


def test_frames_may_follow_in_the_same_read() -> None:
    shake = net_api.Handshake()
    assert shake.take(request() + b"\x82\x82abcd..") == 101
    assert shake.size() == len(request())


@pytest.mark.parametrize("size_max", [0, 1, 100, 400, 4096, 65535])
def test_size(size_max: int) -> None:
    base = len(request(extra="X: \r\n"))
    for size in (size_max, size_max + 1):
        if size < base:
            wire = request()[:size]
            assert net_api.Handshake(size_max).take(wire) == (0 if size <= size_max else 431)
            continue
        wire = request(extra=f"X: {'a' * (size - base)}\r\n")
        assert len(wire) == size
        fits = size <= size_max
        assert net_api.Handshake(size_max).take(wire) == (101 if fits else 431)
        slow = net_api.Handshake(size_max)
        found = [slow.take(wire[:n]) for n in (size // 3, size // 2, size - 1, size)]
        assert found[-1] == (101 if fits else 431)
        # a request without an end is refused at the limit
        assert net_api.Handshake(size_max).take(wire[:-4]) == 0
        assert net_api.Handshake(size_max).take(wire[:-4] + b"a" * 5) == (0 if size + 1 <= size_max else 431)
    refusing = net_api.Handshake(size_max)
    refusing.take(b"GET /" + b"a" * 70000)
    refusal(refusing.answer(), 431, "packet_buffer_size")


ORIGINS = ("https://app.example", "http://localhost:8080")


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 101),  # the client is no browser
        ("https://app.example", 101),
        ("http://localhost:8080", 101),
        ("HTTPS://App.Example", 101),
        ("http://app.example", 403),
        ("https://app.example:443", 403),
        ("https://app.example.evil", 403),
        ("https://app.exampl", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_origin(origin: str | None, status: int) -> None:
    """Test [RFC 6455 4.2.1, 10.2]."""
    shake = net_api.Handshake(4096, ORIGINS)
    assert shake.take(req(Origin=origin)) == status
    if status == 403:
        refusal(shake.answer(), 403, "origin")
    assert net_api.Handshake().take(req(Origin=origin)) == 101


def test_two_origins_are_refused() -> None:
    shake = net_api.Handshake(4096, ORIGINS)
    assert shake.take(request(extra="Origin: https://app.example\r\nOrigin: https://evil.example\r\n")) == 400


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, None),
        ("10.1.2.3", b"10.1.2.3"),
        ("10.1.2.3, 10.9.9.9", b"10.1.2.3, 10.9.9.9"),
        (" 2001:db8::1 ,x", b"2001:db8::1 ,x"),
        ("", b""),
    ],
)
def test_forwarded(value: str | None, seen: bytes | None) -> None:
    shake = net_api.Handshake()
    assert shake.take(req(X_Forwarded_For=value)) == 101
    assert shake.forwarded() == seen


def test_accept() -> None:
    """Test [RFC 6455 1.3]."""
    assert net_api.accept(KEY.encode()) == ACCEPT


@given(st.binary(min_size=16, max_size=16))
def test_accept_is_sha1_in_base64(key: bytes) -> None:
    text = base64.b64encode(key)
    digest = hashlib.sha1(text + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    assert net_api.accept(text) == base64.b64encode(digest)


line = st.one_of(
    st.sampled_from([f"{name}: {value}" for name, value in HEADERS.items()]),
    st.text(alphabet="aX-: ,\t\r\n\0=", max_size=12),
    st.sampled_from(["Origin: x", "Connection: a,, b", "Upgrade: websocket,x", "Sec-WebSocket-Protocol: a,mqttv3.1"]),
)


@pytest.mark.again("properties")
@settings(max_examples=tries(300, 80))
@given(
    st.sampled_from(["GET / HTTP/1.1", "GET /x HTTP/1.1", "POST / HTTP/1.1", "GET", "GE", "A" * 20]),
    st.lists(line, max_size=10),
    st.sampled_from(["\r\n", "\r\n", "\r\n", "\n"]),
    st.integers(0, 300),
    st.randoms(use_true_random=False),
)
def test_any_split_gives_the_same_result(start: str, lines: list[str], eol: str, size_max: int, chance: random.Random) -> None:
    wire = (eol.join([start, *lines]) + eol + eol).encode()
    whole = net_api.Handshake(size_max, ("x",))
    status = whole.take(wire)
    for step in (1, chance.randint(1, 30)):
        cut = net_api.Handshake(size_max, ("x",))
        found = 0
        for n in [*range(step, len(wire), step), len(wire)]:
            found = cut.take(wire[:n])
            if found:
                break
        assert found == status
        if status:
            assert cut.answer() == whole.answer()
        if status == 101:
            assert cut.size() == whole.size()
