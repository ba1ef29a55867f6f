"""Test how each wrong packet is answered: with which reason code, or with nothing before the connection closes.

The standard decides where it names the code; elsewhere the answers are those of Mosquitto, which log scanners and clients know. The
option `compat` gives Mosquitto's answers everywhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.harness.broker import Brokers
from tests.harness.packets import (
    Connack, Connect, Disconnect, Pingreq, Pingresp, Publish, Pubrec, Suback, Subscribe, Unsuback, Unsubscribe, Will, frame,
)
from tests.harness.properties import P, text
from tests.harness.wire import Wire

MALFORMED, PROTOCOL_ERROR = b"\xe0\x01\x81", b"\xe0\x01\x82"
BARE = b""                                                  # closed without a packet
ID = b"\0\1"
FIVE_BYTES = b"\x80\x80\x80\x80\x01"                         # a Remaining Length that no packet may have
BAD_UTF8 = (b"a\0", b"a\xed\xa0\x80", b"a\x01", b"a\x7f", b"a\xc2\x9f", b"\xef\xbf\xbf")

# (packet from a 5.0 client, answer, answer with `compat`)
ANSWERS = {
    "flags of PUBREL [v5 3.6.1-1]": (frame(0x63, ID), PROTOCOL_ERROR, PROTOCOL_ERROR),
    "flags of PUBACK [v5 2.1.3-1]": (frame(0x41, ID), MALFORMED, MALFORMED),
    "flags of DISCONNECT [v5 3.14.1-1]": (frame(0xE1, b""), MALFORMED, PROTOCOL_ERROR),
    "flags of PINGREQ [v5 2.1.3-1]": (b"\xc1\0", MALFORMED, MALFORMED),
    "body of PINGREQ": (frame(0xC0, b"\0"), BARE, BARE),
    "DISCONNECT with a server's code": (frame(0xE0, b"\x8b"), BARE, BARE),
    "AUTH outside of an authentication [v5 4.12.0-6]": (b"\xf1\0", PROTOCOL_ERROR, PROTOCOL_ERROR),
    "SUBACK": (frame(0x90, ID + b"\0\0"), PROTOCOL_ERROR, PROTOCOL_ERROR),
    "SUBACK with flags": (frame(0x91, ID + b"\0\0"), MALFORMED, MALFORMED),
    "UNSUBACK with flags": (frame(0xB8, ID + b"\0\0"), MALFORMED, MALFORMED),
    "PINGRESP": (b"\xd0\0", PROTOCOL_ERROR, PROTOCOL_ERROR),
    "PINGRESP with flags": (b"\xd2\0", MALFORMED, MALFORMED),
    "PINGRESP with a body": (frame(0xD0, b"\0"), BARE, BARE),
    "reserved type, one byte of it [v5 2.1.2]": (b"\x0a", PROTOCOL_ERROR, PROTOCOL_ERROR),
    "reserved type with a length of five bytes": (b"\0" + FIVE_BYTES, PROTOCOL_ERROR, PROTOCOL_ERROR),
    **{f"length of five bytes {first:#x} [v5 2.1.4]": (bytes([first]) + FIVE_BYTES, BARE, BARE)
       for first in (0x20, 0x30, 0x40, 0x62, 0x82, 0xA2, 0xC0, 0xE0, 0xF0)},
    "PUBLISH without topic and alias [v5 3.3.2.1]": (frame(0x30, b"\0\0\0x"), PROTOCOL_ERROR, MALFORMED),
    "SUBSCRIBE without a filter [v5 3.8.3-2]": (frame(0x82, ID + b"\0"), PROTOCOL_ERROR, MALFORMED),
    "UNSUBSCRIBE without a filter [v5 3.10.3-2]": (frame(0xA2, ID + b"\0"), PROTOCOL_ERROR, MALFORMED),
    "SUBSCRIBE with QoS 3 [v5 3.8.3.1]": (frame(0x82, ID + b"\0" + text("t") + b"\3"), PROTOCOL_ERROR, MALFORMED),
    "SUBSCRIBE with retain handling 3 [v5 3.8.3.1]": (frame(0x82, ID + b"\0" + text("t") + b"\x30"), PROTOCOL_ERROR, MALFORMED),
    "property of another packet": (frame(0x40, ID + b"\0\5\x11\0\0\0\1"), PROTOCOL_ERROR, PROTOCOL_ERROR),
    "property of another packet, cut short": (frame(0x40, ID + b"\0\2\x11\0"), MALFORMED, MALFORMED),
}  # fmt: skip


def connect(*rest: bytes, flags: int = 2, props: bytes = b"\0", first: int = 0x10) -> bytes:
    return frame(first, text("MQTT") + bytes([5, flags]) + b"\0\x3c" + props + b"".join(rest))


CONNACK = {code: bytes([0x20, 3, 0, code, 0]) for code in (0x81, 0x82, 0x85)}
# (CONNECT of a 5.0 client, answer)
CONNECTS = {
    "no keepalive": (frame(0x10, text("MQTT") + b"\5\2"), BARE),
    "reserved flag [v5 3.1.2-3]": (connect(text("a"), flags=3), BARE),
    "flags of the fixed header [v5 2.1.3-1]": (connect(text("a"), first=0x12), BARE),
    "will QoS 3 [v5 3.1.2-12]": (connect(text("a"), b"\0", text("w"), text("x"), flags=0x1E), BARE),
    "no user name": (connect(text("a"), flags=0x82), BARE),
    "no password": (connect(text("a"), text("u"), flags=0xC2), BARE),
    **{f"user name {bad!r}": (connect(text("a"), text(bad), flags=0x82), BARE) for bad in BAD_UTF8},
    **{f"client id {bad!r}": (connect(text(bad)), CONNACK[0x85]) for bad in BAD_UTF8},
    **{f"will topic {bad!r}": (connect(text("a"), b"\0", text(bad), text("x"), flags=6), CONNACK[0x81]) for bad in BAD_UTF8},
    "will property in CONNECT": (connect(text("a"), props=b"\5\x18\0\0\0\1"), CONNACK[0x82]),
    "will property in CONNECT, cut short": (connect(text("a"), props=b"\2\x18\0"), CONNACK[0x81]),
    "no will": (connect(text("a"), flags=6), CONNACK[0x81]),
    "bytes after the last field": (connect(text("a"), b"x"), CONNACK[0x81]),
    "Maximum Packet Size less than any CONNACK [v5 3.1.2-24]": (connect(text("a"), props=b"\5\x27\0\0\0\2"), BARE),
    "Maximum Packet Size less than this CONNACK [v5 3.1.2-24]": (connect(text("a"), props=b"\5\x27\0\0\0\x0f"), BARE),
    "Maximum Packet Size less than a refusal [v5 3.1.2-24]": (connect(text("a\0"), props=b"\5\x27\0\0\0\4"), CONNACK[0x85]),
}  # fmt: skip


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    kept = Brokers()
    yield kept
    kept.close()


def answer(port: int, raw: bytes, *, connected: bool) -> bytes:
    """Send bytes; return all that comes until the connection closes."""
    wire = Wire(port, 5)
    if connected:
        wire.send(Connect("answers"))
        assert isinstance(wire.read_packet(), Connack)
    wire.send(raw)
    got = b""
    while (packet := wire.read_frame()) is not None:
        got += packet
    wire.close()
    return got


@pytest.mark.parametrize("compat", [False, True], ids=["", "compat"])
@pytest.mark.parametrize(("raw", "wanted", "as_mosquitto"), ANSWERS.values(), ids=ANSWERS)
def test_a_wrong_packet_is_answered(brokers: Brokers, raw: bytes, wanted: bytes, as_mosquitto: bytes, compat: bool) -> None:
    broker = brokers.get(f"sys_interval 0\ncompat {str(compat).lower()}\n")
    assert answer(broker.port, raw, connected=True) == (as_mosquitto if compat else wanted)


@pytest.mark.parametrize(("raw", "wanted"), CONNECTS.values(), ids=CONNECTS)
def test_a_wrong_connect_is_answered(brokers: Brokers, raw: bytes, wanted: bytes) -> None:
    assert answer(brokers.get("sys_interval 0\n").port, raw, connected=False) == wanted


@pytest.mark.parametrize("level", [3, 4, 5])
def test_topics_and_filters_have_at_most_200_separators(brokers: Brokers, level: int) -> None:
    """A message with so many reaches its subscriber; one more separator ends the connection, as in Mosquitto."""
    most, more = "/" * 200, "/" * 201
    port = brokers.get("sys_interval 0\n").port
    wire = Wire(port, level)
    wire.send(Connect("levels"), Subscribe(1, ((most, 0),)), Publish(most, b"x"), Unsubscribe(2, (most,)), Pingreq())
    got = [wire.read_packet() for _ in range(5)]
    assert [type(one) for one in got] == [Connack, Suback, Publish, Unsuback, Pingresp]
    wire.close()
    for packet in (Subscribe(1, ((more, 0),)), Publish(more, b"x"), Unsubscribe(2, (more,))):
        wire = Wire(port, level)
        wire.send(Connect("levels"), packet, Pingreq())
        assert isinstance(wire.read_packet(), Connack)
        assert level < 5 or wire.read_packet() == Disconnect(0x81)
        wire.expect_closed()
        wire.close()


@pytest.mark.parametrize(("option", "first", "code"), [("max_qos 1\n", 0x34, b"\x9b"), ("retain_available false\n", 0x31, b"\x9a")])
def test_limits_of_connack_count_before_the_topic_alias(brokers: Brokers, option: str, first: int, code: bytes) -> None:
    """A PUBLISH that exceeds two limits gets the code that Mosquitto sends; [v5 3.2.2-11, 3.2.2-14, 3.3.2-9] leave the order open."""
    port = brokers.get("listener {port} 127.0.0.1\nallow_anonymous true\nmax_topic_alias 2\nsys_interval 0\n" + option).port
    body = text("t") + (ID if first & 6 else b"") + b"\3\x23\0\3x"
    assert answer(port, frame(first, body), connected=True) == b"\xe0\1" + code
    known = text("t") + (ID if first & 6 else b"") + b"\0x"
    assert answer(port, frame(first, known), connected=True) == b"\xe0\1" + code


@pytest.mark.parametrize(("option", "first", "code"), [("max_qos 1\n", 0x34, b"\x9b"), ("retain_available false\n", 0x31, b"\x9a")])
def test_limits_of_connack_count_before_a_malformed_body(brokers: Brokers, option: str, first: int, code: bytes) -> None:
    """As in Mosquitto, the flags of a PUBLISH count before its body; flags that no PUBLISH may have are malformed in any case."""
    port = brokers.get("listener {port} 127.0.0.1\nallow_anonymous true\nsys_interval 0\n" + option).port
    topic_over_the_end = b"\0\x09t"
    assert answer(port, frame(first, topic_over_the_end), connected=True) == b"\xe0\1" + code
    assert answer(port, frame(0x30, topic_over_the_end), connected=True) == MALFORMED
    assert answer(port, frame(0x36, topic_over_the_end), connected=True) == MALFORMED
    assert answer(port, frame(0x39, text("t")), connected=True) == MALFORMED


@pytest.mark.parametrize(("connect", "level", "wanted"), [
    (Connect("", will=Will("w", qos=2)), 5, b"\x20\5\0\x9b\2\x24\1"),
    (Connect("", will=Will("w", qos=2, retain=True)), 5, b"\x20\5\0\x9a\2\x24\1"),
    (Connect(""), 5, b"\x20\5\0\x80\2\x24\1"),
    (Connect("", will=Will("w", qos=2)), 4, BARE),
    (Connect("", will=Will("w", qos=1)), 4, b"\x20\2\0\2"),
], ids=["will QoS before id", "will retain before will QoS", "id", "3.1.1, will QoS", "3.1.1, id"])
def test_a_refused_client_learns_the_maximum_qos(brokers: Brokers, connect: Connect, level: int, wanted: bytes) -> None:
    """[v5 3.2.2-9] does not exclude a CONNACK that refuses. Mosquitto checks the flags of a will first, then the client id."""
    port = brokers.get("listener {port} 127.0.0.1\nallow_anonymous true\nmax_qos 1\nallow_zero_length_clientid false\n"
                       "retain_available false\nsys_interval 0\n").port
    assert answer(port, connect.encode(level), connected=False) == wanted


def test_a_connack_that_just_fits_is_sent(brokers: Brokers) -> None:
    wire = Wire(brokers.get("sys_interval 0\n").port, 5)
    wire.send(Connect("fits", props=((P.MAXIMUM_PACKET_SIZE, 16),)))
    raw = wire.read_frame()
    assert raw is not None and raw[3] == 0 and len(raw) == 16
    wire.close()


@pytest.mark.parametrize(("level", "compat"), [(4, False), (4, True), (5, False), (5, True)])
def test_the_third_copy_of_a_qos_2_message(brokers: Brokers, level: int, compat: bool) -> None:
    """A 5.0 client must not send again on the same connection [v5 4.4.0-1]; each copy of a 3.1.1 client is answered [v3.1.1 4.3.3-2]."""
    wire = Wire(brokers.get(f"sys_interval 0\ncompat {str(compat).lower()}\n").port, level)
    wire.send(Connect("copies"))
    wire.read_packet()
    for _ in range(2):
        wire.send(Publish("t", b"same", 2, 9))
        got = wire.read_packet()
        assert isinstance(got, Pubrec) and got.mid == 9
    wire.send(Publish("t", b"same", 2, 9))
    raw = wire.read_frame()
    if level == 5:
        assert raw == PROTOCOL_ERROR
    elif compat:
        assert raw is None
    else:
        assert raw == b"\x50\x02\x00\x09"
    wire.close()


def test_flags_of_a_connect_do_not_matter_in_3_1(brokers: Brokers) -> None:
    """[v3.1 2.1] says that DUP, QoS and RETAIN of CONNECT are not used."""
    wire = Wire(brokers.get("sys_interval 0\n").port, 3)
    wire.send(frame(0x14, text("MQIsdp") + b"\3\3\0\x3c" + text("old")))
    assert wire.read_frame() == b"\x20\2\0\0"
    wire.send(Pingreq())
    assert wire.read_frame() == b"\xd0\0"
    wire.close()


@pytest.mark.parametrize(("choice", "level", "sent"), [
    ("", 3, False), ("", 4, False), ("", 5, True),
    ("takeover_will v5\n", 4, False), ("takeover_will v5\n", 5, True),
    ("takeover_will all\n", 4, True), ("takeover_will all\n", 5, True),
    ("takeover_will none\n", 4, False), ("takeover_will none\n", 5, False),
    ("compat true\n", 4, False), ("compat true\n", 5, False), ("compat true\ntakeover_will all\n", 5, False),
])  # fmt: skip
def test_the_will_of_a_session_that_another_connection_continues(brokers: Brokers, choice: str, level: int, sent: bool) -> None:
    """[v5 3.1.4-3]; in 3.x Mosquitto's way: a device that reconnects has not gone away."""
    assert takeover(brokers.get("sys_interval 0\n" + choice).port, level, clean=(False, False)) is sent


