"""Read the persistence file of Mosquitto chunk by chunk: a mosquitto.db of format 5 (written by 1.6) or 6 (2.0, 2.1).

This module knows the file, not the use of its content. A file is a header (15 bytes of magic, a checksum that is always
0, the number of the format) and chunks: type and length in network order, then a fixed part, and the names and bytes
whose lengths that part gives. Lengths and packet ids are in network order; ids of stored messages and times are in the
order of the machine that wrote the file, here little-endian. A chunk may be hostile: its lengths are compared with
those of the chunk and the file before a byte is read. Memory: one chunk, and its payload only if requested.
"""

import os
import struct
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from mosq.tools.db.mosquitto_format import (
    CHUNK,
    CLIENT,
    CLIENT_MESSAGE,
    CLIENT_MESSAGE_PART,
    CLIENT_PART_5,
    CLIENT_PART_6,
    CONFIG,
    CONFIG_PART,
    FORMATS,
    HEADER,
    MAGIC,
    MESSAGE,
    MESSAGE_PART,
    NAMES,
    OUT,
    QUEUED,
    RETAIN_PART,
    SECONDS_MAX,
    SUB_ID_MAX,
    SUBSCRIPTION,
    SUBSCRIPTION_PART,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

class FormatError(ValueError):
    """State what is wrong with a file, where (None: in the whole file), and what was expected."""

    def __init__(self, path: str, offset: int | None, text: str) -> None:
        super().__init__(f"{path}: {text}" if offset is None else f"{path}: byte {offset}: {text}")
        self.path, self.offset = path, offset


class InUseError(FormatError):
    """Report that another program uses a file, which may be correct."""


@dataclass(slots=True, frozen=True)
class Config:
    offset: int
    last_id: int
    shutdown: bool


@dataclass(slots=True, frozen=True)
class Message:
    offset: int
    id: int
    expires_s: int  # wall clock; 0: never
    source_id: bytes
    source_username: bytes
    topic: bytes
    qos: int
    retain: bool
    payload_bytes: int
    properties: bytes  # a block without its length
    payload: bytes | None  # None: not requested
    source_port: int = 0  # port of the publisher's listener; 0: unknown
    source_pid: int = 0  # packet id of the publisher's PUBLISH; 0: unknown


@dataclass(slots=True, frozen=True)
class ClientMessage:
    offset: int
    id: int  # id of the Message
    client_id: bytes
    pid: int
    qos: int
    state: int
    retain: bool
    dup: bool
    direction: int
    sub_id: int


@dataclass(slots=True, frozen=True)
class Retain:
    offset: int
    id: int


@dataclass(slots=True, frozen=True)
class Subscription:
    offset: int
    client_id: bytes
    filter: bytes
    options: int  # the options byte of SUBSCRIBE
    sub_id: int


@dataclass(slots=True, frozen=True)
class Client:
    offset: int
    client_id: bytes
    username: bytes | None
    ends_s: int  # wall clock; 0: none
    expiry_s: int
    last_pid: int
    port: int = 0  # port of its listener; 0: unknown


@dataclass(slots=True, frozen=True)
class Will:
    """A will; only the databases of persist-sqlite have them."""

    offset: int
    client_id: bytes
    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    properties: bytes
    due_s: int  # wall clock; 0: the client was connected
    delay_s: int


Chunk = Config | Message | ClientMessage | Retain | Subscription | Client | Will


class Body:
    """Read a chunk's bytes after its header from front to end, never beyond it."""

    __slots__ = ("_file", "_path", "_what", "left", "offset")

    def __init__(self, file: IO[bytes], path: str, offset: int, length: int, what: str) -> None:
        self._file, self._path, self._what = file, path, what
        self.offset, self.left = offset, length

    def error(self, text: str) -> FormatError:
        return FormatError(self._path, self.offset, f"in a {self._what}: {text}")

    def take(self, n: int, name: str) -> bytes:
        if n > self.left:
            raise self.error(f"{name} of {n} bytes; expected at most {self.left}, the rest of the chunk")
        data = self._file.read(n)
        if len(data) != n:
            raise self.error(f"the file ends; expected {n} bytes of {name}")
        self.offset += n
        self.left -= n
        return data

    def skip(self, n: int, name: str) -> None:
        if n > self.left:
            raise self.error(f"{name} of {n} bytes; expected at most {self.left}, the rest of the chunk")
        self._file.seek(n, os.SEEK_CUR)
        self.offset += n
        self.left -= n

    def part(self, form: struct.Struct) -> "tuple[Any, ...]":
        return form.unpack(self.take(form.size, "its fixed part"))

    def end(self) -> None:
        if self.left:
            raise self.error(f"{self.left} bytes after its last field; expected none")


def varint(data: bytes) -> tuple[int, int] | None:
    """Return (value, number of its bytes), or None."""
    value = 0
    for i, byte in enumerate(data[:4]):
        value |= (byte & 127) << (7 * i)
        if byte < 128:
            return value, i + 1
    return None


def block(body: Body) -> bytes:
    """Return the properties up to the end of the chunk: their length, then as many bytes."""
    if not body.left:
        return b""
    data = body.take(body.left, "properties")
    head = varint(data)
    if head is None or head[0] != len(data) - head[1]:
        raise body.error(f"properties whose length does not fit; expected {len(data)} bytes with their length")
    return data[head[1] :]


def checked_qos(body: Body, qos: int) -> int:
    if qos > 2:
        raise body.error(f"QoS {qos}; expected 0, 1 or 2")
    return qos


def checked_time(body: Body, seconds: int) -> int:
    if seconds > SECONDS_MAX:
        raise body.error(f"a time of {seconds} s; expected at most {SECONDS_MAX}")
    return max(seconds, 0)


def read_config(body: Body, at: int) -> Config:
    last_id, shutdown, id_size = body.part(CONFIG_PART)
    if id_size != 8:
        raise body.error(f"ids of {id_size} bytes; expected 8")
    body.end()
    return Config(at, last_id, bool(shutdown))


def read_message(body: Body, at: int, with_payload: bool) -> Message:
    number, expires_s, length, lengths, qos, retain = body.part(MESSAGE_PART)
    payload_bytes: int = struct.unpack(">I", length)[0]
    pid, id_n, user_n, topic_n, port = struct.unpack(">5H", lengths)
    checked_qos(body, qos)
    source_id, user, topic = body.take(id_n, "client id"), body.take(user_n, "user name"), body.take(topic_n, "topic")
    if not topic:
        raise body.error("no topic; expected at least one byte")
    payload = None
    if with_payload:
        payload = body.take(payload_bytes, "payload")
    else:
        body.skip(payload_bytes, "payload")
    return Message(
        at,
        number,
        checked_time(body, expires_s),
        source_id,
        user,
        topic,
        qos,
        bool(retain),
        payload_bytes,
        block(body),
        payload,
        port,
        pid,
    )


def read_client_message(body: Body, at: int) -> ClientMessage:
    number, ids, qos, state, retain_dup, direction = body.part(CLIENT_MESSAGE_PART)
    pid, id_n = struct.unpack(">HH", ids)
    checked_qos(body, qos)
    if direction > OUT:
        raise body.error(f"direction {direction}; expected 0 (from the client) or 1 (to it)")
    if not 0 < state <= QUEUED:
        raise body.error(f"state {state}; expected 1 to {QUEUED}")
    client_id = body.take(id_n, "client id")
    data = block(body)
    sub_id = 0
    if data:
        head = varint(data[1:])
        if data[0] != 11 or head is None or head[1] != len(data) - 1:
            raise body.error("properties; expected a Subscription Identifier alone")
        sub_id = head[0]
    return ClientMessage(
        at, number, client_id, pid, qos, state, bool(retain_dup >> 4), bool(retain_dup & 15), direction, sub_id
    )


def read_subscription(body: Body, at: int) -> Subscription:
    numbers, qos, options = body.part(SUBSCRIPTION_PART)
    sub_id, id_n, filter_n = struct.unpack(">IHH", numbers)
    if sub_id > SUB_ID_MAX:
        raise body.error(f"a subscription identifier of {sub_id}; expected at most {SUB_ID_MAX}")
    checked_qos(body, qos)
    client_id, filter = body.take(id_n, "client id"), body.take(filter_n, "filter")
    body.end()
    return Subscription(at, client_id, filter, (options & 0x3C) | qos, sub_id)


def read_client(body: Body, at: int, format: int) -> Client:
    if format == 5:
        ends_s, numbers = body.part(CLIENT_PART_5)
        expiry_s, last_pid, id_n = struct.unpack(">IHH", numbers)
        port = user_n = 0
    else:
        ends_s, numbers = body.part(CLIENT_PART_6)
        expiry_s, last_pid, id_n, port, user_n = struct.unpack(">IHHHH", numbers)
    client_id, user = body.take(id_n, "client id"), body.take(user_n, "user name")
    body.end()
    return Client(at, client_id, user or None, checked_time(body, ends_s), expiry_s, last_pid, port)


class MosquittoFile:
    """Hold an open file. `chunks` may be called more than once; `warnings` lists skipped chunks."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.warnings: list[str] = []
        self._file = open(path, "rb")  # noqa: SIM115 - closed by close()
        self.size = os.fstat(self._file.fileno()).st_size
        try:
            self.format = self._header()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "MosquittoFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def where(self, place: int, text: str) -> str:
        """Return a text about a chunk, with its place."""
        return str(FormatError(self.path, place, text))

    def _header(self) -> int:
        data = self._file.read(HEADER.size)
        if data[:15] != MAGIC:
            what = "not a persistence file of Mosquitto" if data else "the file is empty"
            raise FormatError(self.path, 0, f"{what}; expected the bytes 00 B5 00 and `mosquitto db`, or "
                                            "the database of persist-sqlite")
        if len(data) < HEADER.size:
            raise FormatError(self.path, len(data), f"the file ends; expected a header of {HEADER.size} bytes")
        format: int = HEADER.unpack(data)[2]
        if format not in FORMATS:
            older = "; a start and stop of Mosquitto 2 with it writes it again" if 2 <= format < 5 else ""
            raise FormatError(self.path, 19, f"format {format}; expected 5 (Mosquitto 1.6) or 6 (2.0, 2.1){older}")
        return format

    def chunks(self, with_payload: bool = True) -> "Iterator[Chunk]":
        """Yield all chunks in their order. Raises FormatError at the first wrong one; an unknown type is skipped."""
        at = HEADER.size
        self._file.seek(at)
        while at < self.size:
            head = self._file.read(CHUNK.size)
            if len(head) < CHUNK.size:
                raise FormatError(self.path, at, f"the file ends; expected a chunk's header of {CHUNK.size} bytes")
            kind, length = CHUNK.unpack(head)
            what = NAMES.get(kind, f"chunk of type {kind}")
            body = Body(self._file, self.path, at + CHUNK.size, length, what)
            if length > self.size - at - CHUNK.size:
                raise FormatError(
                    self.path,
                    at + 4,
                    f"a {what} of {length} bytes; expected at most "
                    f"{self.size - at - CHUNK.size}, the rest of the file",
                )
            if kind in NAMES:
                yield self._chunk(kind, body, at, with_payload)
            else:
                body.skip(length, "the chunk")
                self.warnings.append(f"{self.path}: byte {at}: skipped a chunk of unknown type {kind}")
            at += CHUNK.size + length

    def message_at(self, offset: int) -> Message:
        """Return a stored message with its payload, by the offset that `chunks` reported.

        Not during a call of `chunks`.
        """
        self._file.seek(offset)
        kind, length = CHUNK.unpack(self._file.read(CHUNK.size))
        assert kind == MESSAGE
        return read_message(Body(self._file, self.path, offset + CHUNK.size, length, NAMES[kind]), offset, True)

    def _chunk(self, kind: int, body: Body, at: int, with_payload: bool) -> Chunk:
        if kind == MESSAGE:
            return read_message(body, at, with_payload)
        if kind == CLIENT_MESSAGE:
            return read_client_message(body, at)
        if kind == SUBSCRIPTION:
            return read_subscription(body, at)
        if kind == CLIENT:
            return read_client(body, at, self.format)
        if kind == CONFIG:
            return read_config(body, at)
        found = Retain(at, body.part(RETAIN_PART)[0])
        body.end()
        return found
