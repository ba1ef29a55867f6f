"""Compute the state of a store from its records: sessions with their subscriptions and queues, retained messages,
wills.

Only the places (lsn) of bodies are kept, so that memory does not grow with payloads: 8 bytes per queued delivery, about
100 per message that is still needed, some hundred per session, subscription and retained message. A caller that needs
bodies scans a second time and calls `delivers` and `is_retained`.

A record may occur twice: cleaning writes records that are still needed again, and the older copy may still exist. The
later one counts. For the same reason a subscription or a message may come before the record of its session.
"""

from array import array
from typing import TYPE_CHECKING, Any

from mosq.tools.db import kinds

if TYPE_CHECKING:
    from collections.abc import Iterator

HALF = 1 << 31
WRAP = 1 << 32
GAP_MAX = 1 << 16  # most positions between two deliveries that are stored as a run of zeros
TRIM_MIN = 1024  # zeros at the front of a queue that are kept


def record_size(body_bytes: int) -> int:
    """Return the size of a record in the log: cext/store/format.pxd."""
    return 12 + (body_bytes + 3) // 4 * 4


class Places:
    """Map positions of a queue (32 bits, which wrap) to lsn plus one; 0: no delivery there."""

    __slots__ = ("_base", "_far", "_first", "_lsns", "count")

    def __init__(self) -> None:
        self._base = 0
        self._lsns = array("Q")
        self._first = 0  # index in `_lsns`: only zeros are before it
        self._far: dict[int, int] = {}  # entries far from the others, which no broker writes
        self.count = 0

    def _offset(self, position: int) -> int | None:
        """Return the index in `_lsns`, or None for an entry of `_far`."""
        if not self._lsns:
            self._base = position
            return 0
        offset = (position - self._base + HALF) % WRAP - HALF
        if offset < 0 and -offset <= GAP_MAX:
            more = max(-offset, len(self._lsns) // 2)  # so that falling positions cost no more than rising ones
            self._lsns = array("Q", bytes(8 * more)) + self._lsns
            self._base = (self._base - more) % WRAP
            self._first += more
            return offset + more
        return offset if 0 <= offset <= len(self._lsns) + GAP_MAX else None

    def put(self, position: int, lsn: int) -> int:
        """Set a place; return the previous one plus one, or 0."""
        offset = None if position in self._far else self._offset(position)
        if offset is None:
            old = self._far.get(position, 0)
            self._far[position] = lsn + 1
        else:
            if offset >= len(self._lsns):
                self._lsns.frombytes(bytes(8 * (offset + 1 - len(self._lsns))))
            old = self._lsns[offset]
            self._lsns[offset] = lsn + 1
            self._first = min(self._first, offset)
        self.count += not old
        return old

    def get(self, position: int) -> int:
        offset = (position - self._base + HALF) % WRAP - HALF
        near = self._lsns[offset] if 0 <= offset < len(self._lsns) else 0
        return near or self._far.get(position, 0)

    def take(self, position: int) -> int:
        """Remove a delivery; return its lsn plus one, or 0."""
        old = self.get(position)
        if old:
            self.count -= 1
            if not self._far.pop(position, 0):
                offset = (position - self._base + HALF) % WRAP - HALF
                self._lsns[offset] = 0
                if offset == self._first:
                    self._trim()
        return old

    def _trim(self) -> None:
        """Forget the deliveries that are gone at the front, so that a session that lives long takes no more and more
        memory."""
        first, n = self._first, len(self._lsns)
        while first < n and not self._lsns[first]:
            first += 1
        if first == n or first >= max(TRIM_MIN, n // 2):
            del self._lsns[:first]
            self._base = (self._base + first) % WRAP
            first = 0
        self._first = first

    def places(self) -> "Iterator[tuple[int, int]]":
        """Yield (position, lsn plus one) in the order of the queue."""
        for offset in range(self._first, len(self._lsns)):
            lsn = self._lsns[offset]
            if lsn:
                yield (self._base + offset) % WRAP, lsn
        yield from self._far.items()


class Session:
    __slots__ = (
        "connected",
        "ends_wall_ms",
        "expiry_s",
        "gate",
        "inbox",
        "id",
        "lsn",
        "next",
        "queue",
        "released",
        "sno",
        "subscriptions",
        "user",
        "will",
    )

    def __init__(self, sno: int) -> None:
        self.sno = sno
        self.id = b""
        self.user: bytes | None = None
        self.connected, self.expiry_s, self.ends_wall_ms, self.next = False, 0, 0, 0
        self.lsn = -1  # lsn of its own record; -1: none so far
        self.subscriptions: dict[bytes, tuple[int, int, int]] = {}  # options, identifier, lsn
        self.queue = Places()
        self.released: dict[int, tuple[int, int]] = {}  # position: packet id, lsn
        self.inbox: dict[int, tuple[int, bool]] = {}  # inbound QoS 2: packet id: lsn, refused
        self.gate: dict[int, int] = {}  # deliveries that wait for a plugin: position in the gate: lsn
        self.will: tuple[int, int, int] | None = None  # lsn, due_wall_ms, delay_s

    def offset(self, position: int) -> int:
        """Return the place of a delivery in the order of the queue; those below HALF were sent before."""
        return (position - self.next + HALF) % WRAP


class State:
    """Hold the state; it gets every record in log order."""

    def __init__(self) -> None:
        self.meta: dict[bytes, bytes] = {}
        self.sessions: dict[int, Session] = {}
        self.retained: dict[bytes, tuple[int, int, int]] = {}  # topic: lsn, expires_wall_ms, payload bytes
        self.by_kind: dict[int, int] = {}
        self.bytes_by_kind: dict[int, int] = {}
        self.problems: list[tuple[int, str]] = []  # the first problems as (lsn or -1, text)
        self.n_problems = 0
        self.client_wills: dict[bytes, int] = {}  # of connected clients without a stored session: client id: lsn
        self.waiting_wills: dict[int, int] = {}  # until a plugin has decided, or all workers have it: number: lsn
        self.undelivered: dict[int, int] = {}  # messages that some sessions lack since a division: number: lsn
        # of each MSG, GATED, INBOX, UNDELIVERED and each kind of will: lsn: number of uses times 2 ** 32, plus the
        # record's size
        self.live: dict[int, int] = {}
        self._size = 0  # size of the current record

    PROBLEMS_LISTED = 100

    def problem(self, lsn: int, text: str) -> None:
        self.n_problems += 1
        if len(self.problems) < self.PROBLEMS_LISTED:
            self.problems.append((lsn, text))

    def apply(self, lsn: int, kind: int, fields: dict[Any, Any], size: int) -> None:
        self.by_kind[kind] = self.by_kind.get(kind, 0) + 1
        self.bytes_by_kind[kind] = self.bytes_by_kind.get(kind, 0) + size
        self._size = size
        getattr(self, f"_{kinds.NAMES[kind]}")(lsn, fields)

    def delivers(self, lsn: int, entry: tuple[int, int, int, int, int]) -> bool:
        """Return whether this entry of the MSG at lsn is still pending."""
        session = self.sessions.get(entry[0])
        return session is not None and session.queue.get(entry[1]) == lsn + 1

    def is_retained(self, lsn: int, topic: bytes) -> bool:
        return topic in self.retained and self.retained[topic][0] == lsn

    def _session_of(self, sno: int) -> Session:
        session = self.sessions.get(sno)
        if session is None:
            session = self.sessions[sno] = Session(sno)
        return session

    def end(self) -> None:
        """Check, after the last record, that each session has a record and a client id of its own."""
        for session in self.sessions.values():
            if session.lsn < 0:
                self.problem(-1, f"records belong to session {session.sno}, which has no record")
        names: dict[bytes, int] = {}
        for session in self.sessions.values():
            other = names.setdefault(session.id, session.sno)
            if session.lsn >= 0 and other != session.sno and self.sessions[other].lsn >= 0:
                self.problem(session.lsn, f"sessions {other} and {session.sno} both have the client id {session.id!r}")

    def live_bytes(self) -> int:
        """Return the bytes of the records that are still needed."""
        total = sum(value % WRAP for value in self.live.values())
        if self.meta:
            total += record_size(sum(len(key) + len(value) + 2 for key, value in self.meta.items()))
        for s in self.sessions.values():
            total += record_size(25 + len(s.id) + len(s.user or b"")) + len(s.released) * 10
            total += sum(record_size(9 + len(filter)) for filter in s.subscriptions)
        return total

    # -- one method for each kind

    def _meta(self, _lsn: int, f: dict[Any, Any]) -> None:
        self.meta.update(f)

    def _session(self, lsn: int, f: dict[Any, Any]) -> None:
        s = self._session_of(f["sno"])
        if s.lsn >= 0 and s.id != f["id"]:
            self.problem(lsn, f"session {s.sno} has the client id {f['id']!r}, and had {s.id!r} before")
        s.id, s.user, s.connected, s.next, s.lsn = f["id"], f["user"], f["connected"], f["next"], lsn
        s.expiry_s, s.ends_wall_ms = f["expiry_s"], f["ends_wall_ms"]
        self._client_will_gone(lsn, f)  # a broker ignores it, too: the client has a stored session since then

    def _sub(self, lsn: int, f: dict[Any, Any]) -> None:
        self._session_of(f["sno"]).subscriptions[f["filter"]] = (f["options"], f["sub_id"], lsn)

    def _unsub(self, _lsn: int, f: dict[Any, Any]) -> None:
        s = self.sessions.get(f["sno"])
        if s is not None:
            s.subscriptions.pop(f["filter"], None)

    def _end(self, _lsn: int, f: dict[Any, Any]) -> None:
        s = self.sessions.pop(f["sno"], None)
        if s is not None:
            for _, place in s.queue.places():
                self._unref(place - 1)
            for lsn, _refused in s.inbox.values():
                self._unref(lsn)
            for lsn in s.gate.values():
                self._unref(lsn)
            if s.will is not None:
                self._unref(s.will[0])

    def _ref(self, lsn: int) -> None:
        self.live[lsn] = self.live.get(lsn, self._size) + WRAP

    def _unref(self, lsn: int) -> None:
        left = self.live.get(lsn, 0) - WRAP
        if left < WRAP:
            self.live.pop(lsn, None)
        else:
            self.live[lsn] = left

    def _msg(self, lsn: int, f: dict[Any, Any]) -> None:
        for sno, position, *_ in f["entries"]:
            old = self._session_of(sno).queue.put(position, lsn)
            if old:
                self._unref(old - 1)
            self._ref(lsn)
        if f["retained_set"]:
            self._drop_retained(f["topic"])
            if f["payload"]:
                self.retained[f["topic"]] = (lsn, f["expires_wall_ms"], len(f["payload"]))
                self._ref(lsn)

    def _drop_retained(self, topic: bytes) -> None:
        old = self.retained.pop(topic, None)
        if old is not None:
            self._unref(old[0])

    def _retained_gone(self, _lsn: int, f: dict[Any, Any]) -> None:
        self._drop_retained(f["topic"])

    def _retained_from(self, _lsn: int, _f: dict[Any, Any]) -> None:
        """Ignore the record: it belongs to the message before it."""

    def _publisher(self, _lsn: int, _f: dict[Any, Any]) -> None:
        """Ignore the record: it belongs to the message before it."""

    def _streams(self, _lsn: int, _f: dict[Any, Any]) -> None:
        """Ignore the record: it belongs to journals, which have their own files."""

    def _link(self, _lsn: int, _f: dict[Any, Any]) -> None:
        """Ignore the record: it belongs to the links between workers, not to a session."""

    _link_run = _link_mark = _link_identity = _link_identity_gone = _link_choice = _link

    def _acks(self, _lsn: int, f: dict[Any, Any]) -> None:
        for sno, position in f["acks"]:
            s = self.sessions.get(sno)
            if s is not None:
                s.released.pop(position, None)
                old = s.queue.take(position)
                if old:
                    self._unref(old - 1)

    def _released(self, lsn: int, f: dict[Any, Any]) -> None:
        for sno, position, pid in f["acks"]:
            s = self._session_of(sno)
            old = s.queue.take(position)
            if old:
                self._unref(old - 1)
            s.released[position] = (pid, lsn)

    def _gated(self, lsn: int, f: dict[Any, Any]) -> None:
        for sno, position, *_ in f["entries"]:
            gate = self._session_of(sno).gate
            if position in gate:
                self._unref(gate[position])
            gate[position] = lsn
            self._ref(lsn)

    def _gated_done(self, _lsn: int, f: dict[Any, Any]) -> None:
        for sno, end in f["acks"]:
            s = self.sessions.get(sno)
            gate = s.gate if s is not None else {}
            for position in [one for one in gate if 0 < (end - one) % WRAP < HALF]:
                self._unref(gate.pop(position))

    def _inbox(self, lsn: int, f: dict[Any, Any]) -> None:
        self._inbox_done(lsn, f)
        self._session_of(f["sno"]).inbox[f["pid"]] = (lsn, f["refused"])
        self._ref(lsn)

    def _inbox_done(self, _lsn: int, f: dict[Any, Any]) -> None:
        s = self.sessions.get(f["sno"])
        inbox = s.inbox.pop(f["pid"], None) if s is not None else None
        if inbox is not None:
            self._unref(inbox[0])

    def _will(self, lsn: int, f: dict[Any, Any]) -> None:
        self._will_gone(lsn, f)
        self._session_of(f["sno"]).will = (lsn, f["due_wall_ms"], f["delay_s"])
        self._ref(lsn)

    def _will_gone(self, _lsn: int, f: dict[Any, Any]) -> None:
        s = self.sessions.get(f["sno"])
        if s is not None and s.will is not None:
            self._unref(s.will[0])
            s.will = None

    def _client_will(self, lsn: int, f: dict[Any, Any]) -> None:
        self._client_will_gone(lsn, f)
        self.client_wills[f["id"]] = lsn
        self._ref(lsn)

    def _client_will_gone(self, _lsn: int, f: dict[Any, Any]) -> None:
        lsn = self.client_wills.pop(f["id"], None)
        if lsn is not None:
            self._unref(lsn)

    def _waiting_will(self, lsn: int, f: dict[Any, Any]) -> None:
        self._waiting_will_gone(lsn, f)
        self.waiting_wills[f["number"]] = lsn
        self._ref(lsn)

    def _link_will(self, lsn: int, f: dict[Any, Any]) -> None:
        self._waiting_will(lsn, f)

    def _waiting_will_gone(self, _lsn: int, f: dict[Any, Any]) -> None:
        for known in (self.waiting_wills, self.undelivered):
            lsn = known.pop(f["number"], None)
            if lsn is not None:
                self._unref(lsn)

    def _undelivered(self, lsn: int, f: dict[Any, Any]) -> None:
        self._waiting_will_gone(lsn, f)
        self.undelivered[f["number"]] = lsn
        self._ref(lsn)
