"""Make and read TLS 1.3 records as a client does, from Python's own primitives [RFC 8446 5, 7], to test the records code."""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

ALERT, HANDSHAKE, DATA = 21, 22, 23
HEADER_BYTES = 5
KEY_UPDATE, ASKING_KEY_UPDATE = b"\x18\0\0\x01\0", b"\x18\0\0\x01\x01"


@dataclass
class Suite:
    id: int
    digest: str
    key_bytes: int
    cipher: type[AESGCM] | type[ChaCha20Poly1305]

    @property
    def secret_bytes(self) -> int:
        return hashlib.new(self.digest).digest_size


AES_128, AES_256, CHACHA = (
    Suite(0x1301, "sha256", 16, AESGCM),
    Suite(0x1302, "sha384", 32, AESGCM),
    Suite(0x1303, "sha256", 32, ChaCha20Poly1305),
)
ALL = {"aes-128": AES_128, "aes-256": AES_256, "chacha": CHACHA}


def expanded(suite: Suite, secret: bytes, label: bytes, n: int, context: bytes = b"") -> bytes:
    """Return n bytes of HKDF-Expand-Label; n is at most one block."""
    info = struct.pack(">HB", n, 6 + len(label)) + b"tls13 " + label + bytes([len(context)]) + context + b"\x01"
    return hmac.digest(secret, info, suite.digest)[:n]


class Direction:
    """One direction of a connection; serves the sending end and the receiving end."""

    def __init__(self, suite: Suite, secret: bytes, sequence: int = 0) -> None:
        self.suite = suite
        self._begin(secret)
        self.sequence = sequence

    def _begin(self, secret: bytes) -> None:
        self.secret = secret
        self.cipher = self.suite.cipher(expanded(self.suite, secret, b"key", self.suite.key_bytes))
        self.iv = int.from_bytes(expanded(self.suite, secret, b"iv", 12))
        self.sequence = 0

    def renew(self) -> None:
        self._begin(expanded(self.suite, self.secret, b"traffic upd", self.suite.secret_bytes))

    def _nonce(self) -> bytes:
        nonce = (self.iv ^ self.sequence).to_bytes(12)
        self.sequence += 1
        return nonce

    def sealed(self, inner: bytes, head: bytes | None = None) -> bytes:
        """Return a record around exactly these bytes, which end with the type and padding."""
        head = head or struct.pack(">BHH", DATA, 0x0303, len(inner) + 16)
        return head + self.cipher.encrypt(self._nonce(), inner, head)

    def seal(self, content: bytes, kind: int = DATA, padding: int = 0) -> bytes:
        return self.sealed(content + bytes([kind]) + bytes(padding))

    def update(self, message: bytes = KEY_UPDATE) -> bytes:
        record = self.seal(message, HANDSHAKE)
        self.renew()
        return record

    def open(self, stream: bytes) -> list[tuple[int, bytes]]:
        """Return (type, content) of each record; follow KeyUpdates."""
        found = []
        while stream:
            n = HEADER_BYTES + int.from_bytes(stream[3:5])
            assert stream[:3] == b"\x17\x03\x03" and len(stream) >= n
            inner = self.cipher.decrypt(self._nonce(), stream[HEADER_BYTES:n], stream[:HEADER_BYTES]).rstrip(b"\0")
            found.append((inner[-1], inner[:-1]))
            if found[-1] == (HANDSHAKE, KEY_UPDATE):
                self.renew()
            stream = stream[n:]
        return found


def log_lines(client: bytes, server: bytes) -> list[str]:
    """Return the lines of OpenSSL's key log for these secrets."""
    random = "ab" * 32
    return [
        f"CLIENT_HANDSHAKE_TRAFFIC_SECRET {random} {'11' * len(client)}",
        f"SERVER_TRAFFIC_SECRET_0 {random} {server.hex()}",
        f"CLIENT_TRAFFIC_SECRET_0 {random} {client.hex()}",
    ]
