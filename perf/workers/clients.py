"""Blocking MQTT 3.1.1 clients for measurements of single packets."""

from __future__ import annotations

import socket
import struct

from perf.login import packet, string

HOST = "127.0.0.1"
WAIT_S = 60.0
FILTERS_PER_PACKET = 500
ON_THE_WAY = 4                  # SUBSCRIBE packets without SUBACK


class Client:
    """A connected client with a clean session."""

    def __init__(self, port: int, name: str, host: str = HOST) -> None:
        self.sock = socket.create_connection((host, port), timeout=WAIT_S)
        self._early: list[tuple[int, bytes]] = []      # packets that came before a SUBACK
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(packet(0x10, string(b"MQTT") + bytes((4, 2, 0, 0)) + string(name.encode())))
        if self.sock.recv(4, socket.MSG_WAITALL) != b"\x20\x02\x00\x00":
            raise SystemExit("the broker refused a client")

    def subscribe(self, filters: list[bytes]) -> None:
        """Subscribe to all with QoS 0; return when all SUBACKs are there."""
        packets = [filters[i : i + FILTERS_PER_PACKET] for i in range(0, len(filters), FILTERS_PER_PACKET)]
        for i, some in enumerate(packets):
            body = b"".join(string(one) + b"\0" for one in some)
            self.sock.sendall(packet(0x82, struct.pack("!H", i % 65535 + 1) + body))
            if i >= ON_THE_WAY:
                self._confirmed(len(packets[i - ON_THE_WAY]))
        for some in packets[-ON_THE_WAY:]:
            self._confirmed(len(some))

    def _confirmed(self, filters: int) -> None:
        while (found := self._packet())[0] != 0x90:
            self._early.append(found)       # a message of a filter that this worker knows already
        body = found[1]
        if len(body) != 2 + filters or any(body[2:]):
            raise SystemExit("a subscription was refused")

    def publish(self, topic: bytes, payload: bytes = b"") -> None:
        self.sock.sendall(packet(0x30, string(topic) + payload))

    def read(self, *kinds: int) -> bytes:
        """Return the body of the next packet, whose first byte must be one of these. Raises TimeoutError."""
        first, body = self._early.pop(0) if self._early else self._packet()
        if first not in kinds:
            raise SystemExit(f"a packet 0x{first:02x} was not expected")
        return body

    def _packet(self) -> tuple[int, bytes]:
        """Return the first byte and the body of the next packet."""
        first = self._exactly(1)[0]
        n = shift = 0
        while True:
            byte = self._exactly(1)[0]
            n |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        return first, self._exactly(n)

    def message(self) -> tuple[bytes, bytes]:
        """Return topic and payload of the next message, retained or not."""
        body = self.read(0x30, 0x31)
        n = int.from_bytes(body[:2], "big")
        return body[2 : 2 + n], body[2 + n :]

    def _exactly(self, n: int) -> bytes:
        found = self.sock.recv(n, socket.MSG_WAITALL) if n else b""
        if len(found) != n:
            raise SystemExit("the broker has closed a connection")
        return found

    def close(self) -> None:
        self.sock.close()
