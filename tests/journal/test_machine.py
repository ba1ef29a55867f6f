"""Test a stream's test API in any order, over a disk that fails, is cut off, and loses unsynced data, beside a naive model.

Invariants: a number that a reader has seen means the same record for ever; up to the mark every number exists, or is below the records that retention
dropped; after a kill no written record is lost, whatever failed before it; after a power cut no record below the mark is lost.
"""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mosq._core import PyReader, consumer_mark
from tests.harness.effort import tries
from tests.journal.disk import DIR, SEGMENT, FolderDisk, Stream, content

SHARDS = st.integers(0, 1)


@st.composite
def faults(draw: st.DrawFn) -> dict[str, list[int | str]]:
    """Draw the results of the next calls of some kind."""
    call = draw(st.sampled_from(["pwrite", "datasync", "open", "unlink", "rename", "sync_dir"]))
    what = draw(st.sampled_from(["short", errno.EIO, errno.ENOSPC, errno.EINTR]))
    if what in ("short", errno.EINTR) and call != "pwrite":
        what = errno.EIO
    return {call: ["ok"] * draw(st.integers(0, 4)) + [what] * draw(st.integers(1, 3))}


FAULTS = faults()


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = FolderDisk()
        self.stream = Stream(self.disk, 2, retain_bytes=6 * SEGMENT, retain_age_us=60)
        self.seen: list[dict[int, tuple[bytes, bytes, int]]] = [{}, {}]
        self.live: list[PyReader | None] = [None, None]
        self.consumed = [0, 0]
        self.committed = [0, 0]  # end of the written records, which an owner may have promised
        self.batch = [0, 0]  # the same, as its store knows it

    # ---- actions of the owner

    @rule(shard=SHARDS, n=st.integers(1, 9), size=st.sampled_from([0, 3, 100, 700, 5000]), step=st.integers(0, 20))
    def append(self, shard: int, n: int, size: int, step: int) -> None:
        for _ in range(n):
            self.stream.append(size, shard, step)

    @rule()
    def seal(self) -> None:
        self.stream.face.seal()

    @rule()
    def write(self) -> None:
        self.stream.face.write(self.stream.clock_us)
        for shard in range(2):
            self.committed[shard] = max(self.committed[shard], self.stream.face.written(shard))

    @rule()
    def owner_commits(self) -> None:
        self.batch = self.committed.copy()

    @rule(n=st.integers(1, 6), size=st.sampled_from([10, 900]))
    def work(self, n: int, size: int) -> None:
        for i in range(n):
            self.append(i & 1, 4, size, 1)
            self.seal()
            self.write()
            if i % 3 == 2:
                self.sync()
                self.mark()

    @rule()
    def sync(self) -> None:
        self.stream.face.sync()

    @rule()
    def mark(self) -> None:
        self.stream.face.mark(self.stream.clock_us)

    @rule()
    def retain(self) -> None:
        self.stream.face.retain(self.stream.clock_us)

    @rule(data=st.data())
    def consume(self, data: st.DataObject) -> None:
        ends = [mark["seq"] for mark in self.stream.face.marks()["shards"]]
        self.consumed = [data.draw(st.integers(0, end)) for end in ends]
        self.disk.put(f"{DIR}/consumers/c", consumer_mark(self.consumed, 1))

    # ---- actions of a reader

    def look(self, shard: int, record: tuple[object, ...]) -> None:
        row = content(record)
        assert self.seen[shard].setdefault(record[0], row) == row == self.stream.appended[shard][record[0]]

    @rule(shard=SHARDS)
    def read(self, shard: int) -> None:
        faults, self.disk.faults = self.disk.faults, {}
        records, lost = self.stream.read(shard)
        first, end = self.bounds(shard)
        assert lost == ([(shard, "retired", 0, first)] if first else [])
        assert [r[0] for r in records] == list(range(first, end))
        for record in records:
            self.look(shard, record)
        self.disk.faults = faults

    @rule(shard=SHARDS, most=st.integers(1, 40))
    def follow(self, shard: int, most: int) -> None:
        faults, self.disk.faults = self.disk.faults, {}
        reader = self.live[shard]
        if reader is None:
            reader = self.live[shard] = self.stream.reader(shard)
        reader.refresh()
        before = reader.seq
        records = reader.read(most=most)
        self.stream.check_nodes(shard, reader, records)
        for record in records:
            self.look(shard, record)
        assert all(why == "retired" for _, why, _, _ in reader.lost())
        gone = {seq for _, _, lo, hi in reader.lost() for seq in range(lo, hi)}
        assert [r[0] for r in records] == [seq for seq in range(before, reader.seq) if seq not in gone]
        self.disk.faults = faults

    @rule(shard=SHARDS, data=st.data())
    def by_time(self, shard: int, data: st.DataObject) -> None:
        faults, self.disk.faults = self.disk.faults, {}
        reader = self.stream.reader(shard)
        time_us = data.draw(st.integers(900, self.stream.clock_us + 5))
        first, end = self.bounds(shard)
        assert reader.seek_time(time_us) == next((seq for seq in range(first, end) if self.stream.appended[shard][seq][2] >= time_us), end)
        self.disk.faults = faults

    def bounds(self, shard: int) -> tuple[int, int]:
        mark = self.stream.reader(shard).marks()["shards"][shard]
        return mark["first_seq"], mark["seq"]

    # ---- faults of the disk

    @rule(faults=FAULTS)
    def fault(self, faults: dict[str, list[int | str]]) -> None:
        self.disk.faults.update(faults)

    @rule(room=st.integers(0, 3 * SEGMENT))
    def little_space(self, room: int) -> None:
        self.disk.space = self.disk.used() + room

    @rule()
    def space(self) -> None:
        self.disk.space = 1 << 40

    # ---- ends of the process and the machine

    def killed(self) -> None:
        self.live = [None, None]
        self.stream.kill()

    def again(self, least: list[int], faults: dict[str, list[int | str]] | None = None) -> None:
        """Open the stream again; with faults, a first attempt may fail."""
        self.disk.space = 1 << 40
        self.disk.faults.update(faults or {})
        try:
            self.stream.open()
            if faults:
                self.killed()
        except OSError:
            assert faults
            self.disk.kill()
        if faults:
            self.disk.faults.clear()
            self.stream.open()
        face = self.stream.face
        assert face.found["lost"] == [], face.found
        assert not face.found["mark_lost"]
        for shard in range(2):
            end = face.next_seq(shard)
            assert end >= least[shard], (shard, end, least)
            appended = self.stream.appended[shard]
            for seq in [seq for seq in appended if seq >= end]:
                del appended[seq]
            assert not [seq for seq in self.seen[shard] if seq >= end]
            self.read(shard)
            assert self.bounds(shard)[1] == end
            self.committed[shard] = self.batch[shard] = end

    @rule(faults=st.one_of(st.none(), FAULTS))
    def kill(self, faults: dict[str, list[int | str]] | None) -> None:
        self.killed()
        self.again(self.committed, faults)

    @rule(faults=st.one_of(st.none(), FAULTS))
    def kill_before_a_batch(self, faults: dict[str, list[int | str]] | None) -> None:
        self.disk.faults.clear()
        until = [max(seq, self.bounds(shard)[1]) for shard, seq in enumerate(self.batch)]
        self.killed()
        self.stream.options["until"] = until
        self.again(until, faults)
        del self.stream.options["until"]
        assert [self.stream.face.next_seq(shard) for shard in range(2)] == until

    @rule(shard=SHARDS, n=st.integers(1, 4), size=st.sampled_from([10, 900, 5000]), more=st.integers(0, 2), faults=FAULTS,
          room=st.sampled_from([1 << 30, 0, 4500, 6000]), again=st.booleans())
    def kill_while_it_fails(self, shard: int, n: int, size: int, more: int, faults: dict[str, list[int | str]], room: int, again: bool) -> None:
        """Write, then let a fault and a few steps follow."""
        for _ in range(n):
            self.append(shard, 1, size, 1)
            self.seal()
            self.write()
        self.disk.faults.update(faults)
        self.sync()
        self.append(shard, 1, size, 1)
        self.seal()
        self.disk.space = self.disk.used() + room
        for _ in range(more):
            self.write()
            self.sync()
            self.mark()
        self.killed()
        if again:       # a start without room for the found records
            try:
                self.stream.open()
            except OSError:
                pass
            self.killed()
        self.again(self.committed)

    @rule(shard=SHARDS, n=st.integers(0, 2), faults=st.one_of(st.none(), FAULTS))
    def kill_while_a_mark_fails(self, shard: int, n: int, faults: dict[str, list[int | str]] | None) -> None:
        """The failed mark stays in the page cache, and the next process reads it."""
        for _ in range(n):
            self.append(shard, 1, 10, 1)
        self.seal()
        self.write()
        self.sync()
        self.disk.faults = {"datasync": [errno.EIO], "unlink": [errno.EIO] * 2}
        self.mark()
        self.killed()
        self.again(self.committed, faults)

    @rule(data=st.data())
    def power_cut(self, data: st.DataObject) -> None:
        self.live = [None, None]
        marked = [mark["seq"] for mark in self.stream.face.marks()["shards"]]
        self.stream.face.close()
        chance = data.draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))
        random = data.draw(st.randoms(use_true_random=False))
        self.disk.power_cut(lambda: random.random() < chance)
        self.again(marked)

    @invariant()
    def nothing_broke(self) -> None:
        assert self.disk.broken is None, self.disk.broken
        stats = self.stream.face.stats()
        assert stats["retired_records"] >= stats["forced_records"]


TestMachine = pytest.mark.again("properties")(Machine.TestCase)
TestMachine.settings = settings(max_examples=int(os.environ.get("MOSQ_JOURNAL_EXAMPLES", tries(300, 25))), stateful_step_count=50, suppress_health_check=list(HealthCheck))
