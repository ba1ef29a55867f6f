"""Reads a stream's folder, with or without a running broker. Takes no lock and changes only the marks of consumers."""

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mosq import _core
from mosq.journal.parts import STRIDE, consumers_of, divided, marks_of, part_folder, reader_of, shards_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SEGMENT = re.compile(r"\d{3}-(\d{20})(?:-\d+)?\.seg")
CONSUMER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


class Record(NamedTuple):
    """A record of a stream."""
    seq: int
    time_us: int  # wall clock in microseconds: received by the broker
    commit_us: int  # wall clock in microseconds: written
    kind: int  # kinds.py
    qos: int
    retain: bool
    dup: bool
    reason: int
    topic: str
    client_id: str
    username: str | None
    properties: bytes
    payload: bytes
    cluster_node: str | None = None  # node of a cluster that received it; None: no cluster, or an earlier version


class Mark(NamedTuple):
    """The mark of a shard: records from first_seq on exist, and those below seq are on disk."""

    first_seq: int
    seq: int
    time_us: int  # largest time of a record, in microseconds


class Range(NamedTuple):
    """A range of missing sequence numbers."""
    shard: int
    why: str  # "damaged", "missing", or "retired" by retention
    lo: int
    hi: int  # first number after the range

    def __str__(self) -> str:
        if self.why == "more":
            return f"shard {self.shard}: {self.hi} more ranges"
        state = {"damaged": "damaged", "missing": "missing", "retired": "no longer kept"}[self.why]
        return f"shard {self.shard}: {self.lo} to {self.hi - 1} are {state}"


class Lost(Exception):  # noqa: N818 - not an error of the reader
    """Requested records are missing. `range` names them; reading may continue at `range.hi`."""

    def __init__(self, range: Range) -> None:
        super().__init__(str(range))
        self.range = range


def _record(raw: "_core.Record", node: str | None) -> Record:
    seq, time_us, commit_us, kind, flags, reason, topic, client_id, username, properties, payload = raw
    return Record(
        seq,
        time_us,
        commit_us,
        kind,
        flags & 3,
        bool(flags & 4),
        bool(flags & 8),
        reason,
        topic.decode(errors="replace"),
        client_id.decode(errors="replace"),
        None if username is None else username.decode(errors="replace"),
        properties,
        payload,
        node,
    )


def report_lost(range: Range, lost: "Callable[[Range], object] | None") -> None:
    """Pass a missing range to `lost`; raise Lost if it is None."""
    if lost is None:
        raise Lost(range)
    lost(range)


class Stream:
    """A stream's folder. Methods raise FileNotFoundError if there is no stream, OSError if it cannot be read."""
    def __init__(self, path: "str | os.PathLike[str]") -> None:
        self.path = Path(path)

    def _reader(self, shard: int) -> _core.PyReader:
        try:
            return reader_of(self.path, shard)
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no stream in {self.path}") from None

    def marks(self) -> list[Mark]:
        """Return the mark of each shard. Numbers without a shard (parts.py) have an empty one."""
        try:
            marks = marks_of(self.path)
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no stream in {self.path}") from None
        return [Mark(mark["first_seq"], mark["seq"], mark["time_us"]) for mark in marks["shards"]]

    def shards(self) -> list[int]:
        """Return the numbers of the shards: 0, 1, ...; with several workers, those of worker W from 64 * W on."""
        return shards_of(self.path)

    def sizes(self, shard: int = 0) -> list[tuple[int, int]]:
        """Return (first sequence number, bytes of the file) of each segment, the oldest first."""
        found = {}
        part, number = divmod(shard, STRIDE)
        for file in sorted(part_folder(self.path, part).glob(f"{number:03d}-*.seg")):
            if named := SEGMENT.fullmatch(file.name):
                with suppress(FileNotFoundError):  # removed by retention during the loop
                    found[int(named[1])] = file.stat().st_size
        return sorted(found.items())

    def read(
        self,
        from_seq: int = 0,
        to_seq: int | None = None,
        shard: int = 0,
        lost: "Callable[[Range], object] | None" = None,
    ) -> "Iterator[Record]":
        """Yield the records from from_seq up to, not including, to_seq; without to_seq, all that are on disk now.
        Missing ranges are passed to `lost`; without `lost` they raise `Lost`."""
        reader = self._reader(shard)
        reader.seek(from_seq)
        until = reader.end if to_seq is None else to_seq
        while True:
            records = reader.read(until, 256)
            holes = [Range(*range)._replace(shard=shard) for range in reader.take_lost()]
            node = reader.node  # of all these records
            for record in (_record(raw, node) for raw in records):
                while holes and holes[0].lo < record.seq:
                    report_lost(holes.pop(0), lost)
                yield record
            for hole in holes:
                report_lost(hole, lost)
            if not records:
                return

    def seq_at(self, time_us: int, shard: int = 0) -> int:
        """Return the number of the first record with this time or a later one; without one, the next number to be
        written."""
        try:
            return self._reader(shard).seek_time(time_us)
        except FileNotFoundError:
            if shard < STRIDE:
                raise
            return 0                    # a number without a shard

    # ---- consumers: retention keeps records that a consumer has not read

    def consumer(self, name: str) -> list[int] | None:
        """Return the first number that the consumer has not done, for each shard; None if there is no such consumer.
        Raises ValueError if its mark is damaged."""
        found = consumers_of(self.path)
        if name not in found:
            return None
        mark = found[name]
        if mark is None:
            raise ValueError(f"{self.path}/consumers/{name} is damaged: write it again, or remove it")
        return mark[1]

    def put_consumer(self, name: str, seqs: "Sequence[int]") -> None:
        """Record that the consumer has done all records below these numbers, one per shard. Synced to disk on return.
        Raises ValueError for an invalid name, OSError."""
        if not CONSUMER.fullmatch(name):
            raise ValueError(f"{name!r} is not a consumer's name: 1 to 64 letters, digits, '-', '_', '.' (not first)")
        for place, own in divided(self.path, seqs):
            self._put_mark(place / "consumers", name, own)

    @staticmethod
    def _put_mark(folder: Path, name: str, seqs: "Sequence[int]") -> None:
        new = folder / f".{name}.{os.getpid()}"
        with new.open("wb") as out:
            out.write(_core.consumer_mark(seqs, time.time_ns() // 1000))
            out.flush()
            os.fsync(out.fileno())
        new.replace(folder / name)
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
