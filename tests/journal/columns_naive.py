"""Make columns in plain Python, as an oracle of the decoder, and read Arrow's layout back."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mosq._core import Record

FIXED = {"shard": "i", "seq": "q", "time_us": "q", "commit_us": "q", "kind": "b", "qos": "b", "reason": "h"}
BITS = ("retain", "dup")
TEXTS = ("topic", "client_id", "username", "payload", "properties")


def naive(shard: int, records: list[Record]) -> dict[str, list[object]]:
    return {
        "shard": [shard for _ in records], "seq": [r[0] for r in records], "time_us": [r[1] for r in records], "commit_us": [r[2] for r in records],
        "kind": [r[3] for r in records], "qos": [r[4] & 3 for r in records], "reason": [r[5] for r in records],
        "retain": [bool(r[4] & 4) for r in records], "dup": [bool(r[4] & 8) for r in records],
        "topic": [r[6] or None for r in records], "client_id": [r[7] or None for r in records], "username": [r[8] for r in records],
        "payload": [r[10] if r[3] == 1 or r[10] else None for r in records], "properties": [r[9] or None for r in records],
    }


def bit(data: bytes, i: int) -> bool:
    return bool(data[i // 8] >> i % 8 & 1)


def unpacked(rows: int, columns: dict[str, tuple[int, list[object]]]) -> dict[str, list[object]]:
    out: dict[str, list[object]] = {}
    for name, (nulls, buffers) in columns.items():
        raw = [None if b is None else bytes(b) for b in buffers]    # type: ignore[call-overload]
        valid = [raw[0] is None or bit(raw[0], i) for i in range(rows)]
        assert valid.count(False) == nulls
        if name in FIXED:
            out[name] = list(struct.unpack(f"<{rows}{FIXED[name]}", raw[1]))
        elif name in BITS:
            assert len(raw[1]) == (rows + 7) // 8
            out[name] = [bit(raw[1], i) for i in range(rows)]
        else:
            offsets = struct.unpack(f"<{rows + 1}i", raw[1])
            assert offsets[0] == 0 and offsets[-1] == len(raw[2])
            out[name] = [raw[2][offsets[i]:offsets[i + 1]] if valid[i] else None for i in range(rows)]
    return out
