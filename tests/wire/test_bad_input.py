"""Send hostile bytes: split, truncated, too long, malformed, out of order.

The broker sends a reason code (5.0) or closes the connection (3.x). No other client is affected, nothing hangs, and the cost is
linear. Each test has a witness on the same broker: a subscriber that must still get its messages at the end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.broker import Broker, is_reference
from tests.harness.effort import tries
from tests.harness.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Received,
    Suback,
    Subscribe,
    Unsubscribe,
    Will,
    decode,
    frame,
)  # fmt: skip
from tests.harness.properties import P, Props, text
from tests.harness.wire import Wire
from tests.wire.case import ALL, Stage
from tests.wire.flavours import FLAVOURS


def differs(reason: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(is_reference(), reason=f"Mosquitto 2.0.11 {reason}", strict=False)


LEVELS = pytest.mark.parametrize("level", ALL)
PROPS: dict[int, Props] = {
    0x10: ((P.SESSION_EXPIRY, 5), (P.RECEIVE_MAXIMUM, 5), (P.MAXIMUM_PACKET_SIZE, 500), (P.TOPIC_ALIAS_MAXIMUM, 5), (P.REQUEST_RESPONSE, 1),
           (P.REQUEST_PROBLEM, 1)),
    0x30: ((P.PAYLOAD_FORMAT, 1), (P.EXPIRY, 9), (P.CONTENT_TYPE, "t"), (P.RESPONSE_TOPIC, "r"), (P.CORRELATION, b"c"), (P.TOPIC_ALIAS, 1)),
    0x40: ((P.REASON_STRING, "s"),),
    0x82: ((P.SUBSCRIPTION_ID, 3),),
    0xE0: ((P.SESSION_EXPIRY, 5), (P.REASON_STRING, "s")),
}  # fmt: skip
PACKETS: list[Packet] = [
    Publish("bad/t", b"payload", 0), Publish("bad/t", b"payload", 1, 3, props=PROPS[0x30]), Publish("bad/t", b"payload", 2, 4), Puback(5),
    Pubrec(6), Pubrel(7), Pubcomp(8), Subscribe(9, (("bad/+", 0), ("bad/#", 1))), Unsubscribe(10, ("bad/+", "bad/#")), Pingreq(),
    Disconnect(0, PROPS[0xE0]),
]  # fmt: skip
FULL_CONNECT = Connect("bad", True, 60, Will("w", b"will", 1, True, ((P.WILL_DELAY, 1),)), "user", b"pass", PROPS[0x10])
BAD_UTF8 = [b"\xff", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"a\x80", b"\xf8\x88\x80\x80\x80", b"\0"]


@pytest.fixture
def broker(stage: Stage) -> Iterator[Broker]:
    """Provide the plain broker; check at the end that its witness still gets messages."""
    broker = stage.brokers.get(FLAVOURS["plain"])
    witness = open_client(broker, 4, "witness")
    witness.send(Subscribe(1, (("witness", 1),)))
    witness.expect_packet(Suback(1, (1,)))
    yield broker
    assert broker.alive(), broker.log()[-2000:]
    other = open_client(broker, 5, "witness-of-the-witness")
    other.send(Publish("witness", b"well?", 1, 1))
    other.expect_packet(Puback(1))
    got = witness.read_packet()
    assert isinstance(got, Publish) and got.payload == b"well?", got
    witness.close()
    other.close()


def open_client(broker: Broker, level: int, client_id: str = "bad") -> Wire:
    wire = Wire(broker.port, level)
    wire.send(Connect(client_id))
    got = wire.read_packet()
    assert isinstance(got, Connack) and got.rc == 0, got
    return wire


def outcome(wire: Wire) -> tuple[str, list[Received]]:
    """Send PINGREQ; return ("alive" or "closed", packets that arrived before)."""
    seen: list[Received] = []
    try:
        wire.send(Pingreq())
    except OSError:
        pass
    while True:
        raw = wire.read_frame()
        if raw is None:
            return "closed", seen
        seen.append(decode(wire.level, raw))
        if isinstance(seen[-1], Pingresp):
            return "alive", seen


def ended(wire: Wire, *codes: int, with_packet: bool = True) -> None:
    """Check that the broker ended the connection, in 5.0 with a reason code (one of these, if given)."""
    state, seen = outcome(wire)
    assert state == "closed", seen
    if wire.level >= 5 and with_packet and not is_reference():
        assert seen and isinstance(seen[-1], Disconnect | Connack) and not isinstance(seen[-1], Auth), f"no reason code: {seen}"
        assert seen[-1].rc >= 0x80 and (not codes or seen[-1].rc in codes), (seen[-1], [hex(c) for c in codes])
    wire.close()


def refused(broker: Broker, level: int, raw: bytes, *codes: int) -> None:
    wire = open_client(broker, level)
    wire.send(raw)
    try:
        ended(wire, *codes)
    except (AssertionError, TimeoutError) as error:
        raise AssertionError(f"{raw[:80]!r}: {error}") from error


# -- valid bytes in other pieces


@LEVELS
def test_every_split(broker: Broker, level: int) -> None:
    """Test that the result does not depend on where a stream is cut in two [v5 4.2]."""
    stream = b"".join(p.encode(level) for p in (
        Connect("split", True, 60, Will("w", b"x", 1), "user", b"pass", PROPS[0x10]), Subscribe(1, (("split/a", 1),), PROPS[0x82]),
        Publish("split/a", b"payload", 1, 2, props=PROPS[0x30][:-1]), Unsubscribe(3, ("split/a",)), Pingreq()))  # fmt: skip
    expected = None
    for cut in range(1, len(stream)):
        wire = Wire(broker.port, level)
        wire.send(stream[:cut])
        wire.send(stream[cut:])
        got: list[Received] = []
        while not got or not isinstance(got[-1], Pingresp):
            got.append(wire.read_packet())
        wire.close()
        order = sorted(got, key=repr)  # PUBACK and our own PUBLISH may arrive in any order
        expected = expected or order
        assert order == expected, f"cut at {cut}"
    assert expected is not None and len(expected) == 6, expected


@LEVELS
def test_byte_by_byte(broker: Broker, level: int) -> None:
    wire = Wire(broker.port, level)
    for byte in Connect("drip").encode(level) + Subscribe(1, (("drip", 0),)).encode(level) + Publish("drip", b"x" * 200).encode(level):
        wire.send(bytes([byte]))
    assert isinstance(wire.read_packet(), Connack)
    wire.expect_packet(Suback(1, (0,)))
    wire.expect_packet(Publish("drip", b"x" * 200))
    wire.close()


@LEVELS
def test_truncated_connect(broker: Broker, level: int) -> None:
    """Send a CONNECT whose length is smaller than its fields, at every length."""
    body = FULL_CONNECT.encode(level)[2:] if len(FULL_CONNECT.encode(level)) < 130 else b""
    assert body
    for size in range(len(body)):
        if level == 3 and (size in (len(body) - 12, len(body) - 6) or is_reference()):
            continue  # [v3.1 3.1] the length has precedence over the flags: username or password may just be missing
        wire = Wire(broker.port, level)
        wire.send(frame(0x10, body[:size]))
        try:
            ended(wire, with_packet=False)  # which of them get a CONNACK: test_answers.py
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"{size} of {len(body)} bytes: {error}") from error


@LEVELS
@pytest.mark.parametrize("packet", PACKETS, ids=lambda p: f"{type(p).__name__}-{getattr(p, 'qos', 0)}")
def test_truncated(broker: Broker, level: int, packet: Packet) -> None:
    """Cut a body and correct its length: it is malformed, or by chance another valid packet; nothing hangs."""
    raw = packet.encode(level)
    body = raw[2:]
    strict = isinstance(packet, Subscribe | Unsubscribe)
    for size in range(len(body)):
        wire = open_client(broker, level)
        wire.send(frame(raw[0], body[:size]))
        if size < 2 and not isinstance(packet, Disconnect):
            ended(wire, 0x81, 0x82)
            continue
        state, seen = outcome(wire)
        if state == "closed" and level >= 5 and not isinstance(packet, Disconnect) and not is_reference():
            assert seen and isinstance(seen[-1], Disconnect), (size, seen)
        if strict and state == "alive":
            cut = size - 2 - (level >= 5)
            assert (level == 3 and cut == 0) or cut in ((8,) if isinstance(packet, Subscribe) else (7,)), f"taken though cut at {size}: {seen}"
        wire.close()


@LEVELS
def test_ends_within_a_packet(broker: Broker, level: int) -> None:
    """Close in the middle of a packet: no part of the packet takes effect."""
    watcher = open_client(broker, level, "watch")
    watcher.send(Subscribe(1, (("bad/t", 0),)))
    watcher.read_packet()
    for packet in PACKETS[:3]:
        raw = packet.encode(level)
        for size in range(1, len(raw)):
            wire = open_client(broker, level)
            wire.send(raw[:size])
            wire.close()
    watcher.expect_nothing()
    watcher.close()


# -- invalid bytes


@differs("does not look at the flags of acknowledgements")
@LEVELS
def test_header_flags(broker: Broker, level: int) -> None:
    """Set the reserved flags of every packet type [v5 2.1.3-1]."""
    if level == 3:
        return  # 3.1 has no rule for them
    for packet in PACKETS:
        raw = packet.encode(level)
        if isinstance(packet, Publish):
            continue
        for flags in range(16):
            if flags != raw[0] & 15:
                refused(broker, level, bytes([raw[0] & 0xF0 | flags]) + raw[1:], 0x81, 0x82)


@differs("takes a SUBACK from a client")
@LEVELS
def test_packets_of_a_server(broker: Broker, level: int) -> None:
    """Send packets that only servers may send, type 0, and a second CONNECT [v5 4.13]."""
    for packet in (Connack(), Suback(1, (0,)), Pingresp()):
        refused(broker, level, packet.encode(level), 0x81, 0x82)
    refused(broker, level, b"\xb0\x02\x00\x01", 0x81, 0x82)
    refused(broker, level, b"\x00\x00", 0x81, 0x82)
    refused(broker, level, Connect("bad").encode(level), 0x82)
    refused(broker, level, b"\xf0\x00", 0x81, 0x82)


@LEVELS
def test_anything_before_connect(broker: Broker, level: int) -> None:
    """Test [v5 3.1.0-1]."""
    for packet in PACKETS:
        wire = Wire(broker.port, level)
        wire.send(packet)
        ended(wire, with_packet=False)


@LEVELS
def test_remaining_length_of_five_bytes(broker: Broker, level: int) -> None:
    """Test [v5 2.1.4]."""
    for wire, first in ((open_client(broker, level), b"\x30"), (Wire(broker.port, level), b"\x10")):
        wire.send(first + b"\xff\xff\xff\xff\x7f")
        ended(wire, with_packet=False)


@differs("ignores bytes behind an acknowledgement")
@LEVELS
def test_trailing_bytes(broker: Broker, level: int) -> None:
    """Send bytes after the last field."""
    for packet in (Puback(5), Pubrec(6), Pubrel(7), Pubcomp(8), Disconnect()):
        raw = packet.encode(level)
        refused(broker, level, frame(raw[0], raw[2:] + b"\x00" * 9), 0x81, 0x82)
    wire = open_client(broker, level)
    wire.send(frame(0xC0, b"\x00" * 9))
    ended(wire, with_packet=False)
    wire = Wire(broker.port, level)
    wire.send(frame(0x10, Connect("bad").encode(level)[2:] + b"\0"))
    ended(wire)


@differs("takes ill-formed client ids and user names from 3.1 clients")
@LEVELS
@pytest.mark.parametrize("bad", BAD_UTF8, ids=lambda b: b.hex())
def test_utf8(broker: Broker, level: int, bad: bytes) -> None:
    """Send ill-formed text in each text field [v5 1.5.4-1][v5 1.5.4-2]."""
    none = b"\0" if level >= 5 else b""
    refused(broker, level, frame(0x30, text(b"t/" + bad) + none + b"x"), 0x81, 0x82, 0x90)
    refused(broker, level, frame(0x82, b"\0\1" + none + text(b"t/" + bad) + b"\0"), 0x81, 0x82, 0x8F)
    refused(broker, level, frame(0xA2, b"\0\1" + none + text(b"t/" + bad)), 0x81, 0x82, 0x8F)
    if level >= 5:
        pair = b"\x26" + text(b"k") + text(bad)
        refused(broker, level, frame(0x30, text(b"t") + bytes([len(pair)]) + pair), 0x81, 0x82)
    name = text("MQIsdp") if level == 3 else text("MQTT")
    connects = [(0x02, text(bad)), (0x82, text(b"bad") + text(bad)), (0x06, text(b"bad") + none + text(b"w" + bad) + text(b""))]
    for flags, payload in connects:
        wire = Wire(broker.port, level)
        wire.send(frame(0x10, name + bytes([level, flags, 0, 60]) + none + payload))
        ended(wire, 0x81, 0x82, 0x85, 0x90, with_packet=flags != 0x82)


def test_property_twice(broker: Broker) -> None:
    """Send every single property twice [v5 2.2.2]."""
    for ident in PROPS[0x10]:
        wire = Wire(broker.port, 5)
        wire.send(Connect("bad", props=(ident, ident)))
        ended(wire, 0x81, 0x82)
    for ident in PROPS[0x30]:
        refused(broker, 5, Publish("t", b"", 1, 1, props=(ident, ident)).encode(5), 0x81, 0x82)
    for ident in PROPS[0x40]:
        refused(broker, 5, Puback(1, 0, (ident, ident)).encode(5), 0x81, 0x82)
    for ident in PROPS[0x82]:
        refused(broker, 5, Subscribe(1, (("t", 0),), (ident, ident)).encode(5), 0x81, 0x82)
    for ident in PROPS[0xE0]:
        refused(broker, 5, Disconnect(0, (ident, ident)).encode(5), 0x81, 0x82)


def test_property_of_another_packet(broker: Broker) -> None:
    """Test [v5 2.2.2-1 and table 2-4]."""
    strangers = (P.ASSIGNED_ID, "x"), (P.SERVER_KEEPALIVE, 1), (P.MAXIMUM_QOS, 1), (P.RETAIN_AVAILABLE, 1), (P.SHARED_AVAILABLE, 1), (P.RESPONSE_INFO, "x")
    for one in strangers:
        refused(broker, 5, Publish("t", props=(one,)).encode(5), 0x81, 0x82)
        refused(broker, 5, Subscribe(1, (("t", 0),), (one,)).encode(5), 0x81, 0x82)
        refused(broker, 5, Disconnect(0, (one,)).encode(5), 0x81, 0x82)
        wire = Wire(broker.port, 5)
        wire.send(Connect("bad", props=(one,)))
        ended(wire, 0x81, 0x82)
    known = {int(p) for p in P}
    for ident in range(128):
        if ident not in known:
            refused(broker, 5, frame(0x30, text("t") + b"\x02" + bytes([ident, 0])), 0x81, 0x82)


def test_property_lengths(broker: Broker) -> None:
    """Send a property list that is longer or shorter than its packet, or ends within a property."""
    for length in (1, 2, 5, 127):
        refused(broker, 5, frame(0x30, text("t") + bytes([length])), 0x81, 0x82)
    refused(broker, 5, frame(0x30, text("t") + b"\x03\x02\x00\x00"), 0x81, 0x82)
    refused(broker, 5, frame(0x30, text("t") + b"\x04\x26\x00\x01k"), 0x81, 0x82)
    refused(broker, 5, frame(0x30, text("t") + b"\xff\xff\xff\xff\x01"), 0x81, 0x82)


# -- noise and cost


@pytest.mark.again("hostile")
def test_noise(broker: Broker) -> None:
    """Send random bytes (seeded), and valid packets with one changed byte: the broker answers or closes, and never hangs."""
    rng = random.Random(20)
    for round_ in range(tries(2000, 200)):
        level = rng.choice(ALL)
        raw = bytearray(rng.choice(PACKETS).encode(level))
        if round_ % 3 == 0:
            raw = bytearray(rng.randbytes(rng.randrange(1, 40)))
        elif round_ % 3 == 1:
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        else:
            del raw[rng.randrange(len(raw))]
        wire = Wire(broker.port, level)
        if rng.random() < 0.8:
            wire.send(Connect("noise"))
            wire.read_packet()
        wire.send(bytes(raw))
        wire.close()


def cpu_ns(broker: Broker) -> int:
    return sum(int(path.read_text().split()[0]) for pid in broker.processes() for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def rss_bytes(broker: Broker) -> int:
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in broker.processes()) * 4096


def test_user_properties_cost_linear_time() -> None:
    """Test that a CONNECT with 5,000 user properties costs at most about 20 times the CPU of a plain one (drop-in notes)."""
    many = Connect("heavy", props=tuple((P.USER, ("k", "v")) for _ in range(5000))).encode(5)
    costs = []
    with Broker("sys_interval 0\n") as broker:
        for raw in (Connect("plain").encode(5), many):
            before = cpu_ns(broker)
            for _ in range(200):
                wire = Wire(broker.port, 5)
                wire.send(raw)
                assert isinstance(wire.read_packet(), Connack)
                wire.close()
            costs.append(cpu_ns(broker) - before)
    assert costs[1] < 25 * costs[0], f"{costs[1] / costs[0]:.1f} times"


def test_many_properties_and_levels(broker: Broker) -> None:
    """Send many properties and levels: the broker accepts them or refuses them by a named limit, at once."""
    wire = open_client(broker, 5, "many")
    wire.send(Subscribe(1, (("many", 0),)))
    wire.expect_packet(Suback(1, (0,)))
    props: Props = tuple((P.USER, (f"k{n}", "v" * (n % 7))) for n in range(5000))
    wire.send(Publish("many", b"x", props=props))
    wire.expect_packet(Publish("many", b"x", props=props))
    wire.close()
    for topic in ("/" * 65535, "a/" * 32767, "/".join("abc" for _ in range(10000))):
        for raw in (Publish(topic, b"x"), Subscribe(1, ((topic, 0),)), Subscribe(1, (("+/" * 32767 + "#", 0),)), Publish(topic, b"x", retain=True),
                    Publish(topic, b"", retain=True)):  # fmt: skip
            wire = open_client(broker, 5, "deep")
            wire.send(raw)
            outcome(wire)
            wire.close()


@pytest.mark.timing
def test_oversized_packets_cost_no_memory() -> None:
    """Test that fourteen packets over the limit do not grow the process by 20 MB (drop-in notes)."""
    with Broker("max_packet_size 1000000\nsys_interval 0\n") as broker:
        open_client(broker, 5, "warm").close()
        before = rss_bytes(broker)
        wires = []
        for n in range(14):
            wire = open_client(broker, 4 + n % 2, f"over{n}")
            try:
                wire.send(b"\x30\xff\xff\xff\x7f\x00\x01t" + b"x" * 4_000_000)
            except OSError:
                pass  # the broker closed before all bytes were sent
            wires.append(wire)
        grown = rss_bytes(broker) - before
        for wire in wires:
            wire.close()
        assert grown < 20_000_000, f"{grown} bytes"
