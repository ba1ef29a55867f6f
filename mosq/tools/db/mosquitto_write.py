"""Write the chunks of a persistence file of Mosquitto in format 6 (2.0, 2.1). mosquitto_file.py describes the format.

Knows bytes, not where the content comes from. Each function returns one whole chunk. Lengths and packet ids are in
network order; ids of stored messages and times are little-endian, as Mosquitto writes them on the usual machines.
"""

import struct

from mosq.tools.db.mosquitto_format import (
    CHUNK,
    CLIENT,
    CLIENT_MESSAGE,
    CONFIG,
    CONFIG_PART,
    HEADER,
    MAGIC,
    MESSAGE,
    RETAIN,
    RETAIN_PART,
    SUBSCRIPTION,
)
from mosq.varint import varint

FORMAT = 6
ID_BYTES = 8
OPTION_FLAGS = 0x3C  # no local, retain as published, retain handling
SUBSCRIPTION_ID = b"\x0b"

_MESSAGE_ID = struct.Struct("<Qq")  # id, expiry time
_MESSAGE_REST = struct.Struct(">IHHHHHBB")  # payload, packet id, three lengths, port, qos, retain
_CLIENT_MESSAGE_ID = struct.Struct("<Q")
_CLIENT_MESSAGE_REST = struct.Struct(">HHBBBB")
_SUBSCRIPTION = struct.Struct(">IHHBB2x")
_CLIENT_ENDS = struct.Struct("<q")
_CLIENT_REST = struct.Struct(">IHHHH4x")


def header() -> bytes:
    """Return the beginning of a file."""
    return HEADER.pack(MAGIC, 0, FORMAT)


def config(last_id: int) -> bytes:
    """Return the chunk with the last id of a stored message."""
    return _chunk(CONFIG, CONFIG_PART.pack(last_id, 1, ID_BYTES))


def message(  # parameters: the fields of the chunk
    id: int,
    topic: bytes,
    payload: bytes,
    properties: bytes,
    qos: int,
    retain: bool,
    expires_s: int = 0,
    publisher: bytes = b"",
    username: bytes = b"",
    port: int = 0,
    pid: int = 0,
) -> bytes:
    """Return a stored message; `properties` is a block without its length. `pid`: the packet id that its publisher
    gave it. Mosquitto needs it for inbound QoS 2: it finds a repeated PUBLISH by it."""
    head = _MESSAGE_ID.pack(id, expires_s) + _MESSAGE_REST.pack(
        len(payload), pid, len(publisher), len(username), len(topic), port, qos, retain
    )
    return _chunk(MESSAGE, b"".join((head, publisher, username, topic, payload, _block(properties))))


def client_message(  # parameters: the fields of the chunk
    id: int, client_id: bytes, pid: int, qos: int, state: int, direction: int, retain: bool, dup: bool, sub_id: int
) -> bytes:
    """Return a delivery of the stored message `id` to a client, or its publication by the client."""
    head = _CLIENT_MESSAGE_ID.pack(id) + _CLIENT_MESSAGE_REST.pack(
        pid, len(client_id), qos, state, retain << 4 | dup, direction
    )
    return _chunk(CLIENT_MESSAGE, head + client_id + _block(SUBSCRIPTION_ID + varint(sub_id) if sub_id else b""))


def retain(id: int) -> bytes:
    """Return the mark of a retained message."""
    return _chunk(RETAIN, RETAIN_PART.pack(id))


def subscription(client_id: bytes, filter: bytes, options: int, sub_id: int) -> bytes:
    """Return a subscription; `options` is the byte of SUBSCRIBE."""
    head = _SUBSCRIPTION.pack(sub_id, len(client_id), len(filter), options & 3, options & OPTION_FLAGS)
    return _chunk(SUBSCRIPTION, head + client_id + filter)


def client(client_id: bytes, username: bytes, ends_s: int, expiry_s: int, last_pid: int, port: int = 0) -> bytes:
    """Return a session. `ends_s`: wall clock, 0 for never."""
    head = _CLIENT_ENDS.pack(ends_s) + _CLIENT_REST.pack(expiry_s, last_pid, len(client_id), port, len(username))
    return _chunk(CLIENT, head + client_id + username)


def _block(properties: bytes) -> bytes:
    return varint(len(properties)) + properties if properties else b""


def _chunk(kind: int, body: bytes) -> bytes:
    return CHUNK.pack(kind, len(body)) + body
