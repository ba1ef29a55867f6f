"""Make flights of TLS clients by hand that Python's ssl cannot make: a ClientHello without key share, and an RSA key exchange."""

from __future__ import annotations

import os
import struct

X25519 = 0x001D


def record(kind: int, content: bytes) -> bytes:
    return struct.pack(">BHH", kind, 0x0303, len(content)) + content


def extension(kind: int, content: bytes) -> bytes:
    return struct.pack(">HH", kind, len(content)) + content


def hello(random: bytes, suites: bytes, extensions: bytes) -> bytes:
    """Return a ClientHello [RFC 8446 4.1.2]; `random`: 64 bytes, for the random and the session id."""
    body = b"\x03\x03" + random[:32] + b"\x20" + random[32:] + struct.pack(">H", len(suites)) + suites + b"\x01\0"
    body += struct.pack(">H", len(extensions)) + extensions
    return record(22, b"\x01" + len(body).to_bytes(3, "big") + body)


def retried() -> tuple[bytes, bytes]:
    """Return two ClientHellos of TLS 1.3. The first has no key share, so the broker answers with a HelloRetryRequest; the second has one."""
    random = os.urandom(64)
    rest = extension(43, b"\x02\x03\x04") + extension(10, struct.pack(">HH", 2, X25519))
    rest += extension(13, struct.pack(">H8H", 16, 0x0403, 0x0503, 0x0603, 0x0804, 0x0805, 0x0806, 0x0401, 0x0501))
    share = struct.pack(">HH", X25519, 32) + os.urandom(32)
    none, one = (extension(51, struct.pack(">H", len(shares)) + shares) for shares in (b"", share))
    suites = b"\x13\x01\x13\x02"
    return hello(random, suites, rest + none), hello(random, suites, rest + one)


def rsa_exchange(key_bytes: int) -> tuple[bytes, bytes]:
    """Return the flights of a client of TLS 1.2 that lets the broker decrypt nonsense [RFC 5246 7.4.7.1], which is answered with an alert."""
    rest = extension(13, struct.pack(">HHH", 4, 0x0401, 0x0804))
    secret = b"\0" + os.urandom(key_bytes - 1)
    exchange = struct.pack(">H", key_bytes) + secret
    second = record(22, b"\x10" + len(exchange).to_bytes(3, "big") + exchange) + record(20, b"\x01") + record(22, os.urandom(40))
    return hello(os.urandom(64), b"\0\x9c", rest), second
