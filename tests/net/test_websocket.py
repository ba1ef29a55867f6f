"""Test the server's decoder of WebSocket frames [RFC 6455 5, 7], byte by byte."""

from __future__ import annotations

import random
import struct
from typing import NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from cext.testing import net_api
from tests.harness.effort import tries
from tests.net.frames import BINARY, CLOSE, CONTINUATION, MASK, PING, PONG, TEXT, Model, frame, head, masked, read_server

HELLO = bytes.fromhex("10 0c 00 04 4d 51 54 54 04 02 00 3c 00 00")  # an MQTT CONNECT
PINGREQ = b"\xc0\x00"


class Row(NamedTuple):
    id: str
    clause: str
    wire: bytes
    data: bytes = b""
    pong: bytes | None = None  # the whole frame of the answer
    closed: int | None = None
    failed: int | None = None


B, C = frame(BINARY, HELLO), frame(BINARY, PINGREQ)
ROWS = [
    Row("binary", "5.6", B, HELLO),
    Row("example-of-the-rfc", "5.7", bytes.fromhex("82 85 37 fa 21 3d 7f 9f 4d 51 58"), b"Hello"),
    Row("two-frames", "5.2", B + C, HELLO + PINGREQ),
    Row("packet-in-two-frames", "v5 6.0.0-2", frame(BINARY, HELLO[:5]) + frame(BINARY, HELLO[5:]), HELLO),
    Row("two-packets-in-one-frame", "v5 6.0.0-2", frame(BINARY, HELLO + PINGREQ), HELLO + PINGREQ),
    Row("other-mask", "5.3", frame(BINARY, HELLO, mask=b"\xff\x00\x80\x01"), HELLO),
    Row("zero-mask", "5.3", frame(BINARY, HELLO, mask=bytes(4)), HELLO),
    Row("empty", "5.2", frame(BINARY) + B, HELLO),
    Row("16-bit-length", "5.2", frame(BINARY, b"x" * 126), b"x" * 126),
    Row("16-bit-length-most", "5.2", frame(BINARY, b"x" * 65535), b"x" * 65535),
    Row("64-bit-length", "5.2", frame(BINARY, b"x" * 65536), b"x" * 65536),
    Row("fragments", "5.4", frame(BINARY, HELLO[:3], fin=False) + frame(0, HELLO[3:6], fin=False) + frame(0, HELLO[6:]), HELLO),
    Row("empty-fragments", "5.4", frame(BINARY, fin=False) + frame(0, fin=False) + frame(0, HELLO), HELLO),
    Row("after-fragments", "5.4", frame(BINARY, b"a", fin=False) + frame(0, b"b") + frame(BINARY, b"c"), b"abc"),
    Row("ping", "5.5.2", frame(PING, b"you?"), pong=b"\x8a\x04you?"),
    Row("ping-empty", "5.5.2", frame(PING), pong=b"\x8a\x00"),
    Row("ping-longest", "5.5", frame(PING, b"p" * 125), pong=b"\x8a\x7d" + b"p" * 125),
    Row("pings-last-one", "5.5.3", frame(PING, b"one") + frame(PING, b"two"), pong=b"\x8a\x03two"),
    Row("ping-between-fragments", "5.4", frame(BINARY, HELLO[:3], fin=False) + frame(PING, b"x") + frame(0, HELLO[3:]), HELLO, b"\x8a\x01x"),
    Row("ping-in-data", "5.5.2", B + frame(PING, b"x") + C, HELLO + PINGREQ, b"\x8a\x01x"),
    Row("pong", "5.5.3", frame(PONG, b"unasked") + B, HELLO),
    Row("pong-keeps-the-ping", "5.5.3", frame(PING, b"x") + frame(PONG, b"unasked"), pong=b"\x8a\x01x"),
    Row("close", "5.5.1", frame(CLOSE, b"\x03\xe8"), closed=1000),
    Row("close-empty", "7.1.5", frame(CLOSE), closed=1005),
    Row("close-with-reason", "7.1.6", frame(CLOSE, b"\x03\xe9going"), closed=1001),
    Row("close-own-code", "7.4.2", frame(CLOSE, b"\x0f\xa0"), closed=4000),
    Row("close-between-fragments", "5.4", frame(BINARY, b"ab", fin=False) + frame(CLOSE, b"\x03\xe8"), b"ab", closed=1000),
    Row("data-after-close", "5.5.1", B + frame(CLOSE, b"\x03\xe8") + C, HELLO, closed=1000),
    Row("ping-after-close", "5.5.1", frame(CLOSE) + frame(PING), closed=1005),
    Row("close-forgets-the-ping", "5.5.1", frame(PING, b"x") + frame(CLOSE, b"\x03\xe8"), closed=1000),
    Row("close-one-byte", "5.5.1", frame(CLOSE, b"\x03"), failed=1002),
    Row("close-code-0", "7.4.2", frame(CLOSE, b"\x00\x00"), failed=1002),
    Row("close-code-999", "7.4.2", frame(CLOSE, struct.pack(">H", 999)), failed=1002),
    Row("close-code-1004", "7.4.1", frame(CLOSE, struct.pack(">H", 1004)), failed=1002),
    Row("close-code-1005", "7.4.1", frame(CLOSE, struct.pack(">H", 1005)), failed=1002),
    Row("close-code-1006", "7.4.1", frame(CLOSE, struct.pack(">H", 1006)), failed=1002),
    Row("close-code-1015", "7.4.1", frame(CLOSE, struct.pack(">H", 1015)), failed=1002),
    Row("close-code-2999", "7.4.2", frame(CLOSE, struct.pack(">H", 2999)), failed=1002),
    Row("close-code-5000", "7.4.2", frame(CLOSE, struct.pack(">H", 5000)), failed=1002),
    Row("text", "v5 6.0.0-1", B + frame(TEXT, b"hi"), HELLO, failed=1003),
    Row("unmasked", "5.1", B + frame(BINARY, PINGREQ, mask=b""), HELLO, failed=1002),
    Row("unmasked-ping", "5.1", frame(PING, mask=b""), failed=1002),
    *[Row(f"rsv{i}", "5.2", frame(BINARY, b"x", rsv=1 << (3 - i)), failed=1002) for i in (1, 2, 3)],
    *[Row(f"opcode-{i}", "5.2", frame(i, b"x"), failed=1002) for i in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)],
    Row("continuation-of-nothing", "5.4", B + frame(CONTINUATION, b"x"), HELLO, failed=1002),
    Row("binary-within-fragments", "5.4", frame(BINARY, b"x", fin=False) + frame(BINARY, b"y"), b"x", failed=1002),
    Row("ping-too-long", "5.5", frame(PING, b"p" * 126), failed=1002),
    Row("ping-in-fragments", "5.5", frame(PING, b"p", fin=False), failed=1002),
    Row("close-in-fragments", "5.5", frame(CLOSE, fin=False), failed=1002),
    Row("16-bit-length-needless", "5.2", frame(BINARY, b"x" * 125, wide=2), failed=1002),
    Row("64-bit-length-needless", "5.2", frame(BINARY, b"x" * 65535, wide=8), failed=1002),
    Row("64-bit-length-sign", "5.2", head(BINARY, 1 << 63) + MASK, failed=1002),
    Row("most-bytes", "10.4", head(BINARY, 1 << 30) + MASK + masked(b"begins"), b"begins"),
    Row("too-big", "10.4", head(BINARY, (1 << 30) + 1) + MASK + b"x", failed=1009),
    Row("unfinished-header", "5.2", B + frame(BINARY, HELLO)[:5], HELLO),
    Row("unfinished-payload", "5.2", frame(BINARY, HELLO)[:-4], HELLO[:-4]),
    Row("unfinished-ping", "5.5.2", frame(PING, b"abc")[:-1]),
]


