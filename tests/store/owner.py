"""Provide an owner of a store, like the broker: a table of keys whose changes are records. It replays, appends and reports
live records."""

from __future__ import annotations

from mosq._core import NEWS, PyStore
from tests.store.disk import Disk

PUT, DEL = 1, 2
SEGMENT = 16384
Table = dict[int, bytes]


def record_bytes(body: bytes) -> int:
    return 12 + (len(body) + 3) // 4 * 4


class Owner:
    """A table of keys in a store. It runs the storage thread's turns itself, so that each run is the same."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.store = PyStore("/d", segment_bytes=SEGMENT, disk=disk)
        records, self.loss = self.store.recover()
        assert disk.broken is None, disk.broken
        self.table: Table = {}
        self.place: dict[int, int] = {}  # key -> lsn
        self.live_bytes = 0
        self.news: list[str] = []
        self.log: list[tuple[int, int, bytes | None]] = []  # every change: lsn, key, value
        self.replayed = records
        for lsn, kind, _, body in records:
            self._count(lsn, kind, body)
        self.store.live(self.live_bytes)

    def _count(self, lsn: int, kind: int, body: bytes) -> None:
        key = int.from_bytes(body[:4], "little")
        self.log.append((lsn, key, body[4:] if kind == PUT else None))
        old = self.table.pop(key, None)
        self.place.pop(key, None)
        if old is not None:
            self.live_bytes -= record_bytes(b"KKKK" + old)
        if kind == PUT:
            self.table[key] = body[4:]
            self.place[key] = lsn
            self.live_bytes += record_bytes(body)

    def put(self, key: int, value: bytes) -> None:
        body = key.to_bytes(4, "little") + value
        self._count(self.store.append(PUT, body), PUT, body)

    def delete(self, key: int) -> None:
        body = key.to_bytes(4, "little")
        self._count(self.store.append(DEL, body), DEL, body)

    def seal(self, sync: bool = False) -> int:
        self.store.live(self.live_bytes)
        return self.store.seal(sync)

    def turn(self) -> set[str]:
        self.store.turn()
        assert self.disk.broken is None, self.disk.broken
        return self.poll()

    def poll(self) -> set[str]:
        bits = self.store.poll()
        news = {name for name, bit in NEWS.items() if bits & bit}
        self.news += sorted(news)
        return news

    def clean(self, most: int = 50) -> int:
        """Clean one chunk; return the number of its records."""
        records = self.store.clean_chunk(most)
        for lsn, kind, _, body in records:
            key = int.from_bytes(body[:4], "little")
            if kind == PUT and self.place.get(key) == lsn:
                self.put(key, body[4:])
        if records:
            self.store.clean_done()
        return len(records)

    def settle(self, sync: bool = False, turns: int = 200) -> None:
        """Run turns until no work is left."""
        for _ in range(turns):
            end = self.seal(sync)
            news = self.turn()
            if not self.clean() and not news and self.store.written() == end and self.store.stats()["segments"] < 400:
                before = self.store.stats()
                self.turn()
                if self.store.stats() == before:
                    return

    def segment_files(self) -> dict[str, int]:
        return {name: len(f.data) for name, f in self.disk.files.items() if name.startswith("segment")}
