"""Provide streams for tests: a folder of them as a broker makes it, written through the journal's test API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mosq._core import PyJournal, shard_of

T0_US = 1_790_000_000_000_000       # 2026-09-21


class Journal:
    """Hold a stream that is being written: `put` and then `commit`."""

    def __init__(self, folder: Path, name: str = "telemetry", shards: int = 1, **options: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / name
        self.shards = shards
        self.face = PyJournal(self.path, shards=shards, **options)
        self.now_us = T0_US
        self.n = 0

    def put(self, topic: str = "a/b", payload: bytes = b"", *, kind: int = 1, client_id: str = "c", username: str | None = None,
            flags: int = 0, reason: int = 0, properties: bytes = b"", shard: int | None = None) -> tuple[int, int]:
        """Append a record; return (shard, seq)."""
        raw = topic.encode()
        where = shard_of(raw, self.shards) if shard is None else shard
        self.now_us += 1000
        self.n += 1
        name = None if username is None else username.encode()
        seq, _ = self.face.append(where, kind, raw, client_id.encode(), name, properties, payload, flags, reason, self.now_us)
        return where, seq

    def commit(self) -> None:
        self.face.seal()
        assert self.face.write(self.now_us + 500) and self.face.sync() and self.face.mark(self.now_us + 500)

    def fill(self, n: int, topics: int = 7, size: int = 8) -> None:
        """Append and commit n messages whose payloads are their numbers."""
        for _ in range(n):
            self.put(f"t/{self.n % topics}", b"%0*d" % (size, self.n))
        self.commit()

    def close(self) -> None:
        self.face.close()
