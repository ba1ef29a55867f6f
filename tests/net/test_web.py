"""Test WebSocket and PROXY listeners in a running loop; the tests of the parsers do not cover this."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from tests.harness.effort import AT_ONCE_S, TIMEOUT_S
from tests.harness.packets import Connect, Disconnect, Packet, Pingreq, Publish, Subscribe, Will, decode, split
from tests.harness.websocket import WebSocket, handshake
from tests.net.conftest import Dial, Open, Run, Running
from tests.net.frames import BINARY, CLOSE, PING, PONG, TEXT, ServerFrame, frame, read_server
from tests.net.test_proxy import CN, UNIX, ssl, tlv, v2

WS = {"protocol": "websockets"}
V1 = b"PROXY TCP4 10.1.2.3 10.0.0.1 4321 1883\r\n"
CONNACK = b"\x20\x02\x00\x00"
PINGRESP = b"\xd0\x00"


def mqtt(*packets: Packet) -> bytes:
    return b"".join(p.encode(4) for p in packets)


def connect(client_id: str = "c", **more: object) -> bytes:
    return mqtt(Connect(client_id=client_id, **more))  # type: ignore[arg-type]


def read(sock: socket.socket, n: int) -> bytes:
    got = b""
    while len(got) < n:
        more = sock.recv(n - len(got))
        assert more, f"closed after {got!r}"
        got += more
    return got


def to_the_end(sock: socket.socket) -> bytes:
    got = b""
    while more := sock.recv(65536):
        got += more
    return got


def frames_to_the_end(ws: WebSocket) -> list[ServerFrame]:
    frames, rest = read_server(ws._raw + to_the_end(ws.sock))
    assert rest == b""
    return frames


def enter(ws: WebSocket, client_id: str = "c", **more: object) -> WebSocket:
    ws.sendall(connect(client_id, **more))
    assert ws.recv() == CONNACK
    return ws


def publishes(ws: WebSocket, count: int) -> list[bytes]:
    """Return the payloads of the next `count` messages; skip other packets."""
    found: list[bytes] = []
    buffer = b""
    while len(found) < count:
        more = ws.recv()
        assert more, f"closed after {len(found)} messages"
        buffer += more
        while size := split(buffer):
            packet = decode(4, buffer[:size])
            buffer = buffer[size:]
            if isinstance(packet, Publish):
                found.append(packet.payload)
    return found


# ---------------------------------------------------------------- WebSocket


def test_each_byte_in_its_own_write(run: Run, dial: Dial) -> None:
    broker = run(**WS)
    request, accept = handshake()
    sock = dial(broker)
    for byte in request + frame(BINARY, connect()) + frame(PING, b"hi") + frame(BINARY, mqtt(Pingreq())):
        sock.sendall(bytes([byte]))
    got, data = b"", b""
    while len(data) < 6:
        got += sock.recv(65536)
        frames = read_server(got.partition(b"\r\n\r\n")[2])[0]
        data = b"".join(f.payload for f in frames if f.opcode == BINARY)
    assert accept in got
    assert data == CONNACK + PINGRESP
    if ServerFrame(PONG, b"hi") not in frames:  # within a turn the broker sends data first
        assert read(sock, 4) == b"\x8a\x02hi"
    broker.until(lambda s: s["buffers_used_bytes"] == 0)


def test_all_in_one_write(run: Run, dial: Dial) -> None:
    request, _ = handshake()
    sock = dial(run(**WS), request + frame(BINARY, connect()[:3]) + frame(BINARY, connect()[3:] + mqtt(Pingreq())))
    got = b""
    while not got.endswith(CONNACK + PINGRESP):
        got += sock.recv(65536)
    assert got.partition(b"\r\n\r\n")[2] == b"\x82\x06" + CONNACK + PINGRESP


def test_output_of_one_flush_is_one_frame(run: Run, web: Open) -> None:
    broker = run(**WS)
    sub = enter(web(broker), "s")
    sub.sendall(mqtt(Subscribe(1, (("t", 0),))))
    assert sub.recv()[0] == 0x90
    sub.sizes.clear()
    web(broker).sendall(connect("p") + mqtt(*[Publish("t", b"%02d" % n) for n in range(50)]))
    assert publishes(sub, 50) == [b"%02d" % n for n in range(50)]
    assert sub.sizes == [50 * len(mqtt(Publish("t", b"00")))]


@pytest.mark.parametrize("size", [100, 5000, 40_000, 70_000, 300_000, 1_500_000])
def test_large_messages_in_both_directions(run: Run, web: Open, size: int) -> None:
    broker = run(**WS)
    ws = enter(web(broker))
    ws.sendall(mqtt(Subscribe(1, (("t", 0),))))
    assert ws.recv()[0] == 0x90
    payload = bytes(range(256)) * (size // 256) + b"z" * (size % 256)
    for _ in range(3):  # in one frame, in two, in fragments
        ws.sendall(mqtt(Publish("t", payload), Pingreq()))
        assert publishes(ws, 1) == [payload]
    assert ws.closed is None


def test_a_message_in_many_small_frames(run: Run, web: Open) -> None:
    ws = enter(web(run(**WS)))
    ws.sendall(mqtt(Subscribe(1, (("t", 0),))))
    assert ws.recv()[0] == 0x90
    payload = bytes(range(256)) * 400
    packet = mqtt(Publish("t", payload))
    ws.sock.sendall(b"".join(frame(BINARY, packet[i : i + 7]) for i in range(0, len(packet), 7)))
    assert publishes(ws, 1) == [payload]


def test_idle_connections_hold_no_buffer(run: Run, web: Open, dial: Dial) -> None:
    broker = run(**WS)
    sockets = [enter(web(broker), f"c{n}") for n in range(20)]
    for ws in sockets:
        ws.sendall(mqtt(Pingreq()))
        assert ws.recv() == PINGRESP
    assert broker.stats()["buffers_used_bytes"] == 0
    sockets[0].sock.sendall(frame(BINARY, b"\x30\x7f\x00")[:-1])  # the start of a frame and of a packet
    broker.until(lambda s: s["buffers_used_bytes"] == 2048)
    dial(broker, handshake()[0][:-2])
    broker.until(lambda s: s["buffers_used_bytes"] == 4096)


def test_pongs(run: Run, web: Open) -> None:
    ws = enter(web(run(**WS)))
    for payload in (b"", b"a", b"b" * 125):
        ws.sock.sendall(frame(PING, payload) + frame(BINARY, mqtt(Pingreq())))
        assert ws.recv() == PINGRESP
        while len(ws.pongs) == 0:
            frames, ws._raw = read_server(ws._raw + ws.sock.recv(999))
            ws.pongs += [f.payload for f in frames]
        assert ws.pongs.pop() == payload


def test_a_client_that_pings_and_does_not_read_costs_no_memory(run: Run, web: Open) -> None:
    broker = run(**WS)
    ws = enter(web(broker))
    ws.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    many = frame(PING, b"p" * 125) * 1000
    ws.sock.settimeout(0.2)
    try:
        for _ in range(200):
            ws.sock.sendall(many)  # 26 MB
    except TimeoutError:
        pass
    assert broker.stats()["unsent_bytes"] < 10_000


def test_a_reader_that_does_not_read_is_bounded(run: Run, web: Open) -> None:
    broker = run({"max_output_bytes": 1 << 20}, **WS)
    ws = enter(web(broker))
    ws.sock.settimeout(2)  # a busy machine must not end the flood early
    try:
        for _ in range(400):
            ws.sock.sendall(frame(BINARY, mqtt(Pingreq()) * 30_000))  # 24 MB of requests
    except TimeoutError:
        pass
    stats = broker.stats()
    assert stats["unsent_bytes"] < (1 << 20) + 400_000
    assert stats["buffers_used_bytes"] < 3 << 20
    ws.sock.settimeout(TIMEOUT_S)
    for _ in range(50):
        assert set(ws.recv()[::2]) <= {0xD0, 0x00}  # the broker still answers


@pytest.mark.parametrize(
    ("said", "answered"),
    [(b"\x03\xe8", b"\x03\xe8"), (b"\x03\xe9bye", b"\x03\xe9"), (b"", b""), (b"\x0f\xa0", b"\x0f\xa0"), (b"\x00\x01", b"\x03\xea")],
)
def test_close_is_answered(run: Run, web: Open, said: bytes, answered: bytes) -> None:
    """Test [RFC 6455 5.5.1]."""
    broker = run(**WS)
    ws = enter(web(broker))
    ws.sock.sendall(frame(BINARY, mqtt(Pingreq())) + frame(CLOSE, said) + frame(BINARY, mqtt(Pingreq())))
    assert frames_to_the_end(ws) == [ServerFrame(BINARY, PINGRESP), ServerFrame(CLOSE, answered)]


@pytest.mark.parametrize("way", ["disconnect", "close", "disconnect-and-close", "gone", "text"])
def test_the_will_and_the_ways_to_disconnect(run: Run, web: Open, way: str) -> None:
    """Test that a Close frame is no DISCONNECT [v5 3.1.2-8]."""
    broker = run(**WS)
    sub = enter(web(broker), "s")
    sub.sendall(mqtt(Subscribe(1, (("#", 0),))))
    assert sub.recv()[0] == 0x90
    ws = enter(web(broker), "w", will=Will("w", b"will"))
    if way == "gone":
        ws.sock.close()
    else:
        bye = frame(BINARY, mqtt(Disconnect()))
        said = {"disconnect": bye, "close": frame(CLOSE, b"\x03\xe8"), "disconnect-and-close": bye + frame(CLOSE, b"\x03\xe8"),
                "text": frame(TEXT, b"hello")}
        ws.sock.sendall(said[way])
        last = frames_to_the_end(ws)[-1]
        assert last == ServerFrame(CLOSE, b"\x03\xeb" if way == "text" else b"\x03\xe8")
    sub.sendall(mqtt(Publish("#".replace("#", "end"), b"end")))
    # the broker may read either of the two connections first
    assert sorted(publishes(sub, 1 if "disconnect" in way else 2)) == ([b"end"] if "disconnect" in way else [b"end", b"will"])
    want = {"disconnect": "disconnected.", "disconnect-and-close": "disconnected.", "text": "disconnected: Protocol error."}
    assert broker.log("Client w [").endswith(want.get(way, "disconnected: connection closed by client."))


@pytest.mark.parametrize("mean", [frame(BINARY, b"\x10\x00"), frame(BINARY, b"\xf0\x00"), frame(BINARY, connect())])
def test_a_protocol_error_of_mqtt_sends_a_normal_close(run: Run, web: Open, mean: bytes) -> None:
    ws = enter(web(run(**WS)))
    ws.sock.sendall(mean)
    assert frames_to_the_end(ws)[-1] == ServerFrame(CLOSE, b"\x03\xe8")


def test_a_second_client_with_the_same_id(run: Run, web: Open) -> None:
    broker = run(**WS)
    first = enter(web(broker))
    enter(web(broker))
    assert frames_to_the_end(first) == [ServerFrame(CLOSE, b"\x03\xe8")]


def test_a_broker_that_stops_is_going_away(run: Run, web: Open) -> None:
    """Test [RFC 6455 7.4.1]."""
    broker = run(**WS)
    ws = enter(web(broker))
    broker.engine.stop()
    assert frames_to_the_end(ws) == [ServerFrame(CLOSE, b"\x03\xe9")]


def test_close_while_input_is_paused(run: Run, web: Open) -> None:
    """Test a client that sends more requests than it reads answers for, then Close: the broker answers, then closes."""
    broker = run({"max_output_bytes": 1 << 16}, **WS)
    ws = enter(web(broker), will=Will("w", b"x"))
    ws.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    ws.sock.sendall(frame(BINARY, mqtt(Pingreq()) * 60_000) + frame(PING, b"!") + frame(CLOSE, b"\x03\xe8"))
    frames = frames_to_the_end(ws)
    assert b"".join(f.payload for f in frames if f.opcode == BINARY) == PINGRESP * 60_000
    assert frames[-1] == ServerFrame(CLOSE, b"\x03\xe8")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (handshake(protocol="chat")[0], 400),
        (handshake(Origin="https://evil.example")[0], 403),
        (b"POST / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\n\r\n", 426),
        (handshake(X=5000 * "x")[0], 431),
        (connect(), 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400),
    ],
)
def test_refusals(run: Run, dial: Dial, sent: bytes, status: int) -> None:
    broker = run(**WS, websockets_origin=("https://good.example",))
    answer = to_the_end(dial(broker, sent))
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    line = broker.log("disconnected: ")
    assert line.endswith("non-matching http origin." if status == 403 else f"{answer.splitlines()[-1].decode()}.")


@pytest.mark.parametrize("sent", [handshake(Origin="https://evil.example")[0], b"GET / HTTP/1.1\r\n\r\n", connect()])
def test_a_refusal_without_an_answer(run: Run, dial: Dial, web: Open, sent: bytes) -> None:
    """Test `compat`: Mosquitto closes the connection."""
    broker = run({"compat": 1}, **WS, websockets_origin=("https://good.example",))
    assert to_the_end(dial(broker, sent)) == b""
    broker.log("disconnected: ")
    enter(web(broker, Origin="https://good.example"))


@pytest.mark.parametrize("value", [b"close", b"keep-alive"])
def test_compat_accepts_any_connection_header(run: Run, dial: Dial, value: bytes) -> None:
    """nginx sends `Connection: close` if its configuration does not set the header; Mosquitto needs the header, with any value."""
    request = handshake()[0]
    other = request.replace(b"Connection: Upgrade", b"Connection: " + value)
    assert other != request
    assert dial(run({"compat": 1}, **WS), other).recv(12) == b"HTTP/1.1 101"
    assert dial(run(**WS), other).recv(12) == b"HTTP/1.1 426"
    assert to_the_end(dial(run({"compat": 1}, **WS), request.replace(b"Connection: Upgrade\r\n", b""))) == b""


def test_a_browser_of_an_allowed_origin(run: Run, web: Open) -> None:
    broker = run(**WS, websockets_origin=("https://good.example", "https://other.example"))
    enter(web(broker, Origin="https://other.example", User_Agent="Mozilla/5.0", Sec_WebSocket_Extensions="permessage-deflate"))


def test_packet_buffer_size_limits_the_request(run: Run, dial: Dial) -> None:
    broker = run({"packet_buffer_size": 9000}, **WS)
    assert dial(broker, handshake(X="x" * 8000)[0]).recv(12) == b"HTTP/1.1 101"
    assert dial(broker, handshake(X="x" * 9000)[0]).recv(12) == b"HTTP/1.1 431"


def test_websocket_pings_do_not_count_for_keepalive(run: Run, web: Open) -> None:
    """Test that WebSocket pings do not count for keep alive [v5 3.1.2-22]: a browser may answer for a page whose script
    hangs."""
    ws = enter(web(run(**WS)), keepalive=1)
    ws.sock.settimeout(0.1)
    began = time.monotonic()
    while ws.closed is None and time.monotonic() - began < AT_ONCE_S:
        ws.sock.sendall(frame(PING, b"here"))
        try:
            ws.recv()
        except TimeoutError:
            pass
    assert ws.closed == 1000
    assert time.monotonic() - began > 1.2


@pytest.mark.parametrize("options", [WS, {"enable_proxy_protocol": 1}, {"enable_proxy_protocol": 2}, {"enable_proxy_protocol": 2, **WS}])
@pytest.mark.parametrize("dripping", [False, True])
def test_the_first_connect_has_a_deadline(run: Run, dial: Dial, options: dict[str, object], dripping: bool) -> None:
    """Test that connect_timeout ends a client that sends half a header, or sends it slowly, as it ends one that sends half
    a CONNECT."""
    broker = run({"connect_timeout": 1}, **options)
    text = V1 if options.get("enable_proxy_protocol") == 1 else v2() if "enable_proxy_protocol" in options else handshake()[0]
    sock = dial(broker, text[:5])
    began = time.monotonic()
    sock.settimeout(0.1)
    got = None
    for at in range(5, len(text) - 1):
        if dripping:
            sock.sendall(text[at : at + 1])
        try:
            got = sock.recv(100)
            break
        except TimeoutError:
            if not dripping and time.monotonic() - began > AT_ONCE_S:
                break
        except ConnectionResetError:
            got = b""
            break
        if at == len(text) - 2:
            sock.settimeout(TIMEOUT_S)
            got = sock.recv(100)
    assert got == b""
    assert time.monotonic() - began < AT_ONCE_S
    broker.log("exceeded timeout")
    broker.until(lambda s: s["buffers_used_bytes"] == 0)


def test_forwarded_addresses(run: Run, web: Open) -> None:
    broker = run(**WS, websockets_trusted_proxy=("127.0.0.1", "10.9.0.0/16", "2001:db8:9::/48"))
    for n, (value, address) in enumerate([
        ("10.1.2.3", "10.1.2.3"), ("10.1.2.3, 10.9.9.9", "10.1.2.3"), ("2001:db8::1", "2001:db8::1"), ("10.1.2.3:99", "10.1.2.3"),
        ("10.10.0.1, 10.1.2.3", "10.1.2.3"), ("192.0.2.1,10.1.2.3 , 2001:db8:9::1,\t10.9.0.1", "10.1.2.3"), ("10.9.1.1, 10.9.1.2", "10.9.1.1"),
        ("[2001:db8::1]:99", "2001:db8::1"), ("unknown", "127.0.0.1"), ("", "127.0.0.1"), ("10.1.2.3%00", "127.0.0.1"),
        ("[", "127.0.0.1"), (":", "127.0.0.1"), ("x" * 100, "127.0.0.1"), ("10.1.2.3,", "127.0.0.1"), ("10.1.2.3, unknown", "127.0.0.1"),
        ("10.1.2.3, unknown, 10.9.9.9", "10.9.9.9"), ("10.8.255.255", "10.8.255.255"), (",", "127.0.0.1"),
    ]):  # fmt: skip
        ws = enter(web(broker, X_Forwarded_For=value), f"f{n}")
        port = ws.sock.getsockname()[1]
        assert f"New client connected from {address}:{port} as f{n} " in broker.log(f" as f{n} ")


@pytest.mark.parametrize("trusted", [(), ("10.0.0.0/8",), ("::/0",), ("unix",)])
def test_a_forwarded_address_of_an_untrusted_peer_is_ignored(run: Run, web: Open, trusted: tuple[str, ...]) -> None:
    broker = run(**WS, websockets_trusted_proxy=trusted)
    ws = enter(web(broker, X_Forwarded_For="10.1.2.3"), "c")
    address = "10.1.2.3" if trusted == ("::/0",) else "127.0.0.1"       # every IPv4 address is mapped into ::/0
    assert f"New client connected from {address}:{ws.sock.getsockname()[1]} as c " in broker.log(" as c ")


# ---------------------------------------------------------------- PROXY


def proxied(run: Run, dial: Dial, head: bytes, **options: object) -> tuple[Running, socket.socket]:
    broker = run(**{"enable_proxy_protocol": 2, **options})
    return broker, dial(broker, head + connect("p"))


@pytest.mark.parametrize(
    ("version", "head", "address"),
    [
        (1, V1, "10.1.2.3:4321"),
        (1, b"PROXY TCP6 2001:db8::1 ::2 4321 1883\r\n", "2001:db8::1:4321"),
        (1, b"PROXY UNKNOWN\r\n", None),
        (2, v2(), "10.1.2.3:4321"),
        (2, v2(b"", command=0x20, family=0), None),
        (2, v2(UNIX, family=0x31), "/tmp/a:0"),
        (2, v2(b"/path", family=0x31), "/path:0"),
        (2, v2(b"/p\n as q", family=0x31), ":0"),       # a line shows no path that could forge one
        (2, v2(b"/\xff", family=0x31), ":0"),
        (2, v2(tlvs=ssl(7, 0, *CN)), "10.1.2.3:4321"),
    ],
)
def test_the_address_in_a_proxy_header_is_logged(run: Run, dial: Dial, version: int, head: bytes, address: str | None) -> None:
    broker, sock = proxied(run, dial, head, enable_proxy_protocol=version)
    assert read(sock, 4) == CONNACK
    where = address or f"127.0.0.1:{sock.getsockname()[1]}"
    assert broker.log(" as p ").startswith(f"New client connected from {where} as p ")
    assert broker.engine.clients()[0]["port"] == (int(where.rpartition(":")[2]) or None)
    sock.close()
    broker.log(f"Client p [{where}] disconnected: connection closed by client.")
    assert not any("New connection" in line for line in broker.lines)  # the address was not known when it connected


def test_proxy_header_and_connect_byte_by_byte(run: Run, dial: Dial) -> None:
    for version, head in ((1, V1), (2, v2(tlvs=ssl(7, 0, *CN)))):
        broker = run(enable_proxy_protocol=version)
        sock = dial(broker)
        for byte in head + connect():
            sock.sendall(bytes([byte]))
        assert read(sock, 4) == CONNACK
        broker.until(lambda s: s["buffers_used_bytes"] == 0)


@pytest.mark.parametrize(
    ("version", "head"),
    [(1, b""), (2, b""), (1, v2()), (2, V1), (1, V1.replace(b"10.1", b"10.999")), (2, v2(tlvs=b"\x04\xff\xff")), (2, v2(command=0x31)),
     (1, b"PROXY UNKNOWN ".ljust(200, b"x")), (2, v2(length=65535))],
)  # fmt: skip
def test_a_bad_header(run: Run, dial: Dial, version: int, head: bytes) -> None:
    broker, sock = proxied(run, dial, head, enable_proxy_protocol=version)
    assert to_the_end(sock) == b""
    where = f"127.0.0.1:{sock.getsockname()[1]}"
    assert broker.log("rejected") == (f"Connection rejected, corrupt PROXY header. It is from {where}." if version == 1
                                      else f"Connection from {where} rejected, corrupt PROXY header.")


@pytest.mark.parametrize("head", [v2(tlvs=tlv(4, bytes(501 - 12 - 3))), v2(tlvs=b"a" * 489), v2(length=65535), v2(length=3), V1, b"x" * 20])
def test_a_header_that_mosquitto_does_not_read(run: Run, dial: Dial, head: bytes) -> None:
    """Test `compat`: these are Mosquitto's words where the first 16 bytes are wrong or announce more than 500."""
    broker = run({"compat": 1}, enable_proxy_protocol=2)
    sock = dial(broker, head + connect("p"))
    assert to_the_end(sock) == b""
    assert broker.log("disconnected") == ("Client (null) [(null):0] disconnected: bad socket read/write: Invalid input. The PROXY header is corrupt. "
                                          f"It is from 127.0.0.1:{sock.getsockname()[1]}.")


