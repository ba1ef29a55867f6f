"""Encode and decode the properties of MQTT 5.0 as ordered pairs (id, value).

The code uses only the table of [v5 2.2.2.2]. It keeps the order and allows duplicates, because tests must send them.
"""

from __future__ import annotations

import struct
from enum import IntEnum

Value = int | str | bytes | tuple[str, str]
Props = tuple[tuple[int, Value], ...]


class Malformed(Exception):
    """The bytes do not follow the standard."""


class P(IntEnum):
    PAYLOAD_FORMAT = 0x01
    EXPIRY = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION = 0x09
    SUBSCRIPTION_ID = 0x0B
    SESSION_EXPIRY = 0x11
    ASSIGNED_ID = 0x12
    SERVER_KEEPALIVE = 0x13
    AUTH_METHOD = 0x15
    AUTH_DATA = 0x16
    REQUEST_PROBLEM = 0x17
    WILL_DELAY = 0x18
    REQUEST_RESPONSE = 0x19
    RESPONSE_INFO = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_AVAILABLE = 0x28
    SUBSCRIPTION_ID_AVAILABLE = 0x29
    SHARED_AVAILABLE = 0x2A


_U8 = {P.PAYLOAD_FORMAT, P.REQUEST_PROBLEM, P.REQUEST_RESPONSE, P.MAXIMUM_QOS, P.RETAIN_AVAILABLE,
       P.WILDCARD_AVAILABLE, P.SUBSCRIPTION_ID_AVAILABLE, P.SHARED_AVAILABLE}  # fmt: skip
_U16 = {P.SERVER_KEEPALIVE, P.RECEIVE_MAXIMUM, P.TOPIC_ALIAS_MAXIMUM, P.TOPIC_ALIAS}
_U32 = {P.EXPIRY, P.SESSION_EXPIRY, P.WILL_DELAY, P.MAXIMUM_PACKET_SIZE}
_BINARY = {P.CORRELATION, P.AUTH_DATA}


def varint(number: int) -> bytes:
    """Return a variable byte integer [v5 1.5.5]; too large numbers give more than four bytes, on purpose."""
    out = bytearray()
    while True:
        number, digit = divmod(number, 128)
        out.append(digit | (0x80 if number else 0))
        if not number:
            return bytes(out)


def read_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return (value, offset after it); raise IndexError if the bytes end before the number does."""
    value = shift = 0
    while True:
        digit = data[at]
        at += 1
        value |= (digit & 0x7F) << shift
        if not digit & 0x80:
            return value, at
        shift += 7
        if shift > 21:
            raise Malformed("variable byte integer of more than four bytes")


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("!H", len(raw)) + raw


def _encode_one(ident: int, value: Value) -> bytes:
    if isinstance(value, tuple):
        return bytes([ident]) + text(value[0]) + text(value[1])
    if isinstance(value, str | bytes):
        return bytes([ident]) + text(value)
    if ident == P.SUBSCRIPTION_ID:
        return bytes([ident]) + varint(value)
    size = "!B" if ident in _U8 else "!H" if ident in _U16 else "!I"
    return bytes([ident]) + struct.pack(size, value)


def encode(props: Props) -> bytes:
    body = b"".join(_encode_one(ident, value) for ident, value in props)
    return varint(len(body)) + body


class Cursor:
    """A reader of a packet's body from start to end; it raises Malformed at an overrun."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise Malformed(f"{count} bytes wanted at {self.at} of {len(self.data)}")
        self.at += count
        return self.data[self.at - count : self.at]

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def varint(self) -> int:
        try:
            value, self.at = read_varint(self.data, self.at)
        except IndexError:
            raise Malformed("truncated variable byte integer") from None
        return value

    def binary(self) -> bytes:
        return self.take(self.u16())

    def text(self) -> str:
        return self.binary().decode()

    def rest(self) -> bytes:
        return self.take(len(self.data) - self.at)

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def props(self) -> Props:
        length = self.varint()
        end = self.at + length
        found: list[tuple[int, Value]] = []
        while self.at < end:
            ident = self.u8()
            found.append((ident, self._value(ident)))
        if self.at != end:
            raise Malformed("a property runs over the end of its list")
        singles = [i for i, _ in found if i not in (P.USER, P.SUBSCRIPTION_ID)]
        if len(singles) != len(set(singles)):
            raise Malformed(f"a property twice in {found}")
        return tuple(found)

    def _value(self, ident: int) -> Value:
        if ident == P.USER:
            return self.text(), self.text()
        if ident == P.SUBSCRIPTION_ID:
            return self.varint()
        if ident in _U8:
            return self.u8()
        if ident in _U16:
            return self.u16()
        if ident in _U32:
            return self.u32()
        if ident in _BINARY:
            return self.binary()
        return self.text() if P(ident) else ""
