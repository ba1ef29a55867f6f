"""Provide packets that each decoder accepts or refuses. A row is (clause, version, packet, reason code; 0 = accepted)."""

from tests.codec.packets import (
    BAD_VERSION,
    CLIENTID_NOT_VALID,
    COMPAT_MALFORMED,
    COMPAT_PROTOCOL_ERROR,
    MALFORMED,
    PROPERTY,
    PROTOCOL_ERROR,
    V5,
    V31,
    V311,
    block,
    connect,
    packet,
    text,
    u16,
)

ID = u16(1)
A = text("a")
EMPTY = b"\x00"  # an empty property block

Row = tuple[str, int, bytes, int]

CONNECTS: list[Row] = [
    ("v5 3.1.2-1 name", V5, connect(A, name="MQTZ"), PROTOCOL_ERROR),
    ("v5 3.1.2-1 name is case sensitive", V5, connect(A, name="mqtt"), PROTOCOL_ERROR),
    ("v5 3.1.2-1 longer name", V5, connect(A, name="MQTTX"), PROTOCOL_ERROR),
    ("v5 3.1.2-1 empty name", V5, connect(A, name=""), PROTOCOL_ERROR),
    ("v3.1 name with its level", V31, connect(A, name="MQIsdp", level=3), 0),
    ("v3.1 name with 4", V31, connect(A, name="MQIsdp", level=4), BAD_VERSION),
    ("v3.1.1 name with 3", V311, connect(A, level=3), BAD_VERSION),
    ("v5 3.1.2-2 level 6", V5, connect(A, level=6), BAD_VERSION),
    ("v5 3.1.2-2 level 0", V5, connect(A, level=0), BAD_VERSION),
    ("level 0x85", V5, connect(A, level=0x85), BAD_VERSION),
    ("level before flags", V5, connect(A, level=6, flags=1, first=0x1F), BAD_VERSION),
    ("v5 2.1.3-1 flags", V5, connect(A, level=5, first=0x11), MALFORMED),
    ("v3.1.1 2.2.2-1 flags", V311, connect(A, first=0x12), MALFORMED),
    ("v3.1 flags are not used", V31, connect(A, name="MQIsdp", level=3, first=0x12), 0),
    ("v5 3.1.2-3 reserved", V5, connect(A, level=5, flags=3), MALFORMED),
    ("v3.1.1 3.1.2-3 reserved", V311, connect(A, flags=3), MALFORMED),
    ("v3.1 reserved is not used", V31, connect(A, name="MQIsdp", level=3, flags=3), 0),
    ("v5 3.1.2-12 will qos 3", V5, connect(A, EMPTY, A, A, level=5, flags=0x1C), MALFORMED),
    ("v3.1.1 3.1.2-14 will qos 3", V311, connect(A, A, A, flags=0x1C), MALFORMED),
    ("v3.1 will qos 3", V31, connect(A, A, A, name="MQIsdp", level=3, flags=0x1C), MALFORMED),
    ("v5 3.1.2-11 qos without will", V5, connect(A, level=5, flags=0x08), MALFORMED),
    ("v3.1.1 3.1.2-13 qos without will", V311, connect(A, flags=0x10), MALFORMED),
    ("v5 3.1.2-13 retain without will", V5, connect(A, level=5, flags=0x20), MALFORMED),
    ("v3.1.1 3.1.2-15 retain without will", V311, connect(A, flags=0x20), MALFORMED),
    ("v3.1 qos without will", V31, connect(A, name="MQIsdp", level=3, flags=0x28), 0),
    ("v3.1.1 3.1.2-22 password alone", V311, connect(A, A, flags=0x42), MALFORMED),
    ("v3.1 password alone", V31, connect(A, A, name="MQIsdp", level=3, flags=0x42), MALFORMED),
    ("v5 3.1.2.9 password alone", V5, connect(A, A, level=5, flags=0x42), 0),
    ("v3.1.1 username missing", V311, connect(A, flags=0x82), MALFORMED),
    ("v3.1 username missing", V31, connect(A, name="MQIsdp", level=3, flags=0x82), 0),
    ("v3.1 both missing", V31, connect(A, name="MQIsdp", level=3, flags=0xC2), 0),
    ("v3.1 password missing", V31, connect(A, A, name="MQIsdp", level=3, flags=0xC2), 0),
    ("v3.1 username truncated", V31, connect(A, b"\x00", name="MQIsdp", level=3, flags=0x82), MALFORMED),
    ("v5 1.5.4-1 client id", V5, connect(text(b"\xff"), level=5), CLIENTID_NOT_VALID),
    ("v5 1.5.4-2 client id", V5, connect(text(b"a\x00"), level=5), CLIENTID_NOT_VALID),
    ("v5 client id beyond the packet", V5, connect(u16(5), level=5), MALFORMED),
    ("v5 1.5.4-1 will topic", V5, connect(A, EMPTY, text(b"\xff"), A, level=5, flags=6), MALFORMED),
    ("v5 1.5.4-1 username", V5, connect(A, text(b"\xff"), level=5, flags=0x82), MALFORMED),
    ("will payload is binary", V5, connect(A, EMPTY, A, text(b"\xff\x00"), level=5, flags=6), 0),
    ("v5 3.1.2.11.10 data without method", V5, connect(A, level=5, props=block(PROPERTY[22])), PROTOCOL_ERROR),
    ("v5 will properties in connect", V5, connect(A, level=5, props=block(PROPERTY[24])), PROTOCOL_ERROR),
    ("v5 connect properties in will", V5, connect(A, block(PROPERTY[17]), A, A, level=5, flags=6), PROTOCOL_ERROR),
    ("v3.1.1 has no properties", V311, connect(A, props=EMPTY), MALFORMED),
    ("bytes after the packet", V311, connect(A, b"x"), MALFORMED),
    ("bytes after the packet", V5, connect(A, b"x", level=5), MALFORMED),
    ("bytes after the packet", V31, connect(A, b"x", name="MQIsdp", level=3), MALFORMED),
]
PUBLISHES: list[Row] = [
    *(("v5 3.3.1-4 qos 3", v, packet(0x36, A, ID, EMPTY), MALFORMED) for v in (V31, V311, V5)),
    *(("v5 3.3.1-2 dup with qos 0", v, packet(0x38, A, EMPTY), MALFORMED) for v in (V31, V311, V5)),
    ("dup with qos 2", V311, packet(0x3D, A, ID), 0),
    *(("v5 2.2.1-3 pid 0", v, packet(0x32, A, u16(0), EMPTY), PROTOCOL_ERROR) for v in (V31, V311, V5)),
    ("no pid", V311, packet(0x32, A), MALFORMED),
    ("half a pid", V311, packet(0x34, A, b"\x00"), MALFORMED),
    ("no topic", V311, packet(0x30), MALFORMED),
    ("topic beyond the packet", V311, packet(0x30, u16(2), b"a"), MALFORMED),
    ("v5 1.5.4-1 topic", V5, packet(0x30, text(b"a\xed\xa0\x80"), EMPTY), MALFORMED),
    ("v3.1.1 1.5.3-2 topic", V311, packet(0x30, text(b"a\x00")), MALFORMED),
    ("v5 3.3.2.1 no topic, no alias", V5, packet(0x30, text(""), EMPTY), PROTOCOL_ERROR | COMPAT_MALFORMED),
    ("v5 3.3.2.1 no topic, alias", V5, packet(0x30, text(""), block(PROPERTY[35])), 0),
    ("empty topic is the name's affair in 3.x", V311, packet(0x30, text("")), 0),
    ("v5 3.3.4-6 subscription identifier", V5, packet(0x30, A, block(PROPERTY[11])), PROTOCOL_ERROR),
    ("v5 no properties", V5, packet(0x30, A), MALFORMED),
    ("payload format 1 is not checked here", V5, packet(0x30, A, block(PROPERTY[1]), b"\xff"), 0),
]
ACKS: list[Row] = [
    *(
        ("pid 0", v, packet(first, u16(0)), PROTOCOL_ERROR)
        for v in (V31, V311, V5)
        for first in (0x40, 0x50, 0x62, 0x70)
    ),
    *(("half a pid", v, packet(first, b"\x01"), MALFORMED) for v in (V31, V5) for first in (0x40, 0x50, 0x62, 0x70)),
    *(
        ("3.x: 2 bytes", v, packet(first, ID, b"\x00"), MALFORMED)
        for v in (V31, V311)
        for first in (0x40, 0x50, 0x62, 0x70)
    ),
    *(
        ("v5 2.1.3-1 flags", v, packet(first | 1, ID), MALFORMED)
        for v in (V311, V5)
        for first in (0x40, 0x50, 0x70)
    ),
    ("v5 3.6.1-1 flags", V5, packet(0x60, ID), PROTOCOL_ERROR),
    ("v5 3.6.1-1 flags", V5, packet(0x63, ID), PROTOCOL_ERROR),
    ("v3.1.1 3.6.1-1 flags", V311, packet(0x60, ID), PROTOCOL_ERROR),
    ("v3.1 2.1 DUP", V31, packet(0x6A, ID), 0),
    ("v5 3.4.2.2.1 3 bytes", V5, packet(0x40, ID, b"\x10"), 0),
    ("4 bytes", V5, packet(0x40, ID, b"\x10", EMPTY), 0),
    ("bytes after the packet", V5, packet(0x40, ID, b"\x10", EMPTY, b"\x00"), MALFORMED),
    ("truncated properties", V5, packet(0x40, ID, b"\x10", b"\x01"), MALFORMED),
    ("property of another packet", V5, packet(0x40, ID, b"\x00", block(PROPERTY[17])), PROTOCOL_ERROR),
    ("property of another packet, cut", V5, packet(0x40, ID, b"\x00", block(PROPERTY[17][:3])), MALFORMED),
    ("property twice, the second cut", V5, packet(0x40, ID, b"\x00", block(PROPERTY[31], PROPERTY[31][:2])), MALFORMED),
]
SUBSCRIBES: list[Row] = [
    *(
        ("v5 3.8.1-1 flags", v, packet(first, ID, EMPTY[: v // 5], A, b"\x00"), MALFORMED)
        for v in (V311, V5)
        for first in (0x80, 0x81, 0x83, 0x8A)
    ),
    ("v3.1 2.1 DUP", V31, packet(0x8A, ID, A, b"\x00"), 0),
    ("v3.1 qos 0", V31, packet(0x80, ID, A, b"\x00"), MALFORMED),
    *(("v5 2.2.1-3 pid 0", v, packet(0x82, u16(0), EMPTY[: v // 5], A, b"\x00"), MALFORMED) for v in (V31, V311, V5)),
    ("v5 3.8.3-2 no filter", V5, packet(0x82, ID, EMPTY), PROTOCOL_ERROR | COMPAT_MALFORMED),
    ("v3.1.1 3.8.3-3 no filter", V311, packet(0x82, ID), PROTOCOL_ERROR | COMPAT_MALFORMED),
    ("v3.1 no filter", V31, packet(0x82, ID), 0),
    ("no options", V311, packet(0x82, ID, A), MALFORMED),
    ("filter beyond the packet", V311, packet(0x82, ID, u16(5), b"a", b"\x00"), MALFORMED),
    ("v5 1.5.4-1 filter", V5, packet(0x82, ID, EMPTY, text(b"\xff"), b"\x00"), MALFORMED),
    ("v3.1.1 3.8.3-4 qos 3", V311, packet(0x82, ID, A, b"\x03"), MALFORMED),
    ("v3.1.1 3.8.3-4 reserved", V311, packet(0x82, ID, A, b"\x04"), MALFORMED),
    ("v5 3.8.3.1 qos 3", V5, packet(0x82, ID, EMPTY, A, b"\x03"), PROTOCOL_ERROR | COMPAT_MALFORMED),
    ("v5 3.8.3-5 reserved", V5, packet(0x82, ID, EMPTY, A, b"\x40"), MALFORMED),
    ("v5 3.8.3-5 reserved", V5, packet(0x82, ID, EMPTY, A, b"\x80"), MALFORMED),
    ("v5 3.8.3.1 retain handling 3", V5, packet(0x82, ID, EMPTY, A, b"\x30"), PROTOCOL_ERROR | COMPAT_MALFORMED),
    ("v5 3.8.3-4 no local, shared", V5, packet(0x82, ID, EMPTY, text("$share/g/a"), b"\x04"), PROTOCOL_ERROR),
    ("v5 3.8.3-4 no local, not shared", V5, packet(0x82, ID, EMPTY, text("$share"), b"\x04"), 0),
    ("second filter is checked", V5, packet(0x82, ID, EMPTY, A, b"\x00", A, b"\x40"), MALFORMED),
    ("v5 3.8.2.1.2 identifier 0", V5, packet(0x82, ID, block(b"\x0b\x00"), A, b"\x00"), PROTOCOL_ERROR),
    (
        "v5 3.8.2.1.2 identifier twice",
        V5,
        packet(0x82, ID, block(b"\x0b\x01", b"\x0b\x02"), A, b"\x00"),
        PROTOCOL_ERROR,
    ),
    *(
        ("v5 3.10.1-1 flags", v, packet(first, ID, EMPTY[: v // 5], A), MALFORMED)
        for v in (V311, V5)
        for first in (0xA0, 0xA3, 0xAA)
    ),
    ("v5 3.10.3-2 no filter", V5, packet(0xA2, ID, EMPTY), PROTOCOL_ERROR | COMPAT_MALFORMED),
    ("v3.1.1 3.10.3-2 no filter", V311, packet(0xA2, ID), PROTOCOL_ERROR | COMPAT_MALFORMED),
    ("pid 0", V311, packet(0xA2, u16(0), A), MALFORMED),
    ("bytes after the packet", V311, packet(0xA2, ID, A, b"\x00"), MALFORMED),
    ("v5 1.5.4-1 filter", V5, packet(0xA2, ID, EMPTY, text(b"\xff")), MALFORMED),
]
OTHERS: list[Row] = [
    ("v5 3.12.1 flags", V5, packet(0xC1), MALFORMED),
    ("v5 3.12.1 body", V5, packet(0xC0, b"\x00"), MALFORMED),
    ("v5 3.14.1-1 flags", V5, packet(0xE1), MALFORMED | COMPAT_PROTOCOL_ERROR),
    ("v3.1.1 3.14.1-1 flags", V311, packet(0xE8), MALFORMED | COMPAT_PROTOCOL_ERROR),
    ("v5 3.14.2.1 any reason code", V5, packet(0xE0, b"\x9f"), 0),
    ("v3.1 flags are not used", V31, packet(0xE8), 0),
    ("v3.1.1 body", V311, packet(0xE0, b"\x00"), MALFORMED),
    ("v5 3.14.2.1 reason only", V5, packet(0xE0, b"\x04"), 0),
    ("v5 bytes after the packet", V5, packet(0xE0, b"\x00", EMPTY, b"\x00"), MALFORMED),
    ("v5 3.14.2.2 property", V5, packet(0xE0, b"\x00", block(PROPERTY[33])), PROTOCOL_ERROR),
    ("v3.1.1 has no AUTH", V311, packet(0xF0), PROTOCOL_ERROR),
    ("v5 3.15.1-1 flags", V5, packet(0xF1, b"\x18", block(PROPERTY[21])), MALFORMED),
    ("v5 3.15.2.1 Success is the server's", V5, packet(0xF0), PROTOCOL_ERROR),
    ("v5 3.15.2.2 no properties", V5, packet(0xF0, b"\x18"), MALFORMED),
    ("v5 3.15.2.2.2 no method", V5, packet(0xF0, b"\x19", EMPTY), PROTOCOL_ERROR),
    ("v5 bytes after the packet", V5, packet(0xF0, b"\x19", block(PROPERTY[21]), b"x"), MALFORMED),
]
ROWS = CONNECTS + PUBLISHES + ACKS + SUBSCRIBES + OTHERS
