"""Read the database of Mosquitto's plugin persist-sqlite (schema 1.0 and 1.1, and those without a version) row by row.

It offers the same methods as `MosquittoFile`, so an import does not know which of the two it reads. Facts about
the tables: columns that are declared as STRING have numeric affinity, so a topic such as `1` comes back as a number
unless it is read as text; a session that never expires has the interval -1; properties are JSON. The database is opened
read-only, and all reads belong to one transaction, so they see one state of it. Without a write-ahead log to read, no
file is made beside the database: a file of root's there would keep Mosquitto from starting.
"""

import fcntl
import json
import os
import sqlite3
import struct
import urllib.parse
from typing import TYPE_CHECKING, Any

from mosq.tools.db.mosquitto_file import (
    Client,
    ClientMessage,
    FormatError,
    InUseError,
    Message,
    Retain,
    Subscription,
    Will,
)
from mosq.tools.db.mosquitto_format import EXPIRY_NEVER, OUT, QUEUED, SECONDS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.tools.db.mosquitto_file import Chunk

MAGIC = b"SQLite format 3\0"
MAJOR, MINOR_MAX = 1, 1
TABLES = {"base_msgs", "retains", "clients", "subscriptions", "client_msgs"}
FLOCK = struct.Struct("hh4xqqi4x")  # struct flock of 64-bit Linux: type, origin, start, length, pid
SHARED_FIRST, SHARED_BYTES = 0x40000002, 510  # the bytes that an open connection locks [sqlite.org/fileformat2, os.h]
PAYLOAD_MAX = 268_435_455
NAME_BYTES_MAX = 65_535
ID_MAX = (1 << 64) - 1
BYTE, STRING, BINARY, PAIR = range(4)
PROPERTIES = {
    "payload-format-indicator": (1, BYTE),
    "content-type": (3, STRING),
    "response-topic": (8, STRING),
    "correlation-data": (9, BINARY),
    "user-property": (38, PAIR),
}


