"""Test the journal of a stream on files in Redis, and its copy in a folder: any order of their functions, kills, lost connections, and the
consumers of the copy, beside a naive model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from mosq import _core
from mosq._core import PyJournal, consumer_mark, consumers
from mosq.cluster.scripts import STREAMS_FOLDER, others_of
from mosq.journal.parts import STRIDE
from mosq.journal.stream import Stream
from mosq.tools.cluster.streams import CopyError, StreamCopy, forget
from tests.harness.effort import tries
from tests.redis.server import Server

pytestmark = pytest.mark.part("redis")

STORE = "log"
FOLDER = f"{STREAMS_FOLDER}/s"
SEGMENT = 8192
SHARDS = 2


class Owner:
    """A process that has the store; `appended[shard]`: the payload of each record by its number, and the node that has appended it. Each
    process is on another node."""

    def __init__(self, server: Server, **options: int) -> None:
        self.server, self.options = server, options
        self.appended: list[dict[int, tuple[bytes, str]]] = [{} for _ in range(SHARDS)]
        self.starts = 0
        self.safe = [0] * SHARDS            # ends of the records that are synced
        self.clock_us = 1000
        self.open()

    def open(self) -> None:
        self.log = self.server.files(STORE)
        self.starts += 1
        self.node = f"node{self.starts}"
        self.face = PyJournal(FOLDER, shards=SHARDS, segment_bytes=SEGMENT, block_bytes=4096, disk=self.log, now_us=self.clock_us,
                              node=self.node.encode(), **self.options)

    def append(self, shard: int, size: int) -> None:
        self.clock_us += 10
        payload = os.urandom(size)
        seq, _ = self.face.append(shard, topic=b"t", payload=payload, time_us=self.clock_us)
        self.appended[shard][seq] = payload, self.node

    def write(self) -> None:
        self.face.seal()
        self.face.write(self.clock_us)

    def sync(self) -> None:
        if self.face.sync():
            self.safe = [self.face.written(shard) for shard in range(SHARDS)]

    def commit(self) -> None:
        self.write()
        self.sync()
        assert self.face.mark(self.clock_us), self.face.why()

    def again(self) -> None:
        """Kill the process, and start the next one."""
        self.face.close()
        self.open()
        assert self.face.found["lost"] == []
        for shard, appended in enumerate(self.appended):
            end = self.face.next_seq(shard)
            assert end >= self.safe[shard]
            for seq in [seq for seq in appended if seq >= end]:
                del appended[seq]
            self.safe[shard] = end

    def marks(self) -> list[tuple[int, int]]:
        return [(mark["first_seq"], mark["seq"]) for mark in self.face.marks()["shards"]]


class Copy:
    """A copy, and what it must have."""

    def __init__(self, owner: Owner, folder: Path) -> None:
        self.owner, self.folder = owner, folder
        self.seen: list[dict[int, tuple[bytes, str | None]]] = [{} for _ in range(SHARDS)]
        self.ends = [0] * SHARDS
        self.open()

    def open(self) -> None:
        self.copying = StreamCopy(self.owner.server.call, {1: STORE}, self.folder, "copy")

    @property
    def stream(self) -> Stream:
        return Stream(self.folder / "s")

    def copy(self) -> None:
        assert self.copying.copy().behind == []
        marks = self.stream.marks()[STRIDE:]
        self.ends = [mark.seq for mark in marks]
        assert self.ends == [end for _, end in self.owner.marks()]
        for shard, mark in enumerate(marks):
            found = {record.seq: (record.payload, record.cluster_node) for record in self.stream.read(mark.first_seq, mark.seq, STRIDE + shard)}
            assert list(found) == list(range(mark.first_seq, mark.seq))
            for seq, row in found.items():
                assert self.seen[shard].setdefault(seq, row) == row == self.owner.appended[shard][seq]


class Machine(RuleBasedStateMachine):
    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.server.call("FLUSHALL")
        self.owner = Owner(self.server, retain_age_us=200)
        self.folder = TemporaryDirectory()
        self.owner.append(0, 10)
        self.owner.append(1, 10)
        self.owner.commit()
        self.copied = Copy(self.owner, Path(self.folder.name))
        self.copied.copy()
        self.done: list[int] | None = None      # by a consumer of the copy, as the last copy has found it
        self.consumed: list[int] | None = None

    @rule(shard=st.integers(0, SHARDS - 1), n=st.integers(1, 9), size=st.sampled_from([0, 3, 100, 700, 5000]))
    def append(self, shard: int, n: int, size: int) -> None:
        for _ in range(n):
            self.owner.append(shard, size)

    @rule()
    def write(self) -> None:
        self.owner.write()

    @rule()
    def sync(self) -> None:
        self.owner.sync()

    @rule()
    def mark(self) -> None:
        self.owner.face.mark(self.owner.clock_us)

    @rule(n=st.integers(1, 6))
    def work(self, n: int) -> None:
        for i in range(n):
            self.append(i % SHARDS, 4, 900)
            self.owner.commit()

    @rule()
    def retain(self) -> None:
        if self.owner.face.retain(self.owner.clock_us):
            assert self.owner.face.stats()["forced_records"] == 0
            for shard, (first, _) in enumerate(self.owner.marks()):
                assert first <= self.copied.ends[shard]
                assert self.done is None or first <= self.done[shard]

    @rule()
    def copy(self) -> None:
        self.copied.copy()
        self.done = self.consumed

    @rule()
    def another_process_copies(self) -> None:
        self.copied.copying.close()
        self.copied.open()

    @rule(data=st.data())
    def consume(self, data: st.DataObject) -> None:
        before = self.consumed or [0] * SHARDS
        self.consumed = [data.draw(st.integers(low, max(low, end))) for low, end in zip(before, self.copied.ends, strict=True)]
        self.copied.stream.put_consumer("reader", [0] * STRIDE + self.consumed)

    @precondition(lambda self: self.consumed is not None)
    @rule()
    def remove_the_consumer(self) -> None:
        (self.copied.folder / "s/worker.1/consumers/reader").unlink()
        self.consumed = None

    @rule()
    def cut(self) -> None:
        self.server.cut()

    @rule()
    def kill(self) -> None:
        self.owner.again()

    @rule()
    def power_cut(self) -> None:
        """Kill Redis as well; all that it has done is in its append-only file."""
        self.server.kill()
        self.server.start()
        self.owner.again()

    def teardown(self) -> None:
        self.owner.face.close()
        self.copied.copying.close()
        self.folder.cleanup()


@pytest.mark.again("redis")
def test_a_stream_in_redis_and_its_copy_keep_their_promises() -> None:
    with Server() as Machine.server:
        run_state_machine_as_test(Machine, settings=settings(       # type: ignore[no-untyped-call]
            max_examples=tries(100, 12), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)))


@pytest.fixture
def copied(server: Server, tmp_path: Path) -> Iterator[Copy]:
    owner = Owner(server, retain_age_us=200)
    owner.append(0, 100)
    owner.commit()
    found = Copy(owner, tmp_path)
    found.copy()
    yield found
    found.copying.close()
    owner.face.close()


def test_marks_of_other_programs_are_read_when_their_folder_is_listed(server: Server) -> None:
    owner = Owner(server)
    key = others_of(STORE)
    assert consumers(FOLDER, disk=owner.log) == {}
    server.call("HSET", key, f"{FOLDER}/consumers/one", consumer_mark([3, 4], 7), f"{FOLDER}/consumers/two", b"damaged",
                f"{STREAMS_FOLDER}/other/consumers/three", consumer_mark([1], 1))
    assert consumers(FOLDER, disk=owner.log) == {"one": (7, [3, 4]), "two": None}
    server.call("HSET", key, f"{FOLDER}/consumers/one", consumer_mark([5, 6], 8))
    server.call("HDEL", key, f"{FOLDER}/consumers/two")
    server.cut()
    assert consumers(FOLDER, disk=owner.log) == {"one": (8, [5, 6])}
    owner.face.close()


def test_nothing_is_removed_while_the_marks_of_others_cannot_be_read() -> None:
    with Server() as server:
        owner = Owner(server, retain_age_us=1)
        for _ in range(20):
            owner.append(0, 3000)
            owner.commit()
        server.kill()
        assert not owner.face.retain(owner.clock_us + 1000)
        server.start()
        assert owner.marks()[0][0] == 0
        assert owner.face.retain(owner.clock_us + 1000)
        assert owner.marks()[0][0] > 0
        owner.face.close()


def test_a_second_copy_into_a_folder_is_refused(copied: Copy) -> None:
    with pytest.raises(CopyError, match="another process copies streams into"):
        StreamCopy(copied.owner.server.call, {1: STORE}, copied.folder, "copy")


def test_the_stream_of_another_cluster_is_refused(copied: Copy) -> None:
    copied.owner.face.close()
    copied.owner.server.call("FLUSHALL")
    copied.owner.open()
    copied.owner.append(0, 10)
    copied.owner.commit()
    with pytest.raises(CopyError, match="has another stream of this name"):
        copied.copying.copy()


def test_a_copy_waits_while_redis_has_less(copied: Copy) -> None:
    owner, server = copied.owner, copied.owner.server
    before = {key: server.call("DUMP", key) for key in server.call("KEYS", "*")}        # type: ignore[union-attr]
    owner.append(0, 100)
    owner.commit()
    copied.copy()
    owner.face.close()
    server.call("FLUSHALL")             # as by a failover that loses the last operations
    for key, value in before.items():
        server.call("RESTORE", key, 0, value)       # type: ignore[arg-type]
    assert copied.copying.copy().behind == ["s of worker 1"]
    assert copied.stream.marks()[STRIDE].seq == 2
    owner.open()
    owner.appended[0] = {seq: row for seq, row in owner.appended[0].items() if seq == 0}
    copied.seen[0].pop(1)
    for _ in range(2):
        owner.append(0, 100)
        owner.commit()
    copied.copy()


def test_a_forgotten_copy_delays_no_retention(copied: Copy) -> None:
    owner = copied.owner
    for _ in range(20):
        owner.append(0, 3000)
        owner.commit()
    assert owner.face.retain(owner.clock_us + 1000)
    assert owner.marks()[0][0] <= copied.ends[0]
    assert forget(owner.server.call, {1: STORE}, "another") == 0
    assert forget(owner.server.call, {1: STORE}, "copy") == 1
    assert owner.face.retain(owner.clock_us + 1000)
    assert owner.marks()[0][0] > copied.ends[0]
    assert _core.consumers(FOLDER, disk=owner.log) == {}
