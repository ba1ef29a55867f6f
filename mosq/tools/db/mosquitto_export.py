"""Write the content of a store, or of the stores of workers, as a persistence file of Mosquitto: what Mosquitto itself
would have in its file.

A store is read twice, and may be that of a running broker. The first walk learns which records are needed; the second
one writes the messages. Cleaning may move a record between the walks: a copy behind the end of the first walk
then counts for it. Memory: that of `State`, and 19 bytes per delivery.

The content of one worker's store follows that of another. A message with subscribers at several workers is in each of
their stores, and so several times in the file. While the broker runs, each store is read at a moment of its own; one
QoS 2 message that is on its way between workers may then be in the file for some subscribers, and again with its
publisher (partly.py).

Not in the file, because its format has no place for them: wills, refused messages of inbound QoS 2, and the contents of
messages whose PUBREC has arrived (one empty message stands for them; only their PUBREL is sent).
"""

import struct
import time
from array import array
from typing import IO, TYPE_CHECKING, Any

from mosq._core import filter_fits
from mosq.tools.db import kinds
from mosq.tools.db import mosquitto_write as chunks
from mosq.tools.db.mosquitto_format import (
    EXPIRY_NEVER,
    HEADER,
    IN,
    OUT,
    QUEUED,
    WAIT_PUBACK,
    WAIT_PUBCOMP,
    WAIT_PUBREC,
    WAIT_PUBREL,
)
from mosq.tools.db.partly import LinkedState, Spread, decide
from mosq.tools.db.read import walk, walk_whole
from mosq.tools.db.state import HALF, WRAP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mosq.tools.db.read import Each, Progress
    from mosq.tools.db.state import Session
    from mosq.tools.db.store import Source

    Entry = tuple[int, int, int, int, int]  # session, position, packet id, qos with flags, subscription identifier

ENTRY_RETAIN = 0x80
NO_LOCAL, RETAIN_AS_PUBLISHED = 4, 8  # bits of a subscription's options
DELIVERY = struct.Struct("<IHBIQ")  # position, packet id, qos with flags, subscription identifier, id of the message
ALONE = Spread(1, b"")
RELEASED_TOPIC = b"mosq/released"  # of the empty message that stands for one whose PUBREC has arrived


class Publisher:
    """The publisher of a message: client id, user name, origin (kinds.port_of). `pid`: the packet id of an inbound
    QoS 2 message. Mosquitto finds a repeated PUBLISH by the packet id of the stored message, and No Local by the id."""

    __slots__ = ("id", "pid", "security", "user")

    def __init__(self, id: bytes, user: bytes, security: int, pid: int = 0) -> None:
        self.id, self.user, self.security, self.pid = id, user, security, pid