def result(frames: net_api.Frames, data: bytes) -> tuple[bytes, bytes | None, int | None, int | None]:
    return data, frames.pong(), frames.closed(), frames.failed()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_clause(row: Row) -> None:
    frames = net_api.Frames()
    want = (row.data, row.pong, row.closed, row.failed)
    assert result(frames, frames.take(row.wire)) == want, row.clause


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_byte_by_byte(row: Row) -> None:
    frames = net_api.Frames()
    data = b"".join(frames.take(row.wire[i : i + 1]) for i in range(len(row.wire)))
    assert result(frames, data) == (row.data, row.pong, row.closed, row.failed), row.clause


@pytest.mark.parametrize("row", [r for r in ROWS if r.failed], ids=lambda row: row.id)
def test_a_wrong_byte_is_reported_at_once(row: Row) -> None:
    # The decoder fails at the first wrong byte, does not wait for the rest of the frame, and reads no later bytes.
    for n in range(len(row.wire)):
        frames = net_api.Frames()
        frames.take(row.wire[: n + 1])
        if frames.failed():
            break
    else:
        pytest.fail("the decoder reported no error")
    data = frames.take(C)
    assert (data, frames.failed()) == (b"", row.failed)


def test_model_agrees_with_the_table() -> None:
    for row in ROWS:
        model = Model().read(row.wire)
        assert (model.data, model.closed, model.failed) == (row.data, row.closed, row.failed), row.id


