"""Writes packets as a pcapng file that Wireshark reads: each MQTT packet in synthetic IP and TCP headers with the
addresses of the connection. TLS and WebSocket connections appear as plain MQTT. Knows bytes, not the broker.

A connection gets a handshake, and sequence numbers that continue, also over bytes that the trace has cut: these are
missing in the file, as in a capture with a snapshot length. Events that are no packets are comments of the next packet.
Format: draft-ietf-opsawg-pcapng. All numbers are in the byte order of this machine.
"""

import socket
import struct

from mosq.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

SECTION, INTERFACE, PACKET = 0x0A0D0D0A, 1, 6
MAGIC = 0x1A2B3C4D
LINK_RAW_IP = 101
COMMENT, HARDWARE, APPLICATION, NAME = 1, 2, 4, 2
COMMENTS_MAX = 100              # comments of one packet
COMMENT_BYTES_MAX = 1000
CONNECTIONS_MAX = 10_000        # connections whose sequence numbers are known; the oldest ones are forgotten
SEGMENT_MAX = 65_000            # bytes of one TCP segment, below the limit of an IPv4 packet
FIN, SYN, PSH, ACK = 1, 2, 8, 16
FIRST_SEQ = 1000
NO_ADDRESS = ("127.0.0.1", "127.0.0.1")
TCP = 6


class Connection:
    """The addresses and the next sequence numbers of one connection."""

    def __init__(self, client: tuple[str, int], broker: tuple[str, int]) -> None:
        a, b = _packed(client[0]), _packed(broker[0])
        if a is None or b is None or len(a) != len(b):
            a, b = (_packed(text) for text in NO_ADDRESS)
        assert a is not None
        assert b is not None
        self.client, self.broker = (a, client[1]), (b, broker[1])
        self.seq = {True: FIRST_SEQ, False: FIRST_SEQ}         # by direction: True from the client

    def segment(self, from_client: bool, flags: int, data: bytes, size: int) -> tuple[bytes, int]:
        """Return an IP packet that begins with `data`, and the bytes that it would have with all `size` bytes."""
        (source, source_port), (target, target_port) = ((self.client, self.broker) if from_client
                                                        else (self.broker, self.client))
        seq = self.seq[from_client]
        acknowledged = self.seq[not from_client] if flags & ACK else 0
        tcp = struct.pack("!HHIIBBHHH", source_port, target_port, seq & 0xFFFFFFFF, acknowledged & 0xFFFFFFFF, 5 << 4,
                          flags, 65535, 0, 0)
        self.seq[from_client] = seq + size + bool(flags & (SYN | FIN))
        if len(source) == 4:
            total = 20 + len(tcp) + size
            head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, total, 0, 0x4000, 64, TCP, 0, source, target)
            head = head[:10] + struct.pack("!H", _checksum(head)) + head[12:]
        else:
            head = struct.pack("!IHBB16s16s", 6 << 28, len(tcp) + size, TCP, 64, source, target)
        return head + tcp + data, len(head) + len(tcp) + size


class Writer:
    """A pcapng file that is written packet by packet."""

    def __init__(self, file: "IO[bytes]") -> None:
        self._file = file
        self._connections: dict[int, Connection] = {}
        self._comments: list[str] = []
        self.ports: set[int] = set()
        application = f"mosq {VERSION}".encode()
        self._block(SECTION, struct.pack("=IHHq", MAGIC, 1, 0, -1) + _options([(APPLICATION, application)]))
        self._block(INTERFACE, struct.pack("=HHI", LINK_RAW_IP, 0, 0) + _options([(NAME, b"mosq trace")]))

    def comment(self, text: str) -> None:
        """Keep a comment for the next packet."""
        if len(self._comments) < COMMENTS_MAX:
            self._comments.append(text)

    def packet(self, event: "dict[str, Any]", frame: bytes) -> None:
        """Write the packet of an event. `frame`: its bytes, which may be cut."""
        from_client = event["event"] == "received"
        connection = self._connections.get(event["connection"])
        if connection is None:
            connection = self._opened(event, event["time"])
        size = event["size"]
        while size > 0:
            n = min(size, SEGMENT_MAX)
            self._write(event["time"], *connection.segment(from_client, PSH | ACK, frame[:n], n))
            frame, size = frame[n:], size - n

    def closed(self, event: "dict[str, Any]") -> None:
        """Write the end of a connection."""
        connection = self._connections.pop(event.get("connection", 0), None)
        if connection is None:
            return
        for from_client, flags in ((True, FIN | ACK), (False, FIN | ACK), (True, ACK)):
            self._write(event["time"], *connection.segment(from_client, flags, b"", 0))

    def _opened(self, event: "dict[str, Any]", when: int) -> Connection:
        if len(self._connections) >= CONNECTIONS_MAX:
            self._connections.pop(next(iter(self._connections)))
        self.ports.add(event["listener"])
        made = Connection((event.get("address") or "", event["port"]), (event.get("ownAddress") or "",
                                                                        event["listener"]))
        self._connections[event["connection"]] = made
        for from_client, flags in ((True, SYN), (False, SYN | ACK), (True, ACK)):
            self._write(when, *made.segment(from_client, flags, b"", 0))
        return made

    def _write(self, us: int, packet: bytes, size: int) -> None:
        options = [(COMMENT, _cut(text)) for text in self._comments]
        self._comments.clear()
        body = struct.pack("=IIIII", 0, us >> 32, us & 0xFFFFFFFF, len(packet), size) + _padded(packet)
        self._block(PACKET, body + _options(options))

    def _block(self, kind: int, body: bytes) -> None:
        size = len(body) + 12
        self._file.write(struct.pack("=II", kind, size) + body + struct.pack("=I", size))


def _cut(text: str) -> bytes:
    """Return a text of at most COMMENT_BYTES_MAX bytes, which does not end inside of a character."""
    return text.encode("utf-8", "backslashreplace")[:COMMENT_BYTES_MAX].decode("utf-8", "ignore").encode()


def _packed(text: str) -> bytes | None:
    text = text.removeprefix("::ffff:") if text.lower().startswith("::ffff:") and "." in text else text
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_pton(family, text)
        except OSError:
            continue
    return None


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _options(options: list[tuple[int, bytes]]) -> bytes:
    if not options:
        return b""
    return b"".join(struct.pack("=HH", code, len(value)) + _padded(value) for code, value in options) + bytes(4)


def _checksum(head: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(head) // 2}H", head))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF
