"""Provide packets as bytes, built by hand: the seeds of the truncation and differential tests and of the fuzzer's corpus."""

from typing import NamedTuple

CONNECT, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT, AUTH = (
    1,
    3,
    4,
    5,
    6,
    7,
    8,
    10,
    12,
    14,
    15,
)
WILL = 0
V31, V311, V5 = 3, 4, 5
MALFORMED, PROTOCOL_ERROR, BAD_VERSION, TOO_LARGE, CLIENTID_NOT_VALID = 0x81, 0x82, 0x84, 0x95, 0x85
# Added to a reason code: with the option `compat` it is another one.
COMPAT_MALFORMED, COMPAT_PROTOCOL_ERROR = 0x10000, 0x20000


def varint(n: int) -> bytes:
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def u16(n: int) -> bytes:
    return n.to_bytes(2, "big")


def u32(n: int) -> bytes:
    return n.to_bytes(4, "big")


def text(s: str | bytes) -> bytes:
    raw = s.encode() if isinstance(s, str) else s
    return u16(len(raw)) + raw


def packet(first: int, *body: bytes) -> bytes:
    whole = b"".join(body)
    return bytes([first]) + varint(len(whole)) + whole


def block(*properties: bytes) -> bytes:
    whole = b"".join(properties)
    return varint(len(whole)) + whole


def user(name: str, value: str) -> bytes:
    return b"\x26" + text(name) + text(value)


def connect(
    *payload: bytes,
    name: str = "MQTT",
    level: int = 4,
    flags: int = 2,
    keepalive: int = 60,
    props: bytes | None = None,
    first: int = 0x10,
) -> bytes:
    if props is None:
        props = b"\x00" if level == 5 else b""
    return packet(first, text(name), bytes([level, flags]), u16(keepalive), props, *payload)


# One valid value of every property, by identifier.
PROPERTY = {
    1: b"\x01\x01",
    2: b"\x02" + u32(3600),
    3: b"\x03" + text("text/plain"),
    8: b"\x08" + text("reply/to"),
    9: b"\x09" + text(b"\x00\xff\x80"),
    11: b"\x0b\xac\x02",
    17: b"\x11" + u32(0xFFFFFFFF),
    18: b"\x12" + text("auto-1"),
    19: b"\x13" + u16(30),
    21: b"\x15" + text("SCRAM"),
    22: b"\x16" + text(b"\xfe"),
    23: b"\x17\x00",
    24: b"\x18" + u32(5),
    25: b"\x19\x01",
    26: b"\x1a" + text("info"),
    28: b"\x1c" + text("other:1883"),
    31: b"\x1f" + text("because"),
    33: b"\x21" + u16(10),
    34: b"\x22" + u16(20),
    35: b"\x23" + u16(3),
    36: b"\x24\x01",
    37: b"\x25\x01",
    38: user("k", "v"),
    39: b"\x27" + u32(100),
    40: b"\x28\x01",
    41: b"\x29\x01",
    42: b"\x2a\x01",
}
# Properties that a client may send in each packet, by the table of [v5 2.2.2.2].
PLACES: dict[int, set[int]] = {
    CONNECT: {17, 21, 22, 23, 25, 33, 34, 38, 39},
    WILL: {1, 2, 3, 8, 9, 24, 38},
    PUBLISH: {1, 2, 3, 8, 9, 35, 38},
    PUBACK: {31, 38},
    PUBREC: {31, 38},
    PUBREL: {31, 38},
    PUBCOMP: {31, 38},
    SUBSCRIBE: {11, 38},
    UNSUBSCRIBE: {38},
    DISCONNECT: {17, 28, 31, 38},
    AUTH: {21, 22, 31, 38},
}


def all_of(place: int) -> bytes:
    return block(*(PROPERTY[i] for i in sorted(PLACES[place])), user("k", "second"))


class Valid(NamedTuple):
    name: str
    version: int
    data: bytes


VALID = [
    Valid("connect 3.1", V31, connect(text("cid"), name="MQIsdp", level=3)),
    Valid("connect 3.1 bridge", V31, connect(text("cid"), name="MQIsdp", level=0x83)),
    Valid("connect 3.1.1 bridge", V311, connect(text("cid"), level=0x84)),
    Valid("connect 3.1.1 bare", V311, connect(text(""))),
    Valid(
        "connect 3.1.1 all",
        V311,
        connect(text("cid"), text("will/t"), text(b"\x00w"), text("user"), text(b"\xffpw"), flags=0xF6),
    ),
    Valid("connect 5 bare", V5, connect(text(""), level=5)),
    Valid("connect 5 password alone", V5, connect(text("c"), text("pw"), level=5, flags=0x42)),
    Valid(
        "connect 5 all",
        V5,
        connect(
            text("cid"),
            all_of(WILL),
            text("will/t"),
            text(b"\x00w"),
            text("user"),
            text(b"\xffpw"),
            level=5,
            flags=0xEE,
            props=all_of(CONNECT),
        ),
    ),
    Valid("publish 3.1.1 qos 0", V311, packet(0x31, text("a/b"), b"payload")),
    Valid("publish 3.1.1 qos 1", V311, packet(0x3A, text("a/b"), u16(1), b"payload")),
    Valid("publish 5 qos 0", V5, packet(0x30, text("a/b"), b"\x00", b"payload")),
    Valid("publish 5 qos 2", V5, packet(0x35, text("a/\u20ac\U0001f40c"), u16(65535), all_of(PUBLISH), b"payload")),
    Valid("publish 5 alias", V5, packet(0x30, text(""), block(PROPERTY[35]))),
    *(
        Valid(f"ack {first:02x} {version}", version, packet(first, u16(7)))
        for first in (0x40, 0x50, 0x62, 0x70)
        for version in (V31, V311, V5)
    ),
    *(
        Valid(f"ack {first:02x} 5 rc", V5, packet(first, u16(7), bytes([rc])))
        for first, rc in ((0x40, 0x10), (0x50, 0x97), (0x62, 0x92), (0x70, 0x92))
    ),
    *(
        Valid(f"ack {first:02x} 5 props", V5, packet(first, u16(7), b"\x00", all_of(PUBACK)))
        for first in (0x40, 0x50, 0x62, 0x70)
    ),
    Valid("subscribe 3.1.1", V311, packet(0x82, u16(9), text("a/+"), b"\x01", text("#"), b"\x02")),
    Valid(
        "subscribe 5", V5, packet(0x82, u16(9), all_of(SUBSCRIBE), text("a/+"), b"\x2e", text("$share/g/x"), b"\x19")
    ),
    Valid("unsubscribe 3.1.1", V311, packet(0xA2, u16(9), text("a/+"), text("#"))),
    Valid("unsubscribe 5", V5, packet(0xA2, u16(9), all_of(UNSUBSCRIBE), text("a/+"), text("b"))),
    Valid("pingreq", V311, packet(0xC0)),
    Valid("disconnect 3.1.1", V311, packet(0xE0)),
    Valid("disconnect 5", V5, packet(0xE0)),
    Valid("disconnect 5 rc", V5, packet(0xE0, b"\x04")),
    Valid("disconnect 5 props", V5, packet(0xE0, b"\x00", all_of(DISCONNECT))),
    Valid("auth", V5, packet(0xF0, b"\x18", all_of(AUTH))),
]
