"""Test truncated, mutated and random packets: the decoder gives the same verdict and the same fields as the slow
model."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cext.testing import codec_api
from tests.codec import model
from tests.codec.clauses import ROWS
from tests.codec.packets import (
    BAD_VERSION,
    PLACES,
    PROPERTY,
    V5,
    V31,
    V311,
    VALID,
    Valid,
    block,
    packet,
    text,
    u16,
    user,
)
from tests.harness.effort import tries

CLIENT_TYPES = [1, 3, 4, 5, 6, 7, 8, 10, 12, 14, 15]
VERSIONS = st.sampled_from([V31, V311, V5])


def body_of(data: bytes) -> bytes:
    _, _, _, body = codec_api.frame(data)
    assert body is not None
    return body


@pytest.mark.parametrize("valid", VALID, ids=lambda v: v.name)
def test_valid(valid: Valid) -> None:
    rc, fields = codec_api.decode(valid.data, valid.version)
    assert rc == 0
    assert (rc, fields) == model.decode(valid.data, valid.version)


# Body lengths at which a shorter body is a valid packet: optional fields at the end, and free payload.
SHORTER_IS_WHOLE = {
    "ack": {2, 3},
    "disconnect 5": {0, 1},
    "connect 3.1": set(),
    "publish": None,
    "subscribe 3.1.1": {2 + 6},
    "subscribe 5": None,
    "unsubscribe 3.1.1": {2 + 5},
    "unsubscribe 5": None,
}


@pytest.mark.parametrize("valid", VALID, ids=lambda v: v.name)
def test_every_truncation_of_the_body(valid: Valid) -> None:
    """Cut the body and correct the Remaining Length: an error, unless the rest is a valid packet (the model decides)."""
    body = body_of(valid.data)
    free = next((v for k, v in SHORTER_IS_WHOLE.items() if valid.name.startswith(k)), set())
    for cut in range(len(body)):
        data = packet(valid.data[0], body[:cut])
        rc, fields = codec_api.decode(data, valid.version)
        assert (rc, fields) == model.decode(data, valid.version)
        if free is not None and cut not in free:
            assert rc >= 0x80, (cut, data)


@pytest.mark.parametrize("valid", VALID, ids=lambda v: v.name)
def test_every_bit_flipped(valid: Valid) -> None:
    body = body_of(valid.data)
    for i in range(8 * len(body)):
        flipped = bytearray(body)
        flipped[i // 8] ^= 1 << i % 8
        data = packet(valid.data[0], bytes(flipped))
        assert codec_api.decode(data, valid.version) == model.decode(data, valid.version), data


@pytest.mark.parametrize("valid", VALID, ids=lambda v: v.name)
def test_every_flag_and_version(valid: Valid) -> None:
    for flags in range(16):
        for version in (V31, V311, V5):
            data = bytes([valid.data[0] & 0xF0 | flags]) + valid.data[1:]
            assert codec_api.decode(data, version) == model.decode(data, version), (data, version)


@pytest.mark.parametrize("row", ROWS, ids=[f"{r[0]} ({r[1]}) {r[2].hex()}" for r in ROWS])
def test_the_model_agrees_with_the_clauses(row: tuple[str, int, bytes, int]) -> None:
    assert model.decode(row[2], row[1])[0] == row[3]


strings = st.one_of(
    st.sampled_from([b"", b"a", b"a/+", b"#", b"$share/g/x", b"$share/", b"\xff", b"\x00"]),
    st.binary(max_size=12),
    st.text(max_size=12).map(str.encode),
).map(text)
blocks = st.lists(st.one_of(st.sampled_from(list(PROPERTY.values())), st.binary(max_size=4)), max_size=6).map(
    lambda p: block(*p)
)
pieces = st.one_of(
    strings,
    blocks,
    st.binary(max_size=6),
    st.integers(0, 3).map(u16),
    st.sampled_from([b"\x00", b"\x01", b"\x02", b"\x04", b"\x18"]),
)


@pytest.mark.again("hostile")
@settings(max_examples=tries(1500, 200))
@given(st.sampled_from(CLIENT_TYPES), st.integers(0, 15), VERSIONS, st.lists(pieces, max_size=6))
@example(8, 2, V5, [u16(1), b"\x00", text("$share/g"), b"\x04"])
def test_random_packets(packet_type: int, flags: int, version: int, parts: list[bytes]) -> None:
    right_flags = 2 if packet_type in (6, 8, 10) else flags if packet_type == 3 else 0
    for first in (packet_type << 4 | flags, packet_type << 4 | right_flags):
        data = packet(first, *parts)
        assert codec_api.decode(data, version) == model.decode(data, version)


@pytest.mark.again("hostile")
@settings(max_examples=tries(500, 100))
@given(
    st.sampled_from([b"MQTT\x04", b"MQTT\x05", b"MQIsdp\x03", b"MQTT\x84"]),
    st.integers(0, 255),
    st.lists(pieces, max_size=7),
)
def test_random_connects(protocol: bytes, flags: int, parts: list[bytes]) -> None:
    data = packet(0x10, text(protocol[:-1]), protocol[-1:], bytes([flags & 0xFE]), u16(60), *parts)
    rc, fields = codec_api.decode(data, 0)
    assert (rc, fields) == model.decode(data, 0)
    assert rc != BAD_VERSION


@pytest.mark.again("hostile")
@settings(max_examples=tries(500, 100))
@given(st.sampled_from(sorted(PLACES)), st.data())
def test_random_properties(place: int, data: st.DataObject) -> None:
    legal = st.sampled_from([PROPERTY[i] for i in sorted(PLACES[place])])
    users = st.tuples(st.text(max_size=5), st.text(max_size=5)).map(lambda pair: user(*pair))
    whole = block(*data.draw(st.lists(st.one_of(legal, users), max_size=8)))
    rc, consumed, fields = codec_api.props(whole, place)
    try:
        wanted: tuple[int, object] = (0, model.properties(model.Reader(whole), place))
    except model.Refused as refused:
        wanted = (refused.rc, None)
    assert (rc, fields) == wanted
    assert rc != 0 or consumed == len(whole)