@pytest.mark.parametrize("clean", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("choice", ["", "takeover_will none\n", "compat true\n"])
@pytest.mark.parametrize("level", [4, 5])
def test_the_will_of_a_session_that_ends_at_a_take_over(brokers: Brokers, level: int, choice: str, clean: tuple[bool, bool]) -> None:
    assert takeover(brokers.get("sys_interval 0\n" + choice).port, level, clean)


@pytest.mark.parametrize(("version", "header"), [(1, b"PROXY UNKNOWN\r\n"), (2, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0")])
@pytest.mark.parametrize("compat", [False, True], ids=["", "compat"])
def test_a_health_check_of_a_proxy(brokers: Brokers, version: int, header: bytes, compat: bool) -> None:
    config = f"listener {{port}} 127.0.0.1\nallow_anonymous true\nenable_proxy_protocol {version}\ncompat {str(compat).lower()}\n"
    wire = Wire(brokers.get(config).port, 4)
    wire.send(header, Connect("health"))
    if compat and version == 2:
        with contextlib.suppress(ConnectionResetError):
            assert wire.read_frame() is None
    else:
        assert wire.read_frame() == b"\x20\2\0\0"
    wire.close()


def takeover(port: int, level: int, clean: tuple[bool, bool]) -> bool:
    """Connect a client with a will, then another with its client id; return whether the will was sent."""
    watcher, first, second, third = (Wire(port, level) for _ in range(4))
    watcher.send(Connect("watcher"))
    watcher.read_packet()
    watcher.send(frame(0x82, ID + (b"\0" if level == 5 else b"") + text("w") + b"\0"))
    watcher.read_frame()
    lasting = [((P.SESSION_EXPIRY, 60),) if level == 5 and not one else () for one in clean]
    first.send(Connect("taken", clean[0], will=Will("w", b"gone"), props=lasting[0]))
    first.read_packet()
    second.send(Connect("taken", clean[1], props=lasting[1]))
    second.read_packet()
    second.send(Publish("w", b"end"))
    got = watcher.read_packet()
    assert isinstance(got, Publish)
    sent = got.payload == b"gone"
    if sent:
        got = watcher.read_packet()
    assert isinstance(got, Publish) and got.payload == b"end"
    third.send(Connect("taken"))             # ends the session
    third.read_packet()
    for wire in (watcher, first, second, third):
        wire.close()
    return sent
