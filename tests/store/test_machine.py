"""Call the store's functions in any order, over a disk that fails, is cut off, and loses unsynced data.

After a kill the table equals the table after some batch. That batch is at least as new as the last one that the store reported
as written, and no loss is reported. After a power cut each key has its value from the last reported sync, or a later one.
"""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.harness.effort import tries
from tests.store.disk import Disk
from tests.store.owner import SEGMENT, Owner, Table, record_bytes

KEYS = st.integers(0, 30)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk()
        self.begin(Owner(self.disk))

    def begin(self, owner: Owner) -> None:
        self.owner = owner
        self.snapshots: list[tuple[int, Table]] = [(owner.loss["end_lsn"], dict(owner.table))]      # (end of a batch, its table)
        self.known = owner.loss["bytes"]        # damage is reported at each start, until its segment is dropped

    # ---- actions of the owner

    @rule(key=KEYS, size=st.one_of(st.integers(0, 40), st.integers(0, 3000)), fill=st.integers(0, 255))
    def put(self, key: int, size: int, fill: int) -> None:
        self.owner.put(key, bytes([fill]) * size)

    @rule(n=st.integers(1, 12), fill=st.integers(0, 255))
    def put_many(self, n: int, fill: int) -> None:
        for key in range(n):
            self.owner.put(key, bytes([fill]) * 900)

    @rule(rounds=st.integers(1, 8), sync=st.booleans(), fill=st.integers(0, 255), cleans=st.booleans())
    def work(self, rounds: int, sync: bool, fill: int, cleans: bool) -> None:
        for n in range(rounds):
            self.put_many(10, fill + n & 255)
            self.seal(sync)
            self.owner.turn()
            if cleans:
                self.owner.clean()

    @rule(key=KEYS)
    def delete(self, key: int) -> None:
        self.owner.delete(key)

    @rule(sync=st.booleans())
    def seal(self, sync: bool) -> None:
        end = self.owner.seal(sync)
        if end != self.snapshots[-1][0]:
            self.snapshots.append((end, dict(self.owner.table)))

    @rule()
    def turn(self) -> None:
        self.owner.turn()

    @rule(most=st.integers(1, 60))
    def clean(self, most: int) -> None:
        self.owner.clean(most)

    @rule(key=KEYS)
    def read_back(self, key: int) -> None:
        if self.disk.faults or key not in self.owner.place or self.owner.place[key] >= self.owner.store.written():
            return
        self.check_read(key)

    def check_read(self, key: int) -> None:
        assert self.owner.store.read([self.owner.place[key]], cookie=key)
        self.owner.turn()
        answers = self.owner.store.read_next()
        if self.owner.place[key] < self.owner.store.written():
            assert [(a[0], a[1], a[4][4:]) for a in answers] == [(key, self.owner.place[key], self.owner.table[key])]

    # ---- faults of the disk

    @rule(call=st.sampled_from(["pwrite", "pwrite", "datasync", "open", "unlink", "sync_dir"]), after=st.integers(0, 3),
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

    # ---- ends of the process and the machine

    @rule()
    def kill(self) -> None:
        owner = self.owner
        written = owner.store.written()
        owner.store.abandon()
        self.disk.kill()
        again = Owner(self.disk)
        assert again.loss["bytes"] <= self.known, again.loss
        assert again.loss["end_lsn"] >= written
        ends = dict(self.snapshots)
        assert again.table == ends[again.loss["end_lsn"]]
        self.begin(again)

    @rule(data=st.data())
    def power_cut(self, data: st.DataObject) -> None:
        owner = self.owner
        synced = owner.store.synced()
        owner.store.abandon()
        chance = data.draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))
        random = data.draw(st.randoms(use_true_random=False))
        self.disk.power_cut(lambda: random.random() < chance)
        again = Owner(self.disk)
        if synced >= self.snapshots[0][0]:
            self.check_power(again, synced)
        self.begin(again)

    def check_power(self, again: Owner, synced: int) -> None:
        assert again.loss["end_lsn"] >= synced
        if again.loss["n"] <= len(again.loss["ranges"]):
            assert again.loss["bytes"] - again.loss["unsynced_bytes"] <= self.known, again.loss
        at = next(i for i, (end, _) in enumerate(self.snapshots) if end >= synced)
        for key in range(31):
            allowed = [table.get(key) for _, table in self.snapshots[at:]]
            # any unsynced record may be missing, also within a batch
            allowed += [value for lsn, k, value in self.owner.log if k == key and lsn >= synced]
            assert again.table.get(key) in allowed, (key, again.loss)

    @invariant()
    def nothing_broke(self) -> None:
        assert self.disk.broken is None, self.disk.broken
        assert self.owner.live_bytes == sum(record_bytes(b"KKKK" + v) for v in self.owner.table.values())


TestMachine = pytest.mark.again("properties")(Machine.TestCase)
TestMachine.settings = settings(max_examples=int(os.environ.get("MOSQ_STORE_EXAMPLES", tries(300, 30))), stateful_step_count=50, suppress_health_check=list(HealthCheck))