def is_sqlite(path: str) -> bool:
    """Return whether a file is an SQLite database. Raises OSError."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def writer_of(path: str) -> int:
    """Return the id of a process that has the database open; 0 if there is none."""
    with open(path, "rb") as file:
        lock = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, SHARED_FIRST, SHARED_BYTES, 0)
        kind, _, _, _, pid = FLOCK.unpack(fcntl.fcntl(file.fileno(), fcntl.F_GETLK, lock))
    return 0 if kind == fcntl.F_UNLCK else int(pid)


def _has_bytes(path: str) -> bool:
    return os.path.isfile(path) and os.path.getsize(path) > 0


def properties_of(text: bytes | None) -> bytes | None:
    """Return the properties that subscribers receive, encoded; None if the JSON is not what the plugin writes."""
    if not text:
        return b""
    try:
        return b"".join(_property(one) for one in json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error):
        return None


def _property(one: dict[str, Any]) -> bytes:
    kind, form = PROPERTIES.get(one["identifier"], (0, BYTE))
    if not kind:
        return b""
    value = one["value"]
    if form == BYTE:
        return bytes((kind, value))
    if form == BINARY:
        return bytes((kind,)) + _string(bytes.fromhex(value))
    name = _string(one["name"].encode()) if form == PAIR else b""
    return bytes((kind,)) + name + _string(value.encode())


def _string(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


def rows(path: str) -> tuple[int, ...]:
    """Return how many sessions, subscriptions, deliveries and retained messages a database has. Raises FormatError, and
    OSError."""
    with SqliteFile(path) as file:
        return file.rows()


class SqliteFile:
    """Hold an open database. Raises FormatError if it cannot be read, and OSError."""

    def __init__(self, path: str) -> None:
        self.path, self.warnings = path, list[str]()
        self.size = os.stat(path).st_size
        pid = writer_of(path)
        if pid:
            raise InUseError(path, None, f"process {pid} has it open; expected that no broker uses it: stop Mosquitto "
                                         "first")
        how = "mode=ro" if _has_bytes(f"{path}-wal") else "mode=ro&immutable=1"
        self._db = sqlite3.connect(f"file:{urllib.parse.quote(os.path.abspath(path))}?{how}", uri=True,
                                   isolation_level=None)
        try:
            self._db.execute("BEGIN")
            self.format = self._version()
        except sqlite3.Error as error:
            self.close()
            raise self._failed(str(error)) from None
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "SqliteFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def rows(self) -> tuple[int, ...]:
        """Return how many sessions, subscriptions, deliveries and retained messages there are. Raises FormatError."""
        try:
            return tuple(int(self._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
                         for table in ("clients", "subscriptions", "client_msgs", "retains"))
        except sqlite3.Error as error:
            raise self._failed(str(error)) from None

    def where(self, place: int, text: str) -> str:
        """Return a text about a row, with its place."""
        return f"{self.path}: row {place}: {text}"

    def chunks(self, with_payload: bool = True) -> "Iterator[Chunk]":
        """Yield all rows: messages, clients, subscriptions, client messages, retained messages, wills."""
        try:
            for row in self._db.execute(self._messages(with_payload)):
                yield self._message(row)
            yield from self._clients()
            yield from self._client_messages()
            for place, id in self._db.execute("SELECT rowid, store_id FROM retains ORDER BY rowid"):
                yield Retain(place, self._id(place, id))
            if "wills" in self._tables:
                yield from self._wills()
        except (sqlite3.Error, OverflowError) as error:
            raise self._failed(str(error)) from None

    def message_at(self, offset: int) -> Message:
        """Return a stored message with its payload, by the offset that `chunks` reported."""
        try:
            row = self._db.execute(self._messages(True) + " WHERE rowid = ?", (offset,)).fetchone()
        except sqlite3.Error as error:
            raise self._failed(str(error)) from None
        return self._message(row)

    def _failed(self, text: str) -> FormatError:
        return FormatError(self.path, None, text)

    def _version(self) -> str:
        self._tables = {str(name) for name, in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        missing = sorted(TABLES - self._tables)
        if missing:
            raise self._failed(f"no table {missing[0]}; expected the database of Mosquitto's plugin persist-sqlite")
        if "version_info" not in self._tables:
            return "sqlite"
        row = self._db.execute("SELECT major, minor, patch FROM version_info "
                               "WHERE component = 'database_schema'").fetchone()
        if row is None:
            return "sqlite"
        version = ".".join(str(part) for part in row)
        if row[0] != MAJOR or not isinstance(row[1], int) or not 0 <= row[1] <= MINOR_MAX:
            raise self._failed(f"Unknown database_schema version {version}; expected {MAJOR}.0 to {MAJOR}.{MINOR_MAX}")
        return f"sqlite {version}"

    @staticmethod
    def _messages(with_payload: bool) -> str:
        payload = "CAST(payload AS BLOB)" if with_payload else "NULL"
        return ("SELECT rowid, store_id, expiry_time, CAST(source_id AS BLOB), CAST(source_username AS BLOB), "
                f"CAST(topic AS BLOB), qos, retain, length(CAST(payload AS BLOB)), CAST(properties AS BLOB), "
                f"{payload}, source_port FROM base_msgs")

    def _message(self, row: tuple[Any, ...]) -> Message:
        place, id, expires_s, source, user, topic, qos, retain, length, properties, payload, port = row
        block = properties_of(properties)
        if block is None:
            self.warnings.append(self.where(place, "bad properties of a stored message: left out"))
        if not topic or len(topic) > 65535:
            raise self._failed(f"row {place} of base_msgs: a topic of {len(topic or b'')} bytes; expected 1 to 65535")
        if (length or 0) > PAYLOAD_MAX:
            raise self._failed(f"row {place} of base_msgs: payload of {length} bytes; expected at most {PAYLOAD_MAX}")
        return Message(place, self._id(place, id), self._time(place, expires_s), self._name(place, source),
                       self._name(place, user), topic, self._qos(place, qos), bool(retain), length or 0, block or b"",
                       (payload or b"") if length is not None or payload is not None else b"",
                       self._number(place, port or 0))

    def _clients(self) -> "Iterator[Chunk]":
        for place, id, user, ends_s, expiry_s, port in self._db.execute(
                "SELECT rowid, CAST(client_id AS BLOB), CAST(username AS BLOB), session_expiry_time, "
                "session_expiry_interval, listener_port FROM clients ORDER BY rowid"):
            yield Client(place, self._name(place, id), self._name(place, user) or None, self._time(place, ends_s),
                         self._number(place, expiry_s or 0) & EXPIRY_NEVER, 0, self._number(place, port or 0))
        for place, id, filter, options, sub_id in self._db.execute(
                "SELECT rowid, CAST(client_id AS BLOB), CAST(topic AS BLOB), subscription_options, "
                "subscription_identifier FROM subscriptions ORDER BY rowid"):
            yield Subscription(place, self._name(place, id), self._name(place, filter),
                               self._number(place, options or 0) & 0x3F, self._number(place, sub_id or 0) & 0x0FFFFFFF)

    def _client_messages(self) -> "Iterator[Chunk]":
        for place, client_id, id, dup, direction, pid, qos, retain, state, sub_id in self._db.execute(
                "SELECT rowid, CAST(client_id AS BLOB), store_id, dup, direction, mid, qos, retain, state, "
                "subscription_identifier FROM client_msgs ORDER BY rowid"):
            if direction not in (0, OUT) or not isinstance(state, int) or not 0 < state <= QUEUED:
                raise self._failed(f"row {place} of client_msgs: direction {direction}, state {state}; expected 0 or "
                                   f"1, and 1 to {QUEUED}")
            packet_id = self._number(place, pid or 0) & 0xFFFF
            yield ClientMessage(place, self._id(place, id), self._name(place, client_id), packet_id,
                                self._qos(place, qos), state, bool(retain), bool(dup), direction,
                                self._number(place, sub_id or 0) & 0x0FFFFFFF)

    def _wills(self) -> "Iterator[Chunk]":
        for place, id, topic, payload, qos, retain, properties, due_s, delay_s in self._db.execute(
                "SELECT w.rowid, CAST(w.client_id AS BLOB), CAST(w.topic AS BLOB), CAST(w.payload AS BLOB), w.qos, "
                "w.retain, CAST(w.properties AS BLOB), c.will_delay_time, c.will_delay_interval "
                "FROM wills w LEFT JOIN clients c ON c.client_id = w.client_id ORDER BY w.rowid"):
            yield Will(place, self._name(place, id), self._name(place, topic), payload or b"", self._qos(place, qos),
                       bool(retain), properties_of(properties) or b"", self._time(place, due_s),
                       self._number(place, delay_s or 0) & EXPIRY_NEVER)

    def _number(self, place: int, value: object) -> int:
        if not isinstance(value, int):
            raise self._failed(f"row {place}: {str(value)[:40]!r}; expected a number")
        return value

    def _id(self, place: int, value: object) -> int:
        """Return the id of a stored message. The plugin writes an unsigned number as a signed one."""
        return self._number(place, value) & ID_MAX

    def _time(self, place: int, value: object) -> int:
        seconds = self._number(place, value or 0)
        if seconds > SECONDS_MAX:
            raise self._failed(f"row {place}: a time of {seconds} s; expected at most {SECONDS_MAX}")
        return max(seconds, 0)

    def _name(self, place: int, value: bytes | None) -> bytes:
        if value is not None and len(value) > NAME_BYTES_MAX:
            raise self._failed(f"row {place}: a name of {len(value)} bytes; expected at most {NAME_BYTES_MAX}")
        return value or b""

    def _qos(self, place: int, qos: object) -> int:
        if not isinstance(qos, int) or not 0 <= qos <= 2:
            raise self._failed(f"row {place}: QoS {str(qos)[:40]}; expected 0, 1 or 2")
        return qos
