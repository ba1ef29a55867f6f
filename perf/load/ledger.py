"""Count pending messages: each message gets a number in its stream, and arrivals remove it.

This module uses neither locust nor MQTT.

Each payload begins with the mark of the process, the number of its stream, its own number in the stream, and the time
when it was due. A stream has any number of inboxes, one for each receiver. A message that is sent while a receiver's
connection is down is not pending for that receiver. A message that was on its way at that moment is stranded: its
sender may send it again; if it does not arrive, it is lost. Memory grows with the missing numbers; the cost of an
arrival is constant.
"""

from __future__ import annotations

import struct

HEADER = struct.Struct("!IIIQ")
WINDOW = 1000                   # without a rate limit: most pending deliveries in a process


class Stream:
    """Number the messages of one sender to all inboxes of the stream."""

    __slots__ = ("number", "sent", "inboxes")

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent = 0
        self.inboxes: set[Inbox] = set()


class Inbox:
    """Count one receiver's messages of one stream. Earlier messages are not pending, but may arrive."""

    __slots__ = ("stream", "base", "highest", "missing", "stranded", "__weakref__")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.base = self.highest = stream.sent
        self.missing: set[int] = set()
        self.stranded: set[int] = set()

    @property
    def listens(self) -> bool:
        return self in self.stream.inboxes

    @property
    def pending(self) -> int:
        return self.stream.sent - self.highest + len(self.missing) if self.listens else 0


class Ledger:
    """Count the messages of one process during one test."""

    def __init__(self, mark: int) -> None:
        self.mark = mark
        self.streams: dict[int, Stream] = {}
        self.pending = self.sent = self.delivered = self.lost = self.duplicates = self.disordered = self.foreign = 0
        self.stranded = 0
        self._last = 0

    def stream(self) -> Stream:
        self._last += 1
        stream = self.streams[self._last] = Stream(self._last)
        return stream

    def forget(self, stream: Stream) -> None:
        for inbox in list(stream.inboxes):
            self.close(inbox)
        self.streams.pop(stream.number, None)

    def open(self, stream: Stream) -> Inbox:
        inbox = Inbox(stream)
        stream.inboxes.add(inbox)
        return inbox

    def close(self, inbox: Inbox) -> None:
        """Close an inbox whose receiver has gone; its pending messages no longer count."""
        self._settle(inbox)
        self._end_of_stranded(inbox)
        inbox.stream.inboxes.discard(inbox)

    def cut(self, inbox: Inbox) -> None:
        """Note that the receiver has lost its connection: its pending messages are stranded."""
        if inbox.listens:
            before = len(inbox.stranded)
            inbox.stranded |= inbox.missing
            inbox.stranded.update(range(inbox.highest + 1, inbox.stream.sent + 1))
            self.stranded += len(inbox.stranded) - before
            self._settle(inbox)
            inbox.stream.inboxes.remove(inbox)

    def reopen(self, inbox: Inbox) -> None:
        """Note that the receiver has subscribed again: messages that were sent in between are not pending."""
        self.cut(inbox)
        inbox.base = inbox.highest = inbox.stream.sent
        inbox.stream.inboxes.add(inbox)

    def _settle(self, inbox: Inbox) -> None:
        self.pending -= inbox.pending
        inbox.base = inbox.highest = inbox.stream.sent
        inbox.missing.clear()

    def _end_of_stranded(self, inbox: Inbox) -> int:
        count = len(inbox.stranded)
        self.stranded -= count
        inbox.stranded.clear()
        return count

    def write(self, stream: Stream, due_ns: int, size: int) -> bytes:
        """Return the next payload of a stream; from now on it is pending for the stream's inboxes."""
        stream.sent += 1
        self.sent += 1
        self.pending += len(stream.inboxes)
        header = HEADER.pack(self.mark, stream.number, stream.sent, due_ns)
        return header + bytes(size - len(header))

    def take_back(self, stream: Stream) -> None:
        """Undo the last `write`: the message was not sent."""
        stream.sent -= 1
        self.sent -= 1
        self.pending -= len(stream.inboxes)

    def read(self, payload: bytes) -> tuple[int, int, int] | None:
        """Return stream, number and due time, or None for a payload of another process or test."""
        if len(payload) < HEADER.size:
            return None
        mark, stream, number, due_ns = HEADER.unpack_from(payload)
        return (stream, number, due_ns) if mark == self.mark else None

    def arrived(self, inbox: Inbox | None, number: int) -> str:
        """Count an arrival; return "", or the fault."""
        if inbox is None or not 0 < number <= inbox.stream.sent:
            self.foreign += 1
            return "a message for another client"
        if number in inbox.stranded:    # a sender that lost its connection as well sends again, in any order
            inbox.stranded.remove(number)
            self.stranded -= 1
            self.delivered += 1
            return ""
        if not inbox.listens:
            return ""
        if number == inbox.highest + 1:
            inbox.highest = number
        elif number > inbox.highest:
            inbox.missing.update(range(inbox.highest + 1, number))
            inbox.highest = number
        elif number in inbox.missing:
            inbox.missing.remove(number)
            self.pending -= 1
            self.delivered += 1
            self.disordered += 1
            return "out of order"
        elif number > inbox.base:
            self.duplicates += 1
            return "duplicate"
        else:
            return ""                   # arrived between SUBSCRIBE and SUBACK: allowed, not pending
        self.pending -= 1
        self.delivered += 1
        return ""

    def write_off(self, inbox: Inbox) -> int:
        """Give up the pending messages of an inbox; return how many were lost."""
        lost = inbox.pending
        self.lost += lost
        self._settle(inbox)
        return lost

    def write_off_stranded(self, inbox: Inbox) -> int:
        lost = self._end_of_stranded(inbox)
        self.lost += lost
        return lost
