"""Give an attack its connections, its time, and a place for what it found."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import ssl
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perf.attacks import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

HOST = "127.0.0.1"
ATTACKER = "127.0.0.2"  # limits per address must not hit the victims, which connect from 127.0.0.1
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset, without TIME_WAIT
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n%s\r\n"
)
SETTLE_S = 90.0


class Client:
    """A connected client of the attacker: a blocking socket with a time limit, and the bytes that it has read."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.unread = sock, b""

    def read(self) -> bytes:
        """Return the next packet. Raises OSError if the connection ends or nothing comes in time."""
        while True:
            at, length, shift = 1, 0, 0
            while at < len(self.unread):
                byte = self.unread[at]
                length |= (byte & 127) << shift
                at, shift = at + 1, shift + 7
                if byte < 128:
                    if len(self.unread) < at + length:
                        break
                    one, self.unread = self.unread[: at + length], self.unread[at + length :]
                    return one
            more = self.sock.recv(262144)
            if not more:
                raise ConnectionError("the broker closed the connection")
            self.unread += more

    def read_type(self, kind: int) -> bytes:
        """Return the next packet of this type; ignore others."""
        while (one := self.read())[0] >> 4 != kind:
            pass
        return one

    def close(self) -> None:
        self.sock.close()


@dataclass
class Scene:
    """Describe the broker under attack to an attack, and collect its notes and breaches."""

    name: str  # mosq or mosquitto
    ports: dict[str, int]
    pid: int
    folder: Path
    seconds: float
    end: float = 0.0
    notes: list[str] = field(default_factory=list)
    breaches: list[str] = field(default_factory=list)
    kept: list[Client] = field(default_factory=list)  # clients that the preparation has connected

    # ---- time and findings

    def over(self) -> bool:
        return time.monotonic() >= self.end

    def left(self) -> float:
        return max(0.05, self.end - time.monotonic())

    def hold(self) -> None:
        """Keep all connections as they are until the time is over."""
        time.sleep(self.left())

    def note(self, text: str) -> None:
        """Add a fact to the table."""
        self.notes.append(text)

    def breach(self, text: str) -> None:
        """Report that the broker allowed what it must not allow: the attack counts as failed."""
        self.breaches.append(text)

    def reload(self) -> None:
        os.kill(self.pid, signal.SIGHUP)

    # ---- connections

    def open(self, kind: str = "tcp", source: str = ATTACKER, timeout_s: float = 5.0) -> socket.socket:
        sock = socket.socket()
        sock.settimeout(timeout_s)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        with contextlib.suppress(OSError):  # let the kernel choose a port for the pair of addresses
            sock.setsockopt(socket.IPPROTO_IP, 24, 1)
        try:
            sock.bind((source, 0))
            sock.connect((HOST, self.ports[kind]))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            sock.close()
            raise
        return sock

    def crowd(
        self, n: int, content: Callable[[int], bytes], kind: str = "tcp", addresses: int = 1
    ) -> list[socket.socket]:
        """Open up to n connections and send the first bytes of each; return those that the broker accepted in time.

        `addresses`: number of source addresses among which the connections are divided."""
        socks: list[socket.socket] = []
        failed = 0
        for i in range(n):
            if self.over():
                break
            source = ATTACKER if addresses == 1 else f"127.1.{i % addresses >> 8}.{1 + (i % addresses & 127)}"
            try:
                sock = self.open(kind, source, 1.0)
            except OSError:
                failed += 1
                continue
            sock.setblocking(False)
            with contextlib.suppress(OSError):
                sock.send(content(i))
            socks.append(sock)
        self.note(f"{len(socks)} connections" + (f", {failed} refused" if failed else ""))
        return socks

    def client(
        self, packet: bytes, kind: str = "tcp", source: str = ATTACKER, headers: bytes = b"", timeout_s: float = 10.0
    ) -> Client:
        """Connect a client with this CONNECT; raise OSError if the broker refuses it."""
        sock = self.open(kind, source, timeout_s)
        if kind == "tls":
            sock = tls_context().wrap_socket(sock, server_hostname="localhost")
        client = Client(sock)
        if kind == "ws":
            sock.sendall(UPGRADE % headers)
            while b"\r\n\r\n" not in client.unread:
                if not (more := sock.recv(4096)):
                    raise ConnectionError("the upgrade failed")
                client.unread += more
            client.unread = client.unread.partition(b"\r\n\r\n")[2]
            sock.sendall(wire.ws_frame(2, packet))
            while len(client.unread) < 6:  # the head of the frame, and a CONNACK
                if not (more := sock.recv(4096)):
                    raise ConnectionRefusedError("no CONNACK")
                client.unread += more
            if client.unread[5]:
                raise ConnectionRefusedError(f"CONNACK code {client.unread[5]}")
            client.unread = b""
            return client
        sock.sendall(packet)
        answer = client.read()
        if answer[0] != 0x20 or answer[3]:
            raise ConnectionRefusedError(f"CONNACK {answer!r}")
        return client

    def clients(self, n: int, packet: Callable[[int], bytes], kind: str = "tcp") -> list[Client]:
        """Connect n clients, with all CONNECTs on the way at the same time; return those that were accepted."""
        found, waiting = [], []
        for i in range(n):
            try:
                sock = self.open(kind)
                sock.sendall(packet(i))
            except OSError:
                break
            waiting.append(Client(sock))
        for client in waiting:
            try:
                if (answer := client.read())[0] == 0x20 and answer[3] == 0:
                    found.append(client)
            except OSError:
                client.close()
        return found

    def settle(self, client: Client) -> None:
        """Wait until the broker has processed everything that this client sent."""
        client.sock.settimeout(SETTLE_S)
        with contextlib.suppress(OSError):
            client.sock.sendall(wire.PINGREQ)
            client.read_type(13)

    # ---- floods

    def flood(
        self,
        clients: Sequence[Client],
        chunk: Callable[[int], bytes],
        *,
        readers: Sequence[Client] = (),
        read: bool = True,
        most: int = 1 << 62,
    ) -> int:
        """Send chunk(0), chunk(1), ... through the clients as fast as the broker takes them, until the time is over.

        Discards what the broker sends to the clients and to the readers; without `read` the clients leave it unread.
        Returns the number of chunks."""
        poll = select.epoll()
        by_fd = {c.sock.fileno(): c for c in clients}
        unsent: dict[int, memoryview] = {}
        sent = 0
        for fd, client in by_fd.items():
            client.sock.setblocking(False)
            poll.register(fd, select.EPOLLOUT | (select.EPOLLIN if read else 0))
        for client in readers:
            client.sock.setblocking(False)
            poll.register(client.sock, select.EPOLLIN)
        senders = set(by_fd)
        by_fd |= {c.sock.fileno(): c for c in readers}
        while senders and not self.over() and (sent < most or unsent):
            for fd, events in poll.poll(self.left()):
                client = by_fd[fd]
                try:
                    if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) and not client.sock.recv(1 << 20):
                        raise ConnectionError
                    if events & select.EPOLLOUT:
                        if fd not in unsent:
                            if sent >= most:
                                poll.modify(fd, select.EPOLLIN)
                                continue
                            unsent[fd] = memoryview(chunk(sent))
                            sent += 1
                        n = client.sock.send(unsent[fd])
                        if n == len(unsent[fd]):
                            del unsent[fd]
                        else:
                            unsent[fd] = unsent[fd][n:]
                except BlockingIOError:
                    continue
                except OSError:
                    poll.unregister(fd)
                    unsent.pop(fd, None)
                    senders.discard(fd)
        poll.close()
        if clients and not senders:
            self.note("the broker ended every connection of the flood")
        return sent

    def drain(self, client: Client, kind: int, count: int) -> int:
        """Read until `count` packets of this type have come or the broker is silent; return how many came."""
        got = 0
        client.sock.settimeout(SETTLE_S)
        with contextlib.suppress(OSError):
            while got < count:
                client.read_type(kind)
                got += 1
        return got


def tls_context() -> ssl.SSLContext:
    """Return a context that trusts every certificate: the attacker does not care."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
