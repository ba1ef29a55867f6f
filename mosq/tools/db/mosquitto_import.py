"""Convert a persistence file of Mosquitto, or the database of its plugin persist-sqlite, into records of a store:
sessions, subscriptions, queues with their progress, retained messages, wills.

The file is read once without payloads, to learn which sessions receive each message. Then each stored message is read
by itself, in the order of the ids, which is the order of publication. Left out and counted are: expired messages,
messages without a receiver, and everything that the protocol does not allow. Sessions of bridges are marked: only a
bridge with that client id continues such a session; the first start ends those that no bridge has. Mosquitto 2.0 gives
them an expiry of 0; in a file of 2.1 only the caller knows them. A will whose client has no session is sent at the
first start, as by Mosquitto. Retained messages keep their publishers, for check_retain_source.
Memory: about 500 bytes per session, subscription and stored message, and one payload at a time.

Packet ids: the ids in a queue of mosq rise with the positions. A message that Mosquitto had sent keeps its id, because
its client may know it: the position rises by as much as the id, and leaves holes. Messages that were never sent get the
following ids; those that are older than all sent ones get the ids before, so that a queue keeps its order. Mosquitto
writes such a queue for a bridge whose attempt to connect was under way.
"""

import os
import struct
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mosq._core import record_encode
from mosq.tools.db import kinds
from mosq.tools.db.mark import IMPORTED, PARTLY, Mark, identity, write_mark
from mosq.tools.db.mark import NAME as MARK
from mosq.tools.db.mosquitto_file import (
    Client,
    ClientMessage,
    InUseError,
    Message,
    MosquittoFile,
    Retain,
    Subscription,
    Will,
)
from mosq.tools.db.mosquitto_format import EXPIRY_NEVER, IN, QUEUED, RESEND_PUBREL, WAIT_PUBCOMP
from mosq.tools.db.properties import forwardable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from mosq.tools.db.kept import Kept
    from mosq.tools.db.mark import Identity
    from mosq.tools.db.mosquitto_sqlite import SqliteFile

    File = MosquittoFile | SqliteFile

ENTRY_RETAIN = 0x80
STEP_MAX = 1 << 15  # largest step between packet ids in flight; a larger one means that the later id is an earlier one


# a delivery of a message: session, position, packet id, qos, subscription identifier; stored as bytes one after the
# other
ENTRY = struct.Struct("<IIHBI")


@dataclass(slots=True)
class Session:
    sno: int
    client: Client
    subscriptions: dict[bytes, Subscription] = field(default_factory=dict)
    sent: list[ClientMessage] = field(default_factory=list)
    waiting: "array[int]" = field(default_factory=lambda: array("Q"))  # id, then qos with the flag, identifier << 8
    inbox: dict[int, ClientMessage] = field(default_factory=dict)
    will: Will | None = None


@dataclass(slots=True)
class Counts:
    """Count the results of an import: the first six were imported, the others left out."""

    sessions: int = 0
    bridges: int = 0  # of the sessions
    subscriptions: int = 0
    deliveries: int = 0
    retained: int = 0
    wills: int = 0
    sessions_expired: int = 0
    deliveries_expired: int = 0  # deliveries to expired sessions
    messages_expired: int = 0
    orphans: int = 0  # parts of missing sessions or messages
    refused: list[str] = field(default_factory=list)

    def text(self, done: str) -> str:
        bridges = f" ({self.bridges:,} of bridges)" if self.bridges else ""
        wills = f"{self.wills:,} wills, " if self.wills else ""
        lines = [
            f"{self.sessions:,} sessions{bridges}, {self.subscriptions:,} subscriptions, {wills}"
            f"{self.deliveries:,} deliveries and {self.retained:,} retained messages {done}."
        ]
        left = [
            (self.sessions_expired, "sessions that have expired"),
            (self.deliveries_expired, "deliveries to them"),
            (self.messages_expired, "uses of expired messages"),
            (self.orphans, "that belong to nothing"),
            (len(self.refused), "that MQTT does not allow"),
        ]
        if any(n for n, _ in left):
            lines.append("Left out: " + ", ".join(f"{n:,} {what}" for n, what in left if n) + ".")
        return "\n".join(lines)


