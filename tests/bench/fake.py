"""Provide a broker that makes certain errors and counts them: one thread, MQTT 3.1.1 and 5.0, with the features that a load needs."""

from __future__ import annotations

import select
import socket
import threading
import time
from typing import Self

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, PINGREQ, DISCONNECT = 1, 2, 3, 4, 8, 9, 12, 14


def packet(first: int, body: bytes) -> bytes:
    size, n = b"", len(body)
    while True:
        n, digit = n >> 7, n & 127
        size += bytes((digit | (128 if n else 0),))
        if not n:
            return bytes((first,)) + size + body


class Fake:
    """Make errors on request.

    drop, double, swap: lose every n-th forwarded PUBLISH, send it twice, or send it after the next one (0 = none).
    connack: the code of CONNACK. suback: the code of SUBACK (None = the requested QoS).
    deny: acknowledge every n-th PUBLISH of QoS 1 with 0x97.
    after, then: after `after` messages do this once: "stall" (read nothing for stall_s), "close", "goodbye", "garbage", "silence".
    "deaf" applies from the beginning: the broker answers no DISCONNECT.
    """

    def __init__(self, *, drop: int = 0, double: int = 0, swap: int = 0, deny: int = 0, connack: int = 0, suback: int | None = None,
                 connack_props: bytes = b"", after: int = 0, then: str = "", stall_s: float = 0.0) -> None:
        self.drop, self.double, self.swap, self.deny = drop, double, swap, deny
        self.connack, self.suback, self.connack_props = connack, suback, connack_props
        self.after, self.then, self.stall_s = after, then, stall_s
        self.published = self.dropped = self.doubled = self.swapped = self.denied = self.largest_burst = 0
        self.held: list[tuple[socket.socket, bytes]] = []
        self.buffers: dict[socket.socket, bytes] = {}
        self.unanswered: list[socket.socket] = []
        self.versions: dict[socket.socket, int] = {}
        self.filters: list[tuple[str, str, socket.socket]] = []     # group, filter, subscriber
        self.turn = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.wake, self.woken = socket.socketpair()
        self.silent = False
        self.thread = threading.Thread(target=self.serve)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.wake.send(b"x")
        self.thread.join()
        for one in (*self.buffers, *self.unanswered, self.listener, self.wake, self.woken):
            one.close()

    def serve(self) -> None:
        while True:
            ready, _, _ = select.select([self.listener, self.woken, *self.buffers], [], [])
            if self.woken in ready:
                return
            if self.listener in ready:
                door, _ = self.listener.accept()
                door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.buffers[door] = b""
            for door in ready:
                if door in self.buffers:
                    self.read(door)

    def read(self, door: socket.socket) -> None:
        try:
            came = door.recv(1 << 16)
        except ConnectionError:
            came = b""
        if not came:
            self.end(door)
            return
        if self.silent:
            return
        held, at, before = self.buffers[door] + came, 0, self.published
        while door in self.buffers and not self.silent:
            size, shift, i = 0, 0, at + 1
            while i < len(held):
                size |= (held[i] & 127) << shift
                shift, i = shift + 7, i + 1
                if held[i - 1] < 128:
                    break
            else:
                break
            if len(held) < i + size:
                break
            self.handle(door, held[at], held[i:i + size])
            at = i + size
        self.largest_burst = max(self.largest_burst, self.published - before)
        if door in self.buffers:
            self.buffers[door] = held[at:]

    def end(self, door: socket.socket) -> None:
        del self.buffers[door]
        self.filters = [one for one in self.filters if one[2] is not door]
        if self.then == "deaf":
            self.unanswered.append(door)
        else:
            door.close()

    def send(self, door: socket.socket, data: bytes) -> None:
        if door in self.buffers:
            try:
                door.sendall(data)
            except ConnectionError:
                self.end(door)

    # ---------------------------------------------------------------- packets

    def handle(self, door: socket.socket, first: int, body: bytes) -> None:
        kind = first >> 4
        if kind == CONNECT:
            self.versions[door] = body[6]
            props = bytes((len(self.connack_props),)) + self.connack_props if body[6] == 5 else b""
            self.connected(bool(body[7] & 2))
            self.send(door, packet(CONNACK << 4, bytes((0, self.connack)) + props))
        elif kind == SUBSCRIBE:
            self.subscribe(door, body)
        elif kind == PUBLISH:
            self.publish(door, first, body)
        elif kind == PINGREQ:
            self.send(door, b"\xd0\0")
        elif kind == DISCONNECT:
            self.end(door)

    def connected(self, clean: bool) -> None:
        """Handle a new connection; subclasses extend it."""

    def subscribe(self, door: socket.socket, body: bytes) -> None:
        at = 3 if self.versions[door] == 5 else 2
        size = int.from_bytes(body[at:at + 2])
        filter = body[at + 2:at + 2 + size].decode()
        group = ""
        if filter.startswith("$share/"):
            _, group, filter = filter.split("/", 2)
        self.filters.append((group, filter, door))
        props = b"\0" if self.versions[door] == 5 else b""
        code = body[at + 2 + size] & 3 if self.suback is None else self.suback
        self.send(door, packet(SUBACK << 4, body[:2] + props + bytes((code,))))

    def publish(self, door: socket.socket, first: int, body: bytes) -> None:
        self.published += 1
        size = 2 + int.from_bytes(body[:2])
        qos = first >> 1 & 3
        denied = bool(qos and self.deny and self.published % self.deny == 0)
        if qos:
            self.send(door, packet(PUBACK << 4, body[size:size + 2] + (b"\x97" if denied else b"")))
        self.denied += denied
        rest = body[size + (2 if qos else 0):]
        if not denied:      # to all subscribers at QoS 0
            self.forward(body[2:size].decode(), packet(PUBLISH << 4, body[:size] + rest))
        if self.published == self.after:
            self.misbehave(door)

    def forward(self, topic: str, frame: bytes) -> None:
        plain = [who for group, filter, who in self.filters if not group and self.asks_for(filter, topic)]
        members = [who for group, filter, who in self.filters if group and self.asks_for(filter, topic)]
        if members:
            self.turn += 1
            plain.append(members[self.turn % len(members)])
        n = self.published
        held, self.held = self.held, []
        for who in plain:
            if self.drop and n % self.drop == 0:
                self.dropped += 1
            elif self.double and n % self.double == 0:
                self.doubled += 1
                self.send(who, frame)
                other = members[(self.turn + 1) % len(members)] if members else who
                self.send(other, frame)
            elif self.swap and n % self.swap == 0:
                self.swapped += 1
                self.held.append((who, frame))
            else:
                self.send(who, frame)
        for who, late in held:
            self.send(who, late)

    def asks_for(self, filter: str, topic: str) -> bool:
        return topic.startswith(filter[:-1]) if filter.endswith("#") else filter == topic

    def misbehave(self, door: socket.socket) -> None:
        if self.then == "stall":
            time.sleep(self.stall_s)
        elif self.then == "close":
            self.end(door)
        elif self.then == "goodbye":
            self.send(door, b"\xe0\x02\x98\0")
        elif self.then == "garbage":
            self.send(door, b"\xf0\xff\xff\xff\xff\xff")
        elif self.then == "silence":
            self.silent = True
