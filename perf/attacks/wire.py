"""Make the bytes of packets that attacks send thousands of times, faster than the dataclasses of the tests."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tests.harness.packets import Connect, Will
from tests.harness.properties import P, Props, varint

if TYPE_CHECKING:
    from collections.abc import Iterable

PINGREQ = b"\xc0\x00"
DISCONNECT = b"\xe0\x00"


def text(value: bytes) -> bytes:
    return struct.pack("!H", len(value)) + value


def packet(head: int, body: bytes) -> bytes:
    return bytes((head,)) + varint(len(body)) + body


def connect(  # parameters: the fields of a CONNECT
    client_id: str,
    *,
    level: int = 4,
    clean: bool = True,
    keepalive: int = 0,
    expiry_s: int = 0,
    will: Will | None = None,
    user: str | None = None,
    password: str | None = None,
    props: Props = (),
) -> bytes:
    if expiry_s and level == 5:
        props = ((P.SESSION_EXPIRY, expiry_s), *props)
    secret = None if password is None else password.encode()
    return Connect(client_id, clean, keepalive, will, user, secret, props).encode(level)


def publish(
    topic: bytes, payload: bytes = b"", *, qos: int = 0, mid: int = 0, retain: bool = False, props: bytes | None = None
) -> bytes:
    """Return a PUBLISH; `props`: the encoded properties of MQTT 5.0 without their length, None = a 3.1.1 packet."""
    body = text(topic) + (struct.pack("!H", mid) if qos else b"")
    if props is not None:
        body += varint(len(props)) + props
    return packet(0x30 | qos << 1 | retain, body + payload)


def subscribe(mid: int, filters: Iterable[bytes], qos: int = 0, *, level: int = 4) -> bytes:
    options = bytes((qos,))
    body = struct.pack("!H", mid) + (b"\0" if level == 5 else b"")
    return packet(0x82, body + b"".join(text(one) + options for one in filters))


def unsubscribe(mid: int, filters: Iterable[bytes], *, level: int = 4) -> bytes:
    body = struct.pack("!H", mid) + (b"\0" if level == 5 else b"")
    return packet(0xA2, body + b"".join(text(one) for one in filters))


def ws_frame(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    """Return a masked frame of a WebSocket client; the mask is zero, so the payload stays as it is."""
    n = len(payload)
    head = bytes((fin << 7 | opcode,))
    if n < 126:
        head += bytes((0x80 | n,))
    elif n < 65536:
        head += struct.pack("!BH", 0xFE, n)
    else:
        head += struct.pack("!BQ", 0xFF, n)
    return head + bytes(4) + payload