@pytest.mark.parametrize(("settings", "moved"), [({"compat": 1}, True), ({}, False)])
def test_compat_uses_the_addresses_of_a_local_header(run: Run, dial: Dial, settings: dict[str, int], moved: bool) -> None:
    """The standard ignores them, and Mosquitto refuses a LOCAL header only if it has none."""
    broker = run(settings, enable_proxy_protocol=2)
    sock = dial(broker, v2(command=0x20) + connect("p"))
    assert read(sock, 4) == CONNACK
    own = f"127.0.0.1:{sock.getsockname()[1]}"
    assert (f"from {own} as p " not in broker.log(" as p ")) == moved
    sock = dial(broker, v2(command=0x20, family=0, addresses=b"") + connect("q"))
    assert (to_the_end(sock) == b"") if moved else (read(sock, 4) == CONNACK)


def test_headers_that_mosquitto_reads(run: Run, dial: Dial) -> None:
    broker = run({"compat": 1}, enable_proxy_protocol=2)
    sock = dial(broker, v2(tlvs=tlv(4, bytes(500 - 12 - 3))) + connect("p"))
    assert read(sock, 4) == CONNACK
    sock = dial(broker, v2(tlvs=b"\x04\xff\xff") + connect("p"))
    assert to_the_end(sock) == b""
    broker.log(f"Connection from 127.0.0.1:{sock.getsockname()[1]} rejected, corrupt PROXY header.")


