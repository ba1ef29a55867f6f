"""Run the store on files in Redis: any order of its functions, kills of its process, and its cleaning."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from mosq._core import PyStore, scan
from mosq._redis import LogFiles
from tests.harness.effort import tries
from tests.harness.faults import until
from tests.redis.server import PLACE_OF_TESTS, Server
from tests.store.owner import Owner
from tests.store.test_machine import Machine

pytestmark = pytest.mark.part("redis")

ROOT = Path(__file__).parents[2]
FAR, FAR_BYTES = range(100, 105), 3200      # keys whose values are larger than FETCH_BYTES and FETCH_GAP of cext/store/fetch.pyx


class RedisDisk:
    """Stands for the disk of the store's tests."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.log = server.files()
        self.broken = None
        self.faults: dict[str, int] = {}

    def file_ops(self) -> object:
        return self.log.file_ops()

    def kill(self) -> None:
        """End the process: operations that were not sent are lost, and the next process takes the store."""
        self.log = self.server.files()


class RedisMachine(Machine):
    server: Server

    def __init__(self) -> None:
        super(Machine, self).__init__()
        self.server.call("FLUSHALL")
        self.disk = RedisDisk(self.server)          # type: ignore[assignment]
        self.begin(Owner(self.disk))                # type: ignore[arg-type]

    @rule(times=st.integers(1, 3))
    def fault(self, times: int) -> None:            # type: ignore[override]
        for _ in range(times):
            self.server.cut()

    @rule()
    def little_space(self) -> None:                 # type: ignore[override]
        self.server.call("CONFIG", "SET", "maxmemory", "1")

    @rule()
    def space(self) -> None:
        self.server.call("CONFIG", "SET", "maxmemory", "0")

    @rule()
    def read_back(self) -> None:                    # type: ignore[override]
        key = min(self.owner.place, default=None)
        if key is None or self.owner.place[key] >= self.owner.store.written():
            return
        self.check_read(key)

    @rule(order=st.randoms(use_true_random=False))
    def read_many_back(self, order: Random) -> None:
        """Read all records that are written, as the queues of many sessions. In a full Redis some reads wait."""
        self.space()
        for key in FAR:             # of five, at least two are in one segment, and not beside each other
            self.owner.put(key, bytes([key]) * FAR_BYTES)
        self.seal(False)
        until(lambda: self.owner.turn() is not None and self.owner.store.written() >= self.snapshots[-1][0])
        questions, ranges = self.server.read_calls()
        place, written = self.owner.place, self.owner.store.written()
        keys = sorted(key for key in place if place[key] < written)
        order.shuffle(keys)
        parts = [keys[n:n + 3] for n in range(0, len(keys), 3)]
        for part in parts:
            assert self.owner.store.read([place[key] for key in part])
        got: list[tuple[int, bytes]] = []

        def all_came() -> bool:
            self.owner.turn()
            got.extend((a[1], a[4][4:]) for a in self.owner.store.read_next())
            return len(got) >= len(keys)

        until(all_came)
        assert got == [(place[key], self.owner.table[key]) for key in keys]
        now = self.server.read_calls()
        assert now[0] - questions < now[1] - ranges         # the connection is there, so they were read together

    @rule()
    def power_cut(self) -> None:                    # type: ignore[override]
        """Kill Redis as well; all that it has done is in its append-only file."""
        self.server.kill()
        self.server.start()
        self.kill()

    def teardown(self) -> None:
        # a store that is only forgotten is closed whenever its memory is freed, which writes its last batches: into the Redis of
        # the next example, where the store has the same name
        self.owner.store.abandon()
        self.server.call("CONFIG", "SET", "maxmemory", "0")


@pytest.mark.again("redis")
def test_the_store_keeps_its_promises_on_files_in_redis() -> None:
    with Server() as RedisMachine.server:
        run_state_machine_as_test(RedisMachine, settings=settings(  # type: ignore[no-untyped-call]
            max_examples=tries(100, 12), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)))


