"""Provide the publisher and the subscriber of the chaos runs, with asyncio.

They keep the state that a client must keep between connections (unacknowledged messages, packet ids held at QoS 2), answer as the
standard requires, and report each packet to the audit. They send and receive tens of thousands of messages a second."""

from __future__ import annotations

import asyncio
import contextlib
import math
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tests.chaos.audit import Audit, Sent
from tests.harness.packets import frame
from tests.harness.properties import text

HEAD = struct.Struct(">IQ")             # publisher, sequence number
RETRY_S = 0.02
REFUSED_S = 0.5                 # pause after a refused connection
PING_EVERY = 8                          # acknowledgements at QoS 1
STATE_EVERY = 16                        # a publisher sets its retained message after this many messages
STATE_PUBLISHER = 0xFFFFFFFF
GUESTS = 0xFFFFFFF0                     # publishers from this number on are not audited
BRIEF_PUBLISHER = 0xFFFFFFFD
BRIEF_STAMP = struct.Struct(">d")
BRIEF_EVERY = 8                         # a publisher of 5.0 sends an expiring message after this many
BRIEF_S = 1                             # message expiry interval
MISSED_S = 10.0
BRIEF_SLACK_S = 3.0                     # allowed time between the broker's sending and our reading


@dataclass(slots=True)
class Outage:
    """A kill of processes, in seconds of the monotonic clock."""

    began_at: float
    ended_at: float = math.inf


