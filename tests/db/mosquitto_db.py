"""Write a persistence file of Mosquitto chunk by chunk."""

import struct

MAGIC = b"\x00\xb5\x00mosquitto db"
NEVER = 0xFFFFFFFF


def header(format: int = 6) -> bytes:
    return struct.pack(">15sII", MAGIC, 0, format)


def chunk(kind: int, body: bytes) -> bytes:
    return struct.pack(">II", kind, len(body)) + body


def config(last_id: int = 9, id_size: int = 8) -> bytes:
    return chunk(1, struct.pack("<QBB6x", last_id, 1, id_size))


def properties(block: bytes) -> bytes:
    return bytes([len(block)]) + block if block else b""


def message(id: int, topic: bytes, payload: bytes = b"", qos: int = 1, retain: int = 0, expires_s: int = 0, props: bytes = b"",
            source: bytes = b"", user: bytes = b"", port: int = 1883) -> bytes:
    return chunk(2, struct.pack("<Qq", id, expires_s)
                 + struct.pack(">IHHHHHBB", len(payload), 1, len(source), len(user), len(topic), port, qos, retain)
                 + source + user + topic + payload + properties(props))


def client_message(id: int, client_id: bytes, pid: int, qos: int = 1, state: int = 11, direction: int = 1, retain_dup: int = 0,
                   sub_id: int = 0) -> bytes:
    return chunk(3, struct.pack("<Q", id) + struct.pack(">HHBBBB", pid, len(client_id), qos, state, retain_dup, direction)
                 + client_id + properties(bytes([11, sub_id]) if sub_id else b""))


def retain(id: int) -> bytes:
    return chunk(4, struct.pack("<Q", id))


def subscription(client_id: bytes, filter: bytes, qos: int = 1, options: int = 0, sub_id: int = 0) -> bytes:
    return chunk(5, struct.pack(">IHHBB2x", sub_id, len(client_id), len(filter), qos, options) + client_id + filter)


def client(client_id: bytes, ends_s: int = 0, expiry_s: int = NEVER, last_pid: int = 0, user: bytes = b"", port: int = 1883) -> bytes:
    return chunk(6, struct.pack("<q", ends_s) + struct.pack(">IHHHH4x", expiry_s, last_pid, len(client_id), port, len(user))
                 + client_id + user)


def client_5(client_id: bytes, ends_s: int = 0, expiry_s: int = NEVER, last_pid: int = 0) -> bytes:
    return chunk(6, struct.pack("<q", ends_s) + struct.pack(">IHH", expiry_s, last_pid, len(client_id)) + client_id)
