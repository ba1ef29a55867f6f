"""Who is owed which messages: numbers are given out to streams and crossed off as they arrive. Knows neither locust nor
MQTT.

Each payload begins with the mark of the process, the number of its stream, its own number in it, and the time when it
was due. A stream has any number of inboxes, one for each receiver. A receiver whose connection breaks is not owed what
is sent until it is back. What was on its way then is stranded: its sender may send it again, and if it does not come it
is lost. Memory is that of the numbers that are missing; an arrival costs the same however many there are.
"""

from __future__ import annotations

import struct

HEADER = struct.Struct("!IIIQ")
WINDOW = 1000                   # flat out: so many deliveries may be on their way in a process


class Stream:
    """Messages of one sender to whoever has an inbox for them."""

    __slots__ = ("number", "sent", "inboxes")

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent = 0
        self.inboxes: set[Inbox] = set()


class Inbox:
    """What one receiver has of one stream; what was sent before it was opened is not owed, and may come."""

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
    def owed(self) -> int:
        return self.stream.sent - self.highest + len(self.missing) if self.listens else 0


class Ledger:
    """Of one process during one test."""

    def __init__(self, mark: int) -> None:
        self.mark = mark
        self.streams: dict[int, Stream] = {}
        self.owed = self.sent = self.delivered = self.lost = self.duplicates = self.disordered = self.foreign = 0
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
        """Its receiver has gone; what it did not get it is not owed any more."""
        self._settle(inbox)
        self._end_of_stranded(inbox)
        inbox.stream.inboxes.discard(inbox)

    def cut(self, inbox: Inbox) -> None:
        """Its receiver has lost its connection: what it was owed is stranded."""
        if inbox.listens:
            before = len(inbox.stranded)
            inbox.stranded |= inbox.missing
            inbox.stranded.update(range(inbox.highest + 1, inbox.stream.sent + 1))
            self.stranded += len(inbox.stranded) - before
            self._settle(inbox)
            inbox.stream.inboxes.remove(inbox)

    def reopen(self, inbox: Inbox) -> None:
        """Its receiver has subscribed again: what was sent in between is not owed."""
        self.cut(inbox)
        inbox.base = inbox.highest = inbox.stream.sent
        inbox.stream.inboxes.add(inbox)

    def _settle(self, inbox: Inbox) -> None:
        self.owed -= inbox.owed
        inbox.base = inbox.highest = inbox.stream.sent
        inbox.missing.clear()

    def _end_of_stranded(self, inbox: Inbox) -> int:
        count = len(inbox.stranded)
        self.stranded -= count
        inbox.stranded.clear()
        return count

    def write(self, stream: Stream, due_ns: int, size: int) -> bytes:
        """-> the next payload of a stream, from now on owed to its inboxes"""
        stream.sent += 1
        self.sent += 1
        self.owed += len(stream.inboxes)
        header = HEADER.pack(self.mark, stream.number, stream.sent, due_ns)
        return header + bytes(size - len(header))

    def take_back(self, stream: Stream) -> None:
        """The last one was not sent."""
        stream.sent -= 1
        self.sent -= 1
        self.owed -= len(stream.inboxes)

    def read(self, payload: bytes) -> tuple[int, int, int] | None:
        """-> stream, number and due time; None for what is not of this process and test"""
        if len(payload) < HEADER.size:
            return None
        mark, stream, number, due_ns = HEADER.unpack_from(payload)
        return (stream, number, due_ns) if mark == self.mark else None

    def arrived(self, inbox: Inbox | None, number: int) -> str:
        """Crosses it off -> "", or what is wrong with it."""
        if inbox is None or not 0 < number <= inbox.stream.sent:
            self.foreign += 1
            return "a message that was not meant for this client"
        if number in inbox.stranded:    # a sender that lost its connection, too, sends again, in any order
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
            self.owed -= 1
            self.delivered += 1
            self.disordered += 1
            return "out of order"
        elif number > inbox.base:
            self.duplicates += 1
            return "duplicate"
        else:
            return ""                   # between SUBSCRIBE and SUBACK: allowed, not owed
        self.owed -= 1
        self.delivered += 1
        return ""

    def write_off(self, inbox: Inbox) -> int:
        """-> how many of what is owed have not come; they are lost and will not be waited for"""
        lost = inbox.owed
        self.lost += lost
        self._settle(inbox)
        return lost

    def write_off_stranded(self, inbox: Inbox) -> int:
        lost = self._end_of_stranded(inbox)
        self.lost += lost
        return lost
