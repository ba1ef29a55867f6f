"""Export the content of a store as an SQLite file or as lines of JSON: sessions, subscriptions, messages and their
deliveries, retained and inbound messages, wills.

The store is read twice: the first walk learns which records are needed, the second one reads their bodies. In the store
of a running broker, a message may be acknowledged or moved by cleaning between the walks: `missing` counts messages
that the second walk did not find. Memory: that of `State`, and one body.
"""

import json
import os
import sqlite3
from typing import IO, TYPE_CHECKING, Any, Protocol

from mosq.tools.db import kinds, show
from mosq.tools.db.properties import readable
from mosq.tools.db.read import state_of, walk
from mosq.tools.db.store import StoreError

if TYPE_CHECKING:
    from mosq.tools.db.read import Progress
    from mosq.tools.db.state import Session, State
    from mosq.tools.db.store import Source

SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE sessions (sno INTEGER PRIMARY KEY, client_id TEXT, username TEXT, connected INTEGER, expiry_s INTEGER,
                       ends_at TEXT, queued INTEGER);
CREATE TABLE subscriptions (sno INTEGER REFERENCES sessions, filter TEXT, qos INTEGER, no_local INTEGER,
                            retain_as_published INTEGER, retain_handling INTEGER, sub_id INTEGER);
CREATE TABLE messages (lsn INTEGER PRIMARY KEY, topic TEXT, qos INTEGER, retain INTEGER, retained INTEGER,
                       expires_at TEXT, properties TEXT, payload BLOB);
CREATE TABLE deliveries (sno INTEGER REFERENCES sessions, position INTEGER, lsn INTEGER REFERENCES messages,
                         pid INTEGER, qos INTEGER, retain INTEGER, sub_id INTEGER, state TEXT);
CREATE TABLE inbox (sno INTEGER REFERENCES sessions, pid INTEGER, lsn INTEGER REFERENCES messages);
CREATE TABLE wills (sno INTEGER REFERENCES sessions, due_at TEXT, delay_s INTEGER, lsn INTEGER REFERENCES messages,
                    client_id TEXT, username TEXT, expiry_s INTEGER);
"""


class Sink(Protocol):
    def meta(self, meta: dict[bytes, bytes]) -> None: ...
    def session(self, s: "Session") -> None: ...
    def message(self, lsn: int, f: dict[str, Any], retained: bool) -> None: ...
    def delivery(self, lsn: int, entry: tuple[int, int, int, int, int], state: str) -> None: ...
    def released(self, sno: int, position: int, pid: int) -> None: ...
    def inbox(self, lsn: int, f: dict[str, Any]) -> None: ...
    def will(self, lsn: int, f: dict[str, Any]) -> None: ...
    def client_will(self, lsn: int, f: dict[str, Any]) -> None: ...


def export(source: "Source", sink: Sink, progress: "Progress | None" = None) -> tuple[int, int]:
    """Export a store; return (messages written, messages that the second walk did not find)."""
    state, _, _ = state_of(source, progress)
    sink.meta(state.meta)
    for s in state.sessions.values():
        sink.session(s)
        for position, (pid, _) in s.released.items():
            sink.released(s.sno, position, pid)
    todo = set(state.live)

    def record(lsn: int, kind: int, f: dict[str, Any], _bytes: int) -> None:
        if lsn in todo:
            todo.discard(lsn)
            _live(state, sink, lsn, kind, f)

    walk(source, record, progress)
    return len(state.live) - len(todo), len(todo)


def _live(state: "State", sink: Sink, lsn: int, kind: int, f: dict[str, Any]) -> None:
    if kind == kinds.MSG:
        sink.message(lsn, f, state.is_retained(lsn, f["topic"]))
        for entry in f["entries"]:
            if state.delivers(lsn, entry):
                sent = (entry[1] - state.sessions[entry[0]].next) % (1 << 32) >= 1 << 31
                sink.delivery(lsn, entry, "sent" if sent else "waiting")
    elif kind == kinds.INBOX:
        sink.inbox(lsn, f)
    elif kind == kinds.WILL:
        sink.will(lsn, f)
    elif kind in (kinds.CLIENT_WILL, kinds.WAITING_WILL, kinds.LINK_WILL):
        sink.client_will(lsn, f)
    elif kind == kinds.UNDELIVERED:
        sink.message(lsn, f, f["retained_set"])
        for sno in f["sessions"]:
            sink.delivery(lsn, (sno, 0, 0, f["qos"], 0), "undelivered")


class Lines:
    """Write lines of JSON, each with its `type`."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def _put(self, type: str, fields: dict[str, Any]) -> None:
        self._out.write(json.dumps({"type": type, **fields}, ensure_ascii=True) + "\n")

    def meta(self, meta: dict[bytes, bytes]) -> None:
        self._put("meta", show.record_json(kinds.META, meta, False))

    def session(self, s: "Session") -> None:
        self._put(
            "session",
            {
                "sno": s.sno,
                "id": show.plain(s.id),
                "user": None if s.user is None else show.plain(s.user),
                "connected": s.connected,
                "expiry_s": None if s.expiry_s == show.NEVER else s.expiry_s,
                "ends": show.when(s.ends_wall_ms) if s.ends_wall_ms else None,
                "queued": s.queue.count,
                "subscriptions": [
                    {"filter": show.plain(filter), "qos": options & 3, "options": options, "sub_id": sub_id or None}
                    for filter, (options, sub_id, _) in s.subscriptions.items()
                ],
            },
        )

    def message(self, lsn: int, f: dict[str, Any], retained: bool) -> None:
        self._put("message", {"lsn": lsn, "retained": retained, **show.message_json(f)})

    def delivery(self, lsn: int, entry: tuple[int, int, int, int, int], state: str) -> None:
        self._put("delivery", {"lsn": lsn, **show.entry_json(entry), "state": state})

    def released(self, sno: int, position: int, pid: int) -> None:
        self._put(
            "delivery", {"lsn": None, "sno": sno, "position": position, "pid": pid, "qos": 2, "state": "released"}
        )

    def inbox(self, lsn: int, f: dict[str, Any]) -> None:
        self._put("inbox", {"lsn": lsn, **show.record_json(kinds.INBOX, f, True)})

    def will(self, lsn: int, f: dict[str, Any]) -> None:
        self._put("will", {"lsn": lsn, **show.record_json(kinds.WILL, f, True)})

    def client_will(self, lsn: int, f: dict[str, Any]) -> None:
        self._put("will", {"lsn": lsn, "sno": None, **show.record_json(kinds.CLIENT_WILL, f, True)})


