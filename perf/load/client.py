"""Hold a connection, its subscriptions and its pending messages.

The client connects again after a loss. It knows which messages were lost with the connection, and which the broker must
have stored.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import gevent
from gevent.lock import BoundedSemaphore

from perf.load.link import Link

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perf.load.ledger import Inbox, Stream
    from perf.load.run import Run

RETRY_S = 1.0                   # pause after a failed connection


class Client:
    """Represent a client of one user or of several.

    A user has one or two clients. The first user connects a shared client, and any user that finds it lost connects it
    again.
    """

    def __init__(self, run: Run, name: str, topics: Sequence[str] = (), *, qos: int | None = None,
                 clean: bool = True) -> None:
        self.run, self.name, self.topics = run, name, topics
        self.qos = run.settings.qos if qos is None else qos
        self.link = Link(run, name, clean=clean, on_message=self._arrived, on_lost=self._lost)
        self.inboxes: dict[int, Inbox] = {}     # by stream
        self._streams: dict[int, Stream] = {}   # streams that count from the next SUBACK on
        self._former: set[int] = set()          # streams of which a late message may still arrive
        self.since_ns = 0                       # least start time of deliveries
        self._subscribed = False
        self._stranded_until = float("inf")
        self._lock, self._not_before = BoundedSemaphore(), 0.0
        run.clients.add(self)

    @property
    def listens(self) -> bool:
        return self.link.up and self._subscribed

    def up(self) -> bool:
        """Connect and subscribe if necessary. Return False after a pause if it fails."""
        if self.listens:
            return True
        with self._lock:
            if self.listens:
                return True
            if time.monotonic() >= self._not_before:
                if (self.link.up or self.link.connect()) and self._subscribe():
                    return True
                self._not_before = time.monotonic() + RETRY_S
        gevent.sleep(RETRY_S)
        return False

    def _subscribe(self) -> bool:
        if self.link.clean:
            self._subscribed = False
        elif self._subscribed:
            if self.link.resumed:
                return True
            self.run.record("connect", self.name, error="the broker has not kept the session")
            self.write_off()
        self._subscribed = not self.topics or self.link.subscribe(self.topics, self.qos, self._begin)
        return self._subscribed

    def _begin(self) -> None:
        """Start to count; SUBACK has arrived, and nothing after it."""
        for inbox in self.inboxes.values():
            self.run.ledger.reopen(inbox)
        for number, stream in self._streams.items():
            self.inboxes[number] = self.run.ledger.open(stream)
        self._streams.clear()
        self._stranded_until = time.monotonic() + self.run.settings.timeout_s

    def _lost(self) -> None:
        """Handle a lost connection. A broker that keeps the session must deliver all pending messages."""
        if self.link.clean:
            for inbox in self.inboxes.values():
                self.run.ledger.cut(inbox)
            self._stranded_until = float("inf")

    def tick(self) -> None:
        """Give up stranded messages after the timeout; called at intervals."""
        if time.monotonic() > self._stranded_until:
            self._stranded_until = float("inf")
            for inbox in self.inboxes.values():
                self._write_off_stranded(inbox)

    def expect(self, stream: Stream) -> None:
        if self.listens or (self._subscribed and not self.link.clean):
            self.inboxes[stream.number] = self.run.ledger.open(stream)
        else:
            self._streams[stream.number] = stream

    def forget(self, stream: Stream) -> None:
        self._streams.pop(stream.number, None)
        if (inbox := self.inboxes.pop(stream.number, None)) is not None:
            self._write_off_stranded(inbox)
            self.run.ledger.close(inbox)
            self._former.add(stream.number)

    @property
    def pending(self) -> int:
        return sum(inbox.pending for inbox in self.inboxes.values())

    def send(self, topic: str, stream: Stream, due_ns: int) -> None:
        ledger = self.run.ledger
        if not self.link.publish(topic, ledger.write(stream, due_ns, self.run.settings.size), self.qos, due_ns):
            ledger.take_back(stream)

    def write_off(self) -> None:
        for inbox in self.inboxes.values():
            for _ in range(self.run.ledger.write_off(inbox)):
                self.run.record(f"deliver QoS {self.qos}", self.name, error="lost")
            self._write_off_stranded(inbox)

    def _write_off_stranded(self, inbox: Inbox) -> None:
        for _ in range(self.run.ledger.write_off_stranded(inbox)):
            self.run.record(f"deliver QoS {self.qos}", self.name, error="lost with the connection")

    def leave(self) -> None:
        self.link.leave()

    def end(self) -> None:
        self.run.clients.discard(self)
        self.link.end()
        for inbox in self.inboxes.values():
            self._write_off_stranded(inbox)
            self.run.ledger.close(inbox)

    def _arrived(self, payload: bytes, qos: int) -> None:
        ledger = self.run.ledger
        number, due_ns, inbox = 0, 0, None
        if (found := ledger.read(payload)) is not None:
            stream, number, due_ns = found
            inbox = self.inboxes.get(stream)
            if stream in self._former:
                return
        error = ledger.arrived(inbox, number)
        since_ns = None if error else max(due_ns, self.since_ns)
        self.run.record(f"deliver QoS {qos}", self.name, since_ns, len(payload), error)
