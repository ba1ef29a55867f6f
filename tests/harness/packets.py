"""Provide every MQTT packet as a frozen dataclass: `encode(level)` gives its bytes, `decode(level, frame)` reads them back.

The code does no input or output. The level (3 = 3.1, 4 = 3.1.1, 5 = 5.0) belongs to the connection, so one description of a
packet serves all versions: reason codes and properties, which only 5.0 has, are omitted for earlier versions. Encoding does not
validate, since tests must send invalid packets; decoding is strict, since a broker must send valid ones.
In a table a packet id may be a name ("m"): the scene binds it to the number that the broker chose.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from tests.harness.properties import Cursor, Malformed, Props, read_varint, text, varint
from tests.harness.properties import encode as encode_props

Mid = int | str
V5 = 5


def frame(head: int, body: bytes) -> bytes:
    """Return a packet: fixed header with the right length, and the body."""
    return bytes([head]) + varint(len(body)) + body


def _mid(mid: Mid) -> bytes:
    assert isinstance(mid, int), f"packet id {mid!r} was never bound"
    return struct.pack("!H", mid)


def _tail(level: int, rc: int, props: Props) -> bytes:
    """Return reason code and properties in their shortest form [v5 3.4.2.1]."""
    if level < V5 or (rc == 0 and not props):
        return b""
    return bytes([rc]) + (encode_props(props) if props else b"")


def _read_tail(level: int, body: Cursor) -> tuple[int, Props]:
    if level < V5 or not body.left:
        return 0, ()
    rc = body.u8()
    return rc, body.props() if body.left else ()


@dataclass(frozen=True)
class Will:
    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    props: Props = ()


@dataclass(frozen=True)
class Connect:
    client_id: str = ""
    clean: bool = True
    keepalive: int = 60
    will: Will | None = None
    username: str | None = None
    password: bytes | None = None
    props: Props = ()
    protocol: str | None = None  # None = the right name for the level
    level_byte: int | None = None  # None = the level itself
    flags: int | None = None  # None = derived from the other fields

    def encode(self, level: int) -> bytes:
        will = self.will
        flags = 0x02 if self.clean else 0
        if will is not None:
            flags |= 0x04 | will.qos << 3 | will.retain << 5
        flags |= (self.password is not None) << 6 | (self.username is not None) << 7
        name = self.protocol if self.protocol is not None else "MQIsdp" if level == 3 else "MQTT"
        out = text(name)
        out += struct.pack("!BBH", level if self.level_byte is None else self.level_byte,
                           flags if self.flags is None else self.flags, self.keepalive)  # fmt: skip
        out += encode_props(self.props) if level >= V5 else b""
        out += text(self.client_id)
        if will is not None:
            out += encode_props(will.props) if level >= V5 else b""
            out += text(will.topic) + text(will.payload)
        out += text(self.username) if self.username is not None else b""
        out += text(self.password) if self.password is not None else b""
        return frame(0x10, out)


@dataclass(frozen=True)
class Connack:
    session: bool = False
    rc: int = 0
    props: Props = ()

    def encode(self, level: int) -> bytes:
        return frame(0x20, bytes([self.session, self.rc]) + (encode_props(self.props) if level >= V5 else b""))

    @staticmethod
    def read(level: int, flags: int, body: Cursor) -> Connack:
        session = body.u8()
        if session > 1:
            raise Malformed("reserved bits of the CONNACK flags")
        return Connack(bool(session), body.u8(), body.props() if level >= V5 else ())


@dataclass(frozen=True)
class Publish:
    topic: str
    payload: bytes = b""
    qos: int = 0
    mid: Mid = 0
    retain: bool = False
    dup: bool = False
    props: Props = ()

    def encode(self, level: int) -> bytes:
        out = text(self.topic) + (_mid(self.mid) if self.qos else b"")
        out += encode_props(self.props) if level >= V5 else b""
        return frame(0x30 | self.dup << 3 | self.qos << 1 | self.retain, out + self.payload)

    @staticmethod
    def read(level: int, flags: int, body: Cursor) -> Publish:
        qos = flags >> 1 & 3
        if qos == 3 or (qos == 0 and flags & 8):
            raise Malformed(f"PUBLISH flags {flags:#x}")
        topic = body.text()
        mid = body.u16() if qos else 0
        props = body.props() if level >= V5 else ()
        return Publish(topic, body.rest(), qos, mid, bool(flags & 1), bool(flags & 8), props)


@dataclass(frozen=True)
class Ack:
    """The common base of the four acknowledgements."""

    mid: Mid
    rc: int = 0
    props: Props = ()
    head: ClassVar[int] = 0

    def encode(self, level: int) -> bytes:
        return frame(self.head, _mid(self.mid) + _tail(level, self.rc, self.props))

    @classmethod
    def read(cls, level: int, flags: int, body: Cursor) -> Ack:
        return cls(body.u16(), *_read_tail(level, body))


@dataclass(frozen=True)
class Puback(Ack):
    head: ClassVar[int] = 0x40


@dataclass(frozen=True)
class Pubrec(Ack):
    head: ClassVar[int] = 0x50


@dataclass(frozen=True)
class Pubrel(Ack):
    head: ClassVar[int] = 0x62


@dataclass(frozen=True)
class Pubcomp(Ack):
    head: ClassVar[int] = 0x70


@dataclass(frozen=True)
class Subscribe:
    mid: Mid
    filters: tuple[tuple[str, int], ...]  # (filter, options byte)
    props: Props = ()

    def encode(self, level: int) -> bytes:
        out = _mid(self.mid) + (encode_props(self.props) if level >= V5 else b"")
        return frame(0x82, out + b"".join(text(f) + bytes([options]) for f, options in self.filters))


@dataclass(frozen=True)
class Suback:
    mid: Mid
    codes: tuple[int, ...]
    props: Props = ()
    head: ClassVar[int] = 0x90

    def encode(self, level: int) -> bytes:
        return frame(self.head, _mid(self.mid) + (encode_props(self.props) if level >= V5 else b"") + bytes(self.codes))

    @classmethod
    def read(cls, level: int, flags: int, body: Cursor) -> Suback:
        mid = body.u16()
        props = body.props() if level >= V5 else ()
        return cls(mid, tuple(body.rest()), props)


@dataclass(frozen=True)
class Unsubscribe:
    mid: Mid
    filters: tuple[str, ...]
    props: Props = ()

    def encode(self, level: int) -> bytes:
        out = _mid(self.mid) + (encode_props(self.props) if level >= V5 else b"")
        return frame(0xA2, out + b"".join(text(f) for f in self.filters))


@dataclass(frozen=True)
class Unsuback(Suback):
    head: ClassVar[int] = 0xB0

    def encode(self, level: int) -> bytes:
        return super().encode(level) if level >= V5 else frame(self.head, _mid(self.mid))


@dataclass(frozen=True)
class Pingreq:
    def encode(self, level: int) -> bytes:
        return b"\xc0\x00"


@dataclass(frozen=True)
class Pingresp:
    def encode(self, level: int) -> bytes:
        return b"\xd0\x00"

    @staticmethod
    def read(level: int, flags: int, body: Cursor) -> Pingresp:
        return Pingresp()


@dataclass(frozen=True)
class Disconnect:
    rc: int = 0
    props: Props = ()
    head: ClassVar[int] = 0xE0

    def encode(self, level: int) -> bytes:
        return frame(self.head, _tail(level, self.rc, self.props))

    @classmethod
    def read(cls, level: int, flags: int, body: Cursor) -> Disconnect:
        if level < V5:
            raise Malformed("a server below 5.0 sends no DISCONNECT or AUTH")
        return cls(*_read_tail(level, body))


@dataclass(frozen=True)
class Auth(Disconnect):
    head: ClassVar[int] = 0xF0


Packet = (
    Connect | Connack | Publish | Puback | Pubrec | Pubrel | Pubcomp | Subscribe | Suback | Unsubscribe | Unsuback
    | Pingreq | Pingresp | Disconnect | Auth
)  # fmt: skip
Received = Connack | Publish | Ack | Suback | Pingresp | Disconnect
Reader = Callable[[int, int, Cursor], Received]

_READERS: dict[int, Reader] = {2: Connack.read, 3: Publish.read, 4: Puback.read, 5: Pubrec.read, 6: Pubrel.read, 7: Pubcomp.read, 9: Suback.read, 11: Unsuback.read,
            13: Pingresp.read, 14: Disconnect.read, 15: Auth.read}  # fmt: skip


def split(data: bytes | bytearray) -> int:
    """Return the length of the first whole packet in `data`; 0 while it is incomplete."""
    try:
        length, at = read_varint(data, 1)
    except IndexError:
        return 0
    return at + length if len(data) >= at + length else 0


def decode(level: int, data: bytes) -> Received:
    """Decode one whole packet that a server sent; raise Malformed if any part of it is wrong."""
    kind, flags = data[0] >> 4, data[0] & 15
    reader = _READERS.get(kind)
    if reader is None:
        raise Malformed(f"a server must not send packet type {kind}")
    if flags != (2 if kind == 6 else 0) and kind != 3:
        raise Malformed(f"reserved flags {flags:#x} of packet type {kind}")
    body = Cursor(data[read_varint(data, 1)[1] :])
    packet = reader(level, flags, body)
    if body.left:
        raise Malformed(f"{body.left} bytes too many in {data!r}")
    return packet
