"""Provide the store's disk with folders, and a stream on it: its writer and the appended records, so that each run is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mosq._core import PyJournal, PyReader
from tests.store.disk import Disk, File

if TYPE_CHECKING:
    from mosq._core import Record

SEGMENT = 8192
DIR = "/d/s"


class FolderDisk(Disk):
    def name_of(self, path: str) -> str:
        return path

    def names(self, path: str) -> list[str]:
        return [name.rsplit("/", 1)[1] for name in self.files if name.rsplit("/", 1)[0] == path]

    def put(self, path: str, data: bytes) -> None:
        """Put a file on the disk, as if another process had written it."""
        file = File()
        file.data, file.durable = bytearray(data), bytearray(data)
        self.files[path] = self.durable_names[path] = file

    def segments(self, kind: str = "seg") -> list[str]:
        return sorted(name for name in self.files if name.endswith("." + kind))


def first_of(name: str) -> int:
    """Return the number of a segment's first record, from its name."""
    return int(name[-45:-25])


def content(record: Record) -> tuple[bytes, bytes, int]:
    return record[6], record[10], record[1]


class Stream:
    """Hold a stream; `appended[shard][seq]`: topic, payload and time of each record that has that number now, `nodes[shard][seq]`: the node
    that has appended it. Each start is that of another node."""

    def __init__(self, disk: FolderDisk, shards: int = 1, **options: int) -> None:
        self.disk = disk
        self.options = {"segment_bytes": SEGMENT, "block_bytes": 4096, **options}
        self.shards = shards
        self.appended: list[dict[int, tuple[bytes, bytes, int]]] = [{} for _ in range(64)]
        self.nodes: list[dict[int, str | None]] = [{} for _ in range(64)]
        self.count = self.starts = 0
        self.clock_us = 1000
        self.open()

    def open(self) -> None:
        self.node = f"node.{self.starts}" if self.starts % 4 else None
        self.starts += 1
        self.face = PyJournal(DIR, shards=self.shards, disk=self.disk, now_us=self.clock_us, node=(self.node or "").encode(), **self.options)
        assert self.disk.broken is None, self.disk.broken

    def append(self, size: int = 10, shard: int = 0, step_us: int = 1) -> int:
        self.count += 1
        self.clock_us += step_us
        row = (b"t/%d" % self.count, bytes([self.count & 255]) * size, self.clock_us)
        seq, _ = self.face.append(shard, topic=row[0], payload=row[1], time_us=row[2])
        self.appended[shard][seq] = row
        self.nodes[shard][seq] = self.node
        return seq

    def write(self) -> bool:
        self.face.seal()
        return self.face.write(self.clock_us)

    def commit(self) -> None:
        """Append, write, sync and report."""
        assert self.write(), self.face.why()
        assert self.face.sync(), self.face.why()
        assert self.face.mark(self.clock_us), self.face.why()
        assert self.disk.broken is None, self.disk.broken

    def fill(self, n: int, size: int = 10, shard: int = 0, each: int = 1) -> None:
        """Append n records, committed in blocks of `each`."""
        for i in range(n):
            self.append(size, shard)
            if i % each == each - 1:
                self.commit()
        self.commit()

    def kill(self) -> None:
        self.face.close()
        self.disk.kill()

    def reader(self, shard: int = 0) -> PyReader:
        return PyReader(DIR, shard, disk=self.disk)

    def read(self, shard: int = 0, seq: int = 0) -> tuple[list[Record], list[tuple[int, str, int, int]]]:
        """Read everything from seq on; return the records and the losses."""
        reader = self.reader(shard)
        reader.seek(seq)
        records = []
        while got := reader.read():
            self.check_nodes(shard, reader, got)
            records += got
        assert self.disk.broken is None, self.disk.broken
        return records, reader.lost()

    def check_nodes(self, shard: int, reader: PyReader, records: list[Record]) -> None:
        """Check that these records, the result of the reader's last call, are those of its node."""
        nodes = self.nodes[shard]
        assert {nodes[record[0]] for record in records if record[0] in nodes} <= {reader.node}

    def check(self, shard: int = 0, lost: list[tuple[int, str, int, int]] | None = None) -> None:
        """Check that the read records are the appended ones, except `lost`."""
        records, told = self.read(shard)
        assert told == (lost or [])
        gone = {seq for _, _, lo, hi in told for seq in range(lo, hi)}
        end = self.reader(shard).end
        assert [r[0] for r in records] == [seq for seq in range(end) if seq not in gone]
        for record in records:
            assert content(record) == self.appended[shard][record[0]]