class Sqlite:
    """Write a new SQLite file; `close` completes it."""

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        # an interrupted export is deleted, so the file needs no journal
        self._db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + SCHEMA)
        self._db.execute("BEGIN")

    def close(self) -> None:
        self._db.execute("COMMIT")
        self._db.executescript(
            "CREATE INDEX deliveries_sno ON deliveries (sno, position);CREATE INDEX messages_topic ON messages (topic);"
        )
        self._db.close()

    def _put(self, table: str, *values: object) -> None:
        self._db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)

    def meta(self, meta: dict[bytes, bytes]) -> None:
        for name, value in meta.items():
            self._put("meta", show.plain(name), show.plain(value))

    def session(self, s: "Session") -> None:
        self._put(
            "sessions",
            s.sno,
            show.plain(s.id),
            None if s.user is None else show.plain(s.user),
            s.connected,
            None if s.expiry_s == show.NEVER else s.expiry_s,
            show.when(s.ends_wall_ms) if s.ends_wall_ms else None,
            s.queue.count,
        )
        for filter, (options, sub_id, _) in s.subscriptions.items():
            self._put(
                "subscriptions",
                s.sno,
                show.plain(filter),
                options & 3,
                options >> 2 & 1,
                options >> 3 & 1,
                options >> 4 & 3,
                sub_id or None,
            )

    def _body(self, lsn: int, f: dict[str, Any], retained: bool) -> None:
        self._put(
            "messages",
            lsn,
            show.plain(f["topic"]),
            f["qos"],
            f["retain"],
            retained,
            show.when(f["expires_wall_ms"]) if f["expires_wall_ms"] else None,
            json.dumps(readable(f["props"])) if f["props"] else None,
            f["payload"],
        )

    def message(self, lsn: int, f: dict[str, Any], retained: bool) -> None:
        self._body(lsn, f, retained)

    def delivery(self, lsn: int, entry: tuple[int, int, int, int, int], state: str) -> None:
        sno, position, pid, qos, sub_id = entry
        self._put(
            "deliveries",
            sno,
            position,
            lsn,
            pid if qos & 3 else None,
            qos & 3,
            bool(qos & show.ENTRY_RETAIN),
            sub_id or None,
            state,
        )

    def released(self, sno: int, position: int, pid: int) -> None:
        self._put("deliveries", sno, position, None, pid, 2, 0, None, "released")

    def inbox(self, lsn: int, f: dict[str, Any]) -> None:
        if not f["refused"]:
            self._body(lsn, f, False)
        self._put("inbox", f["sno"], f["pid"], None if f["refused"] else lsn)

    def will(self, lsn: int, f: dict[str, Any]) -> None:
        self._body(lsn, f, False)
        due = show.when(f["due_wall_ms"]) if f["due_wall_ms"] else None
        self._put("wills", f["sno"], due, f["delay_s"], lsn, None, None, None)

    def client_will(self, lsn: int, f: dict[str, Any]) -> None:
        """Write the will of a client without a stored session; such rows have a client id and no session."""
        self._body(lsn, f, False)
        user = None if f["user"] is None else show.plain(f["user"])
        self._put("wills", None, None, 0, lsn, show.plain(f["id"]), user, f["expiry_s"])


def export_file(
    source: "Source", path: str, kind: str, force: bool, progress: "Progress | None" = None
) -> tuple[int, int]:
    """Export to a file that is complete or does not exist; `kind`: sqlite or jsonl."""
    if os.path.exists(path) and not force:
        raise StoreError(f"{path}: exists already; expected a new file, or --force")
    part = f"{path}.part"
    if os.path.lexists(part):
        os.unlink(part)
    try:
        # a new file, and no link to another one; only its owner may read it, because it has the messages of all
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        if kind == "sqlite":
            sink = Sqlite(part)
            counts = export(source, sink, progress)
            sink.close()
        else:
            with open(part, "w", encoding="utf-8") as out:
                counts = export(source, Lines(out), progress)
        os.replace(part, path)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path}: {getattr(error, 'strerror', None) or error}; expected a place to write to") from None
    finally:
        if os.path.exists(part):
            os.unlink(part)
    return counts