class FileState(LinkedState):
    """A State that also remembers last packet ids, securities, and the publishers of retained messages."""

    def __init__(self) -> None:
        super().__init__(apart=True)
        self.last_pids: dict[int, int] = {}
        self.securities: dict[int, int] = {}
        self.publishers: dict[bytes, Publisher] = {}

    def _session(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._session(lsn, f)
        self.last_pids[f["sno"]] = f.get("last_pid", 0)
        self.securities[f["sno"]] = f.get("security", -1)

    def _end(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._end(lsn, f)
        self.last_pids.pop(f["sno"], None)
        self.securities.pop(f["sno"], None)

    def _drop_retained(self, topic: bytes) -> None:
        super()._drop_retained(topic)
        self.publishers.pop(topic, None)

    def _retained_from(self, _lsn: int, f: dict[Any, Any]) -> None:
        if f["topic"] in self.retained:
            self.publishers[f["topic"]] = Publisher(f["id"], f["user"] or b"", f["security"])


class Written:
    """Count what a file contains."""

    def __init__(self) -> None:
        self.messages = self.sessions = self.subscriptions = self.deliveries = self.retained = 0
        self.missing = 0  # messages that were acknowledged during the export
        self.end_lsn = 0

    def text(self) -> str:
        return (
            f"{self.sessions:,} sessions, {self.subscriptions:,} subscriptions, {self.deliveries:,} deliveries and "
            f"{self.retained:,} retained messages"
        )


class MosquittoExport:
    """Export a store once, or the stores of workers: `sources` has the store of each worker by its place. `ports`:
    the port of the listener for each number of a security, if it is known. `spread`: of the topics."""

    def __init__(                       # parameters: a description of stores, and the moment
            self, sources: "Mapping[int, Source]", out: IO[bytes], progress: "Progress | None" = None,
            ports: "Mapping[int, int] | None" = None, now_s: float | None = None, spread: Spread = ALONE) -> None:
        now_s = time.time() if now_s is None else now_s
        self._out, self._spread = out, spread
        self._parts = {place: Part(source, out, progress, ports or {}, now_s) for place, source in sources.items()}

    def run(self) -> Written:
        """Write the file. Raises StoreError and OSError."""
        written = Written()
        for part in self._parts.values():
            part.read()
        links = {place: part.state.links for place, part in self._parts.items()}
        if any(one.open or one.wills for one in links.values()):
            for part in self._parts.values():
                part.state.links.learn(part.state.sessions.values())
            decide(links, self._spread)
        self._out.write(chunks.header() + chunks.config(0))
        last_id = 0
        for part in self._parts.values():
            last_id = part.write(written, last_id)
        self._out.seek(HEADER.size)
        self._out.write(chunks.config(last_id))
        return written


class Part:
    """The content of one store."""

    def __init__(self, source: "Source", out: IO[bytes], progress: "Progress | None", ports: "Mapping[int, int]",
                 now_s: float) -> None:
        self._source, self._out, self._progress, self._ports, self._now_s = source, out, progress, ports, now_s
        self.state = FileState()
        self._todo: set[int] = set()  # needed records that the second walk has not found yet
        self._end = 0
        self._deliveries: dict[int, bytearray] = {}  # by session
        self._inbox: dict[int, list[tuple[int, int]]] = {}  # by session: packet id, id of the message
        self._retained = array("Q")
        self._first_id = self._last_id = 0

    def _begin(self) -> "Each":
        self.state = FileState()
        return self.state.apply

    def read(self) -> None:
        """Learn what is needed. Raises StoreError."""
        loss, _ = walk_whole(self._source, self._begin, self._progress)
        self.state.end()
        self._end = loss["end_lsn"]

    def write(self, written: Written, last_id: int) -> int:
        """Write the content, and count it; the ids of its messages follow `last_id`. Return the last one. Raises
        StoreError and OSError."""
        state = self.state
        self.written, self._first_id, self._last_id = written, last_id + 1, last_id
        self._todo = set(state.live)
        walk(self._source, self._record, self._progress)
        written.missing += len(self._todo)
        written.end_lsn = self._end
        released_id = self._released()
        sessions = [session for session in state.sessions.values() if session.lsn >= 0 and session.id]
        for session in sessions:
            self._session(session, released_id)
        for session in sessions:
            for filter, (options, sub_id, _) in session.subscriptions.items():
                self._out.write(chunks.subscription(session.id, filter, options, sub_id))
                written.subscriptions += 1
        for id in self._retained:
            self._out.write(chunks.retain(id))
        written.retained += len(self._retained)
        return self._last_id

    # -- messages

    def _record(self, lsn: int, kind: int, f: dict[Any, Any], _bytes: int) -> None:
        if kind == kinds.MSG:
            self._message(lsn, f)
        elif kind == kinds.INBOX:
            self._inbound(lsn, f)
        elif kind == kinds.UNDELIVERED:
            self._undelivered(lsn, f)
        elif kind == kinds.END and lsn >= self._end:
            self.state.sessions.pop(f["sno"], None)  # its number may belong to another client from here on
        elif kind == kinds.WILL:
            self._todo.discard(lsn)

    def _stands_for(self, place: int, lsn: int) -> bool:
        """Return whether the record at `lsn` is the one at `place`, or the copy of it that cleaning made."""
        return place == lsn or (lsn >= self._end and place in self._todo)

    def _message(self, lsn: int, f: dict[Any, Any]) -> None:
        state, topic, found = self.state, f["topic"], {lsn}
        entries: list[Entry] = []
        if lsn in self._todo or lsn >= self._end:
            for entry in f["entries"]:
                session = state.sessions.get(entry[0])
                place = session.queue.get(entry[1]) - 1 if session is not None else -1
                if place >= 0 and self._stands_for(place, lsn):
                    entries.append(entry)
                    found.add(place)
        is_retained = False
        if f["retained_set"] and f["payload"] and topic in state.retained:
            place = state.retained[topic][0]
            is_retained = self._stands_for(place, lsn)
            if is_retained:
                found.add(place)
        if not entries and not is_retained:
            return
        self._todo -= found
        id = self._body(lsn, f, is_retained, state.publishers.get(topic) if is_retained else None)
        for sno, position, pid, qos, sub_id in entries:
            self._deliveries.setdefault(sno, bytearray()).extend(DELIVERY.pack(position, pid, qos, sub_id, id))
        if is_retained:
            self._retained.append(id)

    def _inbound(self, lsn: int, f: dict[Any, Any]) -> None:
        session = self.state.sessions.get(f["sno"])
        place, _ = session.inbox.get(f["pid"], (-1, False)) if session is not None else (-1, False)
        if session is None or place < 0 or not self._stands_for(place, lsn):
            return
        self._todo -= {place, lsn}
        partly = self.state.links.open.get((f["sno"], f["pid"]))
        if not f["refused"] and (partly is None or partly.is_due()):
            security = self.state.securities.get(f["sno"], -1)
            publisher = Publisher(session.id, session.user or b"", security, f["pid"])
            self._inbox.setdefault(f["sno"], []).append((f["pid"], self._body(lsn, f, False, publisher)))

    def _undelivered(self, lsn: int, f: dict[Any, Any]) -> None:
        """Queue a message behind all others, for those that the next start would deliver it to."""
        state, place = self.state, self.state.undelivered.get(f["number"], -1)
        if place < 0 or not self._stands_for(place, lsn):
            return
        self._todo -= {place, lsn}
        is_retained = bool(f["retained_set"] and f["payload"])
        id = self._body(lsn, f, is_retained, Publisher(f["id"], f["user"] or b"", f["security"], 0))
        if is_retained:
            self._retained.append(id)       # the later one counts
        members = [sno for sno, session in state.sessions.items() if f["group"] and f["group"] in session.subscriptions]
        for sno in f["sessions"] or members[:1]:
            session = state.sessions.get(sno)
            wanted = self._wanted(session, f) if session is not None else []
            if session is None or not wanted:
                continue
            qos = min(f["qos"], max(options & 3 for options, _ in wanted))
            retain = f["retain"] and any(options & RETAIN_AS_PUBLISHED for options, _ in wanted)
            pid = state.last_pids[sno] = state.last_pids.get(sno, 0) % 65535 + 1
            behind = self._deliveries.setdefault(sno, bytearray())
            position = (session.next + HALF // 2 + len(behind)) % WRAP
            behind.extend(DELIVERY.pack(position, pid, qos | (ENTRY_RETAIN if retain else 0),
                                        next((sub_id for _, sub_id in wanted if sub_id), 0), id))

    @staticmethod
    def _wanted(session: "Session", f: dict[Any, Any]) -> list[tuple[int, int]]:
        """Return options and identifier of each subscription by which a session gets an undelivered message."""
        if f["group"]:
            return [session.subscriptions[f["group"]][:2]]
        return [(options, sub_id) for filter, (options, sub_id, _) in session.subscriptions.items()
                if filter_fits(filter, f["topic"]) and not (options & NO_LOCAL and session.id == f["id"])]

    def _body(self, lsn: int, f: dict[Any, Any], is_retained: bool, publisher: Publisher | None) -> int:
        """Write a stored message; return its id."""
        id, by = self._first_id + lsn, publisher
        self._out.write(chunks.message(
            id, f["topic"], f["payload"], f["props"], f["qos"], bool(f["retain"]) or is_retained,
            -(-f["expires_wall_ms"] // 1000), by.id if by else b"", by.user if by else b"",
            kinds.port_of(by.security, self._ports) if by else 0, by.pid if by else 0,
        ))
        self._last_id = max(self._last_id, id)
        self.written.messages += 1
        return id

    def _released(self) -> int:
        """Write the message that stands for those whose PUBREC has arrived; return its id, or 0 if there are none."""
        if not any(session.released for session in self.state.sessions.values()):
            return 0
        self._last_id += 1
        self._out.write(chunks.message(self._last_id, RELEASED_TOPIC, b"", b"", 2, False))
        return self._last_id

    # -- sessions

    def _session(self, s: "Session", released_id: int) -> None:
        never = s.expiry_s == EXPIRY_NEVER
        ends_s = 0 if never else s.ends_wall_ms // 1000 or int(self._now_s) + s.expiry_s
        queue, last_pid = self._queue(s, released_id)
        port = kinds.port_of(self.state.securities.get(s.sno, -1), self._ports)
        self._out.write(chunks.client(s.id, s.user or b"", ends_s, s.expiry_s, last_pid, port))
        for pid, id in self._inbox.get(s.sno, ()):
            self._out.write(chunks.client_message(id, s.id, pid, 2, WAIT_PUBREL, IN, False, False, 0))
        for id, pid, qos, state, sub_id in queue:
            self._out.write(
                chunks.client_message(
                    id, s.id, pid, qos & 3, state, OUT, bool(qos & ENTRY_RETAIN), state != QUEUED, sub_id
                )
            )
        self.written.sessions += 1
        self.written.deliveries += len(queue)

    def _queue(self, s: "Session", released_id: int) -> "tuple[list[Entry], int]":
        """Return [(id, packet id, qos, state, subscription identifier)] in the order of the queue, and the last packet
        id. Waiting messages have one too: Mosquitto sends them with it."""
        last_pid = self.state.last_pids.get(s.sno, 0)
        queue: list[Entry] = []
        for offset, pid, qos, sub_id, id in sorted(self._places(s, released_id)):
            if not qos & 3 or not (s.connected or offset < HALF):
                state = QUEUED
            elif id == released_id:
                state = WAIT_PUBCOMP
            else:
                state = WAIT_PUBACK if qos & 3 == 1 else WAIT_PUBREC
            last_pid = pid or last_pid
            queue.append((id, pid, qos, state, sub_id))
        return queue, last_pid

    def _places(self, s: "Session", released_id: int) -> "Iterator[tuple[int, int, int, int, int]]":
        """Yield (offset, packet id, qos, subscription identifier, id); offsets below HALF were sent before."""
        for position, pid, qos, sub_id, id in DELIVERY.iter_unpack(self._deliveries.pop(s.sno, b"")):
            yield s.offset(position), pid, qos, sub_id, id
        for position, (pid, _) in s.released.items():
            yield s.offset(position), pid, 2, 0, released_id