def test_cleaning_bounds_the_memory_of_redis(server: Server) -> None:
    owner = Owner(RedisDisk(server))                # type: ignore[arg-type]
    for n in range(300):
        for key in range(8):
            owner.put(key, bytes([n & 255]) * 900)
        owner.seal()
        owner.turn()
        owner.clean()
    owner.settle()
    assert owner.store.stats()["cleaned"] > 50
    assert server.contents() <= owner.store.stats()["segments"] + 2      # and the lock, and no spare
    assert len(scan(PLACE_OF_TESTS, lambda _: None, disk=owner.disk)["ranges"]) == 0
    assert owner.store.stats()["total_bytes"] < 2 * owner.live_bytes + 4 * 16384


def spread(server: Server, count: int, sizes: Callable[[int], int]) -> tuple[Owner, RedisDisk]:
    """Return a store with many segments, whose keys are from 0 on."""
    disk = RedisDisk(server)
    owner = Owner(disk)                             # type: ignore[arg-type]
    for key in range(count):
        owner.put(key, os.urandom(sizes(key)))
        if key % 20 == 19:
            owner.seal()
            owner.turn()
    owner.settle()
    return owner, disk


def read_all(owner: Owner, disk: RedisDisk, parts: list[list[int]]) -> tuple[int, int]:
    """Read records, each part with a request of its own, and compare them. Return the numbers of questions to Redis, and of ranges in
    them."""
    before = disk.server.read_calls()
    for n, keys in enumerate(parts):
        assert owner.store.read([owner.place[key] for key in keys], n)
    want = [(n, owner.place[key], owner.table[key]) for n, keys in enumerate(parts) for key in keys]
    got: list[tuple[int, int, bytes]] = []
    while len(got) < len(want):
        n_before = len(got)
        owner.turn()
        got += [(a[0], a[1], a[4][4:]) for a in owner.store.read_next()]
        assert len(got) > n_before
    assert got == want
    questions, ranges = (now - then for now, then in zip(disk.server.read_calls(), before, strict=True))
    return questions, ranges