frames_of_clients = st.builds(
    frame,
    st.sampled_from([BINARY, BINARY, BINARY, CONTINUATION, CONTINUATION, PING, PONG, CLOSE, TEXT, 7]),
    st.one_of(st.binary(max_size=40), st.sampled_from([b"", b"\x03\xe8", b"x" * 125, b"y" * 126, b"z" * 300])),
    fin=st.sampled_from([True, True, True, False]),
    rsv=st.sampled_from([0] * 20 + [4]),
    mask=st.one_of(st.binary(min_size=4, max_size=4), st.sampled_from([MASK, b""])),
)


@pytest.mark.again("properties")
@settings(max_examples=tries(400, 80))
@given(st.lists(frames_of_clients, max_size=8), st.binary(max_size=6), st.randoms(use_true_random=False))
def test_any_split_gives_the_same_result(made: list[bytes], tail: bytes, chance: random.Random) -> None:
    wire = b"".join(made) + tail
    model = Model().read(wire)
    for cut in (len(wire), 1, chance.randint(1, 20)):
        frames = net_api.Frames()
        data, pongs = b"", []
        for i in range(0, len(wire), cut or 1):
            data += frames.take(wire[i : i + cut])
            if cut == 1 and (pong := frames.pong()):
                pongs.append(pong)
        assert (data, frames.closed(), frames.failed()) == (model.data, model.closed, model.failed)
        if cut == 1:  # each ping gets its answer if the answers are sent at once
            assert pongs == [bytes([0x8A, len(p)]) + p for p in model.pings]


@pytest.mark.parametrize("gap", [0, 1, 2, 6, 7, 8, 14, 31, 100])
@pytest.mark.parametrize("n", [0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 100, 1001])
def test_unmask(n: int, gap: int) -> None:
    plain = bytes(range(256)) * 4
    plain = plain[:n]
    got, turned = net_api.unmask(masked(plain), MASK, gap)
    assert got == plain
    assert turned == (MASK * 2)[n % 4 : n % 4 + 4]


@pytest.mark.parametrize("n", [0, 1, 125, 126, 127, 65535, 65536, 1 << 20, 1 << 31, (1 << 40) + 5])
def test_server_head(n: int) -> None:
    assert net_api.frame_head(BINARY, n) == head(BINARY, n, mask_bit=0)


def test_close_frames() -> None:
    assert net_api.close_frame(1000) == b"\x88\x02\x03\xe8"
    assert net_api.close_frame(1005) == b"\x88\x00"  # a code that is never sent [RFC 6455 7.4.1]
    assert read_server(net_api.close_frame(1009))[1] == b""
