"""Play a remote broker: the test reads the packets of a bridge one by one and answers each of them.

`Remote` listens; `accept()` returns the next connection as a `Peer` after reading its CONNECT, without an answer.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from types import TracebackType
from typing import Any, Self

from tests.harness.effort import TIMEOUT_S
from tests.harness import packets
from tests.harness.packets import (
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from tests.harness.properties import Cursor, Props, read_varint
from tests.harness.wire import frame_from

BRIDGE = 0x80                   # bit of the level byte of CONNECT
Got = Connect | Publish | packets.Ack | Subscribe | Unsubscribe | Pingreq | Disconnect


def _connect(body: Cursor) -> tuple[Connect, int]:
    protocol = body.text()
    level_byte, flags, keepalive = body.u8(), body.u8(), body.u16()
    level = level_byte & ~BRIDGE
    props: Props = body.props() if level >= V5 else ()
    client_id, will = body.text(), None
    if flags & 4:
        will_props: Props = body.props() if level >= V5 else ()
        will = Will(body.text(), body.take(body.u16()), flags >> 3 & 3, bool(flags & 0x20), will_props)
    username = body.text() if flags & 0x80 else None
    password = body.take(body.u16()) if flags & 0x40 else None
    return Connect(client_id, bool(flags & 2), keepalive, will, username, password, props, protocol, level_byte, flags), level


def _filters(body: Cursor, options: bool) -> tuple[Any, ...]:
    found: list[Any] = []
    while body.left:
        name = body.text()
        found.append((name, body.u8()) if options else name)
    return tuple(found)


def decode_sent(level: int, raw: bytes) -> Got:
    """Decode one whole packet of a client, except CONNECT."""
    kind, flags = raw[0] >> 4, raw[0] & 15
    body = Cursor(raw[read_varint(raw, 1)[1]:])
    if kind in (8, 10):
        assert flags == 2
        mid = body.u16()
        props: Props = body.props() if level >= V5 else ()
        return Subscribe(mid, _filters(body, True), props) if kind == 8 else Unsubscribe(mid, _filters(body, False), props)
    if kind == 12:
        assert raw == b"\xc0\x00"
        return Pingreq()
    if kind == 14 and level < V5:
        assert raw == b"\xe0\x00"
        return Disconnect()
    got = packets.decode(level, raw)
    assert isinstance(got, Publish | packets.Ack | Disconnect)
    return got


class Peer:
    """An accepted connection. `connect` is its CONNECT."""

    def __init__(self, sock: socket.socket | ssl.SSLSocket) -> None:
        self.sock = sock
        self._buffer = bytearray()
        self.level = 4
        raw = self.frame()
        assert raw is not None, "closed before CONNECT"
        assert raw[0] == 0x10, raw
        self.connect, self.level = _connect(Cursor(raw[read_varint(raw, 1)[1]:]))

    def frame(self, timeout_s: float = TIMEOUT_S) -> bytes | None:
        """Return the next whole packet, or None if the other side closed."""
        return frame_from(self.sock, self._buffer, timeout_s)

    def read(self, timeout_s: float = TIMEOUT_S) -> Got:
        raw = self.frame(timeout_s)
        assert raw is not None, "the link is closed"
        return decode_sent(self.level, raw)

    def send(self, *what: Packet | bytes) -> None:
        self.sock.settimeout(TIMEOUT_S)
        self.sock.sendall(b"".join(p if isinstance(p, bytes) else p.encode(self.level) for p in what))

    def welcome(self, *filters: str, session: bool = False, props: Props = (), rc: int = 0) -> list[Got]:
        """Accept the connection; answer and return its packets until each of the filters was in a SUBSCRIBE or UNSUBSCRIBE.

        Without filters, the first SUBSCRIBE or UNSUBSCRIBE ends it."""
        self.send(Connack(session, rc, props))
        found: list[Got] = []
        missing = set(filters)
        while True:
            found.append(got := self.answered())
            if isinstance(got, Subscribe | Unsubscribe):
                missing -= {one[0] if isinstance(one, tuple) else one for one in got.filters}
                if not missing:
                    return found

    def answered(self, timeout_s: float = TIMEOUT_S) -> Got:
        """Return the next packet after acknowledging it."""
        got = self.read(timeout_s)
        if isinstance(got, Subscribe):
            self.send(Suback(got.mid, tuple(options & 3 for _, options in got.filters)))
        elif isinstance(got, Unsubscribe):
            self.send(Unsuback(got.mid, (0,) * len(got.filters)))
        elif isinstance(got, Publish) and got.qos:
            self.send(Puback(got.mid) if got.qos == 1 else Pubrec(got.mid))
        elif isinstance(got, Pubrel):
            self.send(Pubcomp(got.mid))
        elif isinstance(got, Pingreq):
            self.send(Pingresp())
        return got

    def closed(self) -> None:
        """Wait for the end of the connection; ignore packets that arrive before."""
        while self.frame() is not None:
            pass

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.sock.close()


class Remote:
    def __init__(self, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.server = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port = int(self.server.getsockname()[1])
        self.tls = tls
        self.from_address: Any = None
        self._open: list[socket.socket] = []

    def accept_raw(self, timeout_s: float = TIMEOUT_S) -> socket.socket:
        self.server.settimeout(timeout_s)
        sock, self.from_address = self.server.accept()
        sock.settimeout(TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is not None:
            try:
                sock = self.tls.wrap_socket(sock, server_side=True)
            except BaseException:
                sock.close()
                raise
        self._open.append(sock)
        return sock

    def accept(self, timeout_s: float = TIMEOUT_S) -> Peer:
        return Peer(self.accept_raw(timeout_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.server.close()
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.close()
