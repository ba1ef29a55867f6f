"""A stream's door in any order, over a disk that fails, is cut off, and loses what was not synced, beside a naive model.

What must hold: a number that a reader has seen means the same record for ever; up to the mark every number is there, or below what retention has dropped;
after a kill nothing that was written is lost, after a power cut nothing that the mark names.
"""

from __future__ import annotations

import errno
import os

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cext.journal.face import ReaderFace, consumer_mark
from tests.harness.effort import tries
from tests.journal.disk import DIR, SEGMENT, FolderDisk, Stream, content

SHARDS = st.integers(0, 1)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = FolderDisk()
        self.stream = Stream(self.disk, 2, retain_bytes=6 * SEGMENT, retain_age_us=60)
        self.seen: list[dict[int, tuple[bytes, bytes, int]]] = [{}, {}]
        self.live: list[ReaderFace | None] = [None, None]
        self.consumed = [0, 0]
        self.forced = 0  # by streams before this one

    # ---- what an owner does

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

    @rule(n=st.integers(1, 6), size=st.sampled_from([10, 900]))
    def work(self, n: int, size: int) -> None:
        for i in range(n):
            self.append(i & 1, 4, size, 1)
            self.stream.write()
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

    # ---- what a reader does

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

    # ---- what a disk does

    @rule(call=st.sampled_from(["pwrite", "pwrite", "datasync", "open", "unlink", "sync_dir"]), after=st.integers(0, 4),
          what=st.sampled_from(["short", errno.EIO, errno.ENOSPC, errno.EINTR]), times=st.integers(1, 3))
    def fault(self, call: str, after: int, what: int | str, times: int) -> None:
        if what in ("short", errno.EINTR) and call != "pwrite":
            what = errno.EIO
        self.disk.faults[call] = ["ok"] * after + [what] * times

    @rule(room=st.integers(0, 3 * SEGMENT))
    def little_space(self, room: int) -> None:
        self.disk.space = self.disk.used() + room

    @rule()
    def space(self) -> None:
        self.disk.space = 1 << 40

    # ---- what may happen to all of it

    def again(self, least: list[int]) -> None:
        self.disk.space = 1 << 40
        self.stream.open()
        face = self.stream.face
        assert face.found["lost"] == [], face.found
        assert not face.found["mark_lost"]
        for shard in range(2):
            end = face.next_seq(shard)
            assert end >= least[shard]
            appended = self.stream.appended[shard]
            for seq in [seq for seq in appended if seq >= end]:
                del appended[seq]
            assert not [seq for seq in self.seen[shard] if seq >= end]
            self.read(shard)
            assert self.bounds(shard)[1] == end

    @rule()
    def kill(self) -> None:
        if self.disk.failed:  # not between a failed sync and what is written anew: see the limits in docs/journal.md
            self.disk.faults.clear()
            self.space()
            assert self.stream.face.write(self.stream.clock_us)
            assert self.stream.face.sync()
            assert self.stream.face.mark(self.stream.clock_us)
        self.live = [None, None]
        written = [self.stream.face.written(shard) for shard in range(2)]
        self.stream.kill()
        self.again(written)

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


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=int(os.environ.get("MOSQ_JOURNAL_EXAMPLES", tries(100))), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck))
