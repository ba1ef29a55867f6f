"""Read the streams of a broker with the public reader."""

from __future__ import annotations

from pathlib import Path

from mosq.journal.stream import Record, Stream
from tests.durable.test_restart import KEEP, Kept
from tests.harness.broker import has_workers
from tests.harness.faults import until

MESSAGE = 1


def folder(broker: Kept, name: str = "all") -> Path:
    return broker.dir / "mosquitto.db.store" / "streams" / name


def all_records(stream: Stream) -> list[Record]:
    """Return the records of all workers in the order of their times."""
    marks = stream.marks()              # numbers without a shard have an empty one
    found = [r for shard in stream.shards() for r in stream.read(marks[shard].first_seq, 1 << 40, shard=shard)]
    return sorted(found, key=lambda r: (r.time_us, r.seq))


def records(broker: Kept, n: int, name: str = "all", shard: int = 0) -> list[Record]:
    """Return the records when that many exist, which takes about a second."""
    stream = Stream(folder(broker, name))
    if has_workers():
        until(lambda: sum(mark.seq for mark in stream.marks()) >= n)
        found = all_records(stream)
        assert len(found) == n
        return found
    until(lambda: stream.marks()[shard].seq >= n)
    found = list(stream.read(0, 1 << 40, shard=shard))
    assert [r.seq for r in found] == list(range(n))
    return found


def stopped(broker: Kept, name: str = "all", shard: int = 0) -> list[Record]:
    """Stop the broker and return all records: a stopped broker leaves none behind its mark."""
    assert broker.stop() == 0
    stream = Stream(folder(broker, name))
    if has_workers():
        return all_records(stream)
    return list(stream.read(stream.marks()[shard].first_seq, 1 << 40, shard=shard))


def payloads(found: list[Record]) -> list[bytes]:
    return [r.payload for r in found]


def keeping(*lines: str) -> str:
    return KEEP + "".join(f"{line}\n" for line in lines)