class Chaos:
    """Hold the state that all clients of a run share."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.audit = Audit()
        self.outages: list[Outage] = []
        self.kills = 0
        self.connects = 0
        self.take_overs = 0
        self.wills = 0
        self.brief = 0                  # expiring messages that arrived in time
        self.brief_slack_s = BRIEF_SLACK_S
        self.jumps: list[Outage] = []   # of clocks: until the end of a jump, times in records are wrong
        self.grace_s = 1.0              # packets that the broker read this long before a kill must be on record
        self.missed_s = MISSED_S        # a will that has not come so long after the last kill is missing
        self.retried: frozenset[int] = frozenset()      # codes of CONNACK after which a client tries again
        self.refusals = 0               # CONNACKs with one of them

    def address(self) -> tuple[str, int]:
        """Return where the next connection goes."""
        return "127.0.0.1", self.port

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """From the first signal to the end of the processes. They may serve until then, and put nothing on record."""
        outage = Outage(time.monotonic())
        self.outages.append(outage)
        yield
        outage.ended_at = time.monotonic()

    def on_record(self, asked_at: float, told_at: float) -> bool:
        """Return True if the running broker knows all packets that a broker read between these times. An answer may arrive after the kill."""
        return all(o.ended_at < asked_at or o.began_at - told_at > self.grace_s for o in self.outages)


class Unheard(asyncio.Protocol):
    """Read the rest of a connection that another client took over."""


class Session(asyncio.Protocol):
    """One session with at most one connection. `wanted`: the session must be connected."""

    def __init__(self, chaos: Chaos, client_id: str, level: int) -> None:
        self.chaos, self.client_id, self.level = chaos, client_id, level
        self.wanted = False
        self.up = asyncio.Event()       # set by CONNACK
        self.down = asyncio.Event()
        self.down.set()
        self.known = False              # the broker has reported a present session once
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._out: list[bytes] = []
        self._dialling: asyncio.Task[None] | None = None
        self._left = False              # DISCONNECT was sent
        self._refused = False           # the last connection was refused
        self._asked_at = 0.0            # CONNECT or DISCONNECT was sent
        self._pings: deque[tuple[asyncio.Future[None] | None, list[tuple[int, int]], float]] = deque()

    # -- connecting

    def connect(self) -> None:
        self.wanted = True
        if self._dialling is None and self.transport is None:
            self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        if self._refused:
            self._refused = False
            await asyncio.sleep(REFUSED_S)
        while self.wanted and self.transport is None:
            try:
                await loop.create_connection(lambda: self, *self.chaos.address())
            except OSError:
                await asyncio.sleep(RETRY_S)
        self._dialling = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.down.clear()
        self._buffer.clear()
        self._out.clear()
        self._left, self._asked_at = False, time.monotonic()
        self.chaos.connects += 1
        self._out.append(self.greeting())
        self.flush()

    def greeting(self) -> bytes:
        properties = b"\x05\x11\xff\xff\xff\xff" if self.level == 5 else b""
        return frame(0x10, text("MQTT") + bytes([self.level, 0]) + struct.pack(">H", 60) + properties + text(self.client_id))

    def take_over(self) -> None:
        """Connect again while a connection is open, and ignore the old connection from then on."""
        if self.transport is not None and self.up.is_set():
            self.transport.set_protocol(Unheard())
            self.chaos.take_overs += 1
            self.connection_lost(None)

    def connection_lost(self, _error: Exception | None) -> None:
        self.transport = None
        self.up.clear()
        self.down.set()
        while self._pings:
            future, *_ = self._pings.popleft()
            if future is not None and not future.done():
                future.set_exception(ConnectionResetError())
                future.exception()      # retrieve it: no task may be waiting any more
        self.on_down()
        if self.wanted:
            self.connect()

    def drop(self) -> None:
        """Abort the connection; data in transit is lost."""
        if self.transport is not None:
            self.transport.abort()

    async def leave(self) -> bool:
        """Disconnect after the broker has read all sent packets, and wait until it closes the connection. Return False if
        the connection ended before DISCONNECT was sent."""
        self.wanted = answered = False
        if self.transport is not None and self.up.is_set():
            with contextlib.suppress(ConnectionResetError):
                await self.ping()
                answered = True
        if self.transport is not None:
            self._out.append(b"\xe0\x00")
            self.flush()
            # packets that the broker sends until it reads DISCONNECT are not received
            self._left, self._asked_at = True, time.monotonic()
        await self.down.wait()
        return answered

    async def ping(self) -> None:
        """Wait until the broker has handled all sent packets; raise ConnectionResetError if the connection ends."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ping(future)
        self.flush()
        await future

    def _ping(self, future: asyncio.Future[None] | None = None) -> None:
        self._pings.append((future, self.take_acknowledged(), time.monotonic()))
        self._out.append(b"\xc0\x00")

    def probe(self) -> None:
        """Send PINGREQ, unless an answer is due."""
        if self.transport is not None and self.up.is_set() and not self._left and not self._pings:
            self._ping()
            self.flush()

    def silent_s(self) -> float:
        """Return for how long the broker has not answered CONNECT, PINGREQ or DISCONNECT."""
        if self.transport is None:
            return 0.0
        if self._left or not self.up.is_set():
            return time.monotonic() - self._asked_at
        return time.monotonic() - self._pings[0][2] if self._pings else 0.0

    def take_acknowledged(self) -> list[tuple[int, int]]:
        """Return publishers and sequence numbers acknowledged since the last call."""
        return []

    # -- packets

    def flush(self) -> None:
        if self._out and self.transport is not None:
            self.transport.write(b"".join(self._out))
            self._out.clear()

    def data_received(self, data: bytes) -> None:
        if self._left:
            return
        buffer = self._buffer
        buffer += data
        at, n = 0, len(buffer)
        while n - at >= 2:
            length, shift, head = 0, 0, at + 1
            while head < n:
                byte = buffer[head]
                head += 1
                length |= (byte & 127) << shift
                if byte < 128:
                    break
                shift += 7
            else:
                break
            if n - head < length:
                break
            self._packet(buffer[at], bytes(buffer[head:head + length]))
            at = head + length
            if self.transport is None:
                return
        del buffer[:at]
        self.flush()

    def _packet(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if kind == 2:
            self._connack(body)
        elif kind == 13:
            if self._pings:
                future, told, asked_at = self._pings.popleft()
                if future is not None and not future.done():
                    future.set_result(None)
                self.on_pong(told, asked_at)
        elif kind == 14:
            pass                        # DISCONNECT: the broker stops; the end of the connection follows
        else:
            self.on_packet(first, body)

    def _connack(self, body: bytes) -> None:
        present, code = body[0] & 1, body[1]
        if code in self.chaos.retried:
            self.chaos.refusals += 1
            self._refused = True
            self.drop()
            return
        if code:
            raise AssertionError(f"{self.client_id}: CONNACK {code}")
        if self.known and not present:
            self.chaos.audit.fault("session", f"{self.client_id} is not known any more")
        fresh = not present
        self.known = True
        self.up.set()
        self.on_up(fresh)

    def on_up(self, fresh: bool) -> None: ...
    def on_down(self) -> None: ...
    def on_pong(self, reported: list[tuple[int, int]], asked_at: float) -> None: ...
    def on_packet(self, first: int, body: bytes) -> None: ...


class Publisher(Session):
    """Send numbered messages within a window; on a new connection, repeat the unacknowledged ones."""

    def __init__(self, chaos: Chaos, number: int, group: int, qos: int, level: int, window: int, payload_bytes: int) -> None:
        super().__init__(chaos, f"pub-{number}", level)
        self.number, self.qos, self.window = number, qos, window
        self.sent: Sent = chaos.audit.publisher(number, self.client_id, qos, group)
        self._topic = text(f"chaos/{group}/{number}")
        self._state_topic = text(f"state/{number}")
        self._brief_topic = text(f"brief/{group}")
        self._filler = b"." * max(payload_bytes - HEAD.size, 0)
        self._under_way: dict[int, list[int]] = {}      # packet id: [sequence number (0 = state), state, 1 = PUBREC arrived]
        self._pid = 0
        self.unsent = 0                                   # messages to be sent
        self.idle = asyncio.Event()
        self.idle.set()
        self.state_sent = self.state_acked = 0

    def publish(self, n: int) -> None:
        self.unsent += n
        self.idle.clear()
        if self.up.is_set():
            self._pump()
            self.flush()

    def _pump(self) -> None:
        while self.unsent and len(self._under_way) < self.window:
            self.unsent -= 1
            seq = self.sent.last + 1
            self._send(self._new_pid(), [seq, 0, 0], dup=False)
            if seq % BRIEF_EVERY == 0 and self.level == 5 and len(self._under_way) < self.window:
                self._send(self._new_pid(), [0, 0, 0], dup=False)
            if seq % STATE_EVERY == 0 and len(self._under_way) < self.window:
                self.state_sent += 1
                self._send(self._new_pid(), [0, self.state_sent, 0], dup=False)
        if not self.unsent and not self._under_way:
            self.idle.set()

    def _new_pid(self) -> int:
        while True:
            self._pid = self._pid % 65535 + 1
            if self._pid not in self._under_way:
                return self._pid

    def _send(self, pid: int, what: list[int], dup: bool) -> None:
        self._under_way[pid] = what
        empty = b"\x00" if self.level == 5 else b""
        if what[0]:
            self.sent.sent(what[0])
            payload = HEAD.pack(self.number, what[0]) + self._filler
            self._out.append(frame(0x30 | dup << 3 | self.qos << 1, self._topic + struct.pack(">H", pid) + empty + payload))
        elif not what[1]:
            payload = HEAD.pack(BRIEF_PUBLISHER, 0) + BRIEF_STAMP.pack(time.monotonic())
            expiry = b"\x05\x02" + struct.pack(">I", BRIEF_S)
            self._out.append(frame(0x30 | dup << 3 | self.qos << 1, self._brief_topic + struct.pack(">H", pid) + expiry + payload))
        else:
            payload = HEAD.pack(STATE_PUBLISHER, what[1])
            self._out.append(frame(0x31 | dup << 3 | self.qos << 1, self._state_topic + struct.pack(">H", pid) + empty + payload))

    def on_up(self, fresh: bool) -> None:
        for pid, what in list(self._under_way.items()):
            if what[2] and not fresh:
                self._out.append(struct.pack(">BBH", 0x62, 2, pid))
            elif not what[2]:
                self._send(pid, what, dup=True)
            else:
                self._done(pid)         # the broker forgot the session, which the audit reports
        self._pump()
        self.flush()

    def _done(self, pid: int) -> None:
        self._under_way.pop(pid, None)

    def _acked(self, what: list[int]) -> None:
        if what[0]:
            self.sent.acked[what[0] - 1] = 1
        else:
            self.state_acked = max(self.state_acked, what[1])

    def on_packet(self, first: int, body: bytes) -> None:
        kind, pid = first >> 4, struct.unpack_from(">H", body)[0]
        what = self._under_way.get(pid)
        refused = len(body) > 2 and body[2] >= 0x80
        if what is None:
            if kind == 5:
                self._out.append(struct.pack(">BBH", 0x62, 2, pid))
            return
        if refused:
            if what[0]:
                self.sent.refused.add(what[0])
            self._done(pid)
        elif kind == 4:
            self._acked(what)
            self._done(pid)
        elif kind == 5:
            self._acked(what)           # from now on the broker is responsible for it
            what[2] = 1
            self._out.append(struct.pack(">BBH", 0x62, 2, pid))
        elif kind == 7:
            self._done(pid)
        self._pump()


class Subscriber(Session):
    """Receive messages, acknowledge them (`lag` of them later), and report them to the audit."""

    def __init__(self, chaos: Chaos, number: int, group: int, qos: int, level: int, lag: int = 0) -> None:
        super().__init__(chaos, f"sub-{number}", level)
        self.group, self.qos, self.lag = group, qos, lag
        self.audited = self.client_id   # the name of this client in the audit
        self.filters = [f"chaos/{group}/+", f"brief/{group}"]
        self.subscribed = asyncio.Event()
        self.late = False               # subscribes later, on request
        self.n = 0                      # received publications
        self._held: dict[int, tuple[int, int]] = {}         # at QoS 2: packet id: message
        self._unacked: deque[tuple[int, int, int]] = deque()        # at QoS 1: (packet id, publisher, sequence number)
        self._unreported: list[tuple[int, int]] = []           # acknowledged since the last PINGREQ
        self.arrived = asyncio.Event()  # set with every publication

    def on_up(self, fresh: bool) -> None:
        if fresh:
            self._held.clear()
        if not self.late and (fresh or not self.subscribed.is_set()):
            self.subscribe()
            self.flush()

    def subscribe(self) -> None:
        self.late = False
        if not self.up.is_set():
            return                      # on_up subscribes
        self.chaos.audit.asked(self.audited, self.group)
        empty = b"\x00" if self.level == 5 else b""
        self._out.append(frame(0x82, b"\x00\x01" + empty + b"".join(text(f) + bytes([self.qos]) for f in self.filters)))
        self.flush()

    def on_down(self) -> None:
        self._unacked.clear()
        self._unreported.clear()

    def take_acknowledged(self) -> list[tuple[int, int]]:
        reported, self._unreported = self._unreported, []
        return reported

    def on_pong(self, reported: list[tuple[int, int]], asked_at: float) -> None:
        """Note that the broker has read these acknowledgements."""
        now = time.monotonic()
        for number, seq in reported:
            self.chaos.audit.sessions[self.audited][number].told_at[seq] = (asked_at, now)

    def on_packet(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if kind == 3:
            self._publication(first, body)
        elif kind == 6:
            (pid,) = struct.unpack_from(">H", body)
            self._held.pop(pid, None)
            self._out.append(struct.pack(">BBH", 0x70, 2, pid))
        elif kind == 9:
            assert body[-1] <= 2, f"{self.client_id}: SUBACK {body[-1]:#x}"
            if not self.subscribed.is_set():
                if self.audited not in self.chaos.audit.qos:         # for a group only its first member
                    self.chaos.audit.subscribed(self.audited, self.qos, self.group)
                self.subscribed.set()

    def _publication(self, first: int, body: bytes) -> None:
        qos, dup = first >> 1 & 3, bool(first & 8)
        at = 2 + (body[0] << 8 | body[1])
        pid = 0
        if qos:
            pid = body[at] << 8 | body[at + 1]
            at += 2
        if self.level == 5:
            assert body[at] < 128
            at += 1 + body[at]
        message = HEAD.unpack_from(body, at)
        self.n += 1
        self.arrived.set()
        if message[0] >= GUESTS:
            self._guest(qos, pid, message, body, at, dup)
        elif qos == 2:
            self._qos_2(pid, message, dup)
        else:
            self._qos_1(qos, pid, message, dup)

    def _guest(self, qos: int, pid: int, message: tuple[int, int], body: bytes, at: int, dup: bool) -> None:
        """Handle messages that the audit does not know."""
        if qos != 2 or pid not in self._held:
            self.came(message, body[2:2 + (body[0] << 8 | body[1])], body[at:], dup)
        if qos == 2:
            self._held[pid] = message
        if qos:
            self._out.append(struct.pack(">BBH", 0x50 if qos == 2 else 0x40, 2, pid))

    def came(self, message: tuple[int, int], topic: bytes, payload: bytes, dup: bool) -> None:
        sent_at = BRIEF_STAMP.unpack_from(payload, HEAD.size)[0]
        late = time.monotonic() - sent_at - BRIEF_S
        self.chaos.brief += 1
        if any(jump.ended_at > sent_at for jump in self.chaos.jumps):
            return
        if late > self.chaos.brief_slack_s and not dup:         # a message that the broker may have sent before may arrive late
            self.chaos.audit.fault("stale", f"{self.client_id} got a message {late:.1f} s after it had expired")

    def _qos_2(self, pid: int, message: tuple[int, int], dup: bool) -> None:
        audit = self.chaos.audit
        if pid in self._held:
            if self._held[pid] != message:
                audit.fault("shared id", f"{self.client_id}: {pid} of {self._held[pid]} and of {message}")
            audit.held_again(self.audited, *message, dup)
        else:
            self._held[pid] = message
            audit.delivered(self.audited, *message, dup)
        self._out.append(struct.pack(">BBH", 0x50, 2, pid))

    def _qos_1(self, qos: int, pid: int, message: tuple[int, int], dup: bool) -> None:
        audit = self.chaos.audit
        got = audit.sessions.get(self.audited, {}).get(message[0])
        if dup and got is not None:
            handled = got.told_at.get(message[1])
            once = audit.publishers[message[0]].copies_allowed(message[1]) == 1
            if once and handled is not None and self.chaos.on_record(*handled):
                kills = ", ".join(f"{o.began_at - handled[1]:.2f}" for o in self.chaos.outages if o.began_at > handled[0])
                audit.fault("again", f"{self.client_id} got {message} again {time.monotonic() - handled[1]:.2f} s after the broker had read its "
                            f"acknowledgement; kills after that: {kills or 'none'} s")
        audit.delivered(self.audited, *message, dup)
        if qos:
            self._unacked.append((pid, *message))
            while len(self._unacked) > self.lag:
                self._acknowledge()

    def _acknowledge(self) -> None:
        pid, number, seq = self._unacked.popleft()
        self._out.append(struct.pack(">BBH", 0x40, 2, pid))
        self._unreported.append((number, seq))
        if len(self._unreported) >= PING_EVERY:
            self._ping()

    def catch_up(self) -> None:
        """Acknowledge the messages that were held back."""
        while self._unacked:
            self._acknowledge()
        self.lag = 0
        self.flush()