@pytest.mark.parametrize(
    ("tlvs", "options", "refused"),
    [
        (b"", {"proxy_protocol_v2_require_tls": True}, "client did not connect using TLS"),
        (ssl(0), {"proxy_protocol_v2_require_tls": True}, "client did not connect using TLS"),
        (ssl(1, 1), {"proxy_protocol_v2_require_tls": True}, None),
        (ssl(1, 1, *CN), {"proxy_protocol_v2_require_tls": True, "require_certificate": True}, "client did not provide a certificate"),
        (ssl(6, 0, *CN), {"require_certificate": True}, "client did not provide a certificate"),
        (ssl(7, 1, *CN), {"require_certificate": True}, "client did not provide a certificate"),
        (b"", {"require_certificate": True}, "client did not provide a certificate"),
        (ssl(5, 0, *CN), {"require_certificate": True}, None),
        (ssl(3, 0, *CN), {"require_certificate": True}, None),
    ],
)
def test_the_tls_of_the_original_client(run: Run, dial: Dial, tlvs: bytes, options: dict[str, object], refused: str | None) -> None:
    broker, sock = proxied(run, dial, v2(tlvs=tlvs), **options)
    if refused is None:
        assert read(sock, 4) == CONNACK
    else:
        assert to_the_end(sock) == b""
        assert broker.log("rejected") == f"Connection from 10.1.2.3:4321 rejected, {refused}."


