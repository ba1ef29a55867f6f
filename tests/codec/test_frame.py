"""Test the fixed header [v5 2.1] and variable byte integers [v5 1.5.5]."""

import pytest

from cext.testing import codec_api
from tests.codec.packets import MALFORMED, TOO_LARGE, VALID, varint

BOUNDARIES = [0, 1, 127, 128, 16383, 16384, 2097151, 2097152, 268435455]


@pytest.mark.parametrize("length", BOUNDARIES)
def test_header_announces_the_whole_length(length: int) -> None:
    header = b"\x30" + varint(length)
    rc, total, _, _ = codec_api.frame(header)
    assert (rc, total) == (int(length == 0), len(header) + length)


@pytest.mark.parametrize("length", [n for n in BOUNDARIES if n < 3_000_000])
def test_complete_frame_with_following_bytes(length: int) -> None:
    body = b"x" * length
    header = b"\x3b" + varint(length)
    assert codec_api.frame(header + body + b"\xc0\x00") == (1, len(header) + length, 0x3B, body)
    if length:
        assert codec_api.frame(header + body[:-1])[:2] == (0, len(header) + length)


@pytest.mark.parametrize("read", [b"", b"\x30", b"\x30\x80", b"\x30\xff\xff", b"\x30\xff\xff\xff"])
def test_unfinished_header_has_no_length(read: bytes) -> None:
    assert codec_api.frame(read) == (0, 0, None, None)


def test_fifth_length_byte_is_malformed() -> None:
    assert codec_api.frame(b"\x30\xff\xff\xff\xff")[0] == MALFORMED
    assert codec_api.frame(b"\x30\x80\x80\x80\x80\x00")[0] == MALFORMED


def test_length_with_needless_bytes_is_accepted() -> None:
    assert codec_api.frame(b"\xc0\x80\x00") == (1, 3, 0xC0, b"")
    assert codec_api.frame(b"\x40\x82\x80\x00ab") == (1, 6, 0x40, b"ab")


@pytest.mark.parametrize("length", [5, 200, 70000])
def test_packet_max_counts_the_header(length: int) -> None:
    data = b"\x30" + varint(length) + b"x" * length
    assert codec_api.frame(data, len(data))[0] == 1
    assert codec_api.frame(data, len(data) - 1)[0] == TOO_LARGE
    # The decoder refuses the packet before its body arrives.
    assert codec_api.frame(data[: 1 + len(varint(length))], len(data) - 1)[:2] == (TOO_LARGE, len(data))


@pytest.mark.parametrize("valid", VALID, ids=lambda v: v.name)
def test_every_byte_split(valid: tuple[str, int, bytes]) -> None:
    data = valid[2]
    for cut in range(len(data)):
        assert codec_api.frame(data[:cut])[0] == 0
    rc, total, first, _ = codec_api.frame(data)
    assert (rc, total, first) == (1, len(data), data[0])