def name_problem(name: bytes) -> str | None:
    """Return why MQTT does not allow a string, or None."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return "not UTF-8"
    return "a zero byte in it" if b"\0" in name else None


def topic_problem(topic: bytes) -> str | None:
    return "a wildcard in it" if b"+" in topic or b"#" in topic else name_problem(topic)


def filter_problem(filter: bytes) -> str | None:
    levels = filter.split(b"/")
    wild = [level for level in levels if (b"#" in level or b"+" in level) and level not in (b"#", b"+")]
    if not filter or wild or b"#" in levels[:-1]:
        return "not a filter"
    return name_problem(filter)


def entry_qos(chunk: ClientMessage) -> int:
    return chunk.qos | (ENTRY_RETAIN if chunk.retain else 0)


def _wait(session: Session, chunk: ClientMessage) -> None:
    session.waiting.extend((chunk.id, entry_qos(chunk) | chunk.sub_id << 8))


def _add(entries: "dict[int, bytes | bytearray]", id: int, entry: bytes) -> None:
    old = entries.get(id)
    if isinstance(old, bytearray):
        old += entry
    else:
        entries[id] = entry if old is None else bytearray(old + entry)


def _will_record(sno: int, will: Will) -> bytes:
    return record_encode(kinds.WILL, {
        "sno": sno, "delay_s": will.delay_s, "due_wall_ms": will.due_s * 1000, "qos": will.qos, "retain": will.retain,
        "retained_set": False, "source_hash": 0, "topic": will.topic, "expires_wall_ms": 0,
        "props": forwardable(will.properties) or b"", "payload": will.payload,
    })


def _client_will_record(will: Will) -> bytes:
    return record_encode(kinds.CLIENT_WILL, {
        "security": kinds.origin_of_port(0), "expiry_s": None, "id": will.client_id, "user": None, "mount": b"",
        "qos": will.qos, "retain": will.retain, "retained_set": False, "source_hash": 0, "topic": will.topic,
        "expires_wall_ms": 0, "props": forwardable(will.properties) or b"", "payload": will.payload,
    })


class Import:
    """Import one file. `records` yields (kind, body); the counts are complete when it has ended."""

    def __init__(
        self,
        file: "File | Kept",
        now_s: float,
        progress: "Callable[[int, int], None] | None" = None,
        bridges: "Collection[bytes]" = (),
    ) -> None:
        """Take the client ids of the configured bridges."""
        self.file, self.now_s, self._bridges = file, now_s, bridges
        self.counts = Counts()
        self._progress = progress or (lambda done, total: None)
        self._sessions: dict[bytes, Session] = {}
        self._messages: dict[int, tuple[int, int]] = {}  # id: (offset, expires_s)
        self._retained: set[int] = set()
        self._expired: set[bytes] = set()  # clients whose sessions have expired
        self._lone_wills: dict[bytes, Will] = {}  # of clients without a session

    def records(self) -> "Iterator[tuple[int, bytes]]":
        self._walk()
        entries: dict[int, bytes | bytearray] = {}
        inbox: dict[int, list[tuple[int, int]]] = {}
        for session in self._sessions.values():
            yield from self._session(session, entries, inbox)
        for will in self._lone_wills.values():
            yield kinds.CLIENT_WILL, _client_will_record(will)
            self.counts.wills += 1
        todo = sorted(id for id in self._messages if id in entries or id in inbox or id in self._retained)
        for done, id in enumerate(todo):
            if done % 64 == 0:
                self._progress(self.file.size + done * self.file.size // len(todo), 2 * self.file.size)
            yield from self._message(id, entries.pop(id, b""), inbox.pop(id, []))
        self._progress(2 * self.file.size, 2 * self.file.size)

    # -- the walk

    def _walk(self) -> None:
        for n, chunk in enumerate(self.file.chunks(with_payload=False)):
            if n % 1024 == 0:
                self._progress(chunk.offset, 2 * self.file.size)
            if isinstance(chunk, Message):
                self._messages[chunk.id] = (chunk.offset, chunk.expires_s)
            elif isinstance(chunk, ClientMessage):
                self._client_message(chunk)
            elif isinstance(chunk, Client):
                self._client(chunk)
            elif isinstance(chunk, Subscription):
                self._subscription(chunk)
            elif isinstance(chunk, Retain):
                self._retain(chunk.id)
            elif isinstance(chunk, Will):
                self._will(chunk)

    def _refuse(self, offset: int, text: str) -> None:
        self.counts.refused.append(self.file.where(offset, text))

    def _client(self, chunk: Client) -> None:
        problem = name_problem(chunk.client_id) if chunk.client_id else "empty"
        if problem or chunk.client_id in self._sessions:
            self._refuse(chunk.offset, f"a client with an id that is {problem or 'there already'}")
        elif not self._is_bridge(chunk) and 0 < chunk.ends_s < self.now_s and chunk.expiry_s != EXPIRY_NEVER:
            self.counts.sessions_expired += 1
            self._expired.add(chunk.client_id)
        else:
            self._sessions[chunk.client_id] = Session(len(self._sessions) + 1, chunk)

    def _is_bridge(self, chunk: Client) -> bool:
        return chunk.expiry_s == 0 or chunk.client_id in self._bridges

    def _session_of(self, client_id: bytes) -> Session | None:
        session = self._sessions.get(client_id)
        if session is None and client_id not in self._expired:
            self.counts.orphans += 1
        return session

    def _subscription(self, chunk: Subscription) -> None:
        session = self._session_of(chunk.client_id)
        if session is None:
            return
        problem = filter_problem(chunk.filter)
        if problem:
            self._refuse(chunk.offset, f"a subscription whose filter is or has {problem}")
        else:
            session.subscriptions[chunk.filter] = chunk

    def _client_message(self, chunk: ClientMessage) -> None:
        session = self._session_of(chunk.client_id)
        if session is None:
            self.counts.deliveries_expired += chunk.client_id in self._expired and chunk.direction != IN
            return
        if chunk.direction == IN:
            if chunk.qos == 2 and chunk.pid:
                session.inbox[chunk.pid] = chunk
        elif chunk.state == QUEUED or not chunk.qos or not chunk.pid:
            _wait(session, chunk)
        else:
            session.sent.append(chunk)

    def _will(self, chunk: Will) -> None:
        session = self._sessions.get(chunk.client_id)
        problem = topic_problem(chunk.topic) if chunk.topic else "empty"
        id_problem = name_problem(chunk.client_id) if chunk.client_id else "empty"
        if problem:
            self._refuse(chunk.offset, f"a will with a topic that is or has {problem}")
        elif session is not None:
            session.will = chunk
        elif id_problem:
            self._refuse(chunk.offset, f"a will of a client with an id that is or has {id_problem}")
        else:
            self._lone_wills[chunk.client_id] = chunk

    def _retain(self, id: int) -> None:
        if self._lives(id):
            self._retained.add(id)

    def _lives(self, id: int) -> bool:
        found = self._messages.get(id)
        if found is None:
            self.counts.orphans += 1
        elif 0 < found[1] < self.now_s:
            self.counts.messages_expired += 1
        else:
            return True
        return False

    # -- sessions and their queues

    def _session(
        self, session: Session, entries: "dict[int, bytes | bytearray]", inbox: "dict[int, list[tuple[int, int]]]"
    ) -> "Iterator[tuple[int, bytes]]":
        client = session.client
        released: list[tuple[int, int, int]] = []
        first_position = self._older(session, entries)
        next_position, last_pid = self._sent(session, entries, released, first_position)
        self._waiting(session, entries, next_position, last_pid)
        is_bridge = self._is_bridge(client)
        expiry_s = EXPIRY_NEVER if is_bridge else client.expiry_s
        ends_s = 0 if expiry_s == EXPIRY_NEVER else client.ends_s or int(self.now_s) + expiry_s
        user = client.username
        if user is not None and name_problem(user):
            # Mosquitto before 2.0.16 gives a client without a user name the memory behind the name of the previous
            # client; that memory must not be shown
            self._refuse(client.offset, "an invalid user name (of a client without one): left out")
            user = None
        yield (
            kinds.SESSION,
            record_encode(
                kinds.SESSION,
                {
                    "sno": session.sno,
                    "connected": False,
                    "link": is_bridge,
                    "expiry_s": expiry_s,
                    "ends_wall_ms": ends_s * 1000,
                    "next": next_position,
                    "last_pid": last_pid,
                    "id": client.client_id,
                    "user": user,
                    "security": kinds.origin_of_port(client.port),
                },
            ),
        )
        self.counts.sessions += 1
        self.counts.bridges += is_bridge
        for sub in session.subscriptions.values():
            yield (
                kinds.SUB,
                record_encode(
                    kinds.SUB, {"sno": session.sno, "options": sub.options, "sub_id": sub.sub_id, "filter": sub.filter}
                ),
            )
            self.counts.subscriptions += 1
        if released:
            yield kinds.RELEASED, record_encode(kinds.RELEASED, {"acks": released})
        if session.will is not None:
            yield kinds.WILL, _will_record(session.sno, session.will)
            self.counts.wills += 1
        for pid, chunk in session.inbox.items():
            if self._lives(chunk.id):
                inbox.setdefault(chunk.id, []).append((session.sno, pid))

    def _older(self, session: Session, entries: "dict[int, bytes | bytearray]") -> int:
        """Place the waiting messages that are older than all sent ones; return the position of the first sent one."""
        oldest = min((chunk.id for chunk in session.sent), default=0)
        older, later = array("Q"), array("Q")
        for i in range(0, len(session.waiting), 2):
            (older if session.waiting[i] < oldest else later).extend(session.waiting[i:i + 2])
        if not older or len(older) > STEP_MAX:
            return 0
        session.waiting = later
        kept = [(older[i], older[i + 1]) for i in range(0, len(older), 2) if self._lives(older[i])]
        for position, (id, rest) in enumerate(kept):
            pid = (session.sent[0].pid - 1 - len(kept) + position) % 65535 + 1
            _add(entries, id, ENTRY.pack(session.sno, position, pid, rest & 0xFF, rest >> 8))
        return len(kept)

    def _sent(
        self, session: Session, entries: "dict[int, bytes | bytearray]", released: "list[tuple[int, int, int]]",
        first_position: int,
    ) -> tuple[int, int]:
        """Place the messages that had been sent; return (first position of the others, last packet id)."""
        position, last_pid = first_position - 1, session.client.last_pid
        for chunk in session.sent:
            step = 1 if position < first_position else (chunk.pid - last_pid) % 65535
            if step == 0 or step > STEP_MAX or position + step >= 65535:
                self._refuse(
                    chunk.offset, f"packet id {chunk.pid} after {last_pid} cannot be in flight; sent as a new message"
                )
                _wait(session, chunk)
                continue
            position, last_pid = position + step, chunk.pid
            if chunk.qos == 2 and chunk.state in (RESEND_PUBREL, WAIT_PUBCOMP):
                released.append((session.sno, position, chunk.pid))
                self.counts.deliveries += 1
            elif self._lives(chunk.id):
                _add(entries, chunk.id, ENTRY.pack(session.sno, position, chunk.pid, entry_qos(chunk), chunk.sub_id))
        return position + 1, last_pid

    def _waiting(self, session: Session, entries: "dict[int, bytes | bytearray]", position: int, last_pid: int) -> None:
        waiting = session.waiting
        for i in range(0, len(waiting), 2):
            id, rest = waiting[i], waiting[i + 1]
            if not self._lives(id):
                continue
            if rest & 3:
                last_pid = last_pid % 65535 + 1
            _add(entries, id, ENTRY.pack(session.sno, position, last_pid, rest & 0xFF, rest >> 8))
            position += 1

    # -- messages

    def _message(
        self, id: int, packed: bytes | bytearray, inbox: "list[tuple[int, int]]"
    ) -> "Iterator[tuple[int, bytes]]":
        message = self.file.message_at(self._messages[id][0])
        properties, problem = forwardable(message.properties), topic_problem(message.topic)
        if properties is None or problem:
            what = f"a topic that is or has {problem}" if problem else "bad properties"
            self._refuse(message.offset, f"a stored message with {what}")
            return
        retained = id in self._retained and bool(message.payload_bytes)
        fields = {
            "qos": message.qos,
            "retain": message.retain,
            "retained_set": retained,
            "source_hash": 0,
            "topic": message.topic,
            "expires_wall_ms": message.expires_s * 1000,
            "props": properties,
            "payload": message.payload,
        }
        entries = list(ENTRY.iter_unpack(packed))
        if entries or retained:
            yield kinds.MSG, record_encode(kinds.MSG, {**fields, "entries": entries})
            self.counts.deliveries += len(entries)
            self.counts.retained += retained
        if retained and message.source_id and not name_problem(message.source_id):
            user = b"" if name_problem(message.source_username) else message.source_username
            yield kinds.RETAINED_FROM, record_encode(kinds.RETAINED_FROM, {
                "topic": message.topic, "id": message.source_id, "user": user,
                "security": kinds.origin_of_port(message.source_port)})
        for sno, pid in inbox:
            yield (
                kinds.INBOX,
                record_encode(kinds.INBOX, {**fields, "retained_set": False, "sno": sno, "pid": pid, "refused": False}),
            )


# -- whole files

def open_file(path: str) -> "File":
    """Open a file of either format. Raises FormatError and OSError."""
    from mosq.tools.db.mosquitto_sqlite import SqliteFile, is_sqlite

    return SqliteFile(path) if is_sqlite(path) else MosquittoFile(path)


def is_empty(path: str) -> bool:
    """Return whether a file has neither sessions nor retained messages. Raises FormatError and OSError."""
    with open_file(path) as file:
        return not any(isinstance(chunk, (Client, Retain)) for chunk in file.chunks(with_payload=False))


def unchanged(
    records: "Iterator[tuple[int, bytes]]", path: str, before: "Identity | None"
) -> "Iterator[tuple[int, bytes]]":
    """Yield the records of an import. Raises InUseError at the end if the file changed while it was read."""
    yield from records
    if identity(path) != before:
        raise InUseError(
            path, None, "it changed while it was read; expected that no broker uses it: stop Mosquitto first"
        )


def import_file(path: str, store: str, now_s: float, bridges: "Collection[bytes]" = (), force: bool = True,
                progress: "Callable[[int, int], None] | None" = None) -> tuple[Counts, str | None, list[str]]:
    """Make a store of a file, and mark the store with it. An old store is kept if `force` is set, else refused.

    Return (counts, folder of the old store or None, warnings). Raises FormatError, StoreError and OSError; then nothing
    has changed.
    """
    from mosq.tools.db.store import give_to_owner, write_store

    before = identity(path)
    with open_file(path) as file:
        imported = Import(file, now_s, progress, bridges)
        records = unchanged(imported.records(), path, before)
        kept = write_store(store, records, f"mosq db import of format {file.format}", force, path)
        how = PARTLY if file.warnings or imported.counts.refused else IMPORTED
        write_mark(store, Mark(path, [before] if before is not None else [], how))
        give_to_owner(os.path.join(store, MARK), path)
        return imported.counts, kept, [*file.warnings, *imported.counts.refused]