def test_the_negotiated_tls_version_is_logged(run: Run, dial: Dial) -> None:
    broker, sock = proxied(run, dial, v2(tlvs=ssl(1, 1, *CN)))
    assert read(sock, 4) == CONNACK
    assert broker.log("negotiated") == "Connection from 10.1.2.3:4321 negotiated TLSv1.3 cipher TLS_AES_256_GCM_SHA384"


IDENTITY = {"require_certificate": True, "use_identity_as_username": True}


def test_the_name_in_the_certificate_is_the_user_name(run: Run, dial: Dial) -> None:
    broker = run(enable_proxy_protocol=2, **IDENTITY)
    sock = dial(broker, v2(tlvs=ssl(7, 0, *CN)) + connect("p", username="mallory"))
    assert read(sock, 4) == CONNACK
    assert broker.log(" as p ").endswith("u'älice').")
    assert broker.engine.clients()[0]["username"] == "älice"


@pytest.mark.parametrize("name", [None, b"", b"a\x00b", b"\xff\xfe", b"x" * 1025])
def test_a_certificate_without_a_good_name(run: Run, dial: Dial, name: bytes | None) -> None:
    parts = [] if name is None else [b"\x22" + struct.pack(">H", len(name)) + name]
    _, sock = proxied(run, dial, v2(tlvs=ssl(7, 0, *parts)), **IDENTITY)
    assert to_the_end(sock) == b"\x20\x02\x00\x04"