def test_records_of_many_sessions_are_read_with_few_questions(server: Server) -> None:
    """Session n has each 100th message, so its records lie all over the segments, and in more blocks than are kept."""
    owner, disk = spread(server, 1500, lambda _: 900)
    segments = owner.store.stats()["segments"]
    assert segments > 64          # BLOCKS of cext/redis/blocks.pxd
    before = disk.log.counts()["reads"]
    read_all(owner, disk, [list(range(n, 1500, 100)) for n in range(100)])
    steps = -(-1500 // 512)                         # FETCH_RECORDS of cext/store/fetch.pyx
    assert 0 < disk.log.counts()["reads"] - before <= steps * segments + 4 < 1500 / 3


def test_far_and_large_and_small_records_are_read_together(server: Server) -> None:
    owner, disk = spread(server, 300, lambda key: (0, 7, 400, 1019, 1020, 1021, 5000, 12_000)[key % 8])
    keys = list(range(300))
    Random(7).shuffle(keys)
    for parts in ([keys[n:n + 17] for n in range(0, 300, 17)], [keys[::7]]):
        questions, ranges = read_all(owner, disk, parts)
        assert 0 < questions < ranges


def test_records_that_cannot_be_read_together_are_read_one_by_one(server: Server) -> None:
    """The connection is cut before the question for many records."""
    owner, disk = spread(server, 60, lambda _: 600)
    far = list(range(0, 60, 6))                     # more than FETCH_GAP of cext/store/fetch.pyx is between two of them
    questions, ranges = read_all(owner, disk, [far])
    assert questions < ranges == len(far)
    server.cut()
    questions, ranges = read_all(owner, disk, [far])
    assert questions == 1 + ranges > 1              # and the claim of the new connection


def test_a_damaged_record_among_many_is_reported_and_the_others_are_read(server: Server) -> None:
    owner, _ = spread(server, 60, lambda _: 600)
    keys = [7, 8, 9, 30, 59]
    for name in sorted(server.call("KEYS", "mosq:{log}:f:*")):      # type: ignore[arg-type, type-var]
        content = server.call("GET", name)
        assert isinstance(content, bytes)
        at = content.find(owner.table[8])
        if at >= 0:
            server.call("SETRANGE", name, at + 5, b"damaged")
    assert owner.store.read([owner.place[key] for key in keys])
    owner.turn()
    answers = owner.store.read_next()
    assert [(a[1], a[4][4:]) for a in answers if a[2]] == [(owner.place[key], owner.table[key]) for key in keys if key != 8]
    assert [a[1] for a in answers if not a[2]] == [owner.place[8]]


def test_nothing_counts_before_redis_has_it() -> None:
    with Server() as server:
        owner = Owner(RedisDisk(server))            # type: ignore[arg-type]
        owner.put(1, b"one")
        first = owner.seal()
        owner.turn()
        assert owner.store.written() == owner.store.synced() == first
        server.kill()
        owner.put(2, b"two")
        second = owner.seal()
        assert "error" in owner.turn()
        assert owner.store.written() == first
        assert "Cannot sync a segment in /d: Redis at 127.0.0.1:" in owner.store.error()
        server.start()
        assert "error_over" in owner.turn()
        assert owner.store.written() == owner.store.synced() == second
        assert owner.store.stats()["poisoned"] == 0
        owner.store.abandon()
        assert Owner(RedisDisk(server)).table == {1: b"one", 2: b"two"}     # type: ignore[arg-type]


def test_a_start_without_redis_is_refused_and_loses_nothing() -> None:
    with Server() as server:
        owner = Owner(RedisDisk(server))            # type: ignore[arg-type]
        owner.put(1, b"one")
        owner.seal()
        owner.turn()
        owner.store.abandon()
        log = server.files()
        server.kill()
        with pytest.raises(OSError, match=r"Cannot read /d: Redis at 127\.0\.0\.1:\d+: Connection refused"):
            PyStore(PLACE_OF_TESTS, disk=log)
        server.start()
        store = PyStore(PLACE_OF_TESTS, disk=log)
        server.kill()
        with pytest.raises(OSError, match=r"Cannot read the store in /d: Redis at 127\.0\.0\.1:\d+: Connection refused"):
            store.recover()
        server.start()
        assert Owner(RedisDisk(server)).table == {1: b"one"}        # type: ignore[arg-type]


# ---- kills of the process

WRITER = """
import sys
from mosq._core import PyStore
from mosq._redis import LogFiles, RedisConnection
log = LogFiles(RedisConnection([("127.0.0.1", int(sys.argv[1]))]), "log")
store = PyStore("/d", segment_bytes=16384, disk=log)
store.recover()
store.start()
n = 0
while True:
    store.append(1, b"%06d" % n * 50)
    end = store.seal()
    while store.written() < end:
        store.wait()
        if log.ended:
            sys.exit(print(store.error()))
    n += 1
    print(n, end, flush=True)
"""


def writer(server: Server) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(server.port)], stdout=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": str(ROOT)})


def records(log: LogFiles) -> tuple[list[bytes], int]:
    store = PyStore(PLACE_OF_TESTS, disk=log)
    found, loss = store.recover()
    assert loss["bytes"] == 0
    assert store.close() is None
    return [body for _, _, _, body in found], loss["end_lsn"]


@pytest.mark.parametrize("lines", [1, 2, 50, 117])
def test_a_killed_process_leaves_all_that_it_has_reported(server: Server, lines: int) -> None:
    with writer(server) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)][-1].split()
        process.kill()
    found, end = records(server.files())
    assert len(found) >= int(said[0])
    assert end >= int(said[1])
    assert found == [b"%06d" % n * 50 for n in range(len(found))]


def test_a_stopped_process_that_wakes_up_writes_nothing(server: Server) -> None:
    with writer(server) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        log = server.files()
        store = PyStore(PLACE_OF_TESTS, disk=log)
        before, _ = store.recover()
        store.append(2, b"of the next owner")
        end = store.seal()
        store.turn()
        store.poll()
        assert store.written() == end
        number = server.head()[b"number"]
        process.send_signal(signal.SIGCONT)
        assert "another process has taken this store" in process.stdout.read().splitlines()[-1]
        assert server.head()[b"number"] == number
    assert store.close() is None
    assert len(records(server.files())[0]) == len(before) + 1
