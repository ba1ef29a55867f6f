"""Provide a raw MQTT connection for tests: it sends bytes and reads whole packets. It answers no packet by itself.

To show that no packet arrives, it sends PINGREQ and expects PINGRESP as the next packet; it does not wait.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time

from tests.harness import packets
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Packet, Pingreq, Pingresp, Received
from tests.harness.websocket import WebSocket


def frame_from(sock: socket.socket | WebSocket, buffer: bytearray, timeout_s: float) -> bytes | None:
    """Return the next whole packet; None = the peer closed. TimeoutError: none arrived. `buffer`: bytes after the last packet."""
    deadline = time.monotonic() + timeout_s
    while not (size := packets.split(buffer)):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no whole frame in time, have {bytes(buffer)!r}")
        sock.settimeout(left)
        try:
            more = sock.recv(65536)
        except ConnectionResetError:
            more = b""
        if not more:
            return None
        buffer += more
    raw = bytes(buffer[:size])
    del buffer[:size]
    return raw


def client_hello(context: ssl.SSLContext) -> bytes:
    """Return the first flight of a client: the record with its ClientHello."""
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


class Wire:
    may_tear = False            # True: the broker may be killed within a frame

    def __init__(
        self, port: int, level: int = 4, timeout_s: float = TIMEOUT_S, websocket: bool = False, tls: ssl.SSLContext | None = None,
        source: str = "", host: str = "127.0.0.1"
    ) -> None:
        self.level = level
        self.timeout_s = timeout_s
        tcp = socket.create_connection((host, port), timeout=timeout_s, source_address=(source, 0) if source else None)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            tcp = tls.wrap_socket(tcp, server_hostname="localhost")
        self.sock: socket.socket | WebSocket = WebSocket(tcp) if websocket else tcp
        self._buffer = bytearray()

    def send(self, *what: Packet | bytes) -> None:
        raw = b"".join(p if isinstance(p, bytes) else p.encode(self.level) for p in what)
        self.sock.settimeout(self.timeout_s)
        self.sock.sendall(raw)

    def read_frame(self, timeout_s: float | None = None) -> bytes | None:
        """Return the next whole packet; None = the peer closed. Raise TimeoutError if none arrives."""
        raw = frame_from(self.sock, self._buffer, self.timeout_s if timeout_s is None else timeout_s)
        assert raw is not None or self.may_tear or not self._buffer, f"closed within a frame: {bytes(self._buffer)!r}"
        return raw

    def read_packet(self, timeout_s: float | None = None) -> Received:
        raw = self.read_frame(timeout_s)
        assert raw is not None, "closed by the broker"
        return packets.decode(self.level, raw)

    def expect(self, raw: bytes) -> None:
        """Check that the next bytes are exactly these, in one packet or several."""
        got = b""
        while len(got) < len(raw):
            part = self.read_frame()
            if part is None:
                break
            got += part
        assert got == raw, f"\n got {got.hex(' ')}\nwant {raw.hex(' ')}"

    def expect_packet(self, want: Packet) -> Received:
        got = self.read_packet()
        assert got == want, f"\n got {got}\nwant {want}"
        return got

    def expect_closed(self, timeout_s: float | None = None) -> None:
        raw = self.read_frame(timeout_s)
        assert raw is None, f"expected the end of the connection, got {packets.decode(self.level, raw or b'')}"

    def expect_nothing(self) -> None:
        """Ping the broker: it sends everything that was pending for this client before it answers."""
        self.send(Pingreq())
        self.expect_packet(Pingresp())

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """End the connection by RST, as the machine of a crashed client would."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.sock.close()
