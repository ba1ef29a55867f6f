"""Test UTF-8 strings that MQTT and Mosquitto accept [v5 1.5.4]."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cext.testing import codec_api
from tests.codec.model import utf8_ok

BAD = [
    b"\x00",
    b"\x01",
    b"\x1f",
    b"\x7f",
    "\x80".encode(),
    "\x9f".encode(),  # control characters
    b"\xed\xa0\x80",
    b"\xed\xbf\xbf",
    b"\xed\xa0\x80\xed\xb0\x80",  # surrogates [v5 1.5.4-1]
    b"\xc0\x80",
    b"\xc1\xbf",
    b"\xe0\x80\x80",
    b"\xe0\x9f\xbf",
    b"\xf0\x80\x80\x80",
    b"\xf0\x8f\xbf\xbf",  # overlong
    b"\xf4\x90\x80\x80",
    b"\xf5\x80\x80\x80",
    b"\xff",
    b"\xfe",
    b"\xf8\x88\x80\x80\x80",  # over U+10FFFF
    b"\x80",
    b"\xbf",
    b"\xc2",
    b"\xc2a",
    b"\xe2\x82",
    b"\xe2\x82a",
    b"\xe2a\x82",
    b"\xf0\x9f\x90",
    b"\xf0\x9f\x90a",
    b"\xf0a\x90\x8c",
    b"\xf0\x9fa\x8c",
    b"\xe2\xff\x80",
    b"\xe2\x82\xff",
    b"\xc2\xff",
    "\ufdd0".encode(),
    "\ufdef".encode(),
    "\ufffe".encode(),
    "\uffff".encode(),
    "\U0001fffe".encode(),
    "\U0010ffff".encode(),  # non-characters
]
GOOD = [
    "",
    " ",
    "~",
    "\u00a0",
    "\u07ff",
    "\u0800",
    "\ud7ff",
    "\ue000",
    "\ufdcf",
    "\ufdf0",
    "\ufffd",
    "\ufeff",
    "\U00010000",
    "\U0001f40c",
    "\U0010fffd",
    "\u6e29\u5ea6/\u5ba4",
]


@pytest.mark.parametrize("pad", range(18))
@pytest.mark.parametrize("bad", BAD)
def test_invalid_text_at_every_offset_of_a_word(bad: bytes, pad: int) -> None:
    for after in (0, 1, 7, 8, 9):
        assert codec_api.utf8(b"a" * pad + bad + b"b" * after) == 0x81


@pytest.mark.parametrize("good", GOOD)
def test_valid_text_at_every_offset_of_a_word(good: str) -> None:
    for pad in range(18):
        for after in (0, 1, 8):
            assert codec_api.utf8(b"a" * pad + good.encode() + b"b" * after) == 0


def test_every_single_byte_and_pair() -> None:
    for a in range(256):
        assert (codec_api.utf8(bytes([a])) == 0) == utf8_ok(bytes([a])), a
        for b in range(256):
            pair = b"1234567" + bytes([a, b]) + b"89abcdef"
            assert (codec_api.utf8(pair) == 0) == utf8_ok(pair), pair


def test_every_code_point() -> None:
    for c in range(0x110000):
        raw = chr(c).encode("utf-8", "surrogatepass")
        bad = (
            c < 0x20
            or 0x7F <= c <= 0x9F
            or 0xD800 <= c <= 0xDFFF
            or 0xFDD0 <= c <= 0xFDEF
            or c & 0xFFFF in (0xFFFE, 0xFFFF)
        )
        assert (codec_api.utf8(raw) == 0x81) == bad, hex(c)


@given(st.lists(st.one_of(st.binary(max_size=5), st.text(max_size=5).map(lambda s: s.encode()), st.just(b"abcdefgh"))))
def test_any_bytes_agree_with_the_model(parts: list[bytes]) -> None:
    raw = b"".join(parts)
    assert (codec_api.utf8(raw) == 0) == utf8_ok(raw)
