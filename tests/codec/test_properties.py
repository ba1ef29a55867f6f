"""Test property blocks [v5 2.2.2]: the packets, counts and values allowed for each property; forwarding [v5 3.3.2-4 ...]."""

import time

import pytest

from cext.testing import codec_api
from tests.codec.packets import (
    CONNECT,
    DISCONNECT,
    MALFORMED,
    PLACES,
    PROPERTY,
    PROTOCOL_ERROR,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    WILL,
    all_of,
    block,
    text,
    u16,
    u32,
    user,
    varint,
)

CASES = [(place, i) for place in PLACES for i in PROPERTY]


@pytest.mark.parametrize(("place", "i"), CASES)
def test_the_table(place: int, i: int) -> None:
    """Put every property in every packet [v5 2.2.2.2]."""
    rc, consumed, props = codec_api.props(block(PROPERTY[i]) + b"rest", place)
    if i in PLACES[place]:
        assert rc == 0 and consumed == 1 + len(PROPERTY[i]) and props is not None
        assert props["present"] == [i] and props["raw"] == PROPERTY[i]
    else:
        assert rc == (MALFORMED if place in (SUBSCRIBE, UNSUBSCRIBE) else PROTOCOL_ERROR)


@pytest.mark.parametrize(("place", "i"), [(place, i) for place, i in CASES if i in PLACES[place]])
def test_twice(place: int, i: int) -> None:
    rc, _, _ = codec_api.props(block(PROPERTY[i], user("k", "v"), PROPERTY[i]), place)
    assert rc == (0 if i == 38 else PROTOCOL_ERROR)


@pytest.mark.parametrize(("place", "i"), [(place, i) for place, i in CASES if i in PLACES[place]])
def test_truncated(place: int, i: int) -> None:
    """Test a block that ends within a property (the decoder must not read beyond it), or extends beyond the packet."""
    whole = PROPERTY[i]
    for cut in range(1, len(whole)):
        assert codec_api.props(block(whole[:cut]), place)[0] == MALFORMED
        assert codec_api.props(block(whole[:cut]) + whole[cut:], place)[0] == MALFORMED
    data = block(whole)
    for cut in range(len(data)):
        assert codec_api.props(data[:cut], place)[0] == MALFORMED


def test_values_are_decoded() -> None:
    _, _, props = codec_api.props(all_of(CONNECT), CONNECT)
    assert props is not None
    wanted = {17: 0xFFFFFFFF, 21: b"SCRAM", 22: b"\xfe", 23: 0, 25: 1, 33: 10, 34: 20, 39: 100}
    assert {i: props[i] for i in wanted} == wanted
    _, _, props = codec_api.props(all_of(WILL), WILL)
    assert props is not None
    wanted = {1: 1, 2: 3600, 3: b"text/plain", 8: b"reply/to", 9: b"\x00\xff\x80", 24: 5}
    assert {i: props[i] for i in wanted} == wanted


@pytest.mark.parametrize(
    ("place", "one"),
    [
        (PUBLISH, b"\x01\x02"),  # Payload Format Indicator [v5 3.3.2.3.2]
        (CONNECT, b"\x17\x02"),  # Request Problem Information [v5 3.1.2.11.7]
        (CONNECT, b"\x19\xff"),  # Request Response Information [v5 3.1.2.11.6]
        (CONNECT, b"\x21" + u16(0)),  # Receive Maximum [v5 3.1.2.11.3]
        (CONNECT, b"\x27" + u32(0)),  # Maximum Packet Size [v5 3.1.2.11.4]
        (SUBSCRIBE, b"\x0b\x00"),  # Subscription Identifier [v5 3.8.2.1.2]
        (PUBLISH, b"\x08" + text("a/+")),  # Response Topic [v5 3.3.2-14]
        (PUBLISH, b"\x08" + text("#")),
        (WILL, b"\x08" + text("")),  # [v5 4.7.3-1]
    ],
)
def test_forbidden_values(place: int, one: bytes) -> None:
    assert codec_api.props(block(one), place)[0] == PROTOCOL_ERROR


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\x01",
        b"\x80\x00",
        b"\x81\x00\x00",  # the length of the block
        block(b"\x00"),
        block(b"\x04\x00"),
        block(b"\x2b\x00"),
        block(b"\x7f"),
        block(b"\xff\x7f"),
        block(b"\x81\x00\x01"),
        block(b"\x03" + text(b"\xff")),
        block(b"\x26" + text("k") + text(b"\xc0\x80")),
        block(b"\x26" + text(b"\x00") + text("")),
        block(b"\x08" + text(b"\xed\xa0\x80")),
    ],
)
def test_malformed(data: bytes) -> None:
    assert codec_api.props(data, PUBLISH)[0] == MALFORMED


@pytest.mark.parametrize("n", [1, 127, 128, 16383, 16384, 2097151, 2097152, 268435455])
def test_subscription_identifier_sizes(n: int) -> None:
    rc, _, props = codec_api.props(block(b"\x0b" + varint(n)), SUBSCRIBE)
    assert rc == 0 and props is not None and props[11] == n


@pytest.mark.parametrize("overlong", [b"\x81\x00", b"\x80\x00", b"\xff\x80\x00", b"\x80\x80\x80\x80\x01"])
def test_subscription_identifier_in_too_many_bytes(overlong: bytes) -> None:
    """Test [v5 1.5.5-1]."""
    assert codec_api.props(block(b"\x0b" + overlong), SUBSCRIBE)[0] == MALFORMED


@pytest.mark.parametrize("place", [PUBLISH, WILL])
def test_forwarded_in_order_without_properties_of_the_connection(place: int) -> None:
    """Test [v5 3.3.2-4, -15, -16, -17, -18, -20]."""
    users = [user("b", "2"), user("a", "1"), user("b", "2")]
    mine = {35, 2, 24} & PLACES[place]
    parts = [users[0], *(PROPERTY[i] for i in sorted(PLACES[place] - {38})), users[1], users[2]]
    wanted = b"".join(p for p in parts if p[0] not in mine)
    assert codec_api.forward(block(*parts), place) == (wanted, False)
    assert codec_api.forward(block(*reversed(parts)), place) == (
        b"".join(p for p in reversed(parts) if p[0] not in mine),
        False,
    )
    assert codec_api.forward(block(wanted), place) == (wanted, True)


@pytest.mark.parametrize("i", [2, 35])
def test_forwarding_of_blocks_without_forwardable_properties(i: int) -> None:
    assert codec_api.forward(block(PROPERTY[i]), PUBLISH) == (b"", False)
    assert codec_api.forward(b"\x00", PUBLISH) == (b"", True)
    assert codec_api.forward(block(b"\x0b" + varint(300)), SUBSCRIBE) == (b"", False)


def test_thousands_of_user_properties_stay_linear() -> None:
    def seconds(n: int) -> float:
        data = block(user("name", "value") * n)
        best = 1.0
        for _ in range(5):
            start = time.thread_time()
            assert codec_api.props(data, CONNECT)[0] == 0
            best = min(best, time.thread_time() - start)
        return best

    # 16 times as many properties: a quadratic decoder would take 256 times as long.
    assert seconds(80_000) < 64 * seconds(5_000)
    assert codec_api.props(all_of(DISCONNECT), DISCONNECT)[0] == 0
