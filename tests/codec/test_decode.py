"""Test the compiled decoders: the table of clauses, every reason code, and the fields of whole packets."""

from typing import Any

import pytest

from cext.testing import codec_api
from tests.codec.clauses import ROWS
from tests.codec.model import REASONS
from tests.codec.packets import (
    AUTH,
    BAD_VERSION,
    DISCONNECT,
    PROPERTY,
    PROTOCOL_ERROR,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    V5,
    VALID,
    block,
    connect,
    packet,
    text,
    u16,
)


@pytest.mark.parametrize(
    ("clause", "version", "data", "wanted"), ROWS, ids=[f"{r[0]} ({r[1]}) {r[2].hex()}" for r in ROWS]
)
def test_clause(clause: str, version: int, data: bytes, wanted: int) -> None:
    assert codec_api.decode(data, version)[0] == wanted, clause


@pytest.mark.parametrize(
    ("first", "packet_type"),
    [(0x40, PUBACK), (0x50, PUBREC), (0x62, PUBREL), (0x70, PUBCOMP), (0xE0, DISCONNECT), (0xF0, AUTH)],
)
def test_every_reason_code(first: int, packet_type: int) -> None:
    """Test [v5 3.4.2.1, 3.5.2.1, 3.6.2.1, 3.7.2.1, 3.14.2.1, 3.15.2.1]."""
    head = u16(1) if packet_type < 8 else b""
    for rc in range(256):
        result, fields = codec_api.decode(
            packet(first, head, bytes([rc]), block(*[PROPERTY[21]] * (packet_type == AUTH))), V5
        )
        assert result == (0 if rc in REASONS[packet_type] else PROTOCOL_ERROR), hex(rc)
        assert result != 0 or fields["rc"] == rc


def test_unknown_level_is_reported_as_sent() -> None:
    """Test [v5 3.1.2-2]."""
    assert codec_api.decode(connect(text("x"), level=0x86), V5) == (BAD_VERSION, 0x86)
    assert codec_api.decode(packet(0x10, text("MQTT"), b"\x09"), V5) == (BAD_VERSION, 9)


def named(name: str) -> tuple[bytes, int]:
    return next((v.data, v.version) for v in VALID if v.name == name)


def test_connect_fields() -> None:
    rc, c = codec_api.decode(*named("connect 5 all"))
    assert rc == 0
    flat = {k: v for k, v in c.items() if k not in ("props", "will_props")}
    assert flat == {
        "version": 5,
        "bridge": 0,
        "clean_start": 1,
        "will": 1,
        "will_qos": 1,
        "will_retain": 1,
        "has_username": 1,
        "has_password": 1,
        "keepalive": 60,
        "client_id": b"cid",
        "will_topic": b"will/t",
        "will_payload": b"\x00w",
        "username": b"user",
        "password": b"\xffpw",
    }
    assert c["props"][33] == 10 and c["will_props"][24] == 5
    rc, c = codec_api.decode(*named("connect 3.1 bridge"))
    assert (rc, c["version"], c["bridge"], c["props"]["present"]) == (0, 3, 1, [])
    rc, c = codec_api.decode(*named("connect 3.1.1 bridge"))
    assert (rc, c["version"], c["bridge"]) == (0, 4, 1)


def test_publish_fields() -> None:
    _, p = codec_api.decode(*named("publish 5 qos 2"))
    props = p.pop("props")
    assert p == {
        "qos": 2,
        "retain": 1,
        "dup": 0,
        "pid": 65535,
        "topic": "a/\u20ac\U0001f40c".encode(),
        "payload": b"payload",
    }
    assert props[2] == 3600 and props[35] == 3
    _, p = codec_api.decode(*named("publish 3.1.1 qos 1"))
    assert p == {
        "qos": 1,
        "retain": 0,
        "dup": 1,
        "pid": 1,
        "topic": b"a/b",
        "payload": b"payload",
        "props": {"present": [], "raw": b""},
    }


def test_items() -> None:
    def items(name: str) -> Any:
        rc, fields = codec_api.decode(*named(name))
        assert rc == 0 and fields["pid"] == 9
        return fields["items"]

    assert items("subscribe 5") == [(b"a/+", 0x2E), (b"$share/g/x", 0x19)]
    assert items("subscribe 3.1.1") == [(b"a/+", 1), (b"#", 2)]
    assert items("unsubscribe 5") == [b"a/+", b"b"]
