"""Encode a server's packets: compare each byte, and decode the packet again if a client may send it too."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cext.testing import codec_api
from tests.codec.packets import (
    PROPERTY,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    V5,
    V31,
    V311,
    block,
    packet,
    text,
    u16,
    u32,
    varint,
)

SUBACK, UNSUBACK = 9, 11


@pytest.mark.parametrize("packet_type", [PUBACK, PUBREC, PUBREL, PUBCOMP])
def test_acks(packet_type: int) -> None:
    first = packet_type << 4 | (2 if packet_type == PUBREL else 0)
    for version in (V31, V311, V5):
        assert codec_api.ack(packet_type, version, 0x1234) == bytes([first, 2, 0x12, 0x34])
    assert codec_api.ack(packet_type, V311, 1, 0x92) == bytes([first, 2, 0, 1])
    assert codec_api.ack(packet_type, V5, 1, 0x92) == bytes([first, 3, 0, 1, 0x92])
    rc, fields = codec_api.decode(codec_api.ack(packet_type, V5, 65535), V5)
    assert (rc, fields["pid"], fields["rc"]) == (0, 65535, 0)


def test_small_packets() -> None:
    assert codec_api.pingresp() == b"\xd0\x00"
    assert codec_api.disconnect(0) == b"\xe0\x00"
    assert codec_api.disconnect(0x8E) == b"\xe0\x01\x8e"


@pytest.mark.parametrize("n", [0, 1, 2, 124, 125, 126, 20_000])
def test_subacks(n: int) -> None:
    codes = bytes(i % 3 for i in range(n))
    assert codec_api.suback(SUBACK, V311, 5, codes) == packet(0x90, u16(5), codes)
    assert codec_api.suback(SUBACK, V5, 5, codes) == packet(0x90, u16(5), b"\x00", codes)
    assert codec_api.suback(UNSUBACK, V5, 5, codes) == packet(0xB0, u16(5), b"\x00", codes)
    assert codec_api.suback(UNSUBACK, V311, 5, codes) == b"\xb0\x02\x00\x05"


def test_connack_3() -> None:
    assert codec_api.connack(V311, 1) == b"\x20\x02\x01\x00"
    assert codec_api.connack(V31, 0, 5, alias_max=3) == b"\x20\x02\x00\x05"


def test_connack_5_as_mosquitto_sends_it() -> None:
    wanted = packet(0x20, b"\x00\x00", block(b"\x22" + u16(10), b"\x27" + u32(2_000_000), b"\x21" + u16(20)))
    assert codec_api.connack(V5, alias_max=10, packet_max=2_000_000, receive_max=20) == wanted


def test_connack_5_order() -> None:
    wanted = block(
        b"\x13" + u16(0),
        b"\x22" + u16(1),
        b"\x12" + text("auto-1"),
        b"\x11" + u32(0),
        b"\x25\x00",
        b"\x27" + u32(2**32 - 1),
        b"\x21" + u16(65535),
        b"\x24\x00",
    )
    got = codec_api.connack(
        V5,
        1,
        assigned_client_id=b"auto-1",
        server_keep_alive=0,
        alias_max=1,
        session_expiry=0,
        retain_unavailable=1,
        packet_max=2**32 - 1,
        receive_max=65535,
        max_qos=0,
    )
    assert got == packet(0x20, b"\x01\x00", wanted)


@pytest.mark.parametrize("n", [1, 100, 300, 20_000, 65_535])
def test_connack_5_long_ids(n: int) -> None:
    got = codec_api.connack(V5, assigned_client_id=b"x" * n)
    assert got == packet(0x20, b"\x00\x00", block(b"\x12" + text(b"x" * n)))


def test_connack_5_refusal_has_no_property_but_the_maximum_qos() -> None:
    more = {"alias_max": 10, "packet_max": 2_000_000, "receive_max": 20}
    assert codec_api.connack(V5, 0, 0x87, **more) == b"\x20\x03\x00\x87\x00"
    assert codec_api.connack(V5, 0, 0x87, max_qos=1, **more) == b"\x20\x05\x00\x87\x02\x24\x01"


def test_publish_bytes() -> None:
    assert codec_api.publish_head(V311, b"a/b", 5) == (b"\x30\x0a\x00\x03a/b", None)
    assert codec_api.publish_head(V311, b"a/b", 5, qos=1, retain=1, dup=1, pid=0x1234) == (b"\x3b\x0c\x00\x03a/b\x12\x34", 7)
    # Before version 5.0 the encoder writes no properties.
    assert codec_api.publish_head(V311, b"a", 0, alias=1, expiry=2, props=b"\x01\x01", sub_ids=(1,)) == (
        b"\x30\x03\x00\x01a",
        None,
    )
    assert codec_api.publish_head(V5, b"", 1, alias=7) == (b"\x30\x07\x00\x00\x03\x23\x00\x07", None)


def test_publish_5_order() -> None:
    """Test the order of properties: forwarded ones, Message Expiry Interval, Topic Alias, Subscription
    Identifiers."""
    forwarded = PROPERTY[1] + PROPERTY[3] + PROPERTY[38]
    wanted = block(forwarded, b"\x02" + u32(9), b"\x23" + u16(3), b"\x0b\x01", b"\x0b" + varint(268435455))
    head, _ = codec_api.publish_head(  # type: ignore[misc]
        V5, b"t", 10, alias=3, expiry=9, props=forwarded, sub_ids=(1, 268435455)
    )
    assert head == packet(0x30, text("t"), wanted, b"x" * 10)[:-10]


def test_publishes_that_exceed_a_frame_are_refused() -> None:
    room = 268435455 - 2 - 1
    assert codec_api.publish_head(V311, b"t", room) == (b"\x30\xff\xff\xff\x7f\x00\x01t", None)
    assert codec_api.publish_head(V311, b"t", room + 1) is None
    assert codec_api.publish_head(V311, b"t", 2**32 - 1) is None
    assert codec_api.publish_head(V311, b"t", room - 1, qos=1, pid=1) is None
    assert codec_api.publish_head(V5, b"t", room) is None
    assert codec_api.publish_head(V311, b"t" * 65536) is None


@given(
    st.sampled_from([V31, V311, V5]),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=300),
    st.binary(max_size=300),
    st.integers(0, 2),
    st.booleans(),
    st.integers(1, 65535),
    st.integers(0, 65535),
    st.none() | st.integers(0, 2**32 - 1),
    st.lists(st.sampled_from([PROPERTY[i] for i in (1, 3, 8, 9)]), unique=True),
    st.integers(0, 100),
)
def test_publish_round_trip(
    version: int,
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    pid: int,
    alias: int,
    expiry: int | None,
    forwarded: list[bytes],
    users: int,
) -> None:
    props = b"".join(forwarded) + PROPERTY[38] * users
    made = codec_api.publish_head(version, topic.encode(), len(payload), qos, int(retain), 0, pid, alias, expiry, props)
    assert made is not None
    head, pid_at = made
    rc, fields = codec_api.decode(head + payload, version)
    assert rc == 0
    got = fields.pop("props")
    assert fields == {
        "qos": qos,
        "retain": int(retain),
        "dup": 0,
        "pid": pid if qos else 0,
        "topic": topic.encode(),
        "payload": payload,
    }
    assert (pid_at is not None) == (qos > 0)
    if pid_at is not None:
        assert head[pid_at : pid_at + 2] == u16(pid)
    if version == V5:
        assert (got.get(2), got.get(35, 0)) == (expiry, alias)
        assert got["raw"].startswith(props)
        assert codec_api.forward(block(got["raw"]), 3) == (props, expiry is None and alias == 0)


@given(st.integers(0, 268435455))
def test_varint_in_the_fewest_bytes(n: int) -> None:
    made = codec_api.publish_head(V5, b"t", 0, sub_ids=(n,))
    assert made is not None and made[0].endswith(b"\x0b" + varint(n))
