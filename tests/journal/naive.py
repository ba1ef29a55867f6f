"""Read a stream's files in Python, with the tables of docs/journal.md only."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from mosq._core import crc
from tests.journal.disk import DIR, FolderDisk

HEAD = 4096


def salted(seed: int, place: int, data: bytes) -> int:
    """Return the CRC-32C of data, continued from the seed over the place."""
    return extended_crc(extended_crc(seed, struct.pack("<Q", place)), data)


TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def extended_crc(state: int, data: bytes) -> int:
    c = state ^ 0xFFFFFFFF
    for byte in data:
        c = TABLE[(c ^ byte) & 255] ^ c >> 8
    return c ^ 0xFFFFFFFF


def head_of(data: bytes, at: int = 0) -> dict[str, int | bytes]:
    magic, form, used, stream, shard, shards, base, salt, made, time, number = struct.unpack_from("<8sII16sIIQQQQQ", data, at)
    assert magic == b"mosqjrn\n" and form == 1 and used == HEAD
    assert struct.unpack_from("<I", data, at + 84)[0] == crc(data[at:at + 84])
    n, = struct.unpack_from("<I", data, at + 92)
    seed = extended_crc(0, stream + struct.pack("<IQQ", shard, base, salt))
    if n:
        assert struct.unpack_from("<I", data, at + 88)[0] == extended_crc(seed, data[at + 92:at + 160])
    else:
        assert not any(data[at + 88:at + 160])
    assert not any(data[at + 96 + n:at + 2048])
    return {"node": bytes(data[at + 96:at + 96 + n]).decode(), "stream": stream, "shard": shard, "shards": shards, "base": base, "number": number, "made": made, "time": time,
            "seed": seed}


def blocks_of(data: bytes) -> Iterator[tuple[int, dict[str, int], list[tuple[int, ...]]]]:
    """Yield (offset, head, records as (kind, flags, reason, delta, topic, client, user, properties, payload))."""
    seed = head_of(data)["seed"]
    at = HEAD
    while at < len(data):
        head_crc, body_crc, n, count, first, time, commit, span, zero = struct.unpack_from("<IIIIQQQII", data, at)
        body = data[at + 48:at + 48 + n]
        assert zero == 0 and n % 8 == 0 and len(body) == n
        assert head_crc == salted(seed, at, data[at + 4:at + 48])
        assert body_crc == salted(seed, at, body)
        yield at, {"first": first, "count": count, "time": time, "commit": commit, "span": span, "n": n}, list(records_of(body, count))
        at += 48 + n


def records_of(body: bytes, count: int) -> Iterator[tuple]:
    at = 0
    for _ in range(count):
        n, kind, flags, reason, zero, delta, topic, client, user, none, properties, payload = struct.unpack_from("<IBBBBIHHHHII", body, at)
        assert zero == none == 0 and n % 8 == 0
        parts, p = [], at + 28
        for size in (topic, client, user, properties, payload):
            parts.append(body[p:p + size])
            p += size
        assert not any(body[p:at + n]) and at + n - p < 8
        yield (kind, flags, reason, delta, *parts)
        at += n
    assert at == len(body)


def mark_of(data: bytes) -> dict[str, object]:
    magic, form, n, stream, generation, made = struct.unpack_from("<8sII16sQQ", data)
    assert magic == b"mosqmrk\n" and form == 1 and len(data) == 48 + n * 48 + 4
    assert struct.unpack_from("<I", data, len(data) - 4)[0] == crc(bytes(data[:-4]))
    return {"stream": stream, "generation": generation, "made": made,
            "shards": [struct.unpack_from("<QQQQQQ", data, 48 + i * 48) for i in range(n)]}


def file(disk: FolderDisk, name: str) -> bytes:
    return bytes(disk.files[f"{DIR}/{name}"].data)
