"""Test a client that asks for a new handshake again and again and does not read the answers.

The broker answers each ClientHello after the first with an alert; one record of the client holds thousands of them."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import select
import socket
import ssl
import struct
from tests.harness.effort import TIMEOUT_S
from pathlib import Path

import pytest

from tests.harness.broker import Broker
from tests.harness.certificates import TLS_LINES, client_context, server_files
from tests.harness.packets import Connack, Connect
from tests.harness.wire import Wire

# no encryption: the test makes records from the secrets of a key log
CIPHERS = "ECDHE-ECDSA-NULL-SHA:@SECLEVEL=0"
OPEN = "log_type all\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
RECORDS = 10_000


def expanded(secret: bytes, label: bytes, n: int) -> bytes:
    """Return n bytes of P_SHA256 [RFC 5246 5]."""
    at, out = label, b""
    while len(out) < n:
        at = hmac.digest(secret, at, hashlib.sha256)
        out += hmac.digest(secret, at + label, hashlib.sha256)
    return out[:n]


class Plain:
    """A TLS 1.2 client without encryption that makes its own records after the handshake."""

    def __init__(self, port: int, folder: Path) -> None:
        keys = folder / "keys"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.keylog_filename = str(keys)
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(("127.0.0.1", port))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing)
        seen = b""
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.sock.sendall(outgoing.read())
                more = self.sock.recv(65536)
                assert more, "the handshake failed"
                seen += more
                incoming.write(more)
        assert seen[0] == 22 and seen[5] == 2, "a ServerHello"
        _, client_random, secret = keys.read_text().split()[-3:]
        random = seen[11:43] + bytes.fromhex(client_random)
        self.key = expanded(bytes.fromhex(secret), b"key expansion" + random, 20)
        self.n = 1              # Finished was the first

    def record(self, kind: int, content: bytes) -> bytes:
        head = struct.pack(">BHH", kind, 0x0303, len(content))
        mac = hmac.digest(self.key, struct.pack(">Q", self.n) + head + content, hashlib.sha1)
        self.n += 1
        return struct.pack(">BHH", kind, 0x0303, len(content) + len(mac)) + content + mac

    def ask_on(self) -> None:
        for _ in range(RECORDS):
            self.sock.sendall(self.record(22, b"\x01\0\0\0" * 1000))
            select.select([], [], [], 0.002)     # time for one read of the broker


def test_a_client_that_causes_output_and_does_not_read_is_ended(tmp_path: Path) -> None:
    """Test that the unsent output of the client stays within its bound, also if it grows in small steps."""
    with Broker(OPEN + TLS_LINES + f"ciphers {CIPHERS}\ntls_version tlsv1.2\n", server_files()) as broker:
        client = Plain(broker.port, tmp_path)
        client.sock.sendall(client.record(23, Connect(client_id="asks").encode(4)))
        with pytest.raises(ConnectionError):
            client.ask_on()
        client.sock.close()
        context = client_context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        wire = Wire(broker.port, 4, tls=context)         # other clients are not affected
        wire.send(Connect(client_id="other"))
        got = wire.read_packet()
        assert isinstance(got, Connack) and got.rc == 0
        wire.close()


def test_many_renegotiations_in_one_read_end_the_connection(tmp_path: Path) -> None:
    with Broker(OPEN + TLS_LINES + f"ciphers {CIPHERS}\ntls_version tlsv1.2\n", server_files()) as broker:
        client = Plain(broker.port, tmp_path)
        hello = b"\x01\0\0\0" * 4000
        with contextlib.suppress(ConnectionError):
            client.sock.sendall(b"".join(client.record(22, hello) for _ in range(6)))
            while client.sock.recv(1 << 16):             # TimeoutError if the broker does not end the connection
                pass
        client.sock.close()