def test_proxy_then_websocket(run: Run, web: Open) -> None:
    broker = run(enable_proxy_protocol=2, websockets_trusted_proxy=("10.1.2.0/24",), **WS)
    enter(web(broker, v2()), "both")
    assert "from 10.1.2.3:4321 as both" in broker.log(" as both ")
    # the PROXY header comes first; it names a trusted proxy
    enter(web(broker, v2(), X_Forwarded_For="192.0.2.7"), "three")
    assert "from 192.0.2.7:4321 as three" in broker.log(" as three ")
    public = v2(socket.inet_aton("192.0.2.1") + socket.inet_aton("10.0.0.1") + struct.pack(">HH", 9, 9))
    enter(web(broker, public, X_Forwarded_For="127.0.0.1"), "liar")
    assert "from 192.0.2.1:9 as liar" in broker.log(" as liar ")


@pytest.mark.parametrize("options", [WS, {"enable_proxy_protocol": 2}])
def test_a_proxy_header_does_not_make_a_client_local(run: Run, dial: Dial, web: Open, options: dict[str, object]) -> None:
    """Test that without ACLs $CONTROL/mosq/index/v1 answers clients on this machine only."""
    here = socket.inet_aton("127.0.0.1") * 2 + struct.pack(">HH", 9, 9)
    question = mqtt(Publish("$CONTROL/mosq/index/v1", b"t", 1, 7))
    broker = run(**options, **({"websockets_trusted_proxy": ("127.0.0.1",)} if options is WS else {}))
    if options is WS:
        ws = enter(web(broker, X_Forwarded_For="127.0.0.1"))
        ws.sendall(question)
        got = ws.recv()
    else:
        sock = dial(broker, v2(here) + connect() + question)
        assert read(sock, 4) == CONNACK
        got = read(sock, 4)
    assert got == b"\x40\x02\x00\x07"  # acknowledged, as 3.1.1 requires, but not answered


def test_a_reload_changes_the_protocol_of_a_listener(run: Run, dial: Dial, web: Open) -> None:
    broker = run(**WS)
    old = enter(web(broker), "old")
    half = dial(broker, handshake()[0][:40])
    broker.engine.reload(broker.settings, [{**broker.listener, "protocol": "mqtt", "enable_proxy_protocol": 1}], [{}])
    sock = dial(broker, V1 + connect("new"))
    assert read(sock, 4) == CONNACK
    assert frames_to_the_end(old)[-1].opcode == CLOSE    # the listener no longer speaks WebSocket
    assert half.recv(12) == b""


@pytest.mark.parametrize(("name", "value"), [("protocol", "http_api"), ("enable_proxy_protocol", 3), ("protocol", "mqtt-sn")])
def test_invalid_settings(run: Run, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} is .*; it must be one of "):
        run(**{name: value})


